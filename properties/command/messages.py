"""What the parent of `attnspec verify` and its child processes tell each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from oracles import Conventions
from properties.contract.names import parts_of
from properties.verifier.comparison import Known
from properties.verifier.report import Violation

__all__ = ["Climb", "Entry", "Explain", "Failed", "Order", "Task"]


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is verified, and how: the same for all children. With `fail_fast` to the first violation
    that is not `known`.

    A process that takes more than `memory` bytes is ended. A task is given out again, `again` times
    at most, whose process was ended by something outside of it. `environment` are variables that
    the processes get besides.
    """

    targets: tuple[str, ...]
    only: tuple[str, ...]
    arithmetic: str | None
    conventions: dict[str, Any]
    known_deviations: dict[str, Any]
    laws: tuple[str, ...] | None
    exclude: tuple[str, ...]
    long: bool
    quick: bool
    max_examples: int
    seed: int
    timeout: float
    budget: float
    fail_fast: bool
    known: Known
    memory: float = inf
    again: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """An implementation as the parent knows it, without its functions: who, where from, and which
    laws are to be checked; and why it is `unavailable` here, if it is."""

    target: str
    group: str
    pick: str
    name: str
    arithmetic: str
    override: str | None
    reading: Conventions | None
    laws: tuple[str, ...]
    deviations: dict[str, str] = field(default_factory=dict)
    sources: dict[str, tuple[str, int]] = field(default_factory=dict)
    unavailable: str = ""

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The places of its laws by the operation that they are about."""
        found: dict[str, tuple[int, ...]] = {}
        for place, law in enumerate(self.laws):
            operation = parts_of(law)[1]
            found[operation] = (*found.get(operation, ()), place)
        return found

    def to_dict(self) -> dict[str, Any]:
        """What the report's settings say of it."""
        sources = {name: {"file": file, "line": line} for name, (file, line) in self.sources.items()}
        return {
            "name": self.name,
            "group": self.group,
            "target": self.target,
            "arithmetic": self.arithmetic,
            "sources": sources,
        }


@dataclass(frozen=True)
class Task:
    """Some laws about one operation of an implementation, by its place among the entries, and the
    laws' places in its plan, on so many cases of a seed. After `until`, of time.monotonic, no case
    is drawn. It was given out before and `lost` so many times."""

    entry: int
    laws: tuple[int, ...]
    seed: int
    cases: int
    until: float = inf
    lost: int = 0


@dataclass(frozen=True)
class Climb:
    """A climb towards the worst input of an operation of an implementation, by its place among the
    entries: so many steps in a domain, from a seed's case or from `start`."""

    entry: int
    operation: str
    domain: str
    seed: int
    steps: int
    start: Mapping[str, Any] | None = None
    lost: int = 0


@dataclass(frozen=True)
class Explain:
    """The violations of one implementation, by its place among the entries, whose causes are asked
    for, and whether smaller inputs are, which none is looked for after `until`."""

    entry: int
    violations: tuple[Violation, ...]
    shrinks: bool = True
    until: float = inf
    lost: int = 0


@dataclass(frozen=True)
class Failed:
    """attnspec itself failed in a task, which the implementation has nothing to do with: what to
    say of it, in sentences.
    """

    why: str
