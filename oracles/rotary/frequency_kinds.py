"""The kinds of rotary frequencies that treat all pairs in the same way, or each pair by a list or a
share: their values and their errors.

A kind bends the powers fᵢ = base'^(−eᵢ) to fᵢ·gᵢ.  Values are balls at the working precision.
The errors cover a kernel in roundoff u, whose operations are off by u, and whose logarithms and
powers by 4 ulp (8u), relatively; parameters are rounded on the way in:

    `base_moves`    how far ln base' may be off
    `gain_moves`    how far gᵢ may be off, relative to it; `gain_shifts`: how far it may be off absolutely, in addition
    `multiplier_moves`  how far the attention factor, what multiplies cosines and sines, may be off

A gain that divides by s takes three roundings, of s, of a reciprocal and of a product, and none
where s is a power of two.  Code that divides positions by s instead takes as many.
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
"""Roundings of a division: of the divisor, of its reciprocal, of the product."""
LOGARITHM = 8
"""What a logarithm is off by, in units of u, relative to it."""


@dataclass(frozen=True)
class Shape:
    """What all kinds have: r channels that rotate, the base, the length of the sequence, the conventions."""

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
        """Return a precision in bits at which all that a value depends on is decided."""
        return PRECISION

    @property
    def exponents(self) -> list[Fraction]:
        """eᵢ."""
        return [Fraction(2 * i, self.of.channels) for i in range(self.of.channels // 2)]

    def log_base(self) -> arb:
        """Return ln base'."""
        return arb(self.of.base).log()

    def gains(self, powers: list[arb]) -> list[arb]:
        """Return the gain gᵢ of each pair, given the powers."""
        return [arb(1)] * len(powers)

    def multiplier(self) -> arb:
        """Return the number that multiplies cosines and sines."""
        return arb(1)

    def base_moves(self, u: float) -> float:
        """Return how far ln base' may be off because the base is rounded when it is read; the
        errors of exponentials count elsewhere.
        """
        return gamma(1, u) if is_rounded(self.of.base, u) else 0.0

    def gain_moves(self, u: float) -> Array:
        """Return how far a gain may be off, relative to it, as an exponent."""
        return np.zeros(self.of.channels // 2)

    def gain_shifts(self, powers: Array, gains: Array, moved: Array, u: float) -> Array:
        """Return how far a gain may be off absolutely, in addition, given the exponents `moved` by
        which a kernel's powers are off. Powers and gains are known up to a few roundings, which 16u
        of both ends of a gain cover.
        """
        return np.zeros(len(powers))

    def multiplier_moves(self, u: float) -> float:
        """Return how far the attention factor may be off."""
        return 0.0


@dataclass(frozen=True)
class Factored(Default):
    """A kind with a factor s, by which sequences are longer."""

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
        """Return the relative error of a gain, as an exponent: the roundings of a division."""
        return np.full(self.of.channels // 2, _divided(self.factor, u))


@dataclass(frozen=True)
class Dynamic(Factored):
    """base' = base · G^q with G = s·L'/M − (s − 1), L' = max(L, M) and q = r/(r − 2); L' = M under
    `dynamic_length` = configured.
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
        """L' / M."""
        configured = self.of.conventions.dynamic_length == "configured" or self.of.length is None
        longest = self.max_position_embeddings
        return Fraction(longest if configured else max(self.of.length or 0, longest), longest)

    @property
    def grown(self) -> Fraction:
        """G, which is at least 1."""
        return Fraction(self.factor) * (self.stretch - 1) + 1

    @property
    def power(self) -> Fraction:
        """q; without channels it is not used."""
        return Fraction(self.of.channels, max(self.of.channels - 2, 1))

    def log_base(self) -> arb:
        """Return ln base + q·ln G."""
        return super().log_base() + exactly(self.grown).log() * exactly(self.power)

    def base_moves(self, u: float) -> float:
        """Return how far ln base' may be off. G = s·L'/M − (s − 1), or s·(L'/M − 1) + 1, sums terms
        of at most s·L'/M + s + 1 with five roundings each.

        Its power takes the roundings of an exponential of q·ln G.  The product with the base takes
        two, one of them of the base itself.  G and base' are computed: where a kernel takes their
        logarithms, these are off by `LOGARITHM`, and not by the one rounding of a constant's that
        an exponential counts.
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
    """base^(−2i/r) / shortᵢ, or / longᵢ where L is above M; and √(1 + ln s / ln M) for s > 1, where
    no attention factor is given.

    At L = M it is short under `longrope_switch` = at_most, long under `below`.
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
        """The factors for the sequence length."""
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
        """Return the relative error of a gain, as an exponent: the roundings of a division by a factor."""
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
        """Return how far the attention factor may be off: √x halves the error of x, as x is at
        least 1 here; the root takes one rounding.

        ln s is off by s's rounding, absolutely, and ln M likewise; both by their own; their
        quotient and the sum take one each.
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
    others, with the attention factor 1. The product share·r/2 is exact for a `Fraction`, and
    rounded to binary64 for a float, as libraries do: 0.3 of 10 pairs are 3.
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
    """Return a rational number, at the working precision."""
    return arb(x.numerator) / x.denominator


def positive(x: Any, name: str) -> float:
    """Return a parameter above 0 as a float. Raises TypeError and ValueError for anything else."""
    number = checked_scale(x, name)
    if number is None or number <= 0:
        raise ValueError(f"{name}={x}, but should be a finite number above 0.")
    return number


def length_of(n: Any, name: str) -> int:
    """Return a number of positions, at least 1."""
    return arrays.natural(n, name, 1)


def _divided(s: float, u: float) -> float:
    return 0.0 if is_power_of_two(s) else gamma(DIVISION, u)


def _list_of(given: Any, name: str, channels: int) -> list[float]:
    """The factor of each pair.  Raises TypeError and ValueError unless it has one positive number
    for each pair.
    """
    if not isinstance(given, list | tuple | np.ndarray):
        raise TypeError(f"{name} has type {type(given).__name__}, but should be a list of numbers.")
    if len(given) != channels // 2:
        raise ValueError(
            f"{name} has {len(given)} numbers, but should have {channels // 2}, "
            f"one for each pair of rotary_dim={channels}."
        )
    return [positive(s, f"{name}[{i}]") for i, s in enumerate(given)]
