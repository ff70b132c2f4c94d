"""The backward pass of attention with its error.

With p_ij = exp(s_ij − lse_i), dP = g·vᵀ, δ_i = Σ_c g_ic o_ic = Σ_j p_ij dP_ij, T = dP − δ and dS =
p ⊙ T:

    dq = scale·dS·k,   dk = scale·dSᵀ·q,   dv = pᵀ·g.

**Weights.** A kernel's p̃_ij = p_ij·exp(t_ij + r_i), |t_ij| ≤ τ_ij + κ_i (`Rows.entry`), and |r_i|
≤ ρ_i (`Rows.common`) is the error of the row's sum, which all its weights share; where p̃
underflows there is an absolute error as well.

**dP.** It is off by at most E_ij = grad_dot·(|g||v|ᵀ, |dP|)_ij and what is stored.

**δ** is one number for each row, off by Δ_i (`oracles.error_analysis.delta`).

**dS.** p̃(T + E − Δ) − p·T is, but for roundings, what is common to a row, −p·exp(r)·Δ and (exp(r)
− 1)·p·T, and the rest,

    w_ij = exp(ρ)·[p(exp(τ + κ) − 1)·z + p·E] + underflow,   z = |T| + E + Δ.

In dq what is common to a row goes with |Σ_j p_j k_j|·Δ and |dq|, where signs cancel; in dk with Σ_i
p_ij|q_i|Δ_i.  Roundings of dS, and of the terms of a sum, are exponents K of each entry; those of
the sum itself are `Sum`s of (Σ|dS||k|, |dq|).

**The cotangent of the log-sum-exp.** With it T is dP − δ + g. A kernel adds g to dP − δ, or takes
it from δ; or it forms p̃·(dP − δ) + p̃'·g, as autograd does of two results, where p̃' is exp(u −
lse) made by itself: then the errors of the weights are two, and do not share the factor T, which
may cancel. So z has |dP − δ| + |g| ≤ |T| + 2|g| in place of |T|; and of what is common to a row,
p·T has the share of p̃, to which p̃' adds 2·(exp(ρ) − 1)·p·|g| at most, as each entry's own.  Both
products may be stored, and their sum: what that rounds is counted twice, and what underflows three
times; and each product should be in range, where their sum may cancel. So should T be with g:
beside a dP and a δ as `oracles.error_analysis.delta` allows them, |g| may be a sixth of the range.

**Heads that share a key head.** A kernel may add up all rows of dk and dv at once, or those of each
query head, round these to the output's format, and add up the heads' own: then |dk_h + e_h|·u, u
the output's, comes to it for each head h, Σ|e_h| ≤ E where E is the bound of the whole sum's error;
on that E acts once more: E becomes (1 + u)·E + u·(1 + queries_sum.result)·Σ_h|dk_h|, and what
underflows.

All this holds as long as nothing overflows.  Where |g||v|ᵀ, masked or not, δ or T may, the row's
errors are infinite; so is that of a dP or dS, scaled or not, that may leave the format it is stored
in, and that of a gradient where a sum of
|dS||k|, |dS||q| or p|g| may leave the range of its accumulator, before or after it is scaled.
A row whose scores, or whose Σe, may overflow may be NaN throughout, at masked keys too, as exp(−∞ −
NaN) is and 0·NaN: then nothing is known of dk and dv of any key, and of no bias of the row, and
nothing of dk and the row's biases where δ may overflow.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, expm1_upwards, gamma
from oracles.error_analysis.delta import delta_spread
from oracles.error_analysis.forward import rows_forward, without_sink
from oracles.error_analysis.grad_scores import Shift, Tile, grad_scores
from oracles.error_analysis.grouped_heads import Gathered, HeadSums
from oracles.error_analysis.output_error import Rows, live
from oracles.error_analysis.scores import AttentionProblem, Operand, over_keys, part, readable
from oracles.error_analysis.visible_keys import Mask


class Gradients(NamedTuple):
    """Gradients with the bounds of their errors before they are rounded to the output's format."""

    dq: Array
    dq_error: Array
    dk: Array
    dk_error: Array
    dv: Array
    dv_error: Array


def gradients(
    p: AttentionProblem,
    g: Operand,
    dead_rows_are_unchecked: bool,
    of_lse: Array | None = None,
    finer: Sequence[Gathered] = (),
) -> Gradients:
    """The gradients of the live rows; a dead row's dq is 0, or NaN with an infinite error where it
    is unchecked.

    `of_lse` (…, n_q, 1) is the cotangent of the log-sum-exp, if there is one.  The gradients of the
    bias and of the sinks, if there are such, are added to `finer` in this order.
    """
    if of_lse is not None and p.elementwise:
        p = p._replace(
            terms=replace(p.terms, grad_scores=2 * p.terms.grad_scores, grad_underflow=3 * p.terms.grad_underflow)
        )
    head, d, d_v = p.q.shape[:-2], p.q.shape[-1], p.v.shape[-1]
    t, c = p.terms, abs(p.scale)
    dq, dq_error, dq_size = (np.zeros((*head, p.n_q, d)) for _ in range(3))
    dk, dk_error, dk_size = (np.zeros((*head, p.n_k, d)) for _ in range(3))
    dv, dv_error, dv_size = (np.zeros((*head, p.n_k, d_v)) for _ in range(3))
    heads_dk, heads_dv = (HeadSums.of(x.shape, p.n_q, p.group) for x in (dk, dv))
    of_bias = finer[0] if p.features is not None and p.features.bias is not None else None
    of_sink = finer[-1] if p.features is not None and p.features.sink is not None else None
    for rows in p.row_tiles():
        q, gi = part(p.q, rows), part(g, rows)
        forward = rows_forward(p, rows, gi if p.elementwise else None)
        delta = delta_spread(p, rows, forward, gi)
        moved = _shift(p, rows, forward, gi, delta, of_lse)
        delta = moved.error
        if of_sink is not None:
            of_sink.add(rows, slice(0, 1), *_sinks(p, rows, forward, moved))
        if p.elementwise:
            lost = live(~(np.isfinite(forward.sums.x) & (p.n_k * (1 + 2.0**-6) <= p.ranges.sums)), forward.dead, False)
            if of_sink is not None:  # exp(sink − m) may overflow, and all weights be lost
                lost = lost | forward.lost
            dv_error[lost.any(axis=(-2, -1))] = np.inf
            lost = lost | np.isinf(delta)
            dk_error[lost.any(axis=(-2, -1))] = np.inf
            if of_bias is not None and lost.any():
                unknown = np.broadcast_to(np.where(lost, np.inf, 0.0), (*lost.shape[:-1], p.n_k))
                of_bias.add(rows, slice(0, p.n_k), np.broadcast_to(0.0, unknown.shape), unknown)
        mean, slack = np.zeros(dq[..., rows, :].shape), np.zeros(dq[..., rows, :].shape)
        for keys, allowed in p.key_tiles(rows):
            k, by = part(p.k, keys), None if allowed is None else allowed.swapaxes(-1, -2)
            tile = grad_scores(p, rows, keys, forward, moved, q, gi, allowed, of_bias)
            dq[..., rows, :] += tile.ds @ k.value
            ds, ds_error = tile.ds.swapaxes(-1, -2), tile.error.swapaxes(-1, -2)
            dk[..., keys, :] += ds @ q.value
            heads_dk.add(rows, keys, ds, q.value)
            heads_dv.add(rows, keys, tile.p.swapaxes(-1, -2), gi.value)
            if p.elementwise:
                mean += (tile.p if tile.h is None else tile.p * tile.h) @ k.value
            of_keys = readable(p, k.reach, allowed)
            dq_error[..., rows, :] += _product_error(p, tile.ds, tile.own, tile.error, k, of_keys)
            slack = slack + 8 * gamma(p.n_k + 8, ROUNDOFF) * of_keys
            dk_error[..., keys, :] += _product_error(p, ds, ds_error, ds_error, q, readable(p, q.reach, by))
            mid, error = _weighted(p, tile, gi, allowed)
            dv[..., keys, :] += mid
            dv_error[..., keys, :] += error
            if not _fits(p, tile, q, k, gi):
                size = np.abs(tile.ds) + tile.error
                dq_size[..., rows, :] += size @ k.reach
                dk_size[..., keys, :] += size.swapaxes(-1, -2) @ q.reach
                dv_size[..., keys, :] += tile.p.swapaxes(-1, -2) @ gi.reach
        if p.elementwise:
            lift = np.exp(forward.common)
            dq_error[..., rows, :] += live(c * lift * delta * (np.abs(mean) + slack), forward.dead)
            dq_error[..., rows, :] += expm1_upwards(forward.common, c) * np.abs(dq[..., rows, :])
            np.copyto(dq_error[..., rows, :], np.inf, where=np.isinf(delta))
        if dead_rows_are_unchecked:
            dq[..., rows, :] = live(dq[..., rows, :], forward.dead, np.nan)
    if p.level is not None and p.k.unknown is not None:  # level scores tell nothing of what is unknown, but products do
        np.copyto(dq, np.nan, where=p.level & p.k.unknown.any(axis=-2, keepdims=True))
    if p.level is not None and p.q.unknown is not None:
        np.copyto(dk, np.nan, where=(p.level & (p.q.unknown > 0)).any(axis=-2, keepdims=True))
    inflation = 1 + 8 * gamma(max(p.n_q, p.n_k) + d + d_v + 8, ROUNDOFF)
    dq *= p.scale
    dk *= p.scale
    for x, error, of in ((dq, dq_error, t.keys_sum), (dk, dk_error, t.queries_sum), (dv, dv_error, t.queries_sum)):
        error += of.result * (np.where(np.isnan(x), 0.0, np.abs(x)) + error)
    for heads, error, factor, most in (
        (heads_dk, dk_error, c, p.ranges.scaled * min(1.0, c)),
        (heads_dv, dv_error, 1.0, np.inf),
    ):
        error += heads.rounded(p.terms, error, factor, min(p.ranges.output, most))
    if p.ranges.scaled < np.inf:
        _store_before_the_scale(p, dq, dq_error, 1)
        _store_before_the_scale(p, dk, dk_error, p.group)
    if p.elementwise:
        most = max(1.0, c)
        for side, error in (
            (p.k, dq_error),
            (p.q, dk_error),
        ):  # which may overflow where it is scaled, masked or not: 0 times ∞ is NaN
            np.copyto(error, np.inf, where=(side.reach * (1.5 * most) > p.ranges.work).any(axis=-2, keepdims=True))
        if any(p.rounded_beyond(x) for x in (p.q, p.k, p.v, g)):
            for error in (dq_error, dk_error, dv_error):
                error[...] = np.inf
        for sum_of_sizes, error in ((most * dq_size, dq_error), (most * dk_size, dk_error), (dv_size, dv_error)):
            error[~(2 * (sum_of_sizes + error) <= p.ranges.gradients)] = np.inf
    return Gradients(dq, dq_error * inflation, dk, dk_error * inflation, dv, dv_error * inflation)


def _store_before_the_scale(p: AttentionProblem, x: Array, error: Array, heads: int) -> None:
    """Add what a gradient of q or k loses where that of a scaled q or k is stored in fewer bits,
    for each head, and multiplied by the scale then: what underflows, and all where it may overflow.
    `scale_on_inputs` counts its rounding.

    What is stored is the gradient over what q, or k, was multiplied by: the scale, its root or 1.
    Nothing is stored of what is 0 exactly.
    """
    error += np.where(error > 0, heads * p.terms.scaled_underflow, 0.0)
    fits = (error == 0) | ((np.abs(x) + error) * (1 + 2.0**-6) <= p.ranges.scaled * min(1.0, abs(p.scale)))
    np.copyto(error, np.inf, where=~fits)


def _shift(p: AttentionProblem, rows: slice, forward: Rows, g: Operand, delta: Array, of_lse: Array | None) -> Shift:
    """By what T is dP less.

    The difference is rounded, and a cotangent of another base converted.  Where the log-sum-exp is
    without the sink, its cotangent belongs to weights that are larger by 1/(1 − w_sink), and not to
    the sink: those of a softmax without it, as whose they are bounded.  What these are off by is
    common to the row but for each one's own: it is counted as both.  (A kernel that forms 1 −
    w_sink is off by more where that is small: it is not covered.)
    """
    shift = (g.raw * forward.out).sum(axis=-1, keepdims=True)
    if of_lse is None:
        return Shift(shift, delta, None, np.zeros(shift.shape), shift, delta)
    of = live(of_lse[..., rows, :], forward.dead)
    relative = np.zeros(shift.shape)
    if (alone := without_sink(p, rows, forward)) is not None:
        factor, relative, dead = alone
        of, relative = live(of * factor, dead), live(relative, dead)
    size = np.abs(of)
    error = delta + p.terms.biased * (np.abs(shift) + delta + size) + relative * size
    error = np.where((6 * size <= p.ranges.work) & (relative < np.inf), error, np.inf)
    apart = size if p.elementwise else None
    return Shift(
        shift - of,
        error,
        apart,
        relative * size,
        *((shift, delta) if alone is not None else (shift - of, error, apart)),
    )


def _sinks(p: AttentionProblem, rows: slice, forward: Rows, of: Shift) -> tuple[Array, Array]:
    """The gradient of each row's sink, −w_sink·shift, and its error, ∞ where it may leave the
    format in which dS is stored.
    """
    weight, spread = sink_weights(p, rows, forward)
    size = np.abs(of.sink) if of.sink_apart is None else np.abs(of.sink) + 2 * of.sink_apart
    error = spread * (size + of.sink_error) + weight * of.sink_error + p.terms.grad_underflow * (weight + spread > 0)
    error = np.where(2 * (weight + spread) * (size + of.sink_error) <= p.ranges.grad_scores, error, np.inf)
    return -weight * of.sink, error * (1 + 2.0**-40)


def sink_weights(p: AttentionProblem, rows: slice, forward: Rows) -> tuple[Array, Array]:
    """w_sink = exp(sink − lse) and how far a kernel's is from it; 0 where there is no sink, and
    where no row is alive.
    """
    assert p.features is not None
    assert p.features.sink is not None
    t, sink = p.terms, p.features.sink[..., rows, :]
    none = sink == -np.inf
    weight = np.exp(sink - forward.lse)
    exponent = t.anew.slope * np.where(none, 0.0, np.abs(sink)) + forward.entry + forward.common + t.grad_scores
    spread = expm1_upwards(exponent, weight + t.weight_underflow) + t.weight_underflow
    return np.where(none, 0.0, weight), np.where(none, 0.0, spread)


def _fits(p: AttentionProblem, tile: Tile, q: Operand, k: Operand, g: Operand) -> bool:
    """Whether no sum over keys or queries can leave the range of the gradients because of this tile's share of it."""
    longest = max(p.n_k * k.length.max(initial=0.0), p.n_q * q.length.max(initial=0.0))
    share = max(tile.largest * longest * max(1.0, abs(p.scale)), p.n_q * g.length.max(initial=0.0))
    return not p.elementwise or bool(4 * share <= p.ranges.gradients)


def _product_error(p: AttentionProblem, ds: Array, own: Array, error: Array, x: Operand, allowed: Array) -> Array:
    """The error of scale·dS·x: its own error against |x|, dS with all its error against the radius
    of x, and underflow.

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
    t, by = p.terms, None if allowed is None else allowed.swapaxes(-1, -2)
    weights, reach = tile.p.swapaxes(-1, -2), g.reach
    exponent = max(t.weights, t.saved_weights) + t.product + t.queries_sum.terms
    lift = np.exp(exponent) * tile.growth + expm1_upwards(exponent)
    if p.elementwise or lift.shape[-1] > 1:
        error = (tile.possible * lift).swapaxes(-1, -2) @ reach
        of_rows = readable(p, reach, by)
    else:
        lifted = lift * reach
        error = weights @ lifted
        of_rows = readable(p, reach + lifted, by)
    error = error + t.weight_underflow * of_rows + t.sum_underflow * (of_rows > 0)
    if g.rad is not None:
        error = error + np.exp(exponent) * ((tile.possible * (1 + tile.growth)).swapaxes(-1, -2) @ g.rad)
    mid = weights @ g.value
    return (mid if g.unknown is None else np.where(over_keys(by, g.unknown) > 0, np.nan, mid)), error
