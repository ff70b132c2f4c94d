"""Calls whose arrays share memory: equal arrays in one place, arrays of one shape in one buffer, and
axes along which an array repeats its entries.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from properties.contract import conversion
from properties.contract.implementation import Implementation
from properties.contract.operation import Arguments, Operation
from properties.strategies.special_values import NumberedPoint

__all__ = ["MEMORY", "calls_in_memory"]

_SQUARE = {
    **{"batch": 3, "num_heads": 2, "kv_heads": 2, "n_q": 4, "n_k": 4, "seq_len": 4},
    **{"head_dim": 8, "value_dim": 8, "embed_dim": 8, "model_dim": 16},
}

MEMORY = (
    NumberedPoint("arrays of one shape", _SQUARE),
    NumberedPoint("a mask", _SQUARE, {"mask": lambda sizes: np.tri(sizes["n_q"], sizes["n_k"], dtype=bool)}),
    NumberedPoint("a bias", _SQUARE, {"bias": lambda sizes: np.tri(sizes["n_q"], sizes["n_k"])}),
)
"""Where laws ask whether it matters in which memory arrays lie."""


def calls_in_memory(
    operation: Operation, implementation: Implementation, arguments: Arguments
) -> Iterator[tuple[str, Arguments, str]]:
    """Yield calls as a phrase, their arguments, and the memory layout of these.

    Each two arrays of one shape, and all of them, are one array; all arrays of one shape lie in one
    buffer; each array repeats itself along each axis; and each array has each other layout. In a
    call with a mask or a bias, this array alone is changed. Derivatives never get one array twice:
    automatic differentiation adds up the gradients of one object.
    """
    case = operation.named(arguments)
    every = [name for name, x in case.items() if isinstance(x, np.ndarray) and x.ndim > 1 and x.size]
    names = [name for name in every if name in ("mask", "bias")] or every
    if operation.name == operation.forward:
        yield from _aliased(operation, case, names)
    declared = implementation.layouts
    if len(names) > 1 and (declared is None or "packed" in declared):
        yield "arrays of one shape in one buffer", arguments, "packed"
    for name in names:
        for layout in conversion.layouts(implementation, case[name]):
            yield f"{layout} {name}", arguments, f"{layout} {name}"
    if declared is None or "expanded" in declared:
        for name in (each for each in names if not operation.is_length(each)):
            for axis in range(case[name].ndim - 1):
                repeated = case | {name: np.repeat(case[name].take([0], axis), case[name].shape[axis], axis)}
                yield f"{name} expanded along axis {axis}", tuple(repeated.values()), f"expanded {name}"


def _aliased(operation: Operation, case: dict[str, Any], names: list[str]) -> Iterator[tuple[str, Arguments, str]]:
    """Yield the calls in which several arrays of one shape are one array."""
    shapes: dict[Any, list[str]] = {}
    for name in names:
        shapes.setdefault((case[name].shape, operation.is_mask(name), operation.is_table(name)), []).append(name)
    for same in shapes.values():
        for alike in (*combinations(same, 2), *([tuple(same)] if len(same) > 2 else [])):
            one = case | dict.fromkeys(alike, case[alike[0]])
            yield f"{', '.join(alike[:-1])} and {alike[-1]} as one array", tuple(one.values()), "aliased"
