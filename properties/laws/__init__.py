"""The laws, one module for each family of operations."""

from properties.law import Law
from properties.laws import (
    attention,
    conduct,
    frequencies,
    gradient_masks,
    gradient_sums,
    gradient_symmetries,
    gradients,
    grouped,
    lanes,
    masks,
    multi_head,
    multi_head_gradients,
    positional,
    rotary,
    softmax,
    symmetries,
    tangents,
    torch_witness,
)
from properties.laws.agreement import AGREEMENT, LONG
from properties.operations import OPERATIONS

__all__ = ["LAWS", "LONG", "find"]

_MODULES = (
    symmetries,
    *(masks, softmax, attention, grouped),
    *(gradients, gradient_sums, gradient_symmetries, gradient_masks, tangents),
    *(multi_head, multi_head_gradients, torch_witness),
    *(positional, frequencies, rotary, lanes),
    conduct,
)
_OPERATIONS = tuple(OPERATIONS)
LAWS: tuple[Law, ...] = tuple(
    sorted([*AGREEMENT, *(law for module in _MODULES for law in module.law.laws)], key=lambda law: _OPERATIONS.index(law.operation))
)


def find(names: str) -> list[Law]:
    """The laws of a name, with or without an operation in brackets; raises ValueError where there is none."""
    found = [law for law in (*LAWS, *LONG) if names in (law.name, law.id)]
    if not found:
        raise ValueError(f"There is no law {names!r}; `attnspec laws` lists them.")
    return found
