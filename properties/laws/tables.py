"""Laws of what rotary embeddings are computed from: frequencies, angles, and tables of cosines and sines."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import cos, exact, sin
from properties.implementation import Implementation
from properties.law import Cases, Laws
from properties.laws.conduct import empty, results_of
from properties.laws.pairs import Pair, distance, lanes, moved, of, times
from properties.strategies.arrays import UnsupportedError
from properties.strategies.positional import ANY_LENGTH, EVEN, LONG, ODD, chunks, frequencies, rotary, starts, turning
from properties.subject import Subject

law = Laws()
INV_FREQ, ANGLES, TABLES = "inv_freq", "rope_angles", "rope_tables"
_WIDE = (*EVEN, 192, 256, 512)
_NARROW = (2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)
_CASES: dict[str, Callable[..., Any]] = {INV_FREQ: frequencies, ANGLES: turning, TABLES: turning}


@law(INV_FREQ, cases=partial(frequencies, widths=_WIDE), agreement=True)
def frequencies_are_within_their_budget(subject: Subject, head_dim: int) -> None:
    """For every even width to 512: the frequency of pair i is scale·base^(−2i/d), by the conventions.

    Within budget.
    """
    subject.within(subject(head_dim))


@law(INV_FREQ, cases=frequencies, kills="inv-freq-counts-from-one", purpose="It fixes the scale, and where pairs count from.")
def the_first_frequency_is_the_scale(subject: Subject, head_dim: int) -> None:
    """For every even width: the first pair's frequency is the scale of the conventions, which is 1 unless declared.

    For any base's power 0 is 1. Within budget.
    """
    subject.close(subject(head_dim).ball[:1], np.full(1, subject.implementation.reading.rope_scale))


@law(
    INV_FREQ,
    cases=partial(frequencies, widths=tuple(d for d in _WIDE if d > 4)),
    kills="inv-freq-in-bfloat16",
    purpose="It knows no base and no exponents: frequencies are a geometric sequence.",
)
def neighbouring_frequencies_have_one_quotient(subject: Subject, head_dim: int) -> None:
    """For every even width from 6 on and three pairs in a row: the product of the outer frequencies is the square of the middle one.

    Within budget.
    """
    f = subject(head_dim).ball
    subject.close(f[:-2] * f[2:], f[1:-1] * f[1:-1], "product of frequencies")


@law(
    INV_FREQ,
    cases=partial(frequencies, widths=tuple(d for d in _WIDE if d % 4 == 0)),
    kills="inv-freq-exponent-not-doubled",
    purpose="It pins the base down without an oracle.",
)
def half_of_the_pairs_divide_by_the_root_of_the_base(subject: Subject, head_dim: int) -> None:
    """For every width divisible by 4: the square of the frequency of pair d/4, times the base, is the square of the scale.

    For base^(−2·(d/4)/d) is 1/√base. Within budget.
    """
    reading = subject.implementation.reading
    f = subject(head_dim).ball[head_dim // 4 :][:1]
    subject.close(f * f * exact(reading.rope_base), exact(np.full(1, reading.rope_scale)) * exact(reading.rope_scale), "frequency² · base")


def _doubled(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return frequencies(i, widths=tuple(d for d in _NARROW if i.allows(head_dim=2 * d)))


@law(INV_FREQ, cases=_doubled, kills="inv-freq-exponent-reaches-one", purpose="It ties the frequencies of all widths together.")
def every_second_pair_of_twice_the_width_is_alike(subject: Subject, head_dim: int) -> None:
    """For every width d: the pairs 0, 2, 4, … of width 2·d have the frequencies of the pairs 0, 1, 2, … of width d.

    For 2·2i/2d is 2i/d. Within budget.
    """
    subject.close(subject(head_dim), subject(2 * head_dim).ball[::2])


@law(ANGLES, TABLES, cases=turning, agreement=True)
def angles_and_their_tables_are_within_budget(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every even width and positions to 2²⁰: angles are position·scale·base^(−2i/d), tables their cosines and sines in each lane.

    Within budget.
    """
    for result in results_of(subject(seq_len, head_dim, start_pos)):
        subject.within(result)


@law(ANGLES, TABLES, cases=partial(turning, lengths=LONG, widths=(2, 4, 8)), effort=0.5, agreement=True)
def angles_and_their_tables_are_within_budget_over_long_sequences(
    subject: Subject, seq_len: int, head_dim: int, start_pos: int
) -> None:  # fmt: skip
    """For every length to 1100: each row is that of its own position.

    Within budget.
    """
    for result in results_of(subject(seq_len, head_dim, start_pos)):
        subject.within(result)


@law(
    ANGLES,
    TABLES,
    cases=lambda i: chunks(i, "head_dim"),
    kills="rope-tables-begin-at-zero",
    purpose="Decoding row by row, and all at once, turn by the same angles.",
)
def a_chunk_is_the_slice_of_the_whole(subject: Subject, seq_len: int, head_dim: int, start_pos: int, cut: int) -> None:
    """For every sequence to 1100 rows, cut in two anywhere: the two chunks' rows are the parts of the whole.

    Within budget.
    """
    first, second, whole = (
        results_of(subject(*arguments))
        for arguments in ((cut, head_dim, start_pos), (seq_len - cut, head_dim, start_pos + cut), (seq_len, head_dim, start_pos))
    )
    for a, b, both in zip(first, second, whole, strict=True):
        subject.close(a, both.ball[:cut])
        subject.close(b, both.ball[cut:])


@law(
    ANGLES,
    cases=partial(turning, positions=st.just(0), lengths=ANY_LENGTH),
    kills="rope-angles-from-one",
    purpose="It tells where positions count from, in every pair, to the last bit.",
)
def angles_of_position_zero_are_zero(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every length and even width: all angles of position 0 are 0.

    Exact: 0 is a number of every format.
    """
    subject.same(subject(seq_len, head_dim, start_pos).value[0], np.zeros(head_dim // 2), "angles of position 0")


@law(ANGLES, cases=turning, kills="rope-angles-in-turns", purpose="It fixes unit, direction and origin of angles without an oracle.")
def the_first_angle_is_the_position(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every width and position p to 2²⁰: the angle of the first pair is p in radians, times the scale of the conventions.

    Within budget.
    """
    positions = exact(np.arange(start_pos, start_pos + seq_len, dtype=np.float64))
    subject.close(subject(seq_len, head_dim, start_pos).ball[:, 0], positions * exact(subject.implementation.reading.rope_scale))


@law(ANGLES, cases=turning, needs=(INV_FREQ,), purpose="Frequencies and angles are made of each other, in every pair.")
def angles_are_positions_times_frequencies(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every width and position: the angles of a row are the frequencies, times the position.

    Within budget.
    """
    positions = exact(np.arange(start_pos, start_pos + seq_len, dtype=np.float64)[:, None])
    subject.close(subject(seq_len, head_dim, start_pos), positions * subject.inv_freq(head_dim).ball)


def _shifted(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def shift(seq_len: int, head_dim: int, start_pos: int) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.tuples(st.just(seq_len), st.just(head_dim), st.just(start_pos), starts(i, reach=start_pos))

    return turning(i).flatmap(lambda case: shift(*case))


def _one_row(i: Implementation) -> str:
    return "" if i.allows(seq_len=1) else "It supports no sequence of one row."


@law(
    ANGLES,
    cases=_shifted,
    exempts=_one_row,
    kills="rope-angles-in-float16",
    purpose="What a step adds is the same everywhere.",
)
def angles_add_as_positions_do(subject: Subject, seq_len: int, head_dim: int, start_pos: int, shift: int) -> None:
    """For every shift to 2²⁰: the angles of position p + shift are those of p, plus those of the shift.

    Within budget.
    """
    by = subject(1, head_dim, shift).ball
    subject.close(subject(seq_len, head_dim, start_pos + shift), subject(seq_len, head_dim, start_pos).ball + by)


def _of_pairs(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> Pair:
    """The cosines and sines of the pairs, as they stand at their first lanes."""
    where = lanes(subject.implementation, head_dim)
    c, s = (of(table, where)[0] for table in subject(seq_len, head_dim, start_pos))
    return c, s


def _compare(subject: Subject, actual: Pair, expected: Any) -> None:
    for name, a, b in zip(("cosines", "sines"), actual, expected, strict=True):
        subject.close(a, b, name)


@law(
    TABLES,
    cases=_shifted,
    exempts=_one_row,
    kills="rope-tables-end-at-2048",
    purpose="Tables are rotations, which compose, to the longest positions.",
)
def tables_of_a_shift_turn_tables(subject: Subject, seq_len: int, head_dim: int, start_pos: int, shift: int) -> None:
    """For every shift to 2²⁰: the cosines and sines of position p + shift are those of p turned by those of the shift, in each pair.

    For cos(a + b) = cos a cos b − sin a sin b. Within budget.
    """
    rows, by = _of_pairs(subject, seq_len, head_dim, start_pos), _of_pairs(subject, 1, head_dim, shift)
    _compare(subject, _of_pairs(subject, seq_len, head_dim, start_pos + shift), times(rows, by))


@law(
    TABLES,
    cases=partial(turning, lengths=ANY_LENGTH),
    kills="rope-tables-sines-of-the-next-pair",
    purpose="The entries of a lane are a point on the circle, at every position.",
)
def cosines_and_sines_lie_on_the_circle(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every width and position: cos² + sin² is 1 in each lane.

    Within budget.
    """
    c, s = (table.ball for table in subject(seq_len, head_dim, start_pos))
    subject.close(c * c + s * s, np.ones((seq_len, head_dim)), "cos² + sin²")


@law(
    TABLES,
    cases=partial(turning, positions=st.just(0), lengths=ANY_LENGTH),
    kills="rope-tables-sine-first",
    purpose="It tells cosines from sines, and the first position, at a glance.",
)
def tables_of_position_zero_are_one_and_zero(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every length and even width: in the row of position 0 cosines are 1 and sines are 0.

    Within budget.
    """
    c, s = (table.ball[0] for table in subject(seq_len, head_dim, start_pos))
    _compare(subject, (c, s), (np.ones(head_dim), np.zeros(head_dim)))


@law(
    TABLES, cases=turning, kills="rope-tables-of-halves", purpose="Lanes that are turned together have one angle: it tells pairings apart."
)
def both_lanes_of_a_pair_share_their_angle(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every width and position: the two lanes of a pair, by the convention `rope_pairing`, have one cosine and one sine.

    Within budget.
    """
    where = lanes(subject.implementation, head_dim)
    for name, table in zip(("cosines", "sines"), subject(seq_len, head_dim, start_pos), strict=True):
        subject.close(*of(table, where), name)


@law(TABLES, cases=turning, kills="rope-tables-turn-backwards", purpose="It fixes unit, direction and origin of tables without an oracle.")
def the_first_pair_turns_by_its_position(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every width and position p to 2²⁰: the first pair's entries are the cosine and the sine of p in radians, times the scale.

    Within budget.
    """
    c, s = _of_pairs(subject, seq_len, head_dim, start_pos)
    positions = exact(np.arange(start_pos, start_pos + seq_len, dtype=np.float64))
    if (scale := subject.implementation.reading.rope_scale) != 1:
        positions = positions * exact(scale)
    _compare(subject, (c[:, 0], s[:, 0]), (cos(positions), sin(positions)))


@law(
    TABLES,
    cases=partial(turning, positions=st.integers(0, 64)),
    needs=(ANGLES,),
    purpose="Angles and tables are made of each other, in every pair.",
)
def tables_are_cosines_and_sines_of_the_angles(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every width and position to 64: the entries of a pair are the cosine and the sine of its angle.

    Within budget.
    """
    theta = subject.rope_angles(seq_len, head_dim, start_pos).ball
    _compare(subject, _of_pairs(subject, seq_len, head_dim, start_pos), (cos(theta), sin(theta)))


@law(TABLES, cases=rotary, needs=("apply_rotary", "rope"), purpose="Tables are made to be turned by: what they do is what rope does.")
def turning_by_the_tables_is_rope(subject: Subject, x: Any, start_pos: int) -> None:
    """For every x and start: turned by the tables of its positions, x is turned as by rope.

    Within budget; the errors of the tables' entries are multiplied by the lanes that they meet.
    """
    where = lanes(subject.implementation, x.shape[-1])
    tables = subject(*x.shape[-2:], start_pos)
    cos_error, sin_error = (of(distance(table.value, table.ball), where) for table in tables)
    a, b = of(np.abs(x), where)
    errors = a * cos_error[0] + b * sin_error[0], b * cos_error[1] + a * sin_error[1]
    out = of(subject.apply_rotary(x, *(table.value for table in tables)), where)
    for lane, expected, error in zip(out, of(subject.rope(x, start_pos), where), errors, strict=True):
        subject.close(lane, moved(expected, error))


def _even(i: Implementation) -> str:
    return "Its widths are even." if i.reading.rope_pairing == "half" or i.reading.odd_lane == "reject" else ""


_OF_ODD: dict[str, Cases] = {operation: partial(make, widths=ODD) for operation, make in _CASES.items()}


@law(*_CASES, cases=_OF_ODD, exempts=_even, effort=0.5, kills="inv-freq-odd-width-short")
def the_odd_lane_follows_its_convention(subject: Subject, *arguments: Any) -> None:
    """For every odd width: its pairs, with the one that the last lane would begin, are every second one of twice the width; in tables the
    last lane has its angle (`literal`), or cosine 1 and sine 0 (`passthrough`).

    Within budget. Where odd widths are refused there is nothing to compare.
    """
    place = 0 if subject.operation == INV_FREQ else 1
    dim, found = arguments[place], results_of(subject(*arguments))
    if not subject.implementation.allows(head_dim=2 * dim):
        for result in found:
            subject.within(result)
        return
    wide = results_of(subject(*arguments[:place], 2 * dim, *arguments[place + 1 :]))
    if subject.operation != TABLES:
        subject.close(found[0], wide[0].ball[..., ::2])
        return
    lane = np.arange(dim)
    passes = subject.implementation.reading.odd_lane == "passthrough"
    for name, table, twice, passed in zip(("cosines", "sines"), found, wide, (1.0, 0.0), strict=True):
        alike = twice.ball[:, 2 * (lane - lane % 2) + lane % 2]
        subject.close(table.ball[:, :-1], alike[:, :-1], name)
        subject.close(table.ball[:, -1], np.full(len(table.value), passed) if passes else alike[:, -1], f"{name} of the last lane")


def _empty(operation: str, i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    found: list[tuple[int, ...]] = [(n, d, 3) for n, d in ((0, 2), (2, 0), (0, 0), (0, 8)) if i.allows(seq_len=n, head_dim=d, start_pos=3)]
    if operation == INV_FREQ:
        found = [(0,)] if i.allows(head_dim=0) else []
    if not found:
        raise UnsupportedError(f"{i.name} supports no size of 0.")
    return st.sampled_from(found)


@law(*_CASES, cases={operation: partial(_empty, operation) for operation in _CASES}, effort=0.2, kills="inv-freq-no-lanes-raises")
def without_rows_or_lanes_there_is_nothing_to_turn_by(subject: Subject, *arguments: Any) -> None:
    """For a sequence without rows, or rows without lanes: the results have their shapes, and no entries. Exact."""
    empty(subject, subject(*arguments))
