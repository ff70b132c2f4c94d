"""Draws codes on a grid, and the scales that say what a code stands for."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oracles.ball import Array
from oracles.formats import Format
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.contract.quantising import BLOCKS, CODES, scales_of
from properties.strategies.choices import Choices, rounded

__all__ = ["are_scaled", "codes", "hold", "scale", "usual_size"]

_SPREADS = (0, 3, 3, 8)
"""By how many powers of two the scales of one array may differ."""


def are_scaled(operation: Operation, parameter: str, implementation: Implementation) -> bool:
    """Return whether a parameter has codes on a grid that get a scale in every call."""
    scale = f"{parameter[0]}_scale" if parameter in CODES else ""
    on_grid = scale in scales_of(implementation.resolved_arithmetic)
    return on_grid and scale in operation.options and scale in implementation.features


def hold(operation: Operation, implementation: Implementation, case: dict[str, Any]) -> None:
    """Round the codes of a case to their grid, after an input family has changed them."""
    arithmetic = implementation.resolved_arithmetic
    if arithmetic.is_quantised and not operation.is_played:
        case |= {name: rounded(case[name], operation.stored(name, arithmetic)) for name in CODES if name in case}


def usual_size(grid: Format) -> float:
    """Return the standard deviation of drawn codes: a third of the grid, or 16 on a wide one."""
    return min(grid.largest / 3, 16.0 if grid.smallest_normal < 1 else 42.0)


def codes(shape: tuple[int, ...], grid: Format, choose: Choices) -> Array:
    """Return codes of a grid. Some are at its border, its smallest numbers, or 0."""
    if choose.simplest:
        return np.zeros(shape)
    drawn = rounded(usual_size(grid) * choose.normal(shape), grid)
    border = np.array([0.0, grid.largest, grid.lowest, grid.smallest_subnormal, -grid.smallest_subnormal])
    special = border[choose.integers(0, len(border) - 1, shape)]
    return np.where(choose.bits(shape, choose.among([0.0, 0.05, 0.3])), special, drawn)


def scale(
    parameter: str, implementation: Implementation, sizes: Mapping[str, int], lead: tuple[int, ...], choose: Choices
) -> Array:
    """Return a scale of q, k or v with all axes of the codes, of size 1 where entries share it; with pages
    as `properties.contract.quantising` says. The numbers that the codes stand for are everyday ones.
    The scales of heads, tokens or blocks may be close to each other or far apart.
    """
    kind, name = implementation.resolved_conventions.scale_shape, parameter[0]
    grid: Format = getattr(implementation.resolved_arithmetic, CODES[name])
    heads, groups = sizes["num_heads" if name == "q" else "kv_heads"], sizes["kv_heads"]
    rows, width = sizes["n_q" if name == "q" else "n_k"], sizes["value_dim" if name == "v" else "head_dim"]
    block = BLOCKS.get(kind, max(width, 1))
    shape = {"tensor": (1,) * (len(lead) + 3), "head": (*lead, groups, 1, 1)}.get(
        kind, (*lead, heads, rows, max(width // block, 1))
    )
    is_paged = "num_pages" in sizes
    if is_paged:
        axes = (*lead, rows, heads) if name == "q" else (sizes["num_pages"], sizes["page_size"], heads)
        blocks = max(width // block, 1)
        shape = {"tensor": (), "head": (sizes["sequences"], groups)}.get(kind, (*axes, blocks))
    powers = np.rint(choose.among(_SPREADS) * choose.uniform(shape))
    drawn = 2.0 ** (powers - np.rint(np.log2(usual_size(grid)))) * choose.among([1.0, 0.25, 4.0])
    if choose.happens(0.7):
        drawn = drawn * (1 + choose.integers(0, 2**20, shape) / 2.0**20)
    if is_paged:
        return np.asarray(drawn)
    if kind == "head" and name == "q":
        is_tiled, group = implementation.resolved_conventions.kv_heads == "tile", heads // groups
        drawn = np.tile(drawn, (group, 1, 1)) if is_tiled else np.repeat(drawn, group, -3)
    return np.repeat(drawn, block, -1) if kind in BLOCKS else drawn
