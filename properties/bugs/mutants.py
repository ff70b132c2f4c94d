"""Mutants: each known bug in each of its operations, as an implementation that is put under test."""

from collections.abc import Iterable
from dataclasses import dataclass

from properties.bugs import CATALOGUE
from properties.bugs.bug import Bug
from properties.bugs.equivalent import EQUIVALENT
from properties.bugs.reference import OPERATIONS
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES

__all__ = ["MUTANTS", "TRAPS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A bug in one of its operations: a row of the matrix."""

    bug: Bug
    operation: str

    @property
    def id(self) -> str:
        """The bug's, with the operation where that is not the one in which the bug was seen."""
        return self.bug.id if self.operation == self.bug.operation else f"{self.bug.id}[{self.operation}]"

    def implementation(self) -> Implementation:
        """One with the bug; where it has promises of its own, it offers nothing else."""
        others = {} if self.bug.promises else OPERATIONS
        mutant = {**others, self.operation: self.bug.mutants[self.operation]()}
        return Implementation(self.id, mutant, **{"features": FEATURES, **self.bug.promises})


def _mutants(bugs: Iterable[Bug]) -> dict[str, Mutant]:
    return {mutant.id: mutant for bug in bugs for mutant in (Mutant(bug, operation) for operation in bug.mutants)}


MUTANTS, TRAPS = _mutants(CATALOGUE.values()), _mutants(EQUIVALENT.values())
