"""The conformance matrix as data: implementations, laws, and a verdict for each pair."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from properties.bugs import CATALOGUE
from properties.contract.names import parts_of
from properties.laws import LAWS
from properties.verifier.report import PASSING
from properties.views.violation import SIGNS

__all__ = ["Implementation", "Matrix", "law_id", "matrix"]

_ORDER = {law.id: place for place, law in enumerate(LAWS)}
_KNOWN = {law.id: law for law in LAWS}

GRAVITY = ("violated", "not run", "vacuous", "suspicious", "declared", "held", "not applicable")
"""The statuses, gravest first."""

Outcome = dict[str, Any]
"""An outcome as `Outcome.to_dict` writes it."""


@dataclass(frozen=True)
class Implementation:
    """An implementation as a report knows it, and its outcomes. Its name is its own in the page."""

    name: str
    group: str
    arithmetic: str
    outcomes: tuple[Outcome, ...]

    @cached_property
    def counts(self) -> Counter[str]:
        """How many outcomes have each status."""
        return Counter(o["status"] for o in self.outcomes)

    @property
    def unavailable(self) -> str:
        """Why it could not be run; "" where it was."""
        return next((o["reason"] for o in self.outcomes if o.get("unavailable")), "")

    @property
    def ok(self) -> bool:
        """Whether nothing but what passes came of the laws that apply."""
        return all(status in PASSING for status in self.counts)

    @property
    def gravest(self) -> str:
        """The status that matters most among the outcomes."""
        return next((status for status in GRAVITY if self.counts[status]), "not run")

    @property
    def worst(self) -> float | None:
        """The largest error in units of its budget where laws held; None where none did."""
        held = [float(o["worst_excess"]) for o in self.outcomes if o["status"] == "held"]
        return max(held, default=None)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return float(sum(o["seconds"] for o in self.outcomes))

    @property
    def broken(self) -> list[Outcome]:
        """The outcomes that did not simply hold, of one that was run: gravest first, then those
        with the smallest inputs.
        """
        shown = [o for o in self.outcomes if o["status"] not in ("held", "not applicable") and not o.get("unavailable")]
        return sorted(shown, key=lambda o: (GRAVITY.index(o["status"]), _size(o)))


@dataclass(frozen=True)
class Matrix:
    """Implementations in the order of the reports, and laws, "law[operation]", in that of the laws."""

    implementations: tuple[Implementation, ...]
    laws: tuple[str, ...]

    @property
    def counts(self) -> Counter[str]:
        """How many outcomes have each status."""
        return sum((i.counts for i in self.implementations), Counter[str]())

    def data(self) -> dict[str, Any]:
        """What the page's script needs, each statement and each reason once.

        A cell is [law, implementation, status, examples, informative, vacuous, max error ÷ budget
        or "inf", seconds, reason]; a law is [name, operation, statement, bugs it is there for,
        Lean]; numbers stand for entries of lists.
        """
        statements, reasons = _Once(), _Once()
        laws = []
        for law_name in self.laws:
            name, operation = parts_of(law_name)
            law = _KNOWN.get(law_name)
            said = (f"{law.statement}\n\n{law.comparison}", _bugs(law.name), law.lean) if law else ("", "", "")
            laws.append([name, operation, statements(said[0]), statements(said[1]), statements(said[2])])
        places = {law: place for place, law in enumerate(self.laws)}
        statuses = list(SIGNS)
        cells = [
            [
                places[law_id(o)],
                column,
                statuses.index(o["status"]),
                *(o[key] for key in ("examples", "informative", "vacuous")),
                _short(o["worst_excess"]),
                round(o["seconds"], 2),
                reasons(o["reason"]),
            ]
            for column, implementation in enumerate(self.implementations)
            for o in implementation.outcomes
        ]
        return {
            "statuses": [[status, sign, GRAVITY.index(status)] for status, (sign, _) in SIGNS.items()],
            "implementations": [[i.name, i.group, i.arithmetic] for i in self.implementations],
            "laws": laws,
            "texts": statements.values,
            "reasons": reasons.values,
            "cells": cells,
        }


class _Once:
    """A list of texts without repetition; calling it gives the place of a text."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    @property
    def values(self) -> list[str]:
        return list(self._places)


def matrix(reports: Sequence[dict[str, Any]]) -> Matrix:
    """The matrix of reports as `Report.to_dict` writes them; a second implementation of a name is "name #2"."""
    implementations: list[Implementation] = []
    seen: Counter[str] = Counter()
    for report in reports:
        outcomes: dict[str, list[Outcome]] = {}
        for o in report["outcomes"]:
            outcomes.setdefault(o["implementation"], []).append(o)
        known = {i["name"]: i for i in report["settings"].get("implementations", ())}
        for name in known or outcomes:
            entry = known.get(name, {})
            seen[name] += 1
            shown = name if seen[name] == 1 else f"{name} #{seen[name]}"
            arithmetic = entry.get("arithmetic", report["settings"].get("arithmetic", ""))
            implementations.append(
                Implementation(shown, entry.get("group", name), arithmetic, tuple(outcomes.get(name, ())))
            )
    laws = dict.fromkeys(law_id(o) for i in implementations for o in i.outcomes)
    return Matrix(tuple(implementations), tuple(sorted(laws, key=lambda law: _ORDER.get(law, len(_ORDER)))))


def law_id(outcome: Outcome) -> str:
    """The law of an outcome, "law[operation]"."""
    return f"{outcome['law']}[{outcome['operation']}]"


def _short(excess: float | str) -> float | str:
    """An excess to three digits; "inf" stays a string, as JSON has none."""
    return float(f"{excess:.3g}") if isinstance(excess, float | int) else excess


def _bugs(law: str) -> str:
    """The known bugs that a law is there for."""
    return "; ".join(f"{bug.id}: {bug.mechanism}" for bug in CATALOGUE.values() if bug.law == law)


def _size(outcome: Outcome) -> int:
    return len(str(outcome["violation"]["counterexample"])) if outcome.get("violation") else 0
