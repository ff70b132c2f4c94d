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
    arithmetic, conventions, method = answer(options)
    channels = _width(head_dim, conventions)
    exponents = pair_exponents(channels)

    def arb() -> Balls:
        return arb_positional.frequencies(exponents, conventions.rope_base, conventions.rope_scale)

    def fast() -> Balls:
        (certified,) = arb()
        if arithmetic is None:
            return (certified,)
        pair_frequencies = frequencies(exponents, conventions.rope_base, 1, conventions.rope_scale)
        relative, absolute = moved_frequency(pair_frequencies, arithmetic)
        with np.errstate(over="ignore"):
            return (_returned(certified, pair_frequencies.size * np.expm1(relative) + absolute, arithmetic),)

    return settle(Evaluation(arithmetic, method, fast, arb, ARB_WORK * len(exponents)))[0]


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
    arithmetic, conventions, method = answer(options)
    length, channels, first = _sizes(seq_len, head_dim, start_pos, conventions)
    exponents = pair_exponents(channels) if length else []
    shape = length, -(-channels // 2)

    def fast() -> Balls:
        (turning,) = arb_positional.frequencies(exponents, conventions.rope_base, conventions.rope_scale)
        positions = np.arange(first, first + length if channels else first, dtype=np.float64)[:, None]
        result = multiply(exact(positions), turning)
        if arithmetic is not None:
            pair_frequencies = frequencies(exponents, conventions.rope_base, first + length, conventions.rope_scale)
            result = _returned(result, moved_angle(positions, pair_frequencies, arithmetic), arithmetic)
        return (Ball(result.mid.reshape(shape), result.rad.reshape(shape)),)

    def arb() -> Balls:
        if length * channels == 0:
            return (exact(np.empty(shape)),)
        return arb_positional.angles(length, exponents, first, conventions.rope_base, conventions.rope_scale)

    return settle(Evaluation(arithmetic, method, fast, arb, ARB_WORK * length * len(exponents)))[0]


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
    arithmetic, conventions, method = answer(options)
    length, channels, first = _sizes(seq_len, head_dim, start_pos, conventions)
    exponents = pair_exponents(channels) if length else []

    def laid_out(cos: Ball, sin: Ball) -> Balls:
        return _lanes(cos, 1.0, channels, conventions), _lanes(sin, 0.0, channels, conventions)

    def fast() -> Balls:
        pair_frequencies = frequencies(exponents, conventions.rope_base, first + length, conventions.rope_scale)
        of_pairs = np.empty((4, length, -(-channels // 2)))
        for rows in blocks(length, channels):
            positions = np.arange(first + rows.start, first + rows.stop, dtype=np.float64)
            cos, sin = cos_sin(positions, pair_frequencies, arithmetic)
            of_pairs[:, rows] = cos.mid, cos.rad, sin.mid, sin.rad
        return laid_out(Ball(of_pairs[0], of_pairs[1]), Ball(of_pairs[2], of_pairs[3]))

    def arb() -> Balls:
        if length * channels == 0:
            return fast()
        return laid_out(
            *arb_positional.sinusoidal_positional_encoding(
                length, exponents, first, conventions.rope_base, conventions.rope_scale
            )
        )

    cos, sin = settle(Evaluation(arithmetic, method, fast, arb, ARB_WORK * length * channels, zeros_are_accepted))
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
    arithmetic, conventions, method = answer(options)
    checked_positions = integers(positions)
    rows = checked_positions.shape if sections is None else checked_positions.shape[1:]
    positions_by_axis, _ = placed(checked_positions, (1, *rows), sections)
    pairs = pairs_of(inv_freq)
    length, channels = positions_by_axis.shape[1], 2 * pairs
    if length * channels > LARGEST_TABLE:
        raise ValueError(
            f"positions × channels = {length} × {channels}, but should be at most {LARGEST_TABLE} entries."
        )
    farthest = int(np.abs(positions_by_axis).max(initial=0))
    caller_choices = RotatedBy(inv_freq, attention_factor, sections)
    pair_angles = angles(
        lambda chosen: positions_by_axis[:, chosen], farthest, pairs, channels, answer(options), caller_choices
    )
    layout = (
        (slice(0, pairs), slice(pairs, channels))
        if conventions.rope_pairing == "half"
        else (slice(0, channels, 2), slice(1, channels, 2))
    )

    def shaped(tables: Iterable[Ball]) -> Balls:
        return tuple(Ball(table.mid.reshape(*rows, channels), table.rad.reshape(*rows, channels)) for table in tables)

    def fast() -> Balls:
        # A certified value needs one radius for each column: storing a radius for each entry takes
        # longer than computing these radii.
        tables = [
            Ball(np.empty((length, channels)), np.empty((length, channels)) if arithmetic else np.zeros((1, channels)))
            for _ in range(2)
        ]
        for chosen in blocks(length, channels):
            for table, block_table in zip(tables, pair_angles.tables(chosen, arithmetic), strict=True):
                for columns in layout:
                    table.mid[chosen, columns] = block_table.mid
                    if arithmetic:
                        table.rad[chosen, columns] = block_table.rad
                    else:
                        radii = table.rad[:, columns]
                        np.maximum(radii, block_table.rad.max(axis=0), out=radii)
        return shaped(Ball(table.mid, np.broadcast_to(table.rad, (length, channels))) for table in tables)

    def arb() -> Balls:
        return shaped(
            _lanes(table, 0.0, channels, conventions)
            for table in arb_positional.tables(pair_angles.exactly, length, pairs, pair_angles.most)
        )

    multiplications = AFFORDABLE + 1 if pair_angles.inexact else ARB_WORK * length * channels
    cos, sin = settle(Evaluation(arithmetic, method, fast, arb, multiplications, zeros_are_accepted))
    return cos, sin


def _sizes(seq_len: Any, head_dim: Any, start_pos: Any, conventions: Conventions) -> tuple[int, int, int]:
    """Return the length and the width of a table, and its first position."""
    length, channels = arrays.natural(seq_len, "seq_len"), _width(head_dim, conventions)
    if length * channels > LARGEST_TABLE:
        raise ValueError(f"seq_len × head_dim = {length} × {channels}, but should be at most {LARGEST_TABLE} entries.")
    return length, channels, start_position(start_pos, length)


def _width(head_dim: Any, conventions: Conventions) -> int:
    channels = arrays.natural(head_dim, "head_dim", most=WIDEST)
    if refusal := odd_is_refused(channels, conventions):
        raise ValueError(f"head_dim={channels}, but should be even: {refusal}.")
    return channels


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
    by_halves = conventions.rope_pairing == "half"
    pair_of_channel = np.arange(dim) % max(dim // 2, 1) if by_halves else np.arange(dim) // 2
    mid, rad = of_pairs.mid[:, pair_of_channel], of_pairs.rad[:, pair_of_channel]
    if dim % 2 and conventions.odd_lane == "passthrough":
        mid[:, -1], rad[:, -1] = passed, 0.0
    return Ball(mid, rad)
