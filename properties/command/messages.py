"""What the parent of `attnspec verify` and its child processes tell each other."""

from dataclasses import dataclass, field
from math import inf
from typing import Any

from oracles import Conventions
from properties.verifier.comparison import Known
from properties.verifier.report import Violation

__all__ = ["Entry", "Explain", "Order", "Task"]


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is verified, and how: the same for all children. With `fail_fast` to the first violation that is not `known`."""

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


@dataclass(frozen=True)
class Entry:
    """An implementation as the parent knows it, without its functions: who, where from, and which laws are to be checked."""

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

    def to_dict(self) -> dict[str, Any]:
        """What the report's settings say of it."""
        sources = {name: {"file": file, "line": line} for name, (file, line) in self.sources.items()}
        return {"name": self.name, "group": self.group, "target": self.target, "arithmetic": self.arithmetic, "sources": sources}


@dataclass(frozen=True)
class Task:
    """Some laws about one operation of an implementation, by its place among the entries, and the laws' places in its plan. After `until`,
    of time.monotonic, no case is drawn."""

    entry: int
    laws: tuple[int, ...]
    until: float = inf


@dataclass(frozen=True)
class Explain:
    """The violations of one implementation, by its place among the entries, whose causes are asked for, and whether smaller inputs are,
    which none is looked for after `until`."""

    entry: int
    violations: tuple[Violation, ...]
    shrinks: bool = True
    until: float = inf
