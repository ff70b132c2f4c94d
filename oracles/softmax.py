"""Hard-masked softmax and its VJP, each value in a proved interval, value ± radius.

Weights are exp(s_j)/Σ_allowed exp(s_l) on visible entries and exactly 0 on masked entries. A
kernel's weight is p_j·exp(±ρ_j) with ρ_j = slope·(|s_j| + |m| + |lse|) + exp + rescale + sum +
normalise − log(1 − λ) in the terms of `oracles.error_analysis.roundings`: the score is an input
without an error, and λ bounds the relative error of the sum, as in
`oracles.error_analysis.output_error`.
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
    """The softmax of each row's visible scores, and 0 on masked ones; the result is an `Enclosure`.

    weights[j] = exp(scores[j]) / Σ_allowed exp(scores[l]).

    Shapes: scores (…, n) with n ≥ 1, mask broadcasts to it; the result is like scores.
    Edge cases: a row with no visible entry is 0 (NaN, or 1/n throughout, by
    `conventions.dead_rows`); masked scores are never read; a NaN or ±∞ on a visible entry makes its
    row NaN with an infinite radius. Raises ValueError and TypeError for shapes, types and values
    that do not fit.
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
    """The gradient of Σ grad_weights ⊙ weights with respect to the scores; the result is an
    `Enclosure`.

    dscores = w ⊙ (g − Σ_l w_l g_l), and 0 on masked entries.

    Shapes: mask broadcasts to scores, grad_weights and the result are like scores.
    Edge cases: a row with no visible entry gets 0 (unchecked under `dead_rows` = nan, or what equal
    scores get, by `dead_gradients`); masked entries of g are never read.
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
    """p, the error p(exp ρ − 1) + underflow of a weight before it is stored, what may be read, and
    fully masked rows.
    """

    p: Array
    error: Array
    allowed: Mask
    dead: Mask


def _checked(scores: Any, mask: Any, options: AnswerOptions) -> tuple[Array, Mask | None, Terms, Answer]:
    """The arguments of a softmax, validated, and its terms."""
    asked = answer(options)
    arithmetic, conventions, _ = asked
    s = arrays.float_array(scores, "scores", arithmetic=arithmetic)
    if s.shape[-1] == 0:
        raise ValueError(f"scores has shape {s.shape}, but should have at least one entry in a row.")
    t = terms(arithmetic, Sizes(1, s.shape[-1], 0, 0, 1.0))
    return s, arrays.bool_mask(mask, "mask", s.shape, conventions.mask_polarity), t, asked


def _weights(s: Array, allowed: Mask | None, t: Terms, most: Ranges, uniform: bool) -> _Weights:
    """The weights of every row; a fully masked row's are 0, or 1/n throughout where it is
    `uniform`.

    A row's errors are NaN, which makes radii of ∞, where a score may overflow in units of ln 2,
    1.44 times as large, or the sum: at masked entries too, as exp(−∞ − NaN) is NaN.
    """
    may = np.ones(s.shape, dtype=bool) if allowed is None else allowed
    dead = np.asarray(~may.any(axis=-1, keepdims=True))
    if uniform:
        may, s = may | dead, np.where(dead, 0.0, s)
    s = np.where(may, np.where(np.isfinite(s), s, np.nan), -np.inf)
    m = np.where(may.any(axis=-1, keepdims=True), s.max(axis=-1, keepdims=True), 0.0)
    e = np.exp(s - m)
    total = e.sum(axis=-1, keepdims=True)
    total = np.where(total == 0, 1.0, total)
    p, lse, n = np.where(may, e / total, 0.0), m + np.log(total), s.shape[-1]
    row = t.anew.of_row(np.abs(m), np.abs(lse)) + t.rescaled + t.sum.positive + t.summed_weights
    size = np.where(may, np.abs(s), 0.0)
    row = np.where((2 * size.max(axis=-1, keepdims=True) <= most.work) & (n * (1 + 2.0**-6) <= most.sums), row, np.nan)
    tau = t.anew.slope * size
    inflation = 1 + 8 * gamma(n + 8, ROUNDOFF)
    lam = (
        np.sum((p + t.weight_underflow) * np.expm1(tau + row), axis=-1, keepdims=True) + n * t.weight_underflow
    ) * inflation
    rho = tau + row + t.normalise - np.log1p(-np.where(lam < 1, lam, np.nan))
    error = np.where(may, ((p + t.weight_underflow) * np.expm1(rho) + t.weight_underflow) * inflation, 0.0 * row)
    return _Weights(p, error, may, dead)


def _forward(s: Array, allowed: Mask | None, t: Terms, most: Ranges, conventions: Conventions) -> Ball:
    """The weights as a ball, rounded to the format of weights and to the output's."""
    with np.errstate(all="ignore"):
        w = _weights(s, allowed, t, most, conventions.dead_rows == "uniform")
        relative = t.weights + t.output * (1 + t.weights)
        rad = np.where(w.allowed, w.error + relative * (w.p + w.error) + t.output_underflow, w.error)
        result = ball(w.p, rad * (1 + 2.0**-48))
    if conventions.dead_rows == "nan":
        return Ball(np.where(w.dead, np.nan, result.mid), result.rad)
    return result


def _vjp(s: Array, allowed: Mask | None, g: Array, t: Terms, most: Ranges, conventions: Conventions) -> Ball:
    """dS = p ⊙ T with T = g − Σ p g, by the product rule; Σ p g is off by what p is, stored and
    summed, against |g|.

    A kernel that takes p g − p Σ p g rounds p g, which no p·T has: by less than is counted, as |g|
    ≤ |T| + Σ p|g|, unless p g is stored in fewer bits.  So it is operator by operator, where
    weights and dP are stored (PyTorch on a GPU): there it is off by that rounding of p|g| and,
    twice, of p Σ p|g|, whose sum and product are stored, and by what underflows.

    The radius is ∞ where T, or dS in the format it is stored in, may overflow, and throughout a row
    where Σ p g may, at masked entries too: 0·∞ is NaN. So only the size of a masked entry of g
    matters.
    """
    with np.errstate(all="ignore"):
        w = _weights(s, allowed, t, most, conventions.dead_rows_flow)
        size = np.where(np.isfinite(g), np.abs(g), 0.0)
        g = np.where(w.allowed, np.where(np.isfinite(g), g, np.nan), 0.0)
        stored = w.error + float(
            np.expm1(t.weights + t.saved_weights + t.sum.positive + t.normalise + t.delta_sum.positive)
        ) * (w.p + w.error)
        mean = (w.p * g).sum(axis=-1, keepdims=True)
        spread = (stored * np.abs(g)).sum(axis=-1, keepdims=True) + t.sum_underflow
        centred = g - mean
        reach = np.abs(centred) + spread
        mean_size = ((w.p + stored) * np.abs(g)).sum(axis=-1, keepdims=True)
        error = w.error * reach + w.p * spread
        error = error + float(np.expm1(t.grad_scores + t.saved_weights)) * ((w.p + w.error) * reach) + t.grad_underflow
        if product := min(t.saved_weights, t.grad_weights):
            sizes = (w.p + stored) * np.abs(g)
            error = (
                error
                + product * (sizes + 2 * (w.p + w.error) * mean_size)
                + t.grad_underflow * (1 + s.shape[-1] * (w.p + w.error))
            )
        fits = (
            (2 * mean_size <= most.work)
            & (2 * reach <= most.work)
            & (2 * (np.abs(w.p * centred) + error) <= most.grad_scores)
        )
        error = np.where(fits, error + t.output * (np.abs(w.p * centred) + error) + t.output_underflow, np.inf)
        inflation = 1 + 8 * gamma(s.shape[-1] + 8, ROUNDOFF)
        blocked = np.where(2 * (size + mean_size) <= most.work, 0.0, np.inf)
        mid, rad = np.where(w.allowed, w.p * centred, 0.0), np.where(w.allowed, error * inflation, blocked)
    if conventions.dead_rows == "nan":
        mid, rad = np.where(w.dead, np.nan, mid), np.where(w.dead, np.inf, rad)
    return ball(mid, rad)


def _uniform_is_accepted(weights: Ball, allowed: Mask | None) -> bool:
    """Whether equal weights are within the budget everywhere, the budget being as wide as a weight, 1."""
    if not (weights.rad >= 0.5).any():
        return False
    may = np.ones(weights.mid.shape, dtype=bool) if allowed is None else allowed
    count = np.maximum(may.sum(axis=-1, keepdims=True), 1)
    live = may & (count > 1)
    accepted = (np.abs(1.0 / count - weights.mid) <= weights.rad) & (weights.rad >= 0.5)
    return bool(live.any() and (accepted | ~live).all())
