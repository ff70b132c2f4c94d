"""Laws of sinusoidal positional encodings, and of adding encodings to tokens."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.conduct import empty
from properties.laws.pairs import angles, times
from properties.strategies.arrays import UnsupportedError
from properties.strategies.positional import ANY_LENGTH, LONG, added, chunks, sinusoid, starts
from properties.subject import Subject

law = Laws()
SINUSOID = "sinusoidal_positional_encoding"
ADD = "add_positional_encoding"


@law(SINUSOID, cases=lambda i: sinusoid(i, positions=st.integers(0, 64)), agreement=True, lean="Spec.sinusoidalPositionalEncodingSpec")
def the_sinusoidal_encoding_is_within_its_budget(subject: Subject, seq_len: int, embed_dim: int, start_pos: int) -> None:
    """For every length, even width and start: pair i of row p is the sine and the cosine of (start + p)·10000^(−2i/d), each in its column.

    Within budget.
    """
    subject.within(subject(seq_len, embed_dim, start_pos))


@law(SINUSOID, cases=sinusoid, agreement=True)
def the_sinusoidal_encoding_is_within_its_budget_at_long_positions(subject: Subject, seq_len: int, embed_dim: int, start_pos: int) -> None:
    """For every start to 2²⁰, across powers of two above all: the encoding is the sines and cosines of its angles.

    Within budget.
    """
    subject.within(subject(seq_len, embed_dim, start_pos))


@law(SINUSOID, cases=lambda i: sinusoid(i, lengths=LONG, widths=(2, 4, 8, 32)), agreement=True)
def the_sinusoidal_encoding_is_within_its_budget_over_long_sequences(
    subject: Subject, seq_len: int, embed_dim: int, start_pos: int
) -> None:
    """For every length to 1100: the encoding is the sines and cosines of its angles, in the last row as in the first.

    Within budget.
    """
    subject.within(subject(seq_len, embed_dim, start_pos))


@law(
    SINUSOID,
    cases=lambda i: sinusoid(i, lengths=ANY_LENGTH),
    kills="sin-rows-by-recurrence",
    purpose="It needs no oracle, and holds at every position.",
)
def pairs_of_sine_and_cosine_have_norm_one(subject: Subject, seq_len: int, embed_dim: int, start_pos: int) -> None:
    """For every row and pair: sin² + cos² = 1.

    Within budget.
    """
    cos, sin = angles(subject.implementation, subject(seq_len, embed_dim, start_pos))
    subject.close(cos * cos + sin * sin, np.ones(cos.mid.shape), "sin² + cos²")


@law(SINUSOID, cases=lambda i: chunks(i, "embed_dim"), kills="sin-start-counts-chunks")
def a_chunk_is_the_slice_of_the_whole(subject: Subject, seq_len: int, embed_dim: int, start_pos: int, cut: int) -> None:
    """For every sequence to 1100 rows, cut in two anywhere: the two chunks' encodings are the parts of the whole one.

    Half of the chunks of one sequence have the same shape, but start elsewhere. Within budget.
    """
    first = subject(cut, embed_dim, start_pos)
    second = subject(seq_len - cut, embed_dim, start_pos + cut)
    whole = subject(seq_len, embed_dim, start_pos).ball
    subject.close(first, whole[:cut])
    subject.close(second, whole[cut:])


def _shifted(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def shift(seq_len: int, embed_dim: int, start_pos: int) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.tuples(st.just(seq_len), st.just(embed_dim), st.just(start_pos), starts(i, reach=start_pos))

    return sinusoid(i).flatmap(lambda case: shift(*case))


def _one_row(i: Implementation) -> str:
    return "" if i.allows(seq_len=1) else "It supports no sequence of one row."


@law(
    SINUSOID,
    cases=_shifted,
    exempts=_one_row,
    kills="sin-positions-in-eight-bits",
    purpose="Positions are angles: what a step does is the same everywhere.",
)
def shifting_is_a_rotation(subject: Subject, seq_len: int, embed_dim: int, start_pos: int, shift: int) -> None:
    """For every shift to 2²⁰: row p + shift is row p turned by row `shift`, in each pair: cos(a + b) = cos a cos b − sin a sin b.

    Within budget.
    """
    i = subject.implementation
    rows = angles(i, subject(seq_len, embed_dim, start_pos))
    by = angles(i, subject(1, embed_dim, shift))
    for name, actual, expected in zip(
        ("cosines", "sines"), angles(i, subject(seq_len, embed_dim, start_pos + shift)), times(rows, by), strict=True
    ):
        subject.close(actual, expected, name)


@law(
    SINUSOID,
    cases=lambda i: sinusoid(i, lengths=ANY_LENGTH, positions=st.just(0)),
    kills="sin-concatenated-layout",
    purpose="It tells the layouts and the first position apart at a glance.",
)
def position_zero_is_zero_and_one(subject: Subject, seq_len: int, embed_dim: int, start_pos: int) -> None:
    """For every length and even width: in the row of position 0 sines are 0 and cosines are 1, each in its column.

    Within budget.
    """
    encoding = subject(seq_len, embed_dim, start_pos).ball
    columns = np.arange(embed_dim)
    interleaved = subject.implementation.reading.sinusoid_layout == "interleaved"
    subject.close(encoding[0], np.where(columns % 2 if interleaved else columns >= embed_dim // 2, 1.0, 0.0), "row 0")


def _empty(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    found = [(n, d) for n, d in ((0, 4), (1, 0), (3, 0), (0, 0), (0, 8)) if i.allows(seq_len=n, embed_dim=d)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no size of 0.")
    return st.builds(lambda shape, start: (*shape, start), st.sampled_from(found), starts(i))


@law(SINUSOID, cases=_empty, effort=0.2, kills="sin-no-columns-raises")
def an_encoding_without_rows_or_columns_is_empty(subject: Subject, seq_len: int, embed_dim: int, start_pos: int) -> None:
    """For a length or a width of 0: the encoding has the shape (length, width), and no entries. Exact."""
    empty(subject, subject(seq_len, embed_dim, start_pos))


@law(ADD, cases=added, agreement=True, lean="Spec.addPositionalEncodingSpec")
def adding_an_encoding_is_addition(subject: Subject, x: Any, pos: Any) -> None:
    """For every x and encoding, one for all of the batch or one for each element: the result is x + pos.

    Within budget.
    """
    subject.within(subject(x, pos))


@law(ADD, cases=added, kills="add-scales-by-root-of-width", purpose="Nothing is scaled on the way.")
def adding_zero_changes_nothing(subject: Subject, x: Any, pos: Any) -> None:
    """For every x and encoding: x + 0 is x, and 0 + pos is pos for each element of the batch.

    Within budget.
    """
    subject.close(subject(x, np.zeros(pos.shape)), x)
    subject.close(subject(np.zeros(x.shape), pos), np.broadcast_to(pos, x.shape))


@law(ADD, cases=lambda i: added(i, exact=True), purpose="What is rounded on its way, or scaled, does not lead back.")
def what_is_added_can_be_taken_away(subject: Subject, x: Any, pos: Any) -> None:
    """For every x and encoding whose sum is a number of the format: adding the encoding gives it, and taking it away again gives x.

    Within budget.
    """
    subject.close(subject(x, pos), x + pos)
    subject.close(subject(x + pos, -pos), x)
