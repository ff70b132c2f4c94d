"""Laws of grouped queries: several heads of queries share one of keys."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.law import Laws
from properties.strategies.arrays import LENGTHS, also, masks_or_none
from properties.strategies.attention import grouped
from properties.strategies.masks import alternating_masks
from properties.subject import Subject

law = Laws()
GQA = "grouped_query_attention"
SDPA = "scaled_dot_product_attention"


def _masks(n_q: int, n_k: int, lead: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """No mask, one for all, or one for each head, in which neighbours differ."""
    return masks_or_none(n_q, n_k, lead) | alternating_masks(n_q, n_k, lead)


def _anywhere(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """Everyday cases, and one or few queries against many keys, as in decoding."""
    several: dict[str, Any] = {"kv_heads": (2, 1, 3), "masks": _masks}
    decoding = grouped(i, lengths=(1, 2, 3, 17), keys=LENGTHS, widths=(8, 1, 16, 64), groups=(2, 1, 3, 4, 6, 8), **several)
    return grouped(i, groups=(2, 1, 3), **several) | decoding


def _repeated(subject: Subject, x: Any, heads: int) -> Any:
    """The heads of keys or values, one for each query head, by the convention `kv_heads`."""
    group = heads // x.shape[-3]
    if subject.implementation.reading.kv_heads == "repeat":
        return np.repeat(x, group, axis=-3)
    return np.concatenate([x] * group, axis=-3)


@law(GQA, cases=grouped, agreement=True)
def grouped_attention_is_within_its_budget(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For all heads of keys and groups of query heads: the output of query head h is attention over key head h // group, or h mod H_kv.

    Which, says the convention `kv_heads`. Within budget.
    """
    subject.within(subject(q, k, v, mask))


@law(GQA, cases=lambda i: grouped(i, lengths=(1, 2, 3, 17, 64), keys=LENGTHS, widths=(8, 16, 64), groups=(1, 2, 4, 5, 8)), agreement=True)
def grouped_attention_is_within_its_budget_while_decoding(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For one or few queries in groups to eight, and keys around the tiles of kernels: the output is attention.

    Kernels pack the queries of a group as rows of one product. Within budget.
    """
    subject.within(subject(q, k, v, mask))


def _all_heads(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    allowed = {"num_heads": lambda heads: i.allows(num_heads=heads, kv_heads=heads)}
    return _anywhere(replace(i, supports={**i.restricted, **allowed}))


@law(GQA, cases=_all_heads, kills="gqa-tile-vs-repeat-interleave", purpose="It says which head reads which, by the definition of groups.")
def grouped_attention_is_attention_with_repeated_heads(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every case: the output is that of as many heads of keys as of queries, each repeated for its group by the convention `kv_heads`.

    Within budget. Informative where a group has two heads.
    """
    heads = q.shape[-3]
    subject.informative_if(heads > k.shape[-3])
    subject.close(subject(q, k, v, mask), subject(q, _repeated(subject, k, heads), _repeated(subject, v, heads), mask))


@law(GQA, cases=_anywhere, needs=(SDPA,), purpose="A head is nothing but an axis of a batch: the two operations agree.")
def each_head_is_attention_over_its_own(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every case: the output is attention with the heads of keys and values repeated, and heads as an axis of the batch.

    Within budget.
    """
    heads = q.shape[-3]
    out = subject.scaled_dot_product_attention(q, _repeated(subject, k, heads), _repeated(subject, v, heads), mask)
    subject.close(subject(q, k, v, mask), out)


def _one_head(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return also(_anywhere(i), lambda q, k, v, mask: st.integers(0, q.shape[-3] - 1))


def _no_single_head(i: Implementation) -> str:
    return "" if i.allows(num_heads=1, kv_heads=1) else "It does not support a single head."


@law(GQA, cases=_one_head, exempts=_no_single_head, purpose="Heads do not depend on each other, and a head by itself is itself.")
def one_group_shares_its_head(subject: Subject, q: Any, k: Any, v: Any, mask: Any, head: Any) -> None:
    """For every query head: by itself, with its one head of keys and its mask, it has the output that it has among all.

    Within budget. Informative where there are two query heads.
    """
    heads = q.shape[-3]
    subject.informative_if(heads > 1)
    own_k, own_v = (_repeated(subject, x, heads)[..., head : head + 1, :, :] for x in (k, v))
    own_mask = None if mask is None else np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))[..., head : head + 1, :, :]
    alone = subject(q[..., head : head + 1, :, :], own_k, own_v, own_mask)
    subject.close(alone, subject(q, k, v, mask).ball[..., head : head + 1, :, :])


@law(GQA, cases=_one_head, purpose="A head of keys is read by its group only, and by all of it.")
def other_groups_do_not_read_a_head(subject: Subject, q: Any, k: Any, v: Any, mask: Any, head: Any) -> None:
    """For every head of keys: whatever finite numbers it and its values hold, query heads of other groups have the same outputs.

    Within budget. Informative where there are two heads of keys.
    """
    heads, few = q.shape[-3], k.shape[-3]
    subject.informative_if(few > 1)
    hidden = np.arange(few)[:, None, None] == head % few
    largest = subject.largest_harmless
    others = np.flatnonzero(~_repeated(subject, hidden, heads)[:, 0, 0])
    changed = subject(q, np.where(hidden, largest, k), np.where(hidden, -largest, v), mask)
    subject.close(changed.ball[..., others, :, :], subject(q, k, v, mask).ball[..., others, :, :])
