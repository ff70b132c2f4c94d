"""Decides the outcome of a law from what was recorded about the law and its operation."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from oracles.formats import BINARY32
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, Call
from properties.contract.subject import Subject
from properties.contract.tried_calls import TriedCall
from properties.laws.agreement import AGREEMENT
from properties.laws.law import Law
from properties.strategies.cases import Cases
from properties.verifier.notes import notes, or_note
from properties.verifier.report import Outcome, Status, TriedSizes, Violation, broken, counted
from properties.verifier.tightest_preset import TightestPreset

__all__ = ["FAILED", "TIME", "Evidence", "Trial", "does_not_apply", "unknown"]

TIME, FAILED = "Time was up", "The run ended at the first violation"
"""Why no further case is drawn: the time limit, or fail-fast."""

_ENOUGH_VIOLATIONS = 4  # after this number of violations a law is not checked any more
_FEWEST_INFORMATIVE = 4  # cases that a law gets, if its domains have informative cases at all
_KEPT_REFUSALS = 4  # for the choice between explanations that are equal otherwise
_KEPT_CALLS = 24  # right and wrong ones, for the diagnosis


class Evidence:
    """The record of an operation under all laws: the number of cases (test inputs), the sizes of
    all calls, and examples of right and wrong calls.
    """

    def __init__(self, implementation: Implementation, operation: str) -> None:
        self.implementation, self.operation = implementation, operation
        self.cases = 0
        self.right: list[Call] = []
        self.wrong: list[Call] = []
        self.refused: list[Call] = []
        self.seen: list[TriedSizes] = []
        self.tried: list[TriedCall] = []
        self.tightest = TightestPreset(implementation)

    def add(self, call: Call, is_right: bool) -> None:
        """Record a call that was compared with the oracle."""
        kept = self.right if is_right else self.wrong
        if len(kept) < _KEPT_CALLS:
            kept.append(call)
        self.seen.append(TriedSizes(OPERATIONS[call.operation].sizes(call.arguments), is_right))

    def refuse(self, call: Call) -> None:
        """Record a call that raised, and that an undeclared implementation need not take."""
        if len(self.refused) < _KEPT_REFUSALS:
            self.refused.append(call)

    @property
    def nothing_returned(self) -> bool:
        """Whether calls of an undeclared implementation were made, and all of them raised."""
        return bool(self.tried) and all(call.error for call in self.tried)

    @property
    def unwritten(self) -> str:
        """A sentence that the operation is not written yet, with the message of the first call. It
        is "" unless every call raised NotImplementedError.
        """
        errors = [*(call.error for call in self.wrong), *(call.error and f"raised {call.error}" for call in self.tried)]
        all_raised = all(error.startswith("raised NotImplementedError: ") for error in errors)
        return f"Every call {errors[0]}" if errors and all_raised and not self.right else ""


@dataclass
class Trial:
    """The record of one law so far: how often it passed, failed, or could not be checked."""

    law: Law
    cases: dict[str, Cases]  # by the names of their domains
    declared: str  # why the law is known to fail, or ""
    undrawn: tuple[str, ...] = ()  # the domains without some or all cases, and why: "domain: reason"
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
    violation: Violation | None = None  # the one with the smallest input
    defect: str = ""  # how attnspec itself failed
    untaken: str = ""  # why the first case that was left out cannot be given to the implementation
    left_out: int = 0
    cut_short: str = ""  # why not all cases were drawn

    @property
    def open(self) -> bool:
        """Whether the law will be checked on further cases (test inputs)."""
        return self.violations < _ENOUGH_VIOLATIONS and not self.defect

    @property
    def wants_more(self) -> bool:
        """Whether the law needs more cases: too few could have exposed a mistake, or a failure that
        the adapter declares has not occurred yet.
        """
        too_few = self.informative < max(_FEWEST_INFORMATIVE, self._least)
        return self.open and not self.violations and (bool(self.declared) or too_few)

    @property
    def _least(self) -> int:
        """The number of cases (test inputs) that should be informative: they could have exposed a
        mistake.
        """
        return ceil(self.law.floor * self.examples)

    @property
    def _may_suffice(self) -> bool:
        """Whether the law would have enough informative cases if all cases that were left out were
        informative. An informative case could have exposed a mistake.
        """
        return self.informative + self.left_out >= self.law.floor * (self.examples + self.left_out)

    def leave_out(self, reason: str) -> None:
        """Record a case (test input) that the implementation does not take, and the reason."""
        self.untaken = self.untaken or reason
        self.left_out += 1

    def passed(self, subject: Subject) -> None:
        """Record a case (test input) on which the law passes."""
        self.examples += 1
        self.informative += subject.informative
        self.coarse += subject.coarse
        self.vacuous += bool(subject.vacuous)
        self.suspicious += subject.worst_line > 1
        self.worst, self.worst_line = max(self.worst, subject.worst), max(self.worst_line, subject.worst_line)

    def failed(self, implementation: str, broken: BrokenError, case: dict[str, Any], calls: tuple[Call, ...]) -> None:
        """Record a case (test input) on which the law fails, and its calls. The violation with the
        smallest input is kept.
        """
        self.examples += 1
        self.violations += 1
        found = Violation(
            self.law.name, self.law.operation, implementation, str(broken), case, broken.excess, calls, shrunk=False
        )
        if self.violation is None or found.size < self.violation.size:
            self.violation = found
        self.worst = max(self.worst, broken.excess)

    def outcome(self, evidence: Evidence) -> Outcome:
        """Return the outcome of the law, from this record and the evidence about its operation."""
        law, tightest = self.law, evidence.tightest
        outcome = Outcome(
            *(law.name, law.operation, evidence.implementation.name, "held"),
            examples=self.examples,
            informative=self.informative,
            vacuous=self.vacuous,
            suspicious=self.suspicious,
            worst_line=self.worst_line,
            worst_excess=self.worst,
            seconds=self.seconds,
            reason=self.declared,
            within=tightest.names if law.agreement else (),
            looked_at=tightest.calls if law.agreement else 0,
            undrawn=self.undrawn if law.agreement or law.measures else (),
        )
        if evidence.unwritten:
            return replace(outcome, status="not run", examples=0, worst_excess=0.0, reason=evidence.unwritten)
        if self.violation is not None:
            return self._violated(outcome, self.violation, evidence)
        if reason := self.defect or self._cut_short(evidence):
            return replace(outcome, status="not run", reason=reason, defect=bool(self.defect))
        if self.declared:
            inputs = counted(self.examples, "test input")
            return _needless(
                outcome,
                f"is declared as a known deviation, but passes on {inputs}. Remove the declaration.",
                self.declared,
            )
        status, reason = self._status(evidence)
        return replace(outcome, status=status, reason=reason)

    def _violated(self, outcome: Outcome, violation: Violation, evidence: Evidence) -> Outcome:
        """Return the outcome of a law that fails, with the calls that the search for the cause
        needs.
        """
        calls: dict[str, Any] = {kind: tuple(getattr(evidence, kind)) for kind in ("right", "wrong", "refused", "seen")}
        seen = replace(violation, **calls)
        if not self.declared:
            tried = evidence.seen if self.law.agreement else ()
            noted = lambda one: replace(one, notes=notes(one.calls, evidence.implementation, tried))  # noqa: E731
            seen = or_note(seen, "it described what is wrong", noted)
        return replace(outcome, status=broken(seen, self.declared).status, violation=seen)

    def _cut_short(self, evidence: Evidence) -> str:
        """Return a sentence that says why not all cases (test inputs) were drawn; "" if all were."""
        if not self.cut_short:
            return ""
        inputs = f"{counted(evidence.cases, 'test input')} of {evidence.operation}"
        advice = " Give a longer time limit, or fewer test inputs." if self.cut_short == TIME else ""
        return f"{self.cut_short} after {inputs}. The law did not fail on these, and has no verdict.{advice}"

    def _status(self, evidence: Evidence) -> tuple[Status, str]:
        """Return the status of a law that did not fail, and the reason."""
        implementation, agreement = evidence.implementation, self.law in AGREEMENT
        if not self.examples:
            inputs = counted(evidence.cases, "input")
            reason = self.untaken or f"None of the {inputs} that {implementation.name} supports can test this law."
            if agreement or evidence.nothing_returned:
                return "vacuous", unknown(implementation, self.law.operation, reason)
            return "not applicable", reason
        if self.informative < self._least:
            return self._too_few_informative(implementation, agreement)
        if self.suspicious:
            inputs = f"On {self.suspicious} of {counted(self.examples, 'test input')}"
            error = f"an error was up to {self.worst_line:.3g} times the statistical line"
            return "suspicious", f"{inputs} {error}, and within the error limit."
        return "held", ""

    def _too_few_informative(self, implementation: Implementation, agreement: bool) -> tuple[Status, str]:
        """Return the status of a law that did not fail, but that too few inputs could test, and the
        reason.
        """
        if not agreement and self.left_out and self._may_suffice:
            return "not applicable", self.untaken
        arithmetic = implementation.resolved_arithmetic
        needed = f"at least {self._least} must be able to"
        reason = f"Only {self.informative} of {self.examples} test inputs could expose a mistake; {needed}."
        is_coarse = arithmetic.output.unit_roundoff > BINARY32.unit_roundoff
        if self.informative + self.coarse >= self._least and is_coarse and not agreement:
            return "not applicable", f"The error limits of {arithmetic.name} are too wide for this law. {reason}"
        return "vacuous", reason


def unknown(implementation: Implementation, operation: str, reason: str) -> str:
    """Return a sentence that says that no case (test input) compares an operation with the oracle,
    and why.
    """
    return (
        f"attnspec compared no result of {operation} with the oracle, so {implementation.name} has no verdict: {reason}"
    )


def does_not_apply(outcome: Outcome, reason: str, declared: str) -> Outcome:
    """Return the outcome of a law without cases (test inputs). If the adapter declares that this
    very law fails, the outcome is a violation, because the declaration is needless.
    """
    if not declared:
        return replace(outcome, status="not applicable", reason=reason)
    summary = f"is declared as a known deviation, but does not apply. Remove the declaration. {reason}"
    return _needless(outcome, summary, declared)


def _needless(outcome: Outcome, summary: str, declared: str) -> Outcome:
    """Return the outcome of a law whose declared deviation is needless: a violation."""
    empty = Violation(outcome.law, outcome.operation, outcome.implementation, f"{summary} It says: {declared}", {}, 0.0)
    return replace(outcome, status="violated", reason=declared, violation=empty)
