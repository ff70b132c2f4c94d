"""The laws, one module for each family of operations."""

from properties.law import Law
from properties.laws import (
    agreement,
    attention,
    attention_invariance,
    attention_masks,
    batches,
    conduct,
    dominating,
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
from properties.operations import OPERATIONS

__all__ = ["LAWS", "LONG", "find"]

_MODULES = (
    *(agreement, symmetries),
    *(masks, softmax, attention, attention_invariance, attention_masks, grouped, dominating),
    *(gradients, gradient_sums, gradient_symmetries, gradient_masks, tangents),
    *(multi_head, multi_head_gradients, torch_witness),
    *(positional, frequencies, rotary, lanes),
    *(conduct, batches),
)
_OPERATIONS = tuple(OPERATIONS)
LAWS: tuple[Law, ...] = tuple(
    sorted((law for module in _MODULES for law in module.law.laws), key=lambda law: _OPERATIONS.index(law.operation))
)
LONG: tuple[Law, ...] = tuple(dominating.long.laws)
"""Laws of the long plan only: seconds for a case, and gigabytes for some kernels."""


def find(names: str) -> list[Law]:
    """The laws of a name, with or without an operation in brackets; raises ValueError where there is none."""
    found = [law for law in (*LAWS, *LONG) if names in (law.name, law.id)]
    if not found:
        raise ValueError(f"There is no law {names!r}; `attnspec laws` lists them.")
    return found
