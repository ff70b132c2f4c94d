"""Caches as one would write them in NumPy, in named steps: in a buffer, which may be a ring, and in
pages of a pool that caches share.

They are the right ones, in which `properties.bugs.caches` puts slips: a step done in another way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from oracles.ball import Array
from properties.contract.caches import Decoder

__all__ = ["PAGE", "Buffered", "Cached", "Paged", "attended"]

PAGE = 4
"""Positions of a page."""


def attended(q: Array, k: Array, v: Array, may: Any) -> tuple[Array, Array]:
    """The output and the log-sum-exp of queries over the keys that they may read."""
    u = np.where(may, q @ k.T / np.sqrt(max(q.shape[-1], 1)), -np.inf)
    largest = u.max(-1, keepdims=True, initial=-np.inf)
    largest = np.where(np.isneginf(largest), 0.0, largest)
    e = np.exp(u - largest)
    total = e.sum(-1, keepdims=True)
    out = e @ np.where(may.any(0)[:, None], v, 0.0) / np.where(total == 0, 1.0, total)
    with np.errstate(divide="ignore"):
        return out, np.asarray((largest + np.log(total))[:, 0])


class Buffered:
    """Keys and values side by side in a buffer, the oldest first, which grows; with a window and a
    capacity it is a ring.
    """

    ring, rotates = True, False

    def __init__(self, d: int, d_v: int, window: int | None = None, capacity: int | None = None) -> None:
        self.left, self.capacity = window, capacity
        self.first = self.dropped = self.end = self.offset = 0
        self.prepare(d, d_v)

    def prepare(self, d: int, d_v: int) -> None:
        """Make room for the first keys."""
        size = self.capacity or PAGE
        self.k, self.v = np.zeros((size, d)), np.zeros((size, d_v))

    @property
    def wraps(self) -> bool:
        """Whether old positions give way: without a window none does, and without a capacity there is always room."""
        return self.left is not None and self.capacity is not None

    def append(self, k: Array, v: Array) -> None:
        """Add positions."""
        self.admit(len(k))
        self.make_room(len(k))
        self.write(self.rotated(k, self.offset), v)
        self.advance(len(k))

    def rotated(self, x: Array, start: int) -> Array:
        """Each pair of channels rotated by its angle at positions from `start` on, if this is what
        rotates; else as it is.
        """
        if not self.rotates:
            return x
        angle = (start + np.arange(len(x)))[:, None] * 10000.0 ** (-np.arange(0, x.shape[1], 2) / x.shape[1])
        first, second = x[:, ::2], x[:, 1::2]
        pairs = first * np.cos(angle) - second * np.sin(angle), first * np.sin(angle) + second * np.cos(angle)
        return np.stack(pairs, -1).reshape(x.shape)

    def admit(self, n: int) -> None:
        """Refuse more positions than the capacity."""
        if self.capacity is not None and n + (0 if self.wraps else self.end - self.first) > self.capacity:
            raise ValueError(f"{n} more positions are more than the capacity, {self.capacity}.")

    def make_room(self, n: int) -> None:
        """Twice the slots, until there are enough; a ring does not grow."""
        while not self.wraps and self.end - self.first + n > len(self.k):
            self.k, self.v = (np.concatenate([x, np.zeros_like(x)]) for x in (self.k, self.v))

    def write(self, k: Array, v: Array) -> None:
        """Put keys and values into the slots of the next positions."""
        at = self.slots(np.arange(self.end, self.end + len(k)))
        self.k[at], self.v[at] = k, v

    def advance(self, n: int) -> None:
        """Count positions that were added, those that gave way to them, and where the next query stands."""
        self.end += n
        self.offset += n
        if self.wraps:
            self.dropped = max(self.dropped, self.end - (self.capacity or 0))

    def slots(self, positions: Any) -> Any:
        """Where positions are: counted from the first one, or around the ring."""
        return positions % len(self.k) if self.wraps else positions - self.first

    def attend(self, q: Array) -> tuple[Array, Array]:
        """The output and the log-sum-exp of queries at the last positions."""
        self.require(len(q))
        at, j = self.read()
        q = self.rotated(q, self.offset - len(q))
        return attended(q, self.k[at], self.v[at], self.visible(self.positions(len(q)), j))

    def require(self, n: int) -> None:
        """Refuse more queries than positions, and those whose windows have given way."""
        if n > self.end - self.first:
            raise ValueError(f"{n} queries are more than the positions, {self.end - self.first}.")
        if self.wraps and max(self.first, self.end - n - (self.left or 0)) < self.dropped:
            raise ValueError(f"{n} queries look back to positions that are gone.")

    @property
    def oldest(self) -> int:
        """The oldest position that is held."""
        return max(self.first, self.dropped)

    def read(self) -> tuple[Any, Any]:
        """The slots that are read, and the positions that are there."""
        j = np.arange(self.oldest, self.end)
        return self.slots(j), j

    def positions(self, n: int) -> Any:
        """The positions of n queries."""
        return np.arange(self.offset - n, self.offset)[:, None]

    def visible(self, p: Any, j: Any) -> Any:
        """True where a query at position p sees position j."""
        return (j <= p) & (j >= (-np.inf if self.left is None else p - self.left))

    def rollback(self, n: int) -> None:
        """The newest positions go."""
        self.require_held(n)
        self.end -= n
        self.offset -= n

    def evict(self, n: int) -> None:
        """The oldest positions go; the others move to the front, but in a ring."""
        self.require_held(n)
        if not self.wraps:
            self.k, self.v = (np.concatenate([x[n:], x[:n]]) for x in (self.k, self.v))
        self.first += n

    def require_held(self, n: int) -> None:
        """Refuse that more positions go than are held."""
        if n > self.end - self.oldest:
            raise ValueError(f"{n} positions are more than are held, {self.end - self.oldest}.")

    def poison(self, value: float) -> None:
        """Fill the slots that are not in use."""
        unused = np.setdiff1d(self.own(), self.slots(np.arange(self.oldest, self.end)))
        self.k[unused], self.v[unused] = value, value

    def own(self) -> Any:
        """All slots that it may use."""
        return np.arange(len(self.k))


class Pool:
    """Pages for all caches of some widths: those that were given back are taken first."""

    def __init__(self, d: int, d_v: int) -> None:
        self.k, self.v = np.zeros((0, d)), np.zeros((0, d_v))
        self.free: list[int] = []

    def take(self) -> int:
        """A page, by its number."""
        if not self.free:
            pages = len(self.k) // PAGE
            self.k, self.v = (np.concatenate([x, np.zeros((4 * PAGE, x.shape[1]))]) for x in (self.k, self.v))
            self.free = [pages + page for page in (0, 2, 1, 3)]
        return self.free.pop()


class Paged(Buffered):
    """Pages of a pool, found through a table, a page for each `PAGE` positions: those without
    positions are given back.
    """

    pools: ClassVar[dict[tuple[int, int], Pool]] = {}

    def prepare(self, d: int, d_v: int) -> None:
        """Find the pool."""
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
        """Read what is in the pool by now."""
        self.k, self.v = self.pool.k, self.pool.v
        return super().attend(q)

    def slots(self, positions: Any) -> Any:
        """Where positions are: by the table."""
        return np.array([self.table[j // PAGE] * PAGE + j % PAGE for j in positions.tolist()], int)

    def advance(self, n: int) -> None:
        """Count positions, and give back the pages of those that gave way."""
        super().advance(n)
        self.give_back()

    def rollback(self, n: int) -> None:
        """The newest positions go."""
        super().rollback(n)
        self.give_back()

    def evict(self, n: int) -> None:
        """The oldest positions go; none moves."""
        self.require_held(n)
        self.first += n
        self.give_back()

    def give_back(self) -> None:
        """Give back the pages without a position."""
        for page in [page for page in self.table if (page + 1) * PAGE <= self.oldest or page * PAGE >= self.end]:
            self.pool.free.append(self.table.pop(page))

    def poison(self, value: float) -> None:
        """Fill the slots that are not in use, in its own pages and in free ones."""
        self.k, self.v = self.pool.k, self.pool.v
        super().poison(value)

    def own(self) -> Any:
        """The slots of its pages and of free ones."""
        return np.array(
            [page * PAGE + row for page in (*self.table.values(), *self.pool.free) for row in range(PAGE)], int
        )


@dataclass(frozen=True)
class Cached(Decoder):
    """Right caches, with other functions in the place of some steps, which rotate where the
    program's should. Each program is run on a class of its own, with pools and a memory that its
    caches share, and no other's."""

    name: str = "Right"
    steps: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __call__(self, q: Any, k: Any, v: Any, steps: str, *, rotates: bool | None = None, **sizes: Any) -> Any:
        """The results of a program that runs on these caches."""
        own: dict[str, Any] = {"pools": {}, "memory": {}, "rotates": bool(rotates), **self.steps}
        cache = type(self.name, (cast(type, self.make),), own)
        return Decoder(cache)(q, k, v, steps, **sizes)
