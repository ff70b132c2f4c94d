"""The directional derivative of attention with its error.

With t = scale·(dq·kᵀ + q·dkᵀ), t̄_i = Σ_j p_ij t_ij and U = (p + η)(exp(ρ + κ) − 1) the error of a
weight that may have underflowed:

    dout = Σ_j p_j (t_j − t̄) v_j + Σ_j p_j dv_j = Σ_j p_j t_j v_j − t̄·o + Σ_j p_j dv_j.

A kernel's t̃ is within r of t, its p̃·t̃ within w = U(|t| + r) + p·r, its t̄ within Σ w; so by the
product rule, whichever of the two forms it takes, its error is at most Σ w|v| + |t̄|·Σ U|v| + (Σ
w)·Σ (p + U)|v| + Σ U|dv|, plus what underflows.
"""

from functools import reduce
from typing import NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, expm1_upwards, gamma
from oracles.error_analysis.forward import rows_forward, without_sink
from oracles.error_analysis.grouped_heads import Shared
from oracles.error_analysis.logits import Logits, lost_by_slope, slope_of
from oracles.error_analysis.output_error import live
from oracles.error_analysis.own_arithmetic import KEY_TILE
from oracles.error_analysis.scores import (
    AttentionProblem,
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
    """The tangents of q, k and v, and of the bias and the sinks where there are such, laid out as `Tiled` has them."""

    q: Operand
    k: Operand
    v: Operand
    bias: Shared | None = None
    sink: Array | None = None


class Moved(NamedTuple):
    """dout and dlse with the bounds of their errors, before they are rounded; 0 on dead rows, which are told."""

    dout: Array
    dout_error: Array
    dlse: Array
    dlse_error: Array
    dead: Mask | None


def rows_jvp(p: AttentionProblem, tangents: Tangents, rows: slice) -> Moved:
    """The derivatives of a tile of rows."""
    t, forward, q, dq = p.terms, rows_forward(p, rows), part(p.q, rows), part(tangents.q, rows)
    kappa = t.grad_scores + t.normalise + t.weights + 2 * t.product + t.tangent_sum.positive
    grow, growth_of_one = float(np.exp(kappa)), float(expm1_upwards(kappa))
    head, d_v = q.shape[:-1], p.v.shape[-1]
    mean, mean_error, largest = (np.zeros((*head, 1)) for _ in range(3))
    mid, error, size, drift, readable, readable_tangent, unknown = (np.zeros((*head, d_v)) for _ in range(7))
    for keys, allowed in p.key_tiles(rows):
        k, v, dk, dv = (part(x, keys) for x in (p.k, p.v, tangents.k, tangents.v))
        u = scores(p, rows, keys, q, k, allowed)
        excess = growth(p, q, k, u, allowed, t.anew.slope)
        tangent, spread = _score_tangents(p, q, k, dq, dk, allowed)
        if p.features is not None:
            tangent, spread = _logit_tangents(p, u, tangents, rows, keys, tangent, spread, excess, allowed)
        excess = levelled(p, rows, excess)
        excess += forward.entry + forward.common
        np.subtract(u.u, forward.lse, out=u.u)
        weights = np.exp(u.u, out=u.u)
        reach = np.abs(tangent, out=p.tile(2, q, k))
        reach += spread
        largest = np.maximum(largest, reach.max(axis=-1, keepdims=True))
        lift = expm1(excess) * grow + growth_of_one
        possible = weights + t.weight_underflow
        if allowed is not None:
            np.copyto(possible, 0.0, where=~allowed)
        errors = np.multiply(reach, lift, out=p.tile(3, q, k))
        errors += spread * grow
        errors *= possible
        drifts = np.multiply(possible, lift, out=reach)
        tangent *= weights
        mid += tangent @ v.value + weights @ dv.value
        mean += tangent.sum(axis=-1, keepdims=True)
        wrong, drifting, total = (x.sum(axis=-1, keepdims=True) for x in (errors, drifts, weights))
        mean_error += wrong
        error += sizes(p, errors, wrong, v.reach, allowed)[0] + sizes(p, drifts, drifting, dv.reach, allowed)[0]
        drift += sizes(p, drifts, drifting, v.reach, allowed)[0]
        size_here, readable_here = sizes(p, weights, total, v.reach, allowed)
        size += size_here
        readable += readable_here
        readable_tangent += over_keys(allowed, dv.reach)
        if v.rad is not None:
            error += (np.abs(tangent) + errors) @ v.rad
        if dv.rad is not None:
            error += (weights + drifts) @ dv.rad
        for x in (v, dv):
            if x.unknown is not None:
                unknown += over_keys(allowed, x.unknown)
    of_keys = mean, mean_error
    if p.features is not None and p.features.sink is not None:
        weight, spread = sink_weights(p, rows, forward)
        moves = np.zeros(weight.shape) if tangents.sink is None else tangents.sink[..., rows, :]
        largest = np.maximum(largest, np.abs(moves))
        mean, mean_error = mean + weight * moves, mean_error + (spread * grow + weight * growth_of_one) * np.abs(moves)
    stored = (1.0 + p.n_k) * t.grad_underflow  # each p·t is stored before it is added up, and their sum
    mean_error = mean_error + p.n_k * t.weight_underflow * largest + stored + t.sum_underflow
    absolute = t.weight_underflow * ((largest + np.abs(mean)) * readable + readable_tangent)
    absolute = absolute + t.grad_underflow * readable + t.sum_underflow * (1.0 + np.abs(mean) + size)
    absolute = absolute + t.output_underflow  # Σ p·t·v and Σ p·dv may be stored apart
    absolute = absolute + 2 * t.input_underflow * (largest + mean_error)
    absolute = absolute + np.abs(mean) * (t.saved_output * (np.abs(forward.out) + forward.error) + t.saved_underflow)
    error = error + np.abs(mean) * (drift + forward.error) + mean_error * (size + drift) + grow * absolute
    dout = np.where(unknown > 0, np.nan, mid - mean * forward.out)
    error = error * (1 + 8 * gamma(p.n_k + 8, ROUNDOFF))
    centred = 2 * (largest + mean_error)
    lost = forward.lost | ~(centred + 1.0 <= min(p.ranges.grad_scores, p.ranges.work))
    if p.elementwise:
        lost = lost | _overflows_somewhere(p, tangents, rows, q, dq) | p.rounded_beyond(tangents.v)
    overflow = lost | ~((size + drift + 1.0) * (centred + 1.0) + readable_tangent <= p.ranges.work)
    dlse, dlse_error = mean, mean_error
    if (alone := without_sink(p, rows, forward)) is not None:
        factor, relative, dead = alone
        dlse, dlse_error = of_keys[0] * factor, mean_error * factor
        dlse_error = live(dlse_error * (1 + relative) + relative * np.abs(dlse), dead)
        dlse = live(dlse, dead)
    dlse_error = (dlse_error + t.grad_scores * np.abs(dlse)) * (1 + 8 * gamma(p.n_k + 8, ROUNDOFF))
    dlse_error = np.where(lost, np.inf, dlse_error)
    error = np.where(overflow, np.inf, error)
    dout, error, dlse, dlse_error = (live(x, forward.dead) for x in (dout, error, dlse, dlse_error))
    return Moved(dout, error, dlse, dlse_error, forward.dead)


def _overflows_somewhere(p: AttentionProblem, tangents: Tangents, rows: slice, q: Operand, dq: Operand) -> Mask:
    """In which rows (…, rows, 1) the tangent of a logit may overflow, masked or in a tile that no
    row reads: a weight of 0 times ∞ is NaN.

    It may in a product, before or after the scale, where a query, any key or the tangent of either
    is scaled, where that of a bias is added, or where either is divided by a cap; before the scale
    in the accumulators alone, as a score.
    """
    cap = None if p.features is None else p.features.cap
    work = p.ranges.work / 2 * min(1.0, cap or 1.0)
    most, fits = (work / max(unscaled, abs(p.scale)) for unscaled in (1.0, p.ranges.work / p.ranges.products))
    pairs = (dq, p.k), (q, tangents.k)
    of_rows = (x.reach.max(axis=-1, keepdims=True, initial=0.0) > most for x in (q, dq))
    of_keys = (x.reach.max(axis=(-2, -1), keepdims=True, initial=0.0) > most for x in (p.k, tangents.k))
    lost: Mask = reduce(np.logical_or, (*of_rows, *of_keys))
    if tangents.bias is not None:
        for first in range(0, p.n_k, KEY_TILE):
            moves = np.abs(tangents.bias.tile(rows, slice(first, min(first + KEY_TILE, p.n_k))))
            lost = lost | (moves.max(axis=-1, keepdims=True, initial=0.0) > work)
    if all((2 * x.length.max(initial=0.0) * y.length.max(initial=0.0) <= fits) for x, y in pairs):
        return lost
    found = np.zeros((*q.shape[:-1], 1))
    for first in range(0, p.n_k, KEY_TILE):
        keys = slice(first, min(first + KEY_TILE, p.n_k))
        of_dq, of_dk = (x.reach @ part(y, keys).reach.swapaxes(-1, -2) for x, y in pairs)
        size = of_dq + of_dk
        found = np.maximum(found, size.max(axis=-1, keepdims=True, initial=0.0))
    return lost | ~(found <= fits)


def _logit_tangents(
    p: AttentionProblem,
    u: Logits,
    tangents: Tangents,
    rows: slice,
    keys: slice,
    tangent: Array,
    spread: Array,
    exponents: Array,
    allowed: Mask | None,
) -> tuple[Array, Array]:
    """The tangents of logits, given those of scores: times the slope of the cap, plus those of the
    bias, in the features' order; and how far a kernel's may be from them."""
    f, t = p.features, p.terms
    assert f is not None
    for capping in (False, True) if f.after_bias else (True, False):
        if capping and f.cap is not None:
            h, off = slope_of(u, f.cap, exponents, t)
            lost = off * (np.abs(tangent) + spread) + t.grad_scores * np.abs(tangent) + lost_by_slope(t, f.cap)
            tangent, spread = tangent * h, spread * h + lost
            if u.blocked is not None:  # there nothing is read of a tangent
                tangent, spread = (np.where(u.blocked, 0.0, x) for x in (tangent, spread))
        elif not capping and f.bias is not None and tangents.bias is not None:
            moves = tangents.bias.tile(rows, keys)
            first = t.tangent_dot * np.abs(moves) if p.bias_first else 0.0
            spread = spread + t.biased * (np.abs(tangent) + np.abs(moves) + spread) + first
            tangent = tangent + moves
    if allowed is not None:
        tangent, spread = (np.where(allowed, x, 0.0) for x in (tangent, spread))
    return tangent, spread


def _score_tangents(
    p: AttentionProblem, q: Operand, k: Operand, dq: Operand, dk: Operand, allowed: Mask | None
) -> tuple[Array, Array]:
    """t = scale·(dq·kᵀ + q·dkᵀ), 0 where masked, and how far a kernel's may be from it (or the row
    maxima of that).

    Each product underflows as a score does, and is stored as one; so is their sum.
    """
    t, c = p.terms, abs(p.scale)
    tangent = np.matmul(dq.raw, k.raw.swapaxes(-1, -2), out=p.tile(1, q, k))
    tangent += np.matmul(q.raw, dk.raw.swapaxes(-1, -2), out=p.tile(2, q, k))
    tangent *= p.scale
    relative = (
        t.tangent_dot + t.product + t.scale_on_inputs + 2 * t.stored_scores
    )  # times c it may underflow: the products come between
    if not p.elementwise:
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
        if p.elementwise:
            np.copyto(spread, 0.0, where=~allowed)
    return tangent, spread
