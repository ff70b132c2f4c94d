"""Folds the query heads that share a key head into one problem. Reads and adds to arrays that are
broadcast over rows, keys and heads, tile by tile.

The query heads of one key head form one problem with the rows (queries) of all of them: (…, H, n,
·) becomes (…, H_kv, G·n, ·), G = H / H_kv.  So keys are not repeated, and the sum over rows also
sums the gradients of a key over its query heads.  A mask or a bias is mostly broadcast. It is never
copied to the size of the scores, and its gradient never has that size.
"""

from collections.abc import Iterator, Sequence
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
"""The number of entries of a gradient that are finished at a time. They stay in the cache."""


class Heads(NamedTuple):
    """Which query heads use a key head: consecutive ones, or with `tile` every H_kv-th one."""

    heads: int
    kv_heads: int
    tile: bool = False

    @property
    def group(self) -> int:
        """The number of query heads of a key head."""
        return self.heads // self.kv_heads

    def split(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return a view with the heads split into key heads and their query heads: (…, H, n, ·) ->
        (…, H_kv, G, n, ·). If the axis of heads has size 1, the view is (…, 1, 1, n, ·).
        """
        leading_axes, rows_and_columns = x.shape[:-3], x.shape[-2:]
        if x.shape[-3] == 1:
            return x.reshape(*leading_axes, 1, 1, *rows_and_columns)
        if self.tile:
            return x.reshape(*leading_axes, self.group, self.kv_heads, *rows_and_columns).swapaxes(-4, -3)
        return x.reshape(*leading_axes, self.kv_heads, self.group, *rows_and_columns)

    def fold(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the folded array: (…, H, n, ·) -> (…, H_kv, G·n, ·)."""
        if self.group == 1:
            return x
        grouped = self.split(x)
        return grouped.reshape(*x.shape[:-3], self.kv_heads, self.group * x.shape[-2], x.shape[-1])

    def shared(self, x: NDArray[Any], shape: tuple[int, ...]) -> "Shared":
        """Return an array that broadcasts to (…, H, n, ·) as a `Shared` view for folded problems."""
        full_shape = (1,) * (len(shape) - x.ndim) + x.shape
        grouped_axes, last_axes = (*shape[:-3], self.kv_heads, self.group), shape[-2:]
        return Shared(np.broadcast_to(self.split(x.reshape(full_shape)), (*grouped_axes, *last_axes)))

    def unfold(self, x: Array) -> Array:
        """Return the array of all query heads: (…, H_kv, G·n, ·) -> (…, H, n, ·)."""
        if self.group == 1:
            return x
        leading_axes, rows, columns = x.shape[:-3], x.shape[-2] // self.group, x.shape[-1]
        grouped = x.reshape(*leading_axes, self.kv_heads, self.group, rows, columns)
        grouped = grouped.swapaxes(-4, -3) if self.tile else grouped
        return grouped.reshape(*leading_axes, self.heads, rows, columns)

    def unfolded(self, x: Ball) -> Ball:
        """Return the ball of all query heads, for a ball of folded rows."""
        return Ball(self.unfold(x.mid), self.unfold(x.rad))


class Shared(NamedTuple):
    """An array (…, H_kv, G, n, columns) that is read as (…, H_kv, G·n, columns). It is a view, and
    may be broadcast along any axis.
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
    """The gradient of a `Shared` array. Each of its entries is a sum over all rows, keys and heads
    that read the entry, added up tile by tile.

    sums    midpoints and radii, in the given shape; also the sizes |mid| + rad if an entry is read
            more than once
    views   views of the sums with all axes of a tile, (…, H_kv, G, n, columns), of size 1 where the
            array is broadcast
    number  how many rows, keys and heads read an entry
    rows    n, the number of rows of one query head
    """

    sums: tuple[Array, ...]
    views: tuple[Array, ...]
    number: int
    rows: int

    @staticmethod
    def of(given: tuple[int, ...], shape: tuple[int, ...], heads: Heads) -> "Gathered":
        """Return a gradient of zeros, for an array of the shape `given` that broadcasts to (…, H,
        n, columns).
        """
        full_shape = (1,) * (len(shape) - len(given)) + given
        number = prod(expected for size, expected in zip(full_shape, shape, strict=True) if size != expected)
        totals = tuple(np.zeros(given) for _ in range(2 if number == 1 else 3))
        return Gathered(totals, tuple(heads.split(x.reshape(full_shape)) for x in totals), number, shape[-2])

    def at(self, batch: tuple[int, ...] | EllipsisType) -> "Gathered":
        """Return the part of one element of the batch, or of all. Adding to it adds to the whole."""
        if batch is ...:
            return self
        place = tuple(i if n > 1 else 0 for i, n in zip(batch, self.views[0].shape, strict=False))
        return self._replace(views=tuple(x[place] for x in self.views))

    def add(self, rows: slice, columns: slice, mid: Array, rad: Array) -> None:
        """Add a tile (…, rows, columns) of folded rows. `rad` says how far each entry may be off."""
        *_, group, n, width = self.views[0].shape
        read_columns = columns if width > 1 else slice(None)
        all_rows = [(0, slice(None), slice(None))]
        for g, of_rows, tile_rows in by_group(rows, self.rows) if group > 1 or n > 1 else all_rows:
            places = (..., g if group > 1 else 0, of_rows if n > 1 else slice(None), read_columns)
            tile_parts = [x[..., tile_rows, :] for x in (mid, rad)]
            for x, summand in zip(
                self.views,
                (*tile_parts, np.abs(tile_parts[0]) + tile_parts[1]) if len(self.views) > 2 else tile_parts,
                strict=True,
            ):
                target = x[places]
                sizes = enumerate(zip(target.shape, summand.shape, strict=True))
                summed_axes = tuple(axis for axis, (size, tile_size) in sizes if size != tile_size)
                target += summand.sum(axis=summed_axes, keepdims=True) if summed_axes else summand

    @staticmethod
    def joined(parts: Sequence["Gathered"]) -> "Gathered":
        """Return the gradient of an array that several problems read: the sum of their sums."""
        sums = [
            part.sums if len(part.sums) > 2 else (*part.sums, np.abs(part.sums[0]) + part.sums[1]) for part in parts
        ]
        with np.errstate(all="ignore"):
            totals = tuple(np.sum(each, axis=0) for each in zip(*sums, strict=True))
        return Gathered(totals, (), sum(part.number for part in parts), 0)

    def finished(self, arithmetic: Arithmetic | None) -> Ball:
        """Return the sums as an arithmetic computes them, rounded to its output format. The sums
        are overwritten.
        """
        t, largest = terms(arithmetic, Sizes(self.number, 1, 1, 1, 1.0)), ranges(arithmetic).gradients
        flat_sums = [x.reshape(-1) for x in self.sums]
        with np.errstate(all="ignore"):
            for start in range(0, flat_sums[0].size, _CHUNK):
                mid, rad, *sizes = (x[start : start + _CHUNK] for x in flat_sums)
                magnitude = np.abs(mid) + rad
                size_sum = sizes[0] if sizes else magnitude
                error = (
                    rad
                    + t.queries_sum.terms * size_sum
                    + t.queries_sum.result * magnitude
                    + t.sum_underflow * (size_sum > 0)
                )
                error = np.where(2 * size_sum <= largest, error * (1 + 8 * gamma(self.number + 8, ROUNDOFF)), np.inf)
                mid[:], rad[:] = rounded_to_output(t, mid, error)
        return Ball(*self.sums[:2])


class HeadSums(NamedTuple):
    """The part of each query head in a gradient of the key head that they share: (…, G, n_k,
    columns). `sums` is None if these parts are not rounded.
    """

    sums: Array | None
    rows: int

    @staticmethod
    def of(shape: tuple[int, ...], rows: int, group: int) -> "HeadSums":
        """Return zeros for a gradient of a shape, and a number of folded rows of a group of heads."""
        return HeadSums(None if group == 1 else np.zeros((*shape[:-2], group, *shape[-2:])), rows // group)

    def add(self, rows: slice, keys: slice, left: Array, right: Array) -> None:
        """Add the product of (…, keys, rows) and (…, rows, columns), head by head."""
        if self.sums is None:
            return
        for head, _, tile_rows in by_group(rows, self.rows):
            self.sums[..., head, keys, :] += left[..., tile_rows] @ right[..., tile_rows, :]

    def rounded(self, t: Terms, error: Array, factor: float, largest: float) -> Array | float:
        """Return the error that is added if each head's sum, times a factor, is rounded to the
        output's format before the heads are added up. It is ∞ where a sum may be beyond that
        format.
        """
        if self.sums is None:
            return 0.0
        head_sizes = factor * np.abs(self.sums)
        total_size = head_sizes.sum(axis=-3) * (1 + t.queries_sum.result) + error
        rounding_error = t.output * total_size + self.sums.shape[-3] * t.output_underflow * (total_size > 0)
        return np.asarray(np.where(2 * (head_sizes.max(axis=-3) + error) <= largest, rounding_error, np.inf))


def by_group(rows: slice, n: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield a slice of folded rows group by group, where each group has n rows: the number of the
    group, its rows, and their places in the slice.
    """
    for g in range(rows.start // n, -(-rows.stop // n)):
        first, last = max(rows.start, g * n), min(rows.stop, (g + 1) * n)
        yield g, slice(first - g * n, last - g * n), slice(first - rows.start, last - rows.start)


def rounded_to_output(t: Terms, out: Array, error: Array) -> tuple[Array, Array]:
    """Return a result and its error, rounded to the output's format. A result 0 without error stays
    an exact 0.
    """
    wider = error + t.output * (np.abs(out) + error) + t.output_underflow
    wider *= 1 + 2.0**-48
    np.copyto(wider, 0.0, where=(error == 0) & (out == 0))
    result = ball(out, wider)
    return result.mid, result.rad
