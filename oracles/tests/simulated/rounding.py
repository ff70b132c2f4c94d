"""Explicit rounding: numbers of every format as float64 arrays, and sums of products in every
order.

A sum, product, quotient or root of binary32 numbers may be computed in binary64 and then rounded to
binary32: the result is the correctly rounded one, because 53 ≥ 2·24 + 2 (Figueroa, When is double
rounding innocuous?, SIGNUM Newsletter 30, 1995). This does not cover a product and a sum with one
rounding together: for these the code first rounds the sum to odd.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from oracles.ball import Array
from oracles.formats import BINARY32, BINARY64, Format

__all__ = ["CHOPPED_BITS", "Rounding", "Sums", "accumulator", "rounding", "truncated"]

Rounding = Callable[[Array], Array]
CHOPPED_BITS = 23
"""Significant bits of a truncating accumulator whose unit roundoff is 2⁻²²."""


def rounding(target: Format | None, flush: bool = False) -> Rounding:
    """Rounding to the nearest number of a format, and to ±∞ above its largest number.

    With `flush` it rounds to 0 below the smallest normal number.
    """
    if target is None:
        return lambda x: x
    nearest = _same if target == BINARY64 else _to_binary32 if target == BINARY32 else _to(target)
    if not flush:
        return nearest
    return lambda x: np.where(np.abs(y := nearest(x)) < target.smallest_normal, 0.0, y)


def _same(x: Array) -> Array:
    return x


def _to_binary32(x: Array) -> Array:
    with np.errstate(all="ignore"):
        narrow: Array = np.asarray(x).astype(np.float32).astype(np.float64)
    return narrow


def _to(target: Format) -> Rounding:
    bits = -round(log2(target.unit_roundoff))

    def nearest(x: Array) -> Array:
        y = _kept(x, bits, np.rint, target.smallest_subnormal)
        return np.where(np.abs(y) > target.largest, np.copysign(np.inf, y), y)

    return nearest


def _kept(x: Array, bits: int, step: Callable[[Array], Array], least: float = 0.0) -> Array:
    """x rounded to `bits` significant bits and to a multiple of `least`; `step` rounds to an
    integer.
    """
    with np.errstate(all="ignore"):
        spacing = np.maximum(np.ldexp(1.0, np.frexp(x)[1] - bits), least)
        return np.where(np.isfinite(x), step(x / spacing) * spacing, x)


def truncated(bits: int) -> Rounding:
    """Rounding towards 0 to `bits` significant bits."""
    return lambda x: _kept(x, bits, np.trunc)


def accumulator(roundoff: float, chopped: bool) -> Rounding:
    """The rounding of an accumulator: to binary64, to binary32, or by truncation to 23 bits.

    Truncation is for the unit roundoff 2⁻²².
    """
    if roundoff == BINARY64.unit_roundoff:
        return _same
    return truncated(CHOPPED_BITS) if chopped else _to_binary32


def _odd_sum(a: Array, b: Array) -> Array:
    """a + b rounded to odd; a second rounding to far fewer bits then equals one rounding of a + b."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    odd = (s.view(np.int64) & 1).astype(bool)
    return np.where((error != 0) & ~odd & np.isfinite(s), np.nextafter(s, np.copysign(np.inf, error)), s)


@dataclass(frozen=True)
class Sums:
    """Sums in a stated order.

    order    "sequential", "reversed", "pairwise", "tree" (of a random shape), "fused" (in order, with one
             rounding for each multiply-add), or "library": the order of NumPy and its BLAS, in binary64 or binary32
    block    the number of terms in a block, whose sums are added, or None for one block
    round    the accumulator's rounding
    seed     the seed of random trees
    """

    order: str
    block: int | None
    round: Rounding
    seed: int

    def product(self, a: Array, b: Array) -> Array:
        """a·b. Products of two binary32 numbers are exact in binary64."""
        if self.order == "library" and (self.block is None or len(b) <= self.block):
            return self.round(np.asarray(self._held(a) @ self._held(b), np.float64))
        return self.total(a.T[:, :, None] * b[:, None, :], exact=self.order == "fused")

    def total(self, terms: Array, exact: bool = False) -> Array:
        """The sum along the first axis; with `exact` a term is rounded with its sum, otherwise
        before it.
        """
        if not exact:
            terms = self.round(terms)
        if self.block is None or len(terms) <= self.block:
            return self._added(terms, exact)
        padded = np.concatenate([terms, np.zeros((-len(terms) % self.block, *terms.shape[1:]))])
        blocks = padded.reshape(len(padded) // self.block, self.block, *terms.shape[1:]).swapaxes(0, 1)
        return self._added(self._added(blocks, exact), False)

    def _added(self, terms: Array, exact: bool) -> Array:
        if len(terms) == 0:
            return np.zeros(terms.shape[1:])
        if self.order == "library":
            return self.round(np.asarray(self._held(terms).sum(axis=0), np.float64))
        if self.order in ("pairwise", "tree"):
            return self._tree(terms, np.random.default_rng(self.seed))
        terms = terms[::-1] if self.order == "reversed" else terms
        if self.round is _same:
            return np.asarray(np.add.accumulate(terms, axis=0)[-1])
        if self.round is _to_binary32 and not exact:
            return np.asarray(np.add.accumulate(terms.astype(np.float32), axis=0)[-1].astype(np.float64))
        total = self.round(terms[0])
        for term in terms[1:]:
            total = self.round(_odd_sum(total, term) if exact else total + term)
        return total

    def _held(self, x: Array) -> NDArray[np.floating[Any]]:
        """x in the format of the accumulator, before it truncates."""
        return x if self.round is _same else x.astype(np.float32)

    def _tree(self, terms: Array, rng: Generator) -> Array:
        """The sum by levels: a level adds all neighbours, or in a random tree some, after a
        shuffle.
        """
        while len(terms) > 1:
            pairs = len(terms) // 2
            if self.order == "tree":
                terms, pairs = terms[rng.permutation(len(terms))], int(rng.integers(1, pairs + 1))
            added = self.round(terms[: 2 * pairs : 2] + terms[1 : 2 * pairs : 2])
            terms = np.concatenate([added, terms[2 * pairs :]])
        return np.asarray(terms[0])
