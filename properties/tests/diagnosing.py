"""The causes that diagnosis finds, without the time that smaller inputs take."""

from collections.abc import Sequence
from typing import Any

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws import LAWS
from properties.laws.law import Law
from properties.verifier.diagnosis import causes_of
from properties.verifier.examination import Supervision
from properties.verifier.plan import grouped, plan
from properties.verifier.report import Cause, Violation
from properties.verifier.verify import examine

__all__ = ["causes", "first_cause", "violated"]


def causes(
    implementation: Implementation,
    examples: int = 100,
    seed: int = 0,
    *,
    laws: Sequence[str] | None = None,
    quick: bool = False,
    fail_fast: bool = False,
) -> tuple[Cause, ...]:
    """The causes of what all laws find, or some, as `verify` finds them, each with the input that was drawn."""
    violations = []
    for group in grouped(plan(implementation, laws, long=False, quick=quick)):
        outcomes = examine(group, implementation, examples, seed, supervision=Supervision(ends=lambda law: fail_fast))
        violations += [o.violation for o in outcomes if o.status == "violated" and o.violation is not None]
    return causes_of(implementation, violations, shrinks=False)


def first_cause(implementation: Implementation, examples: int = 200, seed: int = 0) -> Cause | None:
    """The first cause of what the quick plan finds, up to the first case that breaks a law."""
    return next(iter(causes(implementation, examples, seed, quick=True, fail_fast=True)), None)


def violated(implementation: Implementation, case: dict[str, Any]) -> tuple[Law, Violation | None]:
    """The law that compares an operation with the oracle, and its violation on a case; None if it
    passes.
    """
    (operation,) = implementation.operations
    (law,) = [law for law in LAWS if law.operation == operation and law.agreement]
    subject = Subject(implementation, operation)
    absent = dict.fromkeys(OPERATIONS[operation].options)
    case = {name: value for name, value in (absent | case).items() if name in OPERATIONS[operation].parameters}
    try:
        law.hold(subject, case)
    except BrokenError as broken:
        calls = tuple(subject.calls)
        return law, Violation(law.name, operation, implementation.name, str(broken), case, broken.excess, calls)
    return law, None
