"""The laws: agreement with the oracle, the table of symmetries, and a module for each family of what is neither."""

from properties.contract.operations import OPERATIONS

from properties.laws import (  # isort: skip
    symmetries, masks, softmax, attention, edges, features, merging, alibi, caches, gradients, tangents, multi_head, positional,
    frequencies, frequency_kinds, frequency_bands, rotary, rotations, tables, odd_widths, conduct, interleaving, twins,
)  # fmt: skip
from properties.laws.agreement import AGREEMENT, LONG
from properties.laws.law import Law
from properties.laws.names import named, parts_of

__all__ = ["FAMILIES", "LAWS", "LONG", "find"]

_MODULES = (
    symmetries, masks, softmax, attention, edges, features, merging, alibi, caches, gradients, tangents, multi_head, positional,
    frequencies, frequency_kinds, frequency_bands, rotary, rotations, tables, odd_widths, conduct, interleaving, twins,
)  # fmt: skip
FAMILIES = {"agreement": AGREEMENT} | {
    module.__name__.rpartition(".")[2].replace("_", " "): module.law.laws for module in _MODULES
}
"""The laws by the families in which they stand."""
_ORDER = [*OPERATIONS]
LAWS: tuple[Law, ...] = tuple(
    sorted((law for laws in FAMILIES.values() for law in laws), key=lambda law: _ORDER.index(law.operation))
)


def find(text: str) -> list[Law]:
    """The laws that a name means, of every operation; or of one, "law[operation]". Part of a name
    is enough, if no other law has it.

    Raises ValueError where there is none, or more than one, and TypeError for no name.
    """
    if not isinstance(text, str):
        raise TypeError(f"A law has type {type(text).__name__}, but should be a name, a str.")
    name, operation = parts_of(text)
    every = (*LAWS, *LONG)
    known = [law for law in every if law.name == name]
    if not known:
        meant = named(name, dict.fromkeys(law.name for law in every), "law")
        known = [law for law in every if law.name == meant]
    chosen = [law for law in known if not operation or law.operation == operation]
    if not chosen:
        raise ValueError(
            f"{known[0].name!r} is no law of {operation!r}, but of {', '.join(law.operation for law in known)}."
        )
    return chosen
