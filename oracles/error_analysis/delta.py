"""δ = rowsum(g·o) = rowsum(p·dP) of the backward pass, and how far a kernel's may be from the
oracle's.

**δ** is one number for each row, off by Δ_i.  As rowsum(g·o) it inherits the error of o
(`oracles.error_analysis.forward`), in which what both sums share is Σ_j p_j(exp t_j − 1)(v_j − o),
times g: Σ_j p_j(exp t_j − 1)T_j.  The error that a weight has in the numerator alone is common to
the columns of o, Σ_j p_j(A_j − 1)v_j, times g: Σ_j p_j(A_j − 1)dP_j; and the error of the
denominator, times o, times g, is one of δ.  So with Θ = Σ_j p_j(exp τ_j − 1)|T_j|

    Δ ≤ (Θ + Σ_j p_j exp(τ_j)(exp(ω_j + a) − 1)|dP_j|)/(1 − λ) + |δ|·(the denominator's error)
        + Σ_c |g_c|·(what is left of o_c's error, and its storage) + the error of the sum over c.

As rowsum(p·dP) it is Σ_j p_j exp(t_j + r)(dP_j + E_j), and as Σ p_j T_j = 0,

    Δ ≤ exp(ρ)·Σ_j p_j(exp(τ_j + κ) − 1)|T_j| + |δ|·|Σ p̃_j − 1| + Σ_j p̃_j E_j + the error of the
    sum over j.

The oracle takes δ from o; so a kernel of the second form differs from it by at most the sum of both
bounds.
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
    """Δ: how far a kernel's δ may be from the oracle's, ∞ where its row may overflow.

    Both forms of δ are at most max_j (|g||v|ᵀ)_ij + Δ, because the output is a mean of values, and
    |T| is at most twice that bound.  A dP − δ that overflows where it is masked spoils the row as
    well, for a weight of 0 times ∞ is NaN: there dP, with its own error, may be .55 of the range,
    and δ a quarter.
    """
    turns = None if forward.unshared is None else _turns(problem, forward, g)
    spread = _delta_of_output(problem, forward, g, problem.terms, forward.unshared, turns)
    if turns is not None and forward.own_unshared is not None:
        of_weights = _delta_of_weights(problem, forward, g, turns) + _delta_of_output(
            problem, forward, g, problem.own, forward.own_unshared, turns
        )
        spread = of_weights if problem.delta == "weights" else np.maximum(spread, of_weights)
    if g.rad is not None:
        spread = spread + (g.rad * np.abs(forward.out)).sum(axis=-1, keepdims=True)
    lost = forward.lost | (forward.error == np.inf).any(axis=-1, keepdims=True)
    spread = np.asarray(live(np.where(lost, np.inf, spread), forward.dead))
    if not problem.elementwise:
        return spread
    stored = live((np.abs(forward.out) + forward.error).max(axis=-1, keepdims=True, initial=0.0), forward.dead)
    spread = np.where(stored <= problem.ranges.saved_output, spread, np.inf)
    longest = g.length.max(initial=0.0) * problem.v.length.max(initial=0.0)
    most = min(problem.ranges.work, problem.ranges.grad_weights) / 4
    if longest <= most and spread.max(initial=0.0) <= most:
        return spread
    every = ((slice(first, min(first + KEY_TILE, problem.n_k)), None) for first in range(0, problem.n_k, KEY_TILE))
    visible, masked = (_farthest(problem, g, tiles) for tiles in (problem.key_tiles(rows), every))
    masked = masked * (1 + problem.terms.grad_dot.positive + problem.terms.product)
    return np.where((visible + spread <= most) & (masked <= 2.2 * most), spread, np.inf)


def _farthest(problem: AttentionProblem, g: Operand, tiles: Iterable[tuple[slice, Mask | None]]) -> Array:
    """The largest of |g||v|ᵀ in each row, among some tiles of keys."""
    found = np.zeros((*g.shape[:-1], 1))
    for keys, allowed in tiles:
        products = g.reach @ part(problem.v, keys).reach.swapaxes(-1, -2)
        where = True if allowed is None else allowed
        found = np.maximum(found, products.max(axis=-1, keepdims=True, initial=0.0, where=where))
    return found


class _Turns(NamedTuple):
    """Bounds of Σ p|T|, of Σ p(exp τ − 1)|T| and of |δ|."""

    turned: Array
    moved: Array
    mean: Array


def _turns(problem: AttentionProblem, forward: Rows, g: Operand) -> _Turns:
    """The bounds from T = g·(v − c) − g·(o − c)."""
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
    """Δ for δ = rowsum(g·o) under the terms t, where `unshared` is the part of o's error that its
    sums do not share, if that is known.
    """
    rest = forward.error
    found = np.zeros(forward.lse.shape)
    if unshared is not None and turns is not None:
        turned, moved, mean = turns
        found = np.exp(forward.shared) * moved + expm1_upwards(forward.shared) * turned
        size, sway = _sizes(problem, forward, g)
        of_keys = np.exp(unshared.key) * sway + expm1_upwards(unshared.key) * size
        found = (found + np.exp(forward.shared) * of_keys) / forward.room + mean * unshared.row
        rest = unshared.column
    saved = rest + t.saved_output * (np.abs(forward.out) + forward.error) + t.saved_underflow
    saved = saved + t.grad_dot.positive * (np.abs(forward.out) + forward.error)
    if t.input_underflow:
        found = found + t.input_underflow * (g.reach + np.abs(forward.out) + forward.error).sum(axis=-1, keepdims=True)
    spread: Array = found + (g.reach * saved).sum(axis=-1, keepdims=True) + 2 * t.sum_underflow
    return spread * (1 + 8 * gamma(problem.n_k + 8, ROUNDOFF))


def _sizes(problem: AttentionProblem, forward: Rows, g: Operand) -> tuple[Array, Array]:
    """Bounds of Σ p·exp(τ)|dP| and of Σ p·exp(τ)(exp ω − 1)|dP|, from dP = g·(v − c) + g·c; ω is
    nothing in the oracle itself.
    """
    sums = forward.sums
    of_centre = (g.reach * np.abs(problem.centre)).sum(axis=-1, keepdims=True)
    size = sums.weights.projection + sums.shared.projection + of_centre * (1 + sums.shared.total)
    return size, sums.separate.projection + of_centre * sums.separate.total


def _delta_of_weights(problem: AttentionProblem, forward: Rows, g: Operand, turns: _Turns) -> Array:
    """Δ for δ = rowsum(p·dP)."""
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
