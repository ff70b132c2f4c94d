"""Reads and writes cache programs. A program is a text of steps, which run on two key-value caches
side by side: "append 3; attend 2; other append 1; rollback 2; attend 9 refused".

    append n     adds the next n keys and values
    attend n     asks for the outputs of the next n queries, which stand at the last n positions
    rollback n   removes the newest n positions
    evict n      removes the oldest n positions; the others keep their numbers
    poison x     fills the unused slots with x
    restart      drops the cache, and makes another one

The word "other" before a step means that the second cache takes the step. The word "refused" after
a step means that the cache should raise a ValueError and keep its state. A refused step gets rows
of the arrays from the first row on. Later steps get the same rows again.
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
    r"(other )?(?:(append|attend|rollback|evict) ([1-9]\d*)( refused)?"
    r"|(restart)|(poison) (nan|-?(?:inf|\d+(?:\.\d*)?(?:e[+-]?\d+)?)))"
)


@dataclass(frozen=True)
class Step:
    """One step: its name, its number of positions or its poison, its cache, and whether the cache
    should refuse it.
    """

    name: str
    number: float = 0
    other: bool = False
    refused: bool = False

    @property
    def n(self) -> int:
        """The number of positions; 0 for a poison step."""
        return 0 if self.name == "poison" else int(self.number)

    def __str__(self) -> str:
        number = "" if self.name == "restart" else f" {self.number!r}" if self.name == "poison" else f" {self.n}"
        return f"{'other ' * self.other}{self.name}{number}{' refused' * self.refused}"


def parse(text: str) -> tuple[Step, ...]:
    """Return the steps of a program. Raises ValueError, with a sentence, for text that is not a
    program.
    """
    steps = []
    for step_text in filter(None, (separated.strip() for separated in text.split(";"))):
        if (matched := _STEP.fullmatch(step_text)) is None:
            raise ValueError(
                f"Unknown step {shown(step_text)}. "
                "Write steps such as 'append 3', 'other attend 1' or 'evict 9 refused'."
            )
        is_other, step_name, count, refused, restart, poison, value = matched.groups()
        steps.append(Step(step_name or restart or poison, float(count or value or 0), bool(is_other), bool(refused)))
    return tuple(steps)


def written(steps: Sequence[Step]) -> str:
    """Return the text of a program with these steps. `parse` reads this text."""
    return "; ".join(map(str, steps))


def _rows_of(steps: Sequence[Step], name: str) -> dict[int, range]:
    """Return the rows of an array that the steps of one name use, by the place of the step in the
    program. "append" uses rows of the keys, and "attend" uses rows of the queries.
    """
    row_counts = {position: step.n for position, step in enumerate(steps) if step.name == name and not step.refused}
    return dict(
        zip(
            row_counts, (range(*bounds) for bounds in pairwise(accumulate(row_counts.values(), initial=0))), strict=True
        )
    )


def rows_of_part(steps: Sequence[Step], kept: Iterable[tuple[int, Step]]) -> dict[str, NDArray[np.int_]]:
    """Return the rows of the keys and of the queries that a part of a program uses.

    `kept` has the steps of this part. Each step comes with its index in the whole program. It uses
    as many rows as it needs, from the first row on that it used in the whole program.
    """
    kept_steps = dict(kept)
    return {
        name: np.array(
            [
                row
                for position, rows in _rows_of(steps, name).items()
                if position in kept_steps
                for row in rows[: kept_steps[position].n]
            ],
            int,
        )
        for name in ("append", "attend")
    }


@dataclass(frozen=True)
class Attend:
    """One "attend" step: the rows of its queries, the rows of the keys that were appended and not
    rolled back, counted from position 0, and the number of evicted keys.
    """

    queries: range
    keys: tuple[int, ...]
    evicted: int


def attends(steps: Sequence[Step]) -> Iterator[Attend]:
    """Yield the "attend" steps of a program, with the keys that each one finds in its cache. Raises
    ValueError if a step needs more positions than the cache has.
    """
    rows = _rows_of(steps, "append") | _rows_of(steps, "attend")
    keys: dict[bool, list[int]] = {False: [], True: []}
    evicted = {False: 0, True: 0}
    for position, step in enumerate(steps):
        held_keys = keys[step.other]
        if step.refused or step.name == "poison":
            continue
        if step.name == "restart":
            held_keys.clear()
            evicted[step.other] = 0
        elif step.name == "append":
            held_keys += rows[position]
        elif step.n > len(held_keys) - evicted[step.other]:
            raise ValueError(
                f"The step {step} needs more positions than the cache holds: {len(held_keys) - evicted[step.other]}."
            )
        elif step.name == "attend":
            yield Attend(rows[position], tuple(held_keys), evicted[step.other])
        elif step.name == "rollback":
            del held_keys[len(held_keys) - step.n :]
        else:
            evicted[step.other] += step.n


@dataclass
class Held:
    """The positions that a cache holds: from `first` to `end`, without the positions before
    `dropped`.

    A cache may have two bounds: a left window and a capacity. A cache with both may be a ring: the
    newest positions overwrite the oldest.
    """

    left: int | None = None
    capacity: int | None = None
    gives_way: bool = False
    first: int = 0
    dropped: int = 0
    end: int = 0

    @property
    def is_ring(self) -> bool:
        """Whether the newest positions overwrite the oldest."""
        return self.gives_way and self.left is not None and self.capacity is not None

    @property
    def most(self) -> int:
        """The largest number of positions that a step can remove. A ring holds fewer positions than
        were appended, because it overwrites the oldest.
        """
        return self.end - max(self.first, self.dropped)

    def refuses(self, step: Step) -> bool:
        """Return whether a correct cache refuses a step."""
        count = step.n
        if step.name == "append":
            return self.capacity is not None and count + (0 if self.is_ring else self.end - self.first) > self.capacity
        if step.name == "attend":
            return count > self.end - self.first or (
                self.is_ring and max(self.first, self.end - count - (self.left or 0)) < self.dropped
            )
        return step.name in ("rollback", "evict") and count > self.most

    def is_plain(self, step: Step) -> bool:
        """Return whether the interface of caches defines what a step does.

        One step is undefined: "evict" on a ring that has overwritten positions. The interface does
        not say which positions are then the oldest.
        """
        return step.name != "evict" or self.first >= self.dropped

    def take(self, step: Step) -> None:
        """Change the state as the step changes the cache. The cache must accept the step."""
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
    """Yield each step with the state of a correct cache before the step. Both caches start in the
    state `empty`. A refused step does not change the state.
    """
    caches = {is_second: replace(empty) for is_second in (False, True)}
    for step in steps:
        cache = caches[step.other]
        yield step, cache
        if not cache.refuses(step):
            cache.take(step)


def is_legal(steps: Sequence[Step], empty: Held) -> bool:
    """Return whether a program is legal.

    Correct caches, which start in the state `empty`, must refuse exactly the steps that are marked
    "refused". The program must contain both an "append" and an "attend".
    """
    if not all(step.refused == cache.refuses(step) and cache.is_plain(step) for step, cache in played(steps, empty)):
        return False
    return any(step.name == "attend" and not step.refused for step in steps) and any(
        step.name == "append" for step in steps
    )
