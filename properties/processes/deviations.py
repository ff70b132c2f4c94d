"""Adds to implementations the deviations that pyproject.toml declares. A deviation is a law that an
implementation is known to break.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from properties.contract.implementation import Implementation
from properties.laws import LAWS, LONG
from properties.processes.adapters import Found

__all__ = ["with_deviations"]


def with_deviations(found: list[Found], deviations: Mapping[str, Any]) -> list[Found]:
    """Return the implementations, each with the deviations that the project declares for it.

    A deviation is a law that an implementation is known to break. `deviations` is {law: reason} for
    all implementations, or {implementation: {law: reason}}.
    """
    if not deviations:
        return found
    return [replace(one, implementation=_deviating(one.implementation, deviations)) for one in found]


def _deviating(implementation: Implementation, deviations: Mapping[str, Any]) -> Implementation:
    """Return one implementation with two kinds of declared deviations: those for all
    implementations, and those for its name.
    """
    laws = [law for law in (*LAWS, *LONG) if not law.not_applicable(implementation)]
    applicable = {name for law in laws for name in (law.name, law.id)}
    for_all = {law: reason for law, reason in deviations.items() if isinstance(reason, str) and law in applicable}
    own = deviations.get(implementation.name, {})
    declared = {**implementation.known_deviations, **for_all, **(own if isinstance(own, dict) else {})}
    return replace(implementation, known_deviations=declared)
