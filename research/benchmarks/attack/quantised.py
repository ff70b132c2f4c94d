"""Attention of codes on a grid, also in packed sequences and in pages, with scales of each shape: drawn calls,
and what is changed in them.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from oracles.formats import GRIDS
from properties.contract.features import QUANTISED
from properties.contract.quantising import BLOCKS, CODES
from research.benchmarks.attack.calls import DRAWN, Call, conventions, drawn
from research.benchmarks.attack.packed import with_layout

__all__ = ["QUANTISED_FAMILIES", "changed", "quantised"]

QUANTISED_FAMILIES = tuple(GRIDS)
"""One family for each grid."""


def quantised(operation: str, grid: str, rng: Generator) -> Call:
    """A call whose queries, keys and values are on a grid, or whose keys and values are."""
    meaning = conventions(operation, rng)
    meant = replace(meaning, page_layout="slots_first")
    if rng.random() < 0.8:
        shapes: tuple[Any, ...] = ("tensor", "head", "token", *BLOCKS)
        meant = replace(meant, scale_shape=shapes[int(rng.integers(len(shapes)))])
    width = BLOCKS.get(meant.scale_shape)
    sizes = {**DRAWN} | ({} if width is None else {"head_dim": (width,), "value_dim": (width,)})
    arithmetic = f"float64-{grid}" + "-cache" * int(rng.random() < 0.3)
    call = with_layout(drawn(operation, rng, sizes, meant=meant, arithmetic=arithmetic), meaning.page_layout)
    if "-cache" not in arithmetic:
        return call
    return replace(call, arrays=call.arrays | {"q": call.arrays["q"].astype(np.float32).astype(np.float64)})


def changed(call: Call, rng: Generator) -> Call:
    """The call with one code exchanged for another one, or one scale doubled, halved, or moved by its
    last bit.
    """
    arrays: dict[str, Any] = {name: call.arrays[name] for name in CODES if name in call.arrays}
    arrays = {name: x for name, x in arrays.items() if x.size}
    scales = [name for name in QUANTISED if name in call.options and call.options[name].size]
    if scales and (rng.random() < 0.5 or not arrays):
        name = scales[int(rng.integers(len(scales)))]
        scale = call.options[name] * float(rng.choice([2.0, 0.5, 1 + 2.0**-23]))
        return replace(call, options=call.options | {name: np.float32(scale).astype(np.float64)})
    if not arrays:
        return call
    name = list(arrays)[int(rng.integers(len(arrays)))]
    codes = arrays[name].copy()
    codes.flat[int(rng.integers(codes.size))] = codes.flat[int(rng.integers(codes.size))]
    return replace(call, arrays=call.arrays | {name: codes})
