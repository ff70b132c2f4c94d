"""A statistical line below the budget of attention: how far roundings are likely to lead, if they
are independent.

This is no proof.  A rounding δ_i with |δ_i| ≤ u that moves the result by c_i·δ_i contributes
(c_i·u)² to a variance, and by Hoeffding's inequality Σ c_i δ_i is beyond λ·√Σ(c_i·u)² with
probability at most 2·exp(−λ²/2), if the δ_i are independent and of mean 0 (Higham & Mary, A new
approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, 2019). λ = 8.4 gives
10⁻¹⁵ for each element, 10⁻⁶ for 10⁹ of them.  All bounds here are of first order.

What is common to a row counts linearly, and so does what is known not to be independent: equal
scores make equal errors, so that κ of them in a row count √κ times (Σ over groups of (Σ within)² ≤
κ·Σ of squares, by Cauchy and Schwarz); and a term below 2u of its sum may be lost whole, every
time.  So may what underflows or is flushed, which is never of mean 0: a number below the step of
what it is stored in (a weight, dP, dS, the output that δ is taken from), an operand below the
smallest normal number, as in x86's products of bfloat16 (VDPBF16PS), and a product in a sum, each
by the step of what it is computed in.  All these count linearly, as `lost`.  The line is never
above the budget (`ball_attention`), which is a proof. With p, o, T, dS as in `oracles.error_analysis.forward` and
`oracles.error_analysis.vjp`, and M = (Σ|x| + |Σx|)/2 for a sum of n terms, whose additions have the variance
n·(u·M)²:

    score           σ² = (u√d·M)² + ((6u + stored)·|s|)² + 2·(product² + scaled²)·Σ(q·k)²
    … capped        σ² = (h·σ)² + ((6u + tanh + 3·stored)·|t|)² + (c·tanh's absolute error)², t = c·tanh(s/c), h = 1 − tanh²
    … with a bias   σ² + ((3u + stored)·(|t| + |bias|))², and the 6u of |s|, which the exponential's argument is off by, are of the logit
    weight          ε² = exp² + stored² + (4u)²
    out             Σ p²σ²(v − o)² + Σ p²ε²(v² + o²) + n·(u·M)² + N·(rescaling·M)²
    denominator     r² = Σ p²(σ² + ε²) + n·u² + N·rescaling², a sink's p²(σ² + ε²) among them, which out has times o²
    dP              E² = d_v·(u·M)² + stored²·dP² + 2·product²·Σ(g·v)²
    δ               Σ g²·var(out) + …, or Σ p²(σ² + ε²)T² + Σ p²E² + n·(u·M)² + r²δ²
    dk, dv          … and Σ_h (u·dk_h)², where each query head of a key head has its own, rounded to the output's format
    dS              w² = p²(σ² + ε² + (4u)² + stored²)T² + p²E², and p·Δ and r·dS common to a row
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array
from oracles.error_analysis.grouped_heads import HeadSums
from oracles.error_analysis.logits import Tiled
from oracles.error_analysis.terms import partial_roundings, rescalings, slack, step
from oracles.error_analysis.visible_keys import Mask
from oracles.formats import Arithmetic, Format

SHORT = 64
"""Sums of so few terms are about as exact as their budget says: no line is drawn."""

AT_ONCE = 1 << 20
"""Scores handled together."""


@dataclass(frozen=True)
class Point:
    """An attention problem in plain numbers: q, k, v, which keys a row may read (None for all),
    scale and arithmetic, and what logits are made of besides scores, of which only the output has a
    line; and how many query heads the rows are of."""

    q: Array
    k: Array
    v: Array
    allowed: Mask | None
    scale: float
    arithmetic: Arithmetic
    features: Tiled
    group: int = 1

    def rows(self) -> Iterator[slice]:
        """The query rows, so many at a time that their scores fit."""
        step = max(1, AT_ONCE // self.k.shape[0])
        return (slice(i, min(i + step, len(self.q))) for i in range(0, len(self.q), step))


@dataclass(frozen=True)
class Softmax:
    """Some rows of weights and what computing them is likely to cost.

    p, score, entry   weights (rows, keys), σ of their scores, ε of themselves
    out, size         o and Σ p|v|
    lost, lost_size   Σ p and Σ p|v| over keys of weights that may be lost whole: as exponentials, which are those in `tail`, or where they
                      are stored
    row, linear       r of the denominator, and what is common to a row and not independent
    equal             √κ of the row
    thin              what flushed operands may move a score by, at most 1
    sink              p of the sink times σ and ε of it
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


def forward(x: Point) -> Array:
    """The line of the output (rows, d_v), its rounding included."""
    a = x.arithmetic
    found = np.empty((len(x.q), x.v.shape[1]))
    for rows in x.rows():
        s = _softmax(x, rows)
        found[rows] = _rounded(a, s.out, _output(x, s))
    return found


def vjp(x: Point, g: Array) -> tuple[Array, Array, Array]:
    """The lines of dq, dk and dv, their rounding included."""
    a, c, lam = x.arithmetic, abs(x.scale), float(x.arithmetic.likely or 0.0)
    u, work = a.grad_accumulate, a.elementwise.unit_roundoff
    n_q, n_k, d_v = len(x.q), len(x.k), x.v.shape[1]
    stored = [_unit(a.output) * sqrt(partial_roundings(a, n)) for n in (n_q, n_k)]
    of_queries, of_keys = sqrt(n_q) * u + stored[0], sqrt(n_k) * u + stored[1]
    dq, dq_rad = np.empty(x.q.shape), np.empty(x.q.shape)
    dk, dk_var, dk_size = (np.zeros(x.k.shape) for _ in range(3))
    dv, dv_var, dv_size = (np.zeros(x.v.shape) for _ in range(3))
    heads_dk, heads_dv = (HeadSums.of(y.shape, n_q, x.group) for y in (x.k, x.v))
    dk_lost, dv_lost, column = np.zeros(x.k.shape), np.zeros(x.v.shape), np.zeros((n_k, 1))
    eta, saved, least = step(a.elementwise, a), step(a.saved_weights, a), _least_weight(a)
    least_ds = 2 * max(eta, step(a.grad_scores, a)) / min(1.0, c) if c else 0.0  # it may be stored as scale·dS
    thin_k, thin_v = _thin(a, x.k), _thin(a, x.v)
    columns = sum((_softmax(x, rows).p.sum(axis=0) for rows in x.rows()), start=np.zeros(n_k))
    for rows in x.rows():
        s, q, gi = _softmax(x, rows), x.q[rows], g[rows]
        size, dp = np.abs(gi) @ np.abs(x.v).T, gi @ x.v.T
        squares = (gi * gi) @ (x.v * x.v).T
        dot = (
            (u * sqrt(d_v + 4) * (size + np.abs(dp)) / 2) ** 2
            + (_unit(a.grad_weights) * dp) ** 2
            + 2 * a.product**2 * squares
        )
        dp_lost = _thin(a, gi) @ np.abs(x.v).T + np.abs(gi) @ thin_v.T + d_v * eta + _lost(dp, step(a.grad_weights, a))
        delta = (gi * s.out).sum(axis=1, keepdims=True)
        turn = np.where(s.p > 0, dp - delta, 0.0)
        weight = s.score**2 + s.entry**2 + _unit(a.saved_weights) ** 2
        spread = _delta(x, s, gi, dp, delta, turn, dot, weight, dp_lost)
        ds = s.p * turn
        var = s.p**2 * ((weight + (4 * work) ** 2 + _unit(a.grad_scores) ** 2) * turn**2 + dot)
        common = s.row + s.linear / lam
        dq[rows] = ds @ x.k
        total = np.abs(ds) @ np.abs(x.k)
        dq_sd = (
            np.sqrt(var @ (x.k**2))
            + spread * np.abs(s.p @ x.k)
            + common * np.abs(dq[rows])
            + of_keys * (total + np.abs(dq[rows])) / 2
        )
        of_entry, gone = s.p * dp_lost, (s.p < saved) | (np.abs(ds) < least_ds)
        dq_rad[rows] = (
            lam * s.equal * dq_sd
            + (np.abs(ds) * np.maximum(s.tail | gone, s.thin) + of_entry) @ np.abs(x.k)
            + np.abs(ds) @ thin_k
        )
        dk += ds.T @ q
        heads_dk.add(rows, slice(None), ds.T, q)
        heads_dv.add(rows, slice(None), s.p.T, gi)
        dk_var += (var + (s.p * spread) ** 2 + (ds * common) ** 2).T @ (q**2)
        dk_size += np.abs(ds).T @ np.abs(q)
        dv += s.p.T @ gi
        dv_var += (s.p**2 * (weight + common**2 + _unit(a.weights) ** 2)).T @ (gi**2)
        dv_size += s.p.T @ np.abs(gi)
        tail = (s.p < least) | ((s.p < 2 * max(u, work) * columns) & (n_q > 1))
        dk_lost += (np.abs(ds) * np.maximum(tail | gone, s.thin) + of_entry).T @ np.abs(q) + np.abs(ds).T @ _thin(a, q)
        dv_lost += (s.p * np.maximum(tail | (s.p < max(saved, step(a.weights, a))), s.thin)).T @ np.abs(gi)
        column += _multiplicity(_scores(x, rows).T)
    for heads, variance in ((heads_dk, dk_var), (heads_dv, dv_var)):
        if heads.sums is not None:
            variance += a.output.unit_roundoff**2 * (heads.sums**2).sum(axis=0)
    # a sum of n products, thin cotangents of dv among them, and its parts that are stored
    of_k, of_q = ((n + 4) * eta + (partial_roundings(a, n) + x.group) * step(a.output, a) for n in (n_k, n_q))
    scaled = max(1.0, c)
    inputs = step(a.scale_on_inputs, a) * scaled
    equal = np.sqrt(column)
    dk_rad = lam * equal * (np.sqrt(dk_var) + of_queries * (dk_size + np.abs(dk)) / 2) + dk_lost
    dv_rad = lam * equal * (np.sqrt(dv_var) + of_queries * (dv_size + np.abs(dv)) / 2) + dv_lost
    return (
        _rounded(a, c * dq, c * (dq_rad + 4 * work * np.abs(dq)) + scaled * of_k + inputs),
        _rounded(a, c * dk, c * (dk_rad + 4 * work * np.abs(dk)) + scaled * of_q + inputs),
        _rounded(a, dv, dv_rad + of_q),
    )


def _scores(x: Point, rows: slice) -> Array:
    s = x.scale * (x.q[rows] @ x.k.T)
    return np.asarray(s if x.allowed is None else np.where(x.allowed[rows], s, -np.inf))


def _softmax(x: Point, rows: slice) -> Softmax:
    """The weights of some rows, and what they are likely to be off by."""
    a, c, d, n_k = x.arithmetic, abs(x.scale), x.q.shape[1], x.k.shape[0]
    u, work = a.accumulate, a.elementwise.unit_roundoff
    s = _scores(x, rows)
    reach = c * (np.abs(x.q[rows]) @ np.abs(x.k).T)
    squares = c * c * ((x.q[rows] ** 2) @ (x.k**2).T)
    operands = 2 * (a.product**2 + _unit(a.scale_on_inputs) ** 2)
    known = np.where(np.isfinite(s), np.abs(s), 0.0)
    logits, var = _logits(
        x, rows, s, (u * sqrt(d + 4) * (reach + known) / 2) ** 2 + (_unit(a.scores) * known) ** 2 + operands * squares
    )
    sinks = np.full((len(s), 1), -np.inf) if x.features.sink is None else x.features.sink[rows]
    m = np.maximum(logits.max(axis=1, keepdims=True), sinks)
    e, of_sink = np.exp(logits - m), np.exp(sinks - m)
    total = e.sum(axis=1, keepdims=True) + of_sink
    p, p_sink = e / total, of_sink / total
    each, entry = 6 * work + a.exp.per_unit + _unit(a.scores), sqrt(a.exp.relative**2 + (4 * work) ** 2)
    score = np.sqrt(var + (each * np.where(p > 0, np.abs(logits), 0.0)) ** 2)
    thin = np.minimum(c * (_thin(a, x.q[rows]) @ np.abs(x.k).T + np.abs(x.q[rows]) @ _thin(a, x.k).T), 1.0)
    sink = p_sink * np.sqrt((each * np.where(p_sink > 0, np.abs(sinks), 0.0)) ** 2 + entry**2)
    merged = rescalings(a, n_k) * (a.exp.relative + 3 * work) ** 2
    out, lse = p @ x.v, m + np.log(total)
    least = max(2 * u, 2 * work, _least_weight(a), step(a.weights, a) if a.stored_sum else 0.0)
    tail = (p > 0) & (p < least)
    equal = np.sqrt(np.maximum(_multiplicity(s), _multiplicity(logits)))
    lost = (p * np.maximum(tail, thin)).sum(axis=1, keepdims=True) + np.where(p_sink < least, p_sink, 0.0)
    row = np.sqrt((p**2 * (score**2 + entry**2)).sum(axis=1, keepdims=True) + sink**2 + n_k * u**2 + merged)
    linear = (6 * work + a.log) * (np.abs(lse) + log(2) * slack(a)) + _unit(a.saved_lse) * np.abs(lse) + lost
    lost_size = (p * np.maximum(tail | (p < step(a.weights, a)), thin)) @ np.abs(x.v)
    return Softmax(p, score, entry, out, p @ np.abs(x.v), lost, lost_size, row, linear, equal, tail, thin, sink)


def _logits(x: Point, rows: slice, s: Array, var: Array) -> tuple[Array, Array]:
    """The logits of some rows and their variance, given those of their scores: each step in turn."""
    a, f = x.arithmetic, x.features.tile(rows, slice(0, x.k.shape[0]))
    work, stored, tanh = a.elementwise.unit_roundoff, _unit(a.scores), a.exp if a.tanh is None else a.tanh
    if f.cap is not None or f.bias is not None:
        var = var + (stored * np.where(np.isfinite(s), np.abs(s), 0.0)) ** 2
    for capping in (False, True) if f.after_bias else (True, False):
        if capping and f.cap is not None:
            turned = np.where(np.isfinite(s), np.tanh(s / f.cap), 0.0)
            var = (
                (1 - turned**2) ** 2 * var
                + ((6 * work + tanh.relative + 3 * stored) * f.cap * turned) ** 2
                + (f.cap * tanh.flush) ** 2
            )
            s = np.where(np.isfinite(s), f.cap * turned, s)
            if f.blocked is not None:
                s, var = np.where(f.blocked, -f.cap, s), np.where(f.blocked, ((2 * work + stored) * f.cap) ** 2, var)
        elif not capping and f.bias is not None:
            var = var + ((3 * work + stored) * (np.where(np.isfinite(s), np.abs(s), 0.0) + np.abs(f.bias))) ** 2
            s = s + f.bias
    return s, var


def _output(x: Point, s: Softmax) -> Array:
    """The line of the output before it is rounded."""
    a, lam = x.arithmetic, float(x.arithmetic.likely or 0.0)
    n_k, work = x.k.shape[0], a.elementwise.unit_roundoff
    sums = n_k * a.accumulate**2 + rescalings(a, n_k) * (a.exp.relative + 3 * work) ** 2
    stored = s.entry**2 + _unit(a.weights) ** 2 + 2 * a.product**2
    of_scores, of_weights = s.p**2 * s.score**2, s.p**2 * stored
    spread = (
        of_scores @ x.v**2 - 2 * s.out * (of_scores @ x.v) + s.out**2 * of_scores.sum(axis=1, keepdims=True)
    ).clip(min=0)
    entries = of_weights @ x.v**2 + s.out**2 * of_weights.sum(axis=1, keepdims=True)
    middle = (s.size + np.abs(s.out)) / 2
    products = np.minimum(
        (n_k + rescalings(a, n_k) + 4) * step(a.elementwise, a), s.size
    )  # thin v are among them, as Σ p ≤ 1
    sd = np.sqrt(spread + entries + (s.sink * s.out) ** 2 + sums * (middle**2 + s.out**2))
    return np.asarray(lam * s.equal * sd + s.linear * np.abs(s.out) + s.lost_size + s.lost * np.abs(s.out) + products)


def _delta(
    x: Point, s: Softmax, g: Array, dp: Array, delta: Array, turn: Array, dot: Array, weight: Array, dp_lost: Array
) -> Array:
    """Δ ÷ λ, in the form of δ that is worse of those allowed."""
    a, lam = x.arithmetic, float(x.arithmetic.likely or 0.0)
    u = a.grad_accumulate
    of_output = np.sqrt(
        (g**2 * ((_output(x, s) / lam) ** 2 + (_unit(a.saved_output) * s.out) ** 2)).sum(axis=1, keepdims=True)
    )
    of_output = of_output + u * sqrt(g.shape[1]) * ((np.abs(g * s.out)).sum(axis=1, keepdims=True) + np.abs(delta)) / 2
    operands = np.abs(g) * _lost(s.out, step(a.saved_output, a)) + _thin(a, g) * np.abs(s.out)
    of_output = (
        of_output + operands.sum(axis=1, keepdims=True) / lam
    )  # what its products lose is at most what those of dP do
    if a.delta == "output":
        return np.asarray(of_output)
    var = (s.p**2 * (weight * turn**2 + dot)).sum(axis=1, keepdims=True) + (s.row * delta) ** 2
    size = (s.p * np.abs(dp)).sum(axis=1, keepdims=True)
    products = (
        s.p * np.maximum(s.tail | (s.p < step(a.saved_weights, a)), s.thin) * np.abs(dp)
        + s.p * dp_lost
        + _lost(s.p * dp, step(a.grad_weights, a))
    )
    lost = (products.sum(axis=1, keepdims=True) + dp.shape[1] * step(a.elementwise, a)) / lam
    of_weights = (
        np.sqrt(var) + u * sqrt(dp.shape[1]) * (size + np.abs(delta)) / 2 + s.linear * np.abs(delta) / lam + lost
    )
    return np.asarray(of_weights if a.delta == "weights" else np.maximum(of_output, of_weights))


def _multiplicity(s: Array) -> Array:
    """How often the most frequent finite number of each row occurs: (rows, 1)."""
    ordered = np.sort(s, axis=1)
    breaks = ~((ordered[:, 1:] == ordered[:, :-1]) & np.isfinite(ordered[:, 1:]))
    places = np.arange(1, s.shape[1])
    started = np.maximum.accumulate(np.where(breaks, places, 0), axis=1)
    return np.asarray(1.0 + (places - started).max(axis=1, keepdims=True, initial=0))


def _rounded(a: Arithmetic, value: Array, error: Array) -> Array:
    return np.asarray(error + a.output.unit_roundoff * (np.abs(value) + error) + a.output.smallest_normal)


def _lost(x: Array, least: float) -> Array:
    """|x| of what is below a step, and may come out as 0; 0 for all else."""
    return np.where(np.abs(x) < least, np.abs(x), 0.0)


def _thin(a: Arithmetic, x: Array) -> Array:
    """|x| of operands of a product that may be taken for 0, or keep fewer bits there: those below
    the smallest normal number.
    """
    return _lost(x, a.elementwise.smallest_normal if a.flush_to_zero or a.product else 0.0)


def _least_weight(a: Arithmetic) -> float:
    """A weight below it may come out as 0, as an exponential or by a factor that rescales it."""
    return float(max(a.exp.flush, step(a.elementwise, a)) * 2.0 ** slack(a))


def _unit(stored: Format | None) -> float:
    return stored.unit_roundoff if stored is not None else 0.0
