"""Linear changes of an array along one of its axes, with their derivatives and transposes: what
symmetries are made of.

Each map has three faces. `apply` changes an array; `push` changes a tangent of it, by the
derivative; `pull` takes a cotangent of the changed array back, by the transpose of the derivative.
They work on balls, which arrays are made into: numbers are moved, or multiplied by powers of two;
sums are enclosed, with radius 0 where they are exact.
"""

# What the three faces of a map are is said once, in `Map`.
# ruff: noqa: D102

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array, Ball, exact

__all__ = ["Back", "Butterfly", "Map", "Pad", "Plus", "Put", "Take", "Times"]


def _moved(
    x: Ball, change: Any
) -> Ball:  # by a linear change, which leaves a radius that is one 0, broadcast, as it is
    return Ball(
        mid := change(x.mid), change(x.rad) if any(x.rad.strides) or x.rad.any() else np.broadcast_to(0.0, mid.shape)
    )


class Map:
    """A map that changes nothing."""

    def apply(self, x: Ball) -> Ball:
        """The array changed."""
        return self.push(x)

    def push(self, x: Ball) -> Ball:
        """A tangent of the array, likewise: linear."""
        return x

    def pull(self, g: Ball) -> Ball:
        """A cotangent of what `apply` returns, as one of what it was given."""
        return g


@dataclass(frozen=True)
class Take(Map):
    """The entries at some indices of an axis of n, in that order, some of them more than once: x[index]."""

    axis: int
    index: Any
    n: int

    def push(self, x: Ball) -> Ball:
        if x.mid.ndim < -self.axis or x.mid.shape[self.axis] != self.n:
            return x  # a mask that is the same along the axis
        return _moved(x, lambda part: np.take(part, self.index, self.axis))

    def pull(self, g: Ball) -> Ball:
        """Each entry's cotangents added up where it is taken more than once; 0 where it is not taken."""
        index = np.asarray(self.index, int)
        order, turns = np.argsort(index, kind="stable"), np.empty(len(index), int)
        turns[order] = np.arange(len(index)) - np.searchsorted(
            index[order], index[order]
        )  # how often it was taken before
        parts = [
            _moved(g, partial(self._spread, places=np.flatnonzero(turns == turn)))
            for turn in range(turns.max(initial=0) + 1)
        ]
        return sum(parts[1:], start=parts[0])

    def _spread(self, part: Array, places: Any) -> Array:
        axis = part.ndim + self.axis
        out = np.zeros((*part.shape[:axis], self.n, *part.shape[axis + 1 :]))
        chosen: Any = [slice(None)] * part.ndim
        chosen[axis] = np.asarray(self.index, int)[places]
        out[tuple(chosen)] = np.take(part, places, axis)
        return out


@dataclass(frozen=True)
class Back(Map):
    """The transpose of a linear map: of a `Take`, entries put back where they were taken; of a
    `Pad`, what was added taken away.
    """

    forth: Map

    def push(self, x: Ball) -> Ball:
        return self.forth.pull(x)

    def pull(self, g: Ball) -> Ball:
        return self.forth.push(g)


@dataclass(frozen=True)
class Times(Map):
    """The product with a power of two, or with an array of powers of two and zeros that broadcasts."""

    factor: Any

    def push(self, x: Ball) -> Ball:
        counts = np.asarray(self.factor) != 0  # what is multiplied by 0 is 0, even where it may be anything
        with np.errstate(invalid="ignore"):
            return _moved(
                Ball(x.mid * self.factor, x.rad * np.abs(self.factor)), lambda part: np.where(counts, part, 0.0)
            )

    def pull(self, g: Ball) -> Ball:
        return self.push(g)


@dataclass(frozen=True)
class Pad(Map):
    """So many entries more at the end of an axis."""

    axis: int
    count: int
    value: float = 0.0

    def apply(self, x: Ball) -> Ball:
        return Ball(self._padded(x.mid, self.value), self._padded(x.rad, 0.0))

    def push(self, x: Ball) -> Ball:
        return _moved(x, lambda part: self._padded(part, 0.0))

    def pull(self, g: Ball) -> Ball:
        n = g.mid.shape[self.axis] - self.count
        return _moved(g, lambda part: np.take(part, range(n), self.axis))

    def _padded(self, x: Array, value: float) -> Array:
        if x.ndim < -self.axis:
            return x
        width = [(0, 0)] * x.ndim
        width[self.axis] = (0, self.count)
        return np.pad(x, width, constant_values=value)


@dataclass(frozen=True)
class Butterfly(Map):
    """Pairs of neighbours (a, b) of the last axis as (a + b, a − b), times a power of two; the last
    of an odd number as it is.

    Twice with the factors c and 1/(2c) it is the identity, and its matrix is symmetric.
    """

    factor: float

    def push(self, x: Ball) -> Ball:
        pairs = x.mid.shape[-1] // 2 * 2
        a, b = x[..., 0:pairs:2], x[..., 1:pairs:2]
        mid, rad = x.mid.copy(), x.rad.copy()
        for channels, found in ((slice(0, pairs, 2), a + b), (slice(1, pairs, 2), a - b)):
            mid[..., channels], rad[..., channels] = self.factor * found.mid, self.factor * found.rad
        return Ball(mid, rad)

    def pull(self, g: Ball) -> Ball:
        return self.push(g)


@dataclass(frozen=True)
class Plus(Map):
    """The sum with an array, or a ball, that broadcasts, the same for all: the derivative is the identity."""

    shift: Any

    def apply(self, x: Ball) -> Ball:
        shift = self.shift if isinstance(self.shift, Ball) else exact(self.shift)
        return x + Ball(np.broadcast_to(shift.mid, x.mid.shape), np.broadcast_to(shift.rad, x.mid.shape))


@dataclass(frozen=True)
class Put(Map):
    """Other numbers where an array that broadcasts says so: what is replaced has no influence."""

    where: Any
    value: Any

    def apply(self, x: Ball) -> Ball:
        return Ball(np.where(self.where, self.value, x.mid), np.where(self.where, 0.0, x.rad))

    def push(self, x: Ball) -> Ball:
        return _moved(x, lambda part: np.where(self.where, 0.0, part))

    def pull(self, g: Ball) -> Ball:
        return self.push(g)
