"""Makes the random choices of test inputs and of laws from one seed: sizes, orders, cuts, numbers
and masks.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from oracles.ball import Array
from oracles.formats import BINARY16, BINARY32, BINARY64, Format

__all__ = ["Choices", "rounded"]

T = TypeVar("T")
_KINDS: dict[Format, Any] = {
    BINARY32: np.float32,
    BINARY16: np.float16,
}  # NumPy converts to these types by rounding to the nearest, ties to even


def rounded(x: Array, target: Format) -> Array:
    """Return the nearest numbers of a format, ties to even."""
    if target == BINARY64:
        return x
    if (dtype := _KINDS.get(target)) is not None:
        with np.errstate(over="ignore"):
            nearest = x.astype(dtype).astype(np.float64)
        return (
            np.where(np.isinf(x), x, np.clip(nearest, -target.largest, target.largest))
            if np.isinf(nearest).any()
            else nearest
        )
    spacing = target.spacing(x)
    return np.where(np.isinf(x), x, np.clip(np.rint(x / spacing) * spacing, target.lowest, target.largest))


def _has_grid(target: Format) -> bool:
    """Whether a format contains all multiples of 1/16 from −8 to 8, which have 8 bits."""
    return target.unit_roundoff <= 2.0**-8 and target.smallest_subnormal <= 1 / 16 and target.largest >= 8


class Choices:
    """A source of choices. The same seed gives the same choices in the same order.

    Seed 0 gives the simplest test input: the first of all options, and arrays of zeros.
    """

    def __init__(self, seed: int) -> None:
        self.simplest, self._random = seed == 0, np.random.default_rng(seed)

    def among(self, options: Sequence[T]) -> T:
        """Choose and return one of some options. The first option is the simplest."""
        return options[0] if self.simplest else options[int(self._random.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        return low if self.simplest else int(self._random.integers(low, high, endpoint=True))

    def integers(self, low: int, high: int, shape: Any) -> Any:
        """Return an array of whole numbers from `low` to `high`."""
        return self._random.integers(low, high, shape, endpoint=True)

    def happens(self, probability: float = 0.5) -> bool:
        """Return whether an event of a given probability happens. With seed 0 nothing happens."""
        return not self.simplest and bool(self._random.random() < probability)

    def order(self, count: int) -> Any:
        """Return an order of `count` things. Half of the time it is the reversed order, because
        this shows most mistakes. Otherwise it is random.
        """
        return np.arange(count)[::-1] if not self.happens() else self._random.permutation(count)

    def bits(self, shape: Any, density: float | None = None) -> Any:
        """Return an array of booleans. Each is true with probability `density`. If it is None, the
        probability is chosen too.
        """
        share = self.among([0.5, 0.9, 0.1, 1.0]) if density is None else density
        return self._random.random(shape) < share

    def cut(self, length: int, supported: Callable[[int], bool] = lambda _: True) -> int:
        """Return a length below `length` at which an axis can be cut, preferably next to the end of
        a tile. Return `length` if no cut is supported.
        """
        tiles = (candidate for power in range(10) for candidate in (2**power - 1, 2**power, 2**power + 1))
        lengths: list[int] = [
            candidate
            for candidate in sorted({length // 2, length - 1, *tiles} - {0})
            if candidate < length and supported(candidate)
        ]
        return self.among(lengths or [length])

    def signs(self, count: int) -> Array:
        """Return an array of `count` numbers, each 1 or −1."""
        return np.where(self.bits(count, 0.5), 1.0, -1.0)

    def directions(self, *shapes: tuple[int, ...]) -> list[Array]:
        """Return, for each shape, an array of integers from −4 to 4, with at least one nonzero
        entry.
        """
        directions = [self.integers(-4, 4, shape).astype(np.float64) for shape in shapes]
        return [np.where(direction.any(), direction, 1.0) for direction in directions]

    def grid(self, shape: Any, step: float = 1 / 16) -> Array:
        """Return an array of multiples of `step`, a power of two: from −128 to 127 times it."""
        integers = np.zeros(shape, np.int8) if self.simplest else self._random.integers(-128, 128, shape, np.int8)
        return np.asarray(integers * step, np.float64)

    def fixed_points(self, shape: Any, target: Format) -> Array:
        """Return numbers of size at most 8 that use all bits of a format except one. The free bit
        makes each sum and difference of two such numbers a number of the format.
        """
        bits = round(-math.log2(target.unit_roundoff)) - 1
        integers = self._random.integers(-(2**bits), 2**bits, shape, endpoint=True)
        return np.asarray(np.ldexp(integers.astype(np.float64), 3 - bits))

    def normal(self, shape: Any) -> Array:
        """Return an array of normally distributed numbers."""
        return np.asarray(self._random.standard_normal(shape))

    def uniform(self, shape: Any) -> Array:
        """Return an array of numbers from −1 to 1; zeros with seed 0."""
        return np.zeros(shape) if self.simplest else self._random.uniform(-1, 1, shape)

    def numbers(self, shape: Any, target: Format, kind: str = "grid") -> Array:
        """Return numbers of a format, of size about 1. They are on a grid of 1/16, or fixed points,
        or normally distributed numbers with all bits.

        On a grid, a few entries in a hundred are 0, or from ±4 to ±8.
        """
        if self.simplest or kind == "grid":
            return self.grid(shape) if _has_grid(target) else rounded(self.grid(shape), target)
        if kind == "fixed":
            return self.fixed_points(shape, target)
        return rounded(self._random.standard_normal(shape), target)
