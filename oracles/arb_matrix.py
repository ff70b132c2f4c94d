"""Matrices of arb balls with a pattern, and their way back to float64.

A `Matrix` knows which entries a result reads (`support`: all entries that are not masked), and
which entries depend on a non-finite number (`lost`). So a masked NaN never enters a product: entry
(i, j) of A·B is lost only if some term A[i, k]·B[k, j] has both factors in their supports and at
least one factor lost. An unmasked factor of 0 does not stop a NaN, because 0·NaN is NaN in every
IEEE kernel. The ball of a lost entry is 0.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from math import inf, nextafter
from threading import RLock

import numpy as np
from flint import arb, arb_mat, ctx
from numpy.typing import NDArray

from oracles.ball import Array, Ball, ball

Bools = NDArray[np.bool_]

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
    """Balls, the entries that a result reads, and the entries that depend on a non-finite number."""

    balls: arb_mat
    support: Bools
    lost: Bools

    def __matmul__(self, other: "Matrix") -> "Matrix":
        """The product; its support contains all entries."""
        whole_support = np.ones((self.support.shape[0], other.support.shape[1]), dtype=bool)
        lost = ~whole_support
        if self.lost.any() or other.lost.any():
            lost = _reached(self.lost, other.support) | _reached(self.support, other.lost)
        return Matrix(self.balls * other.balls, whole_support, lost)

    def __add__(self, other: "Matrix") -> "Matrix":
        """The sum."""
        return Matrix(self.balls + other.balls, self.support | other.support, self.lost | other.lost)

    def __mul__(self, factor: arb) -> "Matrix":
        """The matrix with every entry multiplied by a number."""
        return Matrix(self.balls * factor, self.support, self.lost)

    @property
    def transposed(self) -> "Matrix":
        """The transpose."""
        return Matrix(self.balls.transpose(), self.support.T, self.lost.T)

    def columns(self, chosen: slice) -> "Matrix":
        """Return a number of neighbouring columns."""
        rows = [row[chosen] for row in self.balls.tolist()]
        return from_rows(rows, self.support[:, chosen], self.lost[:, chosen])


def _reached(a: Bools, b: Bools) -> Bools:
    """The product of two patterns: BLAS counts the ones, and no positive count rounds to 0."""
    reached: Bools = a.astype(np.float32) @ b.astype(np.float32) > 0
    return reached


def from_rows(rows: list[list[arb]], support: Bools, lost: Bools) -> Matrix:
    """Return the matrix of a list of rows of balls."""
    height, width = support.shape
    return Matrix(arb_mat(height, width, [entry for row in rows for entry in row]), support, lost)


def from_array(x: Array) -> Matrix:
    """Return the matrix of a two-dimensional float64 array; non-finite entries are lost."""
    finite = np.isfinite(x)
    height, width = x.shape
    balls = arb_mat(height, width, np.where(finite, x, 0.0).ravel().tolist())
    return Matrix(balls, np.ones(x.shape, dtype=bool), ~finite)


def side_by_side(parts: list[Matrix]) -> Matrix:
    """Return one matrix: matrices with the same number of rows, side by side."""
    rows = [list(chain(*pieces)) for pieces in zip(*(matrix.balls.tolist() for matrix in parts), strict=True)]
    supports, losses = [matrix.support for matrix in parts], [matrix.lost for matrix in parts]
    return from_rows(rows, np.concatenate(supports, axis=1), np.concatenate(losses, axis=1))


def enclosed(
    evaluate: Callable[[], list[tuple[list[arb], Bools]]], precision: int, most: int = MOST_PRECISION
) -> tuple[Ball, ...]:
    """Return the float64 balls of the results of `evaluate`, at the first precision that settles
    every entry.

    `evaluate` returns, for each result, its entries in row-major order and which of them are lost.
    The number of bits doubles until the radius of each entry is at most one spacing of float64 at
    its midpoint (half of it is the rounding of the midpoint), or until it reaches `most`.  Lost
    entries, and entries beyond the range of float64, have midpoint NaN and radius ∞.
    """
    while True:
        with working_precision(precision):
            results = [(_outward(entries, lost), lost) for entries, lost in evaluate()]
        if precision >= most or all(_settled(*result) for result in results):
            return tuple(ball(np.where(lost, np.nan, enclosure.mid), enclosure.rad) for enclosure, lost in results)
        precision = min(2 * precision, most)


def _outward(entries: list[arb], lost: Bools) -> Ball:
    """The balls with the nearest float64 midpoints, and radii rounded upwards.

    An inexact ball that is known to 64 bits is within half a spacing of its midpoint, plus 2⁻⁸ of a
    spacing for its own radius.  For all others the radius is |entry − mid|, one float64 number up,
    because float() rounds to nearest.
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
    """Whether every entry is lost, beyond the range of float64, or known to one spacing."""
    beyond = np.isinf(enclosure.mid)
    with np.errstate(invalid="ignore"):
        narrow = enclosure.rad <= np.maximum(np.spacing(np.abs(enclosure.mid)), SMALLEST)
    return bool((lost | beyond | narrow).all())
