"""The verdict on a candidate: accepted or not, how much of it is right, and the first cause, as data."""

from dataclasses import dataclass, field
from typing import Any

from properties.verifier.report import Outcome, Report

__all__ = ["VERSION", "Verdict", "score"]

VERSION = 1
"""Of the verdict as data: gate.schema.json says what it holds."""


@dataclass(frozen=True)
class Verdict:
    """What the gate says of a candidate.

    `score` is from 0 to 1, and 1 where it is accepted; `cause` says in a sentence what is wrong
    first, "" where nothing is. `held` names what the system held the candidate's process to:
    "files", that it reads and writes nothing but its own folder and the libraries; "processes",
    that it sees no process but its own, and all of them end with it. `report` has the laws, and the
    gate's own checks as laws.
    """

    accepted: bool
    score: float
    cause: str
    held: tuple[str, ...]
    seconds: float
    report: Report = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists and mappings only, for JSON, as gate.schema.json says."""
        told = {
            "accepted": self.accepted,
            "score": self.score,
            "cause": self.cause,
            "held": [*self.held],
            "seconds": self.seconds,
        }
        return {"version": VERSION, **told, "report": self.report.to_dict()}


def score(outcomes: list[Outcome], calls: tuple[int, int]) -> float:
    """Half is the share of calls that were right, of all by which laws were examined; half the
    share of the laws and checks that apply and held, each of one weight."""
    applied = [o for o in outcomes if o.status != "not applicable"]
    right, all_of_them = calls
    share = sum(o.status in ("held", "suspicious") for o in applied) / len(applied) if applied else 0.0
    return (right / all_of_them if all_of_them else 0.0) / 2 + share / 2


def cause(ended: list[str], report: Report) -> str:
    """What is wrong first: the end of a process, or a known mistake that explains most, or the
    first violation; "" where nothing is.
    """
    if ended:
        return ended[0]
    for found in report.causes:
        if found.diagnosis and not found.diagnosis[0].hint:
            d = found.diagnosis[0]
            return f"{d.id}: {found.example.summary} {d.repair}".strip()
    for violation in report.violations:
        return f"{violation.law}: {violation.summary}"
    return next((f"{o.law}: {o.reason}" for o in report.outcomes if report.fails(o)), "")
