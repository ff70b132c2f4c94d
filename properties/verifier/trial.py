"""A law's trial: what is known of the law so far, what was seen of its operation besides, and what
becomes of it by both.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from oracles.formats import BINARY32
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, Call
from properties.contract.subject import Subject
from properties.laws.agreement import AGREEMENT
from properties.laws.law import Law
from properties.strategies.cases import Cases
from properties.verifier.notes import notes, or_note
from properties.verifier.report import Outcome, Status, TriedSizes, Violation, broken, counted
from properties.verifier.tightest_preset import TightestPreset

__all__ = ["FAILED", "TIME", "Evidence", "Trial", "not_applicable", "unknown"]

TIME, FAILED = "Time was up", "The run ended at the first violation"
"""Why no further case is drawn: a budget of time, or fail-fast."""

_ENOUGH = 4  # violations of a law after which it is not put to further cases
_SAID = 4  # informative examples that a law is given, where cases of its domains are informative at all
_KEPT = 24  # calls, right and wrong, that are kept for the diagnosis


class Evidence:
    """What was seen of an operation, whichever laws were put to it: how many cases, the sizes of
    all calls, and some, right and wrong.
    """

    def __init__(self, implementation: Implementation, operation: str) -> None:
        self.implementation, self.operation = implementation, operation
        self.cases = 0
        self.right: list[Call] = []
        self.wrong: list[Call] = []
        self.seen: list[TriedSizes] = []
        self.narrowest = TightestPreset(implementation)

    def add(self, call: Call, is_right: bool) -> None:
        """Note a call that was judged by itself."""
        kept = self.right if is_right else self.wrong
        if len(kept) < _KEPT:
            kept.append(call)
        self.seen.append(TriedSizes(OPERATIONS[call.operation].sizes(call.arguments), is_right))

    @property
    def unwritten(self) -> str:
        """That the operation is still to be written, if each of its calls says so by a
        NotImplementedError, and what the first one says.
        """
        raised = [call.error for call in self.wrong if call.error.startswith("raised NotImplementedError: ")]
        return f"Every call {raised[0]}" if raised and len(raised) == len(self.wrong) and not self.right else ""


@dataclass
class Trial:
    """What is known of a law so far."""

    law: Law
    cases: dict[str, Cases]  # by the names of their domains
    declared: str  # why it is known to be broken, or ""
    undrawn: tuple[str, ...] = ()  # of which domains there are no cases, and why
    examples: int = 0
    informative: int = 0
    coarse: int = 0
    vacuous: int = 0
    suspicious: int = 0
    worst: float = 0.0
    worst_line: float = 0.0
    seconds: float = 0.0
    credit: float = 0.0
    violations: int = 0
    violation: Violation | None = None  # on the smallest input
    failed: str = ""  # how attnspec itself failed
    untaken: str = (
        ""  # why a case could not be handed over, or is none that the implementation takes: the first of `left_out`
    )
    left_out: int = 0
    cut_short: str = ""  # why, before all of its cases were drawn

    @property
    def open(self) -> bool:
        """Whether it is put to further cases."""
        return self.violations < _ENOUGH and not self.failed

    @property
    def wants_more(self) -> bool:
        """Whether too few of its cases were informative, or what is declared has not been seen."""
        return self.open and not self.violations and (bool(self.declared) or self.informative < max(_SAID, self._least))

    @property
    def _least(self) -> int:
        """The number of examples that should be informative."""
        return ceil(self.law.floor * self.examples)

    @property
    def _may_say_enough(self) -> bool:
        """Whether enough examples would be informative if all that are left out were."""
        return self.informative + self.left_out >= self.law.floor * (self.examples + self.left_out)

    def leave_out(self, why: str) -> None:
        """A case is none that the implementation takes."""
        self.untaken = self.untaken or why
        self.left_out += 1

    def held(self, subject: Subject) -> None:
        """It held on a case."""
        self.examples += 1
        self.informative += subject.informative
        self.coarse += subject.coarse
        self.vacuous += bool(subject.vacuous)
        self.suspicious += subject.worst_line > 1
        self.worst, self.worst_line = max(self.worst, subject.worst), max(self.worst_line, subject.worst_line)

    def broke(self, implementation: str, broken: BrokenError, case: dict[str, Any], calls: tuple[Call, ...]) -> None:
        """It was broken on a case, by some calls; the violation on the smallest input is kept."""
        self.examples += 1
        self.violations += 1
        found = Violation(
            self.law.name, self.law.operation, implementation, str(broken), case, broken.excess, calls, shrunk=False
        )
        if self.violation is None or found.size < self.violation.size:
            self.violation = found
        self.worst = max(self.worst, broken.excess)

    def outcome(self, evidence: Evidence) -> Outcome:
        """What became of the law."""
        law, narrowest = self.law, evidence.narrowest
        found = Outcome(
            *(law.name, law.operation, evidence.implementation.name, "held"),
            examples=self.examples,
            informative=self.informative,
            vacuous=self.vacuous,
            suspicious=self.suspicious,
            worst_line=self.worst_line,
            worst_excess=self.worst,
            seconds=self.seconds,
            reason=self.declared,
            within=narrowest.names if law.agreement else (),
            looked_at=narrowest.calls if law.agreement else 0,
            undrawn=self.undrawn if law.agreement else (),
        )
        if evidence.unwritten:
            return replace(found, status="not run", examples=0, worst_excess=0.0, reason=evidence.unwritten)
        if self.violation is not None:
            return self._violated(found, self.violation, evidence)
        if why := self.failed or self._cut_short(evidence):
            return replace(found, status="not run", reason=why, defect=bool(self.failed))
        if self.declared:
            summary = (
                f"is declared to be broken, but held on {counted(self.examples, 'example')}: the declaration should go."
            )
            return _in_vain(found, summary, self.declared)
        status, reason = self._status(evidence)
        return replace(found, status=status, reason=reason)

    def _violated(self, found: Outcome, violation: Violation, evidence: Evidence) -> Outcome:
        """The outcome of a law that was broken, with what was seen besides, by which its cause is found."""
        seen = replace(violation, right=tuple(evidence.right), wrong=tuple(evidence.wrong), seen=tuple(evidence.seen))
        if not self.declared:
            tried = evidence.seen if self.law.agreement else ()
            noted = lambda v: replace(v, notes=notes(v.calls, evidence.implementation, tried))  # noqa: E731
            seen = or_note(seen, "it described what is wrong", noted)
        return replace(found, status=broken(seen, self.declared).status, violation=seen)

    def _cut_short(self, evidence: Evidence) -> str:
        """That not all of its cases were drawn, and why, or ""."""
        after = f"{self.cut_short} after {counted(evidence.cases, 'case')} of {evidence.operation}"
        more = " More time should be given, or fewer cases." if self.cut_short == TIME else ""
        return f"{after}: it was cut short, and not seen to be broken.{more}" if self.cut_short else ""

    def _status(self, evidence: Evidence) -> tuple[Status, str]:
        """The status of a law that was not seen to be broken, and the reason."""
        i, agreement = evidence.implementation, self.law in AGREEMENT
        if not self.examples:
            why = self.untaken or f"It says nothing of any of {counted(evidence.cases, 'case')} that {i.name} supports."
            return ("vacuous", unknown(i, self.law.operation, why)) if agreement else ("not applicable", why)
        if self.informative < self._least:
            if not agreement and self.left_out and self._may_say_enough:
                return "not applicable", self.untaken
            few = f"Only {self.informative} of {self.examples} examples were informative, but at least {self._least} should be."
            wide = (
                self.informative + self.coarse >= self._least
                and i.resolved_arithmetic.output.unit_roundoff > BINARY32.unit_roundoff
            )
            if wide and not agreement:
                return "not applicable", f"Budgets of {i.resolved_arithmetic.name} are too wide for it. {few}"
            return "vacuous", few
        if self.suspicious:
            where = (
                f"In {self.suspicious} of {counted(self.examples, 'example')} an error was beyond the statistical line"
            )
            return "suspicious", f"{where}, by up to {self.worst_line:.3g} times, and within the budget."
        return "held", ""


def unknown(implementation: Implementation, operation: str, why: str) -> str:
    """The sentence on an operation that is compared with the oracle on no case at all."""
    return f"{implementation.name} takes no case on which {operation} is compared with the oracle, so that nothing is known of it: {why}"


def not_applicable(outcome: Outcome, why: str, declared: str) -> Outcome:
    """The outcome of a law without cases; a declaration that this very law is broken is one of
    nothing, and should go.
    """
    if not declared:
        return replace(outcome, status="not applicable", reason=why)
    return _in_vain(
        outcome, f"is declared to be broken, but does not apply: the declaration should go. {why}", declared
    )


def _in_vain(outcome: Outcome, summary: str, declared: str) -> Outcome:
    """The outcome of a law that was declared to be broken, and is not."""
    empty = Violation(outcome.law, outcome.operation, outcome.implementation, f"{summary} It says: {declared}", {}, 0.0)
    return replace(outcome, status="violated", reason=declared, violation=empty)
