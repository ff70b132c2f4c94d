"""The backward pass of attention with its error.

With p_ij = exp(s_ij − lse_i), dP = g·vᵀ, δ_i = Σ_c g_ic o_ic = Σ_j p_ij dP_ij, T = dP − δ and dS = p ⊙ T:

    dq = scale·dS·k,   dk = scale·dSᵀ·q,   dv = pᵀ·g.

**Weights.** A kernel's p̃_ij = p_ij·exp(t_ij + r_i), |t_ij| ≤ τ_ij + κ_i (`Rows.entry`), and |r_i| ≤ ρ_i (`Rows.common`) is
the error of the row's sum, which all its weights share; where p̃ underflows there is an absolute error as well.

**dP.** It is off by at most E_ij = grad_dot·(|g||v|ᵀ, |dP|)_ij and what is stored.

**δ** is one number for each row, off by Δ_i (`oracles.delta`).

**dS.** p̃(T + E − Δ) − p·T is, but for roundings, what is common to a row, −p·exp(r)·Δ and (exp(r) − 1)·p·T, and the rest,

    w_ij = exp(ρ)·[p(exp(τ + κ) − 1)·z + p·E] + underflow,   z = |T| + E + Δ.

In dq what is common to a row goes with |Σ_j p_j k_j|·Δ and |dq|, where signs cancel; in dk with Σ_i p_ij|q_i|Δ_i.  Roundings of
dS, and of the terms of a sum, are exponents K of each entry; those of the sum itself are `Sum`s of (Σ|dS||k|, |dq|).

All this holds as long as nothing overflows.  Where |g||v|ᵀ, δ or T may, of which δ reaches its whole row, the row's
errors are infinite; so is that of a dP or dS, scaled or not, that may leave the format it is stored in, and that of a
gradient where a sum of |dS||k|, |dS||q| or p|g| may leave the range of its accumulator, before or after it is scaled.
A row whose scores, or whose Σe, may overflow may be NaN throughout, at blocked keys too, as exp(−∞ − NaN) is and 0·NaN: then nothing is
known of dk and dv of any key, and of no bias of the row, and nothing of dk and the row's biases where δ may overflow.
"""

from typing import NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, gamma
from oracles.delta import delta_spread
from oracles.forward import rows_forward
from oracles.logits import slope_of
from oracles.quotient import Rows, live
from oracles.scores import (
    AttentionProblem,
    Operand,
    expm1,
    growth,
    over_keys,
    over_rows,
    part,
    row_products,
    scores,
)
from oracles.visible import Mask


class Gradients(NamedTuple):
    """Gradients with the bounds of their errors before they are rounded to the output's format.

    `dbias` is that of each logit's bias, or None, and `dsink` that of each row's sink, before either is summed over what shares it.
    """

    dq: Array
    dq_error: Array
    dk: Array
    dk_error: Array
    dv: Array
    dv_error: Array
    dbias: tuple[Array, Array] | None = None
    dsink: tuple[Array, Array] | None = None


class Tile(NamedTuple):
    """A tile of the weights p, of p + η, and of dS.

    own      the error w of dS that is each entry's own, `error` the same with what is common to a row
    growth   exp(τ + κ + ρ) − 1, entry by entry or one for each row
    largest  a bound of dS and its error
    h        1 − tanh² where there is a cap
    bias     dU, or dS where the cap acts after the bias, and its error, where there is a bias
    """

    p: Array
    possible: Array
    ds: Array
    own: Array
    error: Array
    growth: Array
    largest: float
    bias: tuple[Array, Array] | None = None
    h: Array | None = None


def gradients(p: AttentionProblem, g: Operand, dead_rows_are_unchecked: bool, of_lse: Array | None = None) -> Gradients:
    """The gradients of the live rows; a dead row's dq is 0, or NaN with an infinite error where it is unchecked.

    `of_lse` (…, n_q, 1) is the cotangent of the log-sum-exp, if there is one.
    """
    head, d, d_v = p.q.shape[:-2], p.q.shape[-1], p.v.shape[-1]
    t, c = p.terms, abs(p.scale)
    dq, dq_error, dq_size = (np.zeros((*head, p.n_q, d)) for _ in range(3))
    dk, dk_error, dk_size = (np.zeros((*head, p.n_k, d)) for _ in range(3))
    dv, dv_error, dv_size = (np.zeros((*head, p.n_k, d_v)) for _ in range(3))
    f = p.features
    dbias = None if f is None or f.bias is None else (np.zeros((*head, p.n_q, p.n_k)), np.zeros((*head, p.n_q, p.n_k)))
    dsink = None if f is None or f.sink is None else (np.zeros((*head, p.n_q, 1)), np.zeros((*head, p.n_q, 1)))
    for rows in p.row_tiles():
        q, gi = part(p.q, rows), part(g, rows)
        forward = rows_forward(p, rows, gi if p.elementwise else None)
        delta = delta_spread(p, rows, forward, gi)
        shift, delta, of_sink = _shift(p, rows, forward, gi, delta, of_lse)
        if dsink is not None:
            for x, here in zip(dsink, _sinks(p, rows, forward, *of_sink), strict=True):
                x[..., rows, :] = here
        if p.elementwise:
            lost = live(~(np.isfinite(forward.sums.x) & (p.n_k * (1 + 2.0**-6) <= p.ranges.sums)), forward.dead, False)
            if dsink is not None:  # exp(sink − m) may overflow, and all weights be lost
                lost = lost | np.isinf(forward.error).any(axis=-1, keepdims=True)
            dv_error[lost.any(axis=(-2, -1))] = np.inf
            lost = lost | live(np.isinf(delta), forward.dead, False)
            dk_error[lost.any(axis=(-2, -1))] = np.inf
        mean, slack = np.zeros(dq[..., rows, :].shape), np.zeros(dq[..., rows, :].shape)
        for keys, allowed in p.key_tiles(rows):
            k = part(p.k, keys)
            tile = grad_scores(p, rows, keys, forward, shift, delta, q, gi, allowed)
            if dbias is not None and tile.bias is not None:
                for x, here in zip(dbias, tile.bias, strict=True):
                    x[..., rows, keys] = here
            dq[..., rows, :] += tile.ds @ k.value
            ds, ds_error = tile.ds.swapaxes(-1, -2), tile.error.swapaxes(-1, -2)
            dk[..., keys, :] += ds @ q.value
            if p.elementwise:
                mean += (tile.p if tile.h is None else tile.p * tile.h) @ k.value
            readable = over_keys(allowed, k.reach)
            dq_error[..., rows, :] += _product_error(p, tile.ds, tile.own, tile.error, k, readable)
            slack = slack + 8 * gamma(p.n_k + 8, ROUNDOFF) * readable
            dk_error[..., keys, :] += _product_error(p, ds, ds_error, ds_error, q, over_rows(allowed, q.reach))
            mid, error = _weighted(p, tile, gi, allowed)
            dv[..., keys, :] += mid
            dv_error[..., keys, :] += error
            if not _fits(p, tile, q, k, gi):
                size = np.abs(tile.ds) + tile.error
                dq_size[..., rows, :] += size @ k.reach
                dk_size[..., keys, :] += size.swapaxes(-1, -2) @ q.reach
                dv_size[..., keys, :] += tile.p.swapaxes(-1, -2) @ gi.reach
        if p.elementwise and dbias is not None:
            np.copyto(dbias[1][..., rows, :], np.inf, where=lost)
        if p.elementwise:
            lift = np.exp(forward.common)
            dq_error[..., rows, :] += live(c * lift * delta * (np.abs(mean) + slack), forward.dead)
            dq_error[..., rows, :] += c * np.expm1(forward.common) * (1 + 2.0**-48) * np.abs(dq[..., rows, :])
        if dead_rows_are_unchecked:
            dq[..., rows, :] = live(dq[..., rows, :], forward.dead, np.nan)
    inflation = 1 + 8 * gamma(max(p.n_q, p.n_k) + d + d_v + 8, ROUNDOFF)
    dq *= p.scale
    dk *= p.scale
    for x, error, of in ((dq, dq_error, t.keys_sum), (dk, dk_error, t.queries_sum), (dv, dv_error, t.queries_sum)):
        error += of.result * (np.where(np.isnan(x), 0.0, np.abs(x)) + error)
    if p.elementwise:
        most = max(1.0, c)
        for sum_of_sizes, error in ((most * dq_size, dq_error), (most * dk_size, dk_error), (dv_size, dv_error)):
            error[~(2 * (sum_of_sizes + error) <= p.ranges.gradients)] = np.inf
    return Gradients(dq, dq_error * inflation, dk, dk_error * inflation, dv, dv_error * inflation, dbias, dsink)


def _shift(
    p: AttentionProblem, rows: slice, forward: Rows, g: Operand, delta: Array, of_lse: Array | None
) -> tuple[Array, Array, tuple[Array, Array]]:
    """δ − g_lse, by which T is dP less, and how far a kernel's is from it; and what dsink is −w_sink times, with its error.

    The difference is rounded, and a cotangent of another base converted.  Where the log-sum-exp is without the sink, its cotangent belongs
    to weights that are larger by 1/(1 − w_sink), and not to the sink: those of a softmax without it, as whose they are bounded.  (A kernel
    that forms 1 − w_sink is off by more where that is small: it is not covered.)
    """
    shift = (g.raw * forward.out).sum(axis=-1, keepdims=True)
    if of_lse is None:
        return shift, delta, (shift, delta)
    of = live(of_lse[..., rows, :], forward.dead)
    relative = np.zeros(shift.shape)
    if (without := p.without_sink) is not None:
        alone = rows_forward(without, rows)
        of = live(of * np.exp(forward.lse - alone.lse), alone.dead)
        relative = live(np.expm1(alone.entry + alone.common + forward.entry + forward.common) * (1 + 2.0**-48), alone.dead)
    error = delta + p.terms.biased * (np.abs(shift) + delta + np.abs(of)) + relative * np.abs(of)
    return shift - of, error, (shift, delta) if without is not None else (shift - of, error)


def _sinks(p: AttentionProblem, rows: slice, forward: Rows, shift: Array, delta: Array) -> tuple[Array, Array]:
    """The gradient of each row's sink, −w_sink·shift, and its error."""
    weight, spread = sink_weights(p, rows, forward)
    error = spread * (np.abs(shift) + delta) + weight * delta + p.terms.grad_underflow * (weight + spread > 0)
    return -weight * shift, error * (1 + 2.0**-40)


def sink_weights(p: AttentionProblem, rows: slice, forward: Rows) -> tuple[Array, Array]:
    """w_sink = exp(sink − lse) and how far a kernel's is from it; 0 where there is no sink, and where no row is alive."""
    assert p.features is not None
    assert p.features.sink is not None
    t, sink = p.terms, p.features.sink[..., rows, :]
    none = sink == -np.inf
    weight = np.exp(sink - forward.lse)
    exponent = t.anew.slope * np.where(none, 0.0, np.abs(sink)) + forward.entry + forward.common + t.grad_scores
    spread = (weight + t.weight_underflow) * np.expm1(exponent) * (1 + 2.0**-48) + t.weight_underflow
    return np.where(none, 0.0, weight), np.where(none, 0.0, spread)


def grad_scores(
    p: AttentionProblem, rows: slice, keys: slice, forward: Rows, shift: Array, delta: Array, q: Operand, g: Operand, allowed: Mask | None
) -> Tile:
    """A tile of weights and of dS, with their errors; all 0 where a row may not read a key."""
    t = p.terms
    kappa = t.grad_scores + t.product + t.scale_on_inputs + max(t.keys_sum.terms, t.queries_sum.terms)
    k, v = part(p.k, keys), part(p.v, keys)
    u = scores(p, rows, keys, q, k, allowed)
    excess = growth(p, q, k, u, allowed, t.anew.slope)
    slope = None if p.features is None or p.features.cap is None else slope_of(u, p.features.cap, excess, t)
    np.subtract(u.u, forward.lse, out=u.u)
    weights = np.exp(u.u, out=u.u)
    grown = expm1(excess)
    ds = np.matmul(g.raw, v.raw.swapaxes(-1, -2), out=p.tile(1, q, k))
    spread = _spread(p, g, v, ds, allowed)
    ds -= shift
    reach = np.abs(ds, out=p.tile(2, q, k))
    common = weights * (np.exp(forward.common) * delta + np.expm1(forward.common) * (1 + 2.0**-48) * reach)
    reach += spread
    reach += delta
    ds *= weights
    exponent = forward.entry + kappa
    lift = grown * np.exp(exponent) + np.expm1(exponent) * (1 + 2.0**-48)
    possible = np.add(weights, t.weight_underflow, out=p.tile(3, q, k))
    error = possible * lift
    error += t.weight_underflow * np.exp(exponent)
    error *= reach
    error += possible * (spread * np.exp(kappa))
    error *= np.exp(forward.common)
    grown = grown * np.exp(forward.entry + forward.common) + np.expm1(forward.entry + forward.common) * (1 + 2.0**-48)
    together = error + common
    of_bias = (ds, together)
    if slope is not None:
        h, off = slope
        moved = off * (np.abs(ds) + together)
        ds, error, together = ds * h, error * h + moved, together * h + moved
    if p.features is not None and p.features.bias is not None:
        of_bias = (ds, together) if p.features.after_bias else of_bias
        lost = t.grad_underflow if u.blocked is None else np.where(u.blocked, 0.0, t.grad_underflow)
        of_bias = of_bias[0], of_bias[1] + lost
        of_bias = of_bias if allowed is None else (np.where(allowed, of_bias[0], 0.0), np.where(allowed, of_bias[1], 0.0))
    if allowed is not None:
        for x in (ds, error, together, possible):
            np.copyto(x, 0.0, where=~allowed)
        if not (np.isfinite(forward.lse) & np.isfinite(forward.entry + forward.common)).all():
            np.copyto(weights, 0.0, where=~allowed)
            grown = np.where(allowed, grown, 0.0)
    of_row = np.abs(shift).max(initial=0.0)
    largest = 2 * (2 * g.length.max(initial=0.0) * v.length.max(initial=0.0) + of_row + together.max(initial=0.0))
    c = max(1.0, abs(p.scale))
    bias = p.features is not None and p.features.bias is not None
    if bias and not 2 * (largest + of_bias[1].max(initial=0.0)) <= p.ranges.grad_scores:
        of_bias = of_bias[0], np.where(2 * (np.abs(of_bias[0]) + of_bias[1]) <= p.ranges.grad_scores, of_bias[1], np.inf)
    if p.elementwise and not c * largest <= p.ranges.grad_scores:
        overflow = ~(2 * c * (together + np.abs(ds)) <= p.ranges.grad_scores)
        error[overflow], together[overflow] = np.inf, np.inf
    own = error if p.elementwise else together
    return Tile(weights, possible, ds, own, together, grown, float(largest), of_bias, None if slope is None else slope[0])


def _fits(p: AttentionProblem, tile: Tile, q: Operand, k: Operand, g: Operand) -> bool:
    """Whether no sum over keys or queries can leave the range of the gradients because of this tile's share of it."""
    longest = max(p.n_k * k.length.max(initial=0.0), p.n_q * q.length.max(initial=0.0))
    share = max(tile.largest * longest * max(1.0, abs(p.scale)), p.n_q * g.length.max(initial=0.0))
    return not p.elementwise or bool(4 * share <= p.ranges.gradients)


def _spread(p: AttentionProblem, g: Operand, v: Operand, dp: Array, allowed: Mask | None) -> Array:
    """E: how far a kernel's dP may be from the oracle's (or the row maxima of that)."""
    t = p.terms
    if p.elementwise:
        spread = g.reach @ v.reach.swapaxes(-1, -2)
        spread *= t.grad_dot.terms + t.product + 2 * t.grad_weights * (t.grad_dot.positive + t.product)
        spread += (t.grad_dot.result + t.grad_weights) * np.abs(dp)
    else:
        spread = row_products(g, v, allowed) * (t.grad_dot.positive + t.product)
    if g.rad is not None:
        spread += g.rad @ v.reach.swapaxes(-1, -2)
    if v.rad is not None:
        spread += g.reach @ v.rad.swapaxes(-1, -2)
    if t.input_underflow:
        spread += t.input_underflow * (g.reach.sum(-1)[..., :, None] + v.reach.sum(-1)[..., None, :])
    spread += 2 * t.sum_underflow
    return spread


def _product_error(p: AttentionProblem, ds: Array, own: Array, error: Array, x: Operand, allowed: Array) -> Array:
    """The error of scale·dS·x: its own error against |x|, dS with all its error against the radius of x, and underflow.

    `allowed` is the sum of |x| over what may be read: where it is 0 the gradient is exactly 0.
    """
    t, c = p.terms, abs(p.scale)
    found = c * (own @ x.reach)
    found = found + max(1.0, c) * (t.grad_underflow * allowed + t.sum_underflow * (allowed > 0))
    if x.rad is not None:
        found = found + c * ((np.abs(ds) + error) @ x.rad)
    if t.input_underflow:
        found = found + t.input_underflow * (np.abs(ds) + error).sum(axis=-1, keepdims=True)
    return found


def _weighted(p: AttentionProblem, tile: Tile, g: Operand, allowed: Mask | None) -> tuple[Array, Array]:
    """pᵀ·g over a tile's rows, and its error: the weights' exponents, the sum's, and what underflows."""
    t = p.terms
    weights, reach = tile.p.swapaxes(-1, -2), g.reach
    exponent = max(t.weights, t.saved_weights) + t.product + t.queries_sum.terms
    lift = np.exp(exponent) * tile.growth + np.expm1(exponent) * (1 + 2.0**-48)
    possible = tile.possible.swapaxes(-1, -2)
    by_row = tile.growth.shape[-1] == 1
    error = possible @ (lift * reach) if by_row else (tile.possible * lift).swapaxes(-1, -2) @ reach
    readable = over_rows(allowed, reach)
    error = error + t.weight_underflow * readable + t.sum_underflow * (readable > 0)
    if g.rad is not None:
        error = error + np.exp(exponent) * ((tile.possible * (1 + tile.growth)).swapaxes(-1, -2) @ g.rad)
    mid = weights @ g.value
    return (mid if g.unknown is None else np.where(over_rows(allowed, g.unknown) > 0, np.nan, mid)), error
