"""Computes sine and cosine of position × frequency, to a little more than an ulp at every position,
and bounds the error of a kernel's.

Angles are counted in quarter turns, so that they are reduced without a multiple of π. Ball
arithmetic gives φ = (2/π)·scale·base^(−e). Where φ is above 2, a multiple of 4 is subtracted:
positions p are integers, and p·4 quarter turns are whole turns. φ is split as high + low + rest,
and

    t = p·high                exact: p < 2ᵇ is an integer, and `high` has 53 − b bits
    f = t − n                 exact: n is the integer nearest to t
    g = f + p·low, reduced    again by the nearest integer, so |g| ≤ 1/2

The sine and the cosine of (π/2)·p·φ are ±sin(πg/2) and ±cos(πg/2). Their order and signs follow
from the quadrant, which is the sum of both integers mod 4.  The integers are added as 64-bit
integers, because n may be as large as 2p, up to 2⁵⁴. There n is a float64 number (it is rounded
from one), but n + 1 is not.

The error of g is at most p·rest + u·|p·low| + u·(1/2 + |p·low|). The three terms come from the
rest, the product and the sum.

The series sin(πg/2) = g·Σ aₖzᵏ and cos(πg/2) = Σ cₖzᵏ, with z = g² ≤ 1/4, end with z⁸. Their
remainders, (π/4)¹⁹/19! and (π/4)¹⁸/18!, are below u/50.  They are summed by Horner's rule (Higham,
Accuracy and Stability, 2nd ed., section 5.1). The term of zᵏ takes part in k products and in k sums
before the last sum; z is rounded k times and the coefficient once. These are 3k + 1 roundings.  For
the cosine the last sum is at most 1, so half an ulp is u/2. For the sine the last sum is below 2
and is multiplied by g, and that last product is below 1.  In units of u:

    cosine   4·(π/4)²/2! + 7·(π/4)⁴/4! + 10·(π/4)⁶/6! + … + 1/2             < 1.86
    sine     0.28 + 4·(π/4)³/3! + 7·(π/4)⁵/5! + … + 1/2 + 1/2               < 1.63

where 0.28u is g times the error of the float64 number next to π/2.  The part u/2 of the error of g
adds (1/2)(π/2)/√2 < 0.56. So `SERIES` = 2.5u bounds both functions. (π/2)(p·rest + 2u·|p·low|) is
added; it grows with the position.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import factorial, pi
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from oracles import arrays
from oracles.arb_matrix import working_precision
from oracles.ball import ROUNDOFF, Array, Ball, gamma, rounded
from oracles.formats import BINARY32, BINARY64, Arithmetic

SERIES = 2.5 * ROUNDOFF
TERMS = 9
BLOCK = 1 << 14
FREQUENCY_BITS = 200
TINY = 2.0**-1000
QUARTER = pi / 2 * (1 + 2 * ROUNDOFF)
EXPONENT = 3
"""The number of roundings in e·ln(base): of ln(base) or log₂(base), of e, of the product."""
EXPONENTIAL = 9
"""The error of an exponential or power to 4 ulp (8u) and of a reciprocal, in units of u."""
SCALING = 2
"""The number of roundings where frequencies or positions are multiplied by a scale: of the scale,
of the product.
"""
with working_precision(FREQUENCY_BITS):
    _SERIES = [float((-1) ** (k // 2) * (arb.pi() / 2) ** k / factorial(k)) for k in range(2 * TERMS)]
_EVEN, _ODD = _SERIES[::2], _SERIES[1::2]
"""The coefficients of the series of the cosine and the sine."""
COS_SIGN, SIN_SIGN = np.array([1.0, -1.0, -1.0, 1.0]), np.array([1.0, 1.0, -1.0, -1.0])


@dataclass(frozen=True)
class Frequencies:
    """Frequencies in quarter turns: |φ − high − low| ≤ rest modulo whole turns.

    size    upper bounds of the frequencies in radians
    shares  the exponents e of computed frequencies scale·base^(−e)
    taken   how far, relatively, a kernel moves given frequencies when it rounds them
    binary  which frequencies are 0 or powers of two
    """

    high: Array
    low: Array
    rest: Array
    size: Array
    shares: Array
    base: float
    scale: float
    taken: Array
    binary: NDArray[np.bool_]


def frequencies(exponents: list[Fraction], base: float, positions: int, scale: float = 1.0) -> Frequencies:
    """Return the frequencies scale·base^(−e), split so that p·high is exact for every position p
    below `positions`.
    """
    with working_precision(FREQUENCY_BITS + max(0, int(np.frexp(scale)[1]))):
        turning = powers(exponents, base, scale)
        shares = np.array([float(e) for e in exponents])
        exact = ((shares == 0) | (base == 1)) & is_power_of_two(scale)
        return Frequencies(*_split(turning, positions), shares, base, scale, np.zeros(len(exponents)), exact)


def given_frequencies(given: Ball, positions: int, taken: Array) -> Frequencies:
    """Return the caller's frequencies, exact or with a radius, split for positions below
    `positions`. `taken` says how far, relatively, a kernel moves each one when it rounds it.
    """
    binary = (given.rad == 0) & ((given.mid == 0) | (np.abs(np.frexp(given.mid)[0]) == 0.5))
    most = max(0, int(np.frexp(np.abs(given.mid).max(initial=0.0))[1]))
    with working_precision(FREQUENCY_BITS + most):
        return Frequencies(*_split(balls(given), positions), np.zeros(len(given.mid)), 1.0, 1.0, taken, binary)


def powers(exponents: list[Fraction], base: float, scale: float) -> list[arb]:
    """Return scale·base^(−e) for each exponent e, at the working precision."""
    log_base = arb(base).log()
    return [arb(scale) * (-log_base * e.numerator / e.denominator).exp() for e in exponents]


def balls(given: Ball) -> list[arb]:
    """Return the arb balls of an array with one axis."""
    return [arb(mid, rad) for mid, rad in zip(given.mid.tolist(), given.rad.tolist(), strict=True)]


def _split(turning: list[arb], positions: int) -> tuple[Array, Array, Array, Array]:
    """Return the first four fields of `Frequencies`, from the frequencies in radians."""
    bits = 53 - max(positions - 1, 1).bit_length()
    high, low, rest, size = (np.zeros(len(turning)) for _ in range(4))
    quarters = 2 / arb.pi()
    for i, frequency in enumerate(turning):
        size[i] = np.nextafter(float(frequency.abs_upper()), np.inf)
        phi = quarters * frequency
        if abs(phi) > 2:
            phi -= 4 * (phi / 4 + 0.5).mid().floor()
        mantissa, binary_exponent = np.frexp(float(phi))
        high[i] = np.ldexp(np.rint(np.ldexp(mantissa, bits)), binary_exponent - bits)
        low[i] = float(phi - float(high[i]))
        rest[i] = np.nextafter(float((phi - float(high[i]) - float(low[i])).abs_upper()), np.inf)
    return high, low, rest, size


def pair_exponents(dim: int) -> list[Fraction]:
    """Return the exponent 2i/dim of every pair of channels i. The last pair of an odd dim has only
    one channel.
    """
    return [Fraction(2 * i, dim) for i in range(-(-dim // 2))]


def start_position(start: Any, length: int) -> int:
    """Return a first position as an int. The last position is at most 2⁵³, so all positions are
    exact in float64.
    """
    return arrays.natural(start, "start_pos", most=2**53 - length)


def blocks(length: int, dim: int) -> Iterator[slice]:
    """Return slices of rows; the rows of a slice are evaluated together. A slice is small, so that
    its arrays stay in the second-level cache. If dim is 0, the iterator is empty.
    """
    if dim == 0:
        return iter(())
    step = max(1, BLOCK // max(1, dim // 2))
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def cos_sin(positions: Array, chosen: Frequencies, arithmetic: Arithmetic | None) -> tuple[Ball, Ball]:
    """Return the cosines and the sines of position × frequency, both (positions, frequencies). They
    are exact values, or values of a modelled kernel if an arithmetic is given.

    Positions are natural numbers: one for each row, or one for each row and frequency.  `_kernel`
    describes the kernel's error.  At position 0 the certified value has radius 0.
    """
    p = positions if positions.ndim == 2 else positions[:, None]
    turns, tail = p * chosen.high, p * chosen.low
    quadrant = np.rint(turns)
    turns -= quadrant
    turns += tail
    step = np.rint(turns)
    turns -= step
    cos, sin = _series(turns)
    quarter = (quadrant.astype(np.int64) + step.astype(np.int64)) & 3
    swapped = (quarter & 1).astype(bool)
    rad = _radius(p, chosen)
    balls = (
        Ball(np.where(swapped, sin, cos) * COS_SIGN.take(quarter), rad),
        Ball(np.where(swapped, cos, sin) * SIN_SIGN.take(quarter), rad),
    )
    if arithmetic is None:
        return balls
    width = _kernel(rad, p, chosen, arithmetic)
    stored = [rounded(Ball(x.mid, width), arithmetic.angle.table, flush=arithmetic.flush_to_zero) for x in balls]
    return stored[0], stored[1]


def _radius(p: Array, chosen: Frequencies) -> Array:
    """Return the error bound of the module's derivation; 0 at position 0.

    All positions get the bound of the largest position, because their own bounds are about as
    large. If a frequency has a radius above the rounding of `low`, each position gets its own
    bound.
    """
    rounding = 2 * ROUNDOFF * np.abs(chosen.low)
    by = p if (chosen.rest > rounding + TINY).any() else p.max()
    rad = np.minimum(SERIES + QUARTER * by * (chosen.rest + rounding), 2.0) * (1 + 16 * ROUNDOFF)
    return np.where(p == 0, 0.0, rad) if p.min() == 0 else np.broadcast_to(rad, (len(p), rad.shape[-1]))


def _series(g: Array) -> tuple[Array, Array]:
    """Return cos(πg/2) and sin(πg/2) for |g| ≤ 1/2."""
    z = g * g
    cos, sin = z * _EVEN[-1], z * _ODD[-1]
    for c, a in zip(_EVEN[-2:0:-1], _ODD[-2:0:-1], strict=True):
        cos += c
        cos *= z
        sin += a
        sin *= z
    cos += _EVEN[0]
    sin += _ODD[0]
    sin *= g
    return cos, sin


def _kernel(rad: Array, p: Array, chosen: Frequencies, arithmetic: Arithmetic) -> Array:
    """Return how far a kernel's sine or cosine may be off in an arithmetic, before it is stored.

    The angle moves by the bound of `moved_angle`.  Sine, cosine and their derivatives are at most
    1, so the error is at most that bound, and at most 2 unless the angle may come out as ∞.
    `trig_absolute` and the oracle's own radius are added.
    """
    moved = moved_angle(p, chosen, arithmetic)
    if not moved.max(initial=0.0) <= 2.0:
        np.minimum(moved, 2.0, out=moved, where=moved < np.inf)
    moved += arithmetic.trig_absolute
    moved += rad
    moved *= 1 + 2.0**-48
    return moved


def moved_angle(p: Array, chosen: Frequencies, arithmetic: Arithmetic) -> Array:
    """Return how far position × frequency may be from its exact value in a kernel of that
    arithmetic.

    A kernel computes θ = p·f, or (p·scale)·f, with the frequency f of `moved_frequency`. θ takes
    one rounding of `angle.product`, unless f is a power of two. f takes another one if its
    precision is finer. p takes one if the format of the product may not hold p.  The roundings of
    the scale count in the coarser of `frequency` and `product`.

    The bound is ∞ where p·scale or θ may overflow. It is ∞ at position 0 too where the scale or f
    may overflow, because 0·∞ is NaN.  Where θ may underflow, f is as small, because positions are
    at least 1. There p times the absolute part of the error of f is more than θ.
    """
    angle, far = arithmetic.angle, p * arithmetic.angle.product > 1
    relative, absolute = moved_frequency(chosen, arithmetic)
    twice = 1.0 * far if far.any() else 0.0  # one row does for all, where no position is rounded
    relative = relative + gamma(1, angle.product) * (
        ~chosen.binary * (2.0 if angle.frequency < angle.product else 1.0) + twice
    )
    with np.errstate(over="ignore", invalid="ignore"):
        moved = p * (chosen.size * np.expm1(relative) + absolute)
        moved *= 1 + 2.0**-48
        farthest, largest = np.maximum(chosen.size, chosen.scale) * np.exp(relative), held_range(arithmetic)[1]
        held = bool(
            (p.max(initial=1.0) * farthest < largest).all()
        )  # no position overflows: rounded products keep the order
        if not held:
            moved = np.where(p * farthest < largest, moved, np.inf)
    if p.min(initial=np.inf) == 0:
        moved = np.where(p == 0, 0.0, moved)
    return moved if held else np.where(farthest < largest, moved, np.inf)


def moved_frequency(chosen: Frequencies, arithmetic: Arithmetic) -> tuple[Array, Array]:
    """Return how far scale·base^(−e) may be from its exact value in a kernel of that arithmetic: a
    relative part, as an exponent, and an absolute part.

    If the caller gives the frequency, its relative part is `taken`.  Otherwise a kernel computes an
    exponential or power, and perhaps its reciprocal, with roundoff u = `angle.frequency`. x =
    e·ln(base) moves by `EXPONENT`·u·x, which is a relative error of exp(−x). The exponential adds
    `EXPONENTIAL`·u. For e = 0 all is exact.  A kernel may round the base when it reads it: this
    moves ln(base) by u, and x by e·u.  A scale takes `SCALING` roundings unless it is a power of
    two.  All these are exponents, because (1 ± u)^±1 lies within exp(±u/(1 − u)) = exp(±γ₁).

    A kernel of recurrent angles multiplies p by r = base^(−e₁) i times for the pair i, where e =
    i·e₁. r is off by `EXPONENT`·u·x₁ + `EXPONENTIAL`·u, so rⁱ is off by i times that, and by i
    products: (`EXPONENT`·x + (`EXPONENTIAL` + 1)·i)·u.

    The bound is ∞ where the scale, the frequency or the base may overflow: the powers of an
    infinite base are 0, and 0·ln ∞ is NaN.

    Near the smallest normal number `least`, the power, the operand of the reciprocal and the scaled
    frequency may under- or overflow. A number below 4·least may come out as 0, or lose its last
    bits, which are less than `least`. The loss of the power counts times the scale.
    """
    angle, (least, largest) = arithmetic.angle, held_range(arithmetic)
    exponent = chosen.shares * np.log(chosen.base) * (1 + 8 * ROUNDOFF)
    relative = chosen.taken + moved_power(exponent, angle.frequency)
    if angle.recurrent:
        first = chosen.shares.min(where=chosen.shares > 0, initial=1.0)
        factors = np.where(exponent != 0, np.rint(chosen.shares / first), 0.0)
        relative += gamma(1, angle.frequency) * ((EXPONENTIAL + 1) * factors - EXPONENTIAL * (factors > 0))
    if is_rounded(chosen.base, angle.frequency):
        relative = relative + gamma(1, angle.frequency) * chosen.shares
    if not is_power_of_two(chosen.scale):
        relative = relative + SCALING * gamma(1, max(angle.frequency, angle.product))
    with np.errstate(over="ignore", under="ignore"):
        power, spread = np.exp(-exponent) * (1 + 2.0**-40), np.exp(relative)
        absolute = np.where(power < 4 * least * spread, power + least, 0.0) * chosen.scale
        absolute += np.where(chosen.size < 4 * least * spread, chosen.size + least, 0.0)
        farthest = np.maximum(np.maximum(chosen.size, chosen.scale), chosen.base * (1 + angle.frequency)) * spread
    return np.where(farthest < largest, relative, np.inf), absolute


def moved_power(exponent: Array, roundoff: float) -> Array:
    """Return how far a kernel's exp(±exponent) may be from its exact value, as an exponent:
    `EXPONENT` roundings of the argument, and `EXPONENTIAL` of the result. For an exponent of 0 it
    is exact.
    """
    return gamma(1, roundoff) * np.where(exponent != 0, EXPONENT * np.abs(exponent) + EXPONENTIAL, 0.0)


def held_range(arithmetic: Arithmetic) -> tuple[float, float]:
    """Return the smallest normal and the largest number of the format in which a kernel holds
    angles.

    A roundoff does not say which range its format has. The range of binary64 is assumed if both
    roundoffs of the angle are as fine, else the range of binary32.
    """
    fine = max(arithmetic.angle.frequency, arithmetic.angle.product) <= BINARY64.unit_roundoff
    target = BINARY64 if fine else BINARY32
    return target.smallest_normal, target.largest


def is_rounded(numbers: Any, roundoff: float) -> Any:
    """Return which numbers have more digits than a format of that roundoff holds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = np.frexp(numbers)[0] / np.float64(roundoff)
    return digits != np.rint(digits)


def is_power_of_two(number: float) -> bool:
    """Return whether the number is a positive power of two, so that a product with it rounds
    nothing.
    """
    return bool(np.frexp(number)[0] == 0.5)
