"""The frequencies, the angles, and the tables of cosines and sines of rotary embeddings. Each
returned value comes with a radius: the exact value lies in value ± radius.

The frequency of pair i is scale·base^(−2i/head_dim), in radians per position, with
`conventions.rope_base` and `conventions.rope_scale`. There are ⌈head_dim/2⌉ frequencies. If
head_dim is odd, the last one belongs to a channel without a partner.

Complex code takes adjacent channels as real and imaginary part, and multiplies by z = exp(iθ), one
z for each pair.  For such code, with conventions of the `adjacent` pairing,

    np.repeat(z.real, 2, axis=-1) and np.repeat(z.imag, 2, axis=-1)    should be within `rope_tables`
    the real view of the product, (…, seq, head_dim)                   should be within `rope`

The budget of `rope` covers a complex product of four real products, and not one of three.
"""

from collections.abc import Iterable
from typing import Any, Unpack

import numpy as np

from oracles import arrays
from oracles.ball import Array, Ball, exact, multiply, rounded
from oracles.conventions import Conventions, odd_is_refused
from oracles.enclosure import Enclosure
from oracles.error_analysis.angle import (
    blocks,
    cos_sin,
    frequencies,
    moved_angle,
    moved_frequency,
    pair_exponents,
    start_position,
)
from oracles.exact import positional as arb_positional
from oracles.formats import Arithmetic
from oracles.judging import AFFORDABLE, Balls, Evaluation, settle, zeros_are_accepted
from oracles.options import AnswerOptions, answer, takes
from oracles.positional import ARB_WORK, LARGEST_TABLE, WIDEST
from oracles.rotary.angles import RotatedBy, angles, integers, pairs_of, placed


@takes(AnswerOptions)
def inv_freq(
    head_dim: Any,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return scale·base^(−2i/head_dim) for every pair i. This is the angle between two neighbouring
    positions. The result is an `Enclosure` (value ± radius).

    base and scale are `conventions.rope_base` and `rope_scale`. A modelled kernel computes the
    frequencies in the precision `angle.frequency` and returns them in the output's format.

    Shapes: (⌈head_dim/2⌉,).
    Edge cases: pair 0 has the scale itself. Base 1 gives every pair the scale. head_dim may be 0.
    It may be odd where `conventions.odd_lane` and `rope_pairing` allow it. The radius is ∞ where
    the base or the scale is beyond the range of the arithmetic.
    Raises TypeError and ValueError for a head_dim that is odd and refused, or not a natural number
    up to 2²⁰.
    """
    model, named, method = answer(options)
    dim = _width(head_dim, named)
    exponents = pair_exponents(dim)

    def arb() -> Balls:
        return arb_positional.frequencies(exponents, named.rope_base, named.rope_scale)

    def fast() -> Balls:
        (found,) = arb()
        if model is None:
            return (found,)
        chosen = frequencies(exponents, named.rope_base, 1, named.rope_scale)
        relative, absolute = moved_frequency(chosen, model)
        with np.errstate(over="ignore"):
            return (_returned(found, chosen.size * np.expm1(relative) + absolute, model),)

    return settle(Evaluation(model, method, fast, arb, ARB_WORK * len(exponents)))[0]


@takes(AnswerOptions)
def rope_angles(
    seq_len: Any,
    head_dim: Any,
    start_pos: Any = 0,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return the angle (start_pos + p)·scale·base^(−2i/head_dim) of every position p and pair i, in
    radians. The result is an `Enclosure` (value ± radius).

    base and scale are `conventions.rope_base` and `rope_scale`. A modelled kernel computes the
    frequencies in the precision `angle.frequency` and the product in the precision `angle.product`.
    It returns the angles in the output's format.

    Shapes: (seq_len, ⌈head_dim/2⌉).  Positions count from 0.
    Edge cases: as `inv_freq`. The angles of position 0 are 0. An angle beyond float64's range is
    unknown, with midpoint NaN and radius ∞. seq_len may be 0.
    Raises the same errors as `inv_freq`, and ValueError for positions beyond 2⁵³ and for more than
    2²⁸ entries.
    """
    model, named, method = answer(options)
    length, dim, first = _sizes(seq_len, head_dim, start_pos, named)
    exponents = pair_exponents(dim) if length else []
    shape = length, -(-dim // 2)

    def fast() -> Balls:
        (turning,) = arb_positional.frequencies(exponents, named.rope_base, named.rope_scale)
        positions = np.arange(first, first + length if dim else first, dtype=np.float64)[:, None]
        found = multiply(exact(positions), turning)
        if model is not None:
            chosen = frequencies(exponents, named.rope_base, first + length, named.rope_scale)
            found = _returned(found, moved_angle(positions, chosen, model), model)
        return (Ball(found.mid.reshape(shape), found.rad.reshape(shape)),)

    def arb() -> Balls:
        if length * dim == 0:
            return (exact(np.empty(shape)),)
        return arb_positional.angles(length, exponents, first, named.rope_base, named.rope_scale)

    return settle(Evaluation(model, method, fast, arb, ARB_WORK * length * len(exponents)))[0]


@takes(AnswerOptions)
def rope_tables(
    seq_len: Any,
    head_dim: Any,
    start_pos: Any = 0,
    **options: Unpack[AnswerOptions],
) -> tuple[Enclosure, Enclosure]:
    """Return (cos, sin) of each channel's angle at the positions start_pos + p. These are tables
    for `apply_rotary`. The results are `Enclosure`s (value ± radius).

    Channels 2i and 2i + 1 have the angle of pair i. Where `conventions.rope_pairing` is `half`,
    channels i and i + head_dim/2 have it.  A modelled kernel returns the tables in the format of
    `angle.table`, and not in the output's.

    Shapes: both are (seq_len, head_dim).  Positions count from 0.
    Edge cases: position 0 has cosines 1 and sines 0. The last channel of an odd head_dim has the
    angle of the pair that it would begin; where `conventions.odd_lane` is `passthrough` it has
    cosine 1 and sine 0. Sizes may be 0.
    Raises the same errors as `rope_angles`.
    """
    model, named, method = answer(options)
    length, dim, first = _sizes(seq_len, head_dim, start_pos, named)
    exponents = pair_exponents(dim) if length else []

    def laid_out(cos: Ball, sin: Ball) -> Balls:
        return _lanes(cos, 1.0, dim, named), _lanes(sin, 0.0, dim, named)

    def fast() -> Balls:
        chosen = frequencies(exponents, named.rope_base, first + length, named.rope_scale)
        parts = np.empty((4, length, -(-dim // 2)))
        for rows in blocks(length, dim):
            cos, sin = cos_sin(np.arange(first + rows.start, first + rows.stop, dtype=np.float64), chosen, model)
            parts[:, rows] = cos.mid, cos.rad, sin.mid, sin.rad
        return laid_out(Ball(parts[0], parts[1]), Ball(parts[2], parts[3]))

    def arb() -> Balls:
        if length * dim == 0:
            return fast()
        return laid_out(
            *arb_positional.sinusoidal_positional_encoding(length, exponents, first, named.rope_base, named.rope_scale)
        )

    cos, sin = settle(Evaluation(model, method, fast, arb, ARB_WORK * length * dim, zeros_are_accepted))
    return cos, sin


@takes(AnswerOptions)
def rotary_tables(
    positions: Any,
    inv_freq: Any,
    attention_factor: Any = 1.0,
    sections: Any = None,
    **options: Unpack[AnswerOptions],
) -> tuple[Enclosure, Enclosure]:
    """Return (cos, sin) of position × frequency for both channels of each pair, times the attention
    factor. These are the tables that models keep. The results are `Enclosure`s (value ± radius).

    `positions`, `inv_freq`, `attention_factor` and `sections` are as in `rope`. The channels are in
    the order of `rope_tables`.

    Shapes: inv_freq is (pairs,), positions (…), or (3, …) with sections; both results are (…,
    2·pairs).
    Edge cases: at position 0 the cosine is the attention factor and the sine is 0. Sizes may be 0.
    Raises the same errors as `rope`, and ValueError for more than 2²⁸ entries.
    """
    model, named, method = answer(options)
    given = integers(positions)
    rows = given.shape if sections is None else given.shape[1:]
    at, _ = placed(given, (1, *rows), sections)
    pairs = pairs_of(inv_freq)
    length, dim = at.shape[1], 2 * pairs
    if length * dim > LARGEST_TABLE:
        raise ValueError(f"positions × channels = {length} × {dim}, but should be at most {LARGEST_TABLE} entries.")
    farthest = int(np.abs(at).max(initial=0))
    by = RotatedBy(inv_freq, attention_factor, sections)
    found = angles(lambda chosen: at[:, chosen], farthest, pairs, dim, answer(options), by)
    layout = (
        (slice(0, pairs), slice(pairs, dim)) if named.rope_pairing == "half" else (slice(0, dim, 2), slice(1, dim, 2))
    )

    def shaped(tables: Iterable[Ball]) -> Balls:
        return tuple(Ball(table.mid.reshape(*rows, dim), table.rad.reshape(*rows, dim)) for table in tables)

    def fast() -> Balls:
        # A certified value needs one radius for each column: storing a radius for each entry takes
        # longer than computing these radii.
        tables = [
            Ball(np.empty((length, dim)), np.empty((length, dim)) if model else np.zeros((1, dim))) for _ in range(2)
        ]
        for chosen in blocks(length, dim):
            for table, part in zip(tables, found.tables(chosen, model), strict=True):
                for lanes in layout:
                    table.mid[chosen, lanes] = part.mid
                    if model:
                        table.rad[chosen, lanes] = part.rad
                    else:
                        np.maximum(table.rad[:, lanes], part.rad.max(axis=0), out=table.rad[:, lanes])
        return shaped(Ball(table.mid, np.broadcast_to(table.rad, (length, dim))) for table in tables)

    def arb() -> Balls:
        return shaped(
            _lanes(table, 0.0, dim, named) for table in arb_positional.tables(found.exactly, length, pairs, found.most)
        )

    work = AFFORDABLE + 1 if found.inexact else ARB_WORK * length * dim
    cos, sin = settle(Evaluation(model, method, fast, arb, work, zeros_are_accepted))
    return cos, sin


def _sizes(seq_len: Any, head_dim: Any, start_pos: Any, conventions: Conventions) -> tuple[int, int, int]:
    """Return the length and the width of a table, and its first position."""
    length, dim = arrays.natural(seq_len, "seq_len"), _width(head_dim, conventions)
    if length * dim > LARGEST_TABLE:
        raise ValueError(f"seq_len × head_dim = {length} × {dim}, but should be at most {LARGEST_TABLE} entries.")
    return length, dim, start_position(start_pos, length)


def _width(head_dim: Any, conventions: Conventions) -> int:
    dim = arrays.natural(head_dim, "head_dim", most=WIDEST)
    if odd := odd_is_refused(dim, conventions):
        raise ValueError(f"head_dim={dim}, but should be even: {odd}.")
    return dim


def _returned(value: Ball, moved: Array, arithmetic: Arithmetic) -> Ball:
    """Return the ball of a kernel's result: the value moved by at most `moved`, rounded to the
    output's format.
    """
    return rounded(
        Ball(value.mid, (value.rad + moved) * (1 + 2.0**-48)), arithmetic.output, flush=arithmetic.flush_to_zero
    )


def _lanes(of_pairs: Ball, passed: float, dim: int, conventions: Conventions) -> Ball:
    """Return the values of the pairs at both of their channels, and `passed` at a last channel that
    is passed through.
    """
    half = conventions.rope_pairing == "half"
    lanes = np.arange(dim) % max(dim // 2, 1) if half else np.arange(dim) // 2
    mid, rad = of_pairs.mid[:, lanes], of_pairs.rad[:, lanes]
    if dim % 2 and conventions.odd_lane == "passthrough":
        mid[:, -1], rad[:, -1] = passed, 0.0
    return Ball(mid, rad)
