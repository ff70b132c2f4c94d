"""Matrices of arb balls (midpoint ± radius, of any precision), and their way back to float64.

A `Matrix` records two facts about each entry. `support` is true where the entry is not masked, so
that a result reads it. `lost` is true where the entry depends on a non-finite number. A masked NaN
therefore never enters a product: entry (i, j) of A·B is lost only if for some k both A[i, k] and
B[k, j] are in their supports and at least one of them is lost. An unmasked factor of 0 does not
stop a NaN, because 0·NaN is NaN in every IEEE kernel. The ball of a lost entry is 0.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from math import inf, nextafter
from threading import RLock
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx
from numpy.typing import NDArray

from oracles.ball import Array, Ball, ball

Bools = NDArray[np.bool_]
Rationals = NDArray[np.object_]
"""An array of exact rational numbers (fmpq)."""

PRECISION = 113
MOST_PRECISION = 4000
SMALLEST = 2.0**-1074

_lock = RLock()


@contextmanager
def working_precision(bits: int) -> Iterator[None]:
    """Make a context in which ball arithmetic has `bits` bits.

    The precision of arb is one number for the whole process.  A lock lets one evaluation at a time
    set it and restore it.
    """
    with _lock, ctx.workprec(bits):
        yield


@dataclass(frozen=True)
class Matrix:
    """A matrix of balls. `support` marks the entries that a result reads, and `lost` the entries
    that depend on a non-finite number.
    """

    balls: arb_mat
    support: Bools
    lost: Bools

    def __matmul__(self, other: "Matrix") -> "Matrix":
        """Return the matrix product; its support contains all entries."""
        whole_support = np.ones((self.support.shape[0], other.support.shape[1]), dtype=bool)
        lost = ~whole_support
        if self.lost.any() or other.lost.any():
            lost = _reached(self.lost, other.support) | _reached(self.support, other.lost)
        return Matrix(self.balls * other.balls, whole_support, lost)

    def __add__(self, other: "Matrix") -> "Matrix":
        """Return the sum; an entry is lost if it is lost in one of the two matrices."""
        return Matrix(self.balls + other.balls, self.support | other.support, self.lost | other.lost)

    def __mul__(self, factor: arb) -> "Matrix":
        """Return the matrix with every entry multiplied by `factor`."""
        return Matrix(self.balls * factor, self.support, self.lost)

    @property
    def transposed(self) -> "Matrix":
        """The transposed matrix."""
        return Matrix(self.balls.transpose(), self.support.T, self.lost.T)

    def columns(self, chosen: slice) -> "Matrix":
        """Return the matrix of the columns in a slice."""
        rows = [row[chosen] for row in self.balls.tolist()]
        return from_rows(rows, self.support[:, chosen], self.lost[:, chosen])


def _reached(a: Bools, b: Bools) -> Bools:
    """Return which entries (i, j) have some k with a[i, k] and b[k, j] both true. BLAS counts these
    k in float32, and no positive count rounds to 0.
    """
    reached: Bools = a.astype(np.float32) @ b.astype(np.float32) > 0
    return reached


def from_rows(rows: list[list[arb]], support: Bools, lost: Bools) -> Matrix:
    """Return the matrix of a list of rows of balls."""
    height, width = support.shape
    return Matrix(arb_mat(height, width, [entry for row in rows for entry in row]), support, lost)


def from_array(x: Array | Rationals) -> Matrix:
    """Return the matrix of a two-dimensional float64 array; non-finite entries are lost. Rational
    numbers are enclosed at the working precision.
    """
    is_rational = x.dtype == np.object_
    finite = np.ones(x.shape, dtype=bool) if is_rational else np.isfinite(x)
    height, width = x.shape
    entries: list[Any] = (
        [arb(number) for number in x.ravel().tolist()] if is_rational else np.where(finite, x, 0.0).ravel().tolist()
    )
    balls = arb_mat(height, width, entries)
    return Matrix(balls, np.ones(x.shape, dtype=bool), ~finite)


def side_by_side(parts: list[Matrix]) -> Matrix:
    """Concatenate matrices that have the same number of rows, side by side."""
    rows = [list(chain(*pieces)) for pieces in zip(*(matrix.balls.tolist() for matrix in parts), strict=True)]
    supports, losses = [matrix.support for matrix in parts], [matrix.lost for matrix in parts]
    return from_rows(rows, np.concatenate(supports, axis=1), np.concatenate(losses, axis=1))


def enclosed(
    evaluate: Callable[[], list[tuple[list[arb], Bools]]], precision: int, most: int = MOST_PRECISION
) -> tuple[Ball, ...]:
    """Return the float64 balls of the results of `evaluate`, computed with enough bits to make
    every radius small.

    `evaluate` returns, for each result, its entries in row-major order and which of them are lost.
    The number of bits starts at `precision`. It doubles until the radius of each entry is at most
    one spacing of float64 at its midpoint, or until it reaches `most`. The rounding of the midpoint
    takes up half of that spacing.  Lost entries, and entries beyond the range of float64, have
    midpoint NaN and radius ∞.
    """
    while True:
        with working_precision(precision):
            results = [(_outward(entries, lost), lost) for entries, lost in evaluate()]
        if precision >= most or all(_settled(*result) for result in results):
            return tuple(ball(np.where(lost, np.nan, enclosure.mid), enclosure.rad) for enclosure, lost in results)
        precision = min(2 * precision, most)


def _outward(entries: list[arb], lost: Bools) -> Ball:
    """Return float64 balls that contain the entries: midpoints are rounded to nearest, and radii
    upwards.

    An inexact ball that is known to 64 bits is within half a spacing of its midpoint, plus 2⁻⁸ of a
    spacing for its own radius.  For every other entry the radius is |entry − mid|, moved up to the
    next float64 number, because float() rounds to nearest.
    """
    midpoints = np.array([float(entry) for entry in entries], dtype=np.float64)
    accuracy_bits = np.array([entry.rel_accuracy_bits() for entry in entries], dtype=np.float64)
    sizes = np.abs(midpoints)
    radii = np.spacing(sizes) * (0.5 + 2.0**-8)
    precise = (accuracy_bits >= 64) & (accuracy_bits < 2.0**60) & (sizes > 2.0**-1000) & (sizes < 2.0**1000)
    for i in np.flatnonzero(~precise).tolist():
        distance = (entries[i] - float(midpoints[i])).abs_upper()
        radii[i] = 0.0 if distance == 0 else nextafter(float(distance), inf)
    return Ball(midpoints.reshape(lost.shape), radii.reshape(lost.shape))


def _settled(enclosure: Ball, lost: Bools) -> bool:
    """Return whether every entry is lost, beyond the range of float64, or known to one spacing."""
    beyond = np.isinf(enclosure.mid)
    with np.errstate(invalid="ignore"):
        narrow = enclosure.rad <= np.maximum(np.spacing(np.abs(enclosure.mid)), SMALLEST)
    return bool((lost | beyond | narrow).all())
