"""How far correct floating-point code may be from the exact value: forward error bounds, derived and not chosen.

In the notation of Higham, Accuracy and Stability of Numerical Algorithms (2nd ed.): u is the unit roundoff and γ(n) = nu / (1 − nu) bounds
the relative error of n roundings in any order of summation (lemma 3.1). Products of errors are kept, not dropped. The bounds hold for
scaling before or after the product, shifting by a maximum or not, one pass or several, fused or not.

All functions take and return float64 arrays of one problem, unbatched. Bounds are themselves computed in float64: `_UP` covers that.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spec.tensor import Array

__all__ = ["FLOAT32", "FLOAT64", "MPMATH50", "Roundoff", "attention", "attention_jvp", "attention_vjp", "multi_head", "rope", "sinusoid"]

_UP = 1 + 2.0**-20  # a bound's own evaluation: at most a few thousand float64 roundings, each 2⁻⁵³


@dataclass(frozen=True)
class Roundoff:
    """An arithmetic: unit roundoff, relative error of its exp, absolute error of its sin and cos, and what may be flushed to zero."""

    unit: float
    exp: float
    trig: float
    smallest_normal: float

    def gamma(self, n: int) -> float:
        """γ(n) = nu / (1 − nu)."""
        return n * self.unit / (1 - n * self.unit)


# exp within 4 units in the last place = 8 unit roundoffs, sin and cos within 4 units in the last place of 1: what vector libraries promise.
FLOAT64 = Roundoff(2.0**-53, 2.0**-50, 2.0**-50, 2.0**-1022)
FLOAT32 = Roundoff(2.0**-24, 2.0**-21, 2.0**-21, 2.0**-126)
MPMATH50 = Roundoff(2.0**-165, 2.0**-162, 2.0**-162, 2.0**-1022)  # 50 digits are 169 bits; the weights in a bound underflow, not mpmath's


class Weights(NamedTuple):
    """Softmax weights with the bound on their error, and what the error bounds of attention need besides."""

    exact: Array  # (nQ, nK), in float64
    error: Array  # (nQ, nK), absolute
    scale: float


def _weights(q: Array, k: Array, mask: Array | None, a: Roundoff, q_error: Array, k_error: Array) -> Weights:
    """Scores s = c q·k carry δs ≤ γ(d + 6) c|q||k| (d products and sums, and at most six roundings of the scale, wherever it is applied).

    A computed numerator is exp((s + δs) − m) with the difference rounded and exp rounded, so its relative error is at most
    ρ = expm1(δs + 4u(|s| + |m| + log nK)) + ε_exp; log nK for code that subtracts a log-sum-exp. Online softmax rescales at most
    nK / 16 + 1 times, each by a rounded exponential. m itself cancels between numerator and denominator, right or wrong. The quotient then
    has relative error (ρ + Σ P ρ + γ(nK + 3)) / (1 − Σ P ρ − γ(nK + 3)): beyond a denominator of zero nothing is promised. Underflow adds
    one smallest normal number, and blocked weights are exactly 0.
    """
    nK, d = k.shape
    c = 1 / np.sqrt(d) if d else 0.0
    allowed = np.ones((len(q), nK), bool) if mask is None else mask
    s = np.where(allowed, c * q @ k.T, -np.inf)
    m = np.where(allowed.any(axis=1), s.max(axis=1), 0)[:, None]
    numerators = np.exp(s - m)
    P = numerators / np.maximum(numerators.sum(1, keepdims=True), 1)
    s, s_max = np.where(allowed, s, 0), np.where(allowed, np.abs(s), 0).max(1)[:, None]
    ds = a.gamma(d + 6) * c * (np.abs(q) @ np.abs(k).T) + c * (q_error @ (np.abs(k) + k_error).T + np.abs(q) @ k_error.T)
    rescalings = nK // 16 + 1
    rho = np.expm1(ds + 4 * a.unit * (np.abs(s) + s_max + np.log(nK))) + a.exp + rescalings * (a.exp + 2 * a.unit)
    total = (P * rho).sum(1, keepdims=True) + a.gamma(nK + 3)
    relative = np.where(total < 1, (rho + total) / np.maximum(1 - total, np.finfo(float).tiny), np.inf)
    return Weights(P, np.where(allowed, np.where(P > 0, P, 0) * relative + a.smallest_normal, 0) * _UP, c)


def _product(A: Array, A_error: Array, B: Array, B_error: Array, n: int, a: Roundoff) -> Array:
    """The error of A · B with n products to a sum, both factors inexact, and an underflow in each product."""
    A, B = np.abs(A), np.abs(B)
    with np.errstate(invalid="ignore"):
        error = A_error @ (B + B_error) + A @ B_error + a.gamma(n) * ((A + A_error) @ (B + B_error)) + n * a.smallest_normal
    return np.asarray(np.where(np.isnan(error), np.inf, error) * _UP)


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    a: Roundoff,
    q_error: Array | float = 0,
    k_error: Array | float = 0,
    v_error: Array | float = 0,
) -> Array:
    """The error of softmax(q kᵀ / √d) v, with inputs that may already be inexact: that of the weights, then of a product of nK terms.

    Two more roundings cover dividing after the product instead of before it. Where no key is allowed the result is 0 exactly.
    """
    q_error, k_error, v_error = (np.broadcast_to(np.asarray(e, float), x.shape) for e, x in ((q_error, q), (k_error, k), (v_error, v)))
    w = _weights(q, k, mask, a, q_error, k_error)
    error = _product(w.exact, w.error, v, v_error, len(k) + 2, a)
    return error if mask is None else np.where(mask.any(axis=1, keepdims=True), error, 0)


def _softmax_derivative(w: Weights, t: Array, t_error: Array, delta_error: Array, a: Roundoff) -> tuple[Array, Array]:
    """P ⊙ (t − Σ P t) and its error, for t with an error, and an extra error of the row sum Σ P t, for another way to compute it."""
    nK = t.shape[1]
    P, dP = w.exact, w.error
    delta = (P * t).sum(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        row_error = (dP * (np.abs(t) + t_error) + P * t_error + a.gamma(nK + 1) * (P + dP) * (np.abs(t) + t_error)).sum(1, keepdims=True)
        centred_error = t_error + row_error + delta_error + a.unit * (np.abs(t) + np.abs(delta) + t_error + row_error + delta_error)
        error = dP * np.abs(t - delta) + (P + dP) * centred_error
        error = error + 2 * a.unit * (P * np.abs(t - delta) + error) + 2 * a.smallest_normal
    return P * (t - delta), np.where(np.isnan(error), np.inf, error) * _UP


def attention_vjp(q: Array, k: Array, v: Array, mask: Array | None, g: Array, a: Roundoff) -> tuple[Array, Array, Array]:
    """The errors of (dq, dk, dv): dP = g vᵀ, dS = P ⊙ (dP − δ), dq = c dS k, dk = c dSᵀ q, dv = Pᵀ g.

    δ may be summed as Σ P dP or as Σ g ⊙ out with the computed out; the second carries the forward's error times |g|.
    """
    zero_q, zero_k, zero_v, zero_g = (np.zeros_like(x) for x in (q, k, v, g))
    w = _weights(q, k, mask, a, zero_q, zero_k)
    dP, dP_error = g @ v.T, _product(g, zero_g, v.T, zero_v.T, v.shape[1], a)
    out_error = attention(q, k, v, mask, a)
    with np.errstate(invalid="ignore"):
        delta_error = (np.abs(g) * (out_error + a.gamma(v.shape[1] + 1) * (w.exact @ np.abs(v) + out_error))).sum(1, keepdims=True)
    delta_error = np.where(np.isnan(delta_error), np.inf, delta_error)
    dS, dS_error = _softmax_derivative(w, dP, dP_error, delta_error, a)
    if mask is not None:
        dS_error = np.where(mask, dS_error, 0)
    dq = w.scale * _product(dS, dS_error, k, zero_k, len(k) + 6, a)
    dk = w.scale * _product(dS.T, dS_error.T, q, zero_q, len(q) + 6, a)
    return dq, dk, _product(w.exact.T, w.error.T, g, zero_g, len(q) + 2, a)


def attention_jvp(q: Array, k: Array, v: Array, mask: Array | None, dq: Array, dk: Array, dv: Array, a: Roundoff) -> Array:
    """The error of dA v + P dv, where dS = c (dq kᵀ + q dkᵀ) and dA = P ⊙ (dS − Σ P dS)."""
    zero_q, zero_k, zero_v = (np.zeros_like(x) for x in (q, k, v))
    w = _weights(q, k, mask, a, zero_q, zero_k)
    dS = w.scale * (dq @ k.T + q @ dk.T)
    dS_error = w.scale * (a.gamma(2 * q.shape[1] + 8) * (np.abs(dq) @ np.abs(k).T + np.abs(q) @ np.abs(dk).T)) + 4 * a.smallest_normal
    dA, dA_error = _softmax_derivative(w, dS, dS_error, np.zeros((len(q), 1)), a)
    if mask is not None:
        dA_error = np.where(mask, dA_error, 0)
    n = len(k) + 3
    return np.asarray(_product(dA, dA_error, v, zero_v, n, a) + _product(w.exact, w.error, dv, zero_v, n, a))


def multi_head(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Array | None, a: Roundoff) -> Array:
    """The error of multi-head attention: projections, attention in each head on inexact q, k, v, and the output projection."""
    zero = np.zeros_like
    q, k, v = (x @ w for w in (wq, wk, wv))
    q_error, k_error, v_error = (_product(x, zero(x), w, zero(w), x.shape[1], a) for w in (wq, wk, wv))
    blocks = [slice(h * d, (h + 1) * d) for d in [q.shape[1] // num_heads] for h in range(num_heads)]
    error = np.hstack(
        [attention(q[:, b], k[:, b], v[:, b], mask, a, q_error[:, b], k_error[:, b], v_error[:, b]) for b in blocks],
    )
    concatenated = np.hstack([_weights(q[:, b], k[:, b], mask, a, zero(q[:, b]), zero(k[:, b])).exact @ v[:, b] for b in blocks])
    return _product(concatenated, error, wo, zero(wo), wo.shape[0], a)


def _angles(seq_len: int, dim: int, start_pos: int, a: Roundoff) -> tuple[Array, Array]:
    """θ = pos · 10000^(−2i/d) for each column, and its error θ u (3x + 6) with x = ln(10000) 2i/d; pair 0 is exact.

    The exponent x carries three roundings (the logarithm, the quotient, their product), which exp turns into a relative error 3ux; exp or
    pow, a reciprocal and the product with the position add at most six more. At i = 0 each of these steps is exact.
    """
    x = np.log(10000.0) * 2 * (np.arange(dim) // 2) / max(dim, 1)
    theta = np.arange(start_pos, start_pos + seq_len)[:, None] * np.exp(-x)
    return theta, np.where(x > 0, theta * a.unit * (3 * x + 6), 0) * _UP


def sinusoid(seq_len: int, dim: int, start_pos: int, a: Roundoff) -> Array:
    """The error of sin θ or cos θ: that of the angle (both have slope at most 1), then the function's own."""
    return _angles(seq_len, dim, start_pos, a)[1] + a.trig


def rope(x: Array, start_pos: int, a: Roundoff) -> Array:
    """The error of x cos θ + x' sin θ, x' being the partner's entry: the tables' errors, and three roundings."""
    _, dim = x.shape
    partner = np.abs(x)[:, [j ^ 1 if j ^ 1 < dim else j for j in range(dim)]]
    table_error = sinusoid(len(x), dim, start_pos, a)
    return np.asarray((np.abs(x) + partner) * (table_error + a.gamma(3) * (1 + table_error)) * _UP + 3 * a.smallest_normal)
