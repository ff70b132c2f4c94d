"""Cases of attention, of its derivatives, of grouped queries and of softmax."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.strategies.arrays import (
    BROAD,
    LENGTHS,
    SHORT,
    WIDTHS,
    Draw,
    batches,
    fixed_points,
    live_masks,
    masks_or_none,
    numbers,
    sizes,
)

__all__ = [
    "EXTREME",
    "LOGITS",
    "SCALES",
    "anywhere",
    "attention",
    "attention_jvp",
    "attention_vjp",
    "causal_attention",
    "causally_masked",
    "dead_masks",
    "exact_attention",
    "extreme_attention",
    "grouped",
    "softmax",
    "softmax_vjp",
]

SCALES = (1.0, 0.125, 8.0)
LOGITS = (1.0, 0.25, 8.0)
"""Factors of q: logits to a few hundred at most, where budgets of gradients still say something mostly."""

EXTREME = (64.0, 256.0, 1024.0)
"""Factors of q that bring logits to ±1e4."""

_LARGE = 64 * 64  # scores of one problem from which on a batch has few problems

Masks = Callable[[int, int, tuple[int, ...]], st.SearchStrategy[Any]]


@st.composite
def attention(
    draw: Draw,
    i: Implementation,
    *,
    lengths: Sequence[int] = SHORT,
    keys: Sequence[int] | None = None,
    widths: Sequence[int] = WIDTHS,
    masks: Masks = masks_or_none,
    logits: Sequence[float] = LOGITS,
    rank: int = 0,
) -> tuple[Any, ...]:
    """(q, k, v, mask) with at least `rank` leading axes; `masks(n_q, n_k, lead)` draws the mask, `keys` are lengths of k and v only."""
    n_q = draw(sizes(i, "n_q", lengths))
    n_k = draw(sizes(i, "n_k", lengths if keys is None else keys, minus=("n_q", n_q)))
    d = draw(sizes(i, "head_dim", widths))
    d_v = draw(sizes(i, "value_dim", widths, minus=("head_dim", d)))
    lead = draw(batches(i, rank) if n_q * n_k <= _LARGE else batches(i, rank, (1, 1, 2)))
    q = draw(numbers(i, (*lead, n_q, d), logits))
    k = draw(numbers(i, (*lead, n_k, d)))
    v = draw(numbers(i, (*lead, n_k, d_v), SCALES))
    return q, k, v, draw(masks(n_q, n_k, lead))


def anywhere(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(q, k, v, mask) of everyday sizes and of such around tiles; options as for `attention`."""
    return attention(i, **{"lengths": LENGTHS, "widths": BROAD, **options})


@st.composite
def extreme_attention(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(q, k, v, mask) with logits to ±1e4, which vary within a row, or share a sign in a row and are all far from 0."""
    q, k, v, mask = draw(attention(i, logits=EXTREME, **options))
    if draw(st.booleans()):
        signs = np.where(np.arange(q.shape[-2]) % 2 == draw(st.integers(0, 1)), 1.0, -1.0)[:, None]
        q, k = signs * np.abs(q), np.abs(k)
    return q, k, v, mask


@st.composite
def exact_attention(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(q, k, v, mask) whose numbers can be added and subtracted exactly, those of each array to and from each other."""
    q, k, v, mask = draw(anywhere(i, **options))
    return *(draw(fixed_points(i, x.shape)) for x in (q, k, v)), mask


@st.composite
def causally_masked(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(q, k, v, mask, shift) with at least as many keys as queries: query i may attend to key j if j ≤ i + shift."""
    q, k, v, _ = draw(anywhere(i, masks=lambda *_: st.none()))
    square = i.allows(n_k_minus_n_q=0) and draw(st.booleans())
    n = min(q.shape[-2], k.shape[-2])
    if square and i.allows(n_q=n, n_k=n):
        q, k, v = q[..., :n, :], k[..., :n, :], v[..., :n, :]
    n_q, n_k = q.shape[-2], k.shape[-2]
    shift = draw(st.sampled_from([0, n_k - n_q])) if n_k > n_q else 0
    return q, k, v, np.tri(n_q, n_k, shift, dtype=bool), shift


@st.composite
def dead_masks(draw: Draw, n_q: int, n_k: int, lead: tuple[int, ...] = ()) -> Any:
    """Masks (…, n_q, n_k) in which some query may attend to no key: one, all, those of one problem, some, or the first ones."""
    mask = draw(live_masks(n_q, n_k, lead))
    row, kind = draw(st.integers(0, n_q - 1)), draw(st.sampled_from(["one", "all", "problem", "some", "first"]))
    if kind == "problem":
        mask[(0,) * len(lead)] = False
    elif kind == "some":
        mask[np.random.default_rng(row).random(mask.shape[:-1]) < 0.5] = False
        mask[..., row, :] = False
    else:
        mask[..., {"one": slice(row, row + 1), "all": slice(None), "first": slice(row + 1)}[kind], :] = False
    return mask


@st.composite
def attention_vjp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out); options as for `attention`."""
    q, k, v, mask = draw(attention(i, **options))
    return q, k, v, mask, draw(numbers(i, (*q.shape[:-1], v.shape[-1]), SCALES))


@st.composite
def attention_jvp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(q, k, v, mask, dq, dk, dv); options as for `attention`."""
    q, k, v, mask = draw(attention(i, **options))
    return q, k, v, mask, *(draw(numbers(i, x.shape)) for x in (q, k, v))


def causal_attention(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(q, k, v); where the alignment is bottom right, at least as many keys as queries, so that no query is dead."""

    def alive(q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, ...]:
        shorter = q[..., : k.shape[-2], :] if i.reading.causal == "bottom_right" else q
        return shorter, k, v

    return attention(i, masks=lambda *_: st.none(), **options).map(lambda case: alive(*case))


@st.composite
def grouped(
    draw: Draw,
    i: Implementation,
    *,
    lengths: Sequence[int] = SHORT[:8],
    keys: Sequence[int] | None = None,
    masks: Masks = masks_or_none,
    widths: Sequence[int] = WIDTHS,
    kv_heads: Sequence[int] = (1, 2, 3),
    groups: Sequence[int] = (1, 2, 3),
) -> tuple[Any, ...]:
    """(q, k, v, mask) with some heads of keys, each read by a group of query heads; lengths as for `attention`."""
    n_q = draw(sizes(i, "n_q", lengths))
    n_k = draw(sizes(i, "n_k", lengths if keys is None else keys, minus=("n_q", n_q)))
    few = draw(sizes(i, "kv_heads", kv_heads))
    heads = draw(sizes(i, "num_heads", [few * group for group in groups]))
    d = draw(sizes(i, "head_dim", widths))
    d_v = draw(sizes(i, "value_dim", widths, minus=("head_dim", d)))
    *lead, _ = draw(batches(i, 1) if n_q * n_k <= _LARGE else batches(i, 1, (1,)))
    q = draw(numbers(i, (*lead, heads, n_q, d), LOGITS))
    k, v = (draw(numbers(i, (*lead, few, n_k, width))) for width in (d, d_v))
    return q, k, v, draw(masks(n_q, n_k, (*lead, heads)))


@st.composite
def softmax(
    draw: Draw,
    i: Implementation,
    *,
    masks: Masks = masks_or_none,
    lengths: Sequence[int] = SHORT,
    keys: Sequence[int] | None = None,
    logits: Sequence[float] = LOGITS,
) -> tuple[Any, ...]:
    """(scores, mask); `keys` are lengths of the rows only."""
    n_q, n_k = draw(sizes(i, "n_q", lengths)), draw(sizes(i, "n_k", lengths if keys is None else keys))
    lead = draw(batches(i) if n_q * n_k <= _LARGE else batches(i, 0, (1, 1, 2)))
    return draw(numbers(i, (*lead, n_q, n_k), logits)), draw(masks(n_q, n_k, lead))


@st.composite
def softmax_vjp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(scores, mask, grad_weights); options as for `softmax`."""
    scores, mask = draw(softmax(i, **options))
    return scores, mask, draw(numbers(i, scores.shape, SCALES))
