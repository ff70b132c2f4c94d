"""The kinds of rotary frequencies that treat all pairs in the same way, or each pair by a list or a
share: their values and their errors.

A kind changes the powers fᵢ = base'^(−eᵢ) to fᵢ·gᵢ, where gᵢ is called a gain.  Values are balls
(midpoint ± radius) at the working precision. The errors cover a kernel of roundoff u. Its
operations are off by u, relatively; its logarithms and powers are off by 4 ulp (8u), relatively. It
rounds parameters when it reads them:

    `base_moves`        how far ln base' may be off
    `gain_moves`        the exponent e: the relative error of gᵢ is at most exp(e) − 1
    `gain_shifts`       how far gᵢ may be off absolutely, in addition
    `multiplier_moves`  how far the attention factor may be off, which multiplies cosines and sines

A gain that divides by s takes three roundings: of s, of a reciprocal and of a product. It takes no
rounding if s is a power of two.  Code that divides positions by s instead takes as many.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import log, log1p, sqrt
from typing import Any

import numpy as np
from flint import arb

from oracles import arrays
from oracles.arb_matrix import PRECISION
from oracles.arguments import checked_scale
from oracles.ball import ROUNDOFF, Array, gamma
from oracles.conventions import Conventions
from oracles.error_analysis.angle import EXPONENT, EXPONENTIAL, is_power_of_two, is_rounded

DIVISION = 3
"""The number of roundings of a division: of the divisor, of its reciprocal, of the product."""
LOGARITHM = 8
"""The relative error of a logarithm, in units of u."""


@dataclass(frozen=True)
class Shape:
    """The data that all kinds have: the number of rotated channels r, the base, the length of the
    sequence, and the conventions.
    """

    channels: int
    base: float
    length: int | None
    conventions: Conventions


@dataclass(frozen=True)
class Default:
    """The kind of the frequencies base^(−2i/r), with the attention factor 1."""

    of: Shape

    def __post_init__(self) -> None:
        """Raise TypeError and ValueError for parameters that make no sense."""

    def _store(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def decided(self) -> int:
        """Return a precision in bits at which every comparison and every rounding to an integer is
        decided.
        """
        return PRECISION

    @property
    def exponents(self) -> list[Fraction]:
        """The exponent eᵢ = 2i/r of each pair i."""
        return [Fraction(2 * i, self.of.channels) for i in range(self.of.channels // 2)]

    def log_base(self) -> arb:
        """Return ln base', the logarithm of the base that the kind uses."""
        return arb(self.of.base).log()

    def gains(self, powers: list[arb]) -> list[arb]:
        """Return the gain gᵢ of each pair, given the powers."""
        return [arb(1)] * len(powers)

    def multiplier(self) -> arb:
        """Return the number that multiplies cosines and sines."""
        return arb(1)

    def base_moves(self, u: float) -> float:
        """Return how far ln base' may be off because a kernel rounds the base when it reads it. The
        errors of exponentials count elsewhere.
        """
        return gamma(1, u) if is_rounded(self.of.base, u) else 0.0

    def gain_moves(self, u: float) -> Array:
        """Return an exponent e for each gain: its relative error is at most exp(e) − 1."""
        return np.zeros(self.of.channels // 2)

    def gain_shifts(self, powers: Array, gains: Array, moved: Array, u: float) -> Array:
        """Return how far a gain may be off absolutely, in addition to `gain_moves`.

        The relative errors of a kernel's powers are at most exp(`moved`) − 1. The given powers and gains have an error
        of a few roundings, and 16u of both ends of a gain cover it.
        """
        return np.zeros(len(powers))

    def multiplier_moves(self, u: float) -> float:
        """Return how far the attention factor may be off."""
        return 0.0


@dataclass(frozen=True)
class Factored(Default):
    """A kind with a factor s, by which the context becomes longer."""

    factor: Any

    def __post_init__(self) -> None:
        self._store(factor=positive(self.factor, "factor"))


@dataclass(frozen=True)
class Linear(Factored):
    """The kind of the frequencies base^(−2i/r) / s, with the attention factor 1."""

    def gains(self, powers: list[arb]) -> list[arb]:
        """Return 1/s for each pair."""
        return [1 / arb(self.factor)] * len(powers)

    def gain_moves(self, u: float) -> Array:
        """Return an exponent e for each gain: its relative error is at most exp(e) − 1. These are
        the roundings of a division.
        """
        return np.full(self.of.channels // 2, _divided(self.factor, u))


@dataclass(frozen=True)
class Dynamic(Factored):
    """Dynamic scaling: base' = base · G^q with G = s·L'/M − (s − 1), L' = max(L, M) and q = r/(r −
    2). L is the sequence length and M the original length. Under `dynamic_length` = configured, L'
    = M.
    """

    max_position_embeddings: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        self._store(max_position_embeddings=length_of(self.max_position_embeddings, "max_position_embeddings"))
        if self.of.channels == 2:
            raise ValueError(
                "rotary_dim=2, but should not be 2: the exponent r/(r − 2) of the base has no value there."
            )

    @property
    def stretch(self) -> Fraction:
        """The quotient L' / M."""
        configured = self.of.conventions.dynamic_length == "configured" or self.of.length is None
        longest = self.max_position_embeddings
        return Fraction(longest if configured else max(self.of.length or 0, longest), longest)

    @property
    def grown(self) -> Fraction:
        """The growth G, which is at least 1."""
        return Fraction(self.factor) * (self.stretch - 1) + 1

    @property
    def power(self) -> Fraction:
        """The exponent q = r/(r − 2); without channels it is not used."""
        return Fraction(self.of.channels, max(self.of.channels - 2, 1))

    def log_base(self) -> arb:
        """Return ln base' = ln base + q·ln G."""
        return super().log_base() + exactly(self.grown).log() * exactly(self.power)

    def base_moves(self, u: float) -> float:
        """Return how far ln base' may be off. A kernel computes G = s·L'/M − (s − 1), or s·(L'/M −
        1) + 1: a sum of terms of at most s·L'/M + s + 1, with five roundings each.

        The power G^q takes the roundings of an exponential of q·ln G.  The product with the base
        takes two roundings, one of them of the base itself.  A kernel may take the logarithms of
        the computed G and base'. These are off by `LOGARITHM` roundings. An exponential already
        counts one of them, the rounding of a constant's logarithm.
        """
        grown, largest_term = float(self.grown), float(Fraction(self.factor) * (self.stretch + 1) + 1)
        relative_error = gamma(5, u) * largest_term / grown * (1 + 8 * ROUNDOFF)
        if relative_error >= 1:
            return np.inf
        q, logarithm = float(self.power), gamma(LOGARITHM - 1, u)
        log_error = (
            -q * log1p(-relative_error)
            + gamma(1, u) * (EXPONENT * q * log(grown) + EXPONENTIAL + 2)
            + logarithm * q * log(grown)
        )
        return (log_error + logarithm * (float(self.log_base().abs_upper()) + log_error)) * (1 + 16 * ROUNDOFF)


@dataclass(frozen=True)
class Longrope(Default):
    """LongRoPE: base^(−2i/r) / shortᵢ, or base^(−2i/r) / longᵢ where the sequence length L is above
    the original length M. For s > 1 the attention factor is √(1 + ln s / ln M), unless it is given.

    At L = M the short factors apply under `longrope_switch` = at_most, and the long ones under
    `below`.
    """

    short_factor: Any
    long_factor: Any
    original_max_position_embeddings: Any
    factor: Any = None
    attention_factor: Any = None

    def __post_init__(self) -> None:
        original = length_of(self.original_max_position_embeddings, "original_max_position_embeddings")
        if original == 1:
            raise ValueError("original_max_position_embeddings=1, but should be above 1: ln 1 = 0 divides.")
        factor_lists = {
            name: _list_of(getattr(self, name), name, self.of.channels) for name in ("short_factor", "long_factor")
        }
        attention_factor = checked_scale(self.attention_factor, "attention_factor")
        self._store(original_max_position_embeddings=original, attention_factor=attention_factor, **factor_lists)
        if self.factor is None and self.attention_factor is None:
            raise ValueError("factor is missing, but is needed where attention_factor is not given.")
        self._store(factor=1.0 if self.factor is None else positive(self.factor, "factor"))

    @property
    def chosen(self) -> list[float]:
        """The short or the long factors, by the sequence length."""
        length, original_length = self.of.length, self.original_max_position_embeddings
        is_short = (
            length is None
            or length < original_length
            or (length == original_length and self.of.conventions.longrope_switch == "at_most")
        )
        factors: list[float] = self.short_factor if is_short else self.long_factor
        return factors

    def gains(self, powers: list[arb]) -> list[arb]:
        """Return 1/shortᵢ or 1/longᵢ for each pair."""
        return [1 / arb(s) for s in self.chosen]

    def gain_moves(self, u: float) -> Array:
        """Return an exponent e for each gain: its relative error is at most exp(e) − 1. These are
        the roundings of a division by the pair's factor.
        """
        return np.array([_divided(s, u) for s in self.chosen])

    def multiplier(self) -> arb:
        """Return the attention factor."""
        if self.attention_factor is not None:
            return arb(self.attention_factor)
        return (
            (1 + arb(self.factor).log() / arb(self.original_max_position_embeddings).log()).sqrt()
            if self.factor > 1
            else arb(1)
        )

    def multiplier_moves(self, u: float) -> float:
        """Return how far a kernel's attention factor √(1 + ln s / ln M) may be off. The root halves
        the error of its argument, which is at least 1, and takes one rounding.

        ln s has an absolute error from the rounding of s, and ln M one from the rounding of M. Both
        also have the relative error of a logarithm. Their quotient and the sum take one rounding
        each.
        """
        if self.attention_factor is not None:
            return float(abs(self.attention_factor) * u)
        if self.factor <= 1:
            return 0.0
        s, log_length = log(self.factor), log(self.original_max_position_embeddings)
        ratio, denominator_error = s / log_length, gamma(LOGARITHM, u) + gamma(1, u) / log_length
        if denominator_error >= 1:
            return np.inf
        error: float = (gamma(LOGARITHM + 2, u) * ratio + gamma(2, u) / log_length + ratio * denominator_error) / (
            1 - denominator_error
        )
        multiplier = sqrt(1 + ratio)
        return (error / 2 + gamma(2, u) * multiplier + u * (error + multiplier)) * (1 + 32 * ROUNDOFF)


@dataclass(frozen=True)
class Proportional(Linear):
    """The kind of the frequencies base^(−2i/r) / s for the first ⌊share·r/2⌋ pairs, and 0 for the
    others, with the attention factor 1.

    The product share·r/2 is exact for a `Fraction`. For a float it is rounded to binary64, as
    libraries do: 0.3 of 10 pairs are 3.
    """

    factor: Any = 1.0
    partial_rotary_factor: Any = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        number = self.partial_rotary_factor
        share = number if isinstance(number, Fraction) else checked_scale(number, "partial_rotary_factor")
        if share is None or not 0 <= share <= 1:
            raise ValueError(f"partial_rotary_factor={number}, but should be from 0 to 1.")
        pairs = self.of.channels // 2
        self._store(partial_rotary_factor=Fraction(int(share * pairs), max(pairs, 1)))

    def gains(self, powers: list[arb]) -> list[arb]:
        """Return 1/s for a pair that rotates, and 0 for the others."""
        rotating = int(self.partial_rotary_factor * len(powers))
        return [*super().gains(powers[:rotating]), *[arb(0)] * (len(powers) - rotating)]


def exactly(x: Fraction) -> arb:
    """Return a rational number as a ball at the working precision."""
    return arb(x.numerator) / x.denominator


def positive(x: Any, name: str) -> float:
    """Return a parameter above 0 as a float. Raises TypeError and ValueError for anything else."""
    number = checked_scale(x, name)
    if number is None or number <= 0:
        raise ValueError(f"{name}={x}, but should be a finite number above 0.")
    return number


def length_of(n: Any, name: str) -> int:
    """Return a number of positions as an int of at least 1. Raises TypeError and ValueError for
    anything else.
    """
    return arrays.natural(n, name, 1)


def _divided(s: float, u: float) -> float:
    return 0.0 if is_power_of_two(s) else gamma(DIVISION, u)


def _list_of(given: Any, name: str, channels: int) -> list[float]:
    """Return the factor of each pair.  Raises TypeError and ValueError unless each pair has one
    positive number.
    """
    if not isinstance(given, list | tuple | np.ndarray):
        raise TypeError(f"{name} has type {type(given).__name__}, but should be a list of numbers.")
    if len(given) != channels // 2:
        raise ValueError(
            f"{name} has {len(given)} numbers, but should have {channels // 2}, "
            f"one for each pair of rotary_dim={channels}."
        )
    return [positive(s, f"{name}[{i}]") for i, s in enumerate(given)]
