"""Cases of multi-head attention and of its derivatives."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import Array
from properties.implementation import Implementation
from properties.strategies.arrays import Draw, batches, bits, cuts, fixed_points, masks_or_none, numbers, orders, sizes
from properties.strategies.attention import Masks
from properties.strategies.masks import padded_masks

__all__ = [
    "HEAD_WIDTHS",
    "TOKENS",
    "batched_vjp",
    "causal_tokens",
    "causal_tokens_vjp",
    "multi_head",
    "multi_head_jvp",
    "multi_head_vjp",
    "one_selecting_head",
    "permuted_heads",
    "pointing",
    "signed",
    "unread_tokens",
]

TOKENS = (2, 3, 1, 4, 5, 8, 9)
"""Numbers of tokens of everyday cases."""

HEAD_WIDTHS = (1, 2, 3, 4, 8, 16, 5, 24, 32)
"""Widths of heads: kernels have paths of their own for multiples of 8."""


def _scale(model: int) -> float:
    """A power of two by which weights make everyday projections, and scores, of tokens of size 8."""
    return float(2.0 ** -round(math.log2(8 * math.sqrt(model))))


@st.composite
def multi_head(
    draw: Draw,
    /,
    i: Implementation,
    *,
    masks: Masks = masks_or_none,
    lengths: Sequence[int] = TOKENS,
    widths: Sequence[int] = HEAD_WIDTHS,
    heads: Sequence[int] = (1, 2, 3, 4),
    square: bool = False,
    rank: int = 0,
) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask); the model is as wide as its heads together, or has another width unless `square`.

    There are at least `rank` leading axes.
    """
    n = draw(sizes(i, "seq_len", lengths))
    num_heads = draw(sizes(i, "num_heads", heads))
    width = num_heads * draw(sizes(i, "head_dim", widths))
    model = draw(sizes(i, "model_dim", (width,) if square else (1, 2, 3, 5), minus=("heads_width", width)))
    lead = draw(batches(i, rank, (2, 3, 2, 3, 1) if rank else (1, 2, 3)))
    x = draw(numbers(i, (*lead, n, model)))
    scales = [_scale(model) * factor for factor in (1.0, 0.25, 4.0)]
    wq, wk, wv = (draw(numbers(i, (model, width), scales)) for _ in range(3))
    wo = draw(numbers(i, (width, model), (_scale(width), 1.0)))
    return x, wq, wk, wv, wo, num_heads, draw(masks(n, n, lead))


@st.composite
def multi_head_vjp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask, grad_out); options as for `multi_head`."""
    case = draw(multi_head(i, **options))
    return *case, draw(numbers(i, case[0].shape))


@st.composite
def multi_head_jvp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask, dx, dwq, dwk, dwv, dwo); options as for `multi_head`.

    Tangents of weights are of the size of weights.
    """
    case = draw(multi_head(i, **options))
    model, width = case[1].shape
    return (
        *case,
        draw(numbers(i, case[0].shape)),
        *(draw(numbers(i, w.shape, (_scale(n),))) for w, n in zip(case[1:5], (*[model] * 3, width), strict=True)),
    )


def signed(n: int) -> st.SearchStrategy[Array]:
    """Matrices (n, n) with one ±1 in each row and column; the simplest exchanges first and last."""
    signs = bits(n).map(lambda plus: np.where(plus, 1.0, -1.0))
    return st.builds(lambda order, sign: np.eye(n)[order] * sign, orders(n), signs)


@st.composite
def one_selecting_head(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, 1, mask) whose projections choose and scale lanes of x, so that they are numbers of the inputs' format."""
    x, wq, wk, wv, wo, heads, mask = draw(multi_head(i, heads=(1,)))

    def selection(w: Array, power: float) -> Array:
        seed = draw(st.integers(0, 2**16))
        lanes = np.random.default_rng(seed).integers(0, len(w), w.shape[1]) if seed else np.arange(w.shape[1]) % len(w)
        return np.eye(len(w))[:, lanes] * power

    powers = (draw(st.sampled_from([0.25, -0.125, 1.0])) for _ in range(3))
    return draw(fixed_points(i, x.shape)), *(selection(w, p) for w, p in zip((wq, wk, wv), powers, strict=True)), wo, heads, mask


@st.composite
def permuted_heads(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask, lanes, values): two orders and signs of all lanes that keep heads together, in one order."""
    case = draw(multi_head(i, heads=(2, 1, 3, 4)))
    heads, width = case[5], case[1].shape[1]
    d = width // heads
    order = draw(orders(heads))

    def within() -> tuple[Any, Array]:
        return np.concatenate([h * d + draw(orders(d)) for h in order]), np.where(draw(bits(width)), 1.0, -1.0)

    return *case, within(), within()


@st.composite
def pointing(draw: Draw, i: Implementation, *, square: bool = False) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask, target) where token i of a problem may attend to the problem's token target[…, i] only."""
    *case, _ = draw(multi_head(i, square=square))
    *lead, n, _ = case[0].shape
    found = [draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n) | orders(n)) for _ in np.ndindex(*lead)]
    target = np.reshape(found, (*lead, n))
    return *case, np.eye(n, dtype=bool)[target], target


@st.composite
def causal_tokens(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask, count) under the causal mask, with a number of first tokens that is supported too."""
    *case, _ = draw(multi_head(i, lengths=(*TOKENS, *TOKENS, 16, 17, 32, 33, 64, 65, 100, 128, 129), masks=lambda *_: st.none()))
    n = case[0].shape[-2]
    return *case, np.tri(n, dtype=bool), draw(cuts(n, lambda m: i.allows(seq_len=m)))


@st.composite
def causal_tokens_vjp(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(count, x, wq, wk, wv, wo, num_heads, mask, grad_out) as in `causal_tokens`."""
    *case, count = draw(causal_tokens(i))
    return count, *case, draw(numbers(i, case[0].shape))


def batched_vjp(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    """(x, wq, wk, wv, wo, num_heads, mask, grad_out) with leading axes."""
    batches(i, 1)  # raises where it takes none
    return multi_head_vjp(i, rank=1)


@st.composite
def unread_tokens(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask) with tokens that no token may attend to."""
    return draw(multi_head(i, lengths=(*TOKENS, *TOKENS, 16, 17, 33, 65), masks=padded_masks))
