"""Defines the messages between the parent process and its child processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from oracles import Conventions
from properties.contract.names import parts_of
from properties.contract.wanted_shapes import Wanted
from properties.verifier.comparison import Known
from properties.verifier.report import Outcome, Violation

__all__ = ["Climb", "Entry", "Explain", "Failed", "Order", "Progress", "Replay", "Task"]


@dataclass(frozen=True, kw_only=True)
class Order:
    """The settings of a run: what is verified, and how. All child processes get the same order.

    fail_fast     stop at the first violation (failed law) that is not in `known`
    shapes        sizes at which laws are also checked
    memory        a process that uses more bytes is killed
    again         how many times a task is given out again after something from outside, such as a
                  signal, ended its process
    environment   variables that the processes get in addition to the parent's
    most_seconds  a call that should take longer is not made
    interpret     the processes run kernels in Triton and Pallas in the interpreters of these libraries
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
    time_limit: float
    fail_fast: bool
    known: Known
    shapes: tuple[Wanted, ...] = ()
    memory: float = inf
    again: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    most_seconds: float = inf
    interpret: bool = False


@dataclass(frozen=True)
class Entry:
    """An implementation to verify, described without its functions: its name, its origin, and the
    laws to check.

    `unavailable` says why the implementation cannot run here. It is "" if it can run.
    """

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
        """The positions of each operation's laws in `laws`, by operation."""
        positions: dict[str, tuple[int, ...]] = {}
        for position, law in enumerate(self.laws):
            operation = parts_of(law)[1]
            positions[operation] = (*positions.get(operation, ()), position)
        return positions

    def to_dict(self) -> dict[str, Any]:
        """Return the entry in the form in which the report's settings show it."""
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
    """A task for a child process: check laws of one operation of an implementation on `cases` test
    inputs, which follow from the seed.

    `entry` is the position of the implementation in the list of entries. `laws` are positions in
    the list of its laws. After `until`, a time of time.monotonic, no further input is drawn. `lost`
    says how many times the task was given out before.
    """

    entry: int
    laws: tuple[int, ...]
    seed: int
    cases: int
    until: float = inf
    lost: int = 0


@dataclass(frozen=True)
class Progress:
    """What a child process has done so far of a `Task`. It sends this now and then, before the answer.

    operation   the operation of the laws
    cases       the number of test inputs so far
    planned     the number of test inputs that every run of the task draws; some laws may need more
    calls       the number of calls so far
    in_calls    the seconds that these calls took
    seconds     the seconds since the task began
    outcomes    the outcomes of the laws if the run were stopped now
    """

    operation: str
    cases: int
    planned: int
    calls: int
    in_calls: float
    seconds: float
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class Climb:
    """A task for a child process: search for the worst input of one operation of an implementation,
    in `steps` steps.

    `entry` is the position of the implementation in the list of entries. The search begins at
    `start`, or at an input that the seed determines in a domain (an input family).
    """

    entry: int
    operation: str
    domain: str
    seed: int
    steps: int
    start: Mapping[str, Any] | None = None
    lost: int = 0


@dataclass(frozen=True)
class Explain:
    """A task for a child process: find the causes of the violations (failed laws) of one
    implementation. With `shrinks`, also find smaller inputs that show them.

    `entry` is the position of the implementation in the list of entries. After `until`, a time of
    time.monotonic, the search for smaller inputs ends.
    """

    entry: int
    violations: tuple[Violation, ...]
    shrinks: bool = True
    until: float = inf
    lost: int = 0


@dataclass(frozen=True)
class Replay:
    """Check the law of a violation on its case, after its earlier calls. A process that gets this task
    has made no call before.

    `entry` is the position of the implementation among the entries.
    """

    entry: int
    violation: Violation


@dataclass(frozen=True)
class Failed:
    """The answer to a task in which attnspec itself failed. `reason` says in sentences what
    happened.
    """

    reason: str
