"""The angles of a rotary encoding: position × frequency for each row and pair, their cosines and
sines, and the attention factor.

Frequencies come from the conventions, or the caller gives them. The numbers of a given array are
exact. The radius of a given enclosure moves an angle by |p| times that radius.  A kernel may not
use the midpoint. Given an array or a certified value, it rounds the numbers to the roundoff
`angle.frequency`. Given a budget, it has other numbers within the budget.

The attention factor multiplies cosines and sines, or the array that they rotate.  That costs two
roundings, of the factor and of the product, in the coarser of two formats: the format of the tables
and `elementwise`. A factor of exactly 1 costs no rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np
from flint import arb
from numpy.typing import NDArray

from oracles import arrays
from oracles.arb_matrix import MOST_PRECISION, PRECISION
from oracles.arguments import FARTHEST, checked_scale
from oracles.ball import Ball, exact, gamma, multiply, rounded
from oracles.enclosure import Enclosure
from oracles.error_analysis.angle import (
    Frequencies,
    balls,
    cos_sin,
    frequencies,
    given_frequencies,
    is_rounded,
    pair_exponents,
    powers,
    start_position,
)
from oracles.formats import Arithmetic
from oracles.options import Answer

Place = Callable[[slice], NDArray[np.int64]]


@dataclass(frozen=True)
class Angles:
    """The angles by which rows rotate.

    place    the positions of some rows along each axis, (axes, rows)
    axes     the axis by which each pair rotates; None if all pairs rotate by one axis
    chosen   the frequencies, split for positions up to the farthest
    turning  the frequencies at the working precision
    factor   the attention factor, (1,)
    inexact  whether the caller gave a radius, which no precision makes smaller
    """

    place: Place
    axes: NDArray[np.int64] | None
    chosen: Frequencies
    turning: Callable[[], list[arb]]
    factor: Ball
    inexact: bool

    @property
    def most(self) -> int:
        """The precision in bits above which more bits do not help."""
        return 2 * PRECISION if self.inexact else MOST_PRECISION

    def tables(self, rows: slice, arithmetic: Arithmetic | None) -> tuple[Ball, Ball]:
        """Return cosines and sines of some rows, (rows, pairs), times the attention factor. They
        are exact values, or values of a modelled kernel if an arithmetic is given.
        """
        positions = self.place(rows)
        positions = positions[:1].T if self.axes is None or not self.axes.size else positions[self.axes].T
        cos, sin = cos_sin(np.abs(positions).astype(np.float64), self.chosen, arithmetic)
        if positions.min(initial=0) < 0:
            sin = Ball(np.where(positions < 0, -sin.mid, sin.mid), sin.rad)
        return self._scaled(cos, arithmetic), self._scaled(sin, arithmetic)

    def _scaled(self, table: Ball, arithmetic: Arithmetic | None) -> Ball:
        """Return a table times the attention factor. The whole table is unknown if a kernel may
        hold the factor as ∞, because 0·∞ is NaN.
        """
        if self.factor.mid[0] == 1 and self.factor.rad[0] == 0:
            return table
        product = multiply(table, self.factor)
        if arithmetic is None:
            return product
        coarser = max(arithmetic.angle.table, arithmetic.elementwise, key=lambda target: target.unit_roundoff)
        scaled = rounded(product, coarser, times=2, flush=arithmetic.flush_to_zero)
        representable = abs(self.factor.mid[0]) + self.factor.rad[0] <= min(
            arithmetic.angle.table.largest, arithmetic.elementwise.largest
        )
        return scaled if representable else Ball(scaled.mid, np.full(scaled.rad.shape, np.inf))

    def exactly(self, length: int) -> list[tuple[list[arb], list[arb]]]:
        """Return cosines and sines of each row, at the working precision."""
        turning, (factor,) = self.turning(), balls(self.factor)
        axis_of_pair = [0] * len(turning) if self.axes is None else self.axes.tolist()
        results = []
        for position in self.place(slice(0, length)).T.tolist():
            sines_and_cosines = [(f * position[axis]).sin_cos() for f, axis in zip(turning, axis_of_pair, strict=True)]
            results.append(
                ([cos * factor for _, cos in sines_and_cosines], [sin * factor for sin, _ in sines_and_cosines])
            )
        return results


class RotatedBy(NamedTuple):
    """The frequencies, the attention factor and the sections that the caller gave. `inv_freq` is
    None for the default frequencies.
    """

    inv_freq: Any
    attention_factor: Any
    sections: Any


def angles(place: Place, farthest: int, pairs: int, channels: int, asked: Answer, by: RotatedBy) -> Angles:
    """Return the angles of the first `pairs` pairs of the rotated channels, at positions up to the
    farthest.

    Raises ValueError and TypeError for frequencies, a factor and sections that do not fit.
    """
    arithmetic, conventions, _ = asked
    axes = None
    if by.sections is not None:
        axes = np.array(_axes(channels // 2, by.sections, conventions.mrope)[:pairs], dtype=np.int64)
    factor = _factor(by.attention_factor)
    if by.inv_freq is None:
        exponents = pair_exponents(channels)[:pairs]
        base, scale = conventions.rope_base, conventions.rope_scale
        pair_frequencies = frequencies(exponents, base, farthest + 1, scale)
        return Angles(
            place, axes, pair_frequencies, lambda: powers(exponents, base, scale), factor, bool(factor.rad.any())
        )
    given_balls = _given(by.inv_freq, channels)[:pairs]
    relative_errors = np.zeros(pairs)
    if arithmetic is not None and not (isinstance(by.inv_freq, Enclosure) and by.inv_freq.format is not None):
        u = arithmetic.angle.frequency
        relative_errors = np.where((given_balls.rad > 0) | is_rounded(given_balls.mid, u), gamma(1, u), 0.0)
    if arithmetic is not None and arithmetic.angle.divisors:  # the period and its reciprocal are rounded
        is_exact = (given_balls.rad == 0) & (np.abs(np.frexp(given_balls.mid)[0]) == 0.5)
        relative_errors = np.where(is_exact, 0.0, gamma(2, arithmetic.angle.frequency))
    pair_frequencies = given_frequencies(given_balls, farthest + 1, relative_errors)
    return Angles(
        place,
        axes,
        pair_frequencies,
        lambda: balls(given_balls),
        factor,
        bool(given_balls.rad.any() or factor.rad.any()),
    )


def counted(start: Any, length: int, axes: int) -> tuple[Place, int]:
    """Return a function for positions that count from a first one, the same along each axis, and
    the last of these positions.
    """
    first = start_position(start, length)

    def place(rows: slice) -> NDArray[np.int64]:
        return np.broadcast_to(np.arange(first + rows.start, first + rows.stop), (axes, rows.stop - rows.start))

    return place, max(first + length - 1, 0)


def integers(positions: Any) -> NDArray[np.int64]:
    """Return the positions as int64. Raises TypeError unless they are integers, and ValueError for
    a position beyond ±2⁵³.
    """
    position_array = arrays.as_numpy(positions, "positions")
    if position_array.dtype.kind not in "iu":
        raise TypeError(f"positions have element type {position_array.dtype}, but should be integers.")
    wrong = (position_array > FARTHEST) | (position_array < -FARTHEST)
    if wrong.any():
        index = np.unravel_index(int(wrong.argmax()), position_array.shape)
        raise ValueError(
            f"positions[{', '.join(map(str, index))}]={position_array[index]}, but should be within ±2**53."
        )
    return position_array.astype(np.int64)


def placed(given: NDArray[np.int64], rows: tuple[int, ...], sections: Any) -> tuple[NDArray[np.int64], bool]:
    """Return positions over the rows of an array, (axes, rows). Also return whether these are only
    the rows of the last axis, because all batches have the same positions.

    Raises ValueError for a shape that does not broadcast to the rows.
    """
    by_axis = given[np.newaxis] if sections is None else given
    if sections is not None and given.shape[:1] != (section_count(sections),):
        raise ValueError(
            f"positions have shape {given.shape}, but should have an axis of {len(sections)} in front, "
            "one entry for each section."
        )
    shape = (1,) * (len(rows) - by_axis.ndim + 1) + by_axis.shape[1:]
    if len(shape) != len(rows) or any(size not in (1, expected) for size, expected in zip(shape, rows, strict=True)):
        raise ValueError(f"positions have shape {by_axis.shape[1:]}, but should broadcast to {rows}.")
    same_in_batch = all(n == 1 for n in shape[:-1])
    row_shape = rows[-1:] if same_in_batch else rows
    spread = np.broadcast_to(by_axis.reshape(len(by_axis), *shape[-len(row_shape) :]), (len(by_axis), *row_shape))
    return spread.reshape(len(by_axis), prod(row_shape)), same_in_batch


def pairs_of(inv_freq: Any) -> int:
    """Return the number of given frequencies. Raises TypeError and ValueError unless they are an
    array with one axis, or an enclosure of one.
    """
    values = inv_freq.mid if isinstance(inv_freq, Enclosure) else arrays.float_array(inv_freq, "inv_freq")
    if values.ndim != 1:
        raise ValueError(f"inv_freq has shape {values.shape}, but should be (pairs,).")
    return len(values)


def section_count(sections: Any) -> int:
    """Return the number of axes of positions. Raises TypeError and ValueError for sections of another
    type or length.
    """
    if not isinstance(sections, list | tuple):
        raise TypeError(
            f"sections have type {type(sections).__name__}, but should be a tuple of pairs of time, height and width."
        )
    if len(sections) not in (2, 3):
        raise ValueError(
            f"sections have {len(sections)} numbers, but should have three (time, height and width) or two (height "
            "and width)."
        )
    return len(sections)


def _axes(pairs: int, sections: Any, layout: str) -> list[int]:
    """Return the axis by which each pair rotates: 0 for time, 1 for height, 2 for width. `sections`
    are the numbers of pairs (t, h, w). Axial positions have two sections (h, w): 0 for height, 1 for
    width.

    In the layout `sectioned` the first t pairs are time, the next h height, the last w width. In
    the layout `interleaved` pair i is height where i mod 3 = 1 and i < 3h, width where i mod 3 = 2
    and i < 3w, and time elsewhere; with two sections width where i mod 2 = 1 and i < 2w. Where a
    section has more pairs than such places, the first axis has the others.
    """
    count, numbers = (
        section_count(sections),
        [arrays.natural(n, f"sections[{axis}]") for axis, n in enumerate(sections)],
    )
    if sum(numbers) != pairs:
        raise ValueError(f"sections={sections} have {sum(numbers)} pairs, but should have {pairs}.")
    if layout == "sectioned":
        return [axis for axis, n in enumerate(numbers) for _ in range(n)]
    return [i % count if i % count and i < count * numbers[i % count] else 0 for i in range(pairs)]


def _given(inv_freq: Any, channels: int) -> Ball:
    """Return the caller's frequencies as balls.  Raises ValueError unless each pair has one finite
    frequency.
    """
    enclosed = isinstance(inv_freq, Enclosure)
    result = Ball(inv_freq.mid, inv_freq.rad) if enclosed else exact(arrays.float_array(inv_freq, "inv_freq"))
    if result.mid.shape != (channels // 2,):
        raise ValueError(
            f"inv_freq has shape {result.mid.shape}, but should be ({channels // 2},): "
            f"one for each pair of {channels} channels."
        )
    if not (np.isfinite(result.mid) & np.isfinite(result.rad)).all():
        raise ValueError("inv_freq is not finite everywhere, but should be.")
    return result


def _factor(attention_factor: Any) -> Ball:
    """Return the attention factor as a ball.  Raises TypeError and ValueError unless it is a finite
    number, or an enclosure of one.
    """
    if not isinstance(attention_factor, Enclosure):
        number = checked_scale(attention_factor, "attention_factor")
        if number is None:
            raise TypeError("attention_factor is None, but should be a real number, or an oracles.Enclosure of one.")
        return exact(np.array([number]))
    mid, rad = attention_factor.mid, attention_factor.rad
    if mid.shape != () or not (isfinite(mid) and isfinite(rad)):
        raise ValueError(
            f"attention_factor is an enclosure of shape {mid.shape}, but should be of one finite number, shape ()."
        )
    return Ball(mid.reshape(1), rad.reshape(1))
