"""A correct batched key-value cache in NumPy, in named steps: rows with slots, each with its position.

The module `properties.bugs.batched_caches` replaces some of its steps by wrong ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from oracles.ball import Array
from properties.bugs.declared import declared
from properties.bugs.reference_attention import attention
from properties.contract.caches import BatchedDecoder, left_bound

__all__ = ["BatchedCached", "Slotted"]

Rows = Sequence[int] | None
"""The rows that take a step; None for all."""

_SLOTS = 4


@dataclass(eq=False)
class Slotted:
    """A cache whose rows have slots. `held` has the position in each slot, or −1 in a free slot. New
    keys go to the free slots. With a window and a capacity, the newest positions overwrite the oldest.
    """

    batch: int
    kv_heads: int
    d: int
    d_v: int
    num_heads: int
    _: KW_ONLY
    window: int | None = None
    capacity: int | None = None
    scale: float | None = None
    softcap: float | None = None
    sink: Any = None
    alibi: Any = None
    prefix: int = 0
    causal: bool = True

    ring: ClassVar[bool] = True
    memory: ClassVar[dict[Any, Any]] = {}

    def __post_init__(self) -> None:
        self.left = left_bound(self.window, declared())
        self.options = {"scale": self.scale, "softcap": self.softcap, "sink": self.sink}
        shape = self.batch, self.kv_heads, self.capacity or _SLOTS
        self.k, self.v = np.zeros((*shape, self.d)), np.zeros((*shape, self.d_v))
        self.held = np.full((self.batch, shape[2]), -1)
        self.end, self.dropped = np.zeros(self.batch, int), np.zeros(self.batch, int)
        self.first = np.full(self.batch, self.prefix)

    @property
    def wraps(self) -> bool:
        """Whether new positions overwrite old ones. This needs a window and a capacity."""
        return self.left is not None and self.capacity is not None

    def chosen(self, rows: Rows) -> list[int]:
        """Return the rows that take a step. Raises ValueError for a row that is given twice, or that
        does not exist.
        """
        found = [*range(len(self.end))] if rows is None else [*rows]
        if len({*found}) < len(found) or not {*found} <= {*range(len(self.end))}:
            raise ValueError(f"rows={found}, but should be different rows below {len(self.end)}.")
        return found

    def append(self, k: Array, v: Array, rows: Rows = None) -> None:
        """Add positions to each of the rows."""
        chosen, n = self.chosen(rows), k.shape[-2]
        for row in chosen:
            self.admit(row, n)
        for place, row in enumerate(chosen):
            self.overwrite(row, n)
            self.make_room(row, n)
            self.write(row, k[place], v[place])
            self.advance(row, n)

    def count(self, row: int) -> int:
        """Return the number of positions of a row that are not evicted."""
        return int(min(self.end[row], self.prefix) + max(0, self.end[row] - self.first[row]))

    def admit(self, row: int, n: int) -> None:
        """Raise ValueError for more positions than the capacity allows."""
        kept = min(self.end[row], self.prefix) if self.wraps else self.count(row)
        if self.capacity is not None and n > self.capacity - kept:
            raise ValueError(f"{n} more positions of row {row} are more than the capacity, {self.capacity}.")

    def overwrite(self, row: int, n: int) -> None:
        """Free the slots of the oldest positions behind the prefix that a ring overwrites."""
        if self.wraps:
            start = self.end[row] + n - (self.capacity or 0) + self.prefix
            self.dropped[row] = max(self.dropped[row], start)
            self.held[row][(self.held[row] >= self.prefix) & (self.held[row] < start)] = -1

    def make_room(self, row: int, n: int) -> None:
        """Double the number of slots of all rows until the row has enough free ones."""
        while len(self.free_slots(row)) < n:
            self.k, self.v = (np.concatenate([x, np.zeros_like(x)], -2) for x in (self.k, self.v))
            self.held = np.concatenate([self.held, np.full_like(self.held, -1)], 1)

    def free_slots(self, row: int) -> Any:
        """Return the free slots of a row."""
        return np.flatnonzero(self.held[row] < 0)

    def write(self, row: int, k: Array, v: Array) -> None:
        """Store keys and values in free slots of a row, with their positions."""
        slots = self.free_slots(row)[: k.shape[-2]]
        self.k[row][:, slots], self.v[row][:, slots] = k, v
        self.held[row][slots] = np.arange(self.end[row], self.end[row] + k.shape[-2])

    def advance(self, row: int, n: int) -> None:
        """Count the added positions."""
        self.end[row] += n

    def attend(self, q: Array, rows: Rows = None) -> tuple[Array, Array]:
        """Return the outputs and the log-sum-exps of queries at the last positions of each row."""
        chosen = self.chosen(rows)
        for row in chosen:
            self.require(row, q.shape[-2])
        results = [self.attended(row, q[place]) for place, row in enumerate(chosen)]
        return np.stack([out for out, _ in results]), np.stack([lse for _, lse in results])

    def require(self, row: int, n: int) -> None:
        """Raise ValueError for more queries than positions, and for queries whose windows reach
        overwritten positions.
        """
        if n > self.count(row):
            raise ValueError(f"{n} queries are more than the positions of row {row}, {self.count(row)}.")
        if self.wraps and max(self.first[row], self.end[row] - n - (self.left or 0)) < self.dropped[row]:
            raise ValueError(f"{n} queries of row {row} look back to positions that are gone.")

    def attended(self, row: int, q: Array) -> tuple[Array, Array]:
        """Return the output and the log-sum-exp of the queries of one row."""
        slots = self.read(row)
        j, p = self.held[row][slots], self.positions(row, q.shape[-2])
        bias = None if self.alibi is None else -self.alibi[:, None, None] * self.distances(p, j)
        keys, values = self.k[row][:, slots], self.v[row][:, slots]
        return self.attention(q, keys, values, mask=self.visible(row, p, j), bias=bias)

    def attention(self, q: Array, k: Array, v: Array, **features: Any) -> tuple[Array, Array]:
        """Return the output and the log-sum-exp of attention with the options of the cache."""
        return attention(q, k, v, **features, **self.options)

    def read(self, row: int) -> Any:
        """Return the slots that a row reads, in order of their positions."""
        used = np.flatnonzero(self.held[row] >= 0)
        return used[np.argsort(self.held[row][used])]

    def positions(self, row: int, n: int) -> Any:
        """Return the positions of n queries of a row, as a column."""
        return np.arange(self.end[row] - n, self.end[row])[:, None]

    def distances(self, p: Any, j: Any) -> Any:
        """Return the distances by which ALiBi lowers scores."""
        return np.abs(p - j)

    def visible(self, row: int, p: Any, j: Any) -> Any:
        """Return True where a query at position p sees position j."""
        near = (j <= p) & (j >= (-np.inf if self.left is None else p - self.left)) if self.causal else j >= 0
        return near | (j < self.prefix)

    def rollback(self, n: int, rows: Rows = None) -> None:
        """Remove the newest positions of each row."""
        chosen = self.chosen(rows)
        self.require_held(chosen, n)
        for row in chosen:
            self.end[row] -= n
            self.held[row][self.held[row] >= self.end[row]] = -1

    def evict(self, n: int, rows: Rows = None) -> None:
        """Remove the oldest positions of each row that stand behind the prefix."""
        chosen = self.chosen(rows)
        self.require_held(chosen, n)
        for row in chosen:
            self.first[row] += n
            self.held[row][(self.held[row] >= self.prefix) & (self.held[row] < self.first[row])] = -1

    def require_held(self, rows: Sequence[int], n: int) -> None:
        """Raise ValueError if one of the rows has fewer than n positions that can be removed."""
        for row in rows:
            if n > self.end[row] - max(self.first[row], self.dropped[row]):
                raise ValueError(f"{n} positions are more than row {row} can lose.")

    @property
    def state(self) -> tuple[Any, ...]:
        """The arrays that have an entry for each row."""
        return self.k, self.v, self.held, self.end, self.dropped, self.first

    def fork(self, source: int, target: int) -> None:
        """Make one row a copy of another."""
        for row in (source, target):
            self.chosen([row])
        for array in self.state:
            array[target] = array[source]

    def reorder(self, index: Sequence[int]) -> None:
        """Make each row what row index[row] was."""
        if len(index) != len(self.end):
            raise ValueError(f"index has {len(index)} rows, but should have {len(self.end)}.")
        for row in index:
            self.chosen([row])
        for array in self.state:
            array[:] = array[[*index]]

    def free(self, row: int) -> None:
        """Empty a row."""
        self.chosen([row])
        self.held[row], self.end[row], self.dropped[row], self.first[row] = -1, 0, 0, self.prefix

    def poison(self, value: float) -> None:
        """Fill the unused slots with this value."""
        row, slot = np.nonzero(self.held < 0)
        self.k[row, :, slot], self.v[row, :, slot] = value, value


@dataclass(frozen=True)
class BatchedCached(BatchedDecoder):
    """The operation `batched_decode` for correct caches, in which other functions can replace some
    steps. Each program runs on a new class of caches, which share a memory only with each other.
    """

    name: str = "Right"
    steps: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __call__(self, q: Any, k: Any, v: Any, batch: int, steps: str, **options: Any) -> Any:
        """Return the results of a program that runs on these caches."""
        cache = type(self.name, (cast(type, self.make),), {"memory": {}, **self.steps})
        return BatchedDecoder(cache)(q, k, v, batch, steps, **options)
