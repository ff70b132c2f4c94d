"""Laws of learned positional encodings: rows of a table, and nothing else."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.conduct import empty
from properties.strategies.arrays import Draw, UnsupportedError
from properties.strategies.positional import learned
from properties.subject import Subject

law = Laws()
LEARNED = "learned_positional_encoding"


@law(LEARNED, cases=learned, agreement=True, lean="Spec.learnedPositionalEncodingSpec")
def a_learned_encoding_is_rows_of_its_table(subject: Subject, table: Any, seq_len: int, start_pos: int) -> None:
    """For every table of up to 650 rows: row p of the encoding is row start + p of the table.

    Exact, where the output's format has all numbers of the inputs'.
    """
    subject.within(subject(table, seq_len, start_pos))


def _one_hot(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """(rows, seq_len, start_pos) of a square table."""
    found = [n for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 65, 129, 130, 257) if i.allows(embed_dim=n)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no embed_dim among 1 to 257.")

    @st.composite
    def build(draw: Draw) -> tuple[int, int, int]:
        rows = draw(st.sampled_from(found))
        pairs = ((n, draw(st.integers(0, rows - n))) for n in (draw(st.integers(1, min(rows, 7))), rows))
        supported = [(n, p) for n, p in pairs if i.allows(seq_len=n, start_pos=p)] or [(1, 0)]
        return rows, *draw(st.sampled_from(supported))

    return build()


@law(LEARNED, cases=_one_hot, kills="learned-padding-row", purpose="It shows which row of the table each position reads.")
def one_hot_tables_read_out_positions(subject: Subject, rows: int, seq_len: int, start_pos: int) -> None:
    """For a table whose row p is 1 in column p and 0 elsewhere: row t of the encoding is 1 in column start + t and 0 elsewhere.

    Exact: 0 and 1 are numbers of every format.
    """
    subject.same(subject(np.eye(rows), seq_len, start_pos), np.eye(rows)[start_pos : start_pos + seq_len])


@law(LEARNED, cases=lambda i: learned(i, least=1), kills="learned-last-chunk-early", purpose="A chunk reads the rows where it begins.")
def start_positions_shift_rows(subject: Subject, table: Any, seq_len: int, start_pos: int) -> None:
    """For every table, start and length: the encoding is that of the table without its first rows, from position 0 on.

    Within budget, which is 0 where the output's format has all numbers of the inputs'.
    """
    subject.close(subject(table, seq_len, start_pos), subject(table[start_pos:], seq_len, 0))


@law(LEARNED, cases=learned, purpose="A lookup reads the rows it is asked for: no other row of the table, however large, can reach them.")
def other_rows_of_the_table_do_not_matter(subject: Subject, table: Any, seq_len: int, start_pos: int) -> None:
    """For every table: whatever finite numbers stand in rows that are not asked for, the encoding is the same.

    Exact for an implementation that declares to be deterministic, else within budget.
    """
    rows = np.arange(len(table))[:, None]
    asked = (start_pos <= rows) & (rows < start_pos + seq_len)
    subject.informative_if(not asked.all())
    poisoned = subject(np.where(asked, table, subject.largest_harmless), seq_len, start_pos)
    (subject.same if subject.implementation.deterministic else subject.close)(poisoned, subject(table, seq_len, start_pos))


def _empty(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    found = [(r, d, n) for r, d, n in ((3, 2, 0), (3, 0, 2), (0, 2, 0), (2, 0, 0)) if i.allows(seq_len=n, embed_dim=d)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no size of 0.")
    return st.sampled_from(found).map(lambda sizes: (np.zeros(sizes[:2]), sizes[2], 0))


@law(LEARNED, cases=_empty, effort=0.2, purpose="Sizes of 0 are legal, and have their own law.")
def an_encoding_without_rows_or_columns_is_empty(subject: Subject, table: Any, seq_len: int, start_pos: int) -> None:
    """For a length or a width of 0: the encoding has the shape (length, width), and no entries. Exact."""
    empty(subject, subject(table, seq_len, start_pos))
