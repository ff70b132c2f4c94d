"""The forward pass of attention with its error: one blocked online softmax, in float64.

With e_j = exp(s_j − m), D = Σ e_j, a kernel computes numerator and denominator

    Σ e_j v_j exp(±(τ_j + a)) + …,   Σ e_j exp(±(τ_j + b)) + …

where τ_j belongs to the score (`scores.growth`) and a, b to the row.  With weights p_j = e_j/D,

    X = Σ p_j (exp τ_j − 1)|v_j|,   Y = Σ p_j |v_j|,   x = Σ p_j (exp τ_j − 1),   λ = exp(b)·x + exp(b) − 1 + underflow,
    |õ − o| ≤ (exp(a)·X + (exp(a) − 1)·Y + |o|·λ + underflow) / (1 − λ),

since Ñ/D̃ − N/D = (Ñ − N − o(D̃ − D))/D̃ after division of both by D (compare Blanchard, Higham & Higham, Accurately
computing the log-sum-exp and softmax functions, IMA J. Numer. Anal. 41, 2021).

Here p, o, s and lse are those that float64 computes, not the exact ones, which nobody has.  That is rigorous because the
bound compares the kernel with the computed values at once: both have e_j up to an exponent, so the kernel's e_j is the
computed one up to the sum of the two, which is what `terms(arithmetic) + terms(OWN)` gives; in a certificate the exact
value takes the kernel's place.
"""

from dataclasses import dataclass

import numpy as np

from oracles.ball import LARGEST, ROUNDOFF, Array, gamma
from oracles.scores import (
    Mask,
    Problem,
    expm1,
    growth,
    over_keys,
    part,
    scores,
    sizes,
)


@dataclass(frozen=True)
class Rows:
    """What the forward pass knows of a tile of rows; columns are (rows, 1), matrices (rows, d_v).

    lse         log-sum-exp of the scores
    dead        which rows may read no key
    out, error  the output and the bound of its error, before it is rounded to the output's format
    weight      exponent b − log(1 − λ) of a normalised weight's error, on top of τ
    grown, size  X with what underflows and the radii of v, and Y
    """

    lse: Array
    dead: Mask
    out: Array
    error: Array
    weight: Array
    grown: Array
    size: Array


@dataclass(frozen=True)
class Sums:
    """Sums over keys in units of p: the module's x, X, Y, Σ p·rad v, and Σ|v| over all keys that a row may read."""

    x: Array
    grown: Array
    size: Array
    spread: Array
    allowed: Array


def rows_forward(p: Problem, rows: slice) -> Rows:
    """The forward pass of a tile of rows, keys in tiles."""
    q = part(p.q, rows)
    head, d_v = q.value.shape[:-1], p.v.value.shape[-1]
    m, total, x, tau = np.full((*head, 1), -LARGEST), *(np.zeros((*head, 1)) for _ in range(3))
    out, size, grown, spread, readable, unknown = (np.zeros((*head, d_v)) for _ in range(6))
    dead = np.ones((*head, 1), dtype=bool)
    for keys, allowed in p.key_tiles(rows):
        k, v = part(p.k, keys), part(p.v, keys)
        s = scores(p, q, k, allowed)
        dead &= False if allowed is None else ~allowed.any(axis=-1, keepdims=True)
        highest = np.maximum(m, s.max(axis=-1, keepdims=True))
        shrink = np.exp(m - highest)
        m = highest
        for sum_so_far in (total, out, size, *((x, grown) if p.elementwise else ()), *((spread,) if v.rad is not None else ())):
            sum_so_far *= shrink
        growths = growth(p, q, k, s, allowed)
        s -= m
        e = np.exp(s, out=s)
        row_sums = e.sum(axis=-1, keepdims=True)
        total += row_sums
        out += e @ v.value
        size_here, readable_here = sizes(p, e, row_sums, v, allowed)
        size += size_here
        readable += readable_here
        if p.elementwise:
            excess = expm1(growths)
            excess *= e
            x += excess.sum(axis=-1, keepdims=True)
            grown += excess @ v.reach
        else:
            tau = np.maximum(tau, growths)
        if v.rad is not None:
            spread += e @ v.rad
        if v.unknown is not None:
            unknown += over_keys(allowed, v.unknown)
    sums = Sums(x / total, grown / total, size / total, spread / total, readable)
    if not p.elementwise:
        excess = expm1(tau)
        sums = Sums(excess, excess * sums.size, sums.size, sums.spread, readable)
    out = np.where(unknown > 0, np.nan, out / total)
    return _bounded(p, m, m + np.log(total), dead, out, sums, total)


def uniform_rows(p: Problem) -> Rows:
    """The one row (1, d_v) of a query that may read no key and reads all of them equally."""
    head, n_k = (*p.v.value.shape[:-2], 1, 1), p.n_k
    none = np.zeros((*head[:-1], p.v.value.shape[-1]))
    total = np.full(head, float(n_k))
    out = p.v.raw.sum(axis=-2, keepdims=True) / n_k
    readable = p.v.reach.sum(axis=-2, keepdims=True)
    spread = none if p.v.rad is None else p.v.rad.sum(axis=-2, keepdims=True) / n_k
    sums = Sums(np.zeros(head), none, readable / n_k, spread, readable)
    return _bounded(p, np.zeros(head), np.log(total), np.zeros(head, dtype=bool), out, sums, total)


def _bounded(p: Problem, m: Array, lse: Array, dead: Mask, out: Array, sums: Sums, total: Array) -> Rows:
    """The module's bound.  Its own sums over keys are known to γ_{n_k}(2⁻⁵³), which `inflation` covers."""
    t, n_k = p.terms, p.n_k
    inflation = 1 + 8 * gamma(n_k + 8, ROUNDOFF)
    slope = t.slope * (np.abs(m) + np.abs(lse))
    b = slope + t.exp + t.rescale + t.sum
    a = b + t.normalise + t.weights + t.product
    lam = (np.exp(b) * sums.x + _expm1(b) + n_k * t.weight_underflow) * inflation
    room = np.where(lam < 1.0, 1.0 - lam, np.nan)
    absolute = sums.spread + t.weight_underflow * sums.allowed + t.sum_underflow
    grown = sums.grown + absolute
    error = np.exp(a) * grown + _expm1(a) * sums.size
    error = error + (np.abs(out) + (inflation - 1) * sums.size) * lam
    overflow = sums.size * total * (1 + 2.0**-6) > p.ranges.work
    weight = b + t.normalise + t.saved_lse * np.abs(lse) - np.log1p(-lam)
    return Rows(
        lse=np.where(dead, 0.0, lse),
        dead=dead,
        out=np.where(dead, 0.0, out),
        error=np.where(dead, 0.0, np.where(overflow, np.inf, error * inflation / room)),
        weight=np.where(dead, 0.0, weight),
        grown=grown,
        size=sums.size,
    )


def delta_error(p: Problem, rows: Rows) -> Array:
    """A bound of the error of Σ_c |g_c| õ_c per unit of |g_c|, for delta as rowsum(g·o) or as rowsum(p·dp).

    The sum over keys is one of the output's accumulator in the first form, one of the gradients' in the second.
    """
    t = p.terms
    exponent = rows.weight + t.weights + t.product + t.grad_dot + t.delta_sum
    error = (np.exp(exponent) * rows.grown + _expm1(exponent) * rows.size) * (1 + 8 * gamma(p.n_k + 8, ROUNDOFF))
    error = error + t.saved_output * (np.abs(rows.out) + error) + t.saved_underflow
    return np.where(rows.dead, 0.0, np.where(rows.error == np.inf, np.inf, error))


def _expm1(x: Array) -> Array:
    """exp(x) − 1, rounded upwards."""
    return np.expm1(x) * (1 + 2.0**-48)
