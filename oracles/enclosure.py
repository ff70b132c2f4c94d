"""The result of an oracle: a value and a radius for every element. It judges whether an output lies
within.

The judgement is exact: `contains` decides |out − mid| ≤ rad over the reals, although it computes in
float64. Fast2Sum (Dekker; Higham, Accuracy and Stability, 2nd ed., section 4.3) gives out − mid = D
+ E exactly, where D is the rounded difference and E its error.  Rounding is monotone and rad is a
float64 number. So D + E > rad implies D ≥ rad, and D + E ≤ rad implies D ≤ rad.  Therefore D < rad
is inside, D > rad is outside, and where D = rad the sign of E decides.
"""

from dataclasses import KW_ONLY, dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.formats import BINARY64, Format

Array = NDArray[np.float64]


_TIES = 2.0**-50
"""A computed quotient |out − mid| / rad that differs from 1 by more than this is on the right side
of 1. Its three roundings are at most 3·2⁻⁵³.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Enclosure:
    """Intervals mid ± rad: the set of all arrays whose elements are within `rad` of `mid`.

    mid, rad  float64 arrays of one shape, () for a number.  A midpoint NaN or ±∞ with radius 0 is
              the expected value. Every element is within an infinite radius
    format    the output format that is judged: an interval that reaches beyond its largest number
              contains ±∞ there
    vacuous   whether the budget is too wide to show a mistake. It is if in at least half of the
              rows it is as wide as the values that it judges, or if outputs without information are
              within it everywhere.  Such outputs are all zero. For the output of attention such an
              output is the mean of the visible values, and then the radius must also be at least
              half their spread: a tight budget accepts the mean too where attention is uniform.
              Entries that should be NaN do not count
    judged    whether the radius is narrow enough to judge by. It is false where even the exact
              evaluation was too expensive

    The enclosure of a certified value contains the exact value; a budget contains every result of
    correct code. Raises TypeError and ValueError unless mid and rad are such a pair of arrays. `repr`
    has the shape and the radii; `str`, which notebooks show too, also the first and last elements.
    """

    mid: Array
    rad: Array
    _: KW_ONLY
    format: Format | None = None
    vacuous: bool = False
    judged: bool = True

    def __post_init__(self) -> None:
        mid, rad = _plain(self.mid, "mid"), _plain(self.rad, "rad")
        if mid.shape != rad.shape:
            raise ValueError(f"rad has shape {rad.shape}, but should be {mid.shape} like mid.")
        if not rad.min(initial=0.0) >= 0:
            raise ValueError("rad has a negative or NaN element, but should be at least 0.")
        if not np.isfinite(mid).all() and (np.isinf(mid) & (rad > 0) & (rad < np.inf)).any():
            raise ValueError("mid has an infinite element with a radius, but should be finite there, or have radius 0.")
        if not isinstance(self.format, Format | None):
            raise TypeError(f"format has type {type(self.format).__name__}, but should be an oracles.Format or None.")
        object.__setattr__(self, "mid", mid)
        object.__setattr__(self, "rad", rad)

    def __repr__(self) -> str:
        numbers = f" of {self.format.name}" if self.format else ""
        narrowest, widest = (f"{radius:.3g}" for radius in (self.rad.min(initial=np.inf), self.rad.max(initial=0.0)))
        radii = widest if narrowest == widest else f"{narrowest} to {widest}"
        radius = f", radius {radii}" if self.rad.size else ""
        notes = [", vacuous"] * self.vacuous + [", too wide to judge by"] * (not self.judged)
        return f"<Enclosure{numbers}, shape {self.mid.shape}{radius}{''.join(notes)}>"

    def __str__(self) -> str:
        shown = (np.array2string(x, threshold=32, edgeitems=2, prefix="mid  ") for x in (self.mid, self.rad))
        return "\n".join([repr(self), *map("{}  {}".format, ("mid", "rad"), shown)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def contains(self, out: Any) -> NDArray[np.bool_]:
        """Return whether each element of an output is within the radius: its `excess` is at most 1.
        The output has the shape of the enclosure.
        """
        return np.asarray(self.excess(out) <= 1)

    def excess(self, out: Any) -> Array:
        """Return |out − mid| / rad for each element of an output; more than 1 is a violation. The
        output has the shape of the enclosure.

        Edge cases: the excess is 0 where out equals mid (also where both are NaN), and where the
        radius is infinite. It is ∞ where out differs from mid and the radius is 0, and where
        exactly one of the two is NaN.  Where the interval reaches beyond the largest number of
        `format`, ±∞ counts as that number, or as mid if mid is larger.

        Raises TypeError for an output that is not a floating-point array, and ValueError for a
        shape other than the enclosure's.
        """
        output = self._output(out)
        with np.errstate(all="ignore"):
            excess = np.asarray(np.abs(output - self.mid) / self.rad)
            np.copyto(excess, 0.0, where=output == self.mid)
            doubtful = ~((np.abs(excess - 1.0) > _TIES) & (excess < np.inf))
            if doubtful.any():
                excess[doubtful] = self._closely(output[doubtful], self.mid[doubtful], self.rad[doubtful])
        return excess

    def _closely(self, got: Array, mid: Array, rad: Array) -> Array:
        """Return the `excess` of elements that are near the radius, or infinite, or whose quotient
        is not a number.
        """
        got = self._overflow_as_largest(got, mid, rad)
        quotient = np.abs(got - mid) / rad
        excess = np.where(_side(got, mid, rad) <= 0, np.fmin(quotient, 1.0), np.fmax(quotient, np.nextafter(1.0, 2.0)))
        excess[np.isnan(got) | np.isnan(mid)] = np.inf
        excess[(got == mid) | (np.isnan(got) & np.isnan(mid)) | np.isinf(rad)] = 0.0
        return excess

    def ulps(self, out: Any) -> Array:
        """Return |out − mid| for each element, in units of the spacing of the numbers of `format`
        at mid. Without a format the spacing is float64's.

        The result is correct to two roundings.
        Edge cases: 0 where both are NaN, ∞ where one is NaN or out is infinite.  Raises the same
        errors as `excess`.
        """
        output = self._output(out)
        with np.errstate(all="ignore"):
            distance = np.abs(output - self.mid) / (self.format or BINARY64).spacing(self.mid)
        missing = np.isnan(output) ^ np.isnan(self.mid)
        return np.where(missing, np.inf, np.where(np.isnan(output), 0.0, distance))

    def _overflow_as_largest(self, got: Array, mid: Array, rad: Array) -> Array:
        """Return the output with each ±∞ replaced by the number at which the interval leaves the
        format's range. Where it does not leave the range, ±∞ stays.
        """
        largest = np.copysign((self.format or BINARY64).largest, got)
        outward = mid * np.sign(got) - np.abs(largest)
        leaves_range = np.isinf(got) & ((outward > 0) | (_side(largest, mid, rad) < 0))
        return np.where(leaves_range, np.where(outward > 0, mid, largest), got)

    def _output(self, out: Any) -> Array:
        output = arrays.float_array(out, "out", number=not self.mid.shape)
        if output.shape != self.mid.shape:
            raise ValueError(f"out has shape {output.shape}, but should be {self.mid.shape}.")
        return output


def assert_within(out: Any, enclosure: Enclosure, *, name: str = "out") -> None:
    """Assert that every element of an output lies within its enclosure, and that the enclosure is
    narrow enough to show a mistake.

    An element of infinite radius is always within it; `np.isinf(enclosure.rad)` shows these
    elements.

    Raises AssertionError for a wrong shape, and for elements outside: it names the worst one and
    counts all. Raises AssertionError also for an enclosure that is too wide to exclude zeros or was
    not tested for that. Raises TypeError for an output that is not a floating-point array.
    """
    if not isinstance(enclosure, Enclosure):
        raise TypeError(
            f"enclosure has type {type(enclosure).__name__}, but should be an oracles.Enclosure. "
            "Operations with several results return a tuple of them."
        )
    output = arrays.float_array(out, name, number=not enclosure.mid.shape)
    if output.shape != enclosure.mid.shape:
        raise AssertionError(f"{name}.shape={output.shape}, but should be {enclosure.mid.shape}.")
    excess = enclosure.excess(output)
    outside = int((excess > 1).sum())
    if outside:
        index = np.unravel_index(int(excess.argmax()), excess.shape)
        mid, rad, place = enclosure.mid[index], enclosure.rad[index], ", ".join(map(str, index))
        raise AssertionError(
            f"{name}{f'[{place}]' if place else ''}={output[index]}, but should be {mid} ± {rad:.3g} "
            f"(error / budget = {excess[index]:.4g}); {outside} of {excess.size} elements are outside."
        )
    if enclosure.vacuous:
        raise AssertionError(
            f"{name} is within a vacuous budget, which outputs that carry no information are within as well."
        )
    if not enclosure.judged:
        raise AssertionError(f"{name} is within a radius too wide to judge by; use method='arb', or a smaller case.")


def _plain(given: Any, name: str) -> Array:
    """Return the given array itself if it is a float64 array, else a copy of its values."""
    is_plain = type(given) is np.ndarray and given.dtype == np.float64 and given.size <= arrays.LARGEST
    return given if is_plain else arrays.float_array(given, name).copy()


def _side(got: Array, mid: Array, rad: Array) -> NDArray[np.int8]:
    """Return the sign of |got − mid| − rad over the reals: −1, 0 or 1.

    Fast2Sum does not overflow after its first step (Boldo, Graillat & Muller 2017).
    """
    difference = got - mid
    larger = np.where(np.abs(got) >= np.abs(mid), got, -mid)
    smaller = np.where(np.abs(got) >= np.abs(mid), -mid, got)
    error = np.copysign(1.0, difference) * (smaller - (difference - larger))
    distance = np.abs(difference)
    at_the_radius = np.where(distance == rad, np.sign(error), 1.0)
    return np.where(distance < rad, -1.0, at_the_radius).astype(np.int8)
