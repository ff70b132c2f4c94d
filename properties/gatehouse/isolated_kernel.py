"""A candidate: the functions of a module in a process of its own, as an implementation has them.
What they return is copied here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.wording import printable
from properties.gatehouse import wire
from properties.gatehouse.answers import FINISHED, IMPORTED, RAISED, answers, has
from properties.gatehouse.process import EndedError, Process

__all__ = ["MOST_KEPT", "IsolatedKernel", "Limits"]

MOST_KEPT = 200, 2**23
"""So many results, of so many bytes, are kept until the end, to see whether they have changed."""

_KEPT = 0.1  # the share of calls whose results are kept so
_LONGEST = 300  # characters of what it says


@dataclass(frozen=True)
class Limits:
    """What a candidate may take: seconds for a call, for all calls of a process, and for its
    import; and bytes of address space.
    """

    call: float = 2.0
    calls: float = 6.0
    imports: float = 60.0
    memory: int = 2**32


class IsolatedKernel:
    """The functions of a candidate, in one process.

    `functions` are those by the operations' names, to be an implementation's: each asks the
    process, and raises BrokenError where what comes is no result. While `in_two_threads`, the call
    before is made again at the same time as each call. `enclosed` says whether the process has
    given up files, as it tells before it runs the candidate's code.
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
        self.in_two_threads, self.enclosed = False, False
        self._refuses = {kind.__name__: kind for kind in promised.refuses}
        self._asked: dict[str, Any] = {"import": {name: list(place) for name, place in entry.items()}}
        self._last: tuple[Operation, tuple[Any, ...], dict[str, Any]] | None = None
        self._last_told: dict[str, Any] = {}
        self._kept: list[Any] = []
        self._random = Random()  # of the system's entropy: which results are kept cannot be foreseen

    def begin(self) -> str:
        """Have it imported. Why it cannot be used, as a sentence; "" where it can."""
        try:
            began, _ = self.process.ask({"begin": True}, [], self.limits.imports, "before it was imported")
            self.enclosed = bool(began["enclosed"])  # it has run no code but ours
            answer, _ = self.process.ask(self._asked, [], self.limits.imports, "when it was imported")
            if not (has(answer, IMPORTED) or has(answer, RAISED)):
                raise self.process.end("wrote something else than an answer, when it was imported")
        except EndedError as ended:
            return f"It {ended}."
        self.process.seconds = 0.0
        if has(answer, RAISED):
            raised = self._raised(answer)
            return f"It raised {type(raised).__name__} when it was imported: {raised}"
        return ""

    def finish(self) -> list[str]:
        """Whether it is as it should be after all calls: sentences on what is not."""
        try:
            answer, data = self.process.ask({}, [], self.limits.call, "after all calls")
            if not has(answer, FINISHED):
                raise wire.NonsenseError
            kept = wire.unlisted(answer["kept"], data)
        except (EndedError, wire.NonsenseError):
            return [f"It {self.process.end('wrote something else than an answer, after all calls')}."]
        changed = len(kept) != len(self._kept) or not all(map(_same, kept, self._kept))
        return [
            *(["What it returned was changed afterwards, but should stay as it was."] if changed else []),
            *(
                ["It returned in a process that it had forked, too, but should return once."]
                if answer["forked"]
                else []
            ),
        ]

    def _call(self, o: Operation, *positional: Any, **options: Any) -> Any:
        """One call. Raises what the function raised, and BrokenError for everything else that should not be."""
        call = o, positional, options
        calls = [call, self._last] if self.in_two_threads and self._last is not None else [call]
        self._last = o, tuple(map(_copy, positional)), {name: _copy(x) for name, x in options.items()}
        room = len(self._kept) < MOST_KEPT[0] and sum(x.nbytes for x in self._kept) < MOST_KEPT[1]
        keep = room and self._random.random() < _KEPT and len(calls) == 1
        try:
            told, *beside = self._answers(calls, keep)
        except EndedError as ended:
            raise BrokenError(f"It {ended}.") from None
        before, self._last_told = self._last_told, told
        if self.deterministic and any(not _alike(other, before) for other in beside):
            raise BrokenError(
                "While this call was made in another thread, the call before it returned something else than alone."
            )
        if "raised" in told:
            raise self._raised(told)
        if "other" in told:
            raise BrokenError(f"returned {printable(told['other'][:_LONGEST])}, but should return arrays.")
        if keep:
            self._kept += [_copy(x) for x in told["results"] if isinstance(x, np.ndarray)]
        return self._returned(
            told, (*positional, *options.values()), (*(p for p in o.parameters if p not in o.options), *options)
        )

    def _answers(
        self, calls: list[tuple[Operation, tuple[Any, ...], dict[str, Any]]], keep: bool
    ) -> list[dict[str, Any]]:
        """What is told of some calls that are made at the same time. Raises EndedError, also where
        it is told of none.
        """
        left = self.limits.calls - self.process.seconds
        if left <= 0:
            raise self.process.end(f"took more than {self.limits.calls:.3g} s for all calls together")
        doing, chunks = f"in a call of {calls[0][0].name}", list[bytes]()
        asked = [
            {
                "function": o.name,
                "names": list(options),
                "arguments": wire.listed(positional, chunks),
                "options": wire.listed(list(options.values()), chunks),
            }
            for o, positional, options in calls
        ]
        header, data = self.process.ask({"calls": asked, "keep": keep}, chunks, min(self.limits.call, left), doing)
        try:
            return answers(header, data, [(*positional, *options.values()) for _, positional, options in calls])
        except wire.NonsenseError:
            raise self.process.end(f"wrote something else than an answer, {doing}") from None

    def _returned(self, told: dict[str, Any], given: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """What a call returned; what it wrote to its arguments is written to them here."""
        for x, kind in zip(told["results"], told["kinds"], strict=True):
            if not (x is None or isinstance(x, np.ndarray | float) or (type(x) is int and abs(x) < 2**63)):
                raise BrokenError(f"returned a value of type {type(x).__name__}, but should return arrays.")
            if isinstance(x, np.ndarray) and kind != self.arrays:
                wanted = "torch.Tensor" if self.arrays == "torch" else "numpy.ndarray"
                raise BrokenError(
                    f"returned an array of another type than {wanted}, but should return one of exactly that."
                )
        for _, j in told["shares"]:
            raise BrokenError(f"returned memory of {names[j]}, but should return an array of its own.")
        for j, x in zip(told["written"], told["after"], strict=True):
            if not given[j].flags.writeable:
                raise BrokenError(f"{names[j]} was written to, though it is read-only.")
            np.copyto(given[j], x)
        return told["results"] if told["several"] else told["results"][0]

    def _raised(self, told: dict[str, Any]) -> BaseException:
        """The exception of which the process tells: one of those by which it may refuse, or one of the same name."""
        name, text = (printable(part[:_LONGEST]) for part in told["raised"])
        kind = self._refuses.get(name)
        return (
            kind(text)
            if kind is not None
            else type(name if name.isidentifier() else "Exception", (Exception,), {})(text)
        )


def _copy(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def _alike(told: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether two calls returned the same, or raised, or returned what is no array."""
    x, y = told.get("results"), before.get("results")
    return told.keys() == before.keys() if x is None or y is None else len(x) == len(y) and all(map(_equal, x, y))


def _equal(x: Any, y: Any) -> bool:
    return _same(x, y) if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) else x is y is None or x == y


def _same(x: Any, y: Any) -> bool:
    return type(x) is type(y) and x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
