"""A tile of dS, and of what the gradients are made of besides, each with its error; `oracles.error_analysis.vjp`
derives the terms.

A certificate is bounded by one number for each row, as in `oracles.error_analysis.scores`.  With z = |T| + E + Δ,
of which E and Δ are then the row's,

    error = p·[exp(ρ)·(lift·(E + Δ) + E·exp(κ) + Δ) + (exp(ρ)·lift + exp(ρ) − 1)·|T|] +
    η·exp(ρ)·[(lift + exp(κ))·z + E·exp(κ)],

lift = exp(τ + κ) − 1: the same terms as entry by entry, ordered by p and |T|, where the last, which
underflow alone causes, takes the row's largest |T| ≤ ‖g‖·max‖v‖ + |δ|.
"""

from typing import NamedTuple

import numpy as np

from oracles.ball import Array, expm1_upwards
from oracles.error_analysis.grouped_heads import Gathered
from oracles.error_analysis.logits import Logits, lost_by_slope, slope_of
from oracles.error_analysis.output_error import Rows
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.scores import AttentionProblem, Operand, expm1, growth, levelled, part, row_products, scores
from oracles.error_analysis.visible_keys import Mask


class Tile(NamedTuple):
    """A tile of the weights p, of p + η, and of dS.

    possible  p + η; p itself where `growth` is one for each row, η being counted elsewhere
    own       the error w of dS that is each entry's own, `error` the same with what is common to a row
    growth    exp(τ + κ + ρ) − 1, entry by entry or one for each row
    largest   a bound of dS and its error
    h         1 − tanh² where there is a cap
    """

    p: Array
    possible: Array
    ds: Array
    own: Array
    error: Array
    growth: Array
    largest: float
    h: Array | None = None


class Shift(NamedTuple):
    """δ − g_lse, by which T is dP less, in each row.

    shift, error             the number, and how far a kernel's is from it
    apart                    |g_lse|, where there is one: what may be taken times weights by itself
    of_keys                  how far these weights, of a softmax without the sink, may be off by themselves, times |g_lse|
    sink, sink_error, sink_apart   what −dsink is w_sink times, likewise: δ where the log-sum-exp is without the sink
    """

    shift: Array
    error: Array
    apart: Array | None
    of_keys: Array
    sink: Array
    sink_error: Array
    sink_apart: Array | None = None


class _Errors(NamedTuple):
    """What the errors of a tile are made of: growth and p + η as in `Tile`, and the errors of dU,
    each entry's own and all.
    """

    growth: Array
    possible: Array
    own: Array
    error: Array


def grad_scores(
    p: AttentionProblem, rows: slice, keys: slice, forward: Rows, of: Shift, q: Operand, g: Operand, allowed: Mask | None,
    of_bias: Gathered | None,
) -> Tile:  # fmt: skip
    """A tile of weights and of dS, with their errors; all 0 where a row may not read a key.  dU, or
    dS where the cap acts after the bias, is added to the gradient of the bias."""
    t, k, v, shift, delta = p.terms, part(p.k, keys), part(p.v, keys), of.shift, of.error
    u = scores(p, rows, keys, q, k, allowed)
    excess = growth(p, q, k, u, allowed, t.anew.slope)
    cap = None if p.features is None else p.features.cap
    slope = None if cap is None else slope_of(u, cap, excess, t)
    excess = levelled(p, rows, excess)
    np.subtract(u.u, forward.lse, out=u.u)
    weights = np.exp(u.u, out=u.u)
    ds = np.matmul(g.raw, v.raw.swapaxes(-1, -2), out=p.tile(1, q, k))
    spread = _spread(p, g, v, ds) if p.elementwise else row_products(g, v, allowed)
    if p.elementwise and t != p.own:  # −δ may come first in the sum of dP
        spread += t.grad_dot.positive * np.abs(shift)
    ds -= shift
    reach = np.abs(ds, out=p.tile(2, q, k))
    if p.elementwise:
        errors = _by_entry(t, forward, weights, expm1(excess), reach, spread, of, p.tile(3, q, k))
    else:
        errors = _by_row(t, forward, weights, expm1(excess), reach, spread, delta, np.abs(shift))
    ds *= weights
    growths, possible, own, error = errors
    if allowed is not None:
        for x in (ds, error, own, possible) if p.elementwise else (ds, error):
            np.copyto(x, 0.0, where=~allowed)
        if not (np.isfinite(forward.lse) & np.isfinite(forward.entry + forward.common)).all():
            np.copyto(weights, 0.0, where=~allowed)
            possible = possible if p.elementwise else np.where(allowed, weights + t.weight_underflow, 0.0)
            growths = np.where(allowed, growths, 0.0)
    of_row = 2 * (2 * g.length.max(initial=0.0) * v.length.max(initial=0.0) + np.abs(shift).max(initial=0.0))
    aside: Array | float = 0.0 if of.apart is None else weights * of.apart
    of_row += 0.0 if of.apart is None else 2 * of.apart.max(initial=0.0)
    if of_bias is not None and p.features is not None and not p.features.after_bias:
        of_bias.add(rows, keys, ds, _of_bias(p, u, ds, error, aside, of_row, allowed))
    if slope is not None and cap is not None:
        h, off = slope
        if allowed is not None:
            np.copyto(h, 0.0, where=~allowed)
        moved = np.abs(ds, out=p.tile(4, q, k))
        moved += error
        overflow = p.elementwise and ~(2 * cap * moved <= p.ranges.slope)
        moved *= off
        np.add(moved, lost_by_slope(t, 1 / cap), out=moved, where=True if allowed is None else allowed)
        ds *= h
        for x in (error, own) if p.elementwise else (error,):
            x *= h
            x += moved
            np.copyto(x, np.inf, where=overflow)
    if of_bias is not None and p.features is not None and p.features.after_bias:
        of_bias.add(rows, keys, ds, _of_bias(p, u, ds, error, aside, of_row, allowed))
    largest, c = of_row + 2 * error.max(initial=0.0), max(1.0, abs(p.scale))
    if p.elementwise and not c * largest <= p.ranges.grad_scores:
        overflow = ~(2 * c * (error + np.abs(ds) + aside) <= p.ranges.grad_scores)
        own, error = np.where(overflow, np.inf, own), np.where(overflow, np.inf, error)
    return Tile(weights, possible, ds, own, error, growths, float(largest), None if slope is None else h)


def _of_bias(
    p: AttentionProblem, u: Logits, ds: Array, error: Array, aside: Array | float, of_row: float, allowed: Mask | None
) -> Array:
    """The error of the gradient of a bias: with what underflows, and infinite where it, or one of
    two products, may leave the range of what is stored."""
    lost = p.terms.grad_underflow
    error = error + (lost if u.blocked is None else np.where(u.blocked, 0.0, lost))
    if allowed is not None:
        np.copyto(error, 0.0, where=~allowed)
    if 2 * (of_row + 3 * error.max(initial=0.0)) <= p.ranges.grad_scores:
        return error
    return np.where(2 * (np.abs(ds) + error + aside) <= p.ranges.grad_scores, error, np.inf)


def _kappa(t: Terms) -> float:
    """κ: what products with a weight add to its exponent."""
    return t.grad_scores + t.product + t.scale_on_inputs + max(t.keys_sum.terms, t.queries_sum.terms)


def _by_entry(
    t: Terms, forward: Rows, weights: Array, grown: Array, reach: Array, spread: Array, of: Shift, room: Array
) -> _Errors:
    """The errors entry by entry, given exp(τ) − 1, and |T| and E, which are overwritten; `room` is for p + η."""
    exponent, of_row = forward.entry + _kappa(t), forward.entry + forward.common
    common = weights * (np.exp(forward.common) * of.error + expm1_upwards(forward.common) * reach)
    reach += spread
    reach += of.error
    spread *= np.exp(_kappa(t))
    if of.apart is not None:
        reach += 2 * of.apart
        spread += expm1_upwards(forward.common, 2 * of.apart) + of.of_keys
    lift = grown * np.exp(exponent) + expm1_upwards(exponent)
    possible = np.add(weights, t.weight_underflow, out=room)
    error = possible * lift
    error += t.weight_underflow * np.exp(exponent)
    error *= reach
    error += possible * spread
    error *= np.exp(forward.common)
    return _Errors(grown * np.exp(of_row) + expm1_upwards(of_row), possible, error, error + common)


def _by_row(
    t: Terms, forward: Rows, weights: Array, grown: Array, reach: Array, products: Array, delta: Array, shift: Array
) -> _Errors:
    """The errors by one number for each row, given |T|, which is overwritten by them, row maxima of
    |g||v|ᵀ, Δ and |δ|.
    """
    spread, most = products * (t.grad_dot.positive + t.product) + 2 * t.sum_underflow, products + shift
    kappa, of_row, common = _kappa(t), forward.entry + forward.common, np.exp(forward.common)
    lifted = np.exp(forward.entry + kappa)
    lift, of_dot = grown * lifted + expm1_upwards(forward.entry + kappa), spread * np.exp(kappa)
    underflow = t.weight_underflow * common * ((lift + lifted) * (most + spread + delta) + of_dot)
    reach *= common * lift + expm1_upwards(forward.common)
    reach += common * (lift * (spread + delta) + of_dot + delta)
    reach *= weights
    reach += underflow
    return _Errors(grown * np.exp(of_row) + expm1_upwards(of_row), weights, reach, reach)


def _spread(p: AttentionProblem, g: Operand, v: Operand, dp: Array) -> Array:
    """E: how far a kernel's dP may be from the oracle's."""
    t = p.terms
    spread: Array = g.reach @ v.reach.swapaxes(-1, -2)
    spread *= t.grad_dot.terms + t.product + 2 * t.grad_weights * (t.grad_dot.positive + t.product)
    spread += (t.grad_dot.result + t.grad_weights) * np.abs(dp)
    if g.rad is not None:
        spread += g.rad @ v.reach.swapaxes(-1, -2)
    if v.rad is not None:
        spread += g.reach @ v.rad.swapaxes(-1, -2)
    if t.input_underflow:
        spread += t.input_underflow * (g.reach.sum(-1)[..., :, None] + v.reach.sum(-1)[..., None, :])
    spread += 2 * t.sum_underflow
    return spread
