"""The directional derivative of attention with its error.

With t = scale·(dq·kᵀ + q·dkᵀ), t̄_i = Σ_j p_ij t_ij and U = (p + η)(exp(ρ + κ) − 1) the error of a
weight that may have underflowed:

    dout = Σ_j p_j (t_j − t̄) v_j + Σ_j p_j dv_j = Σ_j p_j t_j v_j − t̄·o + Σ_j p_j dv_j.

A kernel's t̃ is within r of t, its p̃·t̃ within w = U(|t| + r) + p·r, its t̄ within Σ w; so by the
product rule, whichever of the two forms it takes, its error is at most Σ w|v| + |t̄|·Σ U|v| + (Σ
w)·Σ (p + U)|v| + Σ U|dv|, plus what underflows.
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
    """The tangents of q, k and v, and of the bias and the sinks, or None; laid out as in `Tiled`."""

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
    """dout and dlse with the bounds of their errors, before they are rounded; both are 0 in dead
    rows.
    """

    dout: Array
    dout_error: Array
    dlse: Array
    dlse_error: Array
    dead: Mask | None


@dataclass
class _Found:
    """Sums over keys, for a tile of rows.

    mean, mean_error    t̄ = Σ p·t, and its error
    largest             the largest |t| + r
    mid, error          Σ p·t·v + Σ p·dv, and its error without the error of t̄
    size, drift         Σ p|v| and Σ U|v|
    readable, readable_tangent   Σ|v| and Σ|dv| over the keys that a row may read
    unknown             how many unknown values and tangents of each column a row may read
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
    """Return the derivatives of a tile of rows."""
    forward, head = rows_forward(problem, rows), (*problem.q.shape[:-2], rows.stop - rows.start)
    narrow, wide = ([np.zeros((*head, n)) for _ in range(number)] for n, number in ((1, 3), (problem.v.shape[-1], 7)))
    found = _Found(*narrow, *wide)
    for block in problem.blocks(rows):
        _add_block(problem, found, forward, block, tangents)
    of_keys = found.mean
    if problem.features is not None and problem.features.sink is not None:
        _add_sink(problem, found, forward, rows, tangents.sink)
    _add_underflow(problem, found, forward)
    mean = np.abs(found.mean)
    error = found.error + mean * (found.drift + forward.error) + found.mean_error * (found.size + found.drift)
    error = error + np.exp(_kappa(problem.terms)) * _absolute_error(problem, found, forward)
    error = error * (1 + 8 * gamma(problem.n_k + 8, ROUNDOFF))
    dout = np.where(found.unknown > 0, np.nan, found.mid - found.mean * forward.out)
    lost, overflow = _overflows(problem, found, forward, rows, tangents)
    dlse, dlse_error = _of_lse(problem, found, forward, rows, of_keys)
    dlse_error, error = np.where(lost, np.inf, dlse_error), np.where(overflow, np.inf, error)
    dout, error, dlse, dlse_error = (live(x, forward.dead) for x in (dout, error, dlse, dlse_error))
    return Moved(dout, error, dlse, dlse_error, forward.dead)


def _kappa(t: Terms) -> float:
    """κ: what products with a weight add to its exponent."""
    return t.grad_scores + t.normalise + t.weights + 2 * t.product + t.tangent_sum.positive


def _add_block(problem: AttentionProblem, found: _Found, forward: Rows, block: Block, tangents: Tangents) -> None:
    """Add a tile of keys."""
    t, kappa, allowed, v = problem.terms, _kappa(problem.terms), block.allowed, block.v
    moved = Tangents(part(tangents.q, block.rows), part(tangents.k, block.keys), part(tangents.v, block.keys))
    logits = scores(problem, block)
    excess = growth(problem, block, logits, t.anew.slope)
    tangent, spread = _score_tangents(problem, block, moved)
    if problem.features is not None:
        moves = None if tangents.bias is None else tangents.bias.tile(block.rows, block.keys)
        tangent, spread = _logit_tangents(problem, block, logits, excess, moves, (tangent, spread))
    excess = levelled(problem, block.rows, excess)
    excess += forward.entry + forward.common
    np.subtract(logits.u, forward.lse, out=logits.u)
    weights = np.exp(logits.u, out=logits.u)
    reach = np.abs(tangent, out=problem.tile(2, block))
    reach += spread
    found.largest = np.maximum(found.largest, reach.max(axis=-1, keepdims=True))
    lift = expm1(excess) * float(np.exp(kappa)) + float(expm1_upwards(kappa))
    possible = weights + t.weight_underflow
    if allowed is not None:
        np.copyto(possible, 0.0, where=~allowed)
    errors = np.multiply(reach, lift, out=problem.tile(3, block))
    errors += spread * float(np.exp(kappa))
    errors *= possible
    drifts = np.multiply(possible, lift, out=reach)
    tangent *= weights
    _add_sums(problem, found, block, moved.v, _Summands(tangent, weights, errors, drifts))
    found.readable_tangent += over_keys(allowed, moved.v.reach)
    if v.rad is not None:
        found.error += (np.abs(tangent) + errors) @ v.rad
    if moved.v.rad is not None:
        found.error += (weights + drifts) @ moved.v.rad
    for x in (v, moved.v):
        if x.unknown is not None:
            found.unknown += over_keys(allowed, x.unknown)


class _Summands(NamedTuple):
    """The entries of a tile: p·t, p, and their errors w and U."""

    tangent: Array
    weights: Array
    errors: Array
    drifts: Array


def _add_sums(problem: AttentionProblem, found: _Found, block: Block, dv: Operand, of: _Summands) -> None:
    """Add the sums over the keys of a tile."""
    v, allowed = block.v, block.allowed
    found.mid += of.tangent @ v.value + of.weights @ dv.value
    found.mean += of.tangent.sum(axis=-1, keepdims=True)
    wrong, drifting, total = (x.sum(axis=-1, keepdims=True) for x in (of.errors, of.drifts, of.weights))
    found.mean_error += wrong
    found.error += (
        sizes(problem, of.errors, wrong, v.reach, allowed)[0]
        + sizes(problem, of.drifts, drifting, dv.reach, allowed)[0]
    )
    found.drift += sizes(problem, of.drifts, drifting, v.reach, allowed)[0]
    size, readable = sizes(problem, of.weights, total, v.reach, allowed)
    found.size += size
    found.readable += readable


def _add_sink(problem: AttentionProblem, found: _Found, forward: Rows, rows: slice, tangent: Array | None) -> None:
    """Add the sink of each row to t̄."""
    weight, spread = sink_weights(problem, rows, forward)
    kappa = _kappa(problem.terms)
    moves = np.zeros(weight.shape) if tangent is None else tangent[..., rows, :]
    found.largest = np.maximum(found.largest, np.abs(moves))
    found.mean = found.mean + weight * moves
    off = spread * float(np.exp(kappa)) + weight * float(expm1_upwards(kappa))
    found.mean_error = found.mean_error + off * np.abs(moves)


def _add_underflow(problem: AttentionProblem, found: _Found, forward: Rows) -> None:
    """Add to the error of t̄ what underflows: each p·t is stored before it is added up, and their sum is stored."""
    t = problem.terms
    stored = (1.0 + problem.n_k) * t.grad_underflow
    found.mean_error = found.mean_error + problem.n_k * t.weight_underflow * found.largest + stored + t.sum_underflow


def _absolute_error(problem: AttentionProblem, found: _Found, forward: Rows) -> Array:
    """What underflows in dout, and what storing the output costs t̄·o."""
    t, mean = problem.terms, np.abs(found.mean)
    absolute = t.weight_underflow * ((found.largest + mean) * found.readable + found.readable_tangent)
    absolute = absolute + t.grad_underflow * found.readable + t.sum_underflow * (1.0 + mean + found.size)
    absolute = absolute + t.output_underflow  # Σ p·t·v and Σ p·dv may be stored apart
    absolute = absolute + 2 * t.input_underflow * (found.largest + found.mean_error)
    stored = t.saved_output * (np.abs(forward.out) + forward.error) + t.saved_underflow
    return np.asarray(absolute + mean * stored)


def _overflows(
    problem: AttentionProblem, found: _Found, forward: Rows, rows: slice, tangents: Tangents
) -> tuple[Mask, Mask]:
    """In which rows a tangent may overflow, and which entries of dout may be lost."""
    centred = 2 * (found.largest + found.mean_error)
    lost = forward.lost | ~(centred + 1.0 <= min(problem.ranges.grad_scores, problem.ranges.work))
    if problem.elementwise:
        lost = lost | _overflows_somewhere(problem, tangents, rows) | problem.rounded_beyond(tangents.v)
    sums = (found.size + found.drift + 1.0) * (centred + 1.0) + found.readable_tangent
    return lost, lost | ~(sums <= problem.ranges.work)


def _of_lse(
    problem: AttentionProblem, found: _Found, forward: Rows, rows: slice, of_keys: Array
) -> tuple[Array, Array]:
    """dlse and its error; `of_keys` is Σ p·t over keys alone."""
    dlse, error = found.mean, found.mean_error
    if (alone := without_sink(problem, rows, forward)) is not None:
        factor, relative, dead = alone
        dlse, error = of_keys * factor, found.mean_error * factor
        error = live(error * (1 + relative) + relative * np.abs(dlse), dead)
        dlse = live(dlse, dead)
    return dlse, (error + problem.terms.grad_scores * np.abs(dlse)) * (1 + 8 * gamma(problem.n_k + 8, ROUNDOFF))


def _overflows_somewhere(problem: AttentionProblem, tangents: Tangents, rows: slice) -> Mask:
    """In which rows (…, rows, 1) the tangent of a logit may overflow, visible or masked: a weight
    of 0 times ∞ is NaN.

    It may overflow in a product, before or after the scale; where a query, a key or a tangent of
    either is scaled; where the tangent of a bias is added; and where it is divided by a softcap.
    Before the scale only the accumulators limit it, as for a score.
    """
    q, dq = part(problem.q, rows), part(tangents.q, rows)
    cap = None if problem.features is None else problem.features.cap
    work = problem.ranges.work / 2 * min(1.0, cap or 1.0)
    most, fits = (
        work / max(unscaled, abs(problem.scale)) for unscaled in (1.0, problem.ranges.work / problem.ranges.products)
    )
    pairs = (dq, problem.k), (q, tangents.k)
    of_rows = (x.reach.max(axis=-1, keepdims=True, initial=0.0) > most for x in (q, dq))
    of_keys = (x.reach.max(axis=(-2, -1), keepdims=True, initial=0.0) > most for x in (problem.k, tangents.k))
    lost: Mask = reduce(np.logical_or, (*of_rows, *of_keys))
    if tangents.bias is not None:
        for first in range(0, problem.n_k, KEY_TILE):
            moves = np.abs(tangents.bias.tile(rows, slice(first, min(first + KEY_TILE, problem.n_k))))
            lost = lost | (moves.max(axis=-1, keepdims=True, initial=0.0) > work)
    if all((2 * x.length.max(initial=0.0) * y.length.max(initial=0.0) <= fits) for x, y in pairs):
        return lost
    found = np.zeros((*q.shape[:-1], 1))
    for first in range(0, problem.n_k, KEY_TILE):
        keys = slice(first, min(first + KEY_TILE, problem.n_k))
        of_dq, of_dk = (x.reach @ part(y, keys).reach.swapaxes(-1, -2) for x, y in pairs)
        size = of_dq + of_dk
        found = np.maximum(found, size.max(axis=-1, keepdims=True, initial=0.0))
    return lost | ~(found <= fits)


def _logit_tangents(
    problem: AttentionProblem, block: Block, u: Logits, exponents: Array, moves: Array | None, of: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The tangents of logits, given the tangents of scores, and how far a kernel's may be from
    them. The slope of the softcap multiplies and the tangent of the bias is added, in the features'
    order.
    """
    f, t, allowed, (tangent, spread) = problem.features, problem.terms, block.allowed, of
    assert f is not None
    for capping in (False, True) if f.after_bias else (True, False):
        if capping and f.cap is not None:
            h, off = slope_of(u, f.cap, exponents, t)
            lost = off * (np.abs(tangent) + spread) + t.grad_scores * np.abs(tangent) + lost_by_slope(t, f.cap)
            tangent, spread = tangent * h, spread * h + lost
            if u.blocked is not None:  # a tangent is not read there
                tangent, spread = (np.where(u.blocked, 0.0, x) for x in (tangent, spread))
        elif not capping and moves is not None:
            first = t.tangent_dot * np.abs(moves) if problem.bias_first else 0.0
            spread = spread + t.biased * (np.abs(tangent) + np.abs(moves) + spread) + first
            tangent = tangent + moves
    if allowed is not None:
        tangent, spread = (np.where(allowed, x, 0.0) for x in (tangent, spread))
    return tangent, spread


def _score_tangents(problem: AttentionProblem, block: Block, moved: Tangents) -> tuple[Array, Array]:
    """t = scale·(dq·kᵀ + q·dkᵀ), 0 where masked, and how far a kernel's t may be from it, entry by
    entry or as row maxima.

    Each product underflows and is stored as a score is; so is their sum.
    """
    t, c, (q, k, allowed), (dq, dk) = (
        problem.terms,
        abs(problem.scale),
        (block.q, block.k, block.allowed),
        (moved.q, moved.k),
    )
    tangent = np.matmul(dq.raw, k.raw.swapaxes(-1, -2), out=problem.tile(1, block))
    tangent += np.matmul(q.raw, dk.raw.swapaxes(-1, -2), out=problem.tile(2, block))
    tangent *= problem.scale
    relative = (
        t.tangent_dot + t.product + t.scale_on_inputs + 2 * t.stored_scores
    )  # times c it may underflow: the products come between
    if not problem.elementwise:
        spread = c * (row_products(dq, k, allowed) + row_products(q, dk, allowed)) * relative + 2 * t.score_underflow
    else:
        spread = dq.reach @ k.reach.swapaxes(-1, -2)
        spread += q.reach @ dk.reach.swapaxes(-1, -2)
        spread *= c
        spread *= relative
        spread += 2 * t.score_underflow
        for a, b in ((dq, k), (q, dk)):
            if a.rad is not None:
                spread += c * (a.rad @ b.reach.swapaxes(-1, -2))
            if b.rad is not None:
                spread += c * (a.reach @ b.rad.swapaxes(-1, -2))
            if t.input_underflow:
                spread += t.input_underflow * (a.reach.sum(-1)[..., :, None] + b.reach.sum(-1)[..., None, :])
    if allowed is not None:
        np.copyto(tangent, 0.0, where=~allowed)
        if problem.elementwise:
            np.copyto(spread, 0.0, where=~allowed)
    return tangent, spread
