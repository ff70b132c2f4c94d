"""Softmax over visible entries and its VJP. Each returned value comes with a radius: the exact
value lies in value ± radius.

The weights are exp(s_j)/Σ_visible exp(s_l) on visible entries, and exactly 0 on masked entries. A
kernel's weight is p_j·exp(±ρ_j), where

    ρ_j = slope·(|s_j| + |m| + |lse|) + exp + rescale + sum + normalise − log(1 − λ)

`oracles.error_analysis.roundings` defines the summands. The score is an input, so it has no error.
λ bounds the relative error of the sum, as in `oracles.error_analysis.output_error`.
"""

from typing import Any, NamedTuple, Unpack

import numpy as np

from oracles import arrays
from oracles.ball import ROUNDOFF, Array, Ball, ball, gamma
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.error_analysis.computation import Sizes
from oracles.error_analysis.ranges import Ranges, ranges
from oracles.error_analysis.roundings import Terms, terms
from oracles.error_analysis.visible_keys import Mask
from oracles.exact import attention as arb_attention
from oracles.judging import Evaluation, settle
from oracles.options import Answer, AnswerOptions, answer, takes


@takes(AnswerOptions)
def hard_masked_softmax(
    scores: Any,
    mask: Any = None,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return the softmax of each row's visible scores, with 0 on masked entries. The result is an
    `Enclosure` (value ± radius).

    weights[j] = exp(scores[j]) / Σ_visible exp(scores[l]).

    Shapes: scores (…, n) with n ≥ 1, mask broadcasts to it; the result is like scores.
    Edge cases: masked scores are never read. A row without a visible entry is 0; under
    `conventions.dead_rows` = nan it is NaN, under uniform it is 1/n everywhere. A NaN or ±∞ on a
    visible entry makes its row NaN with an infinite radius.
    Raises ValueError and TypeError for shapes, types and values that do not fit.
    """
    s, allowed, t, (arithmetic, conventions, method) = _checked(scores, mask, options)
    evaluation = Evaluation(
        arithmetic=arithmetic,
        method=method,
        fast=lambda: (_forward(s, allowed, t, ranges(arithmetic), conventions),),
        arb=lambda: arb_attention.hard_masked_softmax(s, allowed, conventions=conventions),
        work=8 * s.size,
        vacuous=lambda balls: (_uniform_is_accepted(balls[0], allowed),),
    )
    return settle(evaluation)[0]


@takes(AnswerOptions)
def hard_masked_softmax_vjp(
    scores: Any,
    mask: Any,
    grad_weights: Any,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return the gradient of Σ grad_weights ⊙ weights with respect to the scores. The result is an
    `Enclosure` (value ± radius).

    With w = weights and g = grad_weights: dscores = w ⊙ (g − Σ_l w_l g_l), and 0 on masked entries.

    Shapes: mask broadcasts to scores, grad_weights and the result are like scores.
    Edge cases: masked entries of grad_weights are never read. A row without a visible entry has the
    gradient 0. There `dead_rows` = nan leaves the gradient unchecked, and `dead_rows` = uniform
    with `dead_gradients` = flow gives the gradient of a row of equal scores.
    Raises ValueError and TypeError for shapes, types and values that do not fit.
    """
    s, allowed, t, (arithmetic, conventions, method) = _checked(scores, mask, options)
    g = arrays.float_array(grad_weights, "grad_weights", arithmetic=arithmetic)
    if g.shape != s.shape:
        raise ValueError(f"grad_weights has shape {g.shape}, but should be {s.shape} like scores.")
    evaluation = Evaluation(
        arithmetic=arithmetic,
        method=method,
        fast=lambda: (_vjp(s, allowed, g, t, ranges(arithmetic), conventions),),
        arb=lambda: arb_attention.hard_masked_softmax_vjp(s, allowed, g, conventions=conventions),
        work=16 * s.size,
    )
    return settle(evaluation)[0]


class _Weights(NamedTuple):
    """The computed weights p, and for each weight the error p(exp ρ − 1) + underflow before it is
    stored. `allowed` marks the entries that are read, and `dead` the fully masked rows.
    """

    p: Array
    error: Array
    allowed: Mask
    dead: Mask


def _checked(scores: Any, mask: Any, options: AnswerOptions) -> tuple[Array, Mask | None, Terms, Answer]:
    """Validate the arguments of a softmax. Return the scores, the mask, the rounding terms of the
    budget, and the answer's options.
    """
    resolved = answer(options)
    arithmetic, conventions, _ = resolved
    s = arrays.float_array(scores, "scores", arithmetic=arithmetic)
    if s.shape[-1] == 0:
        raise ValueError(f"scores has shape {s.shape}, but should have at least one entry in a row.")
    t = terms(arithmetic, Sizes(1, s.shape[-1], 0, 0, 1.0))
    return s, arrays.bool_mask(mask, "mask", s.shape, conventions.mask_polarity), t, resolved


def _weights(s: Array, allowed: Mask | None, t: Terms, most: Ranges, uniform: bool) -> _Weights:
    """Return the weights of every row and their errors. A fully masked row has weights 0, or 1/n
    everywhere if `uniform`.

    The errors of a row are NaN, so that its radii become ∞, where a score or the sum may overflow.
    A score may be held in units of ln 2, where it is 1.44 times as large. An overflow reaches
    masked entries too, because exp(−∞ − NaN) is NaN.
    """
    visible = np.ones(s.shape, dtype=bool) if allowed is None else allowed
    fully_masked = np.asarray(~visible.any(axis=-1, keepdims=True))
    if uniform:
        visible, s = visible | fully_masked, np.where(fully_masked, 0.0, s)
    s = np.where(visible, np.where(np.isfinite(s), s, np.nan), -np.inf)
    m = np.where(visible.any(axis=-1, keepdims=True), s.max(axis=-1, keepdims=True), 0.0)
    e = np.exp(s - m)
    row_sum = e.sum(axis=-1, keepdims=True)
    row_sum = np.where(row_sum == 0, 1.0, row_sum)
    p, lse, n = np.where(visible, e / row_sum, 0.0), m + np.log(row_sum), s.shape[-1]
    of_row = t.anew.of_row(np.abs(m), np.abs(lse)) + t.stored_differences * np.abs(m)
    row_error = of_row + t.rescaled + t.sum.positive + t.summed_weights
    score_size = np.where(visible, np.abs(s), 0.0)
    row_error = np.where(
        (2 * score_size.max(axis=-1, keepdims=True) <= most.work) & (n * (1 + 2.0**-6) <= most.sums), row_error, np.nan
    )
    tau = (t.anew.slope + t.stored_differences) * score_size
    inflation = 1 + 8 * gamma(n + 8, ROUNDOFF)
    lam = (
        np.sum((p + t.weight_underflow) * np.expm1(tau + row_error), axis=-1, keepdims=True) + n * t.weight_underflow
    ) * inflation
    rho = tau + row_error + t.normalise - np.log1p(-np.where(lam < 1, lam, np.nan))
    error = np.where(
        visible, ((p + t.weight_underflow) * np.expm1(rho) + t.weight_underflow) * inflation, 0.0 * row_error
    )
    return _Weights(p, error, visible, fully_masked)


def _forward(s: Array, allowed: Mask | None, t: Terms, most: Ranges, conventions: Conventions) -> Ball:
    """Return the weights as a ball (value ± radius), rounded to the format of weights and to the
    output format.
    """
    with np.errstate(all="ignore"):
        w = _weights(s, allowed, t, most, conventions.dead_rows == "uniform")
        relative = t.weights + t.output * (1 + t.weights)
        rad = np.where(w.allowed, w.error + relative * (w.p + w.error) + t.output_underflow, w.error)
        result = ball(w.p, rad * (1 + 2.0**-48))
    if conventions.dead_rows == "nan":
        return Ball(np.where(w.dead, np.nan, result.mid), result.rad)
    return result


def _vjp(s: Array, allowed: Mask | None, g: Array, t: Terms, most: Ranges, conventions: Conventions) -> Ball:
    """Return the gradient dS = p ⊙ T as a ball (value ± radius), where T = g − Σ p g.

    The error follows from the product rule. The error of Σ p g is the error of p (of its value, its
    storage and its sum) times |g|.

    A kernel that computes p g − p Σ p g also rounds p g, which the form p·T does not have. Because
    |g| ≤ |T| + Σ p|g|, this rounding is smaller than the counted ones, unless p g is stored in
    fewer bits. A kernel that stores weights and dP, as PyTorch does operator by operator on a GPU,
    stores p g too. There the error grows by that rounding of p|g|. It also grows by twice that
    rounding of p Σ p|g|, because both the sum and the product are stored, and by what underflows.

    The radius is ∞ where T may overflow, or dS in the format in which it is stored. It is ∞ in a
    whole row where Σ p g may overflow, at masked entries too, because 0·∞ is NaN. A masked entry of
    g therefore matters only by its size.
    """
    with np.errstate(all="ignore"):
        w = _weights(s, allowed, t, most, conventions.dead_rows_flow)
        gradient_size = np.where(np.isfinite(g), np.abs(g), 0.0)
        g = np.where(w.allowed, np.where(np.isfinite(g), g, np.nan), 0.0)
        stored_error = w.error + float(
            np.expm1(t.weights + t.saved_weights + t.sum.positive + t.normalise + t.delta_sum.positive)
        ) * (w.p + w.error)
        weighted_mean = (w.p * g).sum(axis=-1, keepdims=True)
        spread = (stored_error * np.abs(g)).sum(axis=-1, keepdims=True) + t.sum_underflow
        centred = g - weighted_mean
        centred_size = np.abs(centred) + spread
        mean_size = ((w.p + stored_error) * np.abs(g)).sum(axis=-1, keepdims=True)
        error = w.error * centred_size + w.p * spread
        error = (
            error
            + float(np.expm1(t.grad_scores + t.saved_weights)) * ((w.p + w.error) * centred_size)
            + t.grad_underflow
        )
        if product := min(t.saved_weights, t.grad_weights):
            product_sizes = (w.p + stored_error) * np.abs(g)
            error = (
                error
                + product * (product_sizes + 2 * (w.p + w.error) * mean_size)
                + t.grad_underflow * (1 + s.shape[-1] * (w.p + w.error))
            )
        in_range = (
            (2 * mean_size <= most.work)
            & (2 * centred_size <= most.work)
            & (2 * (np.abs(w.p * centred) + error) <= most.grad_scores)
        )
        error = np.where(in_range, error + t.output * (np.abs(w.p * centred) + error) + t.output_underflow, np.inf)
        inflation = 1 + 8 * gamma(s.shape[-1] + 8, ROUNDOFF)
        blocked = np.where(2 * (gradient_size + mean_size) <= most.work, 0.0, np.inf)
        mid, rad = np.where(w.allowed, w.p * centred, 0.0), np.where(w.allowed, error * inflation, blocked)
    if conventions.dead_rows == "nan":
        mid, rad = np.where(w.dead, np.nan, mid), np.where(w.dead, np.inf, rad)
    return ball(mid, rad)


def _uniform_is_accepted(weights: Ball, allowed: Mask | None) -> bool:
    """Return whether the budget is too wide to judge: it accepts equal weights everywhere, and it is
    as wide as the range of a weight, from 0 to 1.
    """
    if not (weights.rad >= 0.5).any():
        return False
    may = np.ones(weights.mid.shape, dtype=bool) if allowed is None else allowed
    count = np.maximum(may.sum(axis=-1, keepdims=True), 1)
    live = may & (count > 1)
    accepted = (np.abs(1.0 / count - weights.mid) <= weights.rad) & (weights.rad >= 0.5)
    return bool(live.any() and (accepted | ~live).all())
