"""Attention over quantised queries, keys and values: each array holds codes, numbers on a small
grid, and a scale says what a code stands for.

This module is not TorchLean's: see `spec.extended`. The number of a code is code × scale, or code ÷
scale if fp8_scale is "divide"; attention of these numbers is the result. The codes are
the inputs, so quantising costs nothing here. The grids, by name:

    E4M3, E5M2    floating-point numbers of 8 bits, with 4 and 5 bits for the exponent
    E2M1          floating-point numbers of 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
    INT8, INT4    the integers −128 … 127 and −8 … 7

A scale is a finite number above 0. Its shape says what shares it, for an array (…, H, n, d):

    ()                       all codes
    (…, HKv)                 the codes of a head; a query head uses the scale of its key head
    (…, H, n)                the codes of a row (token)
    (…, H, n, blocks)        the codes of d / blocks neighbouring channels of a row

Sources: OCP, Microscaling Formats (MX) Specification 1.0, 2023; flash-attention, `q_descale`,
`k_descale`, `v_descale`; vLLM, FP8 key-value caches; NVIDIA, NVFP4
"""

from typing import Any

import numpy as np

from spec.context import Context, Scalar
from spec.extended.arguments import finite, positive
from spec.extended.attention import attention
from spec.extended.attention_steps import group_of
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, tabulate

__all__ = ["GRIDS", "dequantised", "quantised_attention"]


def _floats(bits: int, least: int, most: float) -> frozenset[float]:
    """Return the numbers ±m·2ᵉ up to `most`, with m below 2^bits and e from `least` on."""
    sizes = {m * 2.0**e for e in range(least, 16) for m in range(2**bits) if m * 2.0**e <= most}
    return frozenset(sign * size for sign in (1, -1) for size in sizes)


GRIDS: dict[str, frozenset[float]] = {
    "E4M3": _floats(4, -9, 448.0),
    "E5M2": _floats(3, -16, 57344.0),
    "E2M1": _floats(2, -1, 6.0),
    "INT8": frozenset(map(float, range(-128, 128))),
    "INT4": frozenset(map(float, range(-8, 8))),
}
"""The finite numbers of each grid."""


@definition()
def dequantised(
    codes: Any, scale: Any, grid: str, fp8_scale: str = "multiply", heads: int = 0, scalar: Context | None = None
) -> Tensor[Array, "*batch H n d"]:
    """Return the numbers that codes (…, H, n, d) on a grid stand for: code × scale, or code ÷ scale
    if `fp8_scale` is "divide".

    `heads` is the number of key heads, to which scales per head belong; 0 stands for H.

    Edge cases: no codes, and blocks of a single channel, are legal.
    Raises ValueError for an unknown grid, a code that is not on the grid (NaN and ±∞ never are), a
    scale that is not a finite number above 0, and a scale of another shape than the module lists.

    >>> from spec import REAL64
    >>> codes = np.array([[[1.5, -448.0]], [[0.0, 2.0]]])  # two heads with a row of two channels each
    >>> dequantised(codes, np.array([2.0, 0.5]), "E4M3", scalar=REAL64).tolist()
    [[[3.0, -896.0]], [[0.0, 1.0]]]
    >>> dequantised(codes, np.array(2.0), "E4M3", "divide", scalar=REAL64).tolist()
    [[[0.75, -224.0]], [[0.0, 1.0]]]
    """
    if grid not in GRIDS:
        raise ValueError(f"grid={grid!r}, but should be one of {', '.join(GRIDS)}.")
    if fp8_scale not in ("multiply", "divide"):
        raise ValueError(f"fp8_scale={fp8_scale!r}, but should be 'multiply' or 'divide'.")
    codes = _in_rows(codes, "codes")
    scales = _of_each_code(np.asarray(scale), codes.shape, heads or codes.shape[-3])

    def number(*index: int) -> Scalar:
        code, factor = alpha.lift(_on(grid, codes[index], index)), positive(scales[index], "scale")
        return code * factor if fp8_scale == "multiply" else alpha.div(code, factor)

    return tabulate(codes.shape, number)


@definition()
def quantised_attention(
    q: Any, k: Any, v: Any, grid: str, scalar: Context | None = None, **options: Any
) -> tuple[Tensor[Array, "*batch H nQ dV"], Tensor[Array, "*batch H nQ"]]:
    """Return (out, lse) of attention of the numbers that the codes stand for:

        attention(q ⊙ q_scale, k ⊙ k_scale, v ⊙ v_scale)

    with ÷ in place of ⊙ if fp8_scale is "divide". The options are q_scale, k_scale, v_scale,
    fp8_scale, and all options of `spec.extended.attention`. An array without a scale is not quantised: it
    holds any numbers.

    Edge cases: see `attention` and `dequantised`. Codes that no query sees are checked too.

    >>> from spec import REAL64
    >>> q, k, v = np.ones((1, 1, 1)), np.array([[[0.0], [2.0]]]), np.array([[[1.0], [3.0]]])
    >>> scales = {"k_scale": np.array(np.log(3.0) / 2), "v_scale": np.array([0.5])}  # weights 1/4 and 3/4
    >>> out, lse = quantised_attention(q, k, v, "INT8", scale=1.0, scalar=REAL64, **scales)
    >>> out.round(6).tolist(), np.exp(lse).round(6).tolist()
    ([[[1.25]]], [[4.0]])
    """
    given = {name: options.pop(f"{name}_scale", None) for name in "qkv"}
    q, k, v = (_in_rows(codes, name) for codes, name in ((q, "q"), (k, "k"), (v, "v")))
    fp8_scale, heads = options.pop("fp8_scale", "multiply"), k.shape[-3]
    numbers = (
        tabulate(codes.shape, lambda *index, x=codes: alpha.lift(float(x[index])))
        if given[name] is None
        else dequantised(codes, given[name], grid, fp8_scale, heads)
        for name, codes in (("q", q), ("k", k), ("v", v))
    )
    return attention(*numbers, **options)


def _in_rows(codes: Any, name: str) -> Array:
    """Return codes as an array. Raises ValueError if it has fewer axes than (H, n, d)."""
    array: Array = np.asarray(codes)
    if array.ndim < 3:
        raise ValueError(f"{name} has shape {array.shape}, but should be (…, H, n, d).")
    return array


def _on(grid: str, code: Any, index: tuple[int, ...]) -> float:
    """Return a code as a float. Raises ValueError if it is not on the grid."""
    number = float(code)
    finite(number, f"codes{list(index)}", f"a number of {grid}")
    if number not in GRIDS[grid]:
        raise ValueError(f"codes{list(index)}={number}, but should be a number of {grid}.")
    return number


def _of_each_code(scale: Array, shape: tuple[int, ...], key_heads: int) -> Array:
    """Return the scale of each code of an array of `shape`."""
    *batch, heads, n, d = shape
    each: Array = scale
    if scale.shape == (*batch, key_heads):
        each = np.repeat(scale, group_of(heads, key_heads), -1)[..., None, None]
    elif scale.shape == (*batch, heads, n):
        each = scale[..., None]
    elif scale.ndim == len(shape) and scale.shape[:-1] == shape[:-1] and scale.shape[-1] and d % scale.shape[-1] == 0:
        each = np.repeat(scale, d // scale.shape[-1], -1)
    elif scale.shape:
        shapes = f"(), {(*batch, key_heads)}, {(*batch, heads, n)}, or {(*batch, heads, n)} and blocks that divide {d}"
        raise ValueError(f"scale has shape {scale.shape}, but should be {shapes}.")
    return np.broadcast_to(each, shape)
