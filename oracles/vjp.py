"""The backward pass of attention with its error.

With p_ij = exp(s_ij − lse_i), dP = g·vᵀ, δ_i = Σ_c g_ic o_ic = Σ_j p_ij dP_ij, T = dP − δ and dS = p ⊙ T:

    dq = scale·dS·k,   dk = scale·dSᵀ·q,   dv = pᵀ·g.

A kernel's p̃ = p·exp(±ρ), ρ_ij = τ_ij + (exponent of row i), except for an absolute error π where it underflows; its T̃
is within r_ij = grad_dot·(|g||v|ᵀ)_ij + Δ_i + … of T, Δ_i bounding the error of δ in either form; its dS is off by at
most

    w_ij = (p(exp(ρ + grad_scores) − 1) + π)(|T| + r) + p·r + underflow,

and the sums add theirs: |d̃q − dq| ≤ scale·Σ_j (w·exp(κ) + |dS|(exp(κ) − 1))|k|, alike for dk and dv (the product
rule).

All this holds as long as nothing overflows.  Where |g||v|ᵀ, δ or T may, of which δ reaches its whole row, the row's
errors are infinite; so is that of a dS that may leave the format it is stored in, and that of a gradient where a sum of
|dS||k|, |dS||q| or p|g| may leave the range of its accumulator, before or after it is scaled.
"""

from typing import NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, gamma
from oracles.forward import Rows, delta_error, rows_forward
from oracles.scores import (
    Mask,
    Operand,
    Problem,
    expm1,
    growth,
    over_keys,
    over_rows,
    part,
    row_products,
    scores,
)


class Gradients(NamedTuple):
    """dq, dk and dv with the bounds of their errors before they are rounded to the output's format."""

    dq: Array
    dq_error: Array
    dk: Array
    dk_error: Array
    dv: Array
    dv_error: Array


class GradScores(NamedTuple):
    """A tile of p, of dS, and of w·exp(κ) + |dS|(exp(κ) − 1); exp ρ − 1 entry by entry or one for each row; a bound of
    dS and its error.
    """

    p: Array
    ds: Array
    error: Array
    growth: Array
    largest: float

    def flipped(self) -> "GradScores":
        """The same with keys as rows."""
        p, ds, error, growth = (x.swapaxes(-1, -2) for x in self[:4])
        return GradScores(p, ds, error, growth, self.largest)


def gradients(p: Problem, g: Operand, dead_rows_are_unchecked: bool) -> Gradients:
    """dq, dk and dv of the live rows; a dead row's dq is 0, or NaN with an infinite error where it is unchecked."""
    head, d, d_v = p.q.value.shape[:-2], p.q.value.shape[-1], p.v.value.shape[-1]
    dq, dq_error, dq_size = (np.zeros((*head, p.n_q, d)) for _ in range(3))
    dk, dk_error, dk_size = (np.zeros((*head, p.n_k, d)) for _ in range(3))
    dv, dv_error, dv_size = (np.zeros((*head, p.n_k, d_v)) for _ in range(3))
    for rows in p.row_tiles():
        q, gi = part(p.q, rows), part(g, rows)
        forward = rows_forward(p, rows)
        delta = _delta_spread(p, rows, forward, gi)
        for keys, allowed in p.key_tiles(rows):
            k = part(p.k, keys)
            tile = grad_scores(p, forward, delta, q, k, part(p.v, keys), gi, allowed)
            dq[..., rows, :] += tile.ds @ k.value
            dk[..., keys, :] += tile.ds.swapaxes(-1, -2) @ q.value
            dq_error[..., rows, :] += _product_error(p, tile, k, over_keys(allowed, k.reach))
            flipped = tile.flipped()
            dk_error[..., keys, :] += _product_error(p, flipped, q, over_rows(allowed, q.reach))
            mid, error = _weighted(p, tile, gi, allowed)
            dv[..., keys, :] += mid
            dv_error[..., keys, :] += error
            if not _fits(p, tile, q, k, gi):
                size = np.abs(tile.ds) + tile.error
                dq_size[..., rows, :] += size @ k.reach
                dk_size[..., keys, :] += size.swapaxes(-1, -2) @ q.reach
                dv_size[..., keys, :] += tile.p.swapaxes(-1, -2) @ gi.reach
        if dead_rows_are_unchecked:
            dq[..., rows, :] = np.where(forward.dead, np.nan, dq[..., rows, :])
    inflation = 1 + 8 * gamma(max(p.n_q, p.n_k) + d + d_v + 8, ROUNDOFF)
    dq *= p.scale
    dk *= p.scale
    if p.elementwise:
        c = max(1.0, abs(p.scale))
        for sum_of_sizes, error in ((c * dq_size, dq_error), (c * dk_size, dk_error), (dv_size, dv_error)):
            error[~(2 * (sum_of_sizes + error) <= p.ranges.gradients)] = np.inf
    return Gradients(dq, dq_error * inflation, dk, dk_error * inflation, dv, dv_error * inflation)


def grad_scores(
    p: Problem, forward: Rows, delta: Array, q: Operand, k: Operand, v: Operand, g: Operand, allowed: Mask | None
) -> GradScores:
    """A tile of weights and of dS, with their errors; all 0 where a row may not read a key."""
    t = p.terms
    kappa = t.grad_scores + t.product + t.scale_on_inputs + max(t.keys_sum, t.queries_sum)
    s = scores(p, q, k, allowed)
    excess = growth(p, q, k, s, allowed)
    excess += forward.weight
    s -= forward.lse
    weights = np.exp(s, out=s)
    grown = expm1(excess)
    ds = np.matmul(g.raw, v.raw.swapaxes(-1, -2), out=p.tile(1, q, k))
    ds -= (g.raw * forward.out).sum(axis=-1, keepdims=True)
    spread = _spread(p, delta, g, v, allowed)
    reach = np.abs(ds, out=p.tile(2, q, k))
    reach += spread
    ds *= weights
    lift = grown * float(np.exp(kappa)) + float(np.expm1(kappa) * (1 + 2.0**-48))
    error = np.multiply(weights, lift, out=p.tile(3, q, k))
    error += t.weight_underflow * float(np.exp(kappa))
    error *= reach
    error += np.multiply(weights, spread * float(np.exp(kappa)), out=reach)
    if allowed is not None:
        np.copyto(ds, 0.0, where=~allowed)
        np.copyto(error, 0.0, where=~allowed)
        if not (np.isfinite(forward.lse) & np.isfinite(forward.weight)).all():
            np.copyto(weights, 0.0, where=~allowed)
            grown = np.where(allowed, grown, 0.0)
    largest = 2 * (2 * g.length.max(initial=0.0) * v.length.max(initial=0.0) + error.max(initial=0.0))
    if p.elementwise and not largest <= p.ranges.grad_scores:
        error[~(2 * (error + np.abs(ds)) <= p.ranges.grad_scores)] = np.inf
    return GradScores(weights, ds, error, grown, float(largest))


def _delta_spread(p: Problem, rows: slice, forward: Rows, g: Operand) -> Array:
    """Δ: how far a kernel's δ may be from the exact one, ∞ where its row may overflow.

    Both forms of δ are at most max_j (|g||v|ᵀ)_ij + Δ, the output being a mean of values, and |T| is at most twice that.
    """
    t = p.terms
    error = delta_error(p, forward)
    spread: Array = (g.reach * error).sum(axis=-1, keepdims=True) + 2 * t.sum_underflow
    if g.rad is not None:
        spread = spread + (g.rad * np.abs(forward.out)).sum(axis=-1, keepdims=True)
    if not p.elementwise:
        return spread
    stored = (np.abs(forward.out) + error).max(axis=-1, keepdims=True, initial=0.0)
    spread = np.where(stored <= p.ranges.saved_output, spread, np.inf)
    longest = g.length.max(initial=0.0) * p.v.length.max(initial=0.0)
    if longest <= p.ranges.work / 4 and spread.max(initial=0.0) <= p.ranges.work / 4:
        return spread
    farthest = np.zeros(spread.shape)
    for keys, allowed in p.key_tiles(rows):
        products = g.reach @ part(p.v, keys).reach.swapaxes(-1, -2)
        where = True if allowed is None else allowed
        farthest = np.maximum(farthest, products.max(axis=-1, keepdims=True, initial=0.0, where=where))
    return np.where(farthest + spread <= p.ranges.work / 4, spread, np.inf)


def _fits(p: Problem, tile: GradScores, q: Operand, k: Operand, g: Operand) -> bool:
    """Whether no sum over keys or queries can leave the range of the gradients because of this tile's share of it."""
    longest = max(p.n_k * k.length.max(initial=0.0), p.n_q * q.length.max(initial=0.0))
    share = max(tile.largest * longest * max(1.0, abs(p.scale)), p.n_q * g.length.max(initial=0.0))
    return not p.elementwise or bool(4 * share <= p.ranges.gradients)


def _spread(p: Problem, delta: Array, g: Operand, v: Operand, allowed: Mask | None) -> Array:
    """r: how far a kernel's T = dP − δ may be from the exact one, before T is rounded (or the row maxima of that)."""
    t = p.terms
    spread = g.reach @ v.reach.swapaxes(-1, -2) if p.elementwise else row_products(g, v, allowed)
    spread *= t.grad_dot + t.product
    if g.rad is not None:
        spread += g.rad @ v.reach.swapaxes(-1, -2)
    if v.rad is not None:
        spread += g.reach @ v.rad.swapaxes(-1, -2)
    if t.input_underflow:
        spread += t.input_underflow * (g.reach.sum(-1)[..., :, None] + v.reach.sum(-1)[..., None, :])
    spread += delta
    return spread


def _product_error(p: Problem, tile: GradScores, x: Operand, allowed: Array) -> Array:
    """The error of scale·dS·x: the error of dS against |x|, |dS| against the radius of x, and underflow.

    `allowed` is the sum of |x| over what may be read: where it is 0 the gradient is exactly 0.
    """
    t, c = p.terms, abs(p.scale)
    error = c * (tile.error @ x.reach)
    error = error + max(1.0, c) * (t.grad_underflow * allowed + t.sum_underflow * (allowed > 0))
    if x.rad is not None:
        error = error + c * ((np.abs(tile.ds) + tile.error) @ x.rad)
    if t.input_underflow:
        error = error + t.input_underflow * (np.abs(tile.ds) + tile.error).sum(axis=-1, keepdims=True)
    return error


def _weighted(p: Problem, tile: GradScores, g: Operand, allowed: Mask | None) -> tuple[Array, Array]:
    """pᵀ·g over a tile's rows, and its error: the weights' exponents, the sum's, and what underflows."""
    t = p.terms
    weights, reach = tile.p.swapaxes(-1, -2), g.reach
    exponent = t.weights + t.product + t.queries_sum
    lift = np.exp(exponent) * tile.growth + np.expm1(exponent) * (1 + 2.0**-48)
    by_row = tile.growth.shape[-1] == 1
    error = weights @ (lift * reach) if by_row else (tile.p * lift).swapaxes(-1, -2) @ reach
    readable = over_rows(allowed, reach)
    error = error + t.weight_underflow * readable + t.sum_underflow * (readable > 0)
    if g.rad is not None:
        error = error + np.exp(exponent) * ((tile.p * (1 + tile.growth)).swapaxes(-1, -2) @ g.rad)
    mid = weights @ g.value
    return (mid if g.unknown is None else np.where(over_rows(allowed, g.unknown) > 0, np.nan, mid)), error
