"""The laws, one module for each family of operations."""

from properties.law import Law
from properties.laws import attention, conduct

__all__ = ["LAWS", "find"]

LAWS: tuple[Law, ...] = tuple(law for module in (attention, conduct) for law in module.law.laws)


def find(names: str) -> list[Law]:
    """The laws of a name, with or without an operation in brackets; raises ValueError where there is none."""
    found = [law for law in LAWS if names in (law.name, law.id)]
    if not found:
        raise ValueError(f"There is no law {names!r}; `attnspec laws` lists them.")
    return found
