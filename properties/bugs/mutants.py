"""Lists the mutants: each known bug in each of its operations, as an implementation to test."""

from collections.abc import Iterable
from dataclasses import dataclass

from properties.bugs import CATALOGUE
from properties.bugs.bug import Bug
from properties.bugs.equivalent import EQUIVALENT
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
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

    def implementation(self) -> Implementation:
        """Return a new implementation with the bug. A bug with its own declarations offers only
        this operation. Otherwise the other operations are the reference's.
        """
        others = {} if self.bug.promises else REFERENCE
        mutant = {**others, self.operation: self.bug.mutants[self.operation]()}
        return Implementation(self.id, mutant, **{"features": FEATURES, **self.bug.promises})


def _mutants(bugs: Iterable[Bug]) -> dict[str, Mutant]:
    return {mutant.id: mutant for bug in bugs for mutant in (Mutant(bug, operation) for operation in bug.mutants)}


MUTANTS, EQUIVALENT_MUTANTS = _mutants(CATALOGUE.values()), _mutants(EQUIVALENT.values())
