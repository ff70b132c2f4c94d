"""Our own checks, as columns of the same table: the quick plan, the default plan, and the vectors."""

from functools import cache

from properties.bugs.bug import Bug
from properties.bugs.mutants import Mutant
from properties.verifier.examination import Supervision
from properties.verifier.plan import QUICKLY, plan
from properties.verifier.verify import examine
from research.vectors.choosing import chosen
from research.vectors.kills import beyond_vectors

__all__ = ["by_plan", "by_vectors"]

_CASES, _SEED = 100, 0


def by_plan(bug: Bug, *, quick: bool) -> bool:
    """Whether a plan's laws are violated by some operation that has a bug, up to the first violation."""
    return any(_violated(Mutant(bug, operation), quick) for operation in bug.mutants)


def _violated(mutant: Mutant, quick: bool) -> bool:
    implementation = mutant.implementation()
    laws = [law for law in plan(implementation, quick=quick) if law.operation == mutant.operation]
    outcomes = (
        examine(
            laws, implementation, QUICKLY if quick else _CASES, _SEED, supervision=Supervision(ends=lambda law: True)
        )
        if laws
        else []
    )
    return any(outcome.status == "violated" for outcome in outcomes)


def by_vectors(bug: Bug) -> bool | None:
    """Whether some vector of some format shows a bug; None where no single call on plain arrays
    can, and vectors are not asked.
    """
    mutants = [Mutant(bug, operation) for operation in bug.mutants]
    if all(beyond_vectors(mutant) for mutant in mutants):
        return None
    return any(mutant.id in _killed() for mutant in mutants)


@cache
def _killed() -> frozenset[str]:
    return frozenset(name for chosen_case in chosen() for kills in chosen_case.kills.values() for name in kills)
