"""Laws of looking rows up in a table by their indices."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.conduct import empty
from properties.strategies.arrays import Draw, UnsupportedError, orders
from properties.strategies.positional import lookups
from properties.subject import Subject

law = Laws()
LOOKUP = "table_lookup"


@law(LOOKUP, cases=lookups, agreement=True)
def a_lookup_is_rows_of_its_table(subject: Subject, table: Any, indices: Any) -> None:
    """For every table of up to 300 rows and indices of one axis or two: at each index stands the row of that number.

    Exact, where the output's format has all numbers of the inputs'.
    """
    subject.within(subject(table, indices))


def _one_hot(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    found = [n for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 65, 129, 130, 257) if i.allows(embed_dim=n)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no embed_dim among 1 to 257.")

    @st.composite
    def build(draw: Draw) -> tuple[Any, ...]:
        rows = draw(st.sampled_from(found))
        index = st.integers(0, rows - 1) | st.sampled_from([0, rows - 1])
        return rows, np.array(draw(st.lists(index, min_size=1, max_size=8)), np.int64)

    return build()


@law(LOOKUP, cases=_one_hot, kills="lookup-padding-row", purpose="It shows which row of the table each index reads.")
def one_hot_tables_read_out_indices(subject: Subject, rows: int, indices: Any) -> None:
    """For a table whose row p is 1 in column p and 0 elsewhere: what stands at an index is 1 in the column of that number, 0 elsewhere.

    Exact: 0 and 1 are numbers of every format.
    """
    subject.same(subject(np.eye(rows), indices), np.arange(rows) == indices[:, None])


def _reordered(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def build(table: Any, indices: Any) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.tuples(st.just(table), st.just(indices.ravel()), orders(indices.size))

    return lookups(i).flatmap(lambda case: build(*case))


@law(LOOKUP, cases=_reordered, kills="lookup-sorted", purpose="Rows come out where their indices stand.")
def rows_move_with_their_indices(subject: Subject, table: Any, indices: Any, order: Any) -> None:
    """For every order of the indices: the rows come out in that order.

    Within budget, which is 0 where the output's format has all numbers of the inputs'. Informative where indices differ.
    """
    subject.informative_if(len(set(indices.tolist())) > 1)
    subject.close(subject(table, indices[order]), subject(table, indices).ball[order])


@law(LOOKUP, cases=lookups, kills="lookup-each-row-once", purpose="Reading a row takes nothing away from it.")
def repeated_indices_read_the_same_rows(subject: Subject, table: Any, indices: Any) -> None:
    """For every table and indices: the same indices once more, after the others, read the same rows again.

    Within budget, which is 0 where the output's format has all numbers of the inputs'.
    """
    once, n = subject(table, indices).ball, len(indices)
    twice = subject(table, np.concatenate([indices, indices])).ball
    subject.close(twice[:n], once)
    subject.close(twice[n:], once)


@law(LOOKUP, cases=lookups, kills="lookup-indices-transposed", purpose="The axes of the indices are those of the result, in their order.")
def each_index_is_looked_up_by_itself(subject: Subject, table: Any, indices: Any) -> None:
    """For every table and indices of one axis or two: what stands at an index is what comes of it alone.

    Within budget, which is 0 where the output's format has all numbers of the inputs'. Informative from two indices on.
    """
    subject.informative_if(indices.size > 1)
    together = subject(table, indices).ball
    for place in np.ndindex(*indices.shape):
        subject.close(together[place], subject(table, indices[place].reshape(1)).ball[0])


@law(LOOKUP, cases=lookups, kills="lookup-subtracts-the-mean", purpose="No other row, however large, can reach those asked for.")
def other_rows_of_the_table_do_not_matter(subject: Subject, table: Any, indices: Any) -> None:
    """For every table: whatever finite numbers stand in rows that are not asked for, the result is the same.

    Exact for an implementation that declares to be deterministic, else within budget.
    """
    asked = np.isin(np.arange(len(table)), indices)[:, None]
    subject.informative_if(not asked.all())
    poisoned = subject(np.where(asked, table, subject.largest_harmless), indices)
    (subject.same if subject.implementation.deterministic else subject.close)(poisoned, subject(table, indices))


def _empty(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    tried = ((2, (0,)), (2, (3, 0)), (2, (0, 3)), (0, (2,)), (0, (0,)))
    found = [(d, shape) for d, shape in tried if i.allows(embed_dim=d, indices=min(shape))]
    if not found:
        raise UnsupportedError(f"{i.name} supports no embed_dim of 2 or 0, or no lookup without indices.")
    return st.sampled_from(found).map(lambda case: (np.zeros((3, case[0])), np.zeros(case[1], np.int64)))


@law(LOOKUP, cases=_empty, effort=0.2, kills="lookup-no-indices-raises")
def a_lookup_without_indices_or_columns_is_empty(subject: Subject, table: Any, indices: Any) -> None:
    """For no index, or a width of 0: the result has the shape of the indices and the width, and no entries. Exact."""
    empty(subject, subject(table, indices))
