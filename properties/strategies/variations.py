"""Cases of attention with what laws change in them: another value, a cut, a shift, the present of a causal mask."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.strategies.arrays import SEVERAL, Draw, cuts, fixed_points, masks_or_none
from properties.strategies.attention import Masks, anywhere
from properties.strategies.masks import alternating_masks

__all__ = [
    "causally_masked",
    "differing_masks",
    "exact_attention",
    "shifted_keys",
    "some_queries",
    "split_keys",
    "two_values",
]


@st.composite
def exact_attention(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(q, k, v, mask) of sizes of every kind, whose numbers can be added to each other exactly, q less than those of k and v."""
    q, k, v, mask = draw(anywhere(i, **options))
    q, k, v = (draw(fixed_points(i, x.shape)) for x in (q, k, v))
    return q * draw(st.sampled_from([1 / 16, 1 / 4, 1])), k, v, mask


@st.composite
def two_values(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(q, k, v, w, mask) of sizes of every kind, with values v and w whose sum is exact."""
    q, k, v, mask = draw(anywhere(i, **options))
    return q, k, draw(fixed_points(i, v.shape)), draw(fixed_points(i, v.shape)), mask


@st.composite
def shifted_keys(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, shift) with a vector of shape (…, 1, d) that can be added to every key exactly, and brings logits to ±1e4."""
    q, k, v, mask = draw(exact_attention(i))
    shift = draw(fixed_points(i, (*k.shape[:-2], 1, k.shape[-1])))
    far = draw(st.sampled_from([0.0, 64.0, 1024.0, 4096.0]))
    if far:
        k[..., 0], shift[..., 0] = 0.0, far
    return q, k, v, mask, shift


@st.composite
def split_keys(draw: Draw, i: Implementation, masks: Masks = masks_or_none) -> tuple[Any, ...]:
    """(q, k, v, mask, count) such that the first `count` keys, and the others, are a number of keys that is supported."""
    q, k, v, mask = draw(anywhere(i, masks=masks))
    n_q, n_k = q.shape[-2], k.shape[-2]
    return q, k, v, mask, draw(cuts(n_k, lambda m: all(i.allows(n_k=n, n_k_minus_n_q=n - n_q) for n in (m, n_k - m))))


@st.composite
def some_queries(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, start, stop): all queries but the first or last ones."""
    q, k, v, mask = draw(anywhere(i))
    n_q, n_k = q.shape[-2], k.shape[-2]
    count = draw(cuts(n_q, lambda m: i.allows(n_q=m, n_k_minus_n_q=n_k - m)))
    start = draw(st.sampled_from([0, n_q - count]))
    return q, k, v, mask, start, start + count


@st.composite
def causally_masked(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, now, known) with at least as many keys as queries.

    Query i may attend to key j if j ≤ i + shift. The first `now` queries may attend to the first `known` = now + shift keys only.
    """
    q, k, v, _ = draw(anywhere(i, masks=lambda *_: st.none()))
    square = i.allows(n_k_minus_n_q=0) and draw(st.booleans())
    n = min(q.shape[-2], k.shape[-2])
    if square and i.allows(n_q=n, n_k=n):
        q, k, v = q[..., :n, :], k[..., :n, :], v[..., :n, :]
    n_q, n_k = q.shape[-2], k.shape[-2]
    shift = draw(st.sampled_from([0, n_k - n_q])) if n_k > n_q else 0
    count = draw(cuts(n_q, lambda m: i.allows(n_q=m, n_k=m + shift, n_k_minus_n_q=shift)))
    return q, k, v, np.tri(n_q, n_k, shift, dtype=bool), count, count + shift


@st.composite
def differing_masks(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, problem) with leading axes, along which two masks alternate, and the index of one problem."""
    q, k, v, mask = draw(anywhere(i, keys=SEVERAL, rank=1, batch=(2, 3, 1), masks=alternating_masks))
    problem = tuple(draw(st.integers(0, n - 1)) for n in q.shape[:-2])
    return q, k, v, mask, problem
