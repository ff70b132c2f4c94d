"""Simulated kernels of attention, its VJP and its JVP, which round every intermediate result.

A kernel has a form (`forms`), and an arithmetic whose fields say all of its roundings. The code is
independent of the oracles, and uses only the data of an arithmetic.
"""

from dataclasses import replace
from typing import NamedTuple

import flint
import numpy as np

from oracles.ball import Array
from oracles.error_analysis.computation import rescaling_exp, slack
from oracles.error_analysis.visible_keys import Mask
from oracles.formats import BINARY64, Arithmetic
from oracles.tests.simulated.forms import Form
from oracles.tests.simulated.rounding import Sums, accumulator, rounding, truncated

__all__ = ["Backward", "Forward", "Kernel", "Part"]

LN2, LOG2E = 0.6931471805599453, 1.4426950408889634
OPERAND_BITS = 11
"""Significant bits of TF32's operands: truncation changes them by less than 2⁻¹⁰, relatively."""


class Backward(NamedTuple):
    """The output, the log-sum-exps, dU, delta, and the gradients of q, k and v, all before they are
    stored.
    """

    out: Array
    lse: Array
    du: Array
    delta: Array
    dq: Array
    dk: Array
    dv: Array


class Forward(NamedTuple):
    """The output before it is stored, the log-sum-exps, the scores, and the weights after
    normalisation.
    """

    out: Array
    lse: Array
    scores: Array
    weights: Array


Part = tuple[Array, Array, Array]


class Kernel:
    """A form of attention in an arithmetic, for q, k, v without batch axes, and a scale.

    Every row of the mask has a visible key. `seed` draws trees and random signs.
    """

    def __init__(self, form: Form, a: Arithmetic, scale: float, mask: Mask | None = None, seed: int = 0) -> None:
        self.form, self.a, self.mask, self.seed = form, a, mask, seed
        self.work = rounding(a.elementwise, a.flush_to_zero)
        self.c = float(self.work(np.array(scale)))
        root = float(self.work(np.sqrt(np.array(abs(self.c)))))
        both = float(np.copysign(root, self.c)), root
        self.factors = {"s": (1.0, 1.0), "q": (self.c, 1.0), "k": (1.0, self.c), "both": both}[form.scale]
        forward, backward = (
            Sums(form.order, a.sum_block, accumulator(u, form.chopped), seed) for u in (a.accumulate, a.grad_accumulate)
        )
        self.sums, self.grad_sums = forward, backward

    def product(self, a: Array, b: Array, sums: Sums | None = None) -> Array:
        """a·b, with rounded operands if the arithmetic rounds them."""
        if self.a.product:
            kept = truncated(OPERAND_BITS)
            a, b = kept(a), kept(b)
        if self.a.flush_to_zero:
            a, b = self.work(a), self.work(b)
        return self.work((sums or self.sums).product(a, b))

    def rowsum(self, x: Array, sums: Sums | None = None) -> Array:
        """Sums along rows, as a column."""
        return self.work((sums or self.sums).total(x.T))[:, None]

    def exp(self, x: Array, signs: Array, rescaling: bool = False) -> Array:
        """exp(x), or 2^x in base 2: the nearest number, or a number with the largest error that the
        arithmetic allows, in the directions of `signs`.
        """
        stated = rescaling_exp(self.a) if rescaling else self.a.exp
        e, size = (np.exp(x), np.abs(x)) if self.form.base == "e" else (np.exp2(x), np.abs(x) * LN2)
        if self.form.exp != "near":
            u = self.a.elementwise.unit_roundoff
            bound = stated.relative + stated.per_unit * np.where(np.isfinite(size), size, 0.0)
            room = np.where(bound > 4 * u, bound - 4 * u, bound / 2 if u == BINARY64.unit_roundoff else bound)
            room = np.where(x == 0, max(stated.at_zero - 4 * u, 0.0), room)
            e = np.where((e < stated.flush) & (signs < 0), 0.0, e * (1 + signs * room))
        return self.work(e)

    def log(self, x: Array) -> Array:
        """The logarithm of x in the form's base."""
        return self.work(np.log(x) if self.form.base == "e" else np.log2(x))

    def over(self, x: Array, total: Array) -> Array:
        """x / total or x·(1 / total), and 0 for rows without a visible key so far."""
        y = self.work(x * self.work(1 / total)) if self.form.reciprocal else self.work(x / total)
        return np.where(total == 0, 0.0, y)

    def signs(self, v: Array, rows: int) -> Array:
        """The sign of each exponential's error."""
        if self.form.exp == "random":
            return np.random.default_rng(self.seed).choice([-1.0, 1.0], (rows, len(v)))
        away = np.where(v[:, 0] > np.median(v[:, 0]), 1.0, -1.0) * (-1.0 if self.form.exp == "minus values" else 1.0)
        return np.tile(away, (rows, 1))

    def scaled(self, q: Array, k: Array) -> tuple[Array, Array]:
        """q and k, multiplied by their factors and stored."""
        store = rounding(self.a.scale_on_inputs)
        q, k = (x if f == 1.0 else store(self.work(x * f)) for x, f in zip((q, k), self.factors, strict=True))
        return q, k

    def scores(self, q: Array, k: Array, sums: Sums | None = None) -> Array:
        """The arguments of the exponentials, in the form's base; −∞ at masked keys."""
        s = self.logits(self.stored(q, k, sums))
        return s if self.mask is None else np.where(self.mask, s, -np.inf)

    def stored(self, q: Array, k: Array, sums: Sums | None = None) -> Array:
        """The scores in the format in which they are stored."""
        q, k = self.scaled(q, k)
        s = self.work(_exact_product(q, k.T)) if self.form.exact else self.product(q, k.T, sums)
        return rounding(self.a.scores)(self.work(s * self.c) if self.form.scale == "s" else s)

    def logits(self, s: Array) -> Array:
        """The logits for stored scores, in the form's base."""
        return self.in_base(s)

    def in_base(self, x: Array) -> Array:
        """x in units of the form's base."""
        return x if self.form.base == "e" else self.work(x * float(self.work(np.array(LOG2E))))

    def part(self, s: Array, v: Array, signs: Array, apart: Array | None = None) -> Part:
        """The output, the log-sum-exp and the weights of some keys, by an online softmax over
        tiles.

        A fully masked row has 0, −∞ and 0. `apart` is a logit without a value, added to the sum
        after all keys.
        """
        form, store, work = self.form, rounding(self.a.weights), self.work
        stored_difference = rounding(self.a.stored_differences)
        tile = form.tile or s.shape[1]
        m = np.full((len(s), 1), -np.inf)
        total, out, weights = np.zeros((len(s), 1)), np.zeros((len(s), v.shape[1])), np.zeros_like(s)
        for start in range(0, s.shape[1], tile):
            keys = slice(start, start + tile)
            highest = np.maximum(m, s[:, keys].max(axis=1, keepdims=True))
            if form.lazy:
                highest = np.where(highest > m + slack(self.a) * (1 if form.base == "2" else LN2), highest, m)
            shrink = np.where(m == -np.inf, 0.0, self.exp(work(m - highest), signs[:, :1], rescaling=True))
            m = highest
            x = np.where(s[:, keys] == -np.inf, -np.inf, stored_difference(work(s[:, keys] - m)))
            e = self.exp(x, signs[:, keys])
            summed = e if form.passes == 1 else self.exp(x, -signs[:, keys])
            weights = work(weights * shrink)
            weights[:, keys] = e
            kept = work(total * shrink)
            total = work(kept + self.rowsum(store(summed) if self.a.stored_sum else summed))
            if form.normalise == "each":
                inverse = self.over(np.ones_like(total), total)
                kept, e = work(kept * inverse), work(e * inverse)
            else:
                kept = shrink
            if form.normalise != "before":
                out = work(work(out * kept) + self.product(store(e), v[keys]))
        if apart is not None:
            total = work(total + self.exp(work(apart - m), signs[:, :1]))
        weights = self.over(weights, total)
        if form.normalise == "before":
            out = self.product(store(weights), v)
        elif form.normalise == "after":
            out = self.over(out, total)
        return out, work(m + self.log(total)), weights

    def forward(self, q: Array, k: Array, v: Array) -> Forward:
        """The forward pass over all keys."""
        return self.attended(self.scores(q, k), v, self.signs(v, len(q)))

    def parts(self, s: Array, v: Array, signs: Array) -> list[Part]:
        """The results of each part of the keys, computed separately."""
        keys = s.shape[1]
        cuts = np.array_split(np.arange(keys), min(self.form.split, keys // (self.a.rescale_block or keys)) or 1)
        return [self.part(s[:, cut], v[cut], signs[:, cut]) for cut in cuts]

    def attended(self, s: Array, v: Array, signs: Array) -> Forward:
        """The parts of the keys, merged by their log-sum-exps."""
        first, *others = self.parts(s, v, signs)
        out, lse, weights = first
        store = rounding(self.a.stored_parts)
        if others:
            out = store(out)
        for other, other_lse, other_weights in others:
            high = np.maximum(lse, other_lse)
            a, b = (
                np.where(x == -np.inf, 0.0, self.exp(self.work(x - high), signs[:, :1], rescaling=True))
                for x in (lse, other_lse)
            )
            total = self.work(a + b)
            out = self.over(self.work(self.work(a * out) + self.work(b * store(other))), total)
            weights = self.over(np.hstack([self.work(a * weights), self.work(b * other_weights)]), total)
            lse = self.work(high + self.log(total))
        return Forward(out, lse, s, weights)

    def output(self, q: Array, k: Array, v: Array) -> Array:
        """The stored output."""
        return rounding(self.a.output, self.a.flush_to_zero)(self.forward(q, k, v).out)

    def vjp(self, q: Array, k: Array, v: Array, g: Array) -> tuple[Array, ...]:
        """out, dq, dk and dv, as they are stored."""
        result, store = self.backward(q, k, v, g), rounding(self.a.output, self.a.flush_to_zero)
        return store(result.out), store(result.dq), store(result.dk), store(result.dv)

    def backward(self, q: Array, k: Array, v: Array, g: Array) -> Backward:
        """The results of the backward pass, before they are stored."""
        a, form, work = self.a, self.form, self.work
        out, lse, s, p = self.forward(q, k, v)
        if form.again:
            s = self.scores(q, k, replace(self.sums, order="sequential" if form.order == "reversed" else "reversed"))
        p = rounding(a.saved_weights)(self.weights(s, rounding(a.saved_lse)(lse), p, v))
        dp = rounding(a.grad_weights)(self.product(g, v.T, self.grad_sums))
        if form.delta == "weights":
            delta = self.rowsum(work(p * dp), self.grad_sums)
        else:
            delta = self.rowsum(work(g * rounding(a.saved_output)(out)), self.grad_sums)
        du, store = self.grad_logits(p, dp, delta), rounding(a.grad_scores)
        ds = self.bent(du, q, k)
        ds = store(work(ds * self.c)) if form.early and not self.folded else store(ds)
        query_operand, key_operand = self.operands(q, k)
        left_q, left_k = self.factors if self.folded else (self.c, self.c) if not form.early else (1.0, 1.0)
        block = self.a.grad_block_of_keys or self.a.grad_block
        dq, dk = self.rescaled(self.gradient(ds.T, key_operand, block), left_q), self.of_keys(ds, query_operand, left_k)
        return Backward(out, lse, du, delta, dq, dk, self.of_keys(rounding(a.weights)(p), g, 1.0))

    @property
    def folded(self) -> bool:
        """Whether derivatives take the scaled q and k."""
        return self.form.folded and self.form.scale != "s"

    def operands(self, q: Array, k: Array) -> tuple[Array, Array]:
        """q and k, or their tangents, in the form that derivatives take."""
        return self.scaled(q, k) if self.folded else (q, k)

    def weights(self, s: Array, lse: Array, kept: Array, v: Array) -> Array:
        """The weights for derivatives, computed from the log-sum-exp, or kept; 0 in a fully masked
        row.
        """
        if not self.form.recompute:
            return kept
        return np.where(lse == -np.inf, 0.0, self.exp(self.work(s - lse), -self.signs(v, len(s))))

    def grad_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        """dU from the weights, dP and delta."""
        return self.work(p * self.work(dp - delta))

    def bent(self, x: Array, _q: Array, _k: Array) -> Array:
        """The cotangent of scores from the cotangent of logits.

        The tangent of logits from the tangent of scores is the same product.
        """
        return x

    def gradient(self, left: Array, right: Array, block: int | None) -> Array:
        """leftᵀ·right; partial sums over `block` rows are stored in the output's format, if it is
        not None.
        """
        step = block or len(left) or 1
        store, total = rounding(self.a.output), self.product(left[:step].T, right[:step], self.grad_sums)
        for start in range(step, len(left), step):
            rows = slice(start, start + step)
            total = self.work(store(total) + self.product(left[rows].T, right[rows], self.grad_sums))
        return total

    def of_keys(self, left: Array, right: Array, factor: float) -> Array:
        """The gradient of keys or values, summed over query rows, times the remaining factor of the
        scale.
        """
        return self.rescaled(self.gradient(left, right, self.a.grad_block), factor)

    def rescaled(self, x: Array, factor: float) -> Array:
        """A gradient times the remaining factor of the scale."""
        return x if factor == 1.0 else self.work((rounding(self.a.scale_on_inputs)(x) if self.folded else x) * factor)

    def jvp(self, q: Array, k: Array, v: Array, dq: Array, dk: Array, dv: Array) -> Array:
        """The tangent of the output, as it is stored."""
        return rounding(self.a.output, self.a.flush_to_zero)(self.moved(q, k, v, dq, dk, dv)[0])

    def moved(self, q: Array, k: Array, v: Array, dq: Array, dk: Array, dv: Array) -> tuple[Array, Array]:
        """The tangents of the output and of the log-sum-exp.

        They are (p ⊙ (t − t̄))·v + p·dv, or (p ⊙ t)·v − t̄·o + p·dv, and t̄.
        """
        work, store = self.work, rounding(self.a.weights)
        out, lse, s, p = self.forward(q, k, v)
        p = self.weights(s, lse, p, v)
        query_operand, key_operand = self.operands(q, k)
        query_tangent, key_tangent = self.operands(dq, dk)
        t = work(self.product(query_tangent, key_operand.T) + self.product(query_operand, key_tangent.T))
        t = self.tangents(t if self.folded else work(t * self.c), q, k)
        mean = self.mean(self.rowsum(work(p * t)), lse)
        if self.form.normalise == "before":
            drift = self.product(store(work(p * work(t - mean))), v)
        else:
            drift = work(self.product(store(work(p * t)), v) - work(mean * out))
        return work(drift + self.product(store(p), dv)), mean

    def tangents(self, t: Array, _q: Array, _k: Array) -> Array:
        """The tangents of logits, given those of scores."""
        return t

    def mean(self, of_keys: Array, _lse: Array) -> Array:
        """The tangent of the log-sum-exp, given what keys contribute."""
        return of_keys


def _exact_product(a: Array, b: Array) -> Array:
    """a·b, correctly rounded to binary64, except for ties that 400 bits do not decide."""
    with flint.ctx.workprec(400):
        left, right = (flint.arb_mat(len(x), x.shape[1], x.ravel().tolist()) for x in (a, b))
        return np.array([float(x.mid()) for x in (left * right).entries()]).reshape(len(a), b.shape[1])
