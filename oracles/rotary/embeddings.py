"""Rotary position embeddings: each channel is multiplied by a cosine, and its partner times a sine
is added.

A pair of channels (first, second) becomes

    first·cos₁ − second·sin₁,  second·cos₂ + first·sin₂     forward
    first·cos₁ + second·sin₂,  second·cos₂ − first·sin₁     back, by the transpose

In `rope` both channels of a pair have one angle; in `apply_rotary` each has its own table entry.
`conventions.rope_pairing` says which channels are pairs. `conventions.odd_lane` says what happens
to the last channel of an odd head_dim.
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
from oracles.rotary.angles import Place, RotatedBy, angles, counted, integers, placed, section_count
from oracles.rotary.rotation import Lanes, Rotation, checked


@takes(RotationOptions)
def rope(
    x: Any,
    start_pos: Any = 0,
    **options: Unpack[RotationOptions],
) -> Enclosure:
    """Return x with pair i of each row rotated by the angle position × frequency, times the
    attention factor. The result is an `Enclosure` (value ± radius).

    Row p of the next-to-last axis is at position start_pos + p, or at `positions`. These are
    integers, possibly negative, in an array that broadcasts to the axes of x without the last one.

    Pair i has the frequency inv_freq[i] if inv_freq is given. An array's numbers are exact, and an
    enclosure's radius counts. Otherwise the frequency is rope_scale·rope_base^(−2i/r), from
    `conventions`. For a kernel that computes its frequencies, give `rotary_frequencies` of the same
    arithmetic. The attention factor is also a number or an enclosure.

    rotary_dim is r, head_dim by default. The first r channels rotate, and all pairs lie inside
    them; the other channels do not change. With sections = (t, h, w), positions have a first axis
    of three: time, height and width. Then t pairs rotate by time, h by height and w by width, in
    the layout `conventions.mrope`.

    Shapes: x is (…, seq, head_dim), and so is the result; inv_freq (r/2,). Positions count from 0,
    and are within ±2⁵³. Certified values in float64 are narrow up to position 2³¹; beyond that ball
    arithmetic makes them narrow.
    Edge cases: position 0 multiplies by the attention factor, up to rounding. The last channel of
    an odd head_dim has the angle of the pair that it would begin, and is multiplied by cos θ + sin
    θ (`conventions.odd_lane` can change that). An odd number of rotating channels is refused
    together with inv_freq, rotary_dim, sections or an attention factor. A NaN or ±∞ spoils only its
    own pair. Axes of size 0 are legal.
    Raises TypeError and ValueError for an x of another type or shape, for positions out of bounds,
    and if both start_pos and positions are given.
    """
    return _rope(_checked(x, options), start_pos, options)


@takes(RotationOptions)
def rope_vjp(
    x: Any,
    grad_out: Any,
    start_pos: Any = 0,
    **options: Unpack[RotationOptions],
) -> Enclosure:
    """Return the gradient of Σ grad_out ⊙ rope(x) with respect to x. The gradient is grad_out with
    each pair rotated back, times the attention factor. The values of x do not matter. The result is
    an `Enclosure` (value ± radius).

    Shapes, edge cases and errors are as in `rope`; grad_out has the shape of x.
    """
    return _rope(_checked(x, options).pulled_back(grad_out), start_pos, options)


@takes(AnswerOptions)
def apply_rotary(
    x: Any,
    cos: Any,
    sin: Any,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return x ⊙ cos + rotated(x) ⊙ sin, where rotated(x) is (−second, first) on each pair. The
    tables cos and sin need not be rotations. The result is an `Enclosure` (value ± radius).

    Shapes: x is (…, seq, head_dim), the tables are (seq, head_dim), the result is like x.
    Edge cases: the last channel of an odd head_dim is multiplied by cos + sin (`literal`) or copied
    (`passthrough`). A NaN or ±∞ of x spoils its own pair, one of a table its own channel. Axes of
    size 0 are legal.
    Under an arithmetic the entries of the tables must be numbers of `arithmetic.angle.table`.
    Raises TypeError and ValueError for arrays of other types or shapes.
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
    """Return the gradient of Σ grad_out ⊙ apply_rotary(x, cos, sin) with respect to x. The values
    of x do not matter. The result is an `Enclosure` (value ± radius).

    Shapes, edge cases and errors are as in `apply_rotary`; grad_out has the shape of x.
    """
    return _apply(checked(x, options).pulled_back(grad_out), cos, sin)


def _checked(x: Any, options: RotationOptions) -> Rotation:
    return checked(x, options, lambda dim: _channels(dim, options))


def _rope(rotation: Rotation, start: Any, options: RotationOptions) -> Enclosure:
    """Return the rotation by the angles of positions."""
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
    """Return the positions of rows, the farthest of them, and whether they are the same in each
    batch.
    """
    positions, sections = options["positions"], options["sections"]
    if positions is None:
        place, farthest = counted(start, rows[-1], 1 if sections is None else section_count(sections))
        return place, farthest, True
    if arrays.natural(start, "start_pos"):
        raise ValueError(
            f"positions and start_pos={start} are given, but should not both be: add start_pos to the positions."
        )
    checked_positions, same_in_batch = placed(integers(positions), rows, sections)
    return (lambda chosen: checked_positions[:, chosen]), int(np.abs(checked_positions).max(initial=0)), same_in_batch


def _largest(factor: Any) -> float:
    """Return the largest size of an attention factor, before and after a kernel rounds it."""
    is_exact = not isinstance(factor, Enclosure) or not factor.rad.any()
    magnitude = (
        float(np.max(np.abs(factor.mid) + factor.rad, initial=0.0))
        if isinstance(factor, Enclosure)
        else abs(float(factor))
    )
    return magnitude if magnitude == 1 and is_exact else magnitude * (1 + 2.0**-6)


def _channels(dim: int, options: RotationOptions) -> int:
    """Return how many channels rotate.  Raises ValueError for an odd number together with an option
    that concerns pairs.
    """
    rotary_dim, factor = options["rotary_dim"], options["attention_factor"]
    name = "head_dim" if rotary_dim is None else "rotary_dim"
    channels = dim if rotary_dim is None else arrays.natural(rotary_dim, "rotary_dim", most=dim)
    is_default = rotary_dim is None and options["inv_freq"] is None and options["sections"] is None
    is_default = is_default and isinstance(factor, Real) and factor == 1
    if channels % 2 and not is_default:
        raise ValueError(f"{name}={channels}, but should be even: channels rotate in pairs.")
    return channels


def _apply(rotation: Rotation, cos: Any, sin: Any) -> Enclosure:
    """Return the rotation by the given tables."""
    cos, sin = (arrays.table_array(t, n, arithmetic=rotation.arithmetic) for t, n in ((cos, "cos"), (sin, "sin")))
    for table, name in ((cos, "cos"), (sin, "sin")):
        if table.shape != rotation.x.shape[-2:]:
            raise ValueError(f"{name} has shape {table.shape}, but should be {rotation.x.shape[-2:]}, as x ends.")

    def arb() -> Balls:
        return arb_positional.apply_rotary(rotation.x, cos, sin, rotation.back, conventions=rotation.conventions)

    return rotation.enclosed(lambda rows: (exact(cos[rows]), exact(sin[rows])), rotation.lanes, arb)
