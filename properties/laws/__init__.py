"""The laws, one module for each family of operations."""

from properties.law import Law
from properties.laws import (
    agreement,
    attention,
    conduct,
    frequencies,
    gradients,
    halves,
    lanes,
    learned,
    lookups,
    masks,
    multi_head,
    padding,
    positional,
    rotary,
    rotary_tables,
    rotations,
    softmax,
    symmetries,
    tables,
    tangents,
)
from properties.operations import OPERATIONS

__all__ = ["LAWS", "LONG", "find"]

_MODULES = (
    *(agreement, symmetries),
    *(masks, padding, softmax, attention),
    *(gradients, tangents, multi_head),
    *(positional, learned, lookups, frequencies, tables, rotary, rotations, rotary_tables, halves, lanes),
    conduct,
)
_OPERATIONS = tuple(OPERATIONS)
LAWS: tuple[Law, ...] = tuple(
    sorted((law for module in _MODULES for law in module.law.laws), key=lambda law: _OPERATIONS.index(law.operation))
)
LONG: tuple[Law, ...] = tuple(agreement.long.laws)
"""Laws of the long plan only: seconds for a case, and gigabytes for some kernels."""


def find(names: str) -> list[Law]:
    """The laws of a name, with or without an operation in brackets; raises ValueError where there is none."""
    found = [law for law in (*LAWS, *LONG) if names in (law.name, law.id)]
    if not found:
        raise ValueError(f"There is no law {names!r}; `attnspec laws` lists them.")
    return found
