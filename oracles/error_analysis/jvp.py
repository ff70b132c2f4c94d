"""The directional derivative of attention (JVP) with its error.

p are the weights, o is the output, t = scale·(dq·kᵀ + q·dkᵀ) and t̄_i = Σ_j p_ij t_ij. The
derivative is

    dout = Σ_j p_j (t_j − t̄) v_j + Σ_j p_j dv_j = Σ_j p_j t_j v_j − t̄·o + Σ_j p_j dv_j.

U = (p + η)(exp(ρ + κ) − 1) is the error of a weight that may have underflowed. A kernel computes
t̃, within r of t. Its p̃·t̃ is within w = U(|t| + r) + p·r, and its t̄ is within Σ w. A kernel may
take either of the two forms. It adds up these sums in `grad_accumulate`; `accumulate_values` counts
for o alone. By the product rule its error is at most Σ w|v| + |t̄|·Σ U|v| + (Σ w)·Σ (p + U)|v| + Σ
U|dv|, plus what underflows.
"""

from dataclasses import dataclass
from functools import reduce
from types import EllipsisType
from typing import NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, expm1_upwards, gamma
from oracles.error_analysis.forward import rows_forward, without_sink
from oracles.error_analysis.grouped_heads import Shared
from oracles.error_analysis.logits import Logits, lost_by_slope, slope_of
from oracles.error_analysis.output_error import Rows, live
from oracles.error_analysis.own_arithmetic import KEY_TILE
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.scores import (
    AttentionProblem,
    Block,
    Operand,
    expm1,
    growth,
    levelled,
    over_keys,
    part,
    row_products,
    scores,
    sizes,
)
from oracles.error_analysis.visible_keys import Mask
from oracles.error_analysis.vjp import sink_weights


class Tangents(NamedTuple):
    """The tangents of q, k and v. Also the tangents of the bias and the sinks, or None, in the
    layout of `Tiled`.
    """

    q: Operand
    k: Operand
    v: Operand
    bias: Shared | None = None
    sink: Array | None = None

    def of_features(self, batch: tuple[int, ...] | EllipsisType) -> tuple[Shared | None, Array | None]:
        """Return the tangents of the bias and the sinks of one element of the batch, or of all."""
        bias = None if self.bias is None else self.bias.at(batch)
        return bias, None if self.sink is None else self.sink[batch]


class Moved(NamedTuple):
    """The derivatives dout and dlse with the bounds of their errors, before they are rounded. Both
    are 0 in fully masked rows.
    """

    dout: Array
    dout_error: Array
    dlse: Array
    dlse_error: Array
    dead: Mask | None


@dataclass
class _KeySums:
    """Sums over keys, for a tile of rows (queries). The module's docstring defines the letters.

    mean, mean_error            t̄ = Σ p·t, and its error
    largest                     the largest |t| + r
    mid, error                  Σ p·t·v + Σ p·dv, and its error without the error of t̄
    size, drift                 Σ p|v| and Σ U|v|
    readable, readable_tangent  Σ|v| and Σ|dv| over the keys that are visible to a row
    unknown                     how many unknown values and tangents of each column are visible to a
                                row
    """

    mean: Array
    mean_error: Array
    largest: Array
    mid: Array
    error: Array
    size: Array
    drift: Array
    readable: Array
    readable_tangent: Array
    unknown: Array


def rows_jvp(problem: AttentionProblem, tangents: Tangents, rows: slice) -> Moved:
    """Return the derivatives of a tile of rows (queries)."""
    forward, tile_shape = rows_forward(problem, rows), (*problem.q.shape[:-2], rows.stop - rows.start)
    row_sums, column_sums = (
        [np.zeros((*tile_shape, n)) for _ in range(number)] for n, number in ((1, 3), (problem.v.shape[-1], 7))
    )
    key_sums = _KeySums(*row_sums, *column_sums)
    for block in problem.blocks(rows):
        _add_block(problem, key_sums, forward, block, tangents)
    of_keys = key_sums.mean
    if problem.features is not None and problem.features.sink is not None:
        _add_sink(problem, key_sums, forward, rows, tangents.sink)
    _add_underflow(problem, key_sums, forward)
    tangent_mean = np.abs(key_sums.mean)
    error = (
        key_sums.error
        + tangent_mean * (key_sums.drift + forward.error)
        + key_sums.mean_error * (key_sums.size + key_sums.drift)
    )
    error = error + np.exp(_kappa(problem.terms)) * _absolute_error(problem, key_sums, forward)
    error = error * (1 + 8 * gamma(problem.n_k + 8, ROUNDOFF))
    dout = np.where(key_sums.unknown > 0, np.nan, key_sums.mid - key_sums.mean * forward.out)
    overflowing_rows, overflow = _overflows(problem, key_sums, forward, rows, tangents)
    dlse, dlse_error = _of_lse(problem, key_sums, forward, rows, of_keys)
    dlse_error, error = np.where(overflowing_rows, np.inf, dlse_error), np.where(overflow, np.inf, error)
    dout, error, dlse, dlse_error = (live(x, forward.dead) for x in (dout, error, dlse, dlse_error))
    return Moved(dout, error, dlse, dlse_error, forward.dead)


def _kappa(t: Terms) -> float:
    """Return κ, the part of the exponent of a weight's error that comes from products with the
    weight.
    """
    return t.grad_scores + t.normalise + t.weights + 2 * t.product + t.tangent_sum.positive


def _add_block(problem: AttentionProblem, key_sums: _KeySums, forward: Rows, block: Block, tangents: Tangents) -> None:
    """Add a tile of keys to the sums."""
    t, kappa, allowed, v = problem.terms, _kappa(problem.terms), block.allowed, block.v
    tile_tangents = Tangents(part(tangents.q, block.rows), part(tangents.k, block.keys), part(tangents.v, block.keys))
    logits = scores(problem, block)
    excess = growth(problem, block, logits, t.anew.slope)
    tangent, spread = _score_tangents(problem, block, tile_tangents)
    if problem.features is not None:
        bias_tangent = None if tangents.bias is None else tangents.bias.tile(block.rows, block.keys)
        tangent, spread = _logit_tangents(problem, block, logits, excess, bias_tangent, (tangent, spread))
    excess = levelled(problem, block.rows, excess)
    excess += forward.entry + forward.common
    np.subtract(logits.u, forward.lse, out=logits.u)
    weights = np.exp(logits.u, out=logits.u)
    tangent_size = np.abs(tangent, out=problem.tile(2, block))
    tangent_size += spread
    key_sums.largest = np.maximum(key_sums.largest, tangent_size.max(axis=-1, keepdims=True))
    growth_factor = expm1(excess) * float(np.exp(kappa)) + float(expm1_upwards(kappa))
    possible = weights + t.weight_underflow
    if allowed is not None:
        np.copyto(possible, 0.0, where=~allowed)
    errors = np.multiply(tangent_size, growth_factor, out=problem.tile(3, block))
    errors += spread * float(np.exp(kappa))
    errors *= possible
    drifts = np.multiply(possible, growth_factor, out=tangent_size)
    tangent *= weights
    _add_sums(problem, key_sums, block, tile_tangents.v, _Summands(tangent, weights, errors, drifts))
    key_sums.readable_tangent += over_keys(allowed, tile_tangents.v.reach)
    if v.rad is not None:
        key_sums.error += (np.abs(tangent) + errors) @ v.rad
    if tile_tangents.v.rad is not None:
        key_sums.error += (weights + drifts) @ tile_tangents.v.rad
    for x in (v, tile_tangents.v):
        if x.unknown is not None:
            key_sums.unknown += over_keys(allowed, x.unknown)


class _Summands(NamedTuple):
    """The entries of a tile: p·t and p, and their errors w and U (defined in the module's
    docstring).
    """

    tangent: Array
    weights: Array
    errors: Array
    drifts: Array


def _add_sums(problem: AttentionProblem, key_sums: _KeySums, block: Block, dv: Operand, of: _Summands) -> None:
    """Add the sums over the keys of a tile."""
    v, allowed = block.v, block.allowed
    key_sums.mid += of.tangent @ v.value + of.weights @ dv.value
    key_sums.mean += of.tangent.sum(axis=-1, keepdims=True)
    error_sum, drift_sum, weight_sum = (x.sum(axis=-1, keepdims=True) for x in (of.errors, of.drifts, of.weights))
    key_sums.mean_error += error_sum
    key_sums.error += (
        sizes(problem, of.errors, error_sum, v, allowed)[0] + sizes(problem, of.drifts, drift_sum, dv, allowed)[0]
    )
    key_sums.drift += sizes(problem, of.drifts, drift_sum, v, allowed)[0]
    value_sum, readable = sizes(problem, of.weights, weight_sum, v, allowed)
    key_sums.size += value_sum
    key_sums.readable += readable


def _add_sink(problem: AttentionProblem, key_sums: _KeySums, forward: Rows, rows: slice, tangent: Array | None) -> None:
    """Add the sink of each row to t̄."""
    weight, spread = sink_weights(problem, rows, forward)
    kappa = _kappa(problem.terms)
    sink_tangent = np.zeros(weight.shape) if tangent is None else tangent[..., rows, :]
    key_sums.largest = np.maximum(key_sums.largest, np.abs(sink_tangent))
    key_sums.mean = key_sums.mean + weight * sink_tangent
    weight_error = spread * float(np.exp(kappa)) + weight * float(expm1_upwards(kappa))
    key_sums.mean_error = key_sums.mean_error + weight_error * np.abs(sink_tangent)


def _add_underflow(problem: AttentionProblem, key_sums: _KeySums, forward: Rows) -> None:
    """Add to the error of t̄ the errors of underflow: each p·t is stored before it is added up, and
    their sum is stored.
    """
    t = problem.terms
    underflows = (1.0 + problem.n_k) * t.grad_underflow
    key_sums.mean_error = (
        key_sums.mean_error + problem.n_k * t.weight_underflow * key_sums.largest + underflows + t.sum_underflow
    )


def _absolute_error(problem: AttentionProblem, key_sums: _KeySums, forward: Rows) -> Array:
    """Return the error of dout from underflow, and the error of t̄·o from storing the output o."""
    t, mean_size = problem.terms, np.abs(key_sums.mean)
    absolute = t.weight_underflow * ((key_sums.largest + mean_size) * key_sums.readable + key_sums.readable_tangent)
    absolute = absolute + t.grad_underflow * key_sums.readable + t.sum_underflow * (1.0 + mean_size + key_sums.size)
    absolute = absolute + t.output_underflow  # Σ p·t·v and Σ p·dv may be stored apart
    absolute = absolute + 2 * t.input_underflow * (key_sums.largest + key_sums.mean_error)
    output_error = t.saved_output * (np.abs(forward.out) + forward.error) + t.saved_underflow
    return absolute + mean_size * output_error


def _overflows(
    problem: AttentionProblem, key_sums: _KeySums, forward: Rows, rows: slice, tangents: Tangents
) -> tuple[Mask, Mask]:
    """Return the rows in which a tangent may overflow, and the entries of dout that may be lost."""
    centred = 2 * (key_sums.largest + key_sums.mean_error)
    overflowing = forward.lost | ~(centred + 1.0 <= min(problem.ranges.grad_scores, problem.ranges.work))
    if problem.elementwise:
        overflowing = overflowing | _overflows_somewhere(problem, tangents, rows) | problem.rounded_beyond(tangents.v)
    largest_sum = (key_sums.size + key_sums.drift + 1.0) * (centred + 1.0) + key_sums.readable_tangent
    return overflowing, overflowing | ~(largest_sum <= problem.ranges.work)


def _of_lse(
    problem: AttentionProblem, key_sums: _KeySums, forward: Rows, rows: slice, of_keys: Array
) -> tuple[Array, Array]:
    """Return dlse and its error. `of_keys` is Σ p·t over keys alone."""
    dlse, dlse_error = key_sums.mean, key_sums.mean_error
    if (sinkless := without_sink(problem, rows, forward)) is not None:
        factor, relative, fully_masked = sinkless
        dlse, dlse_error = of_keys * factor, key_sums.mean_error * factor
        dlse_error = live(dlse_error * (1 + relative) + relative * np.abs(dlse), fully_masked)
        dlse = live(dlse, fully_masked)
    return dlse, (dlse_error + problem.terms.grad_scores * np.abs(dlse)) * (1 + 8 * gamma(problem.n_k + 8, ROUNDOFF))


def _overflows_somewhere(problem: AttentionProblem, tangents: Tangents, rows: slice) -> Mask:
    """Return the rows (…, rows, 1) in which the tangent of a logit may overflow. Masked keys count
    too, because a weight of 0 times ∞ is NaN.

    The tangent may overflow in a product, before or after the scale. It may overflow where a query,
    a key or a tangent of one is scaled, where the tangent of a bias is added, and where it is
    divided by a softcap. Before the scale only the range of the accumulators limits it, as for a
    score.
    """
    q, dq = part(problem.q, rows), part(tangents.q, rows)
    softcap = None if problem.features is None else problem.features.cap
    range_limit = problem.ranges.work / 2 * min(1.0, softcap or 1.0)
    operand_limit, product_limit = (
        range_limit / max(unscaled, abs(problem.scale))
        for unscaled in (1.0, problem.ranges.work / problem.ranges.products)
    )
    factors = (dq, problem.k), (q, tangents.k)
    of_rows = (x.reach.max(axis=-1, keepdims=True, initial=0.0) > operand_limit for x in (q, dq))
    of_keys = (x.reach.max(axis=(-2, -1), keepdims=True, initial=0.0) > operand_limit for x in (problem.k, tangents.k))
    overflowing: Mask = reduce(np.logical_or, (*of_rows, *of_keys))
    if tangents.bias is not None:
        for start in range(0, problem.n_k, KEY_TILE):
            bias_tangent = np.abs(tangents.bias.tile(rows, slice(start, min(start + KEY_TILE, problem.n_k))))
            overflowing = overflowing | (bias_tangent.max(axis=-1, keepdims=True, initial=0.0) > range_limit)
    if all((2 * x.length.max(initial=0.0) * y.length.max(initial=0.0) <= product_limit) for x, y in factors):
        return overflowing
    largest = np.zeros((*q.shape[:-1], 1))
    for start in range(0, problem.n_k, KEY_TILE):
        keys = slice(start, min(start + KEY_TILE, problem.n_k))
        of_dq, of_dk = (x.reach @ part(y, keys).reach.mT for x, y in factors)
        tangent_size = of_dq + of_dk
        largest = np.maximum(largest, tangent_size.max(axis=-1, keepdims=True, initial=0.0))
    return overflowing | ~(largest <= product_limit)


def _logit_tangents(
    problem: AttentionProblem, block: Block, u: Logits, exponents: Array, moves: Array | None, of: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Return the tangents of logits, and how far a kernel's may be from them, given the tangents of
    scores and their error. They are multiplied by the slope of the softcap, and the tangent of the
    bias is added, in the order of the features.
    """
    f, t, allowed, (tangent, spread) = problem.features, problem.terms, block.allowed, of
    assert f is not None
    for capping in (False, True) if f.after_bias else (True, False):
        if capping and f.cap is not None:
            h, slope_error = slope_of(u, f.cap, exponents, t)
            tangent_error = (
                slope_error * (np.abs(tangent) + spread) + t.grad_scores * np.abs(tangent) + lost_by_slope(t, f.cap)
            )
            tangent, spread = tangent * h, spread * h + tangent_error
            if u.blocked is not None:  # a tangent is not read there
                tangent, spread = (np.where(u.blocked, 0.0, x) for x in (tangent, spread))
        elif not capping and moves is not None:
            of_first_summand = t.tangent_dot * np.abs(moves) if problem.bias_first else 0.0
            spread = spread + t.biased * (np.abs(tangent) + np.abs(moves) + spread) + of_first_summand
            tangent = tangent + moves
    if allowed is not None:
        tangent, spread = (np.where(allowed, x, 0.0) for x in (tangent, spread))
    return tangent, spread


def _score_tangents(problem: AttentionProblem, block: Block, moved: Tangents) -> tuple[Array, Array]:
    """Return t = scale·(dq·kᵀ + q·dkᵀ), 0 at masked keys, and how far a kernel's t may be from it,
    entry by entry or as row maxima.

    Each of the two products underflows and is stored as a score is; so is their sum.
    """
    t, c, (q, k, allowed), (dq, dk) = (
        problem.terms,
        abs(problem.scale),
        (block.q, block.k, block.allowed),
        (moved.q, moved.k),
    )
    tangent = np.matmul(dq.raw, k.raw.mT, out=problem.tile(1, block))
    tangent += np.matmul(q.raw, dk.raw.mT, out=problem.tile(2, block))
    tangent *= problem.scale
    relative = (
        t.tangent_dot + t.product + t.scale_on_inputs + 2 * t.stored_scores
    )  # times c it may underflow: the products come between
    if not problem.elementwise:
        spread = c * (row_products(dq, k, allowed) + row_products(q, dk, allowed)) * relative + 2 * t.score_underflow
    else:
        spread = dq.reach @ k.reach.mT
        spread += q.reach @ dk.reach.mT
        spread *= c
        spread *= relative
        spread += 2 * t.score_underflow
        for a, b in ((dq, k), (q, dk)):
            if a.rad is not None:
                spread += c * (a.rad @ b.reach.mT)
            if b.rad is not None:
                spread += c * (a.reach @ b.rad.mT)
            if t.input_underflow:
                spread += t.input_underflow * (a.reach.sum(-1)[..., :, None] + b.reach.sum(-1)[..., None, :])
    if allowed is not None:
        np.copyto(tangent, 0.0, where=~allowed)
        if problem.elementwise:
            np.copyto(spread, 0.0, where=~allowed)
    return tangent, spread
