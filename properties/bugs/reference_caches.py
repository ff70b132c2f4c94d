"""Correct key-value caches in NumPy, in named steps. One keeps its keys in a buffer, which may be a
ring. Another keeps them in pages of a pool that caches share.

The module `properties.bugs.caches` replaces some of their steps by wrong ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from oracles.ball import Array
from properties.bugs.declared import declared
from properties.bugs.reference_attention import log_of_sum, scale_of
from properties.contract.caches import Decoder, left_bound

__all__ = ["PAGE", "Buffered", "Cached", "Paged", "attended"]

PAGE = 4
"""Positions of a page."""


def attended(q: Array, k: Array, v: Array, may: Any) -> tuple[Array, Array]:
    """Return the output and the log-sum-exp of queries over their visible keys."""
    u = np.where(may, scale_of(q.shape[-1], None) * (q @ k.T), -np.inf)
    largest = u.max(-1, keepdims=True, initial=-np.inf)
    largest = np.where(np.isneginf(largest), 0.0, largest)
    e = np.exp(u - largest)
    total = e.sum(-1, keepdims=True)
    output = e @ np.where(may.any(0)[:, None], v, 0.0) / np.where(total == 0, 1.0, total)
    return output, log_of_sum(largest, total)


class Buffered:
    """A cache with keys and values in a buffer that grows, oldest first. With a window and a
    capacity it is a ring: new positions overwrite old ones.
    """

    ring, rotates = True, False

    def __init__(self, d: int, d_v: int, window: int | None = None, capacity: int | None = None) -> None:
        self.left, self.capacity = left_bound(window, declared()), capacity
        self.first = self.dropped = self.end = self.offset = 0
        self.prepare(d, d_v)

    def prepare(self, d: int, d_v: int) -> None:
        """Allocate the first slots."""
        size = self.capacity or PAGE
        self.k, self.v = np.zeros((size, d)), np.zeros((size, d_v))

    @property
    def wraps(self) -> bool:
        """Whether new positions overwrite old ones. This needs a window and a capacity."""
        return self.left is not None and self.capacity is not None

    def append(self, k: Array, v: Array) -> None:
        """Add positions."""
        self.admit(len(k))
        self.make_room(len(k))
        self.write(self.rotated(k, self.offset), v)
        self.advance(len(k))

    def rotated(self, x: Array, start: int) -> Array:
        """Return x with each pair of channels rotated by its angle, at positions from `start` on.
        If the cache does not rotate, return x.
        """
        if not self.rotates:
            return x
        angle = (start + np.arange(len(x)))[:, None] * 10000.0 ** (-np.arange(0, x.shape[1], 2) / x.shape[1])
        first, second = x[:, ::2], x[:, 1::2]
        pairs = first * np.cos(angle) - second * np.sin(angle), first * np.sin(angle) + second * np.cos(angle)
        return np.stack(pairs, -1).reshape(x.shape)

    def admit(self, n: int) -> None:
        """Raise ValueError for more positions than the capacity allows."""
        if self.capacity is not None and n + (0 if self.wraps else self.end - self.first) > self.capacity:
            raise ValueError(f"{n} more positions are more than the capacity, {self.capacity}.")

    def make_room(self, n: int) -> None:
        """Double the number of slots until there are enough. A ring does not grow."""
        while not self.wraps and self.end - self.first + n > len(self.k):
            self.k, self.v = (np.concatenate([x, np.zeros_like(x)]) for x in (self.k, self.v))

    def write(self, k: Array, v: Array) -> None:
        """Store keys and values in the slots of the next positions."""
        slots = self.slots(np.arange(self.end, self.end + len(k)))
        self.k[slots], self.v[slots] = k, v

    def advance(self, n: int) -> None:
        """Count the added positions, the overwritten positions, and the position of the next query."""
        self.end += n
        self.offset += n
        if self.wraps:
            self.dropped = max(self.dropped, self.end - (self.capacity or 0))

    def slots(self, positions: Any) -> Any:
        """Return the slots of some positions: counted from the first position, or around the ring."""
        return positions % len(self.k) if self.wraps else positions - self.first

    def attend(self, q: Array) -> tuple[Array, Array]:
        """Return the output and the log-sum-exp of queries at the last positions."""
        self.require(len(q))
        slots, positions = self.read()
        q = self.rotated(q, self.offset - len(q))
        return attended(q, self.k[slots], self.v[slots], self.visible(self.positions(len(q)), positions))

    def require(self, n: int) -> None:
        """Raise ValueError for more queries than positions, and for queries whose windows reach
        overwritten positions.
        """
        if n > self.end - self.first:
            raise ValueError(f"{n} queries are more than the positions, {self.end - self.first}.")
        if self.wraps and max(self.first, self.end - n - (self.left or 0)) < self.dropped:
            raise ValueError(f"{n} queries look back to positions that are gone.")

    @property
    def oldest(self) -> int:
        """The oldest position in the cache."""
        return max(self.first, self.dropped)

    def read(self) -> tuple[Any, Any]:
        """Return the slots to read, and their positions."""
        positions = np.arange(self.oldest, self.end)
        return self.slots(positions), positions

    def positions(self, n: int) -> Any:
        """Return the positions of n queries."""
        return np.arange(self.offset - n, self.offset)[:, None]

    def visible(self, p: Any, j: Any) -> Any:
        """Return True where a query at position p sees position j."""
        return (j <= p) & (j >= (-np.inf if self.left is None else p - self.left))

    def rollback(self, n: int) -> None:
        """Drop the newest positions."""
        self.require_held(n)
        self.end -= n
        self.offset -= n

    def evict(self, n: int) -> None:
        """Drop the oldest positions, and move the others to the front unless the cache is a ring."""
        self.require_held(n)
        if not self.wraps:
            self.k, self.v = (np.concatenate([x[n:], x[:n]]) for x in (self.k, self.v))
        self.first += n

    def require_held(self, n: int) -> None:
        """Raise ValueError if fewer positions than n are in the cache, so that they cannot be
        removed.
        """
        if n > self.end - self.oldest:
            raise ValueError(f"{n} positions are more than are held, {self.end - self.oldest}.")

    def poison(self, value: float) -> None:
        """Fill the unused slots with this value."""
        unused_slots = np.setdiff1d(self.own(), self.slots(np.arange(self.oldest, self.end)))
        self.k[unused_slots], self.v[unused_slots] = value, value

    def own(self) -> Any:
        """Return the numbers of all slots that the cache may use."""
        return np.arange(len(self.k))


class Pool:
    """The pages that all caches of the same widths share. A cache first takes pages that were
    returned.
    """

    def __init__(self, d: int, d_v: int) -> None:
        self.k, self.v = np.zeros((0, d)), np.zeros((0, d_v))
        self.free: list[int] = []

    def take(self) -> int:
        """Return the number of a free page."""
        if not self.free:
            pages = len(self.k) // PAGE
            self.k, self.v = (np.concatenate([x, np.zeros((4 * PAGE, x.shape[1]))]) for x in (self.k, self.v))
            self.free = [pages + page for page in (0, 2, 1, 3)]
        return self.free.pop()


class Paged(Buffered):
    """A cache with keys and values in pages of a pool. Its table has a page for each `PAGE`
    positions. The cache returns pages that hold no positions.
    """

    pools: ClassVar[dict[tuple[int, int], Pool]] = {}

    def prepare(self, d: int, d_v: int) -> None:
        """Find the pool for these widths."""
        self.table: dict[int, int] = {}
        self.pool = self.pools.setdefault((d, d_v), Pool(d, d_v))

    def __del__(self) -> None:
        self.pool.free += self.table.values()

    def make_room(self, n: int) -> None:
        """Take pages for the next positions."""
        for page in range(self.oldest // PAGE, -(-(self.end + n) // PAGE)):
            if page not in self.table:
                self.table[page] = self.pool.take()
        self.k, self.v = self.pool.k, self.pool.v

    def attend(self, q: Array) -> tuple[Array, Array]:
        """Read the current arrays of the pool, and return the output and the log-sum-exp."""
        self.k, self.v = self.pool.k, self.pool.v
        return super().attend(q)

    def slots(self, positions: Any) -> Any:
        """Return the slots of some positions, by the table of pages."""
        return np.array([self.table[j // PAGE] * PAGE + j % PAGE for j in positions.tolist()], int)

    def advance(self, n: int) -> None:
        """Count positions, and return the pages of overwritten positions to the pool."""
        super().advance(n)
        self.give_back()

    def rollback(self, n: int) -> None:
        """Drop the newest positions."""
        super().rollback(n)
        self.give_back()

    def evict(self, n: int) -> None:
        """Drop the oldest positions. The others are not moved."""
        self.require_held(n)
        self.first += n
        self.give_back()

    def give_back(self) -> None:
        """Return the pages without positions to the pool."""
        for page in [page for page in self.table if (page + 1) * PAGE <= self.oldest or page * PAGE >= self.end]:
            self.pool.free.append(self.table.pop(page))

    def poison(self, value: float) -> None:
        """Fill the unused slots with this value, in the pages of this cache and in free pages."""
        self.k, self.v = self.pool.k, self.pool.v
        super().poison(value)

    def own(self) -> Any:
        """Return the slots of the pages of this cache and of free pages."""
        return np.array(
            [page * PAGE + row for page in (*self.table.values(), *self.pool.free) for row in range(PAGE)],
            int,
        )


@dataclass(frozen=True)
class Cached(Decoder):
    """The operation `decode` for correct caches, in which other functions can replace some steps.

    The caches rotate if the program requires it. Each program runs on a new class of caches. These
    share pools and a memory only with each other.
    """

    name: str = "Right"
    steps: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __call__(self, q: Any, k: Any, v: Any, steps: str, *, rotates: bool | None = None, **sizes: Any) -> Any:
        """Return the results of a program that runs on these caches."""
        own: dict[str, Any] = {"pools": {}, "memory": {}, "rotates": bool(rotates), **self.steps}
        cache = type(self.name, (cast(type, self.make),), own)
        return Decoder(cache)(q, k, v, steps, **sizes)
