"""The set of results that a correct kernel may store, for inputs that leave it few choices.

An error limit allows every rounding its worst case. In 16 bits that is a large part of the result.
Here each stored number is a set instead: [lower, upper] after rounding to its format. Where no
value within the error of the computation crosses a rounding boundary, the set is one number, and a
kernel that stores another number is wrong.

**Rows with one or two visible keys that count.** Let s_j be the logits of a row (a query), m their
maximum and x_j = s_j − m. A key with x_j ≤ −`DEAD` has no effect on any covered kernel:
exp(−`DEAD`) rounds to 0 in every format whose smallest number is at least 2⁻¹⁴⁹, and so does a
factor exp(m_old − m_new) that rescales the sums of such keys. With more than two other keys the set
is all numbers: this module says nothing about the row. Nor does it where the sum of all |v| may
overflow, because a kernel may add up keys that do not count before it reads one that does; nor of
an arithmetic with stored differences or parts, or with narrow accumulators.

**Weights.** A kernel computes exp(x_j) with a relative error of at most ε_j:

    ε_j = exp((6u + slope)·(|s_j| + |m|) + δ_j + δ_m) − 1 + ε                                     (1)

Here u is the unit roundoff between the products, `slope` and ε are the accuracy of the exponential
(ε is its error at 0 if s_j = m = 0 exactly), and δ_j is the error of a score. The products that are
not 0 alone are rounded, so with c of them δ_j ≤ γ_{c+5}·Σ|q·k| + 2u_scaled·Σ|q·k| +
2u_stored·|s_j|. Where every product is 0, each covered kernel computes the score 0 exactly, with
every way to scale it.

The kernel stores y·(1 ± ε) in the format of the weights, where ε is ε_j, and the error of the
divisor beside it. What y is depends on the kernel, and on what it read before:

    exp(x_j)       it subtracts m
    1              key j is the first; or the weight is divided by the sum so far, which is itself
    exp(x_j) / D   it divides by the sum of the row, D = Σ exp(x_j)
    exp(−x_l)      key j is the maximum, and the reference is still x_l, at most 2^rescale_slack below
    (not stored)   the product takes what was computed

So the factor between the weight that a kernel uses and exp(x_j), up to what it does to all parts of
a row later, lies between the smallest and the largest of (1 ± ε_j) and round(y·(1 ± ε_j)) / y.    (2)
Where every y is a power of two, each rounding gives y, as long as ε_j is below a quarter of a unit.

**Sums.** After a weight is stored, its part of a sum may be rescaled or merged. ρ_j bounds the
relative error of that: (1) again, for an exponential that rescales, and the error of the logarithm
of a log-sum-exp. The rest is roundings of the whole quotient, which κ = γ_{24+3N}(u) bounds: three
for each of N rescalings, which a kernel that keeps its output normalised has, and 24 for the
additions, the division, and the merges of two parts. So with p_j = exp(x_j) / D

    out = Σ p_j·v_j·(2)·(1 ± ρ_j) / Σ p_j·(1 ± ε_j)·(1 ± ρ_j) · (1 ± κ)                            (3)

**Exact rows.** If every visible key that counts has the score 0, exp(0) is 1, and v_a + v_b takes
fewer bits than the accumulators have, then every operation before the last is exact: weights are 1 or
1/2, sums are 1 or 2, and their logarithm is the same number wherever it is subtracted from itself. So
ε = ρ = κ = 0, and the result is the exact mean, rounded once.                                     (4)

**The gradient of v.** dv_j = Σ_i P_ij·g_i over the rows that count key j. A backward pass takes P
from the forward pass, or computes exp(s_ij − lse_i) again; lse is off by (1) for its own argument,
by the error of D, by that of the logarithm, and by that of its storage. So the error of P is

    π = ε_j + (1) + ε of the sum + κ + log·(1 + |lse|) + 2u_lse·|lse| + ε                          (5)

in place of the errors of (3). It may store P in the format of the weights, as in (2) with y = P. It
may store a partial sum in the format of the result after any row. For no more than two rows, each
order of the sum and each choice of what is stored gives one end of the set.                      (6)
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array, gamma
from oracles.error_analysis.computation import rescaling_exp, rescalings, roundoff, slack
from oracles.formats import Arithmetic, Format

__all__ = ["DEAD", "Possible", "nearest", "possible_outputs", "possible_value_gradients"]

DEAD = 110.0
"""exp(−110) is less than half of the smallest number of binary32."""

_NUDGE = 2.0**-44
"""Covers the roundings of this module's own float64, which are fewer than 100."""


class Possible(NamedTuple):
    """The smallest and the largest number that a correct kernel may return, for each entry."""

    lower: Array
    upper: Array

    @property
    def single(self) -> NDArray[np.bool_]:
        """Which entries have one possible result."""
        return np.asarray(self.lower == self.upper)

    def excludes(self, out: Array) -> NDArray[np.bool_]:
        """Return which entries of an output no correct kernel may return."""
        return ~((self.lower <= out) & (out <= self.upper))


def possible_outputs(q: Array, k: Array, v: Array, a: Arithmetic, scale: float | None = None) -> Possible:
    """Return the set of outputs of attention that a kernel in this arithmetic may store.

    q is (n_q, d), k is (n_k, d) and v is (n_k, d_v), of numbers that the format of the inputs
    holds; a scale of None is 1/√d. Rows with more than two keys that count have the set of all
    numbers.
    """
    with np.errstate(all="ignore"):
        pairs = _Pairs.of(q, k, a, q.shape[-1] ** -0.5 if scale is None else scale)
        values = v[pairs.keys]  # (row, key of the pair, column)
        exact = pairs.exact[:, None] & _added_exactly(np.where(pairs.p[..., None] > 0, values, 0.0), a)
        lower, upper = _bounds(pairs, values, a)
        mean = (pairs.p[..., None] * values).sum(1)
        lower, upper = (np.where(exact, mean, bound) for bound in (lower, upper))
        lower, upper = lower - _NUDGE * np.abs(lower), upper + _NUDGE * np.abs(upper)
        known = pairs.known[:, None] & np.isfinite(lower) & np.isfinite(upper) & _in_range(v, a)
        return Possible(
            np.where(known, nearest(lower, a.output), -np.inf), np.where(known, nearest(upper, a.output), np.inf)
        )


def possible_value_gradients(q: Array, k: Array, g: Array, a: Arithmetic, scale: float | None = None) -> Possible:
    """Return the set of gradients dv of attention that a kernel in this arithmetic may store.

    g is (n_q, d_v), the cotangent of the output, and the result is (n_k, d_v). Rows with a
    cotangent of 0 add nothing. Keys that count in more than two other rows have the set of all
    numbers, and all keys have it if another row has more than two keys that count.
    """
    with np.errstate(all="ignore"):
        q, g = q[g.any(-1)], g[g.any(-1)]
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        pairs = _Pairs.of(q, k, a, scale)
        low, high = _weights_of_gradients(pairs, q, k, a, scale)
        n_k, counts = len(k), pairs.p > 0
        number = np.bincount(pairs.keys[counts], minlength=n_k)
        lower, upper = np.zeros((n_k, g.shape[-1])), np.zeros((n_k, g.shape[-1]))
        for row, place in np.argwhere(counts):
            key, terms = pairs.keys[row, place], np.stack([low[row, place] * g[row], high[row, place] * g[row]])
            lower[key], upper[key] = _added(lower[key], upper[key], terms, a)
        known = ((number <= 2) & pairs.known.all())[:, None] & np.isfinite(lower) & np.isfinite(upper)
        return Possible(
            np.where(known, nearest(lower, a.output), -np.inf), np.where(known, nearest(upper, a.output), np.inf)
        )


def _weights_of_gradients(pairs: "_Pairs", q: Array, k: Array, a: Arithmetic, scale: float) -> tuple[Array, Array]:
    """Return the smallest and the largest weight P of each pair, with the errors of (5)."""
    scores, _ = _scores(q, k, a, scale)
    s = np.take_along_axis(scores, pairs.keys, -1)
    lse = s - np.log(pairs.p)
    lse = np.abs(np.where(np.isfinite(lse), lse, 0.0)).max(-1, keepdims=True)
    of_sum = pairs.weights.max(-1, keepdims=True) + pairs.later.max(-1, keepdims=True)
    argument = _argument(a, s, lse) + a.log * (1 + lse) + 2 * roundoff(a.saved_lse) * lse + of_sum
    error = pairs.weights + np.expm1(argument + _finish(a, len(k)) + pairs.weights) + a.exp.relative
    low, high = np.maximum(1 - error, 0.0), 1 + error
    for stored in (a.weights, a.saved_weights):
        if stored is not None:
            ends = [nearest(pairs.p * factor, stored) / pairs.p for factor in (low, high)]
            low, high = np.fmin(low, ends[0]), np.fmax(high, ends[1])
    return pairs.p * low, pairs.p * high


def _added(lower: Array, upper: Array, terms: Array, a: Arithmetic) -> tuple[Array, Array]:
    """Return the ends of (6) after one more term: of sums that are stored before it, or not."""
    rest = 1 + gamma(4, max(a.grad_accumulate, a.elementwise.unit_roundoff)) + _NUDGE
    low, high = terms.min(0), terms.max(0)
    if a.grad_block is not None:
        lower, upper = np.minimum(lower, nearest(lower, a.output)), np.maximum(upper, nearest(upper, a.output))
        low, high = np.minimum(low, nearest(low, a.output)), np.maximum(high, nearest(high, a.output))
    size = (rest - 1) * (np.maximum(np.abs(lower), np.abs(upper)) + np.maximum(np.abs(low), np.abs(high)))
    return lower + low - size, upper + high + size


class _Pairs(NamedTuple):
    """The one or two keys of each row that count, as arrays (row, key of the pair).

    keys      the places of the keys
    p         their exact weights; 0 for the second of one key
    factors   the smallest and the largest factor of (2)
    weights   ε of (1)
    later     ρ of (3)
    finish    (row, 1) κ of (3)
    known     (row,) whether no more than two keys count, and the arithmetic is covered
    exact     (row,) whether all weights are exact, as in (4)
    """

    keys: NDArray[np.intp]
    p: Array
    factors: tuple[Array, Array]
    weights: Array
    later: Array
    finish: Array
    known: NDArray[np.bool_]
    exact: NDArray[np.bool_]

    @staticmethod
    def of(q: Array, k: Array, a: Arithmetic, scale: float) -> "_Pairs":
        """Return the keys that count in each row, with the sets of their weights."""
        scores, errors = _scores(q, k, a, scale)
        highest = (scores - errors).max(-1, keepdims=True)
        counts = scores + errors > highest - DEAD
        number = counts.sum(-1)
        keys = np.argsort(~counts, axis=-1, kind="stable")[:, :2]
        s, delta, of_pair = (np.take_along_axis(x, keys, -1) for x in (scores, errors, counts))
        m = np.where(of_pair, s, -np.inf).max(-1, keepdims=True)
        x = np.where(of_pair, s - m, -np.inf)
        e = np.exp(x)
        total = e.sum(-1, keepdims=True)
        zero = (s == 0) & (m == 0) & (delta == 0)
        argument = _argument(a, s, m) + delta + np.where(s == m, delta, 0.0).max(-1, keepdims=True)
        weights = np.where(zero, a.exp.at_zero, np.expm1(argument) + a.exp.relative)
        later = np.expm1(argument) + _of_rescaling(a, len(k)) + a.log * (1 + np.abs(m))
        exact = (zero | ~of_pair).all(-1) & (a.exp.at_zero == rescaling_exp(a).at_zero == 0)
        weights, later = (np.where(exact[:, None] | ~of_pair, 0.0, bound) for bound in (weights, later))
        finish = np.full((len(q), 1), _finish(a, len(k)))
        factors = _factors(e, x, weights, finish, a)
        return _Pairs(keys, e / total, factors, weights, later, finish, (number <= 2) & _is_covered(a), exact)


def _scores(q: Array, k: Array, a: Arithmetic, scale: float) -> tuple[Array, Array]:
    """Return scores and bounds of their errors, δ of (1). Scores of zero products have no error."""
    scores, sizes = scale * (q @ k.T), abs(scale) * (np.abs(q) @ np.abs(k).T)
    products = (q != 0).astype(float) @ (k != 0).T.astype(float)
    u = max(a.accumulate, a.elementwise.unit_roundoff)
    errors = (products + 5) * u / (1 - (products + 5) * u) + a.product * 3 + 3 * roundoff(a.scale_on_inputs)
    return scores, errors * sizes + 3 * roundoff(a.scores) * np.abs(scores) + _NUDGE * sizes


def _argument(a: Arithmetic, s: Array, m: Array) -> Array:
    """Return the error of the argument of an exponential, and its slope."""
    return np.asarray(_slope(a) * (np.abs(s) + np.abs(m)))


def _slope(a: Arithmetic) -> float:
    """Return the relative error of an exponential for each unit of its argument."""
    return 6 * a.elementwise.unit_roundoff + max(a.exp.per_unit, rescaling_exp(a).per_unit)


def _of_rescaling(a: Arithmetic, n_k: int) -> float:
    """Return the relative error of the exponentials that rescale a part of a sum."""
    each = rescaling_exp(a).at_zero
    every = (each + a.elementwise.unit_roundoff if each else 0.0) * (rescalings(a, n_k) + 1)
    return rescaling_exp(a).relative + every


def _is_covered(a: Arithmetic) -> bool:
    """Return whether this module knows all that the arithmetic stores."""
    return a.stored_differences is a.stored_parts is a.accumulate_scores is a.accumulate_values is None


def _finish(a: Arithmetic, n_k: int) -> float:
    """Return κ of (3)."""
    return gamma(24 + 3 * rescalings(a, n_k), max(a.accumulate, a.elementwise.unit_roundoff))


def _factors(e: Array, x: Array, errors: Array, finish: Array, a: Arithmetic) -> tuple[Array, Array]:
    """Return the smallest and the largest factor of (2) for each key."""
    lower, upper = 1 - errors, 1 + errors
    if a.weights is None:
        return lower, upper
    other = np.where(np.isfinite(x), x, 0.0).min(-1, keepdims=True)
    lazy = np.where((x == 0) & (-other <= slack(a) * np.log(2) * (1 + 1e-6)), np.exp(-other), 1.0)
    divided = 2 * errors.max(-1, keepdims=True) + finish
    divided = divided + np.where(divided > 0, roundoff(a.weights) * a.stored_sum, 0.0)
    for y, error in ((e, errors), (lazy, errors), (np.ones_like(e), divided), (e / e.sum(-1, keepdims=True), divided)):
        low, high = (nearest(y * factor, a.weights) / y for factor in (1 - error, 1 + error))
        if a.flush_to_zero:
            low = np.where(y * (1 - error) < 2 * a.weights.smallest_normal, 0.0, low)
        lower, upper = np.fmin(lower, low), np.fmax(upper, high)
    return lower, upper


def _bounds(pairs: _Pairs, values: Array, a: Arithmetic) -> tuple[Array, Array]:
    """Return the smallest and the largest output of (3), before it is stored."""
    less = np.maximum(1 - pairs.later, 0.0)
    low, high = np.maximum(pairs.factors[0], 0.0) * less, pairs.factors[1] * (1 + pairs.later)
    terms = (pairs.p[..., None] * values)[None] * np.stack([low, high])[..., None]
    sums = terms.min(0).sum(1), terms.max(0).sum(1)
    if not a.stored_sum:
        low, high = np.maximum(1 - pairs.weights, 0.0) * less, (1 + pairs.weights) * (1 + pairs.later)
    smallest, largest = ((pairs.p * factor).sum(-1, keepdims=True) for factor in (low, high))
    candidates = np.stack([side / by for side in sums for by in (smallest, largest)])
    rest = pairs.finish * np.abs(terms).max(0).sum(1) / smallest
    return candidates.min(0) - rest, candidates.max(0) + rest


def _in_range(v: Array, a: Arithmetic) -> NDArray[np.bool_]:
    """Return whether no sum over keys overflows, also while a reference is too low, for each
    column."""
    largest = np.maximum(np.abs(v), 1.0).sum(0) * 2.0 ** slack(a)
    return np.asarray(4 * largest <= a.elementwise.largest)


def _added_exactly(values: Array, a: Arithmetic) -> NDArray[np.bool_]:
    """Return whether the accumulators hold the sum of a pair of values exactly, and of its halves:
    the sum of their sizes is at most 1/(4u) of the lowest bit of both.
    """
    lowest = np.where(values == 0, np.inf, _lowest_bit(values)).min(1)
    return np.asarray(np.abs(values).sum(1) * (4 * a.accumulate) <= lowest)


def _lowest_bit(x: Array) -> Array:
    """Return the lowest bit of each number that is set."""
    mantissa, exponent = np.frexp(np.abs(x))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    return np.asarray(np.ldexp((whole & -whole).astype(float), exponent - 53))


def nearest(x: Array, target: Format) -> Array:
    """Return the nearest numbers of a format, ties to even; ±∞ above its largest number."""
    spacing: Any = np.maximum(np.ldexp(2 * target.unit_roundoff, np.frexp(x)[1] - 1), target.smallest_subnormal)
    y = np.where(np.isfinite(x), np.rint(x / spacing) * spacing, x)
    return np.where(np.abs(y) > target.largest, np.copysign(np.inf, y), y)
