"""What comes of a call: results in float64, each beside its budget, or the error that it ended with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.ball import Array, Ball, ball

__all__ = ["BrokenError", "Call", "RaisedError", "Result", "Watched", "entry", "is_right", "results_of"]


class BrokenError(AssertionError):
    """A law does not hold on a case, by `excess` budgets."""

    def __init__(self, summary: str, excess: float = np.inf) -> None:
        super().__init__(summary)
        self.excess = excess


class RaisedError(BrokenError):
    """An operation raised an exception, which is the cause."""


@dataclass(frozen=True)
class Call:
    """One call: the operation, its arguments in float64, the layout of the arrays, and what came
    back in float64, or what was wrong.

    The layout is that of all arrays, or "transposed k": that of k alone, the others are contiguous.
    """

    operation: str
    arguments: tuple[Any, ...]
    layout: str
    outputs: tuple[Array, ...]
    error: str = ""


def is_right(call: Call, expected: Sequence[Any]) -> bool:
    """Whether a call returned what was expected: masks as they should be, numbers within their budgets."""
    pairs = zip(call.outputs, expected, strict=False)
    return not call.error and all(
        not (e.excess(x) > 1).any() if isinstance(e, Enclosure) else np.array_equal(x, e) for x, e in pairs
    )


class Result:
    """One result of a call: its numbers in float64, its oracle, and itself as a ball that contains
    the exact value.

    `line()` is the oracle's enclosure by the statistical line, narrower than the budget and no
    proof; None where no sum is long enough for the two to differ.
    """

    def __init__(
        self, name: str, value: Array, budget: Callable[[], Enclosure], line: Callable[[], Enclosure | None]
    ) -> None:
        self.name, self.value, self._budget, self.line = name, value, budget, line

    @cached_property
    def budget(self) -> Enclosure:
        """The oracle's enclosure in the implementation's arithmetic and conventions."""
        return self._budget()

    @cached_property
    def excess(self) -> Array:
        """Each number's error in budgets."""
        return self.budget.excess(self.value)

    @cached_property
    def ball(self) -> Ball:
        """The numbers with the budget's radii: the exact value is within, if they are within their
        budget of it.

        Entries that may be anything, or that overflow where they may, have radius ∞. Raises
        BrokenError for a NaN or ±∞ elsewhere. Where some number is outside its budget, the radii
        also cover the rounding of numbers such as these: what is wrong is shown by more than its
        own rounding, which differs between processors.
        """
        value, budget = self.value, self.budget
        self.require_numbers()
        wrong = (self.excess > 1).any()
        rad = budget.rad + _rounding_of_others(value, budget) if wrong else budget.rad
        return ball(np.where(np.isfinite(value), value, np.nan), rad)

    @property
    def handed_on(self) -> Array:
        """The numbers, as the argument of another call. Raises BrokenError for a NaN or ±∞ where a
        finite number should be.
        """
        self.require_numbers()
        return self.value

    def require_numbers(self) -> None:
        """Raise BrokenError for a NaN or ±∞ where a finite number should be."""
        unknown = ~np.isfinite(self.value)
        if unknown.any() and (missing := unknown & (self.excess > 1)).any():
            index = np.unravel_index(int(missing.argmax()), self.value.shape)
            raise BrokenError(f"{entry(self.name, index)}={self.value[index]}, but should be a finite number.")


@dataclass(frozen=True)
class Watched:
    """One call with all that can be seen of it.

    `given` and `returned` are the implementation's own arrays, as they were left, `results` what
    laws see of them, and `besides` says in a sentence what else it did, or "".
    """

    given: tuple[Any, ...]
    returned: tuple[Any, ...]
    results: tuple[Any, ...]
    besides: str

    @property
    def found(self) -> Any:
        """The result alone where there is one, else all of them."""
        return self.results[0] if len(self.results) == 1 else self.results


def results_of(found: Any) -> tuple[Any, ...]:
    """The results of a call: one or several."""
    return found if isinstance(found, tuple) else (found,)


def _rounding_of_others(value: Array, budget: Enclosure) -> float:
    """How far numbers that are not the budget's may be rounded: its largest radius, by as much more
    as they are larger.

    A radius is for the sum from which its own number comes: that of a number that should be 0
    because nothing is summed is 0, and says nothing about the rounding of what is there instead. ∞
    where all numbers should be 0.
    """
    radius, right, found = (
        np.max(np.abs(x), where=np.isfinite(x), initial=0.0) for x in (budget.rad, budget.mid, value)
    )
    return float(radius * max(1.0, found / right)) if right else np.inf


def entry(name: str, index: tuple[Any, ...]) -> str:
    """An entry of an array as it is written: "out[0, 3]", or the name alone of a single number."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name
