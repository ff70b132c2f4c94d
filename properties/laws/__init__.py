"""The laws: agreement with the oracle, the table of symmetries, and a module for each family of what is neither."""

from properties.contract.operations import OPERATIONS
from properties.laws import (
    attention,
    conduct,
    frequencies,
    gradients,
    interleaving,
    lanes,
    masks,
    multi_head,
    positional,
    rotary,
    softmax,
    symmetries,
    tangents,
)
from properties.laws.agreement import AGREEMENT, LONG
from properties.laws.law import Law

__all__ = ["LAWS", "LONG", "find"]

_MODULES = (
    symmetries,
    masks,
    softmax,
    attention,
    gradients,
    tangents,
    multi_head,
    positional,
    frequencies,
    rotary,
    lanes,
    conduct,
    interleaving,
)
_ORDER = list(OPERATIONS)
LAWS: tuple[Law, ...] = tuple(
    sorted((*AGREEMENT, *(law for module in _MODULES for law in module.law.laws)), key=lambda law: _ORDER.index(law.operation))
)


def find(names: str) -> list[Law]:
    """The laws of a name, with or without an operation in brackets; raises ValueError where there is none, TypeError for no name."""
    if not isinstance(names, str):
        raise TypeError(f"A law has type {type(names).__name__}, but should be a name, a str.")
    found = [law for law in (*LAWS, *LONG) if names in (law.name, law.id)]
    if not found:
        raise ValueError(f"There is no law {names!r}; `attnspec laws` lists them.")
    return found
