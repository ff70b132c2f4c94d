"""Calls the functions of an untrusted kernel, which runs in another process.

An implementation has these functions as its operations. Their results are copies in this process.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np

from properties.contract.implementation import USUAL_REFUSALS, Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.wording import printable, shown
from properties.gatehouse import wire
from properties.gatehouse.answers import FINISHED, IMPORTED, RAISED, answers, has
from properties.gatehouse.process import EndedError, Process

__all__ = ["CONFINED", "MOST_KEPT", "IsolatedKernel", "Limits"]

MOST_KEPT = 200, 2**23
"""The largest number of results, and of their bytes, that are kept to see whether they change later."""

CONFINED = {
    "files": "by Landlock",
    "processes": "by unshare, with namespaces of users",
    "syscalls": "by seccomp, on x86-64 and AArch64",
}
"""What the system can confine a process to, and by what."""

_SHARE_KEPT = 0.1  # the share of the calls whose results are kept
_LONGEST = 300  # characters of a text from the process
_MOST_NAMES = 1000  # of modules and functions that the process says it has used


@dataclass(frozen=True)
class Limits:
    """The limits of an untrusted kernel: seconds for one call, for all calls of a process, and for
    the import; bytes of address space; and what the system must confine the kernel to, "files",
    "processes" or "syscalls", before the kernel is imported. `forbid` has the dotted names of modules
    and functions that the kernel may not use. `replaces` says whether it may replace functions of
    time, NumPy and torch.
    """

    call: float = 2.0
    calls: float = 6.0
    imports: float = 60.0
    memory: int = 2**32
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    replaces: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.require, tuple) or not {*self.require} <= {*CONFINED}:
            raise ValueError(f"require={shown(self.require)}, but should be a tuple of {', '.join(CONFINED)}.")
        identifiers = [identifier for forbidden in self.forbid for identifier in forbidden.split(".")]
        if not isinstance(self.forbid, tuple) or not all(map(str.isidentifier, identifiers)):
            raise ValueError(f"forbid={shown(self.forbid)}, but should be a tuple of names, as 'torch.nn.functional'.")

    def forbidden(self, names: Iterable[str]) -> list[str]:
        """Return the names, among some, of modules and functions that the kernel may not use."""
        return [name for name in names if any(f"{name}.".startswith(f"{each}.") for each in self.forbid)]


class IsolatedKernel:
    """An untrusted kernel in its process.

    `functions` maps operations to functions that ask the process. They raise BrokenError for an
    answer that is not a result. While `in_two_threads` is true, each call runs together with a
    repetition of the previous call in a second thread. `given_up` are the parts of `CONFINED` to
    which the process has confined itself. The process says so before it runs the kernel's code.

    At the end, `used` are the names of modules that the kernel has imported and of functions of
    torch that it has called, besides the names that the gate has read in its sources. `replaced` are
    functions of other modules that it has replaced.
    """

    def __init__(
        self,
        process: Process,
        entry: Mapping[str, tuple[str, str]],
        arrays: str,
        promised: Implementation,
        limits: Limits,
    ) -> None:
        self.process, self.limits, self.arrays, self.deterministic = process, limits, arrays, promised.deterministic
        self.functions: dict[str, Callable[..., Any]] = {name: partial(self._call, OPERATIONS[name]) for name in entry}
        self.in_two_threads, self.given_up = False, {"processes"} if process.apart else set[str]()
        self._refuses = {kind.__name__: kind for kind in promised.refuses or USUAL_REFUSALS}
        self._asked: dict[str, Any] = {"import": {name: list(place) for name, place in entry.items()}}
        self._last: tuple[Operation, tuple[Any, ...], dict[str, Any]] | None = None
        self._last_told: dict[str, Any] = {}
        self._kept: list[Any] = []
        self.used: tuple[str, ...] = ()
        self.replaced: tuple[str, ...] = ()
        self._random = Random()  # of the system's entropy: which results are kept cannot be foreseen

    def begin(self) -> str:
        """Import the kernel. Return "", or a sentence that says why the kernel cannot be used."""
        try:
            began, _ = self.process.ask({"begin": True}, [], self.limits.imports, "before it was imported")
            confined = began["confined"]  # until now the process has run only our code
            self.given_up |= {part for part in CONFINED if confined.get(part)}
            self._require_confined()
            answer, _ = self.process.ask(self._asked, [], self.limits.imports, "when it was imported")
            if not (has(answer, IMPORTED) or has(answer, RAISED)):
                raise self.process.end("wrote something else than an answer, when it was imported")
        except EndedError as ended:
            return f"It {ended}."
        self.process.seconds, self.process.all_seconds = 0.0, self.limits.calls
        if has(answer, RAISED):
            raised = self._raised(answer)
            return f"It raised {type(raised).__name__} when it was imported: {raised}"
        return ""

    def confined(self) -> tuple[str, ...]:
        """Return what the system confines the process to."""
        return tuple(part for part in CONFINED if part in self.given_up)

    def _require_confined(self) -> None:
        """Raise ValueError if the system does not confine the process as is required."""
        for part in self.limits.require:
            if part not in self.confined():
                raise ValueError(
                    f"This system cannot confine {part} ({CONFINED[part]}), which is required. "
                    f"The kernel was not imported. Run the gate where it can, or leave {part!r} out."
                )

    def finish(self) -> list[str]:
        """Return sentences that say what is wrong after all calls; an empty list if all is right."""
        self.process.seconds = 0.0
        try:
            answer, data = self.process.ask({}, [], self.limits.call, "after all calls")
            if not has(answer, FINISHED):
                raise wire.NonsenseError
            kept = wire.unlisted(answer["kept"], data)
        except (EndedError, wire.NonsenseError):
            return [f"It {self.process.end('wrote something else than an answer, after all calls')}."]
        used, self.replaced = (
            tuple(printable(name[:_LONGEST]) for name in answer[kind][:_MOST_NAMES]) for kind in ("used", "replaced")
        )
        self.used += used
        changed = len(kept) != len(self._kept) or not all(map(_same, kept, self._kept))
        return [
            *(["What it returned was changed afterwards, but should stay as it was."] if changed else []),
            *(
                ["It returned in a process that it had forked, too, but should return once."]
                if answer["forked"]
                else []
            ),
        ]

    def _call(self, operation: Operation, *positional: Any, **options: Any) -> Any:
        """Return the result of one call. Raises the exception that the function raised, and
        BrokenError for any other wrong answer.
        """
        call = operation, positional, options
        calls = [call, self._last] if self.in_two_threads and self._last is not None else [call]
        self._last = operation, tuple(map(_copy, positional)), {name: _copy(value) for name, value in options.items()}
        has_room = len(self._kept) < MOST_KEPT[0] and sum(value.nbytes for value in self._kept) < MOST_KEPT[1]
        is_kept = has_room and self._random.random() < _SHARE_KEPT and len(calls) == 1
        try:
            answer, *beside = self._answers(calls, is_kept)
        except EndedError as ended:
            raise BrokenError(f"It {ended}.") from None
        before, self._last_told = self._last_told, answer
        if self.deterministic and any(not _alike(other, before) for other in beside):
            raise BrokenError(
                "While this call was made in another thread, the call before it returned something else than alone."
            )
        if "raised" in answer:
            raise self._raised(answer)
        if "other" in answer:
            raise BrokenError(f"returned {printable(answer['other'][:_LONGEST])}, but should return arrays.")
        if is_kept:
            self._kept += [_copy(value) for value in answer["results"] if isinstance(value, np.ndarray)]
        return self._returned(
            answer,
            (*positional, *options.values()),
            (*(parameter for parameter in operation.parameters if parameter not in operation.options), *options),
        )

    def _answers(
        self, calls: list[tuple[Operation, tuple[Any, ...], dict[str, Any]]], keep: bool
    ) -> list[dict[str, Any]]:
        """Return the answers to calls that are made at the same time. Raises EndedError if the
        process gives no answer.
        """
        activity, chunks = f"in a call of {calls[0][0].name}", list[bytes]()
        requests = [
            {
                "function": operation.name,
                "names": list(options),
                "arguments": wire.listed(positional, chunks),
                "options": wire.listed(list(options.values()), chunks),
                "memory": wire.places_in_memory([*positional, *options.values()]),
            }
            for operation, positional, options in calls
        ]
        header, data = self.process.ask({"calls": requests, "keep": keep}, chunks, self.limits.call, activity)
        try:
            return answers(header, data, [(*positional, *options.values()) for _, positional, options in calls])
        except wire.NonsenseError:
            raise self.process.end(f"wrote something else than an answer, {activity}") from None

    def _returned(self, answer: dict[str, Any], arguments: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """Return the result of a call. If the kernel changed its arguments, make the same changes
        to the arguments in this process.
        """
        for value, library in zip(answer["results"], answer["kinds"], strict=True):
            if not (
                value is None or isinstance(value, np.ndarray | float) or (type(value) is int and abs(value) < 2**63)
            ):
                raise BrokenError(f"returned a value of type {type(value).__name__}, but should return arrays.")
            if isinstance(value, np.ndarray) and library != self.arrays:
                array_type = "torch.Tensor" if self.arrays == "torch" else "numpy.ndarray"
                raise BrokenError(
                    f"returned an array of another type than {array_type}, but should return one of exactly that."
                )
        for _, position in answer["shares"]:
            raise BrokenError(f"returned memory of {names[position]}, but should return an array of its own.")
        for position, value in zip(answer["written"], answer["after"], strict=True):
            if not arguments[position].flags.writeable:
                raise BrokenError(f"{names[position]} was written to, though it is read-only.")
            np.copyto(arguments[position], value)
        return answer["results"] if answer["several"] else answer["results"][0]

    def _raised(self, answer: dict[str, Any]) -> BaseException:
        """Return the exception that the process reports. Its type is one of the types in `refuses`,
        or else a new type with the same name.
        """
        name, message = (printable(part[:_LONGEST]) for part in answer["raised"])
        exception_type = self._refuses.get(name)
        return (
            exception_type(message)
            if exception_type is not None
            else type(name if name.isidentifier() else "Exception", (Exception,), {})(message)
        )


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _alike(answer: dict[str, Any], before: dict[str, Any]) -> bool:
    """Return whether two calls had the same results, or both raised, or both returned something
    that is not an array.
    """
    results, results_before = answer.get("results"), before.get("results")
    return (
        answer.keys() == before.keys()
        if results is None or results_before is None
        else len(results) == len(results_before) and all(map(_equal, results, results_before))
    )


def _equal(first: Any, second: Any) -> bool:
    return (
        _same(first, second)
        if isinstance(first, np.ndarray) and isinstance(second, np.ndarray)
        else first is second is None or first == second
    )


def _same(first: Any, second: Any) -> bool:
    return (
        type(first) is type(second)
        and first.dtype == second.dtype
        and first.shape == second.shape
        and first.tobytes() == second.tobytes()
    )
