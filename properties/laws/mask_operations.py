"""Laws of causal masks, padding masks and combined masks, and of causal attention. True means a
visible key.
"""

from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.strategies.choices import Choices

law = Laws()
MASK, PADDING, COMBINED, CAUSAL = "causal_mask", "padding_mask", "combine_masks", "causal_attention"


def _top_left(subject: Subject) -> bool:
    return subject.conventions.causal == "top_left"


def _allows(subject: Subject, n_q: int, n_k: int) -> bool:
    return subject.implementation.allows(n_q=n_q, n_k=n_k, n_k_minus_n_q=n_k - n_q)


@law(MASK, domains=("everyday", "long masks"), exact=True)
def each_row_of_a_causal_mask_sees_one_more_key_than_the_row_before(subject: Subject, n_q: int, n_k: Any) -> None:
    """For all numbers of queries and keys: the visible keys of each row are the first keys, and
    each row has one more than the row before, until all keys are visible.

    Where `causal` is `top_left`, the first row sees one key. Where it is `bottom_right`, the last
    row sees all keys, and rows above the first key see none.
    """
    mask = subject(n_q, n_k)
    columns, counts = mask.shape[1], mask.sum(-1)
    subject.same(mask, np.arange(columns) < counts[:, None], "mask")
    if _top_left(subject):
        subject.same(counts[:1], np.ones(1), "sum(mask[:1])")
        subject.same(counts[1:], np.minimum(counts[:-1] + 1, columns), "sum(mask[1:])")
    else:
        subject.same(counts[-1:], np.full(1, columns), "sum(mask[-1:])")
        subject.same(counts[:-1], np.maximum(counts[1:] - 1, 0), "sum(mask[:-1])")


@law(PADDING, exact=True)
def a_padding_mask_makes_exactly_the_positions_of_each_sequence_visible(
    subject: Subject, lengths: Any, max_len: int
) -> None:
    """For all lengths: row b has lengths[b] true entries, and they come first."""
    mask = subject(lengths, max_len)
    subject.same(mask.sum(-1), lengths, "sum(mask)")
    subject.same(mask, np.logical_and.accumulate(mask, axis=-1), "mask")


@law(COMBINED, name="all-true masks change nothing, all-false masks mask everything", exact=True)
def all_true_masks_change_nothing_and_all_false_masks_mask_everything(
    subject: Subject, first: Any, second: Any, choose: Choices
) -> None:
    """For every mask, combined on either side with a mask of one value: all True leaves the mask
    unchanged, and all False masks every entry.
    """
    everything = choose.among([True, False])
    other, shape = np.full(second.shape, everything), np.broadcast_shapes(first.shape, second.shape)
    expected = np.broadcast_to(first & everything, shape)
    subject.same(subject(first, other), expected, "mask")
    subject.same(subject(other, first), expected, "mask")


@law(COMBINED, domains=("everyday", "square batches"), exact=True)
def a_broadcast_mask_gives_the_same_as_the_full_mask(subject: Subject, first: Any, second: Any) -> bool:
    """For all masks that broadcast to a common shape: the combined mask is the same if each mask is
    first written out in this shape.
    """
    full = (np.broadcast_to(mask, np.broadcast_shapes(first.shape, second.shape)).copy() for mask in (first, second))
    subject.same(subject(first, second), subject(*full), "mask")
    return bool(first.shape != second.shape)


@law(COMBINED, needs=(PADDING, MASK), exact=True)
def causal_and_padding_masks_combine_by_a_logical_and(
    subject: Subject, first: Any, second: Any, choose: Choices
) -> bool:
    """For all lengths up to n: the causal mask of n keys and the padding mask, with an axis for the
    queries, combine to a mask whose row i of sequence b shows the first min(i + 1, lengths[b])
    keys.
    """
    length = max(first.shape[-1], second.shape[-1])
    lengths = choose.integers(0, length, 3 if subject.implementation.allows(batch=3) else 1)
    if not _allows(subject, length, length):
        return False
    counts = np.minimum(np.arange(1, length + 1), lengths[:, None])
    mask = subject(subject.causal_mask(length, length), subject.padding_mask(lengths, length)[:, None, :])
    subject.same(mask, np.arange(length) < counts[..., None], "mask")
    return True


@law(CAUSAL, domains=("everyday", "tiles"), needs=("scaled_dot_product_attention",))
def causal_attention_equals_attention_with_a_causal_mask(subject: Subject, q: Any, k: Any, v: Any) -> None:
    """For every q, k and v: the output is the output of attention with the causal mask as an
    argument, aligned by the convention `causal`.

    A case is informative if it has at least two keys.
    """
    n_q, n_k = q.shape[-2], k.shape[-2]
    subject.informative_if(n_k > 1)
    mask = np.tri(n_q, n_k, 0 if _top_left(subject) else n_k - n_q, dtype=bool)
    subject.close(subject(q, k, v), subject.scaled_dot_product_attention(q, k, v, mask))


def _only_squares(implementation: Implementation) -> str:
    differs = any(implementation.allows(n_k_minus_n_q=difference) for difference in range(-300, 301) if difference)
    return "" if differs else "It takes only as many queries as keys."


@law(CAUSAL, domains=("everyday", "tiles"), exempts=_only_squares)
def a_chunk_of_queries_gives_the_same_rows_as_all_queries(
    subject: Subject, q: Any, k: Any, v: Any, choose: Choices
) -> bool:
    """For every number of rows: the first queries alone, or the last queries alone, have the
    outputs that they have among all queries.

    The first queries where `causal` is `top_left`, the last queries where it is `bottom_right`.
    """
    length = q.shape[-2]
    rows = choose.cut(length, lambda count: _allows(subject, count, k.shape[-2]))
    chosen = slice(0, rows) if _top_left(subject) else slice(length - rows, None)
    subject.close(subject(q[..., chosen, :], k, v), subject(q, k, v).ball[..., chosen, :])
    return bool(rows < length)
