"""What the operations are tried on: Hypothesis strategies over the whole legal range, which shrink towards short sizes and small numbers.

Entries are multiples of 1/16 up to 8, times a power of two: exact in every floating-point type, so that all implementations get the same
numbers; with the largest power logits reach ±1e4. They are drawn as bytes, which is fast and shrinks to zeros.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from spec.tensor_core import Array

__all__ = [
    "attention_cases",
    "attention_jvp_cases",
    "attention_vjp_cases",
    "causal_cases",
    "multi_head_cases",
    "rope_cases",
    "sinusoid_cases",
]

Draw = Callable[[st.SearchStrategy[Any]], Any]

LENGTHS = st.integers(1, 6) | st.sampled_from([8, 9, 16, 17, 33])
WIDTHS = st.integers(1, 5) | st.sampled_from([0, 8, 9])
POSITIONS = st.integers(0, 16) | st.sampled_from([255, 256, 1023, 4096, 65535])


@st.composite
def arrays(draw: Draw, shape: tuple[int, int], implementation: Implementation, scales: tuple[float, ...] = (1.0, 8.0)) -> Array:
    """A matrix of the shape: contiguous, or a view with strided rows, or transposed in memory where the implementation takes that."""
    size = shape[0] * shape[1]
    entries = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.int8).reshape(shape)
    matrix = (entries / 16 * draw(st.sampled_from(scales))).astype(
        "float32" if implementation.dtype == "bfloat16" else implementation.dtype
    )
    layout = draw(st.sampled_from(["contiguous", "rows"] if implementation.unit_last_stride else ["contiguous", "rows", "columns"]))
    if layout == "rows":
        return np.repeat(matrix, 2, axis=0)[::2]
    return np.asfortranarray(matrix) if layout == "columns" else matrix


@st.composite
def masks(draw: Draw, nQ: int, nK: int, dead_rows: bool) -> Array:
    """A mask in which every row allows a key, or, with `dead_rows`, at least one row allows none: some, or all of them."""
    bits = np.array(draw(st.lists(st.booleans(), min_size=nQ * nK, max_size=nQ * nK)), bool).reshape(nQ, nK)
    if dead_rows:
        bits[draw(st.lists(st.integers(0, nQ - 1), min_size=1, max_size=nQ))] = False
    else:
        for row in np.flatnonzero(~bits.any(1)):
            bits[row, draw(st.integers(0, nK - 1))] = True
    return bits


def _mask(draw: Draw, masked: str, nQ: int, nK: int) -> Array | None:
    if masked == "none":
        return None
    mask: Array | None = draw(masks(nQ, nK, dead_rows=masked == "dead rows"))
    if masked == "some":
        mask = draw(st.sampled_from([None, np.tri(nQ, dtype=bool) if nQ == nK else None, mask]))
    return mask


@st.composite
def attention_cases(draw: Draw, implementation: Implementation, masked: str) -> tuple[Any, ...]:
    """(q, k, v, mask); `masked` is "none", "mixed", "dead rows", or "some" for either none, a causal or a mixed one."""
    nQ, nK, d = draw(LENGTHS), draw(LENGTHS), draw(WIDTHS)
    q = draw(arrays((nQ, d), implementation, scales=(1.0, 8.0, 64.0)))
    k, v = (draw(arrays((nK, d), implementation)) for _ in range(2))
    return q, k, v, _mask(draw, masked, nQ, nK)


@st.composite
def causal_cases(draw: Draw, implementation: Implementation) -> tuple[Any, ...]:
    """(q, k, v) of one length."""
    n, d = draw(LENGTHS), draw(WIDTHS)
    return tuple(draw(arrays((n, d), implementation, scales=(1.0, 8.0, 64.0) if i == 0 else (1.0, 8.0))) for i in range(3))


def _like(draw: Draw, implementation: Implementation, *xs: Array) -> tuple[Array, ...]:
    """One array for each of xs, of its shape. Cotangents and tangents are contiguous: their layouts are another matter than the inputs'."""
    return tuple(np.ascontiguousarray(draw(arrays(x.shape, implementation))) for x in xs)


@st.composite
def attention_vjp_cases(draw: Draw, implementation: Implementation, masked: str) -> tuple[Any, ...]:
    """(q, k, v, mask, grad_out)."""
    q, k, v, mask = draw(attention_cases(implementation, masked))
    return q, k, v, mask, *_like(draw, implementation, q)


@st.composite
def attention_jvp_cases(draw: Draw, implementation: Implementation, masked: str) -> tuple[Any, ...]:
    """(q, k, v, mask, dq, dk, dv)."""
    q, k, v, mask = draw(attention_cases(implementation, masked))
    return q, k, v, mask, *_like(draw, implementation, q, k, v)


@st.composite
def multi_head_cases(draw: Draw, implementation: Implementation, masked: str) -> tuple[Any, ...]:
    """(x, wq, wk, wv, wo, num_heads, mask), the model as wide as its heads together."""
    n, num_heads, head_dim = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    width = num_heads * head_dim
    matrix = partial(arrays, implementation=implementation, scales=(1.0,))
    x, wq, wk, wv, wo = (draw(matrix(shape)) for shape in [(n, width), *[(width, width)] * 4])
    return x, wq, wk, wv, wo, num_heads, _mask(draw, masked, n, n)


def _width(draw: Draw, implementation: Implementation) -> int:
    return draw(WIDTHS.map(lambda d: d // 2 * 2) if implementation.even_dims else WIDTHS)  # type: ignore[no-any-return]


@st.composite
def sinusoid_cases(draw: Draw, implementation: Implementation) -> tuple[int, int, int]:
    """(seq_len, embed_dim, start_pos), zeros and odd widths included."""
    return draw(st.integers(0, 5)), draw(WIDTHS), draw(POSITIONS)


@st.composite
def rope_cases(draw: Draw, implementation: Implementation) -> tuple[Array, int]:
    """(x, start_pos)."""
    return draw(arrays((draw(st.integers(0, 5)), _width(draw, implementation)), implementation)), draw(POSITIONS)
