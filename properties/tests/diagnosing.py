"""The causes that diagnosis finds, without the time that smaller inputs take."""

from collections.abc import Sequence

from properties.contract.implementation import Implementation
from properties.verifier.diagnosis import causes_of
from properties.verifier.examination import Supervision
from properties.verifier.plan import grouped, plan
from properties.verifier.report import Cause
from properties.verifier.verify import examine

__all__ = ["causes", "first_cause"]


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
