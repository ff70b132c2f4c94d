"""What the operations are tried on: Hypothesis strategies over the whole legal range, which shrink towards short sizes and small numbers.

Half of the arrays hold multiples of 1/16 up to 8, drawn as bytes, which is fast and shrinks to zeros; the others normally distributed
numbers with all the bits that the type has, from a drawn seed. Both are multiplied by a power of two, so that logits reach ±1e4.
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
WIDTHS = st.integers(1, 5) | st.sampled_from([8, 9, 16])
POSITIONS = st.integers(0, 16) | st.sampled_from([255, 256, 1023, 4096, 65535])
SCALES = (1.0, 1.0, 8.0)
LARGE = (1.0, 1.0, 8.0, 64.0)


@st.composite
def arrays(draw: Draw, shape: tuple[int, int], implementation: Implementation, scales: tuple[float, ...] = SCALES) -> Array:
    """A matrix of the shape: contiguous, or a view with strided rows, or transposed in memory where the implementation takes that."""
    size = shape[0] * shape[1]
    on_grid = st.binary(min_size=size, max_size=size).map(lambda b: np.frombuffer(b, np.int8) / 16)
    full = st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).standard_normal(size))
    entries = draw(st.one_of(on_grid, full)).reshape(shape) * draw(st.sampled_from(scales))
    matrix = entries.astype(implementation.input_dtype)
    if implementation.dtype == "bfloat16":
        matrix = (matrix.view(np.uint32) & 0xFFFF0000).view(np.float32)  # the float32 numbers that are bfloat16 numbers as well
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
def attention_cases(draw: Draw, implementation: Implementation, masked: str, width: int | None = None) -> tuple[Any, ...]:
    """(q, k, v, mask); `masked` is "none", "mixed", "dead rows", or "some" for either none, a causal or a mixed one."""
    nQ, nK, d = draw(LENGTHS), draw(LENGTHS), draw(WIDTHS) if width is None else width
    q = draw(arrays((nQ, d), implementation, scales=LARGE))
    k, v = (draw(arrays((nK, d), implementation)) for _ in range(2))
    return q, k, v, _mask(draw, masked, nQ, nK)


@st.composite
def causal_cases(draw: Draw, implementation: Implementation) -> tuple[Any, ...]:
    """(q, k, v) of one length."""
    n, d = draw(LENGTHS), draw(WIDTHS)
    return tuple(draw(arrays((n, d), implementation, scales=LARGE if i == 0 else SCALES)) for i in range(3))


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
    heads = st.sampled_from([2, 4]) if implementation.even_heads else st.integers(1, 4)
    n, num_heads, head_dim = draw(st.integers(1, 6)), draw(heads), draw(st.integers(1, 4))
    width = num_heads * head_dim
    matrix = partial(arrays, implementation=implementation, scales=(1.0,))
    x, wq, wk, wv, wo = (draw(matrix(shape)) for shape in [(n, width), *[(width, width)] * 4])
    return x, wq, wk, wv, wo, num_heads, _mask(draw, masked, n, n)


@st.composite
def sinusoid_cases(draw: Draw, implementation: Implementation, empty: bool = False) -> tuple[int, int, int]:
    """(seq_len, embed_dim, start_pos), odd widths included; `empty` has no rows or no columns."""
    seq_len, embed_dim = draw(_sizes(st.integers(1, 5), WIDTHS, empty))
    return seq_len, embed_dim, draw(POSITIONS)


@st.composite
def rope_cases(draw: Draw, implementation: Implementation, empty: bool = False) -> tuple[Array, int]:
    """(x, start_pos); `empty` has no rows or no columns."""
    widths = st.integers(1, 8).map(lambda half: 2 * half) if implementation.even_dims else WIDTHS
    return draw(arrays(draw(_sizes(st.integers(1, 5), widths, empty)), implementation)), draw(POSITIONS)


def _sizes(lengths: st.SearchStrategy[int], widths: st.SearchStrategy[int], empty: bool) -> st.SearchStrategy[tuple[int, int]]:
    if empty:
        return st.tuples(st.just(0), widths) | st.tuples(lengths, st.just(0)) | st.just((0, 0))
    return st.tuples(lengths, widths)
