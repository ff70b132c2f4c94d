"""What must come of a call: certified bounds of the exact value, the correctly rounded value, and
how far code may be from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracles import Conventions, Enclosure, preset
from oracles.ball import Array
from oracles.formats import BINARY64, Format
from properties.contract.operations import Operation
from properties.strategies.choices import rounded

__all__ = ["Expected", "certificate", "expected", "is_right", "judges", "tolerances", "upwards"]

_SLACK = 2.0**-4
"""The share of a budget of float64 that is added to it for the oracle's own midpoint, which is not
the same on every processor.
"""


@dataclass(frozen=True)
class Expected:
    """One result of a call in an arithmetic.

    lower, upper   the exact value is between, proved in ball arithmetic; both NaN, or both infinite, where the convention says so
    value          the number of the result's format that is nearest to the exact one
    decided        whether it must be that number; else the bounds leave another beside it
    budget         code of the arithmetic is within it of the bounds
    vacuous        whether outputs that carry no information are within it too
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
        """Whether budgets are finite where exact values are, and none reaches beyond the format."""
        largest, numbers = (self.format or BINARY64).largest, np.isfinite(self.lower)
        with np.errstate(all="ignore"):
            reach = np.fmax(np.abs(self.lower), np.abs(self.upper)) + self.budget
        return bool((reach[numbers] <= largest).all())

    @property
    def tells(self) -> bool:
        """Whether it is not vacuous; or only 0 is right but for underflow, as it is where all rows are dead."""
        least = (self.format or BINARY64).smallest_normal ** 0.5
        return not self.vacuous or bool(((self.lower == 0) & (self.upper == 0) & (self.budget <= least)).all())


def judges(results: Sequence[Expected]) -> bool:
    """Whether a test of some results says something: of every number, and of some result more than
    output without information does.
    """
    return all(of.is_bounded for of in results) and any(of.tells for of in results)


def expected(
    o: Operation,
    arguments: tuple[Any, ...],
    arithmetic: str,
    reading: Conventions,
    exact: tuple[Enclosure, ...] | None = None,
) -> tuple[Expected, ...]:
    """What must come of a call, result by result; `exact` is its certificate, where it is known.
    Raises ValueError for what is refused.
    """
    if o.returns_booleans:
        mask = np.asarray(o.call(o.oracle, arguments, conventions=reading))
        bounds, every = mask.astype(np.float64), np.ones(mask.shape, bool)
        return (Expected("mask", None, bounds, bounds, mask, every, np.zeros(mask.shape), False),)
    exact = exact or certificate(o, arguments, reading)
    a, names, budgets = (
        preset(arithmetic),
        o.returned(arguments),
        _enclosures(o, arguments, arithmetic, reading, "auto"),
    )
    slack = _SLACK if a.elementwise == BINARY64 else 2.0**-20
    return tuple(
        _expected(name, o.stored(name, a, result=True), slack, *each)
        for name, *each in zip(names, exact, budgets, strict=True)
    )


def certificate(o: Operation, arguments: tuple[Any, ...], reading: Conventions) -> tuple[Enclosure, ...]:
    """Enclosures of the exact results in ball arithmetic, the same on every processor."""
    return _enclosures(o, arguments, None, reading, "arb")


def _enclosures(
    o: Operation, arguments: tuple[Any, ...], arithmetic: str | None, reading: Conventions, method: str
) -> tuple[Enclosure, ...]:
    with np.errstate(all="ignore"):
        found = o.call(o.oracle, arguments, arithmetic=arithmetic, conventions=reading, method=method)
    each = tuple(x for x in found if x is not None) if isinstance(found, tuple) else (found,)
    return tuple(
        replace(x, mid=np.atleast_1d(x.mid), rad=np.atleast_1d(x.rad)) for x in each
    )  # files hold a number as one entry


def _expected(name: str, target: Format, slack: float, exact: Enclosure, budget: Enclosure) -> Expected:
    with np.errstate(all="ignore"):
        low, high = exact.mid - exact.rad, exact.mid + exact.rad
        lower = np.where(exact.rad == 0, exact.mid, np.nextafter(low, -np.inf))
        upper = np.where(exact.rad == 0, exact.mid, np.nextafter(high, np.inf))
        if target != BINARY64:
            low, high = rounded(lower, target), rounded(upper, target)
        decided = (low == high) | np.isnan(exact.mid)
        nothing = np.isinf(exact.rad)  # is known: any number is right
        lower, upper = np.where(nothing, -np.inf, lower), np.where(nothing, np.inf, upper)
        apart = np.fmax(np.abs(budget.mid - exact.mid), 0.0)
        reach = np.where(apart <= slack * budget.rad, budget.rad * (1 + slack), budget.rad + apart)
        reach = np.where(nothing, np.inf, reach)
    value = rounded(exact.mid, target)
    return Expected(name, target, lower, upper, value, decided, upwards(reach), budget.vacuous)


def upwards(x: Array, bits: int = 8) -> Array:
    """Numbers of few bits that are no smaller, and by more than the rounding of float64: so they
    are the same on every processor.
    """
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(x * (1 + 2.0**-20))
        found = np.ldexp(np.ceil(np.ldexp(fraction, bits)), exponent - bits)
    return np.where(x == 0, 0.0, np.where(np.isfinite(x), found, np.inf))


def is_right(out: Any, of: Expected) -> Any:
    """For each entry of an output whether it is right: within the budget of the bounds, NaN where
    NaN is expected, or the budget is ∞.
    """
    out = np.asarray(out, np.float64)
    with np.errstate(all="ignore"):
        within = (of.lower - of.budget <= out) & (out <= of.upper + of.budget)
    return within | (np.isnan(out) & np.isnan(of.lower)) | np.isinf(of.budget)


def tolerances(of: Expected) -> tuple[float, float]:
    """(rtol, atol) so that |out − value| ≤ atol + rtol·|value| holds of whatever is within the
    budget, by arithmetic of float64.

    rtol is the least relative reach of an entry, atol what the others need beside it: both are
    accepted by `allclose`, which accepts more than the budget does. The bound plus the budget, and
    its distance from the value, are each rounded by less than half of its spacing.
    """
    finite = np.isfinite(of.lower) & np.isfinite(of.budget)
    value, size = of.value[finite].astype(np.float64), np.abs(of.value[finite].astype(np.float64))
    reach = np.fmax(of.upper[finite] - value, value - of.lower[finite]) + of.budget[finite]
    with np.errstate(all="ignore"):
        reach += np.where(of.budget[finite] > 0, np.spacing(size + reach), 0.0)
        rtol = float(np.min(reach[size > 0] / size[size > 0], initial=1.0)) if (size > 0).any() else 0.0
        atol = float(np.max(reach - rtol * size, initial=0.0))
    return float(upwards(np.array(rtol))), float(upwards(np.array(atol)))
