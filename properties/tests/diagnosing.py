"""What diagnosis says first, without the time that a smaller input takes."""

from properties.contract.implementation import Implementation
from properties.verifier.explaining import causes_of
from properties.verifier.plan import grouped, plan
from properties.verifier.report import Cause
from properties.verifier.verify import examine

__all__ = ["first_cause"]


def first_cause(implementation: Implementation, examples: int = 200, seed: int = 0) -> Cause | None:
    """The first cause of what the quick plan finds on an implementation of one operation, up to the first case that breaks a law."""
    (laws,) = grouped(plan(implementation, None, long=False, quick=True))
    outcomes = examine(laws, implementation, examples, seed, ends=lambda law: True)
    violations = [o.violation for o in outcomes if o.status == "violated" and o.violation is not None]
    return next(iter(causes_of(implementation, violations, shrinks=False)), None)
