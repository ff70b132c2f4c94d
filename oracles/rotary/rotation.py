"""Rotates pairs of channels by tables of cosines and sines, forward or back, with bounds of the
error in float64 and in a kernel.
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from oracles import arrays
from oracles.ball import ROUNDOFF, UNDERFLOW, Array, Ball, ball, gamma
from oracles.conventions import Conventions, odd_is_refused
from oracles.enclosure import Enclosure
from oracles.error_analysis.angle import blocks
from oracles.formats import Arithmetic
from oracles.judging import AFFORDABLE, Balls, Evaluation, Method, settle
from oracles.options import AnswerOptions, answer
from oracles.positional import ARB_WORK, copied, stored

Tables = Callable[[slice], tuple[Ball, Ball]]


class Lanes(NamedTuple):
    """The first channels of all pairs, the second channels of all pairs, and the channel that is
    left over in an odd head_dim.
    """

    first: slice
    second: slice
    last: slice


class Factor(NamedTuple):
    """A table of cosines or sines, as a factor of x. |x|·width bounds the error from the table's
    own radius and from roundings. |x|·reach bounds the size of the product.
    """

    mid: Array
    width: Array
    reach: Array

    def at(self, lanes: slice) -> "Factor":
        """Return the table of some of the channels."""
        return Factor(self.mid[..., lanes], self.width[..., lanes], self.reach[..., lanes])


class Rotation(NamedTuple):
    """The validated arguments of a rotation: the array x that is rotated, forward or back.

    A kernel may multiply x by a factor before or after it rotates it, instead of the tables. `gain`
    is the largest such factor; 1 if no kernel does. A kernel stores the factor and the product in
    the coarser of two formats: the format of tables and `elementwise`. With `alike`, all batches
    have the same angles.
    """

    x: Array
    back: bool
    arithmetic: Arithmetic | None
    conventions: Conventions
    method: Method
    channels: int
    alike: bool = True
    gain: float = 1.0

    def pulled_back(self, grad_out: Any) -> "Rotation":
        """Return the backward rotation of a cotangent of the result. Raises ValueError for a wrong
        shape, and the errors of `arrays.float_array`.
        """
        found = arrays.float_array(grad_out, "grad_out", arithmetic=self.arithmetic)
        if found.shape != self.x.shape:
            raise ValueError(f"grad_out has shape {found.shape}, but should be {self.x.shape}, that of x.")
        return self._replace(x=found, back=True)

    @property
    def rows(self) -> Array:
        """x with one axis of batches; all batches have the same angles."""
        *lead, length, dim = self.x.shape
        return self.x.reshape((prod(lead), length, dim) if self.alike else (1, prod(lead) * length, dim))

    @property
    def lanes(self) -> Lanes:
        """Which channels of x are pairs."""
        half = self.channels // 2
        if self.conventions.rope_pairing == "half":
            return Lanes(slice(0, half), slice(half, 2 * half), slice(2 * half, self.channels))
        return Lanes(slice(0, 2 * half, 2), slice(1, 2 * half, 2), slice(2 * half, self.channels))

    def enclosed(self, tables: Tables, of_table: Lanes, arb: Callable[[], Balls], inexact: bool = False) -> Enclosure:
        """Return the enclosure of the rotated array, by the requested method. `of_table` selects
        the channels of the tables that belong to x's channels.

        With inexact angles ball arithmetic gives no narrower result, so it is not tried.
        """
        work = AFFORDABLE + 1 if inexact else ARB_WORK * self.x.size

        def exactly() -> Balls:
            return tuple(Ball(x.mid.reshape(self.x.shape), x.rad.reshape(self.x.shape)) for x in arb())

        return settle(Evaluation(self.arithmetic, self.method, lambda: (self._fast(tables, of_table),), exactly, work))[
            0
        ]

    def _fast(self, tables: Tables, of_table: Lanes) -> Ball:
        batch = self.rows
        mid, rad = np.empty(batch.shape), np.empty(batch.shape)
        with np.errstate(all="ignore"):
            for rows in blocks(*batch.shape[-2:]):
                cos, sin = (_factor(table, self.arithmetic) for table in tables(rows))
                for x, mid_part, rad_part in zip(batch[:, rows], mid[:, rows], rad[:, rows], strict=True):
                    for lanes, result in self._turned(x, cos, sin, of_table):
                        mid_part[:, lanes], rad_part[:, lanes] = result.mid, result.rad
                    if self.arithmetic is not None and self.gain != 1:
                        self._lose(x, rad_part, self.arithmetic)
        return ball(mid.reshape(self.x.shape), rad.reshape(self.x.shape))

    def _lose(self, x: Array, rad: Array, model: Arithmetic) -> None:
        """Set the radius to ∞ for pairs that may overflow between the rotation and the product with
        the gain, whichever comes first.
        """
        lanes, largest = self.lanes, min(model.elementwise.largest, model.angle.table.largest)
        a, b = np.abs(x[:, lanes.first]), np.abs(x[:, lanes.second])
        lost = np.maximum(self.gain * np.maximum(a, b), _largest_cosine(model) * (a + b)) > largest
        for channels in lanes[:2]:
            rad[:, channels][lost] = np.inf

    def _turned(self, x: Array, cos: Factor, sin: Factor, of_table: Lanes) -> Iterator[tuple[slice, Ball]]:
        lanes, model = self.lanes, self.arithmetic
        a, b = x[:, lanes.first], x[:, lanes.second]
        cos_a, cos_b, sin_a, sin_b = (t.at(of) for t in (cos, sin) for of in of_table[:2])
        if self.back:
            yield lanes.first, self._sum_of_products((a, cos_a), (b, sin_b), np.add)
            yield lanes.second, self._sum_of_products((b, cos_b), (a, sin_a), np.subtract)
        else:
            yield lanes.first, self._sum_of_products((a, cos_a), (b, sin_a), np.subtract)
            yield lanes.second, self._sum_of_products((b, cos_b), (a, sin_b), np.add)
        if self.channels < x.shape[-1]:
            yield slice(self.channels, None), _passed(x[:, self.channels :], model)
        if self.channels % 2:
            left = x[:, lanes.last]
            if self.conventions.odd_lane == "literal":
                last = of_table.last
                yield lanes.last, self._sum_of_products((left, cos.at(last)), (left, sin.at(last)), np.add)
            else:
                yield lanes.last, _passed(left, model)

    def _sum_of_products(
        self, first: tuple[Array, Factor], second: tuple[Array, Factor], combine: Callable[..., Array]
    ) -> Ball:
        """a·c ± b·s for the pairs (a, c) and (b, s), with three numbers that may underflow in the
        kernel, and ∞ where one of them may overflow.

        A kernel that flushes to zero may take each of a, b, c and s for 0 where it is below the
        smallest normal number. `UNDERFLOW` covers the underflows of the products here and of the
        radius itself; only zeros have none.

        Where a kernel multiplies by a gain after it has rotated, it multiplies what has underflowed
        until then.  The sum may also underflow where it is stored, and so may its product with the
        gain; or a and b may underflow where they are multiplied before, which counts cos and sin
        times.  So these are two numbers more, of the format whose steps are larger, times the gain
        or the largest cosine.
        """
        (a, c), (b, s), arithmetic, gain = first, second, self.arithmetic, self.gain
        size_a, size_b = np.abs(a), np.abs(b)
        mid = combine(a * c.mid, b * s.mid)
        rad, live = size_a * c.width + size_b * s.width, np.maximum(size_a, size_b) > 0
        if arithmetic is None:
            return Ball(mid, (rad + UNDERFLOW * live) * (1 + 2.0**-48))
        target, table = arithmetic.elementwise, arithmetic.angle.table
        step, coarsest = (
            max(f.smallest_normal if arithmetic.flush_to_zero else f.smallest_subnormal for f in held)
            for held in ([target], [target, table])
        )
        if arithmetic.flush_to_zero:
            rad = rad + 2 * step * np.where(live, c.reach + s.reach + (size_a + size_b) * max(gain, 1.0), 0.0)
        lost = 3 * step if gain == 1 else (3 * step + 2 * coarsest) * max(gain, _largest_cosine(arithmetic))
        rad = (rad + (lost + UNDERFLOW) * live) * (1 + 2.0**-48)
        rad = np.where(size_a * c.reach + size_b * s.reach + rad > target.largest, np.inf, rad)
        return stored(Ball(mid, rad), target, arithmetic)


def _passed(x: Array, arithmetic: Arithmetic | None) -> Ball:
    """Return the ball of channels that do not rotate."""
    value = Ball(x, np.zeros(x.shape))
    return value if arithmetic is None else copied(value, arithmetic)


def _largest_cosine(arithmetic: Arithmetic) -> float:
    """Return the largest size of a computed sine or cosine, with a margin for the rounding of a
    number that it multiplies.
    """
    return 1 + arithmetic.trig_absolute + 2.0**-6


def _factor(table: Ball, arithmetic: Arithmetic | None) -> Factor:
    """Return a table as a factor of x, with its error. In a·c ± b·s each product takes two
    roundings, its own and the sum's. They move the result by γ₂·(|a||c| + |b||s|) (Higham, (3.4)).

    These roundings are counted for float64, and once more for the modelled kernel, which multiplies
    and adds in `elementwise`.  The smallest subnormal number covers tables so small that γ₂·|c|
    underflows.
    """
    reach = np.abs(table.mid) + table.rad
    roundings = gamma(2, ROUNDOFF) + (gamma(2, arithmetic.elementwise.unit_roundoff) if arithmetic else 0.0)
    return Factor(table.mid, table.rad + roundings * reach + 2.0**-1074 * (reach > 0), reach)


def checked(x: Any, options: AnswerOptions, channels: Callable[[int], int] = lambda dim: dim) -> Rotation:
    """Validate the rotation of x, and return it. `channels` maps head_dim to the number of channels
    that rotate.
    """
    arithmetic, conventions, method = answer(options)
    x = arrays.float_array(x, "x", arithmetic=arithmetic)
    if x.ndim < 2:
        raise ValueError(f"x has shape {x.shape}, but should have at least two axes: (…, seq, head_dim).")
    rotating = channels(x.shape[-1])
    if odd := odd_is_refused(rotating, conventions):
        raise ValueError(f"x has head_dim {rotating}, but should have an even one: {odd}.")
    return Rotation(x, False, arithmetic, conventions, method, rotating)
