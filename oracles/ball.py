"""Midpoint-radius arithmetic over float64 arrays: every result contains the exact one.

`Ball(mid, rad)` stands for all real arrays x with |x − mid| ≤ rad, entry by entry.  Each primitive
takes the image of the midpoints, computed by NumPy, and a radius that holds for every order of
summation (Rump, Fast and parallel interval arithmetic, BIT 39, 1999; Higham, Accuracy and
Stability, 2nd ed., chapters 2-3).  With u = 2⁻⁵³:

    NumPy's result of + − × ÷ √ is y(1 + ε) + η,  |ε| ≤ u, |η| ≤ 2⁻¹⁰⁷⁴   (η for × ÷ only; sums do not
    underflow)
    NumPy's exp, log, tanh, sin, cos are within 4 ulp, that is 8u relative, plus 2⁻¹⁰²² where they
    underflow (trusted, tested against arb)

Radii are non-negative sums and products of fewer than 2⁴ roundings each, so `_upwards`, which
multiplies by 1 + 2⁻⁴⁸ = 1 + 32u, makes them upper bounds; products of radii that underflow are
covered by adding 2⁻¹⁰²².  An entry that is not finite, or that overflows, has midpoint NaN and
radius ∞.

The same primitives model another arithmetic: an operation on the balls of its operands encloses the
result of the exact operation, and `rounded` widens it by the rounding of the result.
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
    """The set of all real arrays within `rad` of `mid`, entry by entry; both are float64 arrays of one shape."""

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
    """Return the ball of radius 0 around a float64 array; a non-finite entry has midpoint NaN and
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
    """Return the ball of a computed midpoint and radius; where either overflowed or is NaN,
    midpoint NaN and radius ∞.
    """
    finite = np.isfinite(mid)
    if finite.all() and not np.isnan(rad).any():
        return Ball(mid, rad)
    return Ball(np.where(finite, mid, np.nan), np.where(finite & ~np.isnan(rad), rad, np.inf))


def gamma(n: int, roundoff: float) -> float:
    """γ_n = n·u / (1 − n·u), the relative error of n roundings in any order; ∞ from n·u = 1 on (Higham, Lemma 3.1)."""
    error = n * roundoff
    return error / (1.0 - error) * (1 + 2.0**-48) if error < 1.0 else float("inf")


def expm1_upwards(x: Any, factor: Any = None) -> Any:
    """exp(x) − 1, times a factor if given, rounded upwards: NumPy's expm1 is within 8u."""
    return (np.expm1(x) if factor is None else factor * np.expm1(x)) * (1 + 2.0**-48)


def add(a: Ball, b: Ball) -> Ball:
    """a + b.  The radius is rad a + rad b + u·|mid|."""
    with np.errstate(all="ignore"):
        mid = a.mid + b.mid
        return ball(mid, _upwards(a.rad + b.rad + _inexact_sum(mid, a.mid, b.mid)))


def multiply(a: Ball, b: Ball) -> Ball:
    """a·b, entry by entry.  The radius is |a|·rad b + rad a·(|b| + rad b) + u·|mid| + underflow."""
    with np.errstate(all="ignore"):
        mid = a.mid * b.mid
        rad = np.abs(a.mid) * b.rad + a.rad * (np.abs(b.mid) + b.rad) + ROUNDOFF * np.abs(mid)
        nonzero = ((a.mid != 0) | (a.rad != 0)) & ((b.mid != 0) | (b.rad != 0))
        return ball(mid, _upwards(rad + UNDERFLOW * nonzero))


def divide(a: Ball, b: Ball) -> Ball:
    """a / b, entry by entry; radius ∞ where b contains 0.

    |x/y − a/b| = |(x − a) + (a/b)(b − y)| / |y| ≤ (rad a + |a/b|·rad b) / (|b| − rad b), then the rounding of a/b.
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
    """Return the sum along an axis, in any order. The radius is Σ rad a + γ_n Σ|a|, and γ_n times
    this sum for the summation of the radius.
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
    """Return A·B in any order of summation, by NumPy and by any code with the errors of `code`.

    The radius is rad A·(|B| + rad B) + |A|·rad B + ε·(|A| + rad A)(|B| + rad B) + n·η, where ε =
    γ_n(u) + γ_n(roundoff), and η is the underflow of a term.  If the code perturbs operands, ε also
    has 2·product + product² (Higham, (3.13)).  The radius is ∞ where partial sums, or perturbed
    operands, may exceed `largest`.
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
    """exp a.  For |x − a| ≤ r, |exp x − exp a| ≤ exp(a)·(exp(r) − 1); NumPy's exp and exp(a) are within 8u of each
    other.
    """
    with np.errstate(all="ignore"):
        mid = np.exp(a.mid)
        reach = mid * (1 + 2 * ELEMENTARY) + UNDERFLOW
        return ball(mid, _upwards(reach * np.expm1(a.rad) + ELEMENTARY * mid + UNDERFLOW))


def sqrt(a: Ball) -> Ball:
    """√a; radius ∞ where a contains negative numbers.

    √a − √(a − r) = r / (√a + √(a − r)) bounds both sides, because √ is concave.
    """
    with np.errstate(all="ignore"):
        mid = np.sqrt(a.mid)
        lowest = np.sqrt(np.where(a.rad <= a.mid, (a.mid - a.rad) * (1 - 2 * ROUNDOFF), np.nan))
        spread = np.where(a.rad == 0, 0.0, a.rad / ((mid + lowest) * (1 - 4 * ROUNDOFF)))
        return ball(mid, _upwards(spread + ROUNDOFF * mid))


def sin(a: Ball) -> Ball:
    """sin a.  |sin x − sin a| ≤ |x − a|; NumPy's sine is within 8u relative."""
    with np.errstate(all="ignore"):
        mid = np.sin(a.mid)
        return ball(mid, _upwards(np.minimum(a.rad, 2.0) + ELEMENTARY * np.abs(mid) + UNDERFLOW * (a.mid != 0)))


def cos(a: Ball) -> Ball:
    """cos a.  |cos x − cos a| ≤ |x − a|; NumPy's cosine is within 8u relative."""
    with np.errstate(all="ignore"):
        mid = np.cos(a.mid)
        return ball(mid, _upwards(np.minimum(a.rad, 2.0) + ELEMENTARY * np.abs(mid)))


def max_shift(a: Ball) -> Ball:
    """a minus the largest midpoint of its last axis: one exact number per row, which a softmax cancels."""
    if a.mid.shape[-1] == 0:
        return a
    return add(a, exact(-a.mid.max(axis=-1, keepdims=True)))


def rounded(a: Ball, target: Format, *, times: int = 1, flush: bool = False) -> Ball:
    """Return the ball of `a` after an implementation rounds it to a format, `times` times in
    succession.

    The radius grows by γ_times(u)·(|a| + rad a) + times·η.  η is the smallest subnormal number, or
    the smallest normal number if results may be flushed to 0.  The midpoint does not move: the ball
    contains the rounded and the unrounded numbers.  The radius is ∞ where the rounding may overflow.
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
    """An upper bound of a radius computed in round-to-nearest by fewer than 2⁴ operations on non-negative numbers."""
    rad *= 1 + 2.0**-48
    return rad


def _scaled(factor: float, magnitude: Array) -> Array:
    """factor·magnitude with ∞·0 = 0: an infinite γ_n times a magnitude of 0 is 0."""
    return factor * magnitude if np.isfinite(factor) else np.where(magnitude == 0, 0.0, factor)


def _inexact_sum(mid: Array, a: Array, b: Array) -> Array:
    """u·|mid|; 0 where mid − a = b and mid − b = a show that mid = a + b is exact (Higham, section 4.3, Fast2Sum)."""
    return np.where((mid - a == b) & (mid - b == a), 0.0, ROUNDOFF * np.abs(mid))
