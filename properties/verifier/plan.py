"""Decides which laws are checked on an implementation, and how many cases (test inputs) a quick run
draws.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.wording import shown
from properties.laws import LAWS, LONG, find
from properties.laws.law import Law

__all__ = ["CALLS", "QUICK", "QUICKLY", "grouped", "is_quick", "plan", "require_planned", "without"]

QUICK = Path(__file__).parents[1] / "laws" / "quick.json"
"""The file with further laws of the quick plan. The plan also has agreement and the laws that watch
every call or measure. The laws of the file detect bugs that these do not detect.
"""

_DETECTING = frozenset(json.loads(QUICK.read_text("utf-8")))

QUICKLY = 50
"""The largest number of test inputs of an operation in the quick plan. Every input family (domain)
still gets at least one.
"""


CALLS: dict[str, tuple[int, int]] = json.loads(QUICK.with_name("calls.json").read_text("utf-8"))
"""About how many calls of each operation a default run makes, and a quick run, by one process on seed
0 and without declared features. Progress tells by them how long a run takes.
"""


def plan(
    implementation: Implementation, laws: Iterable[str] | None = None, long: bool = False, quick: bool = False
) -> list[Law]:
    """Return the laws to check about the operations that an implementation offers.

    These are all laws, with the long plan if `long` is true, or only the laws of the quick plan, or
    the named laws. The quick plan includes declared deviations, which are laws that are known to
    fail. A named law is in every plan.

    Raises ValueError for an unknown law, and for a declared deviation from a law that does not
    apply.
    """
    _require_names("laws", () if laws is None else laws)
    all_laws = (*LAWS, *(LONG if long else ()))
    chosen = list(all_laws if laws is None else dict.fromkeys(law for name in laws for law in find(name)))
    applicable = [law for law in (*LAWS, *LONG) if not law.not_applicable(implementation)]
    names = {name for law in applicable for name in (law.name, law.id)}
    if unmatched := sorted(set(implementation.known_deviations) - names):
        raise ValueError(f"{implementation.name} declares to deviate from {unmatched}, but no such law applies to it.")
    declared = implementation.known_deviations.keys()
    if quick and laws is None:
        chosen = [law for law in chosen if is_quick(law) or not declared.isdisjoint((law.name, law.id))]
    return [law for law in chosen if law.operation in implementation.operations]


def is_quick(law: Law) -> bool:
    """Return whether a law is in the quick plan of every implementation."""
    return law.agreement or law.watches or law.measures or law.id in _DETECTING


def without(planned: Iterable[Law], exclude: Iterable[str]) -> list[Law]:
    """Return the planned laws without the excluded ones. `exclude` has names of laws, or parts of
    names. Raises ValueError for an unknown law.
    """
    _require_names("exclude", exclude)
    excluded = {law for name in exclude for law in find(name)}
    return [law for law in planned if law not in excluded]


def require_planned(laws: Iterable[str] | None, planned: Iterable[Law]) -> None:
    """Raise ValueError for a named law that is planned for no implementation. Without this error,
    nobody would notice that attnspec does not check it.
    """
    _require_names("laws", () if laws is None else laws)
    ids = {law.id for law in planned}
    if missing := [name for name in laws or () if ids.isdisjoint(law.id for law in find(name))]:
        operations = ", ".join(dict.fromkeys(law.operation for law in find(missing[0])))
        raise ValueError(
            f"{missing[0]!r} is a law of {operations}, which is not offered; `attnspec laws` lists the laws of each "
            "operation."
        )


def _require_names(option: str, names: Any) -> None:
    if isinstance(names, str | np.ndarray) or not isinstance(names, Iterable):
        raise TypeError(f"{option}={shown(names)}, but should be a collection of names.")


def grouped(laws: Iterable[Law]) -> list[list[Law]]:
    """Return the laws in groups, one for each operation."""
    groups: dict[str, list[Law]] = {}
    for law in laws:
        groups.setdefault(law.operation, []).append(law)
    return list(groups.values())
