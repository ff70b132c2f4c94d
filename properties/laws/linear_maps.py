"""Defines linear maps of an array along one of its axes, with their derivatives and transposes.
Symmetries consist of such maps.

Each map has three methods. `apply` changes an array. `push` changes a tangent of the array, by the
derivative. `pull` turns a cotangent of the changed array into a cotangent of the array, by the
transpose of the derivative. The methods work on balls (intervals value ± radius). Numbers are
moved, or multiplied by powers of two. Sums are enclosed, with radius 0 where they are exact.
"""

# The class `Map` documents the three methods once.
# ruff: noqa: D102

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array, Ball, exact

__all__ = ["Back", "Butterfly", "Map", "Pad", "Plus", "Put", "Take", "Times"]


def _moved(x: Ball, change: Any) -> Ball:
    """Return the ball after a linear change of its midpoints and radii. If the radius is a single 0
    that is broadcast, it stays one.
    """
    middle = change(x.mid)
    has_radius = any(x.rad.strides) or x.rad.any()
    return Ball(middle, change(x.rad) if has_radius else np.broadcast_to(0.0, middle.shape))


class Map:
    """The identity map, and the base class of all maps."""

    def apply(self, x: Ball) -> Ball:
        """Return the changed array."""
        return self.push(x)

    def push(self, x: Ball) -> Ball:
        """Return the tangent of the changed array, for a tangent of the array. The result is linear
        in the tangent.
        """
        return x

    def pull(self, g: Ball) -> Ball:
        """Return the cotangent of the array, for a cotangent of the result of `apply`."""
        return g


@dataclass(frozen=True)
class Take(Map):
    """The map to the entries x[index] along an axis of n entries, in the order of `index`. An index
    may occur more than once.
    """

    axis: int
    index: Any
    n: int

    def push(self, x: Ball) -> Ball:
        if x.mid.ndim < -self.axis or x.mid.shape[self.axis] != self.n:
            return x  # a mask without this axis, or broadcast along it
        return _moved(x, lambda values: np.take(values, self.index, self.axis))

    def pull(self, g: Ball) -> Ball:
        """Return the cotangent of the array: each entry gets the sum of the cotangents of its
        copies, or 0 if it was not taken.
        """
        index = np.asarray(self.index, int)
        order, repetition = np.argsort(index, kind="stable"), np.empty(len(index), int)
        # How often the same index appeared before:
        repetition[order] = np.arange(len(index)) - np.searchsorted(index[order], index[order])
        parts = [
            _moved(g, partial(self._spread, places=np.flatnonzero(repetition == number)))
            for number in range(repetition.max(initial=0) + 1)
        ]
        return sum(parts[1:], start=parts[0])

    def _spread(self, values: Array, places: Any) -> Array:
        axis = values.ndim + self.axis
        spread = np.zeros((*values.shape[:axis], self.n, *values.shape[axis + 1 :]))
        chosen: Any = [slice(None)] * values.ndim
        chosen[axis] = np.asarray(self.index, int)[places]
        spread[tuple(chosen)] = np.take(values, places, axis)
        return spread


@dataclass(frozen=True)
class Back(Map):
    """The transpose of a linear map.

    The transpose of a `Take` puts entries back to their places. The transpose of a `Pad` removes
    the appended entries.
    """

    forth: Map

    def push(self, x: Ball) -> Ball:
        return self.forth.pull(x)

    def pull(self, g: Ball) -> Ball:
        return self.forth.push(g)


@dataclass(frozen=True)
class Times(Map):
    """The map that multiplies by a power of two, or by an array of powers of two and zeros, which
    is broadcast.
    """

    factor: Any

    def push(self, x: Ball) -> Ball:
        nonzero = np.asarray(self.factor) != 0  # NaN and ∞ times 0 are 0 here
        with np.errstate(invalid="ignore"):
            product = Ball(x.mid * self.factor, x.rad * np.abs(self.factor))
        return _moved(product, lambda values: np.where(nonzero, values, 0.0))

    def pull(self, g: Ball) -> Ball:
        return self.push(g)


@dataclass(frozen=True)
class Pad(Map):
    """The map that appends `count` entries at the end of an axis, all of one value."""

    axis: int
    count: int
    value: float = 0.0

    def apply(self, x: Ball) -> Ball:
        return Ball(self._padded(x.mid, self.value), self._padded(x.rad, 0.0))

    def push(self, x: Ball) -> Ball:
        return _moved(x, lambda values: self._padded(values, 0.0))

    def pull(self, g: Ball) -> Ball:
        length = g.mid.shape[self.axis] - self.count
        return _moved(g, lambda values: np.take(values, range(length), self.axis))

    def _padded(self, x: Array, value: float) -> Array:
        if x.ndim < -self.axis:
            return x
        width = [(0, 0)] * x.ndim
        width[self.axis] = (0, self.count)
        return np.pad(x, width, constant_values=value)


@dataclass(frozen=True)
class Butterfly(Map):
    """The map from each pair of neighbours (a, b) in the last axis to (a + b, a − b) times a power
    of two.

    The last entry of an odd number of entries stays. Two butterflies with the factors c and 1/(2c),
    one after the other, are the identity. The matrix is symmetric.
    """

    factor: float

    def push(self, x: Ball) -> Ball:
        paired = x.mid.shape[-1] // 2 * 2
        first, second = x[..., 0:paired:2], x[..., 1:paired:2]
        middle, radius = x.mid.copy(), x.rad.copy()
        for start, found in ((0, first + second), (1, first - second)):
            channels = slice(start, paired, 2)
            middle[..., channels], radius[..., channels] = self.factor * found.mid, self.factor * found.rad
        return Ball(middle, radius)

    def pull(self, g: Ball) -> Ball:
        return self.push(g)


@dataclass(frozen=True)
class Plus(Map):
    """The map that adds an array or a ball, which is broadcast. The derivative is the identity."""

    shift: Any

    def apply(self, x: Ball) -> Ball:
        shift = self.shift if isinstance(self.shift, Ball) else exact(self.shift)
        return x + Ball(np.broadcast_to(shift.mid, x.mid.shape), np.broadcast_to(shift.rad, x.mid.shape))


@dataclass(frozen=True)
class Put(Map):
    """The map that writes a value into the entries where a mask is True. The replaced entries have
    no influence on the result.
    """

    where: Any
    value: Any

    def apply(self, x: Ball) -> Ball:
        return Ball(np.where(self.where, self.value, x.mid), np.where(self.where, 0.0, x.rad))

    def push(self, x: Ball) -> Ball:
        return _moved(x, lambda values: np.where(self.where, 0.0, values))

    def pull(self, g: Ball) -> Ball:
        return self.push(g)
