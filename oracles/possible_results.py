"""Sets of results that a correct kernel may store.

An error limit allows every rounding its worst case. In 16 bits that is a large part of the result.
Here each stored number is a set instead: [lower, upper] after rounding to its format. Where no
value within the error of the computation crosses a rounding boundary, the set is one number, and a
kernel that stores another number is wrong.

If a kernel rounds a result once, as it stores it, then the result is at least round(value − radius)
and at most round(value + radius), for the enclosure of the result before it is stored: rounding is
monotone. `stored` returns this set. A number that a kernel may store, or not, is the hull of a set
and of its ends after rounding. `oracles.possible_attention` has sets of results of attention.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array
from oracles.formats import Arithmetic, Format

__all__ = ["NUDGE", "Possible", "exactly", "hull", "kept", "known", "nearest", "product", "stored", "summed"]

NUDGE = 2.0**-44
"""Covers the roundings of float64 in these modules, which are fewer than 100."""


class Possible(NamedTuple):
    """The smallest and the largest number that a correct kernel may return, for each entry."""

    lower: Array
    upper: Array

    @property
    def single(self) -> NDArray[np.bool_]:
        """Which entries have one possible result."""
        return np.asarray(self.lower == self.upper)

    def at(self, index: Any) -> "Possible":
        """Return the bounds of some entries."""
        return Possible(self.lower[index], self.upper[index])

    def excludes(self, out: Array) -> NDArray[np.bool_]:
        """Return which entries of an output no correct kernel may return."""
        return ~((self.lower <= out) & (out <= self.upper))


def stored(value: Array, radius: Array, target: Format, a: Arithmetic) -> Possible:
    """Return the set of results that are stored in a format, of an enclosure before that."""
    with np.errstate(all="ignore"):
        ends = Possible(np.nextafter(value - radius, -np.inf), np.nextafter(value + radius, np.inf))
        return known(ends, np.isfinite(value), target, a)


def known(x: Possible, is_known: NDArray[np.bool_], target: Format, a: Arithmetic) -> Possible:
    """Return a set after it is stored in a format; the set of all numbers where it is not known."""
    is_known = is_known & np.isfinite(x.lower) & np.isfinite(x.upper)
    lower, upper = _rounded(x, target, a)
    return Possible(np.where(is_known, lower, -np.inf), np.where(is_known, upper, np.inf))


def _rounded(x: Possible, target: Format, a: Arithmetic) -> Possible:
    """Return a set after it is rounded to a format. Numbers below the smallest normal number may
    become 0 if the arithmetic flushes.
    """
    lower, upper = (nearest(end, target) for end in x)
    if a.flush_to_zero:
        lower = np.where((lower > 0) & (lower < 2 * target.smallest_normal), 0.0, lower)
        upper = np.where((upper < 0) & (upper > -2 * target.smallest_normal), 0.0, upper)
    return Possible(lower, upper)


def exactly(x: Array) -> Possible:
    """Return the sets of one number each."""
    return Possible(x, x)


def hull(first: Possible, second: Possible) -> Possible:
    """Return the smallest sets [lower, upper] that contain two sets."""
    return Possible(np.fmin(first.lower, second.lower), np.fmax(first.upper, second.upper))


def kept(x: Possible, target: Format | None, a: Arithmetic, factor: float = 1.0) -> Possible:
    """Return the hull of a set and of the set of numbers whose products with a factor are stored."""
    if target is None:
        return x
    ends = [end / factor for end in _rounded(Possible(factor * x.lower, factor * x.upper), target, a)]
    return hull(x, Possible(*ends))


def product(x: Possible, y: Possible) -> Possible:
    """Return the sets of products."""
    ends = np.stack([first * second for first in x for second in y])
    return Possible(ends.min(0), ends.max(0))


def summed(x: Possible, roundoff: float) -> Possible:
    """Return the sets of sums along the last axis. The error is γ_{n+2} for n terms that are not 0."""
    sizes = np.maximum(np.abs(x.lower), np.abs(x.upper))
    terms = roundoff * ((sizes > 0).sum(-1) + 2)
    error = (terms / (1 - terms) + NUDGE) * sizes.sum(-1)
    return Possible(x.lower.sum(-1) - error, x.upper.sum(-1) + error)


def nearest(x: Array, target: Format) -> Array:
    """Return the nearest numbers of a format, ties to even; ±∞ above its largest number."""
    spacing = target.spacing(x)
    y = np.where(np.isfinite(x), np.rint(x / spacing) * spacing, x)
    return np.where(np.abs(y) > target.largest, np.copysign(np.inf, y), y)
