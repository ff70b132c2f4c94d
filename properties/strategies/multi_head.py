"""Cases of multi-head attention and of its derivatives."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.strategies.arrays import Draw, batches, masks_or_none, numbers, sizes
from properties.strategies.attention import Masks

__all__ = ["multi_head", "multi_head_jvp", "multi_head_vjp"]


@st.composite
def multi_head(
    draw: Draw,
    i: Implementation,
    *,
    masks: Masks = masks_or_none,
    lengths: Sequence[int] = (1, 2, 3, 4, 5, 8, 9),
    widths: Sequence[int] = (1, 2, 3, 4, 8, 16),
    heads: Sequence[int] = (1, 2, 3, 4),
) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask); the model is as wide as the heads together, or, where that is supported, another width."""
    lead = draw(batches(i))
    n = draw(sizes(i, "seq_len", lengths))
    num_heads = draw(sizes(i, "num_heads", heads))
    width = num_heads * draw(sizes(i, "head_dim", widths))
    model = draw(sizes(i, "model_dim", (1, 2, 3, 5), minus=("heads_width", width)))
    x = draw(numbers(i, (*lead, n, model)))
    scale = (0.25,) if model * width > 16 else (0.25, 1.0)
    wq, wk, wv, wo = (draw(numbers(i, shape, scale)) for shape in [(model, width)] * 3 + [(width, model)])
    return x, wq, wk, wv, wo, num_heads, draw(masks(n, n, lead))


@st.composite
def multi_head_vjp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask, grad_out); options as for `multi_head`."""
    case = draw(multi_head(i, **options))
    return *case, draw(numbers(i, case[0].shape))


@st.composite
def multi_head_jvp(draw: Draw, /, i: Implementation, **options: Any) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask, dx, dwq, dwk, dwv, dwo); options as for `multi_head`."""
    case = draw(multi_head(i, **options))
    return *case, *(draw(numbers(i, w.shape)) for w in case[:5])
