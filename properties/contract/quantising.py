"""Quantised queries, keys and values in a call: which scales belong to which codes, and in which shape
an implementation gets them.

In a case (the arguments of one test) a scale has all axes of its codes, of size 1 where entries share
it, and the channels of a block have equal entries. `conventions.scale_shape` says which shape is
passed.

With sequences, packed ones or with keys in pages, one scale of all codes has the shape (), and the
scales of heads have the shape (sequences, kv_heads): sequences that share a page may have scales of
their own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.arrays import narrowed
from oracles.ball import Array
from oracles.formats import Arithmetic
from properties.contract.features import QUANTISED

__all__ = [
    "BLOCKS",
    "CODES",
    "codes_fit",
    "codes_of",
    "handed",
    "of_heads",
    "of_query_heads",
    "of_sequences",
    "scales_fit",
    "scales_of",
    "shared_scale",
]

CODES = {"q": "queries", "k": "keys", "v": "values", "k_pages": "keys", "v_pages": "values", "latent": "keys"}
"""The field of an arithmetic that has the grid of a parameter."""

BLOCKS = {"block16": 16, "block32": 32}
"""The number of channels that share a scale, by the value of `scale_shape`."""


def scales_of(arithmetic: Arithmetic) -> tuple[str, ...]:
    """Return the names of the scales that calls get: arrays on a grid have one."""
    return tuple(name for name in QUANTISED if getattr(arithmetic, CODES[name[0]]) is not None)


def codes_of(given: Mapping[str, Any], name: str) -> Array:
    """Return the codes of q, k or v, or of pages, that a scale with this name belongs to."""
    codes: Array = given[name[0] if name[0] in given else f"{name[0]}_pages"]
    return codes


def of_heads(given: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the shape of scales of heads in a call with sequences: (sequences, kv_heads); else None."""
    each = given.get("lengths", given.get("cu_k"))
    return None if each is None else (len(each) - ("cu_k" in given), codes_of(given, "k").shape[-2])


def of_sequences(given: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Array]:
    """Return the scales of heads of these sequences, by name."""
    return {name: given[name][[*numbers]] for name in QUANTISED if getattr(given.get(name), "ndim", 0) == 2}


def codes_fit(given: Mapping[str, Any], arithmetic: Arithmetic) -> bool:
    """Return whether all codes of a call, by name, are on their grids."""
    grids = {name: getattr(arithmetic, field) for name, field in CODES.items() if name in given}
    return all(grid is None or grid.contains(narrowed(given[name])).all() for name, grid in grids.items())


def scales_fit(given: Mapping[str, Any], conventions: Conventions) -> bool:
    """Return whether all scales of a call have the axes that the convention shares, and can be
    passed.
    """
    return all(
        shared_scale(scale, given, name, conventions) is not None
        for name in QUANTISED
        if (scale := given.get(name)) is not None
    )


def handed(given: Mapping[str, Any], conventions: Conventions) -> dict[str, Any]:
    """Return the arguments of a call by name, with scales in the shapes that are passed."""
    scales = {name: given[name] for name in QUANTISED if given.get(name) is not None}
    return {**given} | {name: shared_scale(scale, given, name, conventions) for name, scale in scales.items()}


def shared_scale(scale: Array, given: Mapping[str, Any], name: str, conventions: Conventions) -> Array | None:
    """Return a scale in the shape that the convention passes; None if entries differ that this shape
    shares, or if the scale does not belong to the codes. Scales that are not read may be NaN.
    """
    codes, kind = codes_of(given, name), conventions.scale_shape
    if (sequences := of_heads(given)) and kind in ("tensor", "head"):
        return scale if scale.shape == (sequences if kind == "head" else ()) else None
    if scale.ndim != codes.ndim or any(n not in (1, size) for n, size in zip(scale.shape, codes.shape, strict=True)):
        return None
    shared = {"tensor": range(scale.ndim), "head": (-2, -1), "token": (-1,)}.get(kind, ())
    for axis in shared:
        first = scale.take([0], axis) if scale.shape[axis] else np.ones([1] * scale.ndim)
        if not np.array_equal(scale, np.broadcast_to(first, scale.shape), equal_nan=True):
            return None
        scale = first
    if kind == "tensor":
        return scale.reshape(())
    if kind == "head":
        each = np.broadcast_to(scale[..., 0, 0], codes.shape[:-2])
        return _of_key_heads(each, given["k"].shape[-3], conventions)
    whole = np.broadcast_to(scale, (*codes.shape[:-1], 1 if kind == "token" else codes.shape[-1]))
    if kind == "token":
        return whole[..., 0]
    blocks = whole[..., :: BLOCKS[kind]]
    return blocks if np.array_equal(np.repeat(blocks, BLOCKS[kind], -1), whole, equal_nan=True) else None


def of_query_heads(scale: Array, heads: int, conventions: Conventions) -> Array:
    """Return the scale of each query head, given one for each key head."""
    group = heads // scale.shape[-1]
    return np.tile(scale, group) if conventions.kv_heads == "tile" else np.repeat(scale, group, -1)


def _of_key_heads(scale: Array, key_heads: int, conventions: Conventions) -> Array | None:
    """Return the scale of each key head, given one for each head; None if the heads of a key head
    differ.
    """
    heads, is_tiled = scale.shape[-1], conventions.kv_heads == "tile"
    of_keys = scale[..., :key_heads] if is_tiled else scale[..., :: heads // key_heads]
    return of_keys if (of_query_heads(of_keys, heads, conventions) == scale).all() else None
