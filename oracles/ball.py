"""Arithmetic with float64 balls, which are pairs midpoint ± radius: every result contains the exact
result.

`Ball(mid, rad)` stands for all real arrays x with |x − mid| ≤ rad, entry by entry.  Each operation
computes the midpoint with NumPy, and a radius that holds for every order of summation (Rump, Fast
and parallel interval arithmetic, BIT 39, 1999; Higham, Accuracy and Stability, 2nd ed., chapters
2-3).  With u = 2⁻⁵³:

    NumPy's result of + − × ÷ √ is y(1 + ε) + η,  |ε| ≤ u, |η| ≤ 2⁻¹⁰⁷⁴   (η for × ÷ only; sums do not
    underflow)
    NumPy's exp, log, tanh, sin, cos are within 4 ulp, that is 8u relative, plus 2⁻¹⁰²² where they
    underflow (trusted, tested against arb)

A radius is a non-negative sum or product of fewer than 2⁴ roundings. `_upwards` multiplies it by 1
+ 2⁻⁴⁸ = 1 + 32u, and so makes it an upper bound. A product of radii may underflow; adding 2⁻¹⁰²²
covers that.  An entry that is not finite, or that overflows, has midpoint NaN and radius ∞.

The same operations model another arithmetic. An operation on balls contains the exact result for
all numbers in these balls, and `rounded` widens it by the rounding of the result.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.formats import Format

Array = NDArray[np.float64]

ROUNDOFF = 2.0**-53
UNDERFLOW = 2.0**-1022
ELEMENTARY = 8 * ROUNDOFF
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Ball:
    """The set of all real arrays within `rad` of `mid`, entry by entry. Both are float64 arrays of
    one shape.
    """

    mid: Array
    rad: Array

    def __add__(self, other: "Ball") -> "Ball":
        return add(self, other)

    def __sub__(self, other: "Ball") -> "Ball":
        return add(self, -other)

    def __mul__(self, other: "Ball") -> "Ball":
        return multiply(self, other)

    def __neg__(self) -> "Ball":
        return Ball(-self.mid, self.rad)

    def __getitem__(self, index: Any) -> "Ball":
        return Ball(self.mid[index], self.rad[index])


def exact(x: Any) -> Ball:
    """Return the ball of radius 0 around a float64 array. A non-finite entry has midpoint NaN and
    radius ∞.
    """
    mid = np.asarray(x, dtype=np.float64)
    finite = np.isfinite(mid)
    if finite.all():
        return Ball(
            mid, np.ndarray(mid.shape, np.float64, bytes(8), strides=(0,) * mid.ndim)
        )  # one 0, as np.broadcast_to would
    return Ball(np.where(finite, mid, np.nan), np.where(finite, 0.0, np.inf))


def ball(mid: Array, rad: Array) -> Ball:
    """Return the ball of a computed midpoint and radius. Where the midpoint is not finite, it
    becomes NaN and the radius ∞. Where the radius is NaN, it becomes ∞.
    """
    finite = np.isfinite(mid)
    if finite.all() and not np.isnan(rad).any():
        return Ball(mid, rad)
    return Ball(np.where(finite, mid, np.nan), np.where(finite & ~np.isnan(rad), rad, np.inf))


def gamma(n: int, roundoff: float) -> float:
    """Return γ_n = n·u / (1 − n·u), a bound of the relative error of n roundings in any order. It
    is ∞ if n·u ≥ 1 (Higham, Lemma 3.1).
    """
    error = n * roundoff
    return error / (1.0 - error) * (1 + 2.0**-48) if error < 1.0 else float("inf")


def expm1_upwards(x: Any, factor: Any = None) -> Any:
    """Return an upper bound of exp(x) − 1, times `factor` if given. NumPy's expm1 is within 8u."""
    return (np.expm1(x) if factor is None else factor * np.expm1(x)) * (1 + 2.0**-48)


def add(a: Ball, b: Ball) -> Ball:
    """Return the ball of a + b.  The radius is rad a + rad b + u·|mid|."""
    with np.errstate(all="ignore"):
        mid = a.mid + b.mid
        return ball(mid, _upwards(a.rad + b.rad + _inexact_sum(mid, a.mid, b.mid)))


def multiply(a: Ball, b: Ball) -> Ball:
    """Return the ball of a·b, entry by entry.  The radius is |a|·rad b + rad a·(|b| + rad b) +
    u·|mid| + underflow.
    """
    with np.errstate(all="ignore"):
        mid = a.mid * b.mid
        rad = np.abs(a.mid) * b.rad + a.rad * (np.abs(b.mid) + b.rad) + ROUNDOFF * np.abs(mid)
        nonzero = ((a.mid != 0) | (a.rad != 0)) & ((b.mid != 0) | (b.rad != 0))
        return ball(mid, _upwards(rad + UNDERFLOW * nonzero))


def divide(a: Ball, b: Ball) -> Ball:
    """Return the ball of a / b, entry by entry. The radius is ∞ where b contains 0.

    |x/y − a/b| = |(x − a) + (a/b)(b − y)| / |y| ≤ (rad a + |a/b|·rad b) / (|b| − rad b). The
    rounding of a/b is added.
    """
    with np.errstate(all="ignore"):
        mid = a.mid / b.mid
        room = np.abs(b.mid) - b.rad
        quotient = np.abs(mid) * (1 + 2 * ROUNDOFF) + UNDERFLOW * (b.rad != 0)
        room = np.where(room > 0, room * (1 - 2 * ROUNDOFF), np.nan)
        spread = a.rad / room + quotient * (b.rad / room)
        nonzero = (a.mid != 0) | (a.rad != 0)
        return ball(mid, _upwards(spread + ROUNDOFF * np.abs(mid) + UNDERFLOW * nonzero))


def total(a: Ball, axis: int = -1) -> Ball:
    """Return the ball of the sum along an axis, in any order. The radius is Σ rad a + γ_n Σ|a|. It
    is increased by γ_n times itself, because the radius is a computed sum too.
    """
    n = a.mid.shape[axis]
    with np.errstate(all="ignore"):
        rad = a.rad.sum(axis=axis) + gamma(n, ROUNDOFF) * np.abs(a.mid).sum(axis=axis)
        return ball(a.mid.sum(axis=axis), _upwards(rad * (1 + gamma(n, ROUNDOFF))))


class ProductErrors(NamedTuple):
    """The errors of code that computes a matrix product; by default the code has no errors.

    roundoff   the unit roundoff of the accumulators
    product    how far, relatively, the code perturbs each operand before it multiplies
    underflow  the absolute error of each term, from underflow
    operand    the absolute error of each operand near zero; the size of the other operand multiplies it
    largest    the largest partial sum, and the largest perturbed operand, that the code can hold
    """

    roundoff: float = 0.0
    product: float = 0.0
    underflow: float = 0.0
    operand: float = 0.0
    largest: float = np.inf


EXACT_PRODUCT = ProductErrors()


def matmul(a: Ball, b: Ball, code: ProductErrors = EXACT_PRODUCT) -> Ball:
    """Return a ball that contains A·B and every computed product: by NumPy, and by any code with the
    errors of `code`, in any order of summation.

    The radius is rad A·(|B| + rad B) + |A|·rad B + ε·(|A| + rad A)(|B| + rad B) + n·η, where ε =
    γ_n(u) + γ_n(roundoff), and η is the underflow of a product of two entries.  If the code rounds
    each operand first, ε also has 2·product + product² (Higham, (3.13)).  The radius is ∞ where
    partial sums, or rounded operands, may exceed `largest`.
    """
    roundoff, product, underflow, operand, largest = code
    n = a.mid.shape[-1]
    a_rad, b_rad = bool(a.rad.any()), bool(b.rad.any())
    once = product * (2 + product)
    relative = gamma(n, ROUNDOFF) + once + (1 + once) * gamma(n, roundoff)
    with np.errstate(all="ignore"):
        size_a, size_b = np.abs(a.mid), np.abs(b.mid)
        reach_a = size_a + a.rad if a_rad else size_a
        reach_b = size_b + b.rad if b_rad else size_b
        sizes = reach_a @ reach_b
        rad = _scaled(relative, sizes) + n * (UNDERFLOW + underflow)
        if operand:
            columns = reach_a.sum(axis=-1, keepdims=True) + reach_b.sum(axis=-2, keepdims=True)
            rad = rad + operand * (1 + once) * (columns + n * operand)
        if np.isfinite(largest):
            rad = np.where(sizes * (1 + 2.0**-6) + rad <= largest, rad, np.inf)
            if product:
                most = [x.max(axis=axis, keepdims=True, initial=0.0) for x, axis in ((reach_a, -1), (reach_b, -2))]
                rad = np.where(np.maximum(*most) * (1 + once) <= largest, rad, np.inf)
        if a_rad:
            rad = rad + a.rad @ reach_b
        if b_rad:
            rad = rad + size_a @ b.rad
        return ball(a.mid @ b.mid, _upwards(rad * (1 + gamma(n, ROUNDOFF))))


def exp(a: Ball) -> Ball:
    """Return the ball of exp a.  For |x − a| ≤ r, |exp x − exp a| ≤ exp(a)·(exp(r) − 1). NumPy's
    exp and exp(a) differ by at most 8u, relatively.
    """
    with np.errstate(all="ignore"):
        mid = np.exp(a.mid)
        reach = mid * (1 + 2 * ELEMENTARY) + UNDERFLOW
        return ball(mid, _upwards(reach * np.expm1(a.rad) + ELEMENTARY * mid + UNDERFLOW))


def sqrt(a: Ball) -> Ball:
    """Return the ball of √a. The radius is ∞ where a contains negative numbers.

    √a − √(a − r) = r / (√a + √(a − r)) bounds the error on both sides, because √ is concave.
    """
    with np.errstate(all="ignore"):
        mid = np.sqrt(a.mid)
        lowest = np.sqrt(np.where(a.rad <= a.mid, (a.mid - a.rad) * (1 - 2 * ROUNDOFF), np.nan))
        spread = np.where(a.rad == 0, 0.0, a.rad / ((mid + lowest) * (1 - 4 * ROUNDOFF)))
        return ball(mid, _upwards(spread + ROUNDOFF * mid))


def sin(a: Ball) -> Ball:
    """Return the ball of sin a.  |sin x − sin a| ≤ |x − a|. NumPy's sine is within 8u, relatively."""
    with np.errstate(all="ignore"):
        mid = np.sin(a.mid)
        return ball(mid, _upwards(np.minimum(a.rad, 2.0) + ELEMENTARY * np.abs(mid) + UNDERFLOW * (a.mid != 0)))


def cos(a: Ball) -> Ball:
    """Return the ball of cos a.  |cos x − cos a| ≤ |x − a|. NumPy's cosine is within 8u,
    relatively.
    """
    with np.errstate(all="ignore"):
        mid = np.cos(a.mid)
        return ball(mid, _upwards(np.minimum(a.rad, 2.0) + ELEMENTARY * np.abs(mid)))


def max_shift(a: Ball) -> Ball:
    """Return the ball of a minus the largest midpoint of its last axis. This subtracts one exact
    number from each row, which does not change its softmax.
    """
    if a.mid.shape[-1] == 0:
        return a
    return add(a, exact(-a.mid.max(axis=-1, keepdims=True)))


def rounded(a: Ball, target: Format, *, times: int = 1, flush: bool = False) -> Ball:
    """Return the ball that contains `a` after an implementation rounds it `times` times in
    succession to the format `target`.

    The radius grows by γ_times(u)·(|a| + rad a) + times·η.  η is the smallest subnormal number, or
    the smallest normal number if `flush`, that is, if results may be flushed to 0. The midpoint
    does not move: the ball contains the rounded and the unrounded numbers.  The radius is ∞ where
    the rounding may overflow.
    """
    with np.errstate(all="ignore"):
        reach = np.asarray(np.abs(a.mid))
        reach += a.rad
        step = times * (target.smallest_normal if flush else target.smallest_subnormal)
        rad = np.asarray(_scaled(gamma(times, target.unit_roundoff), reach))
        rad += a.rad
        rad += step if reach.min(initial=np.inf) > 0 else step * (reach != 0)
        reach += rad
        overflow = not reach.max(initial=0.0) <= target.largest
        return ball(a.mid, np.where(reach > target.largest, np.inf, _upwards(rad)) if overflow else _upwards(rad))


def _upwards(rad: Array) -> Array:
    """Return an upper bound of a radius that fewer than 2⁴ round-to-nearest operations on
    non-negative numbers computed.
    """
    rad *= 1 + 2.0**-48
    return rad


def _scaled(factor: float, magnitude: Array) -> Array:
    """Return factor·magnitude with ∞·0 = 0, because an infinite γ_n times a magnitude of 0 must be
    0.
    """
    return factor * magnitude if np.isfinite(factor) else np.where(magnitude == 0, 0.0, factor)


def _inexact_sum(mid: Array, a: Array, b: Array) -> Array:
    """Return u·|mid|, or 0 where mid = a + b is exact: mid − a = b and mid − b = a show that
    (Higham, section 4.3, Fast2Sum).
    """
    return np.where((mid - a == b) & (mid - b == a), 0.0, ROUNDOFF * np.abs(mid))
