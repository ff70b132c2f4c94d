"""The directional derivative of attention with its error.

With t = scale·(dq·kᵀ + q·dkᵀ), t̄_i = Σ_j p_ij t_ij and U = (p + η)(exp(ρ + κ) − 1) the error of a weight that may have underflowed:

    dout = Σ_j p_j (t_j − t̄) v_j + Σ_j p_j dv_j = Σ_j p_j t_j v_j − t̄·o + Σ_j p_j dv_j.

A kernel's t̃ is within r of t, its p̃·t̃ within w = U(|t| + r) + p·r, its t̄ within Σ w; so by the product rule,
whichever of the two forms it takes, its error is at most Σ w|v| + |t̄|·Σ U|v| + (Σ w)·Σ (p + U)|v| + Σ U|dv|, plus what
underflows.
"""

from typing import NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, gamma
from oracles.forward import rows_forward
from oracles.quotient import live
from oracles.scores import (
    AttentionProblem,
    Mask,
    Operand,
    expm1,
    growth,
    over_keys,
    part,
    row_products,
    scores,
    sizes,
)


class Tangents(NamedTuple):
    """The tangents of q, k and v."""

    q: Operand
    k: Operand
    v: Operand


def rows_jvp(p: AttentionProblem, tangents: Tangents, rows: slice) -> tuple[Array, Array]:
    """dout and the bound of its error for a tile of rows, before rounding to the output's format; 0 on dead rows."""
    t, forward, q, dq = p.terms, rows_forward(p, rows), part(p.q, rows), part(tangents.q, rows)
    kappa = t.grad_scores + t.normalise + t.weights + 2 * t.product + t.keys_sum.positive
    grow, growth_of_one = float(np.exp(kappa)), float(np.expm1(kappa)) * (1 + 2.0**-48)
    head, d_v = q.shape[:-1], p.v.shape[-1]
    mean, mean_error, largest = (np.zeros((*head, 1)) for _ in range(3))
    mid, error, size, drift, readable, readable_tangent, unknown = (np.zeros((*head, d_v)) for _ in range(7))
    for keys, allowed in p.key_tiles(rows):
        k, v, dk, dv = (part(x, keys) for x in (p.k, p.v, tangents.k, tangents.v))
        s = scores(p, q, k, allowed)
        excess = growth(p, q, k, s, allowed, t.anew.slope)
        excess += forward.entry + forward.common
        s -= forward.lse
        weights = np.exp(s, out=s)
        tangent, spread = _score_tangents(p, q, k, dq, dk, allowed)
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
    mean_error = mean_error + p.n_k * t.weight_underflow * largest + t.sum_underflow
    absolute = t.weight_underflow * ((largest + np.abs(mean)) * readable + readable_tangent)
    absolute = absolute + t.grad_underflow * (1.0 + p.n_k) * readable + t.sum_underflow * (1.0 + np.abs(mean) + size)
    absolute = absolute + 2 * t.input_underflow * (largest + mean_error)
    absolute = absolute + np.abs(mean) * (t.saved_output * (np.abs(forward.out) + forward.error) + t.saved_underflow)
    error = error + np.abs(mean) * (drift + forward.error) + mean_error * (size + drift) + grow * absolute
    dout = np.where(unknown > 0, np.nan, mid - mean * forward.out)
    error = error * (1 + 8 * gamma(p.n_k + 8, ROUNDOFF))
    centred = 2 * (largest + mean_error)
    overflow = ~(centred <= p.ranges.grad_scores) | ~((size + drift + 1.0) * (centred + 1.0) + readable_tangent <= p.ranges.work)
    return live(dout, forward.dead), live(np.where(overflow, np.inf, error), forward.dead)


def _score_tangents(p: AttentionProblem, q: Operand, k: Operand, dq: Operand, dk: Operand, allowed: Mask | None) -> tuple[Array, Array]:
    """t = scale·(dq·kᵀ + q·dkᵀ), 0 where blocked, and how far a kernel's may be from it (or the row maxima of that)."""
    t, c = p.terms, abs(p.scale)
    tangent = np.matmul(dq.raw, k.raw.swapaxes(-1, -2), out=p.tile(1, q, k))
    tangent += np.matmul(q.raw, dk.raw.swapaxes(-1, -2), out=p.tile(2, q, k))
    tangent *= p.scale
    relative = t.tangent_dot + t.product + t.scale_on_inputs  # times c it may underflow: the products come between
    if not p.elementwise:
        spread = c * (row_products(dq, k, allowed) + row_products(q, dk, allowed)) * relative + t.score_underflow
    else:
        spread = dq.reach @ k.reach.swapaxes(-1, -2)
        spread += q.reach @ dk.reach.swapaxes(-1, -2)
        most = p.ranges.work / (2 * max(1.0, c))
        overflow = None if spread.max(initial=0.0) <= most else ~(spread <= most)
        spread *= c
        spread *= relative
        spread += t.score_underflow
        for a, b in ((dq, k), (q, dk)):
            if a.rad is not None:
                spread += c * (a.rad @ b.reach.swapaxes(-1, -2))
            if b.rad is not None:
                spread += c * (a.reach @ b.rad.swapaxes(-1, -2))
            if t.input_underflow:
                spread += t.input_underflow * (a.reach.sum(-1)[..., :, None] + b.reach.sum(-1)[..., None, :])
        if overflow is not None:
            spread[overflow] = np.inf
    if allowed is not None:
        np.copyto(tangent, 0.0, where=~allowed)
        if p.elementwise:
            np.copyto(spread, 0.0, where=~allowed)
    return tangent, spread
