"""Laws of adding positional encodings, of learned ones, and of looking rows up; and of all of them
where there is nothing to encode.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from properties.contract.operations import OPERATIONS
from properties.contract.results import results_of
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.laws.maps import Put
from properties.laws.rows import Rows
from properties.laws.squares import Case, Term
from properties.strategies.domains import ROTATIONS
from properties.strategies.drawn_rotations import pairs_of

law = Laws()
row = Rows(law)
LEARNED, LOOKUP, ROPE, TABLES, HALF = (
    "learned_positional_encoding",
    "table_lookup",
    "rope",
    "apply_rotary",
    "rotate_half",
)


@law("add_positional_encoding")
def adding_zero_changes_nothing(subject: Subject, x: Any, pos: Any) -> None:
    """For every x and encoding: x + 0 is x, and 0 + pos is pos for each problem of the batch."""
    subject.close(subject(x, np.zeros(pos.shape)), x)
    subject.close(subject(np.zeros(x.shape), pos), np.broadcast_to(pos, x.shape))


@law(LEARNED, LOOKUP)
def tables_of_row_numbers_read_out_the_rows(subject: Subject, table: Any, *which: Any) -> None:
    """For a table whose entries are its rows' numbers, one octal digit at a time, and 1 more: so
    are the results those of the rows that are asked for, start + t or the index.

    Exact: 1 to 8 are numbers of every format.
    """
    rows = np.arange(which[1], which[1] + which[0]) if subject.operation == LEARNED else which[0]
    for place in range(4):
        numbers, expected = (
            np.repeat((x >> 3 * place & 7)[..., None] + 1.0, table.shape[1], -1) for x in (np.arange(len(table)), rows)
        )
        subject.same(subject(numbers, *which), expected)


_ROTATIONS = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp", "rotate_half", "rope_angles", "rope_tables")
_MASKS = ("causal_mask", "padding_mask", "combine_masks")


@law("inv_freq", domains=("no columns",))
@law("sinusoidal_positional_encoding", LEARNED, LOOKUP, *_ROTATIONS, *_MASKS, domains=("no rows", "no columns"))
def empty_arrays_give_empty_results(subject: Subject, *arguments: Any) -> bool:
    """For sizes of 0, of sequences, widths, batches or masks: the results have their shapes, and no entries. Exact."""
    if any(0 not in shape for shape in OPERATIONS[subject.operation].shapes(*arguments)):
        return False
    for result in results_of(subject(*arguments)):
        subject.finite(result)
    return True


# -- Symmetries ----------------------------------------------------------------------------------------------------------------------


@row(
    ROPE,
    LEARNED,
    "sinusoidal_positional_encoding",
    "rope_angles",
    "rope_tables",
    domains=("everyday", "long sequences", ROTATIONS),
)
def a_chunk_is_the_slice_of_the_whole(c: Case) -> Sequence[Term] | None:
    """For every sequence cut in two, anywhere: each part, from its own position on, is as in the whole."""
    n = c.size("seq_len")
    cut = c.choose.among([1, n - 1, n // 2, c.choose.cut(n)]) if n > 1 else 0
    return [_chunk(c, 0, cut), _chunk(c, cut, n)] if cut else None


def _chunk(c: Case, start: int, stop: int) -> Term:
    first = c.start_pos if c.arguments.get("positions") is not None else c.start_pos + start
    return c.along("seq_len", np.arange(start, stop), seq_len=stop - start, start_pos=first)


@row(TABLES, HALF)
def the_order_of_pairs_does_not_matter(c: Case) -> Sequence[Term] | None:
    """For every order of the pairs of channels, of the tables too: the result is in this order."""
    d = c.size("head_dim")
    pairs = np.arange(d).reshape(2, -1).T if c.forward.name == HALF else pairs_of(c.implementation, d)
    if len(pairs) < 2:
        return None
    moved = np.empty(d, int)
    moved[pairs] = pairs[c.choose.order(len(pairs))]
    return [c.along("head_dim", moved)]


@row(LOOKUP, LEARNED)
def rows_that_are_not_read_do_not_matter(c: Case) -> Sequence[Term] | None:
    """For every table: whatever the rows hold that are not read, the result is the same."""
    read = c.indices if c.forward.name == LOOKUP else np.arange(c.start_pos, c.start_pos + c.seq_len)
    unread = ~np.isin(np.arange(len(c.table)), read)[:, None]
    return [Term({"table": [Put(unread, c.largest)]})] if unread.any() else None
