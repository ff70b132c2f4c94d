"""What must come of a call: certified bounds of the exact value, the correctly rounded value, and how far code may be from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracles import Conventions, Enclosure, preset
from oracles.ball import Array
from oracles.formats import BINARY64, Format
from properties.contract.operations import Operation
from properties.strategies.choices import rounded

__all__ = ["Expected", "expected", "is_right", "judges", "tolerances", "upwards"]


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
    def is_finite(self) -> bool:
        """Whether it says something of every entry: all budgets are finite, and none reaches beyond the format."""
        largest = (self.format or BINARY64).largest
        with np.errstate(all="ignore"):
            reach = np.fmax(np.abs(self.lower), np.abs(self.upper)) + self.budget
        return bool((np.isfinite(self.budget) & ~(np.isfinite(self.lower) & (reach > largest))).all())


def judges(results: Sequence[Expected]) -> bool:
    """Whether a test of some results says something: of every entry, and of some result more than output without information does."""
    return all(of.is_finite for of in results) and not all(of.vacuous for of in results)


def expected(o: Operation, arguments: tuple[Any, ...], arithmetic: str, reading: Conventions) -> tuple[Expected, ...]:
    """What must come of a call, result by result. Raises ValueError where the call is to be refused."""
    if o.returns_booleans:
        mask = np.asarray(o.call(o.oracle, arguments, conventions=reading))
        exact = mask.astype(np.float64)
        return (Expected("mask", None, exact, exact, mask, np.ones(exact.shape, bool), np.zeros(exact.shape), False),)
    certified = _enclosures(o, arguments, None, reading)
    budgets = _enclosures(o, arguments, arithmetic, reading)
    a, names = preset(arithmetic), o.returned(arguments)
    return tuple(_expected(name, o.stored(name, a, result=True), *each) for name, *each in zip(names, certified, budgets, strict=True))


def _enclosures(o: Operation, arguments: tuple[Any, ...], arithmetic: str | None, reading: Conventions) -> tuple[Enclosure, ...]:
    with np.errstate(all="ignore"):
        found = o.call(o.oracle, arguments, arithmetic=arithmetic, conventions=reading, method="arb")
    return tuple(x for x in found if x is not None) if isinstance(found, tuple) else (found,)


def _expected(name: str, target: Format, exact: Enclosure, budget: Enclosure) -> Expected:
    with np.errstate(all="ignore"):
        low, high = exact.mid - exact.rad, exact.mid + exact.rad
        lower = np.where(exact.rad == 0, exact.mid, np.nextafter(low, -np.inf))
        upper = np.where(exact.rad == 0, exact.mid, np.nextafter(high, np.inf))
        if target != BINARY64:
            low, high = rounded(lower, target), rounded(upper, target)
        decided = (low == high) | np.isnan(exact.mid)
        apart = np.fmax(np.abs(budget.mid - exact.mid), 0.0)
        reach = np.where(budget.rad == 0, apart, budget.rad + apart)
    value = rounded(exact.mid, target)
    return Expected(name, target, lower, upper, value, decided, upwards(reach), budget.vacuous)


def upwards(x: Array, bits: int = 8) -> Array:
    """Numbers of few bits that are no smaller, and by more than the rounding of float64: so they are the same on every processor."""
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(x * (1 + 2.0**-20))
        found = np.ldexp(np.ceil(np.ldexp(fraction, bits)), exponent - bits)
    return np.where(x == 0, 0.0, np.where(np.isfinite(x), found, np.inf))


def is_right(out: Any, of: Expected) -> Any:
    """For each entry of an output whether it is right: within the budget of the bounds, or NaN where NaN is expected."""
    out = np.asarray(out, np.float64)
    with np.errstate(all="ignore"):
        within = (of.lower - of.budget <= out) & (out <= of.upper + of.budget)
    return within | (np.isnan(out) & np.isnan(of.lower))


def tolerances(of: Expected) -> tuple[float, float]:
    """(rtol, atol) so that |out − value| ≤ atol + rtol·|value| holds of whatever is within the budget.

    rtol is the least relative reach of an entry, atol what the others need beside it: both are accepted by `allclose`, which accepts more
    than the budget does.
    """
    finite = np.isfinite(of.lower) & np.isfinite(of.budget)
    value, size = of.value[finite].astype(np.float64), np.abs(of.value[finite].astype(np.float64))
    reach = np.fmax(of.upper[finite] - value, value - of.lower[finite]) + of.budget[finite]
    with np.errstate(all="ignore"):
        rtol = float(np.min(reach[size > 0] / size[size > 0], initial=1.0)) if (size > 0).any() else 0.0
        atol = float(np.max(reach - rtol * size, initial=0.0))
    return float(upwards(np.array(rtol))), float(upwards(np.array(atol)))
