"""Quantised queries, keys and values in NumPy: a part of the reference. It follows the conventions that
are declared, see `properties.bugs.declared`.

`properties.bugs.reference` explains steps.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.declared import declared
from properties.contract.features import QUANTISED

__all__ = [
    "Arrays",
    "Scales",
    "block_scales",
    "dequantised",
    "head_scales",
    "head_scales_of",
    "numbers_of",
    "scale_of_each",
    "sequence_scales",
]

Arrays = tuple[Any, ...]
"""Queries, keys and values (…, H, n, d): codes of any number type, or numbers."""

Scales = tuple[Any, ...]
"""The scales of queries, keys and values."""


def head_scales(scale: Array, heads: Any) -> Array:
    """Return the scale of each head of an array, given one for each key head. `heads` has the key head
    of each head.
    """
    return scale[..., heads]


def block_scales(scale: Array, width: int) -> Array:
    """Return the scale of each channel, given one for each block of channels of a row."""
    return np.repeat(scale, width // max(scale.shape[-1], 1), -1)


def scale_of_each(scale: Any, shape: tuple[int, ...], heads: Any) -> Array:
    """Return the scale of each code of an array of this shape, given one scale, or one for each head,
    row, or block of channels. `heads` has the key head of each head.
    """
    each = np.asarray(scale, np.float64)
    match len(shape) - each.ndim:
        case 2:
            each = head_scales(each, heads)[..., None, None]
        case 1:
            each = each[..., None]
        case 0:
            each = block_scales(each, shape[-1])
    return np.broadcast_to(each, shape)


def dequantised(codes: Array, scale: Array) -> Array:
    """Return the numbers that codes stand for."""
    return codes / scale if declared().fp8_scale == "divide" else codes * scale


def numbers_of(codes: Arrays, scales: Scales, heads: Any) -> Arrays:
    """Return the numbers that q, k and v stand for, given their codes and their scales. Without a scale
    (None) codes are numbers. `heads` has the key head of each query head.
    """
    own = np.arange(codes[1].shape[-3])
    return tuple(
        np.asarray(x).astype(np.float64)
        if scale is None
        else dequantised(np.asarray(x).astype(np.float64), scale_of_each(scale, x.shape, of_heads))
        for x, scale, of_heads in zip(codes, scales, (heads, own, own), strict=True)
    )


def head_scales_of(scale: Array, sequence: int) -> Array:
    """Return the scale of each key head of a sequence."""
    return np.asarray(scale[sequence])


def sequence_scales(options: dict[str, Any], sequence: int, own: Callable[[int, str, Any], Any]) -> dict[str, Any]:
    """Return the options of a call with the scales of a sequence, as attention takes them. `own` returns
    these scales from the number of the sequence, a name, and the scales of all rows or slots.
    """
    kind, found = declared().scale_shape, dict(options)
    for name in QUANTISED if kind != "tensor" else ():
        if (scale := options.get(name)) is not None:
            each = scale[..., None] if kind == "token" else scale  # one block of channels
            found[name] = head_scales_of(scale, sequence) if kind == "head" else own(sequence, name, each)
    return found
