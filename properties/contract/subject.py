"""An implementation under a law: what a law may assert of its results, each by its budget, or exactly."""

from typing import Any

import numpy as np

from oracles.ball import Array, Ball, exact
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, Result, entry

__all__ = ["Subject"]

_LOOKED_AT = 1e-3  # budgets: smaller errors are not put to the line


class Subject(Caller):
    """An implementation under one law, which calls its operations, and states what should be by
    `within`, `close`, `same` and `require`.

    A law says by `informative_if` when a case could not have shown a mistake. `worst` is the
    largest error so far, in budgets, and `worst_line` in units of the statistical line.
    """

    def begin(self) -> None:
        """Forget the last case."""
        super().begin()
        self.retell()

    def retell(self) -> None:
        """Forget what was said of the case so far: it is for the law before."""
        self.vacuous = 0
        self.worst = self.worst_line = 0.0
        self._told, self._compared, self._matters = False, False, True

    def judge(self, place: int, line: bool = False) -> None:
        """A call that was made is as the oracle says: masks exactly, numbers within their budgets,
        and, if asked for, the line.
        """
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
        """Whether the case could have shown a mistake: something larger than its tolerance was
        compared, and `informative_if` held.
        """
        return self._matters and self._told

    @property
    def coarse(self) -> bool:
        """Whether it could have with narrower budgets: something was compared, and nothing was
        larger than its tolerance.
        """
        return self._matters and self._compared and not self._told

    def informative_if(self, condition: Any) -> None:
        """Say whether the case is one on which the law demands something."""
        self._matters = self._matters and bool(condition)

    def within(self, result: Result, line: bool = True) -> None:
        """A result is within its budget of the exact value; how far it is in units of the
        statistical line is noted, if it is asked for and the error is above a thousandth of the
        budget."""
        budget = result.budget
        excess = result.excess
        self._measure(result.name, result.value, budget.mid, budget.rad, excess)
        if line and excess.max(initial=0.0) > _LOOKED_AT and (likely := result.line()) is not None:
            self.worst_line = max(self.worst_line, float(likely.excess(result.value).max(initial=0.0)))
        self._tell(excess.size and budget.judged and not budget.vacuous)

    def close(self, a: Any, b: Any, name: str = "") -> None:
        """Two expressions of results, balls and exact arrays have one exact value: they differ by
        no more than their radii together.
        """
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

    def agree(self, a: Result, b: Result) -> None:
        """A result of another path is no farther from one that is within its budget than both
        budgets together allow.

        Where the budgets allow anything it may be anything; where not both are finite numbers, or
        the same, its own budget decides.
        """
        x, y, rad = a.value, b.value, a.budget.rad + b.budget.rad
        both = np.isfinite(x) & np.isfinite(y)
        with np.errstate(all="ignore"):
            apart = np.where(both, np.abs(x - y) / rad, np.where(a.budget.excess(x) > 1, np.inf, 0.0))
        excess = np.where((x == y) | ((x != x) & (y != y)) | np.isinf(rad), 0.0, apart)
        self._measure(a.name, x, y, rad, excess)
        self._tell((rad < np.fmax(np.abs(x), np.abs(y))).any())

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
            raise BrokenError(f"{entry(name, index)}={x[index]}, but should be {y[index]}, exactly{count}.")
        self._tell(True)

    def alike(self, a: Any, b: Any, name: str = "") -> None:
        """Two results of one exact value: masks are the same, numbers too, or as `close`; neither
        is NaN where a number should be.
        """
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
        self._told, self._compared = bool(self._told or told), True

    def _measure(self, name: str, actual: Array, expected: Array, rad: Array, excess: Array) -> None:
        worst = float(excess.max(initial=0.0))
        self.worst = max(self.worst, worst)
        if worst > 1:
            index = np.unravel_index(int(excess.argmax()), excess.shape)
            count = f"; {int((excess > 1).sum())} of {excess.size} entries are outside" if excess.size > 1 else ""
            raise BrokenError(
                f"{entry(name, index)}={actual[index]}, but should be {expected[index]} ± {rad[index]:.3g}: "
                f"the error is {'∞' if np.isinf(worst) else f'{worst:.4g}'} times its error limit{count}.",
                worst,
            )


def _ball(x: Any) -> Ball:
    return x.ball if isinstance(x, Result) else x if isinstance(x, Ball) else exact(x)
