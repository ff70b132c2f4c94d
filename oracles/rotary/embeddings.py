"""Rotary position embeddings: every channel times a cosine, plus its partner times a sine.

A pair of channels (first, second) becomes

    first·cos₁ − second·sin₁,  second·cos₂ + first·sin₂         and back by the transpose
    first·cos₁ + second·sin₂,  second·cos₂ − first·sin₁

with one angle for both channels in `rope`, and a table entry for each in `apply_rotary`.
`conventions.rope_pairing` says which channels are pairs, `conventions.odd_lane` what becomes of the
last channel of an odd dim.
"""

from numbers import Real
from typing import Any, Unpack

import numpy as np

from oracles import arrays
from oracles.ball import exact
from oracles.enclosure import Enclosure
from oracles.exact import positional as arb_positional
from oracles.judging import Balls
from oracles.options import AnswerOptions, RotationOptions, answer, takes
from oracles.rotary.angles import Place, RotatedBy, angles, counted, integers, placed
from oracles.rotary.rotation import Lanes, Rotation, checked


@takes(RotationOptions)
def rope(
    x: Any,
    start_pos: Any = 0,
    **options: Unpack[RotationOptions],
) -> Enclosure:
    """x with the pair i of each row rotated by the angle position × frequency, times the attention
    factor; the result is an `Enclosure`.

    Row p of the last axis but one is at start_pos + p, or at `positions`: an array of integers,
    negative ones too, that broadcast to x's axes but the last. Pair i has the frequency
    scale·base^(−2i/r), by `conventions.rope_base` and `rope_scale`, or inv_freq[i]: an array's
    numbers are exact, and an enclosure's radius counts. For a kernel that computes its frequencies,
    give `rotary_frequencies` of the same arithmetic. The attention factor is also a number or an
    enclosure.

    rotary_dim is r, head_dim where it is left out: the first r channels rotate, and the pairs lie
    inside them; the other channels do not change. With sections = (t, h, w) positions have an axis
    of three in front, time, height and width; t pairs rotate by time, h by height and w by width,
    in the layout `conventions.mrope`.

    Shapes: x is (…, seq, head_dim), and so is the result; inv_freq (r/2,). Positions count from 0,
    and are within ±2⁵³; certified values are narrow up to 2³¹ in float64, and beyond that in ball
    arithmetic.
    Edge cases: position 0 multiplies by the attention factor, to rounding; the last channel of an
    odd head_dim is multiplied by cos θ + sin θ (`conventions.odd_lane`), with the angle of the pair
    that it would begin, and an odd one is refused with inv_freq, rotary_dim, sections or an
    attention factor; a NaN or ±∞ reaches its own pair; axes of size 0 are legal. Raises TypeError
    and ValueError for what is not such an array, for positions out of bounds, and for both
    start_pos and positions.
    """
    return _rope(_checked(x, options), start_pos, options)


@takes(RotationOptions)
def rope_vjp(
    x: Any,
    grad_out: Any,
    start_pos: Any = 0,
    **options: Unpack[RotationOptions],
) -> Enclosure:
    """The gradient of Σ grad_out ⊙ rope(x): each pair of grad_out rotated back, times the attention
    factor; the values of x don't matter.

    Shapes, edge cases and errors: as `rope`; grad_out has the shape of x.
    """
    return _rope(_checked(x, options).pulled_back(grad_out), start_pos, options)


@takes(AnswerOptions)
def apply_rotary(
    x: Any,
    cos: Any,
    sin: Any,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """x ⊙ cos + rotated(x) ⊙ sin, where rotated(x) is (−second, first) on each pair: tables need
    not be rotations.

    Shapes: x is (…, seq, head_dim), the tables are (seq, head_dim), the result is like x. Edge
    cases: the last channel of an odd head_dim is multiplied by cos + sin (`literal`) or copied
    (`passthrough`); a NaN or ±∞ of x reaches its own pair, one of a table its own channel; axes of
    size 0 are legal. Under an arithmetic the entries of the tables are numbers of
    `arithmetic.angle.table`. Raises TypeError and ValueError for what are not such arrays.
    """
    return _apply(checked(x, options), cos, sin)


@takes(AnswerOptions)
def apply_rotary_vjp(
    x: Any,
    cos: Any,
    sin: Any,
    grad_out: Any,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """The gradient of Σ grad_out ⊙ apply_rotary(x, cos, sin) with respect to x, whose values don't
    matter.

    Shapes, edge cases and errors: as `apply_rotary`; grad_out has the shape of x.
    """
    return _apply(checked(x, options).pulled_back(grad_out), cos, sin)


def _checked(x: Any, options: RotationOptions) -> Rotation:
    return checked(x, options, lambda dim: _channels(dim, options))


def _rope(rotation: Rotation, start: Any, options: RotationOptions) -> Enclosure:
    """The rotation by the angles of positions."""
    place, farthest, alike = _placed(rotation.x.shape[:-1], start, options)
    channels = rotation.channels
    by = RotatedBy(options["inv_freq"], options["attention_factor"], options["sections"])
    pairs = -(-channels // 2) if rotation.x.size else 0
    found = angles(place, farthest, pairs, channels, answer(options), by)
    halves = Lanes(slice(0, channels // 2), slice(0, channels // 2), slice(channels // 2, None))
    rotation = rotation._replace(alike=alike, gain=_largest(options["attention_factor"]))

    def arb() -> Balls:
        rows, back, conventions = rotation.rows, rotation.back, rotation.conventions
        return arb_positional.rope(rows, found.exactly, back, channels, found.most, conventions=conventions)

    return rotation.enclosed(lambda rows: found.tables(rows, rotation.arithmetic), halves, arb, found.inexact)


def _placed(rows: tuple[int, ...], start: Any, options: RotationOptions) -> tuple[Place, int, bool]:
    """The positions of rows, the farthest of them, and whether they are the same in each batch."""
    positions, sections = options["positions"], options["sections"]
    if positions is None:
        place, farthest = counted(start, rows[-1], 1 if sections is None else 3)
        return place, farthest, True
    if arrays.natural(start, "start_pos"):
        raise ValueError(
            f"positions and start_pos={start} are given, but should not both be: add start_pos to the positions."
        )
    at, alike = placed(integers(positions), rows, sections)
    return (lambda chosen: at[:, chosen]), int(np.abs(at).max(initial=0)), alike


def _largest(factor: Any) -> float:
    """The largest size of an attention factor, before and after it is rounded."""
    known = not isinstance(factor, Enclosure) or not factor.rad.any()
    size = (
        float(np.max(np.abs(factor.mid) + factor.rad, initial=0.0))
        if isinstance(factor, Enclosure)
        else abs(float(factor))
    )
    return size if size == 1 and known else size * (1 + 2.0**-6)


def _channels(dim: int, options: RotationOptions) -> int:
    """How many channels rotate.  Raises ValueError for an odd number, where something is given that is about pairs."""
    given, factor = options["rotary_dim"], options["attention_factor"]
    name = "head_dim" if given is None else "rotary_dim"
    channels = dim if given is None else arrays.natural(given, "rotary_dim", most=dim)
    plain = given is None and options["inv_freq"] is None and options["sections"] is None
    plain = plain and isinstance(factor, Real) and factor == 1
    if channels % 2 and not plain:
        raise ValueError(f"{name}={channels}, but should be even: channels rotate in pairs.")
    return channels


def _apply(rotation: Rotation, cos: Any, sin: Any) -> Enclosure:
    """The rotation by given tables."""
    cos, sin = (arrays.table_array(t, n, arithmetic=rotation.arithmetic) for t, n in ((cos, "cos"), (sin, "sin")))
    for table, name in ((cos, "cos"), (sin, "sin")):
        if table.shape != rotation.x.shape[-2:]:
            raise ValueError(f"{name} has shape {table.shape}, but should be {rotation.x.shape[-2:]}, as x ends.")

    def arb() -> Balls:
        return arb_positional.apply_rotary(rotation.x, cos, sin, rotation.back, conventions=rotation.conventions)

    return rotation.enclosed(lambda rows: (exact(cos[rows]), exact(sin[rows])), rotation.lanes, arb)
