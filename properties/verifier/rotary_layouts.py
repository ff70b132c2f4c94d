"""A function in another layout: code that rotates adjacent pairs, as code that rotates halves, and
the other way round.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.contract.operations import Operation

__all__ = ["in_layout"]

_ROTARY = ("rope", "rope_vjp", "apply_rotary", "apply_rotary_vjp", "rope_tables", "rotary_tables")
_LAID_OUT = ("x", "grad_out", "cos", "sin")


def in_layout(o: Operation, function: Callable[..., Any], own: Conventions, wanted: Conventions) -> Callable[..., Any]:
    """A function whose pairs are laid out by some conventions, for arrays whose pairs are laid out
    by others.

    Between layouts of time, height and width nothing is moved: with sections it raises
    NotImplementedError, and explains nothing.
    """
    if o.name not in _ROTARY or (own.rope_pairing, own.mrope) == (wanted.rope_pairing, wanted.mrope):
        return function
    halves = own.rope_pairing == "half"

    def called(*positional: Any, **options: Any) -> Any:
        arguments = dict(zip(o.parameters, o.arguments(positional, options), strict=True))
        if own.mrope != wanted.mrope and arguments.get("sections") is not None:
            raise NotImplementedError
        if own.rope_pairing == wanted.rope_pairing:
            return function(*positional, **options)
        rotating = arguments.get("rotary_dim")
        given = {p: _moved(x, rotating, not halves) if p in _LAID_OUT else x for p, x in arguments.items()}
        found = o.call(function, tuple(given.values()))
        return (
            tuple(_moved(x, rotating, halves) for x in found)
            if isinstance(found, tuple)
            else _moved(found, rotating, halves)
        )

    return called


def _moved(x: Array, rotating: int | None, to_adjacent: bool) -> Array:
    """An array whose pairs are halves with its pairs adjacent, or the other way round; of an odd
    width, which has no halves, as it is.
    """
    r = x.shape[-1] if rotating is None else rotating
    if r % 2:
        return x
    order = np.arange(x.shape[-1])
    order[:r] = np.arange(r).reshape(2, -1).T.ravel()
    return x[..., order] if to_adjacent else x[..., np.argsort(order)]
