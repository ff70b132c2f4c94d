"""The sets of outputs, log-sum-exps and weights of attention that a correct kernel may store, for
inputs that leave it few choices.

**Rows with one or two visible keys that count.** Let s_j be the logits of a row (a query), m their
maximum and x_j = s_j − m. A key with x_j ≤ −`DEAD` has no effect on any covered kernel:
exp(−`DEAD`) rounds to 0 in every format whose smallest number is at least 2⁻¹⁴⁹, and so does a
factor exp(m_old − m_new) that rescales the sums of such keys. With more than two other keys the set
is all numbers: this module says nothing about the row. Nor does it where the sum of all |v| may
overflow, because a kernel may add up keys that do not count before it reads one that does; nor of
an arithmetic with stored differences or parts, or with narrow accumulators.

**Weights.** A kernel computes exp(x_j) with a relative error of at most ε_j:

    ε_j = exp((6u + slope)·(|s_j| + |m|) + δ_j + δ_m) − 1 + ε                                     (1)

Here u is the unit roundoff between the products, `slope` and ε are the accuracy of the exponential,
and δ_j is the error of a score. ε is the exponential's error at 0 if s_j = m = 0 exactly, and the
reference cannot be the other score: all scores are 0, or the other one is more than 2^rescale_slack
below. The products that are not 0 alone are rounded, so with c of them δ_j ≤ γ_{c+5}·Σ|q·k| +
2u_scaled·Σ|q·k| + 2u_stored·|s_j|. Where every product is 0, each covered kernel computes the score
0 exactly, with every way to scale it.

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

**The log-sum-exp** m + log D is off by the errors of D in (3), by those of the logarithm, and by
roundings of the numbers |m|, |lse| and log D. Every key with the weight 0 leaves D as it is, so the
bound does not grow with the number of keys.                                                      (5)

**Softmax.** Given scores have no error δ, and a weight is the output for the value 1 of its own key
and 0 of the others. A kernel stores weights as in (2), and then the result.                      (6)
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array, gamma
from oracles.error_analysis.computation import rescaling_exp, rescalings, roundoff, slack
from oracles.formats import Arithmetic
from oracles.possible_results import NUDGE, Possible, hull, known, nearest

__all__ = [
    "DEAD",
    "Pairs",
    "Problem",
    "argument_of",
    "finish_of",
    "outputs_of",
    "possible_log_sum_exps",
    "possible_outputs",
    "possible_weights",
    "scores_of",
    "sum_error",
]

DEAD = 110.0
"""exp(−110) is less than half of the smallest number of binary32."""


class Problem(NamedTuple):
    """Attention of q (n_q, d), k (n_k, d) and v (n_k, d_v), of numbers that the format of the inputs
    holds. `visible` (n_q, n_k) marks the visible keys; None if all are visible.
    """

    q: Array
    k: Array
    v: Array
    scale: float
    visible: NDArray[np.bool_] | None = None


def possible_outputs(problem: Problem, a: Arithmetic) -> Possible:
    """Return the set of outputs of attention that a kernel in this arithmetic may store. Rows with
    more than two keys that count have the set of all numbers.
    """
    with np.errstate(all="ignore"):
        pairs = Pairs.of(*scores_of(problem, a), a)
        is_known = pairs.known[:, None] & _in_range(problem.v, a)
        return known(outputs_of(pairs, problem.v[pairs.keys], a), is_known, a.output, a)


def possible_log_sum_exps(problem: Problem, a: Arithmetic, unit: float = 1.0) -> Possible:
    """Return the set of log-sum-exps, divided by `unit`, that a kernel may store, with the errors of
    (5). A log-sum-exp in base 2 has the unit log 2.
    """
    with np.errstate(all="ignore"):
        pairs = Pairs.of(*scores_of(problem, a), a)
        lse, m = (pairs.scores - np.log(pairs.p))[:, 0], pairs.scores.max(-1)
        of_sum = (sum_error(pairs, a) + pairs.finish)[:, 0]
        error = of_sum + (a.log + slope_of(a) + NUDGE) * (np.abs(m) + np.abs(lse) + 1)
        target = a.saved_lse or a.elementwise
        ends = Possible((lse - error) / unit, (lse + error) / unit)
        return hull(ends, known(ends, pairs.known, target, a))


def possible_weights(scores: Array, a: Arithmetic) -> Possible:
    """Return the set of weights of a softmax of scores (n_q, n_k), −∞ where masked, that a kernel
    may store.
    """
    with np.errstate(all="ignore"):
        pairs = Pairs.of(scores, np.zeros_like(scores), a)
        of_pair = outputs_of(pairs, np.broadcast_to(np.eye(2), (len(scores), 2, 2)), a)
        rows = np.arange(len(scores))[:, None]
        whole = Possible(np.zeros(scores.shape), np.zeros(scores.shape))
        for end, found in zip(whole, of_pair, strict=True):
            end[rows, pairs.keys] = np.where(pairs.p > 0, found, 0.0)
        return known(whole, pairs.known[:, None], a.output, a)


def outputs_of(pairs: "Pairs", values: Array, a: Arithmetic) -> Possible:
    """Return the sets of outputs before they are stored, for the values of each pair."""
    exact = pairs.exact[:, None] & _added_exactly(np.where(pairs.p[..., None] > 0, values, 0.0), a)
    lower, upper = _bounds(pairs, values, a)
    mean = (pairs.p[..., None] * values).sum(1)
    lower, upper = (np.where(exact, mean, bound) for bound in (lower, upper))
    return Possible(lower - NUDGE * np.abs(lower), upper + NUDGE * np.abs(upper))


class Pairs(NamedTuple):
    """The one or two keys of each row that count, as arrays (row, key of the pair).

    keys      the places of the keys
    scores    their scores, or the maximum for the second of one key
    p         their exact weights; 0 for the second of one key
    factors   the smallest and the largest factor of (2)
    weights   ε of (1)
    later     ρ of (3)
    finish    (row, 1) κ of (3)
    known     (row,) whether no more than two keys count, and the arithmetic is covered
    exact     (row,) whether all weights are exact, as in (4)
    """

    keys: NDArray[np.intp]
    scores: Array
    p: Array
    factors: tuple[Array, Array]
    weights: Array
    later: Array
    finish: Array
    known: NDArray[np.bool_]
    exact: NDArray[np.bool_]

    @staticmethod
    def of(scores: Array, errors: Array, a: Arithmetic) -> "Pairs":
        """Return the keys that count in each row, with the sets of their weights, for scores (n_q,
        n_k) with bounds of their errors.
        """
        n_k = scores.shape[-1]
        highest = (scores - errors).max(-1, keepdims=True)
        counts = scores + errors > highest - DEAD
        number = counts.sum(-1)
        keys = np.argsort(~counts, axis=-1, kind="stable")[:, :2]
        s, delta, of_pair = (np.take_along_axis(x, keys, -1) for x in (scores, errors, counts))
        m = np.where(of_pair, s, -np.inf).max(-1, keepdims=True)
        s, delta = np.where(of_pair, s, m), np.where(of_pair, delta, 0.0)
        x = np.where(of_pair, s - m, -np.inf)
        e = np.exp(x)
        total = e.sum(-1, keepdims=True)
        lowest = np.where(of_pair, x, 0.0).min(-1, keepdims=True)
        is_first = (lowest == 0) | (-lowest > slack(a) * np.log(2) * (1 + 1e-6))
        zero = (s == 0) & (m == 0) & (delta == 0) & is_first
        argument = argument_of(a, s, m) + delta + np.where(s == m, delta, 0.0).max(-1, keepdims=True)
        weights = np.where(zero, a.exp.at_zero, np.expm1(argument) + a.exp.relative)
        later = np.expm1(argument) + _of_rescaling(a, n_k) + a.log * (1 + np.abs(m))
        exact = (zero | ~of_pair).all(-1) & (a.exp.at_zero == rescaling_exp(a).at_zero == 0)
        weights, later = (np.where(exact[:, None] | ~of_pair, 0.0, bound) for bound in (weights, later))
        finish = np.full(m.shape, finish_of(a, n_k))
        factors = _factors(e, x, weights, finish, a)
        is_known = (number >= 1) & (number <= 2) & _is_covered(a)
        return Pairs(keys, s, e / total, factors, weights, later, finish, is_known, exact)


def scores_of(problem: Problem, a: Arithmetic) -> tuple[Array, Array]:
    """Return scores, −∞ where masked, and bounds of their errors, δ of (1). Scores of zero products
    have no error.
    """
    q, k, _, scale, visible = problem
    scores, sizes = scale * (q @ k.T), abs(scale) * (np.abs(q) @ np.abs(k).T)
    products = (q != 0).astype(float) @ (k != 0).T.astype(float)
    u = max(a.accumulate, a.elementwise.unit_roundoff)
    errors = (products + 5) * u / (1 - (products + 5) * u) + a.product * 3 + 3 * roundoff(a.scale_on_inputs)
    bounds = errors * sizes + 3 * roundoff(a.scores) * np.abs(scores) + NUDGE * sizes
    return scores if visible is None else np.where(visible, scores, -np.inf), bounds


def argument_of(a: Arithmetic, s: Array, m: Array) -> Array:
    """Return the error of the argument of an exponential, and its slope."""
    return slope_of(a) * (np.abs(s) + np.abs(m))


def slope_of(a: Arithmetic) -> float:
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


def finish_of(a: Arithmetic, n_k: int) -> float:
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


def _bounds(pairs: Pairs, values: Array, a: Arithmetic) -> tuple[Array, Array]:
    """Return the smallest and the largest output of (3), before it is stored."""
    terms = (pairs.p[..., None] * values)[None] * np.stack(_rescaled(pairs, *pairs.factors))[..., None]
    sums = terms.min(0).sum(1), terms.max(0).sum(1)
    smallest, largest = _sums(pairs, a)
    candidates = np.stack([side / by for side in sums for by in (smallest, largest)])
    rest = pairs.finish * np.abs(terms).max(0).sum(1) / smallest
    return candidates.min(0) - rest, candidates.max(0) + rest


def _rescaled(pairs: Pairs, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest factors of weights after they are rescaled."""
    return np.maximum(low, 0.0) * np.maximum(1 - pairs.later, 0.0), high * (1 + pairs.later)


def _sums(pairs: Pairs, a: Arithmetic) -> tuple[Array, Array]:
    """Return the smallest and the largest sum of the weights of a row, divided by D."""
    factors = pairs.factors if a.stored_sum else (1 - pairs.weights, 1 + pairs.weights)
    low, high = ((pairs.p * factor).sum(-1, keepdims=True) for factor in _rescaled(pairs, *factors))
    return low, high


def sum_error(pairs: Pairs, a: Arithmetic) -> Array:
    """Return the exponent of the error of the sum of the weights of each row, as a column."""
    smallest, largest = _sums(pairs, a)
    return np.fmax(np.log(largest), -np.log(smallest))


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
