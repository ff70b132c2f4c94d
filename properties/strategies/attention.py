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
    "causal_attention",
    "extreme_attention",
    "softmax",
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
    value_widths: Sequence[int] | None = None,
    masks: Masks = masks_or_none,
    logits: Sequence[float] = LOGITS,
    rank: int = 0,
    batch: Sequence[int] = (1, 2, 3),
) -> tuple[Any, ...]:
    """(q, k, v, mask) with at least `rank` leading axes of the sizes `batch`; `masks(n_q, n_k, lead)` draws the mask.

    `keys` are the lengths of k and v, and `value_widths` the widths of v, where they are not those of all.
    """
    n_q = draw(sizes(i, "n_q", lengths))
    n_k = draw(sizes(i, "n_k", lengths if keys is None else keys, minus=("n_q", n_q)))
    d = draw(sizes(i, "head_dim", widths))
    d_v = draw(sizes(i, "value_dim", widths if value_widths is None else value_widths, minus=("head_dim", d)))
    lead = draw(batches(i, rank, batch if n_q * n_k <= _LARGE else (*batch[:2], 1)))
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


def causal_attention(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(q, k, v); where the alignment is bottom right, at least as many keys as queries, so that no query is dead."""

    def alive(q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, ...]:
        shorter = q[..., : k.shape[-2], :] if i.reading.causal == "bottom_right" else q
        return shorter, k, v

    return attention(i, masks=lambda *_: st.none(), **options).map(lambda case: alive(*case))


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
