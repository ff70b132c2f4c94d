"""Reads and writes cache programs. A program is a text of steps, which run on two key-value caches
side by side: "append 3; attend 2; other append 1 rows 0 2; fork 0 1; attend 9 refused".

    append n        adds the next n keys and values to each row
    attend n        asks each row for the outputs of the next n queries, which stand at the last n
                    positions
    rollback n      removes the newest n positions of each row
    evict n         removes the oldest n positions behind the prefix; the others keep their numbers
    fork s t        row t becomes a copy of row s
    reorder 1 0 0   row 0 becomes what row 1 was, and rows 1 and 2 become what row 0 was
    free r          empties row r, which may be used again
    poison x        fills the unused slots with x
    restart         drops the cache, and makes another one

The rows of a cache are the sequences of its batch. A cache of one head has row 0 alone. The words
"rows 2 0" after a number of positions say which rows take the step, in this order. Without them, all
rows take it. The word "other" before a step means that the second cache takes the step. The word
"refused" after a step means that the cache should raise a ValueError and keep its state.

A step gets the next rows of the arrays: n for its first row, n for its second row, and so on. A
refused step gets rows of the arrays from the first row on. Later steps get the same rows again.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from properties.contract.wording import shown

__all__ = ["COUNTED", "MOVED", "Step", "parse", "parts_of_arrays", "rows_of_part", "written"]

COUNTED = ("append", "attend", "rollback", "evict")
"""The steps with a number of positions."""
MOVED = ("fork", "reorder", "free")
"""The steps that copy or empty whole rows."""

_STEP = re.compile(
    rf"(other )?(?:(?:({'|'.join(COUNTED)}) ([1-9]\d*)(?: rows (\d+(?: \d+)*))?"
    r"|(fork) (\d+ \d+)|(reorder) (\d+(?: \d+)*)|(free) (\d+))( refused)?"
    r"|(restart)|(poison) (nan|-?(?:inf|\d+(?:\.\d*)?(?:e[+-]?\d+)?)))"
)


@dataclass(frozen=True)
class Step:
    """One step: its name, its number of positions or its poison, its cache, whether the cache should
    refuse it, and the rows that it names. () means all rows.
    """

    name: str
    number: float = 0
    other: bool = False
    refused: bool = False
    rows: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """The number of positions of each row; 0 for a poison step."""
        return 0 if self.name == "poison" else int(self.number)

    def rows_of(self, batch: int) -> tuple[int, ...]:
        """The rows that take the step, in order, in a cache with `batch` rows."""
        return self.rows or tuple(range(batch))

    def __str__(self) -> str:
        number = f" {self.number!r}" if self.name == "poison" else f" {self.n}" if self.name in COUNTED else ""
        rows = " rows" * (self.name in COUNTED and bool(self.rows)) + "".join(f" {row}" for row in self.rows)
        return f"{'other ' * self.other}{self.name}{number}{rows}{' refused' * self.refused}"


def parse(text: str) -> tuple[Step, ...]:
    """Return the steps of a program. Raises ValueError, with a sentence, for text that is not a
    program.
    """
    steps = []
    for step_text in filter(None, (separated.strip() for separated in text.split(";"))):
        if (matched := _STEP.fullmatch(step_text)) is None:
            raise ValueError(
                f"Unknown step {shown(step_text)}. "
                "Write steps such as 'append 3', 'other attend 1', 'append 2 rows 0 1', 'fork 0 1' or "
                "'evict 9 refused'."
            )
        other, counted, count, rows, fork, pair, reorder, index, free, row, refused, *plain, value = matched.groups()
        steps.append(
            Step(
                next(filter(None, (counted, fork, reorder, free, *plain))),
                float(count or value or 0),
                bool(other),
                bool(refused),
                tuple(map(int, (rows or pair or index or row or "").split())),
            )
        )
    return tuple(steps)


def written(steps: Sequence[Step]) -> str:
    """Return the text of a program with these steps. `parse` reads this text."""
    return "; ".join(map(str, steps))


def parts_of_arrays(steps: Sequence[Step], batch: int = 1) -> dict[int, tuple[range, ...]]:
    """Return the rows of the arrays that each "append" and each "attend" gets, by the place of the
    step in the program: a range for each row of the cache that takes the step.

    "append" gets rows of the keys and values, and "attend" gets rows of the queries.
    """
    array_rows: dict[int, tuple[range, ...]] = {}
    for name in ("append", "attend"):
        counts = {
            program_place: [step.n] * len(step.rows_of(batch))
            for program_place, step in enumerate(steps)
            if step.name == name and not step.refused
        }
        bounds = pairwise(accumulate((n for each in counts.values() for n in each), initial=0))
        array_rows |= {
            program_place: tuple(range(*next(bounds)) for _ in each) for program_place, each in counts.items()
        }
    return array_rows


def rows_of_part(
    steps: Sequence[Step], kept: Iterable[tuple[int, Step]], batch: int = 1
) -> dict[str, NDArray[np.int_]]:
    """Return the rows of the keys and of the queries that a part of a program uses.

    `kept` has the steps of this part. Each step comes with its index in the whole program. It may
    have fewer rows of the cache, and fewer positions: each row then gets the first ones that it had
    in the whole program.
    """
    parts = parts_of_arrays(steps, batch)
    array_rows: dict[str, list[int]] = {"append": [], "attend": []}
    for program_place, step in kept:
        if program_place in parts:
            by_row = dict(zip(steps[program_place].rows_of(batch), parts[program_place], strict=True))
            for row in step.rows_of(batch):
                array_rows[step.name] += by_row[row][: step.n]
    return {name: np.array(rows, int) for name, rows in array_rows.items()}
