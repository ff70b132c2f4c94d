"""Defines the data of the page: implementations, laws, and a verdict for each pair."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from properties.bugs import CATALOGUE
from properties.contract.names import parts_of
from properties.laws import LAWS
from properties.verifier.comparison import law_id
from properties.verifier.report import PASSING
from properties.views.statuses import LABELS, SIGNS

__all__ = ["Implementation", "Matrix", "matrix"]

_ORDER = {law.id: place for place, law in enumerate(LAWS)}
_KNOWN = {law.id: law for law in LAWS}

GRAVITY = ("violated", "not run", "stopped early", "vacuous", "suspicious", "declared", "held", "not applicable")
"""The statuses, most serious first."""

Outcome = dict[str, Any]
"""An outcome as `Outcome.to_dict` writes it."""


@dataclass(frozen=True)
class Implementation:
    """An implementation of a report, and its outcomes. Its name is unique on the page."""

    name: str
    group: str
    arithmetic: str
    outcomes: tuple[Outcome, ...]

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of outcomes with each status."""
        return Counter(outcome["status"] for outcome in self.outcomes)

    @property
    def unavailable(self) -> str:
        """Why the implementation could not be run; "" if it was run."""
        return next((outcome["reason"] for outcome in self.outcomes if outcome.get("unavailable")), "")

    @property
    def ok(self) -> bool:
        """Whether all laws that apply pass, or fail as the adapter declares."""
        return all(status in PASSING for status in self.counts)

    @property
    def gravest(self) -> str:
        """The most serious status of the outcomes."""
        return next((status for status in GRAVITY if self.counts[status]), "not run")

    @property
    def worst(self) -> float | None:
        """The largest error ÷ error limit of the laws that pass; None if no law passes."""
        ratios = [float(outcome["worst_excess"]) for outcome in self.outcomes if outcome["status"] == "held"]
        return max(ratios, default=None)

    @property
    def seconds(self) -> float:
        """The seconds that all laws took together."""
        return float(sum(outcome["seconds"] for outcome in self.outcomes))

    @property
    def broken(self) -> list[Outcome]:
        """The outcomes that are neither passes nor "does not apply", most serious first, then
        smallest input first. The list is empty if the implementation was not run.
        """
        shown = [
            outcome
            for outcome in self.outcomes
            if outcome["status"] not in ("held", "not applicable") and not outcome.get("unavailable")
        ]
        return sorted(shown, key=lambda outcome: (GRAVITY.index(outcome["status"]), _size(outcome)))


@dataclass(frozen=True)
class Matrix:
    """The implementations in the order of the reports, and the laws, "law[operation]", in the order
    of the catalogue.
    """

    implementations: tuple[Implementation, ...]
    laws: tuple[str, ...]

    @property
    def counts(self) -> Counter[str]:
        """The number of outcomes with each status."""
        return sum((implementation.counts for implementation in self.implementations), Counter[str]())

    def data(self) -> dict[str, Any]:
        """Return the data of the page's script. Each statement and each reason occurs once.

        A status is [status, sign, seriousness from 0, label]. A cell is [law, implementation,
        status, examples, informative, vacuous, max error ÷ error limit or "inf", seconds, reason].
        A law is [name, operation, statement, bugs that it detects, Lean]. In a cell the law, the
        implementation, the status and the reason are positions in lists of the data. In a law the
        last three entries are such positions.
        """
        statements, reasons = _Once(), _Once()
        laws = []
        for law_name in self.laws:
            name, operation = parts_of(law_name)
            law = _KNOWN.get(law_name)
            texts = (f"{law.statement}\n\n{law.comparison}", _bugs(law.name), law.lean) if law else ("", "", "")
            laws.append([name, operation, *map(statements, texts)])
        places = {law: place for place, law in enumerate(self.laws)}
        statuses = list(SIGNS)
        cells = [
            [
                places[law_id(outcome)],
                column,
                statuses.index(outcome["status"]),
                *(outcome[key] for key in ("examples", "informative", "vacuous")),
                _short(outcome["worst_excess"]),
                round(outcome["seconds"], 2),
                reasons(outcome["reason"]),
            ]
            for column, implementation in enumerate(self.implementations)
            for outcome in implementation.outcomes
        ]
        return {
            "statuses": [[status, sign, GRAVITY.index(status), LABELS[status]] for status, (sign, _) in SIGNS.items()],
            "implementations": [[each.name, each.group, each.arithmetic] for each in self.implementations],
            "laws": laws,
            "texts": statements.values,
            "reasons": reasons.values,
            "cells": cells,
        }


class _Once:
    """A list of different texts. Calling it with a text returns the position of this text in the
    list. A new text is added to the list.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    @property
    def values(self) -> list[str]:
        return list(self._places)


def matrix(reports: Sequence[dict[str, Any]]) -> Matrix:
    """Return the matrix for some reports, each as `Report.to_dict` writes it. The second
    implementation with a name is renamed "name #2".
    """
    implementations: list[Implementation] = []
    seen: Counter[str] = Counter()
    for report in reports:
        outcomes: dict[str, list[Outcome]] = {}
        for outcome in report["outcomes"]:
            outcomes.setdefault(outcome["implementation"], []).append(outcome)
        known = {entry["name"]: entry for entry in report["settings"].get("implementations", ())}
        for name in known or outcomes:
            entry = known.get(name, {})
            seen[name] += 1
            shown = name if seen[name] == 1 else f"{name} #{seen[name]}"
            arithmetic = entry.get("arithmetic", report["settings"].get("arithmetic", ""))
            group, own = entry.get("group", name), tuple(outcomes.get(name, ()))
            implementations.append(Implementation(shown, group, arithmetic, own))
    laws = dict.fromkeys(law_id(outcome) for each in implementations for outcome in each.outcomes)
    return Matrix(tuple(implementations), tuple(sorted(laws, key=lambda law: _ORDER.get(law, len(_ORDER)))))


def _short(excess: float | str) -> float | str:
    """Return an error ÷ error limit with three digits. "inf" stays a string, because JSON has no
    infinity.
    """
    return float(f"{excess:.3g}") if isinstance(excess, float | int) else excess


def _bugs(law: str) -> str:
    """Return the names of the known bugs that a law is expected to detect."""
    return "; ".join(f"{bug.id}: {bug.mechanism}" for bug in CATALOGUE.values() if bug.law == law)


def _size(outcome: Outcome) -> int:
    return len(str(outcome["violation"]["counterexample"])) if outcome.get("violation") else 0
