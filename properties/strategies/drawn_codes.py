"""Draws codes on a grid, and the scales that say what a code stands for."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oracles.ball import Array
from oracles.formats import Format
from properties.contract.features import QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.contract.quantising import BLOCKS, CODES, codes_of, of_heads, of_query_heads, scales_of
from properties.strategies.choices import Choices, rounded

__all__ = ["are_scaled", "codes", "hold", "scale", "unread", "usual_size"]

_SPREADS = (0, 3, 3, 8)
"""By how many powers of two the scales of one array may differ."""

_UNREAD = 64.0


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


def scale(name: str, implementation: Implementation, given: Mapping[str, Any], choose: Choices) -> Array:
    """Return a scale of the codes of q, k or v among the arguments of a call, in the axes that
    `properties.contract.quantising` says. The numbers that the codes stand for are everyday ones.
    The scales of heads, tokens or blocks may be close to each other or far apart.
    """
    kind, (*axes, width) = implementation.resolved_conventions.scale_shape, codes_of(given, name).shape
    grid: Format = getattr(implementation.resolved_arithmetic, CODES[name[0]])
    sequences, groups, block = of_heads(given), codes_of(given, "k").shape[-3], BLOCKS.get(kind, max(width, 1))
    shapes: dict[str, tuple[int, ...]] = (
        {"tensor": (), "head": sequences}
        if sequences
        else {"tensor": (1,) * (len(axes) + 1), "head": (*axes[:-2], groups, 1, 1)}
    )
    shape = shapes.get(kind, (*axes, max(width // block, 1)))
    powers = np.rint(choose.among(_SPREADS) * choose.uniform(shape))
    drawn = 2.0 ** (powers - np.rint(np.log2(usual_size(grid)))) * choose.among([1.0, 0.25, 4.0])
    if choose.happens(0.7):
        drawn = drawn * (1 + choose.integers(0, 2**20, shape) / 2.0**20)
    if kind == "head" and name == "q_scale" and not sequences:
        each = of_query_heads(drawn[..., 0, 0], axes[-2], implementation.resolved_conventions)
        drawn = each[..., None, None]
    return np.repeat(drawn, block, -1) if kind in BLOCKS else np.asarray(drawn)


def unread(name: str, implementation: Implementation, choose: Choices) -> float:
    """Return what an array holds where no sequence reads it: NaN if the adapter declares that masked
    values are not read, else a large number, its negative, or zeros. Codes stay on their grid.
    """
    grid = getattr(implementation.resolved_arithmetic, CODES[name]) if name in CODES else None
    number = min(_UNREAD, grid.largest) if grid is not None else _UNREAD
    if grid is None and implementation.resolved_conventions.blocked_values == "unread":
        return choose.among([np.nan])
    return number if name in QUANTISED else choose.among([number, -number, 0.0])
