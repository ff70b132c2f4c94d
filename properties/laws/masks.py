"""Laws of causal masks, and of attention under them by a flag."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.averages import as_many
from properties.strategies.arrays import BROAD, LENGTHS, also, cuts, sizes
from properties.strategies.attention import causal_attention
from properties.subject import Subject

law = Laws()
CAUSAL = "causal_attention"


def lengths(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """(n_q, n_k) to 300; n_k is None, which stands for n_q, where the implementation allows it."""

    def keys(n_q: int) -> st.SearchStrategy[Any]:
        any_to_300 = [n for n in range(1, 301) if i.allows(n_k=n, n_k_minus_n_q=n - n_q)]
        every = sizes(i, "n_k", LENGTHS, minus=("n_q", n_q)) | st.integers(1, len(any_to_300)).map(lambda n: any_to_300[n - 1])
        return st.none() | every if i.allows(n_k=n_q, n_k_minus_n_q=0) else every

    return also(st.tuples(sizes(i, "n_q", LENGTHS)), keys)


def _only_squares(i: Implementation) -> str:
    return as_many(i) and "It makes square masks only."


@law("causal_mask", cases=lengths, agreement=True, lean="Spec.causalMask")
def a_causal_mask_is_its_definition(subject: Subject, n_q: Any, n_k: Any) -> None:
    """For all numbers of queries and keys: entry (i, j) is true where j ≤ i, or j ≤ i + n_k − n_q, by the convention `causal`.

    Exact.
    """
    columns = n_q if n_k is None else n_k
    shift = 0 if subject.implementation.reading.causal == "top_left" else columns - n_q
    subject.same(subject(n_q, n_k), np.arange(columns) <= np.arange(n_q)[:, None] + shift, "mask")


@law(
    "causal_mask",
    cases=lengths,
    kills="causal-group-of-four",
    purpose="It reads a mask as people draw it, row by row, to lengths beyond every tile.",
)
def row_i_of_a_causal_mask_allows_the_first_keys(subject: Subject, n_q: Any, n_k: Any) -> None:
    """For all numbers of queries and keys: each row allows the first keys, so many and no others, and one more than the row before it.

    Until it allows all. The first row allows one key, or, where `causal` is `bottom_right`, the last one all. Exact.
    """
    mask = subject(n_q, n_k)
    columns, counts = mask.shape[1], mask.sum(-1)
    subject.same(mask, np.arange(columns) < counts[:, None], "mask")
    if subject.implementation.reading.causal == "top_left":
        subject.same(counts[:1], np.ones(1), "keys of the first row")
        subject.same(counts[1:], np.minimum(counts[:-1] + 1, columns), "keys of a row")
    else:
        subject.same(counts[-1:], np.full(1, columns), "keys of the last row")
        subject.same(counts[:-1], np.maximum(counts[1:] - 1, 0), "keys of a row")


@law(
    "causal_mask",
    cases=lengths,
    exempts=_only_squares,
    kills="causal-top-left-vs-bottom-right",
    purpose="Decoding one query at a time and all of them at once see the same keys.",
)
def a_causal_mask_of_a_chunk_is_part_of_the_whole(subject: Subject, n_q: Any, n_k: Any) -> None:
    """For all numbers of queries and keys: the mask is a corner of the square one, the first rows and columns, or the last ones.

    Which, says the convention `causal`; the last row of a square mask is that of decoding. Exact. Informative where it is no square.
    """
    mask = subject(n_q, n_k)
    rows, columns = n_q, mask.shape[1]
    n = max(rows, columns)
    compared = subject.implementation.allows(n_q=n, n_k=n, n_k_minus_n_q=0)
    subject.informative_if(rows != columns and compared)
    if compared:
        whole = subject(n, n)
        top_left = subject.implementation.reading.causal == "top_left"
        subject.same(mask, whole[:rows, :columns] if top_left else whole[n - rows :, n - columns :], "mask")


def _anywhere(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return causal_attention(i, lengths=LENGTHS, widths=BROAD)


@law(CAUSAL, cases=_anywhere, agreement=True, lean="Spec.causalMask")
def causal_attention_is_within_its_budget(subject: Subject, q: Any, k: Any, v: Any) -> None:
    """For all sizes, everyday ones and such around tiles: the output is attention of each query over the keys up to its own.

    Aligned by the convention `causal`. Within budget.
    """
    subject.within(subject(q, k, v))


@law(CAUSAL, cases=_anywhere, needs=("scaled_dot_product_attention",), purpose="The flag and the mask are two paths to one result.")
def causal_attention_is_attention_under_the_causal_mask(subject: Subject, q: Any, k: Any, v: Any) -> None:
    """For every q, k and v: the output is that of attention with the causal mask, aligned by the convention `causal`, as an argument.

    Within budget. Informative where there are two keys.
    """
    n_q, n_k = q.shape[-2], k.shape[-2]
    subject.informative_if(n_k > 1)
    mask = np.tri(n_q, n_k, 0 if subject.implementation.reading.causal == "top_left" else n_k - n_q, dtype=bool)
    subject.close(subject(q, k, v), subject.scaled_dot_product_attention(q, k, v, mask))


def _moments(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def now(q: Any, k: Any, v: Any) -> st.SearchStrategy[int]:
        n_q, n_k = q.shape[-2], k.shape[-2]
        if i.reading.causal == "top_left":
            return cuts(n_q, lambda m: i.allows(n_q=m, n_k=min(m, n_k), n_k_minus_n_q=min(m, n_k) - m))
        return cuts(n_q, lambda m: i.allows(n_q=m, n_k=n_k - n_q + m, n_k_minus_n_q=n_k - n_q))

    return also(_anywhere(i), now)


@law(CAUSAL, cases=_moments, purpose="Nobody sees the future: neither what it holds, nor that there is one.")
def the_past_does_not_depend_on_the_future(subject: Subject, q: Any, k: Any, v: Any, now: Any) -> None:
    """For every moment: the outputs of the first `now` queries are what they are with other keys and values afterwards, and with none.

    Within budget. Informative where there are later keys.
    """
    n_q, n_k = q.shape[-2], k.shape[-2]
    known = min(n_k, now + (0 if subject.implementation.reading.causal == "top_left" else n_k - n_q))
    subject.informative_if(known < n_k)
    largest, future = subject.largest_harmless, np.arange(n_k)[:, None] >= known
    towards = np.where(q[..., now - 1, None, :] < 0, -largest, largest)
    past = subject(q, k, v).ball[..., :now, :]
    subject.close(subject(q, np.where(future, towards, k), np.where(future, -largest, v)).ball[..., :now, :], past)
    subject.close(subject(q[..., :now, :], k[..., :known, :], v[..., :known, :]), past)


def _chunks(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def rows(q: Any, k: Any, v: Any) -> st.SearchStrategy[int]:
        return cuts(q.shape[-2], lambda m: i.allows(n_q=m, n_k_minus_n_q=k.shape[-2] - m))

    return also(_anywhere(i), rows)


@law(
    CAUSAL,
    cases=_chunks,
    exempts=as_many,
    purpose="A query by itself, against a cache, is the last of its row or the first, as is promised.",
)
def a_chunk_of_queries_is_part_of_the_whole(subject: Subject, q: Any, k: Any, v: Any, rows: Any) -> None:
    """For every number of rows: the first queries by themselves, or the last ones, have the outputs that they have among all.

    The first where `causal` is `top_left`, the last where it is `bottom_right`. Within budget. Informative where some are left out.
    """
    subject.informative_if(rows < q.shape[-2])
    first = subject.implementation.reading.causal == "top_left"
    chosen = slice(0, rows) if first else slice(q.shape[-2] - rows, None)
    subject.close(subject(q[..., chosen, :], k, v), subject(q, k, v).ball[..., chosen, :])
