"""ALiBi: the slopes of heads, and the biases by distance. Each returned value comes with a radius:
the exact value lies in value ± radius.

Source: Press, Smith & Lewis, Train short, test long: attention with linear biases enables input
length extrapolation, 2022.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np
from flint import arb

from oracles import arrays
from oracles.arb_matrix import PRECISION, Bools, enclosed
from oracles.ball import ELEMENTARY, Ball, ball, exact, gamma, multiply, rounded
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.formats import Arithmetic
from oracles.judging import Balls, Evaluation, settle
from oracles.options import AnswerOptions, answer, takes

LARGEST_BIAS = 2**28
"""The largest number of entries of a bias."""
FARTHEST_OFFSET = 2**52
"""The largest offset: with at most 2²⁸ keys or queries, all distances are integers of float64."""
_MOST_HEADS = 2**16


@takes(AnswerOptions)
def alibi_slopes(
    num_heads: Any,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return the slope of each head. The result is an `Enclosure` (value ± radius).

    n is num_heads, and m is the largest power of two up to n. The first m slopes are 2^(−8h/m) for
    h = 1 … m. The other n − m slopes are 2^(−8h/(2m)) for h = 1, 3, 5, …. Where
    `conventions.alibi_slopes` is `geometric`, all slopes are 2^(−8h/n).

    Shapes: (num_heads,).
    Raises TypeError and ValueError unless num_heads is an integer from 1 to 2¹⁶.
    """
    arithmetic, conventions, method = answer(options)
    exponents = _exponents(arrays.natural(num_heads, "num_heads", 1, _MOST_HEADS), conventions)
    return _labelled(
        Evaluation(
            arithmetic, method, lambda: (_slopes(exponents, arithmetic),), lambda: _exactly(exponents), len(exponents)
        )
    )


@takes(AnswerOptions)
def alibi_bias(
    num_heads: Any,
    n_q: Any,
    n_k: Any,
    offset: Any = None,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return the bias −slope·|p − j| of each head, query and key. The result is an `Enclosure`
    (value ± radius).

    p = i + offset is the position of query i among the keys. By default the offset is 0, or n_k −
    n_q where `conventions.causal` is `bottom_right`. Where `conventions.alibi_reference` is `key`,
    the bias is slope·j.

    Shapes: (num_heads, n_q, n_k).
    Edge cases: 0 queries or keys are legal. On the diagonal p = j the bias is exactly 0.  The
    radius is ∞ where a distance is larger than the largest number of the arithmetic.
    Raises TypeError and ValueError unless sizes are natural numbers and give at most 2²⁸ entries,
    and for an offset beyond ±2⁵².
    """
    arithmetic, conventions, method = answer(options)
    exponents = _exponents(arrays.natural(num_heads, "num_heads", 1, _MOST_HEADS), conventions)
    queries, keys = arrays.natural(n_q, "n_q", most=LARGEST_BIAS), arrays.natural(n_k, "n_k", most=LARGEST_BIAS)
    if len(exponents) * queries * keys > LARGEST_BIAS:
        raise ValueError(
            f"num_heads × n_q × n_k = {len(exponents)} × {queries} × {keys}, "
            f"but should be at most {LARGEST_BIAS} entries."
        )
    if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int | np.integer)):
        raise TypeError(f"offset has type {type(offset).__name__}, but should be an int or None.")
    if offset is not None and abs(int(offset)) > FARTHEST_OFFSET:
        raise ValueError(f"offset={offset}, but should be within ±2**52.")
    default = keys - queries if conventions.causal == "bottom_right" else 0
    first_position = default if offset is None else int(offset)
    key_positions, query_positions = np.arange(keys), np.arange(queries)[:, None] + first_position
    multipliers = (
        -np.abs(query_positions - key_positions)
        if conventions.alibi_reference == "distance"
        else key_positions + 0 * query_positions
    )

    def product(slopes: Balls) -> Balls:
        by_head = Ball(slopes[0].mid[:, None, None], slopes[0].rad[:, None, None])
        result = multiply(by_head, exact(multipliers.astype(np.float64)))
        if arithmetic is None:
            return (result,)
        result = rounded(result, arithmetic.elementwise, times=2, flush=arithmetic.flush_to_zero)
        return (Ball(result.mid, np.where(np.abs(multipliers) <= arithmetic.elementwise.largest, result.rad, np.inf)),)

    return _labelled(
        Evaluation(
            arithmetic,
            method,
            lambda: product((_slopes(exponents, arithmetic),)),
            lambda: product(_exactly(exponents)),
            len(exponents) * queries * keys,
        )
    )


def _labelled(of: Evaluation) -> Enclosure:
    """Return the one result, with the format in which it is computed. `Enclosure` judges overflow
    by that format.
    """
    return replace(settle(of)[0], format=None if of.arithmetic is None else of.arithmetic.elementwise)


def _exponents(n: int, c: Conventions) -> list[Fraction]:
    """Return the binary logarithms of the n slopes."""
    if c.alibi_slopes == "geometric":
        return [Fraction(-8 * h, n) for h in range(1, n + 1)]
    m = 1 << n.bit_length() - 1
    return [Fraction(-8 * h, m) for h in range(1, m + 1)] + [Fraction(-8 * h, 2 * m) for h in range(1, 2 * (n - m), 2)]


def _slopes(exponents: list[Fraction], arithmetic: Arithmetic | None) -> Ball:
    """Return the slopes as a ball (value ± radius) in float64, rounded by the arithmetic if one is
    given.

    Code may compute slope h as a power 2^x, or as the first slope multiplied h times. The first
    slope is 2^(−8/m), computed with a relative error ε. ε consists of the error of exp and of two
    roundings of an exponent of at most 8. The h-th power is off by γ_h(ε), both as a product and as
    a power.
    """
    mid = np.array([2.0 ** float(x) for x in exponents])
    exact_powers = np.array([x.denominator == 1 for x in exponents])
    rad = np.where(exact_powers, 0.0, 16 * ELEMENTARY * mid)
    if arithmetic is not None:
        u, numbers = arithmetic.elementwise.unit_roundoff, np.arange(1, len(exponents) + 1)
        rad = rad + mid * np.array(
            [gamma(int(h), arithmetic.exp.relative + 8 * arithmetic.exp.per_unit + 16 * u) for h in numbers]
        )
        return rounded(ball(mid, rad), arithmetic.elementwise, flush=arithmetic.flush_to_zero)
    return ball(mid, rad)


def _exactly(exponents: list[Fraction]) -> Balls:
    """Return the slopes by ball arithmetic."""

    def evaluate() -> list[tuple[list[arb], Bools]]:
        return [
            ([arb(2) ** (arb(x.numerator) / x.denominator) for x in exponents], np.zeros(len(exponents), dtype=bool))
        ]

    return enclosed(evaluate, PRECISION)
