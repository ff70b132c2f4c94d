"""Laws of causal masks, of masks of padded sequences, of combined masks, and of attention that is
causal by a flag. True allows.
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


@law(MASK, domains=("everyday", "long masks"))
def row_i_of_a_causal_mask_allows_the_first_keys(subject: Subject, n_q: int, n_k: Any) -> None:
    """For all numbers of queries and keys: each row allows the first keys, so many and no others,
    and one more than the row before it.

    Until it allows all. The first row allows one key, or, where `causal` is `bottom_right`, the
    last one all. Exact.
    """
    mask = subject(n_q, n_k)
    columns, counts = mask.shape[1], mask.sum(-1)
    subject.same(mask, np.arange(columns) < counts[:, None], "mask")
    if _top_left(subject):
        subject.same(counts[:1], np.ones(1), "keys of the first row")
        subject.same(counts[1:], np.minimum(counts[:-1] + 1, columns), "keys of a row")
    else:
        subject.same(counts[-1:], np.full(1, columns), "keys of the last row")
        subject.same(counts[:-1], np.maximum(counts[1:] - 1, 0), "keys of a row")


@law(PADDING)
def each_row_allows_as_many_positions_as_its_sequence_has(subject: Subject, lengths: Any, max_len: int) -> None:
    """For all lengths: row b has lengths[b] true entries, and they come first. Exact."""
    mask = subject(lengths, max_len)
    subject.same(mask.sum(-1), lengths, "true entries of a row")
    subject.same(mask, np.logical_and.accumulate(mask, axis=-1), "mask")


@law(COMBINED)
def masks_that_allow_all_or_nothing_decide(subject: Subject, first: Any, second: Any, choose: Choices) -> None:
    """For every mask, combined with one that allows everything, or nothing, on either side: it is
    what it was, or allows nothing.

    Exact.
    """
    everything = choose.among([True, False])
    other, shape = np.full(second.shape, everything), np.broadcast_shapes(first.shape, second.shape)
    expected = np.broadcast_to(first & everything, shape)
    subject.same(subject(first, other), expected, "mask")
    subject.same(subject(other, first), expected, "mask")


@law(COMBINED, domains=("everyday", "square batches"))
def a_mask_can_be_written_out(subject: Subject, first: Any, second: Any) -> bool:
    """For all masks that broadcast: combined as they are, they are as when each is written out in
    the common shape. Exact.
    """
    full = (np.broadcast_to(mask, np.broadcast_shapes(first.shape, second.shape)).copy() for mask in (first, second))
    subject.same(subject(first, second), subject(*full), "mask")
    return bool(first.shape != second.shape)


@law(COMBINED, needs=(PADDING, MASK))
def causal_and_padding_masks_allow_the_first_keys(subject: Subject, first: Any, second: Any, choose: Choices) -> bool:
    """For all lengths to n: the causal mask of n keys and the padding mask, with an axis for the
    queries, combine to one whose row i of sequence b allows the first min(i + 1, lengths[b]) keys.

    Exact.
    """
    n = max(first.shape[-1], second.shape[-1])
    lengths = choose.integers(0, n, 3 if subject.implementation.allows(batch=3) else 1)
    if not _allows(subject, n, n):
        return False
    allowed = np.minimum(np.arange(1, n + 1), lengths[:, None])
    mask = subject(subject.causal_mask(n, n), subject.padding_mask(lengths, n)[:, None, :])
    subject.same(mask, np.arange(n) < allowed[..., None], "mask")
    return True


@law(CAUSAL, domains=("everyday", "tiles"), needs=("scaled_dot_product_attention",))
def causal_attention_is_attention_under_the_causal_mask(subject: Subject, q: Any, k: Any, v: Any) -> None:
    """For every q, k and v: the output is that of attention with the causal mask, aligned by the
    convention `causal`, as an argument.

    Within budget. Informative where there are two keys.
    """
    n_q, n_k = q.shape[-2], k.shape[-2]
    subject.informative_if(n_k > 1)
    mask = np.tri(n_q, n_k, 0 if _top_left(subject) else n_k - n_q, dtype=bool)
    subject.close(subject(q, k, v), subject.scaled_dot_product_attention(q, k, v, mask))


def _only_squares(i: Implementation) -> str:
    return (
        ""
        if any(i.allows(n_k_minus_n_q=n) for n in range(-300, 301) if n)
        else "It takes as many queries as keys only."
    )


@law(CAUSAL, domains=("everyday", "tiles"), exempts=_only_squares)
def a_chunk_of_queries_is_part_of_the_whole(subject: Subject, q: Any, k: Any, v: Any, choose: Choices) -> bool:
    """For every number of rows: the first queries by themselves, or the last ones, have the outputs
    that they have among all.

    The first where `causal` is `top_left`, the last where it is `bottom_right`. Within budget.
    """
    n = q.shape[-2]
    rows = choose.cut(n, lambda m: _allows(subject, m, k.shape[-2]))
    chosen = slice(0, rows) if _top_left(subject) else slice(n - rows, None)
    subject.close(subject(q[..., chosen, :], k, v), subject(q, k, v).ball[..., chosen, :])
    return bool(rows < n)
