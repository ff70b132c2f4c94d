"""A statistical line below the budget of attention: the error that independent roundings are likely
to reach.

The line does not prove anything. A rounding δ_i with |δ_i| ≤ u that moves the result by c_i·δ_i
contributes (c_i·u)² to a variance.  By Hoeffding's inequality Σ c_i δ_i is beyond λ·√Σ(c_i·u)² with
probability at most 2·exp(−λ²/2), if the δ_i are independent and have mean 0 (Higham & Mary, A new
approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, 2019).  λ = 8.4 gives
10⁻¹⁵ for each element, 10⁻⁶ for 10⁹ elements.  All bounds here are first-order bounds.

`oracles.error_analysis.roundings` says how the line counts each rounding (`line`), and which
numbers a rounding may make 0 (`loses`). The names below are its rows.  These errors count linearly:

- Errors that a row has in common, because they are not independent.
- Errors of equal scores, because they are equal: κ equal scores in a row count √κ times (Σ over
  groups of (Σ within)² ≤ κ·Σ of squares, by Cauchy and Schwarz).
- Additions of nearly equal terms, because they are rounded alike. A sum of n such terms x reaches
  the spacing 2nux. It rounds each term to a multiple of that spacing: terms that differ by much
  less have one error, and terms that are spread over several spacings have errors of mean 0. So two
  scores, or two logarithms of |p·v|, count as equal within nu/2 if they are a cluster: if there are
  more pairs within nu/2 than an eighth of the pairs within 4nu, as a smooth density would have.
- A term below 2u of its sum, because the sum may lose it every time.
- A number that underflows or is flushed, because such an error never has mean 0. It may be a number
  below the step of its format (a weight, dP, dS, the output from which δ is computed). It may be an
  operand below the smallest normal number, as in x86's products of bfloat16 (VDPBF16PS). It may be
  a product in a sum, and then the error is the step of the format in which the product is computed.

The line is never above the budget (`ball_attention`), which is a proof.  p, o, T and dS are as in
`oracles.error_analysis.forward` and `oracles.error_analysis.vjp`. M = (Σ|x| + |Σx|)/2 for a sum of
n terms; its additions have the variance n·(u·M)²:

    score         σ² = (dot·√d·M)² + ((slope + stored_scores)·|s|)²
                       + 2·(product² + scale_on_inputs²)·Σ(q·k)²
    after a cap   σ² = (h·σ)² + (cap·|t|)² + (c·cap_absolute)², t = c·tanh(s/c), h = 1 − tanh²
    after a bias  σ² + (biased·(|t| + |bias|))²; the argument of the exponential is the logit, so
                  slope multiplies the logit; where it is read in fewer bits, (bias·|bias|)² more
    difference    σ² + (stored_differences·|s − m|)²
    parts         out has stored_parts·Σ p|v| more, and so has δ
    weight        ε² = exp² + weights² + normalise²
    out           Σ p²σ²(v − o)² + Σ p²ε²(v² + o²) + n·(sum·M)² + N·(rescale·M)²
    denominator   r² = Σ p²(σ² + ε²) + n·sum² + N·rescale², with p²(σ² + ε²) of a sink; out has o²
                  times the same
    dP            E² = d_v·(grad_dot·M)² + (grad_weights·dP)² + 2·product²·Σ(g·v)²
    δ             Σ g²·var(out) + …, or Σ p²(σ² + ε²)T² + Σ p²E² + n·(delta_sum·M)² + r²δ²
    dk, dv        … and Σ_h (output·dk_h)², if each query head h of a key head has its own gradient,
                  rounded to the output's format
    dS            w² = p²(σ² + ε² + (4u)² + grad_scores²)T² + p²E²; p·Δ and r·dS are common to a row
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array
from oracles.error_analysis.computation import partial_roundings, rescalings, slack
from oracles.error_analysis.grouped_heads import HeadSums
from oracles.error_analysis.logits import Tiled
from oracles.error_analysis.roundings import losses, spreads
from oracles.error_analysis.visible_keys import Mask
from oracles.formats import Arithmetic

SHORT = 64
"""Sums of at most this many terms have no line, because it would not be below their budget."""

ROWS_OF_TERMS = 4
"""The number of rows whose terms p·v are compared with each other."""

SCORES_AT_ONCE = 1 << 20
"""The number of scores that are in memory together."""


@dataclass(frozen=True)
class Point:
    """An attention problem in plain numbers.

    visible   the keys that are visible to each row; None for all keys
    features  the bias, softcap and sinks, which change a score before its exponential; with these
              only the output has a line
    group     the number of query heads to which the rows belong
    """

    q: Array
    k: Array
    v: Array
    visible: Mask | None
    scale: float
    arithmetic: Arithmetic
    features: Tiled
    group: int = 1

    def rows(self) -> Iterator[slice]:
        """Return slices of query rows; the scores of one slice fit into memory."""
        step = max(1, SCORES_AT_ONCE // self.k.shape[0])
        return (slice(i, min(i + step, len(self.q))) for i in range(0, len(self.q), step))

    @property
    def deviations(self) -> float:
        """λ: the number of standard deviations in the line."""
        return float(self.arithmetic.likely or 0.0)


@dataclass(frozen=True)
class Softmax:
    """The weights of some rows (queries), and their likely errors. The module's docstring defines
    the letters.

    p, score, entry  weights (rows, keys), σ of their scores, ε of each weight
    out, size        o and Σ p|v|
    lost, lost_size  Σ p and Σ p|v| over keys whose whole weights may be lost: as exponentials
                     (`tail`), or where they are stored
    row, linear      r of the denominator, and the part of its error that a row has in common and
                     that is not independent
    equal            √κ of the row
    thin             how far flushed operands, scores and log-sum-exps may move a score, at most 1
    sink             p of the sink times the deviation √(σ² + ε²) of its weight
    """

    p: Array
    score: Array
    entry: float
    out: Array
    size: Array
    lost: Array
    lost_size: Array
    row: Array
    linear: Array
    equal: Array
    tail: NDArray[np.bool_]
    thin: Array
    sink: Array | float = 0.0


@dataclass(frozen=True)
class GradWeights:
    """dP of some rows, with its likely errors. The module's docstring defines the letters.

    dp, delta, shifted  dP, δ and T = dP − δ
    variance, lost      E² of dP, and the part of dP that may be lost by underflow
    weight              the relative variance of a weight in the backward pass
    """

    g: Array
    dp: Array
    delta: Array
    shifted: Array
    variance: Array
    lost: Array
    weight: Array


@dataclass(frozen=True)
class GradScores:
    """dS of some rows, with its likely errors. The module's docstring defines the letters.

    ds, variance  dS and w²
    delta         Δ ÷ λ
    common        the relative error that a row has in common, ÷ λ
    gone          where a weight or dS may come out as 0 in the backward pass
    of_dp         p times the part of dP that may be lost
    """

    ds: Array
    variance: Array
    delta: Array
    common: Array
    gone: NDArray[np.bool_]
    of_dp: Array


@dataclass
class KeyGradient:
    """dk or dv, summed over the query rows so far, with its likely errors.

    value, variance  the gradient, and the variance from its terms
    size, lost       Σ|terms|, and the part of the terms that may be lost
    heads            the sums of each query head
    """

    value: Array
    variance: Array
    size: Array
    lost: Array
    heads: HeadSums

    @staticmethod
    def zeros(shape: tuple[int, ...], x: Point) -> "KeyGradient":
        """Return the gradient before the first row."""
        value, variance, size, lost = (np.zeros(shape) for _ in range(4))
        return KeyGradient(value, variance, size, lost, HeadSums.of(shape, len(x.q), x.group))

    def add(self, rows: slice, left: Array, right: Array, variance: Array, lost: Array) -> None:
        """Add leftᵀ·right, given the variance of `left` and the part of the product that may be
        lost.
        """
        self.value += left.T @ right
        self.heads.add(rows, slice(None), left.T, right)
        self.variance += variance.T @ right**2
        self.size += np.abs(left).T @ np.abs(right)
        self.lost += lost

    def error(self, x: Point, equal: Array) -> Array:
        """Return the likely error of the gradient before it is scaled and rounded. `equal` is √κ of
        each key, where κ is the number of its equal scores.
        """
        variance = self.variance
        if self.heads.sums is not None:
            variance = variance + spreads(x.arithmetic)["output"] ** 2 * (self.heads.sums**2).sum(axis=0)
        additions = _additions(x.arithmetic, "queries_sum", len(x.q)) * (self.size + np.abs(self.value)) / 2
        return np.asarray(x.deviations * equal * (np.sqrt(variance) + additions) + self.lost)


def forward(x: Point) -> Array:
    """Return the likely error (the line) of the output, (rows, d_v), including the rounding of the
    result.
    """
    output_line = np.empty((len(x.q), x.v.shape[1]))
    for rows in x.rows():
        weights = _softmax(x, rows)
        output_line[rows] = _rounded(x.arithmetic, weights.out, _output(x, weights))
    return output_line


def vjp(x: Point, g: Array) -> tuple[Array, Array, Array]:
    """Return the likely errors (the lines) of dq, dk and dv, including the rounding of the results."""
    a, c, n_q, n_k = x.arithmetic, abs(x.scale), len(x.q), x.k.shape[0]
    dq, dq_error = np.empty(x.q.shape), np.empty(x.q.shape)
    dk, dv = (KeyGradient.zeros(values.shape, x) for values in (x.k, x.v))
    equal_columns = np.zeros((n_k, 1))
    columns = sum((_weights(x, rows).sum(axis=0) for rows in x.rows()), start=np.zeros(n_k))
    for rows in x.rows():
        weights = _softmax(x, rows)
        grad_weights = _grad_weights(x, weights, g[rows])
        grad_scores = _grad_scores(x, weights, grad_weights)
        dq[rows], dq_error[rows] = _grad_queries(x, weights, grad_scores)
        in_tail = _tail_of_columns(x, weights, columns)
        _add_grad_keys(dk, x, rows, weights, grad_scores, in_tail)
        of_values = _variance_of_values(x, weights, grad_weights, grad_scores)
        dv.add(rows, weights.p, g[rows], of_values, _lost_by_values(x, weights, in_tail).T @ np.abs(g[rows]))
        equal_columns += _multiplicity(_scores(x, rows).T, n_q * spreads(a)["queries_sum"])
    equal_keys, lost_below, elementwise = np.sqrt(equal_columns), losses(a), a.elementwise.unit_roundoff
    # The underflow of a sum of n products and of its stored parts. Flushed cotangents of dv are among
    # these products.
    of_keys, of_queries = (
        (n + 4) * lost_below["sum"] + (partial_roundings(a, n) + x.group) * lost_below["output"] for n in (n_k, n_q)
    )
    factor = max(1.0, c)

    def scaled(value: Array, error: Array, underflow: float) -> Array:
        error = (
            c * (error + 4 * elementwise * np.abs(value)) + factor * underflow + lost_below["scale_on_inputs"] * factor
        )
        return _rounded(a, c * value, error)

    return (
        scaled(dq, dq_error, of_keys),
        scaled(dk.value, dk.error(x, equal_keys), of_queries),
        _rounded(a, dv.value, dv.error(x, equal_keys) + of_queries),
    )


def _grad_weights(x: Point, weights: Softmax, g: Array) -> GradWeights:
    """Return dP of some rows, given their cotangents."""
    a, spread, lost_below, d_v = x.arithmetic, spreads(x.arithmetic), losses(x.arithmetic), x.v.shape[1]
    product_size, dp = np.abs(g) @ np.abs(x.v).T, g @ x.v.T
    squares = (g * g) @ (x.v * x.v).T
    variance = (
        (spread["grad_dot"] * sqrt(d_v + 4) * (product_size + np.abs(dp)) / 2) ** 2
        + (spread["grad_weights"] * dp) ** 2
        + 2 * spread["product"] ** 2 * squares
    )
    dp_loss = _thin_products(a, g, x.v) + d_v * lost_below["sum"] + _lost(dp, lost_below["grad_weights"])
    delta = (g * weights.out).sum(axis=1, keepdims=True)
    shifted = np.where(weights.p > 0, dp - delta, 0.0)
    weight = weights.score**2 + weights.entry**2 + spread["saved_weights"] ** 2
    return GradWeights(g, dp, delta, shifted, variance, dp_loss, weight)


def _grad_scores(x: Point, weights: Softmax, of: GradWeights) -> GradScores:
    """Return dS of some rows."""
    spread, lost_below, c = spreads(x.arithmetic), losses(x.arithmetic), abs(x.scale)
    ds = weights.p * of.shifted
    elementwise = x.arithmetic.elementwise.unit_roundoff
    relative = of.weight + (4 * elementwise) ** 2 + spread["grad_scores"] ** 2
    variance = weights.p**2 * (relative * of.shifted**2 + of.variance)
    # dS may be stored as scale·dS
    smallest_stored = 2 * max(lost_below["sum"], lost_below["grad_scores"]) / min(1.0, c) if c else 0.0
    return GradScores(
        ds=ds,
        variance=variance,
        delta=_delta(x, weights, of),
        common=weights.row + weights.linear / x.deviations,
        gone=(weights.p < lost_below["saved_weights"]) | (np.abs(ds) < smallest_stored),
        of_dp=weights.p * of.lost,
    )


def _grad_queries(x: Point, weights: Softmax, of: GradScores) -> tuple[Array, Array]:
    """Return dq of some rows and its likely error, before it is scaled and rounded."""
    dq, product_size = of.ds @ x.k, np.abs(of.ds) @ np.abs(x.k)
    deviation = (
        np.sqrt(of.variance @ (x.k**2))
        + of.delta * np.abs(weights.p @ x.k)
        + of.common * np.abs(dq)
        + _additions(x.arithmetic, "keys_sum", x.k.shape[0]) * (product_size + np.abs(dq)) / 2
    )
    entries = np.abs(of.ds) * np.maximum(weights.tail | of.gone, weights.thin) + of.of_dp
    likely = x.deviations * weights.equal * deviation
    return dq, likely + entries @ np.abs(x.k) + np.abs(of.ds) @ _thin(x.arithmetic, x.k)


def _tail_of_columns(x: Point, weights: Softmax, columns: Array) -> NDArray[np.bool_]:
    """Return where a sum over queries may lose a weight, given the sum of the weights of each key."""
    spread = spreads(x.arithmetic)
    unit_roundoff = max(spread["queries_sum"], x.arithmetic.elementwise.unit_roundoff)
    return (weights.p < losses(x.arithmetic)["exp"]) | ((weights.p < 2 * unit_roundoff * columns) & (len(x.q) > 1))


def _add_grad_keys(
    dk: KeyGradient, x: Point, rows: slice, weights: Softmax, of: GradScores, tail: NDArray[np.bool_]
) -> None:
    """Add some query rows to dk."""
    q, grad_size = x.q[rows], np.abs(of.ds)
    variance = of.variance + (weights.p * of.delta) ** 2 + (of.ds * of.common) ** 2
    entries = grad_size * np.maximum(tail | of.gone, weights.thin) + of.of_dp
    dk.add(rows, of.ds, q, variance, entries.T @ np.abs(q) + grad_size.T @ _thin(x.arithmetic, q))


def _variance_of_values(x: Point, weights: Softmax, of: GradWeights, scores: GradScores) -> Array:
    """Return the variance of the weights of some rows, as factors of the cotangents in dv."""
    relative = of.weight + scores.common**2 + spreads(x.arithmetic)["weights"] ** 2
    return np.asarray(weights.p**2 * relative)


def _lost_by_values(x: Point, weights: Softmax, tail: NDArray[np.bool_]) -> Array:
    """Return the part of each weight of some rows that may be lost in dv."""
    lost_below = losses(x.arithmetic)
    flushed = weights.p < max(lost_below["saved_weights"], lost_below["weights"])
    return np.asarray(weights.p * np.maximum(tail | flushed, weights.thin))


def _delta(x: Point, weights: Softmax, of: GradWeights) -> Array:
    """Return the likely error Δ of δ, divided by λ, for the worse of the forms of δ that the
    arithmetic allows.
    """
    of_output = _delta_of_output(x, weights, of)
    if x.arithmetic.delta == "output":
        return of_output
    of_weights = _delta_of_weights(x, weights, of)
    return of_weights if x.arithmetic.delta == "weights" else np.maximum(of_output, of_weights)


def _delta_of_output(x: Point, weights: Softmax, of: GradWeights) -> Array:
    """Return the likely error Δ of δ = rowsum(g·o), divided by λ."""
    a, spread, g, output = x.arithmetic, spreads(x.arithmetic), of.g, weights.out
    variance = (_output(x, weights) / x.deviations) ** 2 + (spread["saved_output"] * output) ** 2
    deviation = np.sqrt((g**2 * variance).sum(axis=1, keepdims=True))
    product_size = (np.abs(g * output)).sum(axis=1, keepdims=True) + np.abs(of.delta)
    deviation = deviation + spread["grad_dot"] * sqrt(g.shape[1]) * product_size / 2
    # The products of δ lose at most as much as the products of dP.
    operands = np.abs(g) * _lost(output, losses(a)["saved_output"]) + _thin(a, g) * np.abs(output)
    return np.asarray(deviation + operands.sum(axis=1, keepdims=True) / x.deviations)


def _delta_of_weights(x: Point, weights: Softmax, of: GradWeights) -> Array:
    """Return the likely error Δ of δ = rowsum(p·dP), divided by λ."""
    a, lost_below, p, n_k = x.arithmetic, losses(x.arithmetic), weights.p, of.dp.shape[1]
    variance = (p**2 * (of.weight * of.shifted**2 + of.variance)).sum(axis=1, keepdims=True)
    variance = variance + (weights.row * of.delta) ** 2
    product_size = (p * np.abs(of.dp)).sum(axis=1, keepdims=True) + np.abs(of.delta)
    products = (
        p * np.maximum(weights.tail | (p < lost_below["saved_weights"]), weights.thin) * np.abs(of.dp)
        + p * of.lost
        + _lost(p * of.dp, lost_below["grad_weights"])
    )
    lost_products = (products.sum(axis=1, keepdims=True) + n_k * lost_below["sum"]) / x.deviations
    additions = spreads(a)["delta_sum"] * sqrt(n_k) * product_size / 2
    return np.asarray(np.sqrt(variance) + additions + weights.linear * np.abs(of.delta) / x.deviations + lost_products)


def _scores(x: Point, rows: slice) -> Array:
    """Return the scores of some rows, −∞ for masked keys."""
    s = x.scale * (x.q[rows] @ x.k.T)
    return np.asarray(s if x.visible is None else np.where(x.visible[rows], s, -np.inf))


def _weights(x: Point, rows: slice) -> Array:
    """Return the weights of some rows of a problem without features."""
    s = _scores(x, rows)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def _softmax(x: Point, rows: slice) -> Softmax:
    """Return the weights of some rows, and their likely errors."""
    a, spread, lost_below, n_k = x.arithmetic, spreads(x.arithmetic), losses(x.arithmetic), x.k.shape[0]
    s = _scores(x, rows)
    logits, variance = _logits(x, rows, s, _variance_of_scores(x, rows, s))
    sink_logits = np.full((len(s), 1), -np.inf) if x.features.sink is None else x.features.sink[rows]
    m = np.maximum(logits.max(axis=1, keepdims=True), sink_logits)
    e, of_sink = np.exp(logits - m), np.exp(sink_logits - m)
    weight_sum = e.sum(axis=1, keepdims=True) + of_sink
    p, p_sink = e / weight_sum, of_sink / weight_sum
    slope = spread["slope"] + spread["stored_scores"]
    entry_deviation = sqrt(spread["exp"] ** 2 + spread["normalise"] ** 2)
    differences = np.where(p > 0, logits - m, 0.0)
    variance = variance + (spread["stored_differences"] * differences) ** 2
    score_deviation = np.sqrt(variance + (slope * np.where(p > 0, np.abs(logits), 0.0)) ** 2)
    sink_deviation = p_sink * np.sqrt(
        (slope * np.where(p_sink > 0, np.abs(sink_logits), 0.0)) ** 2 + entry_deviation**2
    )
    thin_operands = np.minimum(
        _moved_by_thin_operands(x, rows)
        + _flushed_scores(x, s)
        + _flushed_scores(x, logits)
        + _lost(differences, lost_below["stored_differences"])
        + _flushed_bias(x, rows)
        + abs(x.scale) * x.q.shape[1] * lost_below["dot"],
        1.0,
    )
    output, lse, nearness = p @ x.v, m + np.log(weight_sum), n_k * max(spread["sum"], spread["accumulated"])
    unit_roundoff = 2 * max(spread["sum"], spread["accumulated"], a.elementwise.unit_roundoff)
    smallest_kept = max(unit_roundoff, lost_below["exp"], lost_below["weights"] if a.stored_sum else 0.0)
    in_tail = (p > 0) & (p < smallest_kept)
    lost_sink = np.where(p_sink < smallest_kept, p_sink, 0.0)
    lost_weight = (p * np.maximum(in_tail, thin_operands)).sum(axis=1, keepdims=True) + lost_sink
    variances = (p**2 * (score_deviation**2 + entry_deviation**2)).sum(axis=1, keepdims=True) + sink_deviation**2
    of_rescalings = rescalings(a, n_k) * spread["rescale"] ** 2
    equal_scores = _multiplicity(s, nearness)
    if logits is not s:
        equal_scores = np.maximum(equal_scores, _multiplicity(logits, nearness))
    linear = spread["lse"] * (np.abs(lse) + log(2) * slack(a)) + spread["saved_lse"] * np.abs(lse) + lost_weight
    return Softmax(
        p=p,
        score=score_deviation,
        entry=entry_deviation,
        out=output,
        size=p @ np.abs(x.v),
        lost=lost_weight,
        lost_size=(p * np.maximum(in_tail | (p < lost_below["weights"]), thin_operands)) @ np.abs(x.v),
        row=np.sqrt(variances + n_k * spread["sum"] ** 2 + of_rescalings),
        linear=linear,
        equal=np.sqrt(np.maximum(equal_scores, _equal_terms(p, x.v, nearness))),
        tail=in_tail,
        thin=np.minimum(thin_operands + np.where(np.abs(lse) < lost_below["saved_lse"], np.abs(lse), 0.0), 1.0),
        sink=sink_deviation,
    )


def _variance_of_scores(x: Point, rows: slice, s: Array) -> Array:
    """Return the variance σ² of the scores of some rows, without the part of the exponential's
    slope.
    """
    spread, c, d = spreads(x.arithmetic), abs(x.scale), x.q.shape[1]
    product_size = c * (np.abs(x.q[rows]) @ np.abs(x.k).T)
    squares = c * c * ((x.q[rows] ** 2) @ (x.k**2).T)
    operands = 2 * (spread["product"] ** 2 + spread["scale_on_inputs"] ** 2)
    score_size = _finite_size(s)
    additions = (spread["dot"] * sqrt(d + 4) * (product_size + score_size) / 2) ** 2
    return np.asarray(additions + (spread["stored_scores"] * score_size) ** 2 + operands * squares)


def _moved_by_thin_operands(x: Point, rows: slice) -> Array:
    """Return how far operands that are flushed may move each score of some rows, at most 1."""
    q = x.q[rows]
    return np.asarray(np.minimum(abs(x.scale) * _thin_products(x.arithmetic, q, x.k), 1.0))


def _flushed_scores(x: Point, scores: Array) -> Array:
    """Return how far each score moves if it is stored, before or after it is scaled, and flushed to
    0.
    """
    smallest_kept = losses(x.arithmetic)["stored_scores"] * max(1.0, abs(x.scale))
    return np.where(np.abs(scores) < smallest_kept, np.abs(scores), 0.0)


def _flushed_bias(x: Point, rows: slice) -> Array | float:
    """Return how far each logit moves if the bias, or ALiBi's, is read in fewer bits and flushed to 0."""
    summands = x.features.tile(rows, slice(0, x.k.shape[0])).summands
    return sum((_lost(summand, losses(x.arithmetic)["bias"]) for summand in summands), start=0.0)


def _logits(x: Point, rows: slice, s: Array, variance: Array) -> tuple[Array, Array]:
    """Return the logits of some rows and their variance, given their scores and the variance of
    these.
    """
    f = x.features.tile(rows, slice(0, x.k.shape[0]))
    spread, elementwise = spreads(x.arithmetic), x.arithmetic.elementwise.unit_roundoff
    stored_spread = spread["stored_scores"]
    if f.cap is not None or f.summands:
        variance = variance + (stored_spread * _finite_size(s)) ** 2
    for capping in (False, True) if f.after_bias else (True, False):
        if capping and f.cap is not None:
            tanh = np.where(np.isfinite(s), np.tanh(s / f.cap), 0.0)
            variance = (
                (1 - tanh**2) ** 2 * variance
                + (spread["cap"] * f.cap * tanh) ** 2
                + (f.cap * spread["cap_absolute"]) ** 2
            )
            s = np.where(np.isfinite(s), f.cap * tanh, s)
            if f.blocked is not None:
                masked = ((2 * elementwise + stored_spread) * f.cap) ** 2
                s, variance = np.where(f.blocked, -f.cap, s), np.where(f.blocked, masked, variance)
        elif not capping:
            variance = variance if f.alibi is None else variance + (spread["alibi"] * f.alibi) ** 2
            for summand in f.summands:
                variance = variance + (spread["biased"] * (_finite_size(s) + np.abs(summand))) ** 2
                variance = variance + (spread["bias"] * summand) ** 2
                s = s + summand
    return s, variance


def _output(x: Point, weights: Softmax) -> Array:
    """Return the likely error of the output before it is rounded."""
    a, spread, n_k, output = x.arithmetic, spreads(x.arithmetic), x.k.shape[0], weights.out
    of_scores = weights.p**2 * weights.score**2
    weight_variance = weights.entry**2 + spread["weights"] ** 2 + 2 * spread["product"] ** 2
    of_weights = weights.p**2 * weight_variance
    squares = of_scores @ x.v**2 - 2 * output * (of_scores @ x.v) + output**2 * of_scores.sum(axis=1, keepdims=True)
    entries = of_weights @ x.v**2 + output**2 * of_weights.sum(axis=1, keepdims=True)
    sum_variance = n_k * (spread["sum"] ** 2 + spread["accumulated"] ** 2) + rescalings(a, n_k) * spread["rescale"] ** 2
    additions = sum_variance * (((weights.size + np.abs(output)) / 2) ** 2 + output**2)
    deviation = np.sqrt(squares.clip(min=0) + entries + (weights.sink * output) ** 2 + additions)
    # Products that underflow. Flushed entries of v are among them, because Σ p ≤ 1.
    lost_product = max(losses(a)["sum"], losses(a)["accumulated"])
    products = np.minimum((n_k + rescalings(a, n_k) + 4) * lost_product, weights.size)
    likely = x.deviations * weights.equal * deviation + weights.linear * np.abs(output)
    likely = likely + spread["stored_parts"] * weights.size + losses(a)["stored_parts"]
    return np.asarray(likely + weights.lost_size + weights.lost * np.abs(output) + products)


def _additions(a: Arithmetic, row: str, n: int) -> float:
    """Return the deviation of a sum over n rows in a gradient, and of its parts that are stored."""
    spread = spreads(a)
    return sqrt(n) * spread[row] + spread["output"] * sqrt(partial_roundings(a, n, of_keys=row == "keys_sum"))


def _equal_terms(p: Array, v: Array, nearness: float) -> float:
    """Return how often nearly equal terms p·v occur in a column of v, over some rows of p."""
    with np.errstate(divide="ignore"):
        terms = (np.log(np.abs(p[row, :, None] * v)).T for row in range(0, len(p), -(-len(p) // ROWS_OF_TERMS)))
        return max((float(_multiplicity(x, nearness).max(initial=1.0)) for x in terms), default=1.0)


def _multiplicity(s: Array, nearness: float) -> Array:
    """Return how often the most frequent finite number of each row occurs: (rows, 1). Numbers count
    as equal too if they are within half of `nearness` and in a cluster; this number is the mean over
    the row.
    """
    ordered = np.sort(s, axis=1)
    found, finite = _longest_run(ordered), np.isfinite(ordered)
    with np.errstate(invalid="ignore"):  # ∞ − ∞, which is not near
        steps_near = (np.diff(ordered, axis=1) <= nearness / 2).sum(axis=1)
    numbers = finite.sum(axis=1)
    for row in np.flatnonzero((numbers > 0) & (steps_near >= numbers / 16)):
        found[row] = np.maximum(found[row], _cluster(ordered[row, finite[row]], nearness))
    return found


def _cluster(ordered: Array, nearness: float) -> float:
    """Return the mean number of neighbours within nearness/2, less an eighth of those within
    4·nearness, in units of the number that a cluster has: 1 for a smooth density.
    """
    inside, around = (
        np.searchsorted(ordered, ordered + reach, "right") - np.searchsorted(ordered, ordered - reach)
        for reach in (nearness / 2, 4 * nearness)
    )
    return float((inside - around / 8).mean() * 8 / 7)


def _longest_run(ordered: Array) -> Array:
    """Return the length of the longest run of equal finite numbers in each ordered row: (rows, 1)."""
    equal = (ordered[:, 1:] == ordered[:, :-1]) & np.isfinite(ordered[:, 1:])
    if not equal.any():
        return np.ones((len(ordered), 1))
    places = np.arange(1, ordered.shape[1])
    started = np.maximum.accumulate(np.where(equal, 0, places), axis=1)
    return np.asarray(1.0 + (places - started).max(axis=1, keepdims=True, initial=0))


def _rounded(a: Arithmetic, value: Array, error: Array) -> Array:
    """Return the error of a value after its rounding to the output's format."""
    rounded = spreads(a)["output"] * (np.abs(value) + error)
    return np.asarray(error + rounded + a.output.smallest_normal)


def _finite_size(x: Array) -> Array:
    """Return |x| of finite numbers; 0 for others."""
    return np.where(np.isfinite(x), np.abs(x), 0.0)


def _lost(x: Array, least: float) -> Array:
    """Return |x| of numbers below a step, which may come out as 0; 0 for others."""
    return np.where(np.abs(x) < least, np.abs(x), 0.0)


def _thin_products(a: Arithmetic, x: Array, y: Array) -> Array | float:
    """Return how much of each product x·y of two rows may be lost because operands are thin."""
    thin_x, thin_y = _thin(a, x), _thin(a, y)
    if not (thin_x.any() or thin_y.any()):
        return 0.0
    return np.asarray(thin_x @ np.abs(y).T + np.abs(x) @ thin_y.T)


def _thin(a: Arithmetic, x: Array) -> Array:
    """Return |x| of operands of a product that may be flushed, or keep fewer bits; 0 for others."""
    return _lost(x, losses(a)["product"])
