"""Programs of steps on two caches that run side by side, as text: "append 3; attend 2; other append
1; rollback 2; attend 9 refused".

    append n     the next n keys and values are added
    attend n     the next n queries are asked: they stand at the last n positions
    rollback n   the newest n positions go
    evict n      the oldest n positions go; the others keep theirs
    poison x     unused slots are filled with x
    restart      the cache is dropped, and another one made

"other" in front says that a step is of the second cache. "refused" behind it says that the cache
should raise a ValueError, and be as it was before: such a step is handed rows from the first one
on, and uses none up.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from properties.contract.wording import shown

__all__ = ["Attend", "Held", "Step", "attends", "is_legal", "parse", "played", "rows_of_part", "written"]

_STEP = re.compile(
    r"(other )?(?:(append|attend|rollback|evict) ([1-9]\d*)( refused)?|(restart)|(poison) (nan|-?(?:inf|\d+(?:\.\d*)?(?:e[+-]?\d+)?)))"
)


@dataclass(frozen=True)
class Step:
    """One step: what is done, to how many positions or with which number, to which cache, and
    whether it should be refused.
    """

    name: str
    number: float = 0
    other: bool = False
    refused: bool = False

    @property
    def n(self) -> int:
        """How many positions; a poison is a number that is about none."""
        return 0 if self.name == "poison" else int(self.number)

    def __str__(self) -> str:
        number = "" if self.name == "restart" else f" {self.number!r}" if self.name == "poison" else f" {self.n}"
        return f"{'other ' * self.other}{self.name}{number}{' refused' * self.refused}"


def parse(text: str) -> tuple[Step, ...]:
    """The steps of a program. Raises ValueError, a sentence, for a text that is none."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(";"))):
        if (match := _STEP.fullmatch(part)) is None:
            raise ValueError(
                f"A step is {shown(part)}, but should be one as 'append 3', 'other attend 1' or 'evict 9 refused'."
            )
        other, name, n, refused, restart, poison, value = match.groups()
        found.append(Step(name or restart or poison, float(n or value or 0), bool(other), bool(refused)))
    return tuple(found)


def written(steps: Sequence[Step]) -> str:
    """The text of some steps."""
    return "; ".join(map(str, steps))


def _rows_of(steps: Sequence[Step], name: str) -> dict[int, range]:
    """The rows of the steps of a name that use rows up, "append" of keys or "attend" of queries, by
    the places of these steps.
    """
    taken = {place: step.n for place, step in enumerate(steps) if step.name == name and not step.refused}
    return dict(zip(taken, (range(*each) for each in pairwise(accumulate(taken.values(), initial=0))), strict=True))


def rows_of_part(steps: Sequence[Step], kept: Iterable[tuple[int, Step]]) -> dict[str, NDArray[np.int_]]:
    """The rows of the keys that are appended in a part of a program, and those of the queries that
    are asked: of each step with the place that it had the first ones."""
    there = dict(kept)
    return {
        name: np.array(
            [r for place, rows in _rows_of(steps, name).items() if place in there for r in rows[: there[place].n]], int
        )
        for name in ("append", "attend")
    }


@dataclass(frozen=True)
class Attend:
    """What an attend is of: rows of the queries, the rows of the keys that were not rolled back,
    from position 0 on, and how many of those are evicted."""

    queries: range
    keys: tuple[int, ...]
    evicted: int


def attends(steps: Sequence[Step]) -> Iterator[Attend]:
    """The attends of a program, as the interface defines them. Raises ValueError where there are
    fewer positions than a step needs.
    """
    rows = _rows_of(steps, "append") | _rows_of(steps, "attend")
    keys: dict[bool, list[int]] = {False: [], True: []}
    evicted = {False: 0, True: 0}
    for place, step in enumerate(steps):
        own = keys[step.other]
        if step.refused or step.name == "poison":
            continue
        if step.name == "restart":
            own.clear()
            evicted[step.other] = 0
        elif step.name == "append":
            own += rows[place]
        elif step.n > len(own) - evicted[step.other]:
            raise ValueError(f"The step {step} is of more positions than there are, {len(own) - evicted[step.other]}.")
        elif step.name == "attend":
            yield Attend(rows[place], tuple(own), evicted[step.other])
        elif step.name == "rollback":
            del own[len(own) - step.n :]
        else:
            evicted[step.other] += step.n


@dataclass
class Held:
    """Which positions a cache holds, by its left bound and its capacity: from `first` to `end`, but
    those before `dropped`.

    With both it may be a ring: the newest positions take the places of the oldest, which are gone.
    """

    left: int | None = None
    capacity: int | None = None
    gives_way: bool = False
    first: int = 0
    dropped: int = 0
    end: int = 0

    @property
    def is_ring(self) -> bool:
        """Whether old positions give way."""
        return self.gives_way and self.left is not None and self.capacity is not None

    @property
    def most(self) -> int:
        """How many positions may go, at most: those that there are, and, in a ring, are not gone already."""
        return self.end - max(self.first, self.dropped)

    def refuses(self, step: Step) -> bool:
        """Whether a step should be refused."""
        n = step.n
        if step.name == "append":
            return self.capacity is not None and n + (0 if self.is_ring else self.end - self.first) > self.capacity
        if step.name == "attend":
            return n > self.end - self.first or (
                self.is_ring and max(self.first, self.end - n - (self.left or 0)) < self.dropped
            )
        return step.name in ("rollback", "evict") and n > self.most

    def is_plain(self, step: Step) -> bool:
        """Whether the interface says what a step is: of a ring that has let positions go it does
        not say which are the oldest.
        """
        return step.name != "evict" or self.first >= self.dropped

    def take(self, step: Step) -> None:
        """Go on by a step that is not refused."""
        if step.name == "append":
            self.end += step.n
            self.dropped = max(self.dropped, self.end - (self.capacity or 0)) if self.is_ring else 0
        elif step.name == "rollback":
            self.end -= step.n
        elif step.name == "evict":
            self.first += step.n
        elif step.name == "restart":
            self.first = self.dropped = self.end = 0


def played(steps: Sequence[Step], empty: Held) -> Iterator[tuple[Step, Held]]:
    """Each step, and what right caches that are empty as one is hold before it: they do nothing
    where they refuse it.
    """
    held = {other: replace(empty) for other in (False, True)}
    for step in steps:
        own = held[step.other]
        yield step, own
        if not own.refuses(step):
            own.take(step)


def is_legal(steps: Sequence[Step], empty: Held) -> bool:
    """Whether exactly those steps are said to be refused that should be, by caches that are empty
    as one is; and something is asked.
    """
    if not all(step.refused == own.refuses(step) and own.is_plain(step) for step, own in played(steps, empty)):
        return False
    return any(step.name == "attend" and not step.refused for step in steps) and any(
        step.name == "append" for step in steps
    )
