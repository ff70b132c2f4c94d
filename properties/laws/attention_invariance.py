"""Laws of scaled dot-product attention: what may be changed in queries and keys without changing an output."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import divide, exact, total
from properties.implementation import Implementation
from properties.law import Cases, Laws
from properties.laws.attention import SDPA
from properties.laws.averages import allowed, as_many, exponentials
from properties.strategies.arrays import LENGTHS, WIDTHS, also, orders
from properties.strategies.attention import anywhere, attention
from properties.strategies.variations import exact_attention, shifted_keys, some_queries, split_keys
from properties.subject import Subject

law = Laws()


def _ordered(axis: int, of: str) -> Cases:
    """Cases, and an order of the rows or columns of an argument."""
    return lambda i: also(anywhere(i), lambda q, k, v, mask: orders({"q": q, "k": k}[of].shape[axis]))


@law(
    SDPA, cases=_ordered(-2, "k"), kills="sdpa-tail-keys-dropped", purpose="Keys have no order: no tile, tail or split of them is special."
)
def key_order_does_not_matter(subject: Subject, q: Any, k: Any, v: Any, mask: Any, order: Any) -> None:
    """For every case and order of the keys: with their values and columns of the mask in the same order, the output is the same.

    Within budget. Informative where there are two keys.
    """
    subject.informative_if(k.shape[-2] > 1)
    moved = None if mask is None else allowed(mask, q, k)[..., order]
    subject.close(subject(q, k[..., order, :], v[..., order, :], moved), subject(q, k, v, mask))


@law(SDPA, cases=_ordered(-2, "q"), purpose="Rows of queries share tiles, and nothing else.")
def outputs_move_with_their_queries(subject: Subject, q: Any, k: Any, v: Any, mask: Any, order: Any) -> None:
    """For every case and order of the queries: with the rows of the mask in the same order, the outputs are in that order.

    Within budget. Informative where there are two queries.
    """
    subject.informative_if(q.shape[-2] > 1)
    moved = None if mask is None else allowed(mask, q, k)[..., order, :]
    subject.close(subject(q[..., order, :], k, v, moved), subject(q, k, v, mask).ball[..., order, :])


@law(
    SDPA,
    cases=lambda i: also(anywhere(i), lambda *_: st.integers(0, 1)),
    kills="sdpa-maximum-shared-by-queries",
    purpose="A row is computed as if it were alone.",
)
def queries_do_not_depend_on_each_other(subject: Subject, q: Any, k: Any, v: Any, mask: Any, parity: Any) -> None:
    """For every case: when every second query becomes 512 times as long, the outputs of the others are the same.

    Within budget. Informative where there are two queries.
    """
    subject.informative_if(q.shape[-2] > 1)
    kept = np.arange(q.shape[-2]) % 2 == parity
    changed = subject(np.where(kept[:, None], q, 512 * q), k, v, mask)
    subject.close(changed.ball[..., kept, :], subject(q, k, v, mask).ball[..., kept, :])


@law(
    SDPA,
    cases=some_queries,
    exempts=as_many,
    purpose="Decoding, chunks and whole prompts agree, whatever path the number of queries selects.",
)
def appending_queries_changes_nothing(subject: Subject, q: Any, k: Any, v: Any, mask: Any, start: Any, stop: Any) -> None:
    """For every case: the first queries by themselves, or the last ones, have the outputs that they have among all.

    Within budget. Informative where some queries are left out.
    """
    subject.informative_if(stop - start < q.shape[-2])
    part = None if mask is None else allowed(mask, q, k)[..., start:stop, :]
    subject.close(subject(q[..., start:stop, :], k, v, part), subject(q, k, v, mask).ball[..., start:stop, :])


def _copied(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def copies(q: Any, k: Any, v: Any, mask: Any) -> st.SearchStrategy[int]:
        n_q, n_k = q.shape[-2], k.shape[-2]
        return st.sampled_from([c for c in (2, 3) if i.allows(n_k=c * n_k, n_k_minus_n_q=c * n_k - n_q)] or [1])

    return also(anywhere(i), copies)


@law(SDPA, cases=_copied, exempts=as_many, purpose="Weights are normalised by what is there, at twice the size too.")
def duplicating_every_key_changes_nothing(subject: Subject, q: Any, k: Any, v: Any, mask: Any, copies: Any) -> None:
    """For every case: with every key and its value there two or three times, next to each other, the output is the same.

    Within budget.
    """
    subject.informative_if(copies > 1)
    every = None if mask is None else np.repeat(allowed(mask, q, k), copies, axis=-1)
    repeated = subject(q, np.repeat(k, copies, axis=-2), np.repeat(v, copies, axis=-2), every)
    subject.close(repeated, subject(q, k, v, mask))


@law(SDPA, cases=anywhere, purpose="Scores depend on the product of a query and a key, and on neither alone.")
def scaling_queries_equals_scaling_keys(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every case: queries four times as long give what keys four times as long give.

    Within budget.
    """
    subject.close(subject(4 * q, k, v, mask), subject(q, 4 * k, v, mask))


def _turned(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return also(exact_attention(i), lambda q, k, v, mask: orders(q.shape[-1]))


@law(
    SDPA,
    cases=_turned,
    kills="sdpa-products-in-tf32",
    purpose="No lane is special, and inputs with all their bits are not rounded on the way.",
)
def an_orthogonal_change_of_basis_changes_nothing(subject: Subject, q: Any, k: Any, v: Any, mask: Any, order: Any) -> None:
    """For every order of the lanes, then pairs (a, b) turned to (a + b, a − b), queries halved again: the output is the same.

    All numbers are exact. Within budget. Informative where there are two lanes.
    """
    subject.informative_if(q.shape[-1] > 1)

    def turned(x: Any, scale: float) -> Any:
        x = x[..., order].copy()
        end = x.shape[-1] // 2 * 2
        a, b = x[..., 0:end:2].copy(), x[..., 1:end:2].copy()
        x[..., 0:end:2], x[..., 1:end:2] = scale * (a + b), scale * (a - b)
        return x

    subject.close(subject(turned(q, 0.5), turned(k, 1.0), v, mask), subject(q, k, v, mask))


def _widened(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    widths = [d for d in (*WIDTHS, *WIDTHS, 20, 24, 32) if i.allows(head_dim=4 * d)]
    return attention(i, lengths=LENGTHS, widths=widths)


def _four_times_as_wide(i: Implementation) -> str:
    found = any(i.allows(head_dim=d) and i.allows(head_dim=4 * d) for d in (*WIDTHS, 20, 24, 32))
    return "" if found else "It supports no head_dim that is four times another."


@law(
    SDPA,
    cases=_widened,
    exempts=_four_times_as_wide,
    kills="sdpa-scale-inverted",
    purpose="It pins the scale 1/√d down by itself, for widths that are no squares too.",
)
def padding_with_zero_lanes_needs_doubled_queries(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every case: with 3·d lanes of zeros added and queries doubled the output is the same, for the scale is 1/√d.

    Values get as many columns of zeros, and so does the output. Within budget.
    """
    columns, extra = v.shape[-1], 3 * q.shape[-1]
    wide_q, wide_k, wide_v = (np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, extra)]) for x in (2 * q, k, v))
    wide, out = subject(wide_q, wide_k, wide_v, mask), subject(q, k, v, mask)
    subject.close(wide.ball[..., :columns], out)
    subject.same(wide.value[..., columns:], np.zeros((*q.shape[:-1], extra)), "columns of zeros")


@law(SDPA, cases=shifted_keys, kills="sdpa-scores-clamped")
def adding_a_vector_to_every_key_changes_nothing(subject: Subject, q: Any, k: Any, v: Any, mask: Any, shift: Any) -> None:
    """For every vector: added to every key it adds a constant to the scores of each query, to ±1e4, and the output is the same.

    All numbers are exact. Within budget.
    """
    subject.close(subject(q, k + shift, v, mask), subject(q, k, v, mask))


@law(SDPA, cases=split_keys, exempts=as_many, purpose="Split keys, and tiles of them, are merged by what they weigh together.")
def blocks_of_keys_merge_by_log_sum_exp(subject: Subject, q: Any, k: Any, v: Any, mask: Any, count: Any) -> None:
    """For every cut of the keys: the output is the average of those of both blocks, each weighted with its sum of exponentials.

    Within budget; the sums are enclosed. A block that a query may not read counts for nothing. Informative where there are two keys.
    """
    subject.informative_if(count < k.shape[-2])
    may = allowed(mask, q, k)
    e = exponentials(q, k, may)
    parts = []
    for keys in (slice(0, count), slice(count, None)) if count < k.shape[-2] else (slice(None),):
        part = None if mask is None else np.where(may[..., keys].any(-1, keepdims=True), may[..., keys], True)
        share = divide(total(e[..., keys]), total(e))[..., None]
        parts.append(share * subject(q, k[..., keys, :], v[..., keys, :], part).ball)
    subject.close(subject(q, k, v, mask), sum(parts[1:], start=parts[0] * exact(1.0)))
