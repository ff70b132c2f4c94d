"""The backward pass of attention (VJP) with its error.

s are the scores, p_ij = exp(s_ij − lse_i) the weights, o the output and g its cotangent. dP = g·vᵀ,
δ_i = Σ_c g_ic o_ic = Σ_j p_ij dP_ij, T = dP − δ and dS = p ⊙ T:

    dq = scale·dS·k,   dk = scale·dSᵀ·q,   dv = pᵀ·g.

**Weights.** A kernel computes p̃_ij = p_ij·exp(t_ij + r_i). |t_ij| ≤ τ_ij + κ_i (`Rows.entry`)
belongs to the entry. |r_i| ≤ ρ_i (`Rows.common`) is the error of the row's sum, which all its
weights share. Where p̃ underflows there is an absolute error as well.

**dP** is off by at most E_ij = grad_dot·(|g||v|ᵀ, |dP|)_ij and the error of its storage.

**δ** is one number for each row, off by Δ_i (`oracles.error_analysis.delta`).

**dS.** Up to roundings, p̃(T + E − Δ) − p·T has two parts. One part is common to a row: −p·exp(r)·Δ
+ (exp(r) − 1)·p·T. The other part is at most

    w_ij = exp(ρ)·[p(exp(τ + κ) − 1)·z + p·E] + underflow,   z = |T| + E + Δ.

In dq the common part is bounded by |Σ_j p_j k_j|·Δ and by |dq|·(exp(ρ) − 1): in both sums signs
cancel. In dk it is Σ_i p_ij|q_i|Δ_i.  Roundings of dS, and of the terms of a sum, are exponents K
of each entry. Roundings of the sum itself are `Sum`s of (Σ|dS||k|, |dq|).

**The cotangent g_lse of the log-sum-exp.** With it T is dP − δ + g_lse. A kernel may add g_lse to
dP − δ, or subtract it from δ. Or it computes p̃·(dP − δ) + p̃'·g_lse, as autograd does for two
results, where p̃' is exp(u − lse) computed a second time. In the last form the two weights have two
errors, and these do not share the factor T, which may cancel. So z has |dP − δ| + |g_lse| ≤ |T| +
2|g_lse| in place of |T|. The part of p̃ that is common to a row stays with p·T. p̃' adds at most
2·(exp(ρ) − 1)·p·|g_lse|, which counts as an error of each entry alone.

In the last form both products may be stored, and so may their sum. The rounding of storage
therefore counts twice, and the underflow three times. Each product must be in range, because their
sum may cancel. T with g_lse must be in range too: if dP and δ are within the limits of
`oracles.error_analysis.delta`, |g_lse| may be a sixth of the range.

**Heads that share a key head.** A kernel may add up all rows of dk and dv at once. Or it adds up
the rows of each query head, rounds each sum to the output's format, and adds up the heads. Then
each head h adds |dk_h + e_h|·u, with the output's u and Σ|e_h| ≤ E, where E is the bound of the
whole sum's error. The addition of the heads acts on that once more. So E becomes (1 + u)·E + u·(1 +
queries_sum.result)·Σ_h|dk_h|, plus underflow.

**Overflow.** All this holds as long as no step overflows.

- Where |g||v|ᵀ (visible or masked), δ or T may overflow, the row's errors are ∞.
- Where a dP or dS, scaled or not, may leave the format in which it is stored, its error is ∞.
- Where a sum of |dS||k|, |dS||q| or p|g| may leave the range of its accumulator, before or after it
  is scaled, the gradient's error is ∞.
- Where a row's scores or Σe may overflow, the whole row may be NaN, at masked keys too, because
  exp(−∞ − NaN) and 0·NaN are NaN. Then dk and dv of all keys and the biases of the row are unknown.
- Where δ may overflow, dk and the row's biases are unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, expm1_upwards, gamma
from oracles.error_analysis.delta import delta_spread
from oracles.error_analysis.forward import rows_forward, without_sink
from oracles.error_analysis.grad_scores import Shift, Tile, grad_scores
from oracles.error_analysis.grouped_heads import Gathered, HeadSums
from oracles.error_analysis.output_error import Rows, live
from oracles.error_analysis.scores import AttentionProblem, Block, Operand, over_keys, part, readable


@dataclass
class Gradient:
    """A gradient with the bound of its error. `size` is the sum of the sizes of its terms, where
    such a sum may leave the range.
    """

    value: Array
    error: Array
    size: Array

    @staticmethod
    def zeros(*shape: int) -> "Gradient":
        """Return zeros of a shape."""
        return Gradient(np.zeros(shape), np.zeros(shape), np.zeros(shape))

    def at(self, rows: slice) -> "Gradient":
        """Return a view of some rows."""
        if (rows.start, rows.stop) == (0, self.value.shape[-2]):
            return self
        return Gradient(*(x[..., rows, :] for x in (self.value, self.error, self.size)))


class Gradients(NamedTuple):
    """The gradients of q, k and v, before they are rounded to the output's format."""

    dq: Gradient
    dk: Gradient
    dv: Gradient


class _Pass(NamedTuple):
    """A backward pass: the problem, the cotangents, and the sums to which tiles are added.

    g                   the cotangent of the output
    of_lse              the cotangent of the log-sum-exp (…, n_q, 1), or None
    heads_dk, heads_dv  the sums of each query head alone, if they are rounded
    of_bias, of_sink    the gradients of the bias and of the sinks, or None without these inputs
    """

    p: AttentionProblem
    g: Operand
    of_lse: Array | None
    gradients: Gradients
    heads_dk: HeadSums
    heads_dv: HeadSums
    of_bias: Gathered | None
    of_sink: Gathered | None


class _Rows(NamedTuple):
    """A tile of rows (queries) of the backward pass: its forward pass, its shift, and its
    cotangent.
    """

    rows: slice
    forward: Rows
    shift: Shift
    g: Operand


def gradients(
    problem: AttentionProblem,
    g: Operand,
    dead_rows_are_unchecked: bool,
    of_lse: Array | None = None,
    finer: Sequence[Gathered] = (),
) -> Gradients:
    """Return the gradients of q, k and v. A fully masked row's dq is 0, or NaN with an infinite
    error if it is unchecked.

    `of_lse` (…, n_q, 1) is the cotangent of the log-sum-exp, or None.  The gradients of the bias
    and of the sinks are added to `finer` in this order.
    """
    backward = _begun(problem, g, of_lse, finer)
    problem, found = backward.p, backward.gradients
    for rows in problem.row_tiles():
        here = _rows(backward, rows)
        if problem.elementwise:
            _lose_overflowing_rows(backward, here)
        mean: Array | float = 0.0
        slack: Array | float = 0.0
        for block in problem.blocks(rows):
            tile = grad_scores(problem, block, here.forward, here.shift, here.g, backward.of_bias)
            of_keys = _add_block(backward, block, here.g, tile)
            if problem.elementwise:
                mean = mean + (tile.p if tile.h is None else tile.p * tile.h) @ block.k.value
                slack = slack + 8 * gamma(problem.n_k + 8, ROUNDOFF) * of_keys
        if problem.elementwise:
            _add_common_error(problem, found.dq.at(rows), here, np.abs(mean) + slack)
        if dead_rows_are_unchecked:
            found.dq.value[..., rows, :] = live(found.dq.value[..., rows, :], here.forward.dead, np.nan)
    _finish(backward)
    return found


def _begun(problem: AttentionProblem, g: Operand, of_lse: Array | None, finer: Sequence[Gathered]) -> _Pass:
    """Return a backward pass to which no tile has been added."""
    if of_lse is not None and problem.elementwise:
        t = problem.terms
        t = replace(t, grad_scores=2 * t.grad_scores, grad_underflow=3 * t.grad_underflow)
        problem = problem._replace(terms=t)
    leading_axes = problem.q.shape[:-2]
    shapes = (problem.n_q, problem.q.shape[-1]), (problem.n_k, problem.q.shape[-1]), (problem.n_k, problem.v.shape[-1])
    results = Gradients(*(Gradient.zeros(*leading_axes, *shape) for shape in shapes))
    heads_dk, heads_dv = (HeadSums.of(x.value.shape, problem.n_q, problem.group) for x in (results.dk, results.dv))
    of_bias = finer[0] if problem.features is not None and problem.features.bias is not None else None
    of_sink = finer[-1] if problem.features is not None and problem.features.sink is not None else None
    return _Pass(problem, g, of_lse, results, heads_dk, heads_dv, of_bias, of_sink)


def _rows(backward: _Pass, rows: slice) -> _Rows:
    """Return the forward pass of a tile of rows, and its shift. The gradients of the rows' sinks
    are added.
    """
    problem, g = backward.p, part(backward.g, rows)
    forward = rows_forward(problem, rows, g if problem.elementwise else None)
    shift = _shift(problem, rows, forward, g, delta_spread(problem, rows, forward, g), backward.of_lse)
    if backward.of_sink is not None:
        backward.of_sink.add(rows, slice(0, 1), *_sinks(problem, rows, forward, shift))
    return _Rows(rows, forward, shift, g)


def _lose_overflowing_rows(backward: _Pass, here: _Rows) -> None:
    """Set the errors to ∞ in all results that depend on a row that may overflow."""
    problem, forward, of_bias = backward.p, here.forward, backward.of_bias
    known = np.isfinite(forward.sums.shared.total) & (problem.n_k * (1 + 2.0**-6) <= problem.ranges.sums)
    lost = live(~known, forward.dead, False)
    if backward.of_sink is not None:  # exp(sink − m) may overflow, and all weights be lost
        lost = lost | forward.lost
    backward.gradients.dv.error[lost.any(axis=(-2, -1))] = np.inf
    lost = lost | np.isinf(here.shift.error)
    backward.gradients.dk.error[lost.any(axis=(-2, -1))] = np.inf
    if of_bias is not None and lost.any():
        unknown = np.broadcast_to(np.where(lost, np.inf, 0.0), (*lost.shape[:-1], problem.n_k))
        of_bias.add(here.rows, slice(0, problem.n_k), np.broadcast_to(0.0, unknown.shape), unknown)


def _add_block(backward: _Pass, block: Block, g: Operand, tile: Tile) -> Array:
    """Add a tile of dS and of weights to the gradients. Return Σ|k| over the keys that are visible
    to each row.
    """
    problem, (q, k, allowed) = backward.p, (block.q, block.k, block.allowed)
    results = backward.gradients
    dq, dk, dv = results.dq.at(block.rows), results.dk.at(block.keys), results.dv.at(block.keys)
    visible_rows = None if allowed is None else allowed.mT
    ds, error, weights = (x.mT for x in (tile.ds, tile.error, of_values(problem, block, tile.p)))
    dq.value += tile.ds @ k.value
    dk.value += ds @ q.value
    backward.heads_dk.add(block.rows, block.keys, ds, q.value)
    backward.heads_dv.add(block.rows, block.keys, weights, g.value)
    of_keys = readable(problem, k.reach, allowed)
    dq.error += _product_error(problem, (tile.ds, tile.own, tile.error), k, of_keys)
    dk.error += _product_error(problem, (ds, error, error), q, readable(problem, q.reach, visible_rows))
    mid, dv_error = _weighted(problem, block, tile, g)
    dv.value += mid
    dv.error += dv_error
    if not _fits(problem, tile, block, g):
        grad_size = np.abs(tile.ds) + tile.error
        dq.size += grad_size @ k.reach
        dk.size += grad_size.mT @ q.reach
        dv.size += weights @ g.reach
    return of_keys


def _add_common_error(problem: AttentionProblem, dq: Gradient, here: _Rows, mean: Array | float) -> None:
    """Add to some rows of dq the error that is common to a row. `mean` is an upper bound of |Σ_j
    p_j k_j|.
    """
    c, common, delta = abs(problem.scale), here.forward.common, here.shift.error
    dq.error += live(c * np.exp(common) * delta * mean, here.forward.dead)
    dq.error += expm1_upwards(common, c) * np.abs(dq.value)
    np.copyto(dq.error, np.inf, where=np.isinf(delta))


def _finish(backward: _Pass) -> None:
    """Scale dq and dk, and add the errors of whole sums: of their roundings, their storage and a
    possible overflow.
    """
    problem, (dq, dk, dv) = backward.p, backward.gradients
    t, c = problem.terms, abs(problem.scale)
    # The scores of level rows hide an unknown key or query; its products do not.
    if problem.level is not None and problem.k.unknown is not None:
        np.copyto(dq.value, np.nan, where=problem.level & problem.k.unknown.any(axis=-2, keepdims=True))
    if problem.level is not None and problem.q.unknown is not None:
        np.copyto(dk.value, np.nan, where=(problem.level & (problem.q.unknown > 0)).any(axis=-2, keepdims=True))
    dq.value *= problem.scale
    dk.value *= problem.scale
    for x, of in ((dq, t.keys_sum), (dk, t.queries_sum), (dv, t.queries_sum)):
        x.error += of.result * (np.fmax(np.abs(x.value), 0.0) + x.error)  # fmax takes NaN for 0
    dk.error += backward.heads_dk.rounded(
        t, dk.error, c, min(problem.ranges.output, problem.ranges.scaled * min(1.0, c))
    )
    dv.error += backward.heads_dv.rounded(t, dv.error, 1.0, problem.ranges.output)
    if problem.ranges.scaled < np.inf:
        _store_before_the_scale(problem, dq, 1)
        _store_before_the_scale(problem, dk, problem.group)
    if problem.elementwise:
        _lose_what_overflows(backward)
    inflation = 1 + 8 * gamma(max(problem.n_q, problem.n_k) + problem.q.shape[-1] + problem.v.shape[-1] + 8, ROUNDOFF)
    for x in (dq, dk, dv):
        x.error *= inflation


def _lose_what_overflows(backward: _Pass) -> None:
    """Set to ∞ the errors of gradients that have an operand or a partial sum that may overflow."""
    problem, results = backward.p, backward.gradients
    scale_factor = max(1.0, abs(problem.scale))
    # An operand may overflow when it is scaled. A masked one counts too: 0 times ∞ is NaN.
    for side, x in ((problem.k, results.dq), (problem.q, results.dk)):
        np.copyto(
            x.error, np.inf, where=(side.reach * (1.5 * scale_factor) > problem.ranges.work).any(axis=-2, keepdims=True)
        )
    if any(problem.rounded_beyond(x) for x in (problem.q, problem.k, problem.v, backward.g)):
        for x in results:
            x.error[...] = np.inf
    for x, factor in ((results.dq, scale_factor), (results.dk, scale_factor), (results.dv, 1.0)):
        x.error[~(2 * (factor * x.size + x.error) <= problem.ranges.gradients)] = np.inf


def _store_before_the_scale(problem: AttentionProblem, x: Gradient, heads: int) -> None:
    """Add the loss of a gradient of q or k that is stored in fewer bits, for each head, before it
    is multiplied by the scale. The loss is its underflow, and ∞ where it may overflow.
    `scale_on_inputs` counts its rounding.

    The stored number is the gradient divided by the factor of q, or k: the scale, its root or 1. An
    exact 0 loses nothing.
    """
    x.error += np.where(x.error > 0, heads * problem.terms.scaled_underflow, 0.0)
    largest = problem.ranges.scaled * min(1.0, abs(problem.scale))
    in_range = (x.error == 0) | ((np.abs(x.value) + x.error) * (1 + 2.0**-6) <= largest)
    np.copyto(x.error, np.inf, where=~in_range)


def _shift(
    problem: AttentionProblem, rows: slice, forward: Rows, g: Operand, delta: Array, of_lse: Array | None
) -> Shift:
    """Return the number of each row that is subtracted from dP to give T, with its error.

    The difference δ − g_lse is rounded, and a cotangent of another base is converted.  If the
    log-sum-exp excludes the sink, its cotangent multiplies the weights of a softmax without the
    sink, and the sink gets no part of it. These weights are larger by 1/(1 − w_sink), and the bound
    counts that. One part of their error is common to the row and the rest belongs to each entry;
    the bound counts the error as both.  (A kernel that computes 1 − w_sink has a larger error where
    that is small: it is not covered.)
    """
    shift = (g.raw * forward.out).sum(axis=-1, keepdims=True)
    if of_lse is None:
        return Shift(shift, delta, None, np.zeros(shift.shape), shift, delta)
    cotangent = live(of_lse[..., rows, :], forward.dead)
    relative = np.zeros(shift.shape)
    if (sinkless := without_sink(problem, rows, forward)) is not None:
        factor, relative, fully_masked = sinkless
        cotangent, relative = live(cotangent * factor, fully_masked), live(relative, fully_masked)
    cotangent_size = np.abs(cotangent)
    error = delta + problem.terms.biased * (np.abs(shift) + delta + cotangent_size) + relative * cotangent_size
    error = np.where((6 * cotangent_size <= problem.ranges.work) & (relative < np.inf), error, np.inf)
    apart = cotangent_size if problem.elementwise else None
    return Shift(
        shift - cotangent,
        error,
        apart,
        relative * cotangent_size,
        *((shift, delta) if sinkless is not None else (shift - cotangent, error, apart)),
    )


def _sinks(problem: AttentionProblem, rows: slice, forward: Rows, of: Shift) -> tuple[Array, Array]:
    """Return the gradient of each row's sink, −w_sink·shift, and its error. The error is ∞ where
    the gradient may leave the format in which dS is stored.
    """
    weight, spread = sink_weights(problem, rows, forward)
    shift_size = np.abs(of.sink) if of.sink_apart is None else np.abs(of.sink) + 2 * of.sink_apart
    error = (
        spread * (shift_size + of.sink_error)
        + weight * of.sink_error
        + problem.terms.grad_underflow * (weight + spread > 0)
    )
    error = np.where(2 * (weight + spread) * (shift_size + of.sink_error) <= problem.ranges.grad_scores, error, np.inf)
    return -weight * of.sink, error * (1 + 2.0**-40)


def sink_weights(problem: AttentionProblem, rows: slice, forward: Rows) -> tuple[Array, Array]:
    """Return w_sink = exp(sink − lse), and how far a kernel's may be from it. Both are 0 where the
    sink is −∞.
    """
    assert problem.features is not None
    assert problem.features.sink is not None
    t, sink = problem.terms, problem.features.sink[..., rows, :]
    no_sink = sink == -np.inf
    weight = np.exp(sink - forward.lse)
    slope = t.anew.slope + t.stored_differences
    exponent = slope * np.where(no_sink, 0.0, np.abs(sink)) + forward.entry + forward.common + t.grad_scores
    spread = expm1_upwards(exponent, weight + t.weight_underflow) + t.weight_underflow
    return np.where(no_sink, 0.0, weight), np.where(no_sink, 0.0, spread)


def _fits(problem: AttentionProblem, tile: Tile, block: Block, g: Operand) -> bool:
    """Return whether this tile's share of a sum over keys or queries is so small that no such sum
    can leave the range of the gradients.
    """
    longest = max(problem.n_k * block.k.length.max(initial=0.0), problem.n_q * block.q.length.max(initial=0.0))
    largest_share = max(tile.largest * longest * max(1.0, abs(problem.scale)), problem.n_q * g.length.max(initial=0.0))
    return not problem.elementwise or bool(4 * largest_share <= problem.ranges.gradients)


def _product_error(problem: AttentionProblem, of: tuple[Array, Array, Array], x: Operand, allowed: Array) -> Array:
    """Return the error of scale·dS·x, given dS, the errors of its entries alone and its whole
    errors. The own errors multiply |x|. dS with its whole errors multiplies the radius of x.
    Underflow is added.

    `allowed` is the sum of |x| over the visible entries. Where it is 0 the gradient is exactly 0.
    """
    t, c, (ds, own_error, error) = problem.terms, abs(problem.scale), of
    total_error = c * (own_error @ x.reach)
    total_error = total_error + max(1.0, c) * (t.grad_underflow * allowed + t.sum_underflow * (allowed > 0))
    if x.rad is not None:
        total_error = total_error + c * ((np.abs(ds) + error) @ x.rad)
    if t.input_underflow:
        total_error = total_error + t.input_underflow * (np.abs(ds) + error).sum(axis=-1, keepdims=True)
    return total_error


def of_values(problem: AttentionProblem, block: Block, weights: Array) -> Array:
    """Return the weights of a tile that multiply values: 0 where dropout leaves them out."""
    kept = problem.kept(block)
    return weights if kept is None else weights * kept


def _weighted(problem: AttentionProblem, block: Block, tile: Tile, g: Operand) -> tuple[Array, Array]:
    """Return pᵀ·g over a tile's rows, and its error: from the exponents of the weights, the
    rounding of the sum, and underflow.
    """
    t, visible_rows = problem.terms, None if block.allowed is None else block.allowed.mT
    weights, cotangent_size = of_values(problem, block, tile.p).mT, g.reach
    exponent = max(t.weights, t.saved_weights) + t.product + t.queries_sum.terms
    growth_factor = np.exp(exponent) * tile.growth + expm1_upwards(exponent)
    if problem.elementwise or growth_factor.shape[-1] > 1:
        error = of_values(problem, block, tile.possible * growth_factor).mT @ cotangent_size
        of_rows = readable(problem, cotangent_size, visible_rows)
    else:
        lifted = growth_factor * cotangent_size
        error = weights @ lifted
        of_rows = readable(problem, cotangent_size + lifted, visible_rows)
    error = error + t.weight_underflow * of_rows + t.sum_underflow * (of_rows > 0)
    if g.rad is not None:
        error = error + np.exp(exponent) * ((tile.possible * (1 + tile.growth)).mT @ g.rad)
    mid = weights @ g.value
    return (mid if g.unknown is None else np.where(over_keys(visible_rows, g.unknown) > 0, np.nan, mid)), error
