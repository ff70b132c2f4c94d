"""An implementation as laws see it: float64 arrays in and out, every call guarded and recorded, every result beside its budget."""

import contextlib
import io
import mmap
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.ball import Array, Ball, ball, exact
from properties.contract import exchange, interpreter
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.support import OutsideError
from properties.contract.wording import said

__all__ = ["LIKELY", "BrokenError", "Call", "RaisedError", "Result", "Subject", "Watched"]


LIKELY = 8.4
"""λ of the statistical line: an error beyond it has a probability of about 10⁻¹⁵ if roundings are independent."""

_LOOKED_AT = 1e-3  # budgets: smaller errors are not put to the line
_SHORTEST = 64  # terms of a sum up to which the line is the proof


_RETURNED = mmap.mmap(-1, 1)
"""1 if a call has returned in a fork of the process, which ended there: memory that forks share."""


class BrokenError(AssertionError):
    """A law does not hold on a case, by `excess` budgets."""

    def __init__(self, summary: str, excess: float = np.inf) -> None:
        super().__init__(summary)
        self.excess = excess


class RaisedError(BrokenError):
    """An operation raised an exception, which is the cause."""


@dataclass(frozen=True)
class Call:
    """One call: the operation, its arguments in float64, the layout of the arrays, and what came back in float64, or what was wrong.

    The layout is that of all arrays, or "transposed k": that of k alone, the others are contiguous.
    """

    operation: str
    arguments: tuple[Any, ...]
    layout: str
    outputs: tuple[Array, ...]
    error: str = ""


class Result:
    """One result of a call: its numbers in float64, its oracle, and itself as a ball that contains the exact value.

    `line()` is the oracle's enclosure by the statistical line, narrower than the budget and no proof; None where no sum is long enough for
    the two to differ.
    """

    def __init__(
        self, subject: "Subject", name: str, value: Array, budget: Callable[[], Enclosure], line: Callable[[], Enclosure | None]
    ) -> None:
        self.subject, self.name, self.value, self._budget, self.line = subject, name, value, budget, line

    @cached_property
    def budget(self) -> Enclosure:
        """The oracle's enclosure in the implementation's arithmetic and conventions."""
        budget = self._budget()
        self.subject.vacuous += budget.vacuous
        return budget

    @cached_property
    def ball(self) -> Ball:
        """The numbers with the budget's radii: the exact value is within, if they are within their budget of it.

        Entries that may be anything, or that overflow where they may, have radius ∞. Raises BrokenError for a NaN or ±∞ elsewhere.
        Where some number is outside its budget, the radii also cover the rounding of numbers such as these: what is wrong is shown by more
        than its own rounding, which differs between processors.
        """
        value, budget = self.value, self.budget
        self.require_numbers()
        wrong = (budget.excess(value) > 1).any()
        rad = budget.rad + _rounding_of_others(value, budget) if wrong else budget.rad
        return ball(np.where(np.isfinite(value), value, np.nan), rad)

    def require_numbers(self) -> None:
        """Raise BrokenError for a NaN or ±∞ where a finite number should be."""
        unknown = ~np.isfinite(self.value)
        if unknown.any() and (missing := unknown & (self.budget.excess(self.value) > 1)).any():
            index = np.unravel_index(int(missing.argmax()), self.value.shape)
            raise BrokenError(f"{_entry(self.name, index)}={self.value[index]}, but should be a finite number.")


@dataclass(frozen=True)
class Watched:
    """One call with all that can be seen of it.

    `given` and `returned` are the implementation's own arrays, as they were left, `results` what laws see of them, and `besides` says in a
    sentence what else it did, or "".
    """

    given: tuple[Any, ...]
    returned: tuple[Any, ...]
    results: tuple[Any, ...]
    besides: str


class Subject:
    """An implementation under one law.

    A law calls it with the arguments of its own operation, `subject(q, k, v, mask)`, or another's, `subject.rope(x, 3)`, always in the
    spec's conventions (masks: true allows), and gets a `Result`, or a tuple of them. It states what should be by `within`, `close`, `same`
    and `require`, and says by `informative_if` when a case could not have shown a mistake. `arithmetic` and `conventions` are the
    implementation's, but that masks are the spec's; `original` is what the program had one of before the first call.
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
        self.conventions = replace(implementation.resolved_conventions, mask_polarity="true_allows")  # a law's masks are the spec's
        self.original = interpreter.states()
        _RETURNED[0] = 0
        self.begin()

    def begin(self) -> None:
        """Forget the last case."""
        self.calls: list[Call] = []
        self.answers: list[tuple[Any, ...]] = []  # the results of each
        self.vacuous = 0
        self.worst = self.worst_line = 0.0
        self._told = False
        self._matters = True
        self._base: tuple[tuple[Any, ...], Watched, Call, tuple[Any, ...]] | None = None

    def turn(self) -> None:
        """Go on to another law about the same case: what its own call returned is kept."""
        base = self._base
        self.begin()
        self._base = base

    def retell(self) -> None:
        """What was said of the case so far is for the law before."""
        self.vacuous, self.worst, self.worst_line = 0, 0.0, 0.0
        self._told, self._matters = False, True

    def base(self, arguments: tuple[Any, ...]) -> None:
        """Make the case's own call, once for all laws about it."""
        watched = self.watch(self.operation, arguments)
        self._base = arguments, watched, self.calls[-1], self.answers[-1]

    def seen(self, arguments: tuple[Any, ...]) -> Watched:
        """The case's own call with all that can be seen of it, made now unless it has been."""
        if self._base is None or [*map(id, arguments)] != [*map(id, self._base[0])]:
            return self.watch(self.operation, arguments)
        self.calls.append(self._base[2])
        self.answers.append(self._base[3])
        return self._base[1]

    def judge(self, place: int, line: bool = False) -> None:
        """A call that was made is as the oracle says: masks exactly, numbers within their budgets, and, if asked for, the line."""
        call, answers = self.calls[place], self.answers[place]
        if call.error:
            raise BrokenError(call.error)
        if OPERATIONS[call.operation].returns_booleans:
            self.same(call.outputs[0], self.expected(OPERATIONS[call.operation], call.arguments)[0], "mask")
            return
        for result in answers:
            self.within(result, line)

    @property
    def informative(self) -> bool:
        """Whether the case could have shown a mistake: something larger than its tolerance was compared, and `informative_if` held."""
        return self._matters and self._told

    @property
    def largest_harmless(self) -> float:
        """The largest power of two whose products with inputs of common size stay finite in the narrowest format that is worked in."""
        a = self.arithmetic
        largest = min(a.inputs.largest, a.output.largest, a.elementwise.largest)
        return float(2.0 ** (np.floor(np.log2(largest)) // 2))

    def informative_if(self, condition: Any) -> None:
        """Say whether the case is one on which the law demands something."""
        self._matters = self._matters and bool(condition)

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
        if layout != "contiguous":
            return self.call(self.operation, arguments, layout)
        results = self.seen(arguments).results
        return results[0] if len(results) == 1 else results

    def call(self, operation: str, arguments: tuple[Any, ...], layout: str = "contiguous") -> Any:
        """The result of an operation, or a tuple of them; raises BrokenError where it raises or returns something else."""
        results = self.watch(operation, arguments, layout).results
        return results[0] if len(results) == 1 else results

    def watch(self, operation: str, arguments: tuple[Any, ...], layout: str = "contiguous") -> Watched:
        """A call, its results, and what can be seen of it besides; raises BrokenError as `call` does."""
        o, i = OPERATIONS[operation], self.implementation
        if i.restricted and not i.takes(o, arguments):
            raise OutsideError(f"It would take a call of {operation} with sizes, or a position, that it does not support.")
        arguments = i.support.promised(o, arguments)
        try:
            values, given, returned, besides = self.run(o, arguments, layout)
        except BrokenError as broken:
            self.calls.append(Call(operation, arguments, layout, (), str(broken)))
            self.answers.append(())
            raise
        if o.returns_booleans and self.implementation.resolved_conventions.mask_polarity == "true_blocks":
            values = (np.logical_not(values[0]),)
        self.calls.append(Call(operation, arguments, layout, values))

        @cache_once
        def enclosures() -> tuple[Enclosure, ...]:
            return self.expected(o, arguments)

        @cache_once
        def lines() -> tuple[Enclosure, ...] | None:
            return self.likely(o, arguments)

        def line(place: int) -> Enclosure | None:
            found = lines()
            return None if found is None else found[place]

        results = values if o.returns_booleans else tuple(
            Result(self, name, x, partial(lambda place: enclosures()[place], place), partial(line, place))
            for place, (name, x) in enumerate(zip(o.returned(arguments), values, strict=True))
        )  # fmt: skip
        self.answers.append(results)
        return Watched(tuple(given), tuple(returned), results, besides)

    def call_another(self, other: Implementation, arguments: tuple[Any, ...]) -> None:
        """Call the law's own operation of another implementation, if it takes the arguments, whatever comes of it."""
        o = OPERATIONS[self.operation]
        if other.takes(o, arguments):
            with np.errstate(all="ignore"), contextlib.suppress(BrokenError, exchange.UngivenError):
                Subject(other, o.name).run(o, arguments)

    def expected(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The oracle's enclosures of an operation's results, or the mask it builds, in the implementation's arithmetic and conventions."""
        return o.expected(arguments, self.arithmetic, self.conventions)

    def likely(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Enclosure, ...] | None:
        """The same by the statistical line; None where no axis is longer than 64, where the line is the proof, or it is declared itself."""
        a = self.arithmetic
        longest = max((n for x in arguments if isinstance(x, np.ndarray) for n in x.shape), default=0)
        if longest <= _SHORTEST or a.likely is not None:
            return None
        return o.expected(arguments, replace(a, likely=LIKELY), self.conventions)

    def run(
        self, o: Operation, arguments: tuple[Any, ...], layout: str = "contiguous"
    ) -> tuple[tuple[Array, ...], list[Any], list[Any], str]:
        """One guarded call: the results in float64, what was given, what came back, and what it did besides, as a sentence or "".

        Arguments are fresh copies, so that no call can spoil another. Printing is swallowed, and warnings and the interpreter's and NumPy's
        error states are put back.
        """
        arguments = self.implementation.support.promised(o, arguments)
        if self._observe is not None:
            self._observe(o.name, arguments, layout)
        converted = self.given(o, arguments, layout)
        printed, process = io.StringIO(), os.getpid()
        errors = np.geterr()
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                warnings.filterwarnings("ignore", message=".*")  # an entry that nobody else adds: adding one that is there would not show
                filters = list(warnings.filters)
                raw = o.call(self.implementation.operations[o.name], converted)
                changed = warnings.filters != filters
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise RaisedError(f"raised {type(error).__name__}: {said(error)}") from error
        finally:
            if os.getpid() != process:  # a fork that came back: two would go on as one
                _RETURNED[0] = 1
                os._exit(0)
            seconds, errors_after = time.perf_counter() - start, np.geterr()
            np.seterr(**errors)
        if seconds > self.seconds_per_call:
            raise BrokenError(f"took {seconds:.3g} s for a call, but should take at most {self.seconds_per_call:.3g} s.")
        besides = (
            "returned in a process that it had forked, too, but should return once." if _RETURNED[0]
            else f"printed {printed.getvalue()[:60]!r}, but should print nothing." if printed.getvalue()
            else "changed the interpreter's warning filters, but should leave them as they are." if changed
            else f"changed NumPy's error state from {errors} to {errors_after}, but should leave it as it is." if errors_after != errors
            else ""
        )  # fmt: skip
        raws = list(raw) if isinstance(raw, tuple | list) and len(o.outputs) > 1 else [raw]
        if len(raws) != len(o.outputs):
            got = f"{len(raws)} values" if isinstance(raw, tuple | list) else f"a {type(raw).__name__}"
            raise BrokenError(f"returned {got}, but should return {len(o.outputs)}: {', '.join(o.outputs)}.")
        there = o.returned(arguments)
        for name, absent in zip(o.outputs, raws, strict=True):
            if name not in there and absent is not None:
                raise BrokenError(f"{name} is an array, but should be None, since no {name[1:]} is given.")
        raws = [x for name, x in zip(o.outputs, raws, strict=True) if name in there]
        shapes = o.shapes(*arguments)
        values = tuple(self._received(o, *each) for each in zip(there, raws, shapes, strict=True))
        return values, converted, raws, besides

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
            blocks = self.implementation.resolved_conventions.mask_polarity == "true_blocks"
            return exchange.given(~x if blocks else x, self.implementation, None, layout)
        if o.is_integer(parameter):
            return exchange.given(x, self.implementation, None, layout)
        return exchange.given(x, self.implementation, o.stored(parameter, self.arithmetic), layout)

    def _received(self, o: Operation, name: str, raw: Any, shape: tuple[int, ...]) -> Array:
        target = None if o.returns_booleans else o.stored(name, self.arithmetic, result=True)
        try:
            values: Array = exchange.received(raw, self.implementation, target, shape)
        except exchange.ReturnedError as wrong:
            raise BrokenError(f"{name} {wrong}") from None
        return values

    # What laws state.

    def within(self, result: Result, line: bool = True) -> None:
        """A result is within its budget of the exact value; how far it is in units of the statistical line is noted, if it is asked for and
        the error is above a thousandth of the budget."""
        budget = result.budget
        excess = budget.excess(result.value)
        self._measure(result.name, result.value, budget.mid, budget.rad, excess)
        if line and excess.max(initial=0.0) > _LOOKED_AT and (likely := result.line()) is not None:
            self.worst_line = max(self.worst_line, float(likely.excess(result.value).max(initial=0.0)))
        self._tell(excess.size and budget.judged and not budget.vacuous)

    def close(self, a: Any, b: Any, name: str = "") -> None:
        """Two expressions of results, balls and exact arrays have one exact value: they differ by no more than their radii together."""
        name = name or next((x.name for x in (a, b) if isinstance(x, Result)), "out")
        x, y = _ball(a), _ball(b)
        if x.mid.shape != y.mid.shape:
            raise ValueError(f"A law compares shapes {x.mid.shape} and {y.mid.shape}.")
        difference = x - y
        with np.errstate(all="ignore"):
            size = np.abs(difference.mid)
            excess = np.where((size == 0) | np.isinf(difference.rad), 0.0, size / difference.rad)
        self._measure(name, x.mid, y.mid, difference.rad, excess)
        self._tell((difference.rad < np.fmax(np.abs(x.mid), np.abs(y.mid))).any())

    def same(self, a: Any, b: Any, name: str = "") -> None:
        """Two arrays are equal entry by entry: −0 equals 0, and NaN equals NaN."""
        name = name or next((x.name for x in (a, b) if isinstance(x, Result)), "out")
        x, y = (np.asarray(r.value if isinstance(r, Result) else r) for r in (a, b))
        if x.shape != y.shape:
            raise BrokenError(f"{name} has shape {x.shape}, but should have shape {y.shape}.")
        differ = (x != y) & ~((x != x) & (y != y))
        if differ.any():
            index = np.unravel_index(int(differ.argmax()), x.shape)
            count = f"; {int(differ.sum())} of {x.size} entries differ" if x.size > 1 else ""
            raise BrokenError(f"{_entry(name, index)}={x[index]}, but should be {y[index]}, exactly{count}.")
        self._tell(True)

    def alike(self, a: Any, b: Any, name: str = "") -> None:
        """Two results of one exact value: masks are the same, numbers too, or as `close`; neither is NaN where a number should be."""
        for result in (a, b):
            self.finite(result)
        x, y = (r if isinstance(r, np.ndarray) else r.value for r in (a, b))
        if isinstance(a, np.ndarray) or np.array_equal(x, y, equal_nan=True):
            self.same(x, y, name)
        else:
            self.close(a, b, name)

    def finite(self, result: Any) -> None:
        """A result is a mask, or has finite numbers, but where it may overflow, or is NaN by convention."""
        if isinstance(result, Result):
            result.require_numbers()
        self._tell(True)

    def require(self, condition: Any, sentence: str) -> None:
        """Raise BrokenError with a sentence unless the condition holds."""
        if not condition:
            raise BrokenError(sentence)
        self._tell(True)

    def _tell(self, told: Any) -> None:
        self._told = bool(self._told or told)

    def _measure(self, name: str, actual: Array, expected: Array, rad: Array, excess: Array) -> None:
        worst = float(excess.max(initial=0.0))
        self.worst = max(self.worst, worst)
        if worst > 1:
            index = np.unravel_index(int(excess.argmax()), excess.shape)
            count = f"; {int((excess > 1).sum())} of {excess.size} entries are outside" if excess.size > 1 else ""
            raise BrokenError(
                f"{_entry(name, index)}={actual[index]}, but should be {expected[index]} ± {rad[index]:.3g}: "
                f"the error is {'∞' if np.isinf(worst) else f'{worst:.4g}'} times its budget{count}.",
                worst,
            )


def cache_once(function: Callable[[], Any]) -> Callable[[], Any]:
    """A function of nothing that is evaluated at most once."""
    found: list[Any] = []

    def value() -> Any:
        if not found:
            found.append(function())
        return found[0]

    return value


def _rounding_of_others(value: Array, budget: Enclosure) -> float:
    """How far numbers that are not the budget's may be rounded: its largest radius, by as much more as they are larger.

    A radius is for the sum from which its own number comes: that of a number that should be 0 because nothing is summed is 0, and says
    nothing about the rounding of what is there instead. ∞ where all numbers should be 0.
    """
    radius, right, found = (np.max(np.abs(x), where=np.isfinite(x), initial=0.0) for x in (budget.rad, budget.mid, value))
    return float(radius * max(1.0, found / right)) if right else np.inf


def _ball(x: Any) -> Ball:
    return x.ball if isinstance(x, Result) else x if isinstance(x, Ball) else exact(x)


def _entry(name: str, index: tuple[Any, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name
