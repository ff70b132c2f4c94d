"""What correct caches hold after each step of a program, and which steps they refuse."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from properties.contract.cache_programs import Step, parts_of_arrays

__all__ = ["Attend", "Caches", "Held", "attends", "is_legal", "played"]


@dataclass(frozen=True)
class Held:
    """The positions that one row of a cache holds: those below `prefix`, and those from `first` on,
    without the ones before `dropped`. `keys` says which row of the arrays stands at each position.

    A cache may have two bounds: a left window and a capacity. A cache with both may be a ring: the
    newest positions overwrite the oldest. Positions below `prefix` always stay.
    """

    left: int | None = None
    capacity: int | None = None
    gives_way: bool = False
    prefix: int = 0
    evicted: int = 0
    dropped: int = 0
    keys: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """The position of the next key."""
        return len(self.keys)

    @property
    def first(self) -> int:
        """The first position behind the prefix that is not evicted."""
        return self.prefix + self.evicted

    @property
    def is_ring(self) -> bool:
        """Whether the newest positions overwrite the oldest."""
        return self.gives_way and self.left is not None and self.capacity is not None

    @property
    def count(self) -> int:
        """The number of positions that are not evicted."""
        return min(self.end, self.prefix) + max(0, self.end - self.first)

    @property
    def most(self) -> int:
        """The largest number of positions that a step can remove. A ring holds fewer positions than
        were appended, because it overwrites the oldest.
        """
        return max(0, self.end - max(self.first, self.dropped))

    @property
    def space(self) -> int | None:
        """The largest number of positions that a step can append; None for any number. New
        positions never overwrite the prefix.
        """
        if self.capacity is None:
            return None
        missing = max(0, self.prefix - self.end)
        return self.capacity - (self.prefix - missing if self.is_ring else self.count)

    def refuses(self, step: Step) -> bool:
        """Return whether a correct cache refuses a step of this row."""
        if step.name == "append":
            return self.space is not None and step.n > self.space
        if step.name == "attend":
            return step.n > self.count or (
                self.is_ring and max(self.first, self.end - step.n - (self.left or 0)) < self.dropped
            )
        return step.name in ("rollback", "evict") and step.n > self.most

    def is_plain(self, step: Step) -> bool:
        """Return whether the interface of caches defines what a step does.

        Two steps are undefined: "evict" on a ring that has overwritten positions, because the
        interface does not say which positions are then the oldest; and queries of evicted positions
        between the prefix and the others.
        """
        if step.name == "attend":
            return not self.evicted or not self.prefix or step.n <= self.end - self.first
        return step.name != "evict" or self.first >= self.dropped

    def after(self, step: Step, keys: Sequence[int]) -> "Held":
        """Return the state after a step that appends, removes or frees positions of this row. The
        cache must accept the step. `keys` are the rows of the arrays that it appends.
        """
        if step.name == "append":
            end = self.end + step.n
            overwritten = max(self.dropped, end - (self.capacity or 0) + self.prefix) if self.is_ring else 0
            return replace(self, keys=(*self.keys, *keys), dropped=overwritten)
        if step.name == "rollback":
            return replace(self, keys=self.keys[: self.end - step.n])
        if step.name == "evict":
            return replace(self, evicted=self.evicted + step.n)
        return replace(self, evicted=0, dropped=0, keys=()) if step.name in ("free", "restart") else self


class Caches:
    """The states of two correct caches, row by row, while they run a program. `batch` is the number
    of rows of each cache. All rows start in the state `empty`.
    """

    def __init__(self, empty: Held, batch: int = 1) -> None:
        self.batch = batch
        self.rows: dict[bool, tuple[Held, ...]] = dict.fromkeys((False, True), (empty,) * batch)

    def of(self, step: Step) -> list[Held]:
        """Return the states of the rows that take a step."""
        return [self.rows[step.other][row_number] for row_number in step.rows_of(self.batch)]

    def refuses(self, step: Step) -> bool:
        """Return whether a correct cache refuses a step: one of its rows refuses it, a row does not
        exist, or a row that should take the step once takes it twice.
        """
        rows = step.rows_of(self.batch)
        if any(row_number >= self.batch for row_number in rows) or (step.name == "reorder" and len(rows) != self.batch):
            return True
        repeats = len({*rows}) < len(rows) and step.name not in ("fork", "reorder")
        return repeats or any(held.refuses(step) for held in self.of(step))

    def is_plain(self, step: Step) -> bool:
        """Return whether the interface of caches defines what a step does."""
        rows = self.rows[step.other]
        return all(
            rows[row_number].is_plain(step) for row_number in step.rows_of(self.batch) if row_number < self.batch
        )

    def take(self, step: Step, parts: Sequence[Sequence[int]] = ()) -> None:
        """Change the states as the step changes the cache. The cache must accept the step. `parts`
        are the rows of the arrays that it appends, for each row of the cache.
        """
        rows, chosen = list(self.rows[step.other]), step.rows_of(self.batch)
        if step.name == "fork":
            rows[chosen[1]] = rows[chosen[0]]
        elif step.name == "reorder":
            rows = [rows[row_number] for row_number in chosen]
        else:
            for row_number, keys in zip(chosen, parts or [range(step.n)] * len(chosen), strict=True):
                rows[row_number] = rows[row_number].after(step, keys)
        self.rows[step.other] = tuple(rows)


def played(steps: Sequence[Step], empty: Held, batch: int = 1) -> Iterator[tuple[Step, Caches]]:
    """Yield each step with the states of correct caches before the step. A refused step does not
    change them.
    """
    caches, parts = Caches(empty, batch), parts_of_arrays(steps, batch)
    for place, step in enumerate(steps):
        yield step, caches
        if not (step.refused or caches.refuses(step)):
            caches.take(step, parts.get(place, ()))


def is_legal(steps: Sequence[Step], empty: Held, batch: int = 1) -> bool:
    """Return whether a program is legal.

    Correct caches, which start in the state `empty`, must refuse exactly the steps that are marked
    "refused". The program must contain both an "append" and an "attend".
    """
    for step, caches in played(steps, empty, batch):
        if step.refused != caches.refuses(step) or not caches.is_plain(step):
            return False
    return any(step.name == "attend" and not step.refused for step in steps) and any(
        step.name == "append" for step in steps
    )


@dataclass(frozen=True)
class Attend:
    """The queries of one row in one "attend" step: the rows of the queries, the row of the cache,
    and what this row holds.
    """

    queries: range
    row: int
    held: Held


def attends(steps: Sequence[Step], batch: int = 1, prefix: int = 0) -> Iterator[Attend]:
    """Yield what each row finds in its cache in each "attend" step of a program. Raises ValueError
    if a step needs more positions than the cache has.
    """
    parts = parts_of_arrays(steps, batch)
    for place, (step, caches) in enumerate(played(steps, Held(prefix=prefix), batch)):
        if step.refused:
            continue
        if caches.refuses(step):
            most = min((held.count if step.name == "attend" else held.most) for held in caches.of(step))
            raise ValueError(f"The step {step} needs more positions than the cache holds: {most}.")
        if step.name == "attend":
            for queries, row_number, held in zip(parts[place], step.rows_of(batch), caches.of(step), strict=True):
                yield Attend(queries, row_number, held)
