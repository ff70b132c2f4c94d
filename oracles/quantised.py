"""Quantised queries, keys and values: codes on a grid, and scales that say what a code stands for.

    number = code × scale    or    code ÷ scale under `conventions.fp8_scale` = divide

**The certified value.** Codes and scales are numbers of binary32, of 24 bits. So a product has 48
bits and an exponent from −298 to 256: float64 holds it exactly. A quotient is within half a spacing
of the float64 number next to it, or exact for a scale that is a power of two; ball arithmetic
divides exact rationals.

**The budget.** A kernel may compute the number of each code in `elementwise`. Then each operand of a
product has at most three roundings: of the reciprocal of a scale, of the product of two scales, and
of the product with the code. Or it multiplies codes and scales their sum: s = Σ q·k · (q_scale ·
k_scale · scale) has at most two reciprocals, two products of scales and the product with the sum, five
roundings of |s| ≤ R, below the six of two operands; blocks of channels have one such sum each. The sum
over keys of weights and values is scaled by at most three roundings too. So all forms are those of a
kernel whose operands have a relative error of γ₃(u) (`Arithmetic.product`). A kernel that rounds its
numbers to 16 bits before the product states it by its own `product`.

Source: OCP, Microscaling Formats (MX) Specification 1.0; flash-attention's descales; vLLM's scales.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq

from oracles import arrays
from oracles.arb_matrix import Rationals
from oracles.ball import Array, gamma
from oracles.conventions import Conventions
from oracles.formats import BINARY32, Arithmetic

__all__ = ["Numbers", "codes_of", "dequantised", "of_each_code", "of_each_row", "of_rows", "with_dequantising"]

FORMATS = {"q": "queries", "k": "keys", "v": "values"}
"""The field of an arithmetic that has the grid of an array."""


class Numbers(NamedTuple):
    """The numbers that an array stands for: float64 values, the radii around them (None for 0), and
    the exact quotients (None where the values are exact).
    """

    values: Array
    radii: Array | None = None
    quotients: Rationals | None = None

    def changed(self, change: Callable[[Any], Any]) -> "Numbers":
        """Return the numbers in another shape or order."""
        radii, quotients = (None if x is None else change(x) for x in self[1:])
        return Numbers(change(self.values), radii, quotients)


def codes_of(x: Any, name: str, arithmetic: Arithmetic | None) -> Array:
    """Return the codes of q, k or v, or of pages, as float64. Under an arithmetic they are on its grid."""
    grid = None if arithmetic is None else getattr(arithmetic, FORMATS[name[0]])
    if arithmetic is not None and grid is not None:
        arithmetic = replace(arithmetic, inputs=grid)
    return arrays.code_array(x, name, arithmetic=arithmetic)


def dequantised(
    codes: tuple[Array, Array, Array], given: Mapping[str, Any], conventions: Conventions
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the numbers that the codes of q, k and v (…, H, n, d) stand for, given their scales; an
    array without a scale (None) has the numbers that it stands for.

    Raises ValueError for codes that are not finite numbers of binary32, and for a scale that
    `of_each_code` refuses.
    """
    key_heads, is_tiled = codes[1].shape[-3], conventions.kv_heads == "tile"

    def numbers(name: str, x: Array) -> Numbers:
        if given[name] is None:
            return Numbers(x)
        if not np.isfinite(x).all():
            raise ValueError(f"{name} has a NaN or ±∞, but codes with a scale should be finite.")
        arrays.require_representable(x, name, BINARY32)
        scale = of_each_code(given[name], f"{name}_scale", x.shape, key_heads, is_tiled=is_tiled)
        if conventions.fp8_scale == "multiply":
            return Numbers(x * scale)
        values, is_exact = x / scale, np.frexp(scale)[0] == 0.5
        if is_exact.all():
            return Numbers(values)
        return Numbers(values, np.where(is_exact, 0.0, np.spacing(np.abs(values)) / 2), _quotients(x, scale))

    q, k, v = (numbers(name, x) for name, x in zip(FORMATS, codes, strict=True))
    return q, k, v


def scale_array(given: Any, name: str) -> Array:
    """Return a scale as float64. Raises ValueError unless it has finite numbers of binary32 above 0."""
    scale = arrays.float_array(given, name, number=True)
    arrays.require_representable(scale, name, BINARY32)
    if not ((scale > 0) & (scale < np.inf)).all():
        raise ValueError(f"{name} has a number that is NaN, infinite or at most 0, but scales should be above 0.")
    return scale


def of_each_code(given: Any, name: str, shape: tuple[int, ...], key_heads: int, *, is_tiled: bool = False) -> Array:
    """Return the scale of each code of an array of `shape` (…, H, n, d), as float64.

    The scale has the shape (), (…, H_kv), (…, H, n), or (…, H, n, blocks) where blocks divide d. In the
    last case axes of size 1 are broadcast, so that a query head may have a scale of its own.
    """
    scale = scale_array(given, name)
    *batch, heads, n, d = shape
    if scale.shape == (*batch, key_heads):
        group = heads // max(key_heads, 1)
        each = np.tile(scale, group) if is_tiled else np.repeat(scale, group, -1)
        return np.broadcast_to(each[..., None, None], shape)
    if scale.shape == (*batch, heads, n):
        return np.broadcast_to(scale[..., None], shape)
    blocks = scale.shape[-1] if scale.ndim else 1
    fits = all(size in (1, full) for size, full in zip(scale.shape[:-1], shape[:-1], strict=False))
    if scale.ndim not in (0, len(shape)) or not fits or not blocks or d % blocks:
        shapes = f"(), {(*batch, key_heads)}, {(*batch, heads, n)}, or {(*batch, heads, n)} and blocks that divide {d}"
        raise ValueError(f"{name} has shape {scale.shape}, but should be {shapes}.")
    return np.broadcast_to(np.repeat(scale, d // blocks, -1) if blocks > 1 else scale, shape)


def of_rows(given: Any, name: str, shape: tuple[int, ...], of_heads: tuple[int, int]) -> Array | None:
    """Return a scale of codes of `shape` (…, H, d) as float64, in the shape `of_heads` = (sequences, H_kv),
    or (…, H, blocks); None for None. A scale of each row and head gets one block.

    A shape that is both (sequences, H_kv) and (…, H) means the former. Raises ValueError for other shapes.
    """
    if given is None:
        return None
    scale = arrays.float_array(given, name, number=True)
    if not scale.ndim:
        return np.broadcast_to(scale_array(scale, name), of_heads)
    if scale.shape == of_heads:
        return scale
    each = scale[..., None] if scale.shape == shape[:-1] else scale
    if each.ndim != len(shape) or each.shape[:-1] != shape[:-1] or not each.shape[-1] or shape[-1] % each.shape[-1]:
        shapes = f"(), {of_heads}, {shape[:-1]}, or {shape[:-1]} and blocks that divide {shape[-1]}"
        raise ValueError(f"{name} has shape {scale.shape}, but should be {shapes}.")
    return each


def of_each_row(
    given: Any, name: str, shape: tuple[int, ...], key_heads: int, rows: Sequence[range], *, is_tiled: bool
) -> Array | None:
    """Return a scale of packed codes of `shape` (total, H, d) as (total, H, blocks); None for None. `rows`
    are the rows that each sequence uses; other rows get the scale 1.
    """
    if (scale := of_rows(given, name, shape, (len(rows), key_heads))) is None:
        return None
    total, heads, _ = shape
    each = np.ones((total, heads, scale.shape[-1] if scale.ndim == 3 else 1))
    head = np.arange(heads) % max(key_heads, 1) if is_tiled else np.arange(heads) * key_heads // max(heads, 1)
    for sequence, own in enumerate(rows):
        used = slice(own.start, own.stop)
        each[used] = scale[used] if scale.ndim == 3 else scale[sequence].take(head, mode="clip")[:, None]
    return scale_array(each, name)


def with_dequantising(arithmetic: Arithmetic, given: Mapping[str, Any], factor: float, *, divides: bool) -> Arithmetic:
    """Return the arithmetic of a kernel that also multiplies by the scales of q, k and v: the operands
    of its products have three more roundings. `factor` is the scale of the scores.

    Raises ValueError if a scale, or a product of the scales of q and k, may be subnormal or overflow in
    `elementwise`, and for accumulators of a narrow range, because budgets do not cover these.
    """
    if all(scale is None for scale in given.values()):
        return arithmetic
    if arithmetic.accumulate_scores or arithmetic.accumulate_values:
        raise ValueError(f"Budgets under {arithmetic.name} cover no scales of q, k and v: its accumulators are narrow.")
    ends = {
        name: np.sort([scale.min(), scale.max()] if not divides else [1 / scale.max(), 1 / scale.min()])
        for name in FORMATS
        if given[name] is not None and (scale := scale_array(given[name], f"{name}_scale")).size
    }
    of_scores = ends.get("q", np.ones(2)) * ends.get("k", np.ones(2))
    products = np.array([*ends.values(), of_scores, of_scores * (abs(factor) or 1.0)])
    elementwise = arithmetic.elementwise
    if products.min() < elementwise.smallest_normal or products.max() > elementwise.largest:
        raise ValueError(
            f"The scales of q, k and v reach from {products.min():.3g} to {products.max():.3g}, with their products, "
            f"but should be from {elementwise.smallest_normal:.3g} to {elementwise.largest:.3g} for a budget."
        )
    operand = (1 + arithmetic.product) * (1 + gamma(3, elementwise.unit_roundoff)) - 1
    return replace(arithmetic, product=operand)


def _quotients(codes: Array, scale: Array) -> Rationals:
    """Return the exact quotients of codes and scales, as rationals."""
    exact = np.empty(codes.shape, object)
    for index in np.ndindex(*codes.shape):
        (a, b), (c, d) = (x.as_integer_ratio() for x in (float(codes[index]), float(scale[index])))
        exact[index] = fmpq(a * d, b * c)
    return exact
