"""Defines an implementation under test as a law sees it: calls, and assertions about results,
exactly or within error limits.
"""

from typing import Any

import numpy as np

from oracles.ball import Array, Ball, exact
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.contract.results import BrokenError, Call, RaisedError, Result, Watched, entry
from properties.contract.support import NotTakenError
from properties.contract.tried_calls import TriedCall, tried_call

__all__ = ["Subject"]

_FAR = 1000.0  # error limits: how many times a larger error is says nothing more
_COMPARED_WITH_LINE = 1e-3  # smaller errors, in budgets, are not compared with the statistical line


class Subject(Caller):
    """An implementation that one law (a property) checks. The law calls its operations, and asserts
    with `within`, `close`, `same` and `require`.

    With `informative_if` a law says whether the case (the arguments of one test) could expose a
    mistake. `worst` is the largest error so far divided by its budget, the error limit.
    `worst_line` is the largest error divided by the statistical line.

    `tried` are all calls of an implementation that declares nothing about what it takes, each with
    the exception that it raised.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.tried: list[TriedCall] = []
        super().__init__(*arguments, **options)

    def watch(self, operation: str, arguments: Arguments, layout: str = "contiguous") -> Watched:
        """Make a call as `Caller.watch` does. If the implementation declares nothing about what it
        takes, an exception means that the call is not taken: NotTakenError is raised, unless the
        same call has already returned on this case, in this memory layout or another one.
        """
        try:
            return super().watch(operation, arguments, layout)
        except RaisedError as raised:
            call = self.calls[-1]
            has_returned = any(_is_same(call, earlier) for earlier in self.calls[:-1] if not earlier.error)
            if self.implementation.support.declared or has_returned:
                raise
            raise NotTakenError(str(raised)) from raised

    def run(
        self, operation: Operation, arguments: Arguments, layout: str = "contiguous"
    ) -> tuple[tuple[Array, ...], list[Any], list[Any], str]:
        """Make a call as `Caller.run` does, and record what it asks if the implementation declares
        nothing about what it takes.
        """
        if self.implementation.support.declared:
            return super().run(operation, arguments, layout)
        error = ""
        try:
            return super().run(operation, arguments, layout)
        except RaisedError as raised:
            error = str(raised)
            raise
        finally:
            self.tried.append(tried_call(operation, arguments, layout, error))

    def begin(self) -> None:
        """Forget the last case (the arguments of one test) and what was asserted about it."""
        super().begin()
        self.retell()

    def retell(self) -> None:
        """Delete what the previous law recorded about its assertions on this case."""
        self.vacuous = 0
        self.worst = self.worst_line = 0.0
        self._told, self._compared, self._matters = False, False, True

    def judge(self, position: int, line: bool = False) -> None:
        """Assert that a recorded call agrees with the oracle: masks and integers exactly, numbers
        within their error limits. With `line`, also record the errors divided by the statistical line,
        which errors almost never exceed if roundings are independent.
        """
        call, answers = self.calls[position], self.answers[position]
        operation = OPERATIONS[call.operation]
        if call.error:
            raise BrokenError(call.error)
        if operation.is_exact:
            self.same(call.outputs[0], self.expected(operation, call.arguments)[0], operation.outputs[0])
            return
        for result in answers:
            self.within(result, line)

    @property
    def informative(self) -> bool:
        """Whether the case (the arguments of one test) could have exposed a mistake. Two
        conditions: the law compared a number that is larger than its tolerance, and the condition
        of `informative_if` held.
        """
        return self._matters and self._told

    @property
    def coarse(self) -> bool:
        """Whether the case (the arguments of one test) could have exposed a mistake with narrower
        error limits: the law compared numbers, and all of them were smaller than their tolerance.
        """
        return self._matters and self._compared and not self._told

    def informative_if(self, condition: Any) -> None:
        """Record whether this case can test the law."""
        self._matters = self._matters and bool(condition)

    def within(self, result: Result, line: bool = True) -> None:
        """Assert that a result differs from the exact value by no more than its error limit, the
        budget. If `line` is set and the error is above a thousandth of the budget, also record
        error ÷ statistical line; independent roundings almost never exceed this line.
        """
        budget = result.budget
        excess = result.excess
        self._measure(result.name, result.value, budget.mid, budget.rad, excess)
        if line and excess.max(initial=0.0) > _COMPARED_WITH_LINE and (likely := result.line()) is not None:
            self.worst_line = max(self.worst_line, float(likely.excess(result.value).max(initial=0.0)))
        self._tell(excess.size and budget.judged and not budget.vacuous)

    def close(self, a: Any, b: Any, name: str = "") -> None:
        """Assert that two expressions can have the same exact value: they differ by at most the sum
        of their radii. Expressions are results, balls (intervals value ± radius) and exact arrays.
        """
        name = name or next((first.name for first in (a, b) if isinstance(first, Result)), "out")
        first, second = _ball(a), _ball(b)
        if first.mid.shape != second.mid.shape:
            raise ValueError(f"A law compares shapes {first.mid.shape} and {second.mid.shape}.")
        difference = first - second
        with np.errstate(all="ignore"):
            magnitude = np.abs(difference.mid)
            excess = np.where((magnitude == 0) | np.isinf(difference.rad), 0.0, magnitude / difference.rad)
        self._measure(name, first.mid, second.mid, difference.rad, excess)
        self._tell((difference.rad < np.fmax(np.abs(first.mid), np.abs(second.mid))).any())

    def agree(self, a: Result, b: Result) -> None:
        """Assert that `a`, the result of one code path, differs from `b`, the result of another, by
        at most the sum of both budgets, the error limits.

        Any value passes where the budgets accept any value. Where a number is not finite and the
        two are not equal, `a` must be within its own budget.
        """
        first, second, radius = a.value, b.value, a.budget.rad + b.budget.rad
        both_finite = np.isfinite(first) & np.isfinite(second)
        with np.errstate(all="ignore"):
            distance = np.where(
                both_finite, np.abs(first - second) / radius, np.where(a.budget.excess(first) > 1, np.inf, 0.0)
            )
        excess = np.where((first == second) | ((first != first) & (second != second)) | np.isinf(radius), 0.0, distance)
        self._measure(a.name, first, second, radius, excess)
        self._tell((radius < np.fmax(np.abs(first), np.abs(second))).any())

    def same(self, a: Any, b: Any, name: str = "") -> None:
        """Assert that two arrays are equal in each entry: −0 equals 0, and NaN equals NaN."""
        name = name or next((first.name for first in (a, b) if isinstance(first, Result)), "out")
        first, second = (np.asarray(result.value if isinstance(result, Result) else result) for result in (a, b))
        if first.shape != second.shape:
            raise BrokenError(f"{name} has shape {first.shape}, but should have shape {second.shape}.")
        differ = (first != second) & ~((first != first) & (second != second))
        if differ.any():
            index = np.unravel_index(int(differ.argmax()), first.shape)
            count_of_differences = f"; {int(differ.sum())} of {first.size} entries differ" if first.size > 1 else ""
            raise BrokenError(
                f"{entry(name, index)}={first[index]}, but should be exactly {second[index]}{count_of_differences}."
            )
        self._tell(True)

    def alike(self, a: Any, b: Any, name: str = "") -> None:
        """Assert that two results can have the same exact value: masks are equal, and numbers are
        equal or `close`. A NaN fails where a number is expected.
        """
        for result in (a, b):
            self.finite(result)
        first, second = (r if isinstance(r, np.ndarray) else r.value for r in (a, b))
        if isinstance(a, np.ndarray) or np.array_equal(first, second, equal_nan=True):
            self.same(first, second, name)
        else:
            self.close(a, b, name)

    def finite(self, result: Any) -> None:
        """Assert that a result has finite numbers. Exempt are entries that may overflow, and
        entries where a convention asks for NaN. A mask always passes.
        """
        if isinstance(result, Result):
            result.require_numbers()
        self._tell(True)

    def require(self, condition: Any, sentence: str) -> None:
        """Raise BrokenError with this sentence unless the condition holds."""
        if not condition:
            raise BrokenError(sentence)
        self._tell(True)

    def _tell(self, told: Any) -> None:
        self._told, self._compared = bool(self._told or told), True

    def _measure(self, name: str, actual: Array, expected: Array, rad: Array, excess: Array) -> None:
        largest_excess = float(excess.max(initial=0.0))
        self.worst = max(self.worst, largest_excess)
        if largest_excess > 1:
            index = np.unravel_index(int(excess.argmax()), excess.shape)
            times = f": the error is {largest_excess:.3g} times its error limit" if largest_excess < _FAR else ""
            outside = f"; {int((excess > 1).sum())} of {excess.size} entries are outside" if excess.size > 1 else ""
            raise BrokenError(
                f"{entry(name, index)}={actual[index]}, but should be {expected[index]} ± {rad[index]:.3g}"
                f"{times}{outside}.",
                largest_excess,
            )


def _is_same(call: Call, other: Call) -> bool:
    """Return whether two calls have the same operation and arguments, in any memory layout."""
    return call.operation == other.operation and all(
        np.array_equal(x, y, equal_nan=True) if isinstance(x, np.ndarray) else not isinstance(y, np.ndarray) and x == y
        for x, y in zip(call.arguments, other.arguments, strict=True)
    )


def _ball(x: Any) -> Ball:
    return x.ball if isinstance(x, Result) else x if isinstance(x, Ball) else exact(x)
