"""Rotary position embeddings: every lane times a cosine, plus its partner times a sine.

A pair of lanes (first, second) turns into

    first·cos₁ − second·sin₁,  second·cos₂ + first·sin₂         and back by the transpose
    first·cos₁ + second·sin₂,  second·cos₂ − first·sin₁

with one angle for both lanes in `rope`, and a table entry for each in `apply_rotary`.  `conventions.rope_pairing` says
which lanes are pairs, `conventions.odd_lane` what becomes of the last lane of an odd dim.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from oracles import arb_positional, arrays, formats
from oracles.angle import blocks
from oracles.ball import ROUNDOFF, UNDERFLOW, Array, Ball, ball, exact, gamma
from oracles.conventions import Conventions, odd_is_refused
from oracles.conventions import resolve as resolve_conventions
from oracles.enclosure import Enclosure
from oracles.formats import Arithmetic
from oracles.judging import AFFORDABLE, Balls, Evaluation, Method, require_method, settle
from oracles.positional import ARB_WORK, stored
from oracles.rotary_angles import angles, counted, integers, placed

Given = Arithmetic | str | None
Tables = Callable[[slice], tuple[Ball, Ball]]


def rope(
    x: Any,
    start_pos: Any = 0,
    *,
    positions: Any = None,
    inv_freq: Any = None,
    attention_factor: Any = 1.0,
    rotary_dim: Any = None,
    sections: Any = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """x with the pair i of each row rotated by the angle position × frequency, times the attention factor, enclosed.

    Row p of the last axis but one is at start_pos + p, or at `positions`: an array of integers, negative ones too, that broadcast to x's
    axes but the last.  Pair i has the frequency scale·base^(−2i/r), by `conventions.rope_base` and `rope_scale`, or inv_freq[i]: an
    array's numbers are exact, and an enclosure's radius counts.  A budget for a kernel that computes its frequencies takes those of
    `rotary_frequencies` for the same arithmetic.  The attention factor is a number or an enclosure likewise.

    rotary_dim is r, head_dim where it is left out: the first r channels rotate, pairs lie inside them, the others pass.  With
    sections = (t, h, w) positions have an axis of three in front, time, height and width, and so many pairs rotate by each, by
    `conventions.mrope`.

    Shapes: x is (…, seq, head_dim), and so is the result; inv_freq (r/2,).  Positions count from 0, to 2⁵³; certificates are narrow to 2³¹
    in float64, and beyond by ball arithmetic.
    Edge cases: position 0 multiplies by the attention factor, to rounding; the last channel of an odd head_dim is multiplied by
    cos θ + sin θ (`conventions.odd_lane`), with the angle of the pair that it would begin, and an odd one is refused with inv_freq,
    rotary_dim, sections or an attention factor; a NaN or ±∞ reaches its own pair; axes of size 0 are legal.
    Raises TypeError and ValueError for what is not such an array, for positions out of bounds, and for both start_pos and positions.
    """
    by = {
        "positions": positions,
        "inv_freq": inv_freq,
        "attention_factor": attention_factor,
        "rotary_dim": rotary_dim,
        "sections": sections,
    }
    return _rope(x, x, False, start_pos, by, arithmetic, conventions, method)


def rope_vjp(
    x: Any,
    grad_out: Any,
    start_pos: Any = 0,
    *,
    positions: Any = None,
    inv_freq: Any = None,
    attention_factor: Any = 1.0,
    rotary_dim: Any = None,
    sections: Any = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """The gradient of Σ grad_out ⊙ rope(x): each pair of grad_out rotated back, times the attention factor; the values of x don't matter.

    Shapes, edge cases and errors: as `rope`; grad_out has the shape of x.
    """
    by = {
        "positions": positions,
        "inv_freq": inv_freq,
        "attention_factor": attention_factor,
        "rotary_dim": rotary_dim,
        "sections": sections,
    }
    return _rope(x, grad_out, True, start_pos, by, arithmetic, conventions, method)


def apply_rotary(
    x: Any,
    cos: Any,
    sin: Any,
    *,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """x ⊙ cos + rotated(x) ⊙ sin, where rotated(x) is (−second, first) on each pair: tables need not be rotations.

    Shapes: x is (…, seq, head_dim), the tables are (seq, head_dim), the result is like x.
    Edge cases: the last lane of an odd head_dim is multiplied by cos + sin (`literal`) or left as it is
    (`passthrough`); a NaN or ±∞ of x reaches its own pair, one of a table its own lane; axes of size 0 are legal.
    Under an arithmetic the entries of the tables are numbers of `arithmetic.angle.table`.
    Raises TypeError and ValueError for what are not such arrays.
    """
    return _apply(x, cos, sin, x, False, arithmetic, conventions, method)


def apply_rotary_vjp(
    x: Any,
    cos: Any,
    sin: Any,
    grad_out: Any,
    *,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """The gradient of Σ grad_out ⊙ apply_rotary(x, cos, sin) with respect to x, whose values don't matter.

    Shapes, edge cases and errors: as `apply_rotary`; grad_out has the shape of x.
    """
    return _apply(x, cos, sin, grad_out, True, arithmetic, conventions, method)


def _rope(
    x: Any, turned: Any, back: bool, start: Any, by: dict[str, Any], given: Given, conventions: Conventions | None, method: Method
) -> Enclosure:
    rotation = _rotation(x, turned, back, given, conventions, method, lambda dim: _channels(dim, by))
    rows = rotation.x.shape[:-1]
    positions, sections, channels = by["positions"], by["sections"], rotation.channels
    if positions is None:
        place, farthest = counted(start, rows[-1], 1 if sections is None else 3)
    else:
        if arrays.natural(start, "start_pos"):
            raise ValueError(f"positions and start_pos={start} are given, but should not both be: add start_pos to the positions.")
        at, alike = placed(integers(positions), rows, sections)
        rotation = replace(rotation, alike=alike)
        place, farthest = (lambda rows: at[:, rows]), int(np.abs(at).max(initial=0))
    options = {name: by[name] for name in ("inv_freq", "attention_factor", "sections")}
    pairs = -(-channels // 2) if rotation.x.size else 0
    found = angles(place, farthest, pairs, channels, arithmetic=rotation.arithmetic, conventions=rotation.conventions, **options)
    of_table = Lanes(slice(0, channels // 2), slice(0, channels // 2), slice(channels // 2, None))
    return rotation.enclosed(
        lambda rows: found.tables(rows, rotation.arithmetic),
        of_table,
        lambda: arb_positional.rope(rotation.rows, found.exactly, back, channels, found.most, conventions=rotation.conventions),
        found.inexact,
    )


def _channels(dim: int, by: dict[str, Any]) -> int:
    """How many channels rotate.  Raises ValueError for an odd number, where something is given that is about pairs."""
    name = "head_dim" if by["rotary_dim"] is None else "rotary_dim"
    channels = dim if by["rotary_dim"] is None else arrays.natural(by["rotary_dim"], "rotary_dim", most=dim)
    plain = by["rotary_dim"] is None and by["inv_freq"] is None and by["sections"] is None
    plain = plain and isinstance(by["attention_factor"], Real) and by["attention_factor"] == 1
    if channels % 2 and not plain:
        raise ValueError(f"{name}={channels}, but should be even: channels rotate in pairs.")
    return channels


def _apply(
    x: Any,
    cos: Any,
    sin: Any,
    turned: Any,
    back: bool,
    given: Given,
    conventions: Conventions | None,
    method: Method,
) -> Enclosure:
    rotation = _rotation(x, turned, back, given, conventions, method)
    cos, sin = (arrays.table_array(t, n, arithmetic=rotation.arithmetic) for t, n in ((cos, "cos"), (sin, "sin")))
    for table, name in ((cos, "cos"), (sin, "sin")):
        if table.shape != rotation.x.shape[-2:]:
            raise ValueError(f"{name} has shape {table.shape}, but should be {rotation.x.shape[-2:]}, as x ends.")
    return rotation.enclosed(
        lambda rows: (exact(cos[rows]), exact(sin[rows])),
        rotation.lanes,
        lambda: arb_positional.apply_rotary(rotation.x, cos, sin, back, conventions=rotation.conventions),
    )


class Lanes(NamedTuple):
    """The first and the second lanes of all pairs, and the lane that is left over in an odd dim."""

    first: slice
    second: slice
    last: slice


@dataclass(frozen=True)
class Factor:
    """A table as a factor of x: |x|·width covers the table's own radius and the roundings, |x|·reach the size."""

    mid: Array
    width: Array
    reach: Array

    def at(self, lanes: slice) -> "Factor":
        """Some of the lanes."""
        return Factor(self.mid[..., lanes], self.width[..., lanes], self.reach[..., lanes])


@dataclass(frozen=True)
class Rotation:
    """Validated arguments: the array that is turned, forward or back."""

    x: Array
    back: bool
    arithmetic: Arithmetic | None
    conventions: Conventions
    method: Method
    channels: int
    alike: bool = True

    @property
    def rows(self) -> Array:
        """x with one axis of batches, whose rows rotate alike."""
        *lead, length, dim = self.x.shape
        return self.x.reshape((prod(lead), length, dim) if self.alike else (1, prod(lead) * length, dim))

    @property
    def lanes(self) -> Lanes:
        """Which lanes of x are pairs."""
        half = self.channels // 2
        if self.conventions.rope_pairing == "half":
            return Lanes(slice(0, half), slice(half, 2 * half), slice(2 * half, self.channels))
        return Lanes(slice(0, 2 * half, 2), slice(1, 2 * half, 2), slice(2 * half, self.channels))

    def enclosed(self, tables: Tables, of_table: Lanes, arb: Callable[[], Balls], inexact: bool = False) -> Enclosure:
        """The enclosure by the method asked for; `of_table` says where the tables keep what belongs to x's lanes.

        Where inexact angles were given, ball arithmetic knows no more: it is not worth its while.
        """
        work = AFFORDABLE + 1 if inexact else ARB_WORK * self.x.size

        def exactly() -> Balls:
            return tuple(Ball(x.mid.reshape(self.x.shape), x.rad.reshape(self.x.shape)) for x in arb())

        return settle(Evaluation(self.arithmetic, self.method, lambda: (self._fast(tables, of_table),), exactly, work))[0]

    def _fast(self, tables: Tables, of_table: Lanes) -> Ball:
        batch = self.rows
        mid, rad = np.empty(batch.shape), np.empty(batch.shape)
        with np.errstate(all="ignore"):
            for rows in blocks(*batch.shape[-2:]):
                cos, sin = (_factor(table, self.arithmetic) for table in tables(rows))
                for x, mid_part, rad_part in zip(batch[:, rows], mid[:, rows], rad[:, rows], strict=True):
                    for lanes, result in self._turned(x, cos, sin, of_table):
                        mid_part[:, lanes], rad_part[:, lanes] = result.mid, result.rad
        return ball(mid.reshape(self.x.shape), rad.reshape(self.x.shape))

    def _turned(self, x: Array, cos: Factor, sin: Factor, of_table: Lanes) -> Iterator[tuple[slice, Ball]]:
        lanes, model = self.lanes, self.arithmetic
        a, b = x[:, lanes.first], x[:, lanes.second]
        cos_a, cos_b, sin_a, sin_b = (t.at(of) for t in (cos, sin) for of in of_table[:2])
        if self.back:
            yield lanes.first, _sum_of_products(a, cos_a, b, sin_b, np.add, model)
            yield lanes.second, _sum_of_products(b, cos_b, a, sin_a, np.subtract, model)
        else:
            yield lanes.first, _sum_of_products(a, cos_a, b, sin_a, np.subtract, model)
            yield lanes.second, _sum_of_products(b, cos_b, a, sin_b, np.add, model)
        if self.channels < x.shape[-1]:
            yield slice(self.channels, None), Ball(x[:, self.channels :], np.zeros((len(x), x.shape[-1] - self.channels)))
        if self.channels % 2:
            left = x[:, lanes.last]
            if self.conventions.odd_lane == "literal":
                last = of_table.last
                yield lanes.last, _sum_of_products(left, cos.at(last), left, sin.at(last), np.add, model)
            else:
                yield lanes.last, Ball(left, np.zeros(left.shape))


def _factor(table: Ball, arithmetic: Arithmetic | None) -> Factor:
    """The roundings of a·c ± b·s, two of them each side, move it by γ₂·(|a||c| + |b||s|) (Higham, (3.4)).

    They are counted for float64 and once more for the modelled kernel, which multiplies and adds in `elementwise`.  The
    smallest subnormal number is for tables so small that γ₂·|c| underflows.
    """
    reach = np.abs(table.mid) + table.rad
    roundings = gamma(2, ROUNDOFF) + (gamma(2, arithmetic.elementwise.unit_roundoff) if arithmetic else 0.0)
    return Factor(table.mid, table.rad + roundings * reach + 2.0**-1074 * (reach > 0), reach)


def _sum_of_products(a: Array, c: Factor, b: Array, s: Factor, combine: Callable[..., Array], arithmetic: Arithmetic | None) -> Ball:
    """a·c ± b·s, with three numbers that may underflow in the kernel, and ∞ where one of them may overflow.

    A kernel that flushes to zero may take each of a, b, c and s for 0 where it is below the smallest normal number.
    `UNDERFLOW` covers the underflows of the products here and of the radius itself; only zeros have none.
    """
    size_a, size_b = np.abs(a), np.abs(b)
    mid = combine(a * c.mid, b * s.mid)
    rad, live = size_a * c.width + size_b * s.width, np.maximum(size_a, size_b) > 0
    if arithmetic is None:
        return Ball(mid, (rad + UNDERFLOW * live) * (1 + 2.0**-48))
    target = arithmetic.elementwise
    step = target.smallest_normal if arithmetic.flush_to_zero else target.smallest_subnormal
    if arithmetic.flush_to_zero:
        rad = rad + 2 * step * np.where(live, c.reach + s.reach + size_a + size_b, 0.0)
    rad = (rad + (3 * step + UNDERFLOW) * live) * (1 + 2.0**-48)
    rad = np.where(size_a * c.reach + size_b * s.reach + rad > target.largest, np.inf, rad)
    return stored(Ball(mid, rad), target, arithmetic)


def _rotation(
    x: Any,
    turned: Any,
    back: bool,
    given: Given,
    conventions: Conventions | None,
    method: Method,
    channels: Callable[[int], int] = lambda dim: dim,
) -> Rotation:
    """The arguments, validated; `channels` says how many of a head's channels rotate."""
    arithmetic, named = formats.resolve(given), resolve_conventions(conventions)
    require_method(method)
    x = arrays.float_array(x, "x", arithmetic=arithmetic)
    if x.ndim < 2:
        raise ValueError(f"x has shape {x.shape}, but should have at least two axes: (…, seq, head_dim).")
    rotating = channels(x.shape[-1])
    if odd := odd_is_refused(rotating, named):
        raise ValueError(f"x has head_dim {rotating}, but should have an even one: {odd}.")
    if back:
        shape, x = x.shape, arrays.float_array(turned, "grad_out", arithmetic=arithmetic)
        if x.shape != shape:
            raise ValueError(f"grad_out has shape {x.shape}, but should be {shape}, that of x.")
    return Rotation(x, back, arithmetic, named, method, rotating)
