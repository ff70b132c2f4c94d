"""Lists the mutants: each known bug in each of its operations, as an implementation to test."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from oracles import Conventions
from oracles.conventions import DEFAULT
from properties.bugs import CATALOGUE
from properties.bugs.bug import Bug
from properties.bugs.declared import under
from properties.bugs.equivalent import EQUIVALENT
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import USUAL_REFUSALS, Implementation
from properties.contract.operations import FEATURES

__all__ = ["EQUIVALENT_MUTANTS", "MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A known bug in one of its operations, to test which laws detect it."""

    bug: Bug
    operation: str

    @property
    def id(self) -> str:
        """The id of the bug. If the mutant is in another operation than the bug, the id ends with the
        name of the mutant's operation.
        """
        return self.bug.id if self.operation == self.bug.operation else f"{self.bug.id}[{self.operation}]"

    def implementation(self, conventions: Conventions = DEFAULT) -> Implementation:
        """Return a new implementation with the bug, which follows and declares these conventions. With
        promises of the bug, it offers only this operation; otherwise the reference has the other
        operations.
        """
        others = {} if self.bug.promises else REFERENCE
        functions = {**others, self.operation: self.bug.mutants[self.operation]()}
        promises = {
            "supports": (),
            "refuses": USUAL_REFUSALS,
            "features": FEATURES,
            "conventions": conventions,
            **self.bug.promises,
        }
        mutant = Implementation(self.id, functions, **promises)
        own = {name: under(mutant.resolved_conventions, name, function) for name, function in functions.items()}
        return replace(mutant, operations=own, caches=mutant.caches)


def _mutants(bugs: Iterable[Bug]) -> dict[str, Mutant]:
    return {mutant.id: mutant for bug in bugs for mutant in (Mutant(bug, operation) for operation in bug.mutants)}


MUTANTS, EQUIVALENT_MUTANTS = _mutants(CATALOGUE.values()), _mutants(EQUIVALENT.values())
