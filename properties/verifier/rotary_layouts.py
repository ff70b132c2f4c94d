"""Converts a rotary function between the adjacent-pair and the half-split layout."""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.contract.operations import Operation

__all__ = ["in_layout"]

_ROTARY = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp", "rope_tables", "rotary_tables")
_LAID_OUT = ("x", "grad_out", "cos", "sin")


def in_layout(
    operation: Operation, function: Callable[..., Any], own: Conventions, wanted: Conventions
) -> Callable[..., Any]:
    """Return a function that takes arrays in the pair layout of `wanted`, made from a function for
    the layout of `own`.

    The layouts of time, height and width cannot be converted. Where these differ, the returned
    function raises NotImplementedError when it is called with sections. It then explains no
    failure.
    """
    if operation.name not in _ROTARY or (own.rope_pairing, own.mrope) == (wanted.rope_pairing, wanted.mrope):
        return function
    halves = own.rope_pairing == "half"

    def called(*positional: Any, **options: Any) -> Any:
        arguments = dict(zip(operation.parameters, operation.arguments(positional, options), strict=True))
        if own.mrope != wanted.mrope and arguments.get("sections") is not None:
            raise NotImplementedError
        if own.rope_pairing == wanted.rope_pairing:
            return function(*positional, **options)
        width = arguments.get("rotary_dim")
        given = {
            name: _permuted(value, width, not halves) if name in _LAID_OUT else value
            for name, value in arguments.items()
        }
        result = operation.call(function, tuple(given.values()))
        if isinstance(result, tuple):
            return tuple(_permuted(output, width, halves) for output in result)
        return _permuted(result, width, halves)

    return called


def _permuted(array: Array, rotary_dim: int | None, to_adjacent: bool) -> Array:
    """Return the array with its half-split pairs moved to adjacent channels, or the reverse. An
    array of odd width is returned unchanged.
    """
    width = array.shape[-1] if rotary_dim is None else rotary_dim
    if width % 2:
        return array
    order = np.arange(array.shape[-1])
    order[:width] = np.arange(width).reshape(2, -1).T.ravel()
    return array[..., order] if to_adjacent else array[..., np.argsort(order)]
