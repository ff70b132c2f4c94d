"""Calling an implementation: float64 arrays in and out, every call guarded and recorded, every
result beside the oracle's answer.
"""

import contextlib
import inspect
import io
import mmap
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.ball import Array
from properties.contract import conversion, process_state
from properties.contract.implementation import Implementation
from properties.contract.mask_kinds import ENTRIES
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError, Call, RaisedError, Result, Watched
from properties.contract.support import OutsideError
from properties.contract.wording import raised

__all__ = ["LIKELY", "Caller"]

LIKELY = 8.4
"""λ of the statistical line: an error beyond it has a probability of about 10⁻¹⁵ if roundings are independent."""

_SHORTEST = 64  # terms of a sum up to which the line is the proof

_RETURNED = mmap.mmap(-1, 1)
"""1 if a call has returned in a fork of the process, which ended there: memory that forks share."""


class Caller:
    """An implementation as it is called.

    `caller(q, k, v, mask)` calls one operation, its own, and `caller.rope(x, 3)` another, always in
    the spec's conventions (masks: true allows); what comes back is a `Result`, or a tuple of them.
    `calls` are those made since `begin`, `answers` the results of each, and `vacuous` counts the
    budgets asked for that say nothing. `arithmetic` and `conventions` are the implementation's, but
    that masks are the spec's; `original` is what the program had one of before the first call.
    """

    def __init__(
        self,
        implementation: Implementation,
        operation: str,
        observe: Callable[[str, tuple[Any, ...], str], None] | None = None,
        seconds_per_call: float = 60.0,
    ) -> None:
        self.implementation, self.operation, self.seconds_per_call = implementation, operation, seconds_per_call
        self._observe = observe
        self.arithmetic = implementation.resolved_arithmetic
        self.conventions = replace(
            implementation.resolved_conventions, mask_polarity="true_allows"
        )  # a law's masks are the spec's
        self.original = process_state.states()
        _RETURNED[0] = 0
        self.begin()

    def begin(self) -> None:
        """Forget the last case."""
        self.calls: list[Call] = []
        self.answers: list[tuple[Any, ...]] = []
        self.vacuous = 0
        self._case: tuple[Any, ...] = ()
        self._base: tuple[Watched, Call, tuple[Any, ...]] | None = None

    def turn(self) -> None:
        """Go on to another law about the same case: what its own call returned is kept."""
        case, base = self._case, self._base
        self.begin()
        self._case, self._base = case, base

    def about(self, arguments: tuple[Any, ...]) -> None:
        """Say what the case is: its own call is made once for all laws about it, when the first of them asks for it."""
        self._case, self._base = arguments, None

    def seen(self, arguments: tuple[Any, ...]) -> Watched:
        """The case's own call with all that can be seen of it, made now unless it has been; or another call."""
        if not self._case or [*map(id, arguments)] != [*map(id, self._case)]:
            return self.watch(self.operation, arguments)
        if self._base is None:
            watched = self.watch(self.operation, arguments)
            self._base = watched, self.calls[-1], self.answers[-1]
        else:
            watched, call, answers = self._base
            self.calls.append(call)
            self.answers.append(answers)
        return watched

    @property
    def largest_harmless(self) -> float:
        """The largest power of two whose products with inputs of common size stay finite in the
        narrowest format that is worked in.
        """
        a = self.arithmetic
        largest = min(a.inputs.largest, a.output.largest, a.elementwise.largest)
        return float(2.0 ** (np.floor(np.log2(largest)) // 2))

    def takes(self, *arguments: Any) -> bool:
        """Whether the implementation supports the sizes of a call of the law's own operation."""
        return self.implementation.takes(OPERATIONS[self.operation], arguments)

    def offers(self, operation: str) -> bool:
        """Whether the implementation has an operation."""
        return operation in self.implementation.operations

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        if operation not in OPERATIONS:
            raise AttributeError(f"There is no operation {operation!r}.")
        return lambda *arguments, layout="contiguous": self.call(operation, arguments, layout)

    def __call__(self, *arguments: Any, layout: str = "contiguous") -> Any:
        """The results of the law's own operation."""
        return (self.seen(arguments) if layout == "contiguous" else self.watch(self.operation, arguments, layout)).found

    def call(self, operation: str, arguments: tuple[Any, ...], layout: str = "contiguous") -> Any:
        """The result of an operation, or a tuple of them; raises BrokenError where it raises or
        returns something else.
        """
        return self.watch(operation, arguments, layout).found

    def watch(self, operation: str, arguments: tuple[Any, ...], layout: str = "contiguous") -> Watched:
        """A call, its results, and what can be seen of it besides; raises BrokenError as `call`
        does.

        A result of another call may be an argument, and is refused where it is no number: what
        follows from a NaN is not this call's.
        """
        o, i = OPERATIONS[operation], self.implementation
        arguments = tuple(x.handed_on if isinstance(x, Result) else x for x in arguments)
        if i.restricted and not i.takes(o, arguments):
            raise OutsideError(
                f"It would take a call of {operation} with sizes, or a position, that it does not support."
            )
        arguments = i.support.promised(o, arguments)
        try:
            values, given, returned, besides = self.run(o, arguments, layout)
        except BrokenError as broken:
            self.calls.append(Call(operation, arguments, layout, (), str(broken)))
            self.answers.append(())
            raise
        blocks = (
            self.implementation.resolved_conventions.mask_polarity == "true_blocks"
            and not self.implementation.support.entries
        )
        if o.returns_booleans and blocks:
            values = (np.logical_not(values[0]),)
        self.calls.append(Call(operation, arguments, layout, values))
        results = values if o.returns_booleans else self._results(o, arguments, values)
        self.answers.append(results)
        return Watched(tuple(given), tuple(returned), results, besides)

    def _results(self, o: Operation, arguments: tuple[Any, ...], values: tuple[Array, ...]) -> tuple[Result, ...]:
        """Numbers, each beside the oracle's answers, which are asked for at most once, and only
        where they are needed.
        """
        enclosures, lines = cache(lambda: self.expected(o, arguments)), cache(lambda: self.likely(o, arguments))

        def result(place: int) -> Result:
            def budget() -> Enclosure:
                found: Enclosure = enclosures()[place]
                self.vacuous += found.vacuous
                return found

            def line() -> Enclosure | None:
                found = lines()
                return None if found is None else found[place]

            return Result(there[place], values[place], budget, line)

        there = o.returned(arguments)
        return tuple(result(place) for place in range(len(values)))

    def beside(self, path: Implementation) -> "Caller":
        """A caller of another path, of whose calls the same observer is told."""
        return Caller(path, self.operation, self._observe, self.seconds_per_call)

    def call_another(self, other: Implementation, arguments: tuple[Any, ...]) -> None:
        """Call the law's own operation of another implementation, if it takes the arguments, whatever comes of it."""
        o = OPERATIONS[self.operation]
        if other.takes(o, arguments):
            with np.errstate(all="ignore"), contextlib.suppress(BrokenError, conversion.UngivenError):
                Caller(other, o.name).run(o, arguments)

    def expected(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The oracle's enclosures of an operation's results, or the mask it builds, in the
        implementation's arithmetic and conventions.
        """
        return self.implementation.support.promises(
            o, arguments, o.expected(arguments, self.arithmetic, self.conventions)
        )

    def likely(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Enclosure, ...] | None:
        """The same by the statistical line; None where no axis is longer than 64, where the line is
        the proof, or it is declared itself.
        """
        a = self.arithmetic
        longest = max((n for x in arguments if isinstance(x, np.ndarray) for n in x.shape), default=0)
        if longest <= _SHORTEST or a.likely is not None:
            return None
        found = o.expected(arguments, replace(a, likely=LIKELY), self.conventions)
        return self.implementation.support.promises(o, arguments, found)

    def run(
        self, o: Operation, arguments: tuple[Any, ...], layout: str = "contiguous"
    ) -> tuple[tuple[Array, ...], list[Any], list[Any], str]:
        """One guarded call: the results in float64, what was given, what came back, and what it did
        besides, as a sentence or "".

        Arguments are fresh copies, so that no call can spoil another.
        """
        arguments = self.implementation.support.promised(o, arguments)
        if self._observe is not None:
            self._observe(o.name, arguments, layout)
        given = self.given(o, arguments, layout)
        raw, besides = self._guarded(o, given)
        returned = list(raw) if isinstance(raw, tuple | list) and len(o.outputs) > 1 else [raw]
        untold = self.implementation.support.untold(o)
        if len(returned) == len(o.outputs) - len(untold):
            returned += [None] * len(untold)
        if len(returned) != len(o.outputs):
            got = f"{len(returned)} values" if isinstance(raw, tuple | list) else f"a {type(raw).__name__}"
            raise BrokenError(f"returned {got}, but should return {len(o.outputs)}: {', '.join(o.outputs)}.")
        there = o.returned(arguments)
        for name, absent in zip(o.outputs, returned, strict=True):
            if name not in there and absent is not None:
                raise BrokenError(f"{name} is an array, but should be None, since no {name[1:]} is given.")
        if o.is_played and returned[-1] is None:  # caches need not give the log-sum-exp, the last result
            there = there[:-1]
        returned = [x for name, x in zip(o.outputs, returned, strict=True) if name in there]
        values = tuple(
            np.full(shape, np.nan) if name in untold else self._received(o, name, x, shape)
            for name, x, shape in zip(there, returned, o.shapes(*arguments), strict=False)
        )
        return values, given, returned, besides

    def _guarded(self, o: Operation, given: list[Any]) -> tuple[Any, str]:
        """What an operation returns, and what it did besides. Printing is swallowed, and warnings
        and the interpreter's and NumPy's error states are put back."""
        printed, process = io.StringIO(), os.getpid()
        errors = np.geterr()
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                warnings.filterwarnings(
                    "ignore", message=".*"
                )  # an entry that nobody else adds: adding one that is there would not show
                filters = list(warnings.filters)
                raw = o.call(self.implementation.operations[o.name], given)
                changed = warnings.filters != filters
        except (KeyboardInterrupt, BrokenError):  # what runs a program says itself which step was broken
            raise
        except BaseException as error:
            raise RaisedError(
                raised(error) + (self._misfit(o, given) if isinstance(error, TypeError) else "")
            ) from error
        finally:
            if os.getpid() != process:  # a fork that came back: two would go on as one
                _RETURNED[0] = 1
                os._exit(0)
            seconds, errors_after = time.perf_counter() - start, np.geterr()
            np.seterr(**errors)
        if seconds > self.seconds_per_call:
            raise BrokenError(
                f"took {seconds:.3g} s for a call, but should take at most {self.seconds_per_call:.3g} s."
            )
        besides = (
            "returned in a process that it had forked, too, but should return once." if _RETURNED[0]
            else f"printed {printed.getvalue()[:60]!r}, but should print nothing." if printed.getvalue()
            else "changed the interpreter's warning filters, but should leave them as they are." if changed
            else f"changed NumPy's error state from {errors} to {errors_after}, but should leave it as it is." if errors_after != errors
            else ""
        )  # fmt: skip
        return raw, besides

    def _misfit(self, o: Operation, given: list[Any]) -> str:
        """That an operation's function cannot take the arguments at all, and how it is called, as a sentence; or ""."""
        try:
            o.call(inspect.signature(self.implementation.operations[o.name]).bind, given)
        except TypeError:
            return f". It is called as {o.name}({', '.join(o.parameters)})."
        except ValueError:  # it has no signature
            pass
        return ""

    def given(self, o: Operation, arguments: tuple[Any, ...], layout: str = "contiguous") -> list[Any]:
        """What an operation is handed for arguments: fresh arrays of the implementation's kind."""
        return [self._given(o, p, x, layout) for p, x in zip(o.parameters, arguments, strict=False)]

    def _given(self, o: Operation, parameter: str, x: Any, layout: str) -> Any:
        if x is None or not isinstance(x, np.ndarray):
            return int(x) if isinstance(x, np.integer) else x
        layout, _, only = layout.partition(" ")
        if only and only != parameter:
            layout = "contiguous"
        if o.is_mask(parameter):
            return self._given_mask(o, parameter, x, layout)
        if o.is_integer(parameter):
            return conversion.given(x, self.implementation, None, layout)
        return conversion.given(x, self.implementation, o.stored(parameter, self.arithmetic), layout)

    def _given_mask(self, o: Operation, parameter: str, mask: Array, layout: str) -> Any:
        """A mask of the kind that is taken: booleans in the polarity of the conventions, whole
        numbers, or numbers that are added.
        """
        i = self.implementation
        handed = i.support.handed(o, parameter, mask)
        if i.support.entries and handed.dtype == bool:
            target = self.arithmetic.inputs
            return conversion.given(ENTRIES[i.support.entries].given(handed, target), i, target, layout)
        blocks = handed.dtype == bool and i.resolved_conventions.mask_polarity == "true_blocks"
        return conversion.given(~handed if blocks else handed, i, None, layout)

    def _received(self, o: Operation, name: str, raw: Any, shape: tuple[int, ...]) -> Array:
        entries = self.implementation.support.entries if o.returns_booleans else ""
        target = (
            self.arithmetic.inputs
            if entries
            else None
            if o.returns_booleans
            else o.stored(name, self.arithmetic, result=True)
        )
        try:
            if o.is_number(name):
                return conversion.number(raw)
            values: Array = conversion.received(raw, self.implementation, target, shape)
            return ENTRIES[entries].received(values, self.arithmetic.inputs) if entries else values
        except conversion.ReturnedError as wrong:
            raise BrokenError(f"{name} {wrong}") from None
        except ValueError as wrong:  # an entry that is none of a mask
            raise BrokenError(f"{name}{wrong}") from None
        except BaseException as error:
            if type(raw) is np.ndarray or isinstance(
                error, KeyboardInterrupt
            ):  # what else raises is an array of the implementation's kind
                raise
            raise BrokenError(f"{name} cannot be read: it {raised(error).rstrip('.')}.") from error
