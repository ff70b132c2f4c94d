"""Bounds the error of δ = rowsum(g·o) = rowsum(p·dP) in the backward pass: how far a kernel's δ may
be from the oracle's.

g is the cotangent of the output o, p are the weights, dP = g·vᵀ and T = dP − δ. δ is one number for
each row (query), and it is off by at most Δ_i.  `oracles.error_analysis.output_error` and
`oracles.error_analysis.vjp` define the exponents τ, ω, a, ρ, κ and the number λ.

**A kernel computes rowsum(g·o).** δ then has the error of o, times g
(`oracles.error_analysis.output_error`). That error has three parts.

- The part that both sums of o share is Σ_j p_j(exp t_j − 1)(v_j − o). Times g it is Σ_j p_j(exp t_j
  − 1)T_j.
- The part that a weight has in the numerator alone is common to the columns of o: Σ_j p_j(A_j −
  1)v_j. Times g it is Σ_j p_j(A_j − 1)dP_j.
- The error of the denominator multiplies o. Times g it is that error times δ.

So with Θ = Σ_j p_j(exp τ_j − 1)|T_j|

    Δ ≤ (Θ + Σ_j p_j exp(τ_j)(exp(ω_j + a) − 1)|dP_j|)/(1 − λ) + |δ|·(the denominator's error)
        + Σ_c |g_c|·(the rest of the error of o_c, and its storage) + the error of the sum over c.

**A kernel computes rowsum(p·dP).** It is Σ_j p̃_j(dP_j + E_j). Here p̃_j = p_j exp(t_j + r) is the
kernel's weight, with |t_j| ≤ τ_j + κ and |r| ≤ ρ, and E_j is the error of dP_j. Because Σ p_j T_j =
0,

    Δ ≤ exp(ρ)·Σ_j p_j(exp(τ_j + κ) − 1)|T_j| + |δ|·|Σ p̃_j − 1| + Σ_j p̃_j E_j
        + the error of the sum over j.

The oracle computes δ from o. So a kernel of the second form differs from the oracle by at most the
sum of both bounds.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, expm1_upwards, gamma
from oracles.error_analysis.output_error import Rows, Unshared, live
from oracles.error_analysis.own_arithmetic import KEY_TILE
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.scores import AttentionProblem, Operand, part
from oracles.error_analysis.visible_keys import Mask


def delta_spread(problem: AttentionProblem, rows: slice, forward: Rows, g: Operand) -> Array:
    """Return Δ: how far a kernel's δ may be from the oracle's. It is ∞ where the row's δ may
    overflow.

    Both forms of δ are at most max_j (|g||v|ᵀ)_ij + Δ, because the output is a mean of values. |T|
    is at most twice that bound.  A dP − δ that overflows at a masked key spoils the row too,
    because a weight of 0 times ∞ is NaN. At masked keys dP, with its own error, may be .55 of the
    range, and δ a quarter.
    """
    turn_bounds = None if forward.unshared is None else _turns(problem, forward, g)
    spread = _delta_of_output(problem, forward, g, problem.terms, forward.unshared, turn_bounds)
    if turn_bounds is not None and forward.own_unshared is not None:
        of_weights = _delta_of_weights(problem, forward, g, turn_bounds) + _delta_of_output(
            problem, forward, g, problem.own, forward.own_unshared, turn_bounds
        )
        spread = of_weights if problem.delta == "weights" else np.maximum(spread, of_weights)
    if g.rad is not None:
        spread = spread + (g.rad * np.abs(forward.out)).sum(axis=-1, keepdims=True)
    lost_rows = forward.lost | (forward.error == np.inf).any(axis=-1, keepdims=True)
    spread = np.asarray(live(np.where(lost_rows, np.inf, spread), forward.dead))
    if not problem.elementwise:
        return spread
    largest_output = live((np.abs(forward.out) + forward.error).max(axis=-1, keepdims=True, initial=0.0), forward.dead)
    spread = np.where(largest_output <= problem.ranges.saved_output, spread, np.inf)
    longest = g.length.max(initial=0.0) * problem.v.length.max(initial=0.0)
    quarter_of_range = min(problem.ranges.work, problem.ranges.grad_weights) / 4
    if longest <= quarter_of_range and spread.max(initial=0.0) <= quarter_of_range:
        return spread
    all_keys = ((slice(start, min(start + KEY_TILE, problem.n_k)), None) for start in range(0, problem.n_k, KEY_TILE))
    visible, masked = (_farthest(problem, g, tiles) for tiles in (problem.key_tiles(rows), all_keys))
    masked = masked * (1 + problem.terms.grad_dot.positive + problem.terms.product)
    return np.where((visible + spread <= quarter_of_range) & (masked <= 2.2 * quarter_of_range), spread, np.inf)


def _farthest(problem: AttentionProblem, g: Operand, tiles: Iterable[tuple[slice, Mask | None]]) -> Array:
    """Return the largest entry of |g||v|ᵀ in each row, over the given tiles of keys."""
    largest = np.zeros((*g.shape[:-1], 1))
    for keys, allowed in tiles:
        products = g.reach @ part(problem.v, keys).reach.mT
        visible = True if allowed is None else allowed
        largest = np.maximum(largest, products.max(axis=-1, keepdims=True, initial=0.0, where=visible))
    return largest


class _Turns(NamedTuple):
    """Upper bounds of three numbers of each row, where T = dP − δ: `turned` of Σ p|T|, `moved` of Σ
    p(exp τ − 1)|T|, and `mean` of |δ|.
    """

    turned: Array
    moved: Array
    mean: Array


def _turns(problem: AttentionProblem, forward: Rows, g: Operand) -> _Turns:
    """Return bounds of Σ p|T|, Σ p(exp τ − 1)|T| and |δ|, from T = g·(v − c) − g·(o − c)."""
    of_offset = (g.reach * forward.distance).sum(axis=-1, keepdims=True)
    mean = np.abs((g.value * forward.out).sum(axis=-1, keepdims=True))
    size = forward.sums.weights.distance + np.abs(problem.centre)
    mean = mean + 8 * gamma(problem.n_k + g.shape[-1] + 8, ROUNDOFF) * (g.reach * size).sum(axis=-1, keepdims=True)
    if g.rad is not None:
        mean = mean + (g.rad * np.abs(forward.out)).sum(axis=-1, keepdims=True)
    return _Turns(
        forward.sums.weights.projection + of_offset,
        forward.sums.shared.projection + of_offset * forward.sums.shared.total,
        mean,
    )


def _delta_of_output(
    problem: AttentionProblem, forward: Rows, g: Operand, t: Terms, unshared: Unshared | None, turns: _Turns | None
) -> Array:
    """Return Δ of δ = rowsum(g·o) under the rounding terms t. `unshared` is the part of o's error
    that its two sums do not share, or None if that is not known.
    """
    unshared_error = forward.error
    shared_error = np.zeros(forward.lse.shape)
    if unshared is not None and turns is not None:
        turned, moved, delta_bound = turns
        shared_error = np.exp(forward.shared) * moved + expm1_upwards(forward.shared) * turned
        dp_sum, dp_error = _sizes(problem, forward, g)
        of_keys = np.exp(unshared.key) * dp_error + expm1_upwards(unshared.key) * dp_sum
        shared_error = (shared_error + np.exp(forward.shared) * of_keys) / forward.room + delta_bound * unshared.row
        unshared_error = unshared.column
    output_error = unshared_error + t.saved_output * (np.abs(forward.out) + forward.error) + t.saved_underflow
    output_error = output_error + t.grad_dot.positive * (np.abs(forward.out) + forward.error)
    if t.input_underflow:
        magnitudes = g.reach + np.abs(forward.out) + forward.error
        shared_error = shared_error + t.input_underflow * magnitudes.sum(axis=-1, keepdims=True)
    spread: Array = shared_error + (g.reach * output_error).sum(axis=-1, keepdims=True) + 2 * t.sum_underflow
    return spread * (1 + 8 * gamma(problem.n_k + 8, ROUNDOFF))


def _sizes(problem: AttentionProblem, forward: Rows, g: Operand) -> tuple[Array, Array]:
    """Return bounds of Σ p·exp(τ)|dP| and of Σ p·exp(τ)(exp ω − 1)|dP|, from dP = g·(v − c) + g·c.
    In the oracle itself ω is 0.
    """
    sums = forward.sums
    of_centre = (g.reach * np.abs(problem.centre)).sum(axis=-1, keepdims=True)
    size = sums.weights.projection + sums.shared.projection + of_centre * (1 + sums.shared.total)
    return size, sums.separate.projection + of_centre * sums.separate.total


def _delta_of_weights(problem: AttentionProblem, forward: Rows, g: Operand, turns: _Turns) -> Array:
    """Return Δ of δ = rowsum(p·dP)."""
    t, sums = problem.terms, forward.sums
    turned, moved, mean = turns
    entry, lift = forward.entry, np.exp(forward.common)
    reach = lift * np.exp(entry)
    of_weights = reach * moved + expm1_upwards(entry, lift) * turned
    too_much = reach * sums.shared.total + expm1_upwards(entry, lift) + np.expm1(forward.common)
    sizes = sums.weights.distance + sums.shared.distance + (1 + sums.shared.total) * np.abs(problem.centre)
    of_dot = (t.grad_dot.positive + t.product + t.grad_weights) * reach * (g.reach * sizes).sum(axis=-1, keepdims=True)
    spread = of_weights + too_much * mean + of_dot
    weighted = reach * (turned + moved) + (1 + too_much) * mean + of_dot
    spread = spread + t.delta_sum.terms * weighted + t.delta_sum.result * (mean + spread)
    of_operands = (g.reach + sizes).sum(axis=-1, keepdims=True) if t.input_underflow else 0.0
    underflow = (
        t.input_underflow * of_operands
        + t.weight_underflow * (g.reach * forward.readable).sum(axis=-1, keepdims=True)
        + problem.n_k * t.grad_underflow
    )
    return np.asarray(
        (spread + 4 * reach * underflow + 2 * t.sum_underflow) * (1 + 8 * gamma(problem.n_k + 8, ROUNDOFF))
    )
