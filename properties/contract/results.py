"""Defines the outcome of a call: results in float64, each with its budget (error limit), or the
error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.ball import Array, Ball, ball

__all__ = ["BrokenError", "Call", "RaisedError", "Result", "Watched", "entry", "is_right", "results_of"]


class BrokenError(AssertionError):
    """Raised when a law (a property to check) fails on a case, the arguments of one test. `excess`
    is the error divided by its budget, the error limit.
    """

    def __init__(self, summary: str, excess: float = np.inf) -> None:
        super().__init__(summary)
        self.excess = excess


class RaisedError(BrokenError):
    """Raised when an operation raised an exception. `__cause__` holds that exception."""


@dataclass(frozen=True)
class Call:
    """One call: the operation, its arguments in float64, the memory layout of the arrays, and the
    outputs in float64 or the error.

    A layout such as "transposed" holds for all arrays. A layout such as "transposed k" holds for k
    alone, and the other arrays are contiguous. In the layout "aliased", equal arrays are one
    object. In the layout "packed", arrays of one shape share a buffer.
    """

    operation: str
    arguments: tuple[Any, ...]
    layout: str
    outputs: tuple[Array, ...]
    error: str = ""


def is_right(call: Call, expected: Sequence[Any]) -> bool:
    """Return whether a call returned the expected values. Masks must be equal, and numbers must be
    within their budgets (error limits).
    """
    pairs = zip(call.outputs, expected, strict=False)
    return not call.error and all(
        not (enclosure.excess(output) > 1).any()
        if isinstance(enclosure, Enclosure)
        else np.array_equal(output, enclosure)
        for output, enclosure in pairs
    )


class Result:
    """One result of a call: its numbers in float64, the oracle's enclosure, and a ball (intervals
    value ± radius) that contains the exact value.

    `line()` returns the oracle's enclosure with the radii of the statistical line. This line is
    narrower than the budget (the proved error limit), but not proved. `line()` returns None if
    every sum is so short that the two are equal.
    """

    def __init__(
        self, name: str, value: Array, budget: Callable[[], Enclosure], line: Callable[[], Enclosure | None]
    ) -> None:
        self.name, self.value, self._budget, self.line = name, value, budget, line

    @cached_property
    def budget(self) -> Enclosure:
        """The oracle's enclosure of this result in the implementation's arithmetic and conventions.
        Its radii are the error limits.
        """
        return self._budget()

    @cached_property
    def excess(self) -> Array:
        """The error of each number, divided by its error limit."""
        return self.budget.excess(self.value)

    @cached_property
    def ball(self) -> Ball:
        """The numbers with the radii of the budget (the error limits): intervals value ± radius.
        They contain the exact values if the numbers are within their budget.

        The radius is ∞ where any value is right. It is also ∞ where a number overflows and may do
        so. Raises BrokenError for a NaN or ±∞ elsewhere.

        If some number is outside its budget, the radii also cover the rounding of numbers of this
        size. That rounding differs between processors. A law that compares such balls fails only
        for a difference that is larger than it.
        """
        value, budget = self.value, self.budget
        self.require_numbers()
        is_outside = (self.excess > 1).any()
        radius = budget.rad + _rounding_of_others(value, budget) if is_outside else budget.rad
        return ball(np.where(np.isfinite(value), value, np.nan), radius)

    @property
    def handed_on(self) -> Array:
        """The numbers, as the argument of another call. Raises BrokenError for a NaN or ±∞ where a
        number should be finite.
        """
        self.require_numbers()
        return self.value

    def require_numbers(self) -> None:
        """Raise BrokenError for a NaN or ±∞ where a number should be finite."""
        not_finite = ~np.isfinite(self.value)
        if not_finite.any() and (missing := not_finite & (self.excess > 1)).any():
            index = np.unravel_index(int(missing.argmax()), self.value.shape)
            raise BrokenError(f"{entry(self.name, index)}={self.value[index]}, but should be a finite number.")


@dataclass(frozen=True)
class Watched:
    """One call with everything that can be observed.

    `given` are the implementation's own arrays that were passed, and `returned` those that it
    returned, both after the call. `results` are the results as laws get them. `side_effect` is a
    sentence, or "".
    """

    given: tuple[Any, ...]
    returned: tuple[Any, ...]
    results: tuple[Any, ...]
    side_effect: str

    @property
    def found(self) -> Any:
        """The only result, or a tuple of all results."""
        return self.results[0] if len(self.results) == 1 else self.results


def results_of(found: Any) -> tuple[Any, ...]:
    """Return the results of a call as a tuple."""
    return found if isinstance(found, tuple) else (found,)


def _rounding_of_others(value: Array, budget: Enclosure) -> float:
    """Return a bound of the rounding of numbers that differ from the expected ones: the largest
    radius, multiplied by the size of the largest number ÷ the size of the largest expected number,
    if this is above 1.

    A radius bounds the rounding of the sum that gives the right number. If that sum has no terms,
    the radius is 0, which does not bound the rounding of a wrong number in its place. The result is
    ∞ if all right numbers are 0.
    """
    radius, expected_size, actual_size = (
        np.max(np.abs(numbers), where=np.isfinite(numbers), initial=0.0) for numbers in (budget.rad, budget.mid, value)
    )
    return float(radius * max(1.0, actual_size / expected_size)) if expected_size else np.inf


def entry(name: str, index: tuple[Any, ...]) -> str:
    """Return the name of an array's entry for a message: "out[0, 3]". For a single number, return
    only the name. A note after the name stays at the end: "out[0, 3] (a fully masked row)".
    """
    array, space, note = name.partition(" (")
    return f"{array}[{', '.join(map(str, index))}]{space}{note}" if index else name
