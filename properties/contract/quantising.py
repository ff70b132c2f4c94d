"""Quantised queries, keys and values in a call: which scales belong to which codes, and in which shape
an implementation gets them.

In a case (the arguments of one test) a scale has all axes of its codes, of size 1 where entries share
it, and the channels of a block have equal entries. `conventions.scale_shape` says which shape is
passed.

In a case of paged attention a scale has the shape (), (sequences, kv_heads), or the axes of its codes,
with blocks in place of channels. Sequences that share a page may have scales of their own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from oracles.formats import Arithmetic
from properties.contract.features import QUANTISED

__all__ = ["BLOCKS", "CODES", "codes_fit", "handed", "scales_fit", "scales_of", "shared_scale"]

CODES = {"q": "queries", "k": "keys", "v": "values", "k_pages": "keys", "v_pages": "values", "latent": "keys"}
"""The field of an arithmetic that has the grid of a parameter."""

BLOCKS = {"block16": 16, "block32": 32}
"""The number of channels that share a scale, by the value of `scale_shape`."""


def scales_of(arithmetic: Arithmetic) -> tuple[str, ...]:
    """Return the names of the scales that calls get: arrays on a grid have one."""
    return tuple(name for name in QUANTISED if getattr(arithmetic, CODES[name[0]]) is not None)


def codes_fit(given: Mapping[str, Any], arithmetic: Arithmetic) -> bool:
    """Return whether all codes of a call, by name, are on their grids."""
    grids = {name: getattr(arithmetic, field) for name, field in CODES.items() if name in given}
    return all(grid is None or grid.contains(given[name]).all() for name, grid in grids.items())


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
    found = {name: shared_scale(scale, given, name, conventions) for name, scale in scales.items()}
    if "block_table" in given and conventions.page_layout == "heads_first":
        turned = {name: scale for name, scale in found.items() if name != "q_scale" and scale is not None}
        found |= {name: np.swapaxes(scale, 1, 2) for name, scale in turned.items() if scale.ndim > 2}
    return {**given} | found


def shared_scale(scale: Array, given: Mapping[str, Any], name: str, conventions: Conventions) -> Array | None:
    """Return a scale in the shape that the convention passes; None if entries differ that this shape
    shares, or if the scale does not belong to the codes.
    """
    if "block_table" in given:
        return _paged_scale(scale, given, name, conventions.scale_shape)
    codes = given[name[0]]
    if scale.ndim != codes.ndim or any(n not in (1, size) for n, size in zip(scale.shape, codes.shape, strict=True)):
        return None
    kind = conventions.scale_shape
    shared = {"tensor": range(scale.ndim), "head": (-2, -1), "token": (-1,)}.get(kind, ())
    for axis in shared:
        first = scale.take([0], axis) if scale.shape[axis] else np.ones([1] * scale.ndim)
        if not (scale == first).all():
            return None
        scale = first
    if kind == "tensor":
        return scale.reshape(())
    *batch, heads, n, width = codes.shape
    if kind == "token":
        return np.broadcast_to(scale, (*batch, heads, n, 1))[..., 0]
    if kind == "head":
        return _of_key_heads(np.broadcast_to(scale[..., 0, 0], (*batch, heads)), given["k"].shape[-3], conventions)
    blocks, block = np.broadcast_to(scale, codes.shape)[..., :: BLOCKS[kind]], BLOCKS[kind]
    return blocks if width % block == 0 and (np.repeat(blocks, block, -1) == scale).all() else None


def _paged_scale(scale: Array, given: Mapping[str, Any], name: str, kind: str) -> Array | None:
    """Return a scale of paged attention in the shape that is passed; None if it has another shape."""
    *rows, width = given["q" if name == "q_scale" else f"{name[0]}_pages"].shape
    heads, blocks = (len(given["lengths"]), given["k_pages"].shape[2]), width // BLOCKS.get(kind, max(width, 1))
    wanted = {"tensor": (), "head": heads}.get(kind, (*rows, max(blocks, 1)))
    if scale.shape != wanted or width % BLOCKS.get(kind, 1):
        return None
    return scale[..., 0] if kind == "token" else scale


def _of_key_heads(scale: Array, key_heads: int, conventions: Conventions) -> Array | None:
    """Return the scale of each key head, given one for each head; None if the heads of a key head
    differ.
    """
    is_tiled, group = conventions.kv_heads == "tile", scale.shape[-1] // key_heads
    of_keys = scale[..., :key_heads] if is_tiled else scale[..., ::group]
    each = np.tile(of_keys, group) if is_tiled else np.repeat(of_keys, group, -1)
    return of_keys if (each == scale).all() else None
