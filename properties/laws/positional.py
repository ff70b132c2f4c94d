"""Laws of positional encodings that are added or learned, of table lookups, of positions of tokens,
and of positional operations on empty arrays.
"""

from typing import Any

import numpy as np

from properties.contract.operations import OPERATIONS
from properties.contract.results import results_of
from properties.contract.subject import Subject
from properties.laws.commuting_squares import Case, Sum, Term
from properties.laws.law import Laws
from properties.laws.linear_maps import Put
from properties.laws.symmetry_rows import Rows
from properties.strategies.choices import Choices
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
POSITION_IDS = "position_ids"


@law("add_positional_encoding")
def adding_an_encoding_of_zeros_changes_nothing(subject: Subject, x: Any, pos: Any) -> None:
    """For every x and encoding: x + 0 is x, and 0 + pos is pos for each element of the batch."""
    subject.close(subject(x, np.zeros(pos.shape)), x)
    subject.close(subject(np.zeros(x.shape), pos), np.broadcast_to(pos, x.shape))


@law(LEARNED, LOOKUP, exact=True)
def a_lookup_in_a_table_of_row_numbers_returns_the_requested_numbers(subject: Subject, table: Any, *which: Any) -> None:
    """For a table in which each row holds its own number: the result holds the numbers of the
    requested rows, start + t or the index.

    The table holds one octal digit of the number at a time, plus 1. Every format has the numbers 1
    to 8.
    """
    rows = np.arange(which[1], which[1] + which[0]) if subject.operation == LEARNED else which[0]
    for place in range(4):
        numbers, expected = (
            np.repeat((array >> 3 * place & 7)[..., None] + 1.0, table.shape[1], -1)
            for array in (np.arange(len(table)), rows)
        )
        subject.same(subject(numbers, *which), expected)


@law(
    POSITION_IDS,
    name="tokens are counted from 0, and padding is where its convention puts it",
    domains=("everyday", "long sequences"),
    exact=True,
)
def tokens_are_counted_and_padding_is_not(subject: Subject, attention_mask: Any) -> None:
    """For every attention mask: the tokens of each sequence have the positions 0, 1, 2, … Padding has
    the position 0, or 1 where `padding_position` is `one`.
    """
    found, is_token = subject(attention_mask), attention_mask == 1
    counted = [np.arange(0), *map(np.arange, attention_mask.sum(-1).reshape(-1))]
    subject.same(found[is_token], np.concatenate(counted), "position_ids[attention_mask == 1]")
    padding = np.full(found[~is_token].shape, int(subject.conventions.padding_position == "one"))
    subject.same(found[~is_token], padding, "position_ids[attention_mask == 0]")


@law(POSITION_IDS, exact=True)
def more_padding_moves_no_token(subject: Subject, attention_mask: Any, choose: Choices) -> bool:
    """For every attention mask: a column of padding at any place in it changes no other position."""
    place = choose.integer(0, attention_mask.shape[-1])
    more = np.insert(attention_mask, place, 0, axis=-1)
    if not subject.takes(more):
        return False
    subject.same(np.delete(subject(more), place, axis=-1), subject(attention_mask), "position_ids beside more padding")
    return True


_ROTATIONS = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp", "rotate_half", "rope_angles", "rope_tables")
_MASKS = ("causal_mask", "padding_mask", "combine_masks")


@law("inv_freq", domains=("no columns",), exact=True)
@law(POSITION_IDS, domains=("no rows",), exact=True)
@law(
    "sinusoidal_positional_encoding",
    LEARNED,
    LOOKUP,
    *_ROTATIONS,
    *_MASKS,
    domains=("no rows", "no columns"),
    exact=True,
)
def empty_arrays_give_empty_results(subject: Subject, *arguments: Any) -> bool:
    """For sequences, widths, batches or masks of size 0: the results have the declared shapes, and
    no entries.
    """
    if any(0 not in shape for shape in OPERATIONS[subject.operation].shapes(*arguments)):
        return False
    for result in results_of(subject(*arguments)):
        subject.finite(result)
    return True


# -- Symmetries ------------------------------------------------------------------------------------


@row(
    ROPE,
    LEARNED,
    "sinusoidal_positional_encoding",
    "rope_angles",
    "rope_tables",
    domains=("everyday", "long sequences", ROTATIONS),
)
def a_chunk_of_positions_equals_the_slice_of_the_whole(case: Case) -> Sum:
    """For every cut of the sequence in two: each part, from its own first position, gives the same
    rows as the whole sequence.
    """
    length = case.size("seq_len")
    cut = case.choose.among([1, length - 1, length // 2, case.choose.cut(length)]) if length > 1 else 0
    return [_chunk(case, 0, cut), _chunk(case, cut, length)] if cut else None


def _chunk(case: Case, start: int, stop: int) -> Term:
    first = case.start_pos if case.arguments.get("positions") is not None else case.start_pos + start
    return case.along("seq_len", np.arange(start, stop), seq_len=stop - start, start_pos=first)


@row(TABLES, HALF)
def reordering_pairs_reorders_their_results_in_the_same_way(case: Case) -> Sum:
    """For every order of the pairs of channels: if the pairs in x, and their columns in the tables,
    are in this order, the pairs of the result are in this order too.
    """
    width = case.size("head_dim")
    pairs = np.arange(width).reshape(2, -1).T if case.forward.name == HALF else pairs_of(case.implementation, width)
    if len(pairs) < 2:
        return None
    moved = np.empty(width, int)
    moved[pairs] = pairs[case.choose.order(len(pairs))]
    return [case.along("head_dim", moved)]


@row(LOOKUP, LEARNED)
def unrequested_table_rows_do_not_matter(case: Case) -> Sum:
    """For every table: any finite numbers in the rows that are not requested give the same result."""
    read = case.indices if case.forward.name == LOOKUP else np.arange(case.start_pos, case.start_pos + case.seq_len)
    unread = ~np.isin(np.arange(len(case.table)), read)[:, None]
    return [Term({"table": [Put(unread, case.largest)]})] if unread.any() else None
