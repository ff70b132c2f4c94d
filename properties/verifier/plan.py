"""Which laws are checked of an implementation, and on how many cases by the quick plan."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.wording import shown
from properties.laws import LAWS, LONG, find
from properties.laws.law import Law

__all__ = ["QUICK", "QUICKLY", "grouped", "is_quick", "plan", "require_planned", "without"]

QUICK = Path(__file__).parents[1] / "laws" / "quick.json"
"""The file of what the quick plan has besides agreement and the laws that watch: the laws that kill
bugs which neither of these kills.
"""

_KILLING = frozenset(json.loads(QUICK.read_text("utf-8")))

QUICKLY = 50
"""Cases of an operation in the quick plan, at most, but at least one of each domain."""


def plan(
    implementation: Implementation, laws: Iterable[str] | None = None, long: bool = False, quick: bool = False
) -> list[Law]:
    """The laws to check: all, with those of the long plan where it is asked for, those of the quick
    one, or those named, of operations that are offered. The quick plan has what is declared to be
    broken, too; laws that are named are in every plan.

    Raises ValueError for a name that no law has, and for a declared deviation from a law that does
    not apply.
    """
    _require_names("laws", () if laws is None else laws)
    chosen = (
        [*LAWS, *(LONG if long else ())]
        if laws is None
        else list(dict.fromkeys(law for name in laws for law in find(name)))
    )
    applicable = [law for law in (*LAWS, *LONG) if not law.not_applicable(implementation)]
    names = {name for law in applicable for name in (law.name, law.id)}
    if unmatched := sorted(set(implementation.known_deviations) - names):
        raise ValueError(f"{implementation.name} declares to deviate from {unmatched}, but no such law applies to it.")
    declared = implementation.known_deviations.keys()
    if quick and laws is None:
        chosen = [law for law in chosen if is_quick(law) or not declared.isdisjoint((law.name, law.id))]
    return [law for law in chosen if law.operation in implementation.operations]


def is_quick(law: Law) -> bool:
    """Whether a law is of the quick plan, whatever is declared."""
    return law.agreement or law.watches or law.id in _KILLING


def without(planned: Iterable[Law], exclude: Iterable[str]) -> list[Law]:
    """The laws but those that some names mean. Raises ValueError for a name that no law has."""
    _require_names("exclude", exclude)
    excluded = {law for name in exclude for law in find(name)}
    return [law for law in planned if law not in excluded]


def require_planned(laws: Iterable[str] | None, planned: Iterable[Law]) -> None:
    """Raise ValueError for the name of a law that is planned for none of what is verified: it would
    not be looked at, without a word.
    """
    _require_names("laws", () if laws is None else laws)
    ids = {law.id for law in planned}
    if missing := [name for name in laws or () if ids.isdisjoint(law.id for law in find(name))]:
        raise ValueError(
            f"{missing[0]!r} is a law about an operation that is not offered; `attnspec explain` says which."
        )


def _require_names(option: str, names: Any) -> None:
    if isinstance(names, str | np.ndarray) or not isinstance(names, Iterable):
        raise TypeError(f"{option}={shown(names)}, but should be a collection of names.")


def grouped(laws: Iterable[Law]) -> list[list[Law]]:
    """The laws about one operation together, as they are examined."""
    groups: dict[str, list[Law]] = {}
    for law in laws:
        groups.setdefault(law.operation, []).append(law)
    return list(groups.values())
