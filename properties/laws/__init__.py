"""Collects all laws (properties that attnspec checks): agreement with the oracle, the symmetries,
and one module for each other family.
"""

from properties.contract.names import named, parts_of
from properties.contract.operations import OPERATIONS

from properties.laws import (  # isort: skip
    symmetries, mask_operations, softmax, attention, edges, features, merging, alibi, quantised, packed, paged, caches,
    gradients, tangents, multi_head, layer, positional, frequencies, frequency_kinds, frequency_bands, rotary,
    rope_options, rotary_tables, odd_widths, call_contract, batches, refusals, shared_state, shared_memory, bits, twins,
    readings,
)  # fmt: skip
from properties.laws.agreement import AGREEMENT, LONG
from properties.laws.law import Law

__all__ = ["FAMILIES", "LAWS", "LONG", "find"]

_MODULES = (
    symmetries, mask_operations, softmax, attention, edges, features, merging, alibi, quantised, packed, paged, caches,
    gradients, tangents, multi_head, layer, positional, frequencies, frequency_kinds, frequency_bands, rotary,
    rope_options, rotary_tables, odd_widths, call_contract, batches, refusals, shared_state, shared_memory, bits, twins,
    readings,
)  # fmt: skip
FAMILIES = {"agreement": AGREEMENT} | {
    module.__name__.rpartition(".")[2].replace("_", " "): module.law.laws for module in _MODULES
}
"""The laws by family."""
_ORDER = [*OPERATIONS]
LAWS: tuple[Law, ...] = tuple(
    sorted((law for laws in FAMILIES.values() for law in laws), key=lambda law: _ORDER.index(law.operation))
)


def find(text: str) -> list[Law]:
    """Return the laws with a name, one for each operation, or the one law "name[operation]".

    A part of the name is enough if no other name contains it. Raises ValueError if no name fits or
    several fit, and TypeError if the text is not a string.
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
        operations = ", ".join(law.operation for law in known)
        raise ValueError(f"{known[0].name!r} is no law of {operation!r}, but of {operations}.")
    return chosen
