"""Defines the verdict of the gate as data: accepted or not, a score, and the first cause."""

from dataclasses import dataclass, field
from typing import Any

from properties.verifier.report import Outcome, Report

__all__ = ["VERSION", "Verdict", "score"]

VERSION = 1
"""The version of the verdict as JSON; gate.schema.json describes it."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on an untrusted kernel.

    accepted   whether all laws and checks pass
    score      from 0 to 1; 1 for an accepted kernel
    cause      a sentence that says what is wrong first; "" for an accepted kernel
    held       the limits that the system enforced. "files": the process reads and writes only its
               folder and the libraries. "processes": it sees only its own processes, and all of
               them end with it. "syscalls": it makes no system call that harms others
    report     the outcomes of the laws, and of the gate's checks
    used       modules outside the standard library that the kernel imported, functions of torch that
               it called, and, if some names are forbidden, all names that its sources use
    replaced   functions of Python's library, NumPy and torch that it replaced
    judged     false if the machine was too busy: the kernel got too little of a processor to be
               judged in time, and so is not accepted

    Raises ValueError for a score outside of [0, 1], and for an accepted kernel that has a cause, or was
    not judged.
    """

    accepted: bool
    score: float
    cause: str
    held: tuple[str, ...]
    seconds: float
    report: Report = field(repr=False)
    used: tuple[str, ...] = field(default=(), repr=False)
    replaced: tuple[str, ...] = ()
    judged: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.score <= 1:
            raise ValueError(f"score={self.score}, but should be from 0 to 1.")
        if self.accepted and (self.cause or not self.judged):
            raise ValueError(
                f"accepted=True with cause={self.cause!r} and judged={self.judged}, but an accepted kernel should have "
                'cause="" and judged=True.'
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict for JSON. The schema gate.schema.json describes it."""
        fields = {
            "accepted": self.accepted,
            "judged": self.judged,
            "score": self.score,
            "cause": self.cause,
            "held": [*self.held],
            "seconds": self.seconds,
            "used": [*self.used],
            "replaced": [*self.replaced],
        }
        return {"version": VERSION, **fields, "report": self.report.to_dict()}


def score(outcomes: list[Outcome], calls: tuple[int, int]) -> float:
    """Return the score: the mean of two shares. `calls` is (right calls, all calls).

    The first share is right calls ÷ all calls of the laws. The second is passed laws and checks ÷ laws
    and checks that apply.
    """
    applied = [outcome for outcome in outcomes if outcome.status != "not applicable"]
    right_calls, all_of_them = calls
    share_passed = (
        sum(outcome.status in ("held", "suspicious") for outcome in applied) / len(applied) if applied else 0.0
    )
    return (right_calls / all_of_them if all_of_them else 0.0) / 2 + share_passed / 2


def cause(ended: list[str], report: Report) -> str:
    """Return a sentence that says what is wrong first: the end of a process, a known bug, or the
    first violation (failed law). The known bug is the one that explains most violations. The result
    is "" for an accepted kernel.
    """
    if ended:
        return ended[0]
    for found in report.causes:
        if found.diagnosis and not found.diagnosis[0].partial:
            diagnosis = found.diagnosis[0]
            return f"{diagnosis.id}: {found.example.summary} {diagnosis.repair}".strip()
    for violation in report.violations:
        return f"{violation.law}: {violation.summary}"
    return next((f"{outcome.law}: {outcome.reason}" for outcome in report.outcomes if report.fails(outcome)), "")
