"""A checker is a row of a table, which says what it calls and what it accepts."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from research.checkers.comparisons import Comparison
from research.checkers.trial import Trial

__all__ = ["Checker"]

Consistent = Callable[[Implementation, Trial], bool]
"""Whether the derivatives of an implementation are those of its own function, at a trial's arguments."""


@dataclass(frozen=True, eq=False)
class Checker:
    """A checker in use: its shapes, draws and tolerances, and their sources.

    It accepts an implementation if `compares` accepts the results of every call, and `consistent`
    the derivatives, which `suffixes` name. `unlike` says in which ways it differs from the
    original.
    """

    name: str
    draws: str
    accepts: str
    unlike: str
    sources: tuple[str, ...]
    trials: Callable[[], Iterator[Trial]]
    compares: Comparison | None = None
    consistent: Consistent | None = None
    suffixes: tuple[str, ...] = ()

    @cached_property
    def calls(self) -> list[Trial]:
        """Its calls, drawn once."""
        return list(self.trials())

    @cached_property
    def asks(self) -> dict[str, frozenset[str]]:
        """The operations whose results it judges, and which of what may be left out is given in some call."""
        results: dict[str, frozenset[str]] = {}
        for trial in self.calls:
            for name in (
                trial.operation if self.compares else "",
                *(f"{trial.operation}{suffix}" for suffix in self.suffixes),
            ):
                if name in OPERATIONS:
                    results[name] = results.get(name, frozenset()) | trial.given
        return results

    @cached_property
    def results(self) -> frozenset[str]:
        """The results at which it looks."""
        of_derivatives = {"dq", "dk", "dv", "dbias", "dout"} if self.consistent else set()
        return frozenset(of_derivatives.union(*(trial.results for trial in self.calls)))

    def takes(self, implementation: Implementation, changed: Collection[str]) -> bool:
        """Whether the checker accepts an implementation. Only the operations in `changed` may be
        wrong, and the checker calls these alone.
        """
        return all(self._takes(implementation, trial) for trial in self.calls if self._reaches(trial, changed))

    def _reaches(self, trial: Trial, changed: Collection[str]) -> bool:
        return any(f"{trial.operation}{suffix}" in changed for suffix in ("", *self.suffixes))

    def _takes(self, implementation: Implementation, trial: Trial) -> bool:
        if self.compares is not None:
            results = trial.of(implementation)
            if results is None or not self.compares(results, trial):
                return False
        return self.consistent is None or self.consistent(implementation, trial)
