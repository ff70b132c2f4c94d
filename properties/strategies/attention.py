"""Cases of attention, of its derivatives, of grouped queries and of softmax."""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.strategies.arrays import SHORT, WIDTHS, Draw, batches, masks_or_none, numbers, sizes

__all__ = [
    "EXTREME",
    "LOGITS",
    "SCALES",
    "attention",
    "attention_jvp",
    "attention_vjp",
    "causal_attention",
    "grouped",
    "softmax",
    "softmax_vjp",
]

SCALES = (1.0, 0.125, 8.0)
LOGITS = (1.0, 0.25, 8.0)
"""Factors of q: logits to a few hundred at most, where budgets of gradients still say something mostly."""

EXTREME = (64.0, 256.0, 1024.0)
"""Factors of q that bring logits to ±1e4."""

Masks = Callable[[int, int, tuple[int, ...]], st.SearchStrategy[Any]]


@st.composite
def attention(
    draw: Draw,
    i: Implementation,
    *,
    lengths: Sequence[int] = SHORT,
    widths: Sequence[int] = WIDTHS,
    masks: Masks = masks_or_none,
    logits: Sequence[float] = LOGITS,
    rank: int = 0,
) -> tuple[Any, ...]:
    """(q, k, v, mask) with at least `rank` leading axes; `masks(n_q, n_k, lead)` draws the mask."""
    lead = draw(batches(i, rank))
    n_q = draw(sizes(i, "n_q", lengths))
    n_k = draw(sizes(i, "n_k", lengths, minus=("n_q", n_q)))
    d = draw(sizes(i, "head_dim", widths))
    d_v = draw(sizes(i, "value_dim", widths, minus=("head_dim", d)))
    q = draw(numbers(i, (*lead, n_q, d), logits))
    k = draw(numbers(i, (*lead, n_k, d)))
    v = draw(numbers(i, (*lead, n_k, d_v), SCALES))
    return q, k, v, draw(masks(n_q, n_k, lead))


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
def grouped(draw: Draw, i: Implementation, *, lengths: Sequence[int] = SHORT[:8], masks: Masks = masks_or_none) -> tuple[Any, ...]:
    """(q, k, v, mask) with 1 to 3 heads of keys, each read by 1 to 3 heads of queries."""
    *lead, _ = draw(batches(i, least=1))
    kv_heads = draw(sizes(i, "kv_heads", (1, 2, 3)))
    heads = draw(sizes(i, "num_heads", [kv_heads * group for group in (1, 2, 3)]))
    n_q = draw(sizes(i, "n_q", lengths))
    n_k = draw(sizes(i, "n_k", lengths, minus=("n_q", n_q)))
    d = draw(sizes(i, "head_dim", WIDTHS))
    d_v = draw(sizes(i, "value_dim", WIDTHS, minus=("head_dim", d)))
    q = draw(numbers(i, (*lead, heads, n_q, d), LOGITS))
    k, v = (draw(numbers(i, (*lead, kv_heads, n_k, width))) for width in (d, d_v))
    return q, k, v, draw(masks(n_q, n_k, (*lead, heads)))


@st.composite
def softmax(
    draw: Draw, i: Implementation, *, masks: Masks = masks_or_none, lengths: Sequence[int] = SHORT, logits: Sequence[float] = LOGITS
) -> tuple[Any, ...]:
    """(scores, mask)."""
    lead = draw(batches(i))
    n_q, n_k = draw(sizes(i, "n_q", lengths)), draw(sizes(i, "n_k", lengths))
    return draw(numbers(i, (*lead, n_q, n_k), logits)), draw(masks(n_q, n_k, lead))


@st.composite
def softmax_vjp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(scores, mask, grad_weights); options as for `softmax`."""
    scores, mask = draw(softmax(i, **options))
    return scores, mask, draw(numbers(i, scores.shape, SCALES))
