"""Computes a tile of dS, and of the weights for dv, each with its error.
`oracles.error_analysis.vjp` derives the errors.

dS = p ⊙ T is the gradient of the scores, with the weights p and T = dP − δ. A certified value has
one bound for each row (query), as in `oracles.error_analysis.scores`.  E and Δ are the errors of dP
and δ, here one number for each row. With z = |T| + E + Δ and lift = exp(τ + κ) − 1,

    error = p·[exp(ρ)·(lift·(E + Δ) + E·exp(κ) + Δ) + (exp(ρ)·lift + exp(ρ) − 1)·|T|]
            + η·exp(ρ)·[(lift + exp(κ))·z + E·exp(κ)].

These are the terms of the entry-by-entry bound, ordered by p and |T|. Only underflow causes the
last term. In it z has the row's largest |T| ≤ ‖g‖·max‖v‖ + |δ|.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oracles.ball import Array, expm1_upwards
from oracles.error_analysis.grouped_heads import Gathered
from oracles.error_analysis.logits import Logits, lost_by_slope, slope_of
from oracles.error_analysis.output_error import Rows
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.scores import (
    AttentionProblem,
    Block,
    Operand,
    expm1,
    growth,
    levelled,
    row_products,
    scores,
)


@dataclass
class Tile:
    """A tile of the weights p, of p + η, and of dS. `oracles.error_analysis.vjp` defines the
    letters.

    possible  p + η. It is p itself if `growth` is one number for each row; then η is counted
              elsewhere
    own       the part of the error of dS that belongs to each entry alone, w
    error     the whole error of dS: `own` and the part that all entries of a row share
    growth    exp(τ + κ + ρ) − 1, entry by entry or one number for each row
    largest   an upper bound of dS and its error
    h         the slope 1 − tanh² with a softcap, else None
    """

    p: Array
    possible: Array
    ds: Array
    own: Array
    error: Array
    growth: Array
    largest: float = 0.0
    h: Array | None = None

    @property
    def errors(self) -> tuple[Array, ...]:
        """The arrays of errors, each listed once."""
        return (self.error,) if self.own is self.error else (self.error, self.own)


class Shift(NamedTuple):
    """The number δ − g_lse of each row, which is subtracted from dP to give T.

    shift, error                  the number, and how far a kernel's may be from it
    apart                         |g_lse|, if a kernel may multiply it with weights in a separate
                                  product; else None
    of_keys                       the error of the weights of a softmax without the sink, times
                                  |g_lse|
    sink, sink_error, sink_apart  the same three numbers for −dsink = w_sink·shift; there the shift
                                  is δ if the log-sum-exp is without the sink
    """

    shift: Array
    error: Array
    apart: Array | None
    of_keys: Array
    sink: Array
    sink_error: Array
    sink_apart: Array | None = None


class _Factors(NamedTuple):
    """The factors that the error of dS consists of, in a tile. `oracles.error_analysis.vjp` defines
    the letters.

    weights  p
    growth   exp(τ) − 1, entry by entry or one number for each row
    turned   T, which becomes dU
    reach    |T|, which is overwritten
    spread   E, which is overwritten, or the row maxima of |g||v|ᵀ
    """

    weights: Array
    growth: Array
    turned: Array
    reach: Array
    spread: Array


class _Size(NamedTuple):
    """Bounds that show where a result may overflow: of |T| in all rows, and of p·g_lse, which may
    be a separate product.
    """

    turned: float
    aside: Array | float


def grad_scores(
    problem: AttentionProblem, block: Block, forward: Rows, of: Shift, g: Operand, of_bias: Gathered | None = None
) -> Tile:
    """Return a tile of the weights and of dS, with their errors; all are 0 at masked keys.

    dU, the gradient of the logits, is added to the gradient of the bias. If the softcap acts after
    the bias, dS is added instead.
    """
    logits, features = scores(problem, block), problem.features
    exponents = growth(problem, block, logits, problem.terms.anew.slope)
    softcap = None if features is None else features.cap
    softcap_slope = None if softcap is None else slope_of(logits, softcap, exponents, problem.terms)
    exponents = levelled(problem, block.rows, exponents)
    np.subtract(logits.u, forward.lse, out=logits.u)
    factors = _Factors(np.exp(logits.u, out=logits.u), expm1(exponents), *_turned(problem, block, of, g))
    common_arguments = problem.terms, forward, of, factors
    tile = _by_entry(*common_arguments, problem.tile(3, block)) if problem.elementwise else _by_row(*common_arguments)
    _mask(problem, block, forward, tile)
    bounds = _size(block, of, g, tile)
    if of_bias is not None and features is not None and not features.after_bias:
        of_bias.add(block.rows, block.keys, tile.ds, _bias_error(problem, block, logits, tile, bounds))
    if softcap_slope is not None and softcap is not None:
        _through_softcap(problem, block, tile, softcap_slope, softcap)
    if of_bias is not None and features is not None and features.after_bias:
        of_bias.add(block.rows, block.keys, tile.ds, _bias_error(problem, block, logits, tile, bounds))
    _check_range(problem, tile, bounds)
    return tile


def _turned(problem: AttentionProblem, block: Block, of: Shift, g: Operand) -> tuple[Array, Array, Array]:
    """Return T, |T|, and E entry by entry. With one error bound for each row, the third is the row
    maxima of |g||v|ᵀ.
    """
    turned = np.matmul(g.raw, block.v.raw.mT, out=problem.tile(1, block))
    if problem.elementwise:
        spread = _spread(problem, g, block.v, turned)
        if problem.has_kernel:  # −δ may come first in the sum of dP
            spread += problem.terms.grad_dot.positive * np.abs(of.shift)
    else:
        spread = row_products(g, block.v, block.allowed)
    if (kept := problem.kept(block)) is not None:
        turned *= kept
    turned -= of.shift
    return turned, np.abs(turned, out=problem.tile(2, block)), spread


def _mask(problem: AttentionProblem, block: Block, forward: Rows, tile: Tile) -> None:
    """Set the masked entries of a tile to 0."""
    if (allowed := block.allowed) is None:
        return
    for x in (tile.ds, *tile.errors, *((tile.possible,) if problem.elementwise else ())):
        np.copyto(x, 0.0, where=~allowed)
    if not (np.isfinite(forward.lse) & np.isfinite(forward.entry + forward.common)).all():
        np.copyto(tile.p, 0.0, where=~allowed)
        if not problem.elementwise:
            tile.possible = np.where(allowed, tile.p + problem.terms.weight_underflow, 0.0)
        tile.growth = np.where(allowed, tile.growth, 0.0)


def _size(block: Block, of: Shift, g: Operand, tile: Tile) -> _Size:
    """Return bounds that show where a result of this tile may overflow."""
    products = g.length.max(initial=0.0) * block.v.length.max(initial=0.0)
    largest = 2 * (2 * products + np.abs(of.shift).max(initial=0.0))
    if of.apart is None:
        return _Size(largest, 0.0)
    return _Size(largest + 2 * of.apart.max(initial=0.0), tile.p * of.apart)


def _through_softcap(
    problem: AttentionProblem, block: Block, tile: Tile, slope: tuple[Array, Array], softcap: float
) -> None:
    """Multiply dU and its errors by the slope of the softcap."""
    h, slope_error = slope
    visible = True if block.allowed is None else block.allowed
    np.copyto(h, 0.0, where=np.logical_not(visible))
    added_error = np.abs(tile.ds, out=problem.tile(4, block))
    added_error += tile.error
    overflow = problem.elementwise and ~(2 * softcap * added_error <= problem.ranges.slope)
    added_error *= slope_error
    np.add(added_error, lost_by_slope(problem.terms, 1 / softcap), out=added_error, where=visible)
    tile.ds *= h
    tile.h = h
    for x in tile.errors:
        x *= h
        x += added_error
        np.copyto(x, np.inf, where=overflow)


def _check_range(problem: AttentionProblem, tile: Tile, size: _Size) -> None:
    """Set `largest`. Set errors to ∞ where dS, scaled or not, may leave the format in which it is
    stored.
    """
    largest, c = size.turned + 2 * tile.error.max(initial=0.0), max(1.0, abs(problem.scale))
    tile.largest = float(largest)
    if problem.elementwise and not c * largest <= problem.ranges.grad_scores:
        overflow = ~(2 * c * (tile.error + np.abs(tile.ds) + size.aside) <= problem.ranges.grad_scores)
        tile.own, tile.error = np.where(overflow, np.inf, tile.own), np.where(overflow, np.inf, tile.error)


def _bias_error(problem: AttentionProblem, block: Block, logits: Logits, tile: Tile, size: _Size) -> Array:
    """Return the error of the gradient of a bias, with its underflow. It is ∞ where the gradient,
    or one of two products that form it, may leave the range of the format in which it is stored.
    """
    underflow = problem.terms.grad_underflow
    error = tile.error + (underflow if logits.blocked is None else np.where(logits.blocked, 0.0, underflow))
    if block.allowed is not None:
        np.copyto(error, 0.0, where=~block.allowed)
    if 2 * (size.turned + 3 * error.max(initial=0.0)) <= problem.ranges.grad_scores:
        return error
    return np.where(2 * (np.abs(tile.ds) + error + size.aside) <= problem.ranges.grad_scores, error, np.inf)


def _kappa(t: Terms) -> float:
    """Return κ, the part of the exponent of a weight's error that comes from products with the
    weight.
    """
    return t.grad_scores + t.product + t.scale_on_inputs + max(t.keys_sum.terms, t.queries_sum.terms)


def _by_entry(t: Terms, forward: Rows, of: Shift, f: _Factors, room: Array) -> Tile:
    """Return the tile with its errors entry by entry. `room` is overwritten by p + η."""
    weights, reach, spread = f.weights, f.reach, f.spread
    exponent, of_row = forward.entry + _kappa(t), forward.entry + forward.common
    common = weights * (np.exp(forward.common) * of.error + expm1_upwards(forward.common) * reach)
    reach += spread
    reach += of.error
    spread *= np.exp(_kappa(t))
    if of.apart is not None:
        reach += 2 * of.apart
        spread += expm1_upwards(forward.common, 2 * of.apart) + of.of_keys
    growth_factor = f.growth * np.exp(exponent) + expm1_upwards(exponent)
    possible = np.add(weights, t.weight_underflow, out=room)
    own_error = possible * growth_factor
    own_error += t.weight_underflow * np.exp(exponent)
    own_error *= reach
    own_error += possible * spread
    own_error *= np.exp(forward.common)
    ds = np.multiply(f.turned, weights, out=f.turned)
    return Tile(weights, possible, ds, own_error, own_error + common, f.growth * np.exp(of_row) + expm1_upwards(of_row))


def _by_row(t: Terms, forward: Rows, of: Shift, f: _Factors) -> Tile:
    """Return the tile with its errors from one bound for each row, as the module derives them."""
    weights, delta, error = f.weights, of.error, f.reach
    spread = f.spread * (t.grad_dot.positive + t.product) + 2 * t.sum_underflow
    largest_product = f.spread + np.abs(of.shift)
    kappa, of_row, common = _kappa(t), forward.entry + forward.common, np.exp(forward.common)
    lifted = np.exp(forward.entry + kappa)
    growth_factor, of_dot = f.growth * lifted + expm1_upwards(forward.entry + kappa), spread * np.exp(kappa)
    underflow = t.weight_underflow * common * ((growth_factor + lifted) * (largest_product + spread + delta) + of_dot)
    error *= common * growth_factor + expm1_upwards(forward.common)
    error += common * (growth_factor * (spread + delta) + of_dot + delta)
    error *= weights
    error += underflow
    ds = np.multiply(f.turned, weights, out=f.turned)
    return Tile(weights, weights, ds, error, error, f.growth * np.exp(of_row) + expm1_upwards(of_row))


def _spread(problem: AttentionProblem, g: Operand, v: Operand, dp: Array) -> Array:
    """Return E: how far a kernel's dP may be from the oracle's."""
    t = problem.terms
    spread: Array = g.reach @ v.reach.mT
    spread *= t.grad_dot.terms + t.product + 2 * t.grad_weights * (t.grad_dot.positive + t.product)
    spread += (t.grad_dot.result + t.grad_weights) * np.abs(dp)
    if g.rad is not None:
        spread += g.rad @ v.reach.mT
    if v.rad is not None:
        spread += g.reach @ v.rad.mT
    if t.input_underflow:
        spread += t.input_underflow * (g.reach.sum(-1)[..., :, None] + v.reach.sum(-1)[..., None, :])
    spread += 2 * t.sum_underflow
    return spread
