"""Folds query heads that share a key head into one problem, and reads and adds to arrays that are
broadcast among rows, keys and heads, tile by tile.

Query heads of one key head are one problem with the rows of all: (…, H, n, ·) becomes (…, H_kv,
G·n, ·), G = H / H_kv.  So keys are not repeated, and what flows back into them is summed where sums
over rows are.  A mask or a bias is mostly broadcast: it is never copied to the size of the scores,
nor is its gradient made of that size.
"""

from collections.abc import Iterator
from math import prod
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.ball import ROUNDOFF, Array, Ball, ball, gamma
from oracles.error_analysis.computation import Sizes
from oracles.error_analysis.ranges import ranges
from oracles.error_analysis.roundings import Terms, terms
from oracles.formats import Arithmetic

_CHUNK = 1 << 16
"""Entries of a gradient finished at a time, which stay in the cache."""


class Heads(NamedTuple):
    """Which query heads read a key head: consecutive ones, or every H_kv-th one (`tile`)."""

    heads: int
    kv_heads: int
    tile: bool = False

    @property
    def group(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.kv_heads

    def split(self, x: NDArray[Any]) -> NDArray[Any]:
        """(…, H, n, ·) -> (…, H_kv, G, n, ·), or (…, 1, 1, n, ·) where the axis of heads has size 1: a view."""
        lead, rest = x.shape[:-3], x.shape[-2:]
        if x.shape[-3] == 1:
            return x.reshape(*lead, 1, 1, *rest)
        if self.tile:
            return x.reshape(*lead, self.group, self.kv_heads, *rest).swapaxes(-4, -3)
        return x.reshape(*lead, self.kv_heads, self.group, *rest)

    def fold(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the folded array: (…, H, n, ·) -> (…, H_kv, G·n, ·)."""
        if self.group == 1:
            return x
        split = self.split(x)
        return split.reshape(*x.shape[:-3], self.kv_heads, self.group * x.shape[-2], x.shape[-1])

    def shared(self, x: NDArray[Any], shape: tuple[int, ...]) -> "Shared":
        """Return the view of an array that broadcasts to (…, H, n, ·), for folded problems."""
        axes = (1,) * (len(shape) - x.ndim) + x.shape
        lead, rows = (*shape[:-3], self.kv_heads, self.group), shape[-2:]
        return Shared(np.broadcast_to(self.split(x.reshape(axes)), (*lead, *rows)))

    def unfold(self, x: Array) -> Array:
        """Return the array of all query heads: (…, H_kv, G·n, ·) -> (…, H, n, ·)."""
        if self.group == 1:
            return x
        lead, rows, columns = x.shape[:-3], x.shape[-2] // self.group, x.shape[-1]
        split = x.reshape(*lead, self.kv_heads, self.group, rows, columns)
        split = split.swapaxes(-4, -3) if self.tile else split
        return split.reshape(*lead, self.heads, rows, columns)

    def unfolded(self, x: Ball) -> Ball:
        """Return the ball of unfolded heads."""
        return Ball(self.unfold(x.mid), self.unfold(x.rad))


class Shared(NamedTuple):
    """An array (…, H_kv, G, n, columns), a view that may be broadcast along any axis, which is read
    as (…, H_kv, G·n, columns).
    """

    parts: NDArray[Any]

    def at(self, batch: tuple[int, ...] | EllipsisType) -> "Shared":
        """Return the array of one element of the batch, or of all."""
        return self if batch is ... else Shared(self.parts[batch])

    def tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        """Return some rows and columns."""
        group, n = self.parts.shape[-3:-1]
        if group == 1:
            return self.parts[..., 0, rows, columns]
        i = np.arange(*rows.indices(group * n))
        if i.size and i[0] // n == i[-1] // n:
            return self.parts[..., i[0] // n, i[0] % n : i[-1] % n + 1, columns]
        return self.parts[..., i // n, i % n, columns]


class Gathered(NamedTuple):
    """The gradient of a `Shared` array: for each entry the sum over all rows, keys and heads that
    read it, added up tile by tile.

    sums     midpoints, radii, and, if an entry is read more than once, sizes |mid| + rad: in the
             given shape
    views    the same with all axes of a tile, (…, H_kv, G, n, columns), of size 1 where it is broadcast
    number   how many read an entry
    rows     n
    """

    sums: tuple[Array, ...]
    views: tuple[Array, ...]
    number: int
    rows: int

    @staticmethod
    def of(given: tuple[int, ...], shape: tuple[int, ...], heads: Heads) -> "Gathered":
        """Zeros, for what is given in a shape that broadcasts to (…, H, n, columns)."""
        axes = (1,) * (len(shape) - len(given)) + given
        number = prod(want for have, want in zip(axes, shape, strict=True) if have != want)
        sums = tuple(np.zeros(given) for _ in range(2 if number == 1 else 3))
        return Gathered(sums, tuple(heads.split(x.reshape(axes)) for x in sums), number, shape[-2])

    def at(self, batch: tuple[int, ...] | EllipsisType) -> "Gathered":
        """Return the part of one element of the batch, or all: it is added to in place."""
        if batch is ...:
            return self
        place = tuple(i if n > 1 else 0 for i, n in zip(batch, self.views[0].shape, strict=False))
        return self._replace(views=tuple(x[place] for x in self.views))

    def add(self, rows: slice, columns: slice, mid: Array, rad: Array) -> None:
        """Add a tile (…, rows, columns) of folded rows, and how far each entry may be off."""
        *_, group, n, width = self.views[0].shape
        keys = columns if width > 1 else slice(None)
        for g, of_rows, here in by_group(rows, self.rows) if group > 1 or n > 1 else [(0, slice(None), slice(None))]:
            places = (..., g if group > 1 else 0, of_rows if n > 1 else slice(None), keys)
            parts = [x[..., here, :] for x in (mid, rad)]
            for x, part in zip(
                self.views, (*parts, np.abs(parts[0]) + parts[1]) if len(self.views) > 2 else parts, strict=True
            ):
                target = x[places]
                axes = tuple(
                    i for i, (have, want) in enumerate(zip(target.shape, part.shape, strict=True)) if have != want
                )
                target += part.sum(axis=axes, keepdims=True) if axes else part

    def finished(self, arithmetic: Arithmetic | None) -> Ball:
        """Return the sums in an arithmetic's accumulators, rounded to its output, in the place of
        the sums themselves.
        """
        t, most = terms(arithmetic, Sizes(self.number, 1, 1, 1, 1.0)), ranges(arithmetic).gradients
        flat = [x.reshape(-1) for x in self.sums]
        with np.errstate(all="ignore"):
            for start in range(0, flat[0].size, _CHUNK):
                mid, rad, *sizes = (x[start : start + _CHUNK] for x in flat)
                reach = np.abs(mid) + rad
                size = sizes[0] if sizes else reach
                error = rad + t.queries_sum.terms * size + t.queries_sum.result * reach + t.sum_underflow * (size > 0)
                error = np.where(2 * size <= most, error * (1 + 8 * gamma(self.number + 8, ROUNDOFF)), np.inf)
                mid[:], rad[:] = rounded_to_output(t, mid, error)
        return Ball(*self.sums[:2])


class HeadSums(NamedTuple):
    """The sum of each query head in a gradient of the key head that they share: (…, G, n_k,
    columns); None if these sums are not rounded.
    """

    sums: Array | None
    rows: int

    @staticmethod
    def of(shape: tuple[int, ...], rows: int, group: int) -> "HeadSums":
        """Zeros for a gradient of a shape, and a number of folded rows of a group of heads."""
        return HeadSums(None if group == 1 else np.zeros((*shape[:-2], group, *shape[-2:])), rows // group)

    def add(self, rows: slice, keys: slice, left: Array, right: Array) -> None:
        """Add the product of (…, keys, rows) and (…, rows, columns), head by head."""
        if self.sums is None:
            return
        for head, _, here in by_group(rows, self.rows):
            self.sums[..., head, keys, :] += left[..., here] @ right[..., here, :]

    def rounded(self, t: Terms, error: Array, factor: float, largest: float) -> Array | float:
        """Return the error added because each head's sum, times a factor, is rounded to the
        output's format before the heads are added up; ∞ where a sum may be beyond that format.
        """
        if self.sums is None:
            return 0.0
        each = factor * np.abs(self.sums)
        size = each.sum(axis=-3) * (1 + t.queries_sum.result) + error
        found = t.output * size + self.sums.shape[-3] * t.output_underflow * (size > 0)
        return np.asarray(np.where(2 * (each.max(axis=-3) + error) <= largest, found, np.inf))


def by_group(rows: slice, n: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield some folded rows, group by group of n: the number of the group, its rows, and their
    places among the folded rows.
    """
    for g in range(rows.start // n, -(-rows.stop // n)):
        first, last = max(rows.start, g * n), min(rows.stop, (g + 1) * n)
        yield g, slice(first - g * n, last - g * n), slice(first - rows.start, last - rows.start)


def rounded_to_output(t: Terms, out: Array, error: Array) -> tuple[Array, Array]:
    """Return a result and its error, rounded to the output's format; a 0 without error stays an
    exact 0.
    """
    wider = error + t.output * (np.abs(out) + error) + t.output_underflow
    wider *= 1 + 2.0**-48
    np.copyto(wider, 0.0, where=(error == 0) & (out == 0))
    result = ball(out, wider)
    return result.mid, result.rad
