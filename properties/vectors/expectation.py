"""Computes the expected results of a call: certified bounds of the exact value, the correctly
rounded value, and how far correct code may be from the bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from oracles import Conventions, Enclosure, preset
from oracles.ball import Array
from oracles.formats import BINARY16, BINARY32, BINARY64, BRAIN16, Format
from properties.contract.operations import Arguments, Operation
from properties.strategies.choices import rounded

__all__ = ["Expected", "certificate", "dtype_of", "expected", "is_right", "judges", "tolerances", "upwards"]

_SLACK = 2.0**-4
"""The share by which a float64 budget grows: the oracle's midpoint differs between processors."""

_DTYPES: dict[Format, Any] = {
    BINARY64: np.float64,
    BINARY32: np.float32,
    BINARY16: np.float16,
    BRAIN16: ml_dtypes.bfloat16,
}


def dtype_of(target: Format) -> Any:
    """Return the NumPy type of arrays in a format."""
    return _DTYPES[target]


@dataclass(frozen=True)
class Expected:
    """One expected result of a call in an arithmetic. Masks and integers have the format None.

    lower, upper   bounds of the exact value, proved in ball arithmetic; both NaN, or both infinite,
                   if the convention says so
    value          the number of the result's format that is nearest to the exact value
    decided        whether the bounds leave only that number; otherwise they leave a second one
    budget         how far the results of code in this arithmetic may be from the bounds
    vacuous        whether the budget also accepts outputs that carry no information
    """

    name: str
    format: Format | None
    lower: Array
    upper: Array
    value: Any
    decided: Any
    budget: Array
    vacuous: bool

    @property
    def is_bounded(self) -> bool:
        """Whether every number that the budget accepts is in the range of the format, where the
        exact value is finite.
        """
        largest, numbers = (self.format or BINARY64).largest, np.isfinite(self.lower)
        with np.errstate(all="ignore"):
            outermost = np.fmax(np.abs(self.lower), np.abs(self.upper)) + self.budget
        return bool((outermost[numbers] <= largest).all())

    @property
    def tells(self) -> bool:
        """Whether the result can expose a mistake. Either the budget is not vacuous, or only 0 and
        underflow are right, as where every row is fully masked.
        """
        underflow_limit = (self.format or BINARY64).smallest_normal ** 0.5
        return not self.vacuous or bool(
            ((self.lower == 0) & (self.upper == 0) & (self.budget <= underflow_limit)).all()
        )


def judges(results: Sequence[Expected]) -> bool:
    """Return whether a test with some results can fail: every accepted number is in the range of
    its format, and some result can expose a mistake.
    """
    return all(result.is_bounded for result in results) and any(result.tells for result in results)


def expected(
    operation: Operation,
    arguments: Arguments,
    arithmetic: str,
    conventions: Conventions,
    exact: tuple[Enclosure, ...] | None = None,
) -> tuple[Expected, ...]:
    """Return the expected results of a call. `exact` are the certified results, if they are known
    already. Raises ValueError for a call that the oracle refuses.
    """
    if operation.is_exact:
        value = np.asarray(operation.call(operation.oracle, arguments, conventions=conventions))
        bounds, all_entries, name = value.astype(np.float64), np.ones(value.shape, bool), operation.outputs[0]
        return (Expected(name, None, bounds, bounds, value, all_entries, np.zeros(value.shape), False),)
    exact = exact or certificate(operation, arguments, conventions)
    rounding, names = preset(arithmetic), operation.returned(arguments)
    budgets = _enclosures(operation, arguments, arithmetic, conventions, "auto")
    allowed_slack = _SLACK if rounding.elementwise == BINARY64 else 2.0**-20
    return tuple(
        _expected(name, operation.stored(name, rounding, result=True), allowed_slack, *enclosures)
        for name, *enclosures in zip(names, exact, budgets, strict=True)
    )


def certificate(operation: Operation, arguments: Arguments, conventions: Conventions) -> tuple[Enclosure, ...]:
    """Return enclosures (intervals) that contain the exact results. Ball arithmetic makes them, so
    they are the same on every processor.
    """
    return _enclosures(operation, arguments, None, conventions, "arb")


def _enclosures(
    operation: Operation, arguments: Arguments, arithmetic: str | None, conventions: Conventions, method: str
) -> tuple[Enclosure, ...]:
    options: dict[str, Any] = {"arithmetic": arithmetic, "conventions": conventions, "method": method}
    with np.errstate(all="ignore"):
        results = operation.call(operation.oracle, arguments, **options)
    enclosures = (
        tuple(enclosure for enclosure in results if enclosure is not None) if isinstance(results, tuple) else (results,)
    )
    # files store a number as an array with one entry
    return tuple(
        replace(enclosure, mid=np.atleast_1d(enclosure.mid), rad=np.atleast_1d(enclosure.rad))
        for enclosure in enclosures
    )


def _expected(name: str, target: Format, slack: float, exact: Enclosure, budget: Enclosure) -> Expected:
    with np.errstate(all="ignore"):
        lower_number, upper_number = exact.mid - exact.rad, exact.mid + exact.rad
        lower = np.where(exact.rad == 0, exact.mid, np.nextafter(lower_number, -np.inf))
        upper = np.where(exact.rad == 0, exact.mid, np.nextafter(upper_number, np.inf))
        if target != BINARY64:
            lower_number, upper_number = rounded(lower, target), rounded(upper, target)
        decided = (lower_number == upper_number) | np.isnan(exact.mid)
        unknown = np.isinf(exact.rad)  # any number is right
        lower, upper = np.where(unknown, -np.inf, lower), np.where(unknown, np.inf, upper)
        distance = np.fmax(np.abs(budget.mid - exact.mid), 0.0)
        widened_budget = np.where(distance <= slack * budget.rad, budget.rad * (1 + slack), budget.rad + distance)
        widened_budget = np.where(unknown, np.inf, widened_budget)
    nearest = rounded(exact.mid, target)
    return Expected(name, target, lower, upper, nearest, decided, upwards(widened_budget), budget.vacuous)


def upwards(x: Array, bits: int = 8) -> Array:
    """Return the numbers rounded up to a few bits. First they are increased by more than a rounding
    of float64. For this reason the result is the same on every processor.
    """
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(x * (1 + 2.0**-20))
        larger = np.ldexp(np.ceil(np.ldexp(fraction, bits)), exponent - bits)
    return np.where(x == 0, 0.0, np.where(np.isfinite(x), larger, np.inf))


def is_right(out: Any, of: Expected) -> Any:
    """Return for each entry of an output whether it is right. An entry is right if it is within the
    budget of the bounds, or if NaN is expected and returned, or if the budget is ∞.
    """
    out = np.asarray(out, np.float64)
    with np.errstate(all="ignore"):
        within = (of.lower - of.budget <= out) & (out <= of.upper + of.budget)
    return within | (np.isnan(out) & np.isnan(of.lower)) | np.isinf(of.budget)


def tolerances(of: Expected) -> tuple[float, float]:
    """Return (rtol, atol) for `allclose`: |out − value| ≤ atol + rtol·|value| holds in float64
    arithmetic for every output within the budget.

    The reach of an entry is the distance from its value to the farthest accepted output. rtol is
    the least reach ÷ |value| of an entry. atol covers what the other entries need in addition.
    `allclose` with these accepts every output that the budget accepts, and more. The bound plus the
    budget, and its distance from the value, are each rounded by less than half of their spacing.
    """
    finite = np.isfinite(of.lower) & np.isfinite(of.budget)
    value, magnitude = of.value[finite].astype(np.float64), np.abs(of.value[finite].astype(np.float64))
    farthest = np.fmax(of.upper[finite] - value, value - of.lower[finite]) + of.budget[finite]
    with np.errstate(all="ignore"):
        farthest += np.where(of.budget[finite] > 0, np.spacing(magnitude + farthest), 0.0)
        relative = (
            float(np.min(farthest[magnitude > 0] / magnitude[magnitude > 0], initial=1.0))
            if (magnitude > 0).any()
            else 0.0
        )
        absolute = float(np.max(farthest - relative * magnitude, initial=0.0))
    return float(upwards(np.array(relative))), float(upwards(np.array(absolute)))
