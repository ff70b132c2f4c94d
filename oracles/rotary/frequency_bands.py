"""The kinds of rotary frequencies that keep fast pairs and interpolate slow ones: YaRN by numbers
of turns, llama3 by wavelengths.

Both multiply a frequency by the gain g = keep + (1 − keep)/s, where s is the factor and keep is a
line cut to [0, 1].  So g is continuous at the ends of the band, where the line is between 0 and 1.
A kernel that compares slightly wrong wavelengths takes a branch whose value is only slightly wrong.

Within the band, a kernel's line lies in an interval that is computed from intervals of its
operands.  The slope of the gain is 1 − 1/s.  One minus the line, its complement, and a factor 1 −
1/s where a kernel has one, take `COMPLEMENTS` = 4 roundings of at most 1 + 1/s.  `BLEND` = 5 more
roundings are relative, within the band and beyond it: of s, a reciprocal, two products and a sum of
two numbers above 0.

Where s < 1, the two terms of 1/s + keep·(1 − 1/s), or of f/s + keep·(f − f/s), cancel. Let c =
keep·(1/s − 1) be the size of the second term, so 1/s = g + c.  The roundings of s and of the sum
are relative, because (1 − keep)/s ≤ g.  The first term takes two more roundings, of a reciprocal
and a product. The second term takes one rounding of keep/s, from the reciprocal, and three of c,
from the difference and two products.  Together these are at most 3/s + 3c = 3g + 6c. `BLEND` has 3g
of them. So `CANCELLED` = 6 roundings of c remain, within the band and beyond it.
"""

from dataclasses import dataclass
from math import log, pi
from typing import Any

import numpy as np
from flint import arb

from oracles.arb_matrix import MOST_PRECISION, PRECISION, working_precision
from oracles.arguments import checked_scale
from oracles.ball import ROUNDOFF, Array, gamma
from oracles.rotary.frequency_kinds import LOGARITHM, Factored, length_of, positive

BLEND, COMPLEMENTS, CANCELLED, TURNS = 5, 4, 6, 8
OUTWARD = 2.0**-48
Span = tuple[float, float]


class UndecidedError(Exception):
    """Raised where balls of this precision do not decide which of two numbers is larger."""


@dataclass(frozen=True)
class Band(Factored):
    """A kind of frequencies that keeps some pairs, divides others by s, and blends the pairs
    between.
    """

    original_max_position_embeddings: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        name = "original_max_position_embeddings"
        self._store(**{name: length_of(self.original_max_position_embeddings, name)})

    def keeps(self, powers: list[arb]) -> list[arb]:
        """Return the kept share of each pair, from 0 to 1, at the working precision."""
        raise NotImplementedError

    def lines(self, powers: Array, moved: Array, u: float) -> tuple[Array, Array]:
        """Return bounds of a kernel's line, which is `keeps` before it is cut to [0, 1]. The
        relative errors of the kernel's powers are at most exp(`moved`) − 1.
        """
        raise NotImplementedError

    def gains(self, powers: list[arb]) -> list[arb]:
        """Return the gain g of each pair."""
        return [kept + (1 - kept) / arb(self.factor) for kept in self.keeps(powers)]

    def gain_moves(self, u: float) -> Array:
        """Return an exponent e for each gain: its relative error is at most exp(e) − 1. These are
        the roundings of the kept part and of the divided part.
        """
        return np.full(self.of.channels // 2, gamma(BLEND, u))

    def gain_shifts(self, powers: Array, gains: Array, moved: Array, u: float) -> Array:
        """Return the absolute error of a gain. Within the band it is the distance to the farther
        end of the line's interval, plus the roundings of the numbers that are not small. Everywhere
        it has the roundings of terms that cancel.

        Where a kernel's line may leave [0, 1], these roundings grow with it. The roundings of the
        blend no longer cancel there, even if the slope is 0. Where the line may be any number, as
        with 0/0, the gain is unknown.
        """
        lowest, highest = self.lines(powers, moved, u)
        slope, ends = 1 - 1 / self.factor, 1 + 1 / self.factor
        beyond = np.maximum(0.0, np.maximum(highest - 1, -lowest))
        with np.errstate(invalid="ignore"):
            farthest = np.abs(np.array([lowest, highest]) * slope + 1 / self.factor - gains).max(axis=0)
        farthest = farthest + ((gamma(COMPLEMENTS, u) + 16 * ROUNDOFF) + gamma(COMPLEMENTS + BLEND, u) * beyond) * ends
        farthest = np.where(np.isfinite(beyond), farthest, np.inf)
        inside = ~((lowest >= 1) | (highest <= 0))
        cancelled = gamma(CANCELLED, u) * np.clip(highest, 0, 1) * max(1 / self.factor - 1, 0.0)
        shifts: Array = (np.where(inside, farthest, 0.0) + cancelled) * (1 + OUTWARD)
        return shifts


@dataclass(frozen=True)
class Yarn(Band):
    """YaRN: keep = 1 − ramp. The ramp rises from 0 to 1, from the pair that makes β_fast turns in M
    positions to the pair that makes β_slow turns.

    The numbers of these two pairs are rounded, the first down and the second up, if `truncate` is
    true; its default is `conventions.yarn_truncate`. Then they are cut to [0, `upper`]: r − 1, or
    r/2 − 1 under `yarn_upper` = last_pair.  Where the two are equal, the second is 0.001 more.
    """

    beta_fast: Any = 32
    beta_slow: Any = 1
    truncate: Any = None
    mscale: Any = None
    mscale_all_dim: Any = None
    attention_factor: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._store(beta_fast=positive(self.beta_fast, "beta_fast"), beta_slow=positive(self.beta_slow, "beta_slow"))
        default = self.of.conventions.yarn_truncate == "truncated"
        self._store(truncate=default if self.truncate is None else _flag(self.truncate))
        for name in ("mscale", "mscale_all_dim", "attention_factor"):
            self._store(**{name: checked_scale(getattr(self, name), name)})
        if self.of.base <= 1:
            raise ValueError(
                f"base={self.of.base}, but should be above 1: a pair's wavelength should grow with its number."
            )
        self.decided()

    @property
    def upper(self) -> int:
        """The largest pair number at which the ramp may end."""
        channels = self.of.channels
        return max(channels - 1 if self.of.conventions.yarn_upper == "last_channel" else channels // 2 - 1, 0)

    def decided(self) -> int:
        """Return a precision in bits at which the ends of the ramp are known.

        Such a precision exists: if a pair number `corr` were an integer or half an integer k, π =
        M/(2ρ) · base^(−2k/r) would be algebraic, because M, ρ and base are rational.
        """
        precision = PRECISION
        while True:
            try:
                with working_precision(precision):
                    self.ends()
                return precision
            except UndecidedError:
                if precision >= MOST_PRECISION:
                    raise ValueError(
                        f"The ends of the ramp are not decided in {MOST_PRECISION} bits, but should be: "
                        "change beta_fast or beta_slow."
                    ) from None
                precision = min(2 * precision, MOST_PRECISION)

    def corr(self, turns: float) -> arb:
        """Return the pair number, a real number, of a pair that makes this number of turns in M
        positions.
        """
        log_of_quotient = (self.original_max_position_embeddings / (2 * arb.pi() * arb(turns))).log()
        pair: arb = log_of_quotient * self.of.channels / (2 * self.log_base())
        return pair

    def ends(self) -> tuple[arb, arb]:
        """Return the pair numbers at which the ramp begins and ends. Raises UndecidedError if the
        precision does not decide them, and ValueError if the ramp does not rise.
        """
        low, high = self.corr(self.beta_fast), self.corr(self.beta_slow)
        if self.truncate:
            low, high = _integer(low.floor()), _integer(high.ceil())
        low, high = (low if _is_above(low, 0) else arb(0)), (high if _is_above(self.upper, high) else arb(self.upper))
        ends_meet = self.beta_fast == self.beta_slow and not low.is_exact() and not high.is_exact()
        if not ends_meet and _is_above(low, high):
            raise ValueError(
                f"The ramp runs from low={low.str(6, radius=False)} to high={high.str(6, radius=False)}, "
                "but should rise: "
                f"see beta_fast={self.beta_fast} and beta_slow={self.beta_slow}."
            )
        return (low, high) if not ends_meet and _is_above(high, low) else (low, low + arb(1) / 1000)

    def keeps(self, powers: list[arb]) -> list[arb]:
        """Return 1 − ramp for each pair."""
        low, high = self.ends()
        return [1 - _cut((i - low) / (high - low)) for i in range(len(powers))]

    def multiplier(self) -> arb:
        """Return the attention factor."""
        if self.attention_factor is not None:
            return arb(self.attention_factor)
        if self.mscale and self.mscale_all_dim:
            return self._sharpened(self.mscale) / self._sharpened(self.mscale_all_dim)
        return self._sharpened(1.0)

    def _sharpened(self, weight: float) -> arb:
        """Return weight·0.1·ln(factor) + 1 for a factor above 1, else 1."""
        return arb(weight) * arb(self.factor).log() / 10 + 1 if self.factor > 1 else arb(1)

    def lines(self, powers: Array, moved: Array, u: float) -> tuple[Array, Array]:
        """Return bounds of a kernel's 1 − ramp. The ends of the kernel's ramp are off by the bound
        of `_off`, before they are rounded down and up.

        The ramp, cut to [0, 1], falls as either end grows.  Its differences and their quotient take
        three roundings.  A low end that is not an integer may be rounded before it is subtracted
        from i, and not before it is subtracted from the other end. So these differences are also
        off by `apart`, the rounding of a number of `lowest`'s size.

        Where the ends may meet, the ramp may have any value between them. It may have any value
        also as far beyond the high end as a ramp without a width goes: 0.001, which is less than
        2⁻⁹, and two roundings of the high end.  Where u·low is at least that 0.001, less two
        roundings, the sum may lose the 0.001, and the pair of the low end may be 0/0.

        The low end is cut only at 0 and the high end only at `upper`. Roundings may make them
        cross. Then the ramp runs backwards, is 1 before its ends and 0 beyond, and its pairs may
        have any value.  Two ends with the same number of turns are equal. They do not cross unless
        they leave [0, upper], where one of them is cut and the other is not.
        """
        low, lowest = np.maximum(self._span(self.beta_fast, u, np.floor), 0.0)
        highest, high = np.minimum(self._span(self.beta_slow, u, np.ceil), float(self.upper))
        i, three_roundings = np.arange(len(powers), dtype=np.float64), 1 + gamma(3, u) + OUTWARD
        apart = 0.0 if self.truncate else gamma(2, u) * lowest * (1 + OUTWARD)
        if lowest + apart < highest:
            upper_ramp = (i - low + apart) / (highest - low - apart) * three_roundings
            lower_ramp = (i - lowest - apart) / (high - lowest + apart)
            # Rounding keeps the order of i and the ramp's end.
            lower_ramp = np.where(lower_ramp >= 1, 1.0, lower_ramp / three_roundings)
            return 1 - np.clip(upper_ramp, 0, 1), 1 - np.clip(lower_ramp, 0, 1)
        same_end = self.beta_fast == self.beta_slow and lowest <= self.upper and highest >= 0
        if lowest <= highest or same_end:
            upper_ramp = np.where(i <= low, 0.0, 1.0)
            lower_ramp = np.where(i >= high + 2.0**-9 + gamma(2, u) * high, 1.0, 0.0)
        else:
            upper_ramp, lower_ramp = np.ones(len(i)), np.zeros(len(i))
        indeterminate = (low <= i) & (i <= lowest) & (u * lowest >= 0.001 * (1 - u) ** 2)
        return np.where(indeterminate, -np.inf, 1 - upper_ramp), np.where(indeterminate, np.inf, 1 - lower_ramp)

    def _span(self, turns: float, u: float, whole: Any) -> Span:
        """Return the interval of a kernel's end of the ramp, before it is cut."""
        with working_precision(PRECISION):
            certified = self.corr(turns)
            mid, rad = float(certified), float(certified.rad())
        error = (self._off(mid, u) + rad + 4 * ROUNDOFF * abs(mid)) * (1 + OUTWARD)
        lower, upper = (float(whole(x)) if self.truncate and np.isfinite(x) else x for x in (mid - error, mid + error))
        return lower, upper

    def _off(self, corr: float, u: float) -> float:
        """Return how far a kernel's r·ln(M/(2πρ)) / (2 ln base) may be off.

        Each logarithm has a relative error from its own computation, and an absolute error from the
        roundings of its argument. The numerator has six of these: of M, π, ρ, products and the
        quotient. The denominator has one, of the base.  Three more roundings are of the product,
        the quotient and the storing.
        """
        log_of_base = log(self.of.base)
        denominator_error = gamma(LOGARITHM, u) + gamma(1, u) / log_of_base
        if denominator_error >= 1:
            return np.inf
        numerator_error = gamma(LOGARITHM + 3, u) * abs(corr) + gamma(7, u) * self.of.channels / (2 * log_of_base)
        return (numerator_error + abs(corr) * denominator_error) / (1 - denominator_error) * (1 + gamma(3, u))

    def multiplier_moves(self, u: float) -> float:
        """Return how far a kernel's attention factor may be off. If it is a quotient of two
        numbers, each has a relative error, and the quotient takes one rounding more.
        """
        if self.attention_factor is not None:
            return float(abs(self.attention_factor) * u)
        if self.factor <= 1:
            return 0.0
        if not (self.mscale and self.mscale_all_dim):
            return self._sharpened_moves(1.0, u)
        numerator_error, denominator_error = (self._sharpened_moves(x, u) for x in (self.mscale, self.mscale_all_dim))
        numerator, denominator = (abs(0.1 * x * log(self.factor) + 1) for x in (self.mscale, self.mscale_all_dim))
        if denominator_error * (1 + OUTWARD) >= denominator:
            return np.inf
        quotient = (numerator + numerator_error) / (denominator - denominator_error)
        return float(
            numerator_error / (denominator - denominator_error)
            + numerator / denominator * denominator_error / (denominator - denominator_error)
            + gamma(1, u) * quotient
        ) * (1 + OUTWARD)

    def _sharpened_moves(self, weight: float, u: float) -> float:
        """Return how far a kernel's value of `_sharpened` may be off. ln s has an absolute error
        from the rounding of s, and a relative error from its own computation. Three more roundings
        are of 1/10, the weight and two products.
        """
        product = abs(0.1 * weight * log(self.factor)) * (1 + OUTWARD)
        error = gamma(LOGARITHM + 5, u) * product + gamma(2, u) * abs(0.1 * weight)
        return (error + gamma(1, u) * (1 + product + error) + 8 * ROUNDOFF * (1 + product)) * (1 + OUTWARD)


@dataclass(frozen=True)
class Llama3(Band):
    """Llama 3: keep = (M/λ − low) / (high − low), cut to [0, 1], with the wavelength λ = 2π/f."""

    low_freq_factor: Any
    high_freq_factor: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = (
            positive(self.low_freq_factor, "low_freq_factor"),
            positive(self.high_freq_factor, "high_freq_factor"),
        )
        if high <= low:
            raise ValueError(
                f"high_freq_factor={self.high_freq_factor}, but should be above low_freq_factor={self.low_freq_factor}."
            )
        self._store(low_freq_factor=low, high_freq_factor=high)

    def keeps(self, powers: list[arb]) -> list[arb]:
        """Return keep for each pair, computed from M/λ, the number of turns in M positions."""
        low, high = arb(self.low_freq_factor), arb(self.high_freq_factor)
        turns = [self.original_max_position_embeddings * f / (2 * arb.pi()) for f in powers]
        return [_cut((n - low) / (high - low)) for n in turns]

    def lines(self, powers: Array, moved: Array, u: float) -> tuple[Array, Array]:
        """Return bounds of a kernel's line (M/λ − low) / (high − low), before it is cut.

        M/λ has the relative error of f, and of `TURNS` = 8 roundings: of M, of 2π, of their
        quotients, and of M/low and M/high in comparisons. The rounded low is subtracted, and the
        result is divided by high − low. These take two roundings of parameters, one of a
        difference, and three of the line.
        """
        turns = self.original_max_position_embeddings * powers / (2 * pi) * (1 + 8 * ROUNDOFF)
        low, high = self.low_freq_factor, self.high_freq_factor
        turns_error = turns * np.expm1(moved + gamma(TURNS, u) + OUTWARD) + gamma(2, u) * low
        width_error = gamma(2, u) * (low + high) + OUTWARD * high
        if width_error >= high - low:
            return np.full(len(powers), -np.inf), np.full(len(powers), np.inf)
        bounds = np.array([(turns - low - turns_error), (turns - low + turns_error)])
        quotients = np.array([bounds / (high - low - width_error), bounds / (high - low + width_error)])
        quotients = quotients * (1 + gamma(3, u))
        three_roundings = (gamma(3, u) + OUTWARD) * np.abs(quotients).max(axis=(0, 1))
        return quotients.min(axis=(0, 1)) - three_roundings, quotients.max(axis=(0, 1)) + three_roundings


def _cut(x: arb) -> arb:
    """Return x cut to [0, 1]."""
    return x.max(arb(0)).min(arb(1))


def _integer(x: arb) -> arb:
    """Return the one integer that a ball contains.  Raises UndecidedError where it may contain
    another one.
    """
    integer = x.unique_fmpz()
    if integer is None:
        raise UndecidedError
    return arb(integer)


def _is_above(a: Any, b: Any) -> bool:
    """Return whether a > b.  Raises UndecidedError where the balls do not decide it."""
    if arb(a) > arb(b):
        return True
    if arb(a) <= arb(b):
        return False
    raise UndecidedError


def _flag(truncate: Any) -> bool:
    if not isinstance(truncate, bool | np.bool_):
        raise TypeError(f"truncate has type {type(truncate).__name__}, but should be a bool.")
    return bool(truncate)
