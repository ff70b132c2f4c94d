"""Attention kernels of every covered form, simulated in the precision of an arithmetic: what budgets must accept.

A `Form` chooses one alternative for each thing that implementations do differently.  Sums are taken in order, one
rounding per addition, or in the library's order; every intermediate result is rounded to the working precision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from oracles.ball import Array
from oracles.scores import Mask

Rounding = Callable[[Array], Array]
Triple = tuple[Array, Array, Array]

DTYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
LOG2E, LN2 = 1.4426950408889634, 0.6931471805599453


def to(dtype: Any) -> Rounding:
    """Rounding to a dtype, the result as float64."""

    def rounded(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(dtype).astype(np.float64)

    return rounded


def truncated(x: Array) -> Array:
    """x cut off to 23 significant bits, as tensor cores accumulate."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.trunc(mantissa * 2.0**23) / 2.0**23, exponent))


@dataclass(frozen=True)
class Form:
    """One covered way to compute attention.

    order      "sequential" adds in order, "reversed" backwards, "fused" in order with one rounding per multiply-add,
               "blas" as the library does
    scale      what the scale multiplies: "scores", "q", "k", or its root on "both"
    base       whether exponentials and log-sum-exps are in base "e" or "2"
    tile       keys per step of an online softmax, or None for all at once
    lazy       whether the reference of an online softmax only moves by more than 8 in base 2
    split      parts of the keys computed apart and merged by their log-sum-exps
    normalise  "before" or "after" the product with v
    delta      "pdp" for rowsum(p·dP), "go" for rowsum(g·o) of the saved output
    recompute  whether the backward pass recomputes p from the log-sum-exp, or keeps it
    """

    order: str = "blas"
    scale: str = "scores"
    base: str = "e"
    tile: int | None = None
    lazy: bool = False
    split: int = 1
    normalise: str = "after"
    delta: str = "go"
    recompute: bool = True


@dataclass(frozen=True)
class Machine:
    """Where a simulated kernel rounds: working precision, storage of weights and dS, accumulators, storage of a scaled q or k."""

    work: Rounding
    stored: Rounding
    accumulate: Rounding
    scaled: Rounding

    def product(self, a: Array, b: Array, form: Form) -> Array:
        """a·b in the form's order of summation."""
        if form.order == "blas" and self.work is IDENTITY:
            return a @ b
        if form.order == "blas":
            return self.accumulate((a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64))
        total = np.zeros((a.shape[0], b.shape[1]))
        pairs = list(zip(a.T, b, strict=True))
        for left, right in pairs[:: -1 if form.order == "reversed" else 1]:
            term = left[:, None] * right
            total = self.accumulate(total + (term if form.order == "fused" else self.work(term)))
        return total


def IDENTITY(x: Array) -> Array:  # noqa: N802
    """x as it is: float64 is the working precision."""
    return x


def machine(dtype: str, truncating: bool = False, scaled_in_storage: bool = False) -> Machine:
    """The machine of a dtype: binary64 works in itself, all others in binary32."""
    work = IDENTITY if dtype == "float64" else to(np.float32)
    stored = to(DTYPES[dtype]) if dtype in ("float16", "bfloat16") else IDENTITY
    return Machine(work, stored, truncated if truncating else work, stored if scaled_in_storage else work)


@dataclass(frozen=True)
class Kernel:
    """A form of attention on a machine, for unbatched q, k, v and a bool array of allowed keys (every row has one)."""

    form: Form
    on: Machine
    output: Rounding

    def exp(self, x: Array) -> Array:
        """The exponential of a difference of scores, or 2 to it."""
        with np.errstate(under="ignore"):
            return self.on.work(np.exp(x) if self.form.base == "e" else np.exp2(x))

    def scores(self, q: Array, k: Array, allowed: Mask) -> Array:
        """Scores, in units of ln 2 in base 2; −∞ where blocked."""
        work, form = self.on.work, self.form
        c = float(work(np.array(1 / np.sqrt(q.shape[1]))))
        if form.scale == "q":
            q = self.on.scaled(q * c)
        elif form.scale == "k":
            k = self.on.scaled(k * c)
        elif form.scale == "both":
            root = float(work(np.array(np.sqrt(c))))
            q, k = self.on.scaled(q * root), self.on.scaled(k * root)
        s = self.on.product(q, k.T, form)
        if form.scale == "scores":
            s = work(s * c)
        if form.base == "2":
            s = work(s * float(work(np.array(LOG2E))))
        return np.where(allowed, s, -np.inf)

    def part(self, s: Array, v: Array) -> tuple[Array, Array]:
        """The normalised output and the log-sum-exp over some keys, by an online softmax over tiles."""
        work, form = self.on.work, self.form
        tile = form.tile or s.shape[1]
        m = np.full((s.shape[0], 1), -np.inf)
        total, acc = np.zeros((s.shape[0], 1)), np.zeros((s.shape[0], v.shape[1]))
        weights = np.zeros_like(s)
        for start in range(0, s.shape[1], tile):
            block = s[:, start : start + tile]
            highest = np.maximum(m, block.max(axis=1, keepdims=True))
            if form.lazy:
                highest = np.where(highest > m + 8 * (1 if form.base == "2" else np.log(2)), highest, m)
            with np.errstate(invalid="ignore"):
                shrink = np.where(m == -np.inf, 0.0, self.exp(work(m - highest)))
                e = np.where(block == -np.inf, 0.0, self.exp(work(block - highest)))
            m = highest
            total = work(work(total * shrink) + self.on.product(e, np.ones((e.shape[1], 1)), form))
            weights *= shrink
            weights[:, start : start + tile] = e
            if form.normalise == "after":
                acc = work(work(acc * shrink) + self.on.product(self.on.stored(e), v[start : start + tile], form))
        live = total > 0
        safe = np.where(live, total, 1.0)
        if form.normalise == "before":
            out = self.on.product(self.on.stored(work(work(weights) * work(1 / safe))), v, form)
        else:
            out = work(acc * work(1 / safe))
        log = work(np.log(safe) if form.base == "e" else np.log2(safe))
        return out, np.where(live, work(np.where(live, m, 0.0) + log), -np.inf)

    def forward(self, q: Array, k: Array, v: Array, allowed: Mask) -> tuple[Array, Array, Array]:
        """The output before it is rounded, the log-sum-exp and the scores."""
        work, form = self.on.work, self.form
        s = self.scores(q, k, allowed)
        cuts = np.array_split(np.arange(s.shape[1]), min(form.split, s.shape[1]))
        parts = [self.part(s[:, cut], v[cut]) for cut in cuts]
        out, lse = parts[0]
        for other, other_lse in parts[1:]:
            high = np.maximum(lse, other_lse)
            with np.errstate(invalid="ignore"):
                a, b = (np.where(x == -np.inf, 0.0, self.exp(work(x - high))) for x in (lse, other_lse))
            weight = work(a + b)
            safe = np.where(weight > 0, weight, 1.0)
            out = work(work(work(a * out) + work(b * other)) * work(1 / safe))
            log = work(np.log(safe) if form.base == "e" else np.log2(safe))
            lse = np.where(weight > 0, work(np.where(weight > 0, high, 0.0) + log), -np.inf)
        return out, lse, s

    def weights(self, s: Array, lse: Array) -> Array:
        """The softmax weights, from the log-sum-exps or anew."""
        if self.form.recompute:
            return np.where(s == -np.inf, 0.0, self.exp(self.on.work(s - lse)))
        e = np.where(s == -np.inf, 0.0, self.exp(self.on.work(s - s.max(axis=1, keepdims=True))))
        return self.on.work(e / self.on.product(e, np.ones((e.shape[1], 1)), self.form))

    def jvp(self, point: Triple, tangent: Triple, allowed: Mask) -> Array:
        """The tangent of the output: (p ⊙ (t − t̄))·v + p·dv, or (p ⊙ t)·v − t̄·o + p·dv where weights are normalised after."""
        (q, k, v), (dq, dk, dv), work, form, on = point, tangent, self.on.work, self.form, self.on
        raw, lse, s = self.forward(q, k, v, allowed)
        p = self.weights(s, lse)
        c = float(work(np.array(1 / np.sqrt(q.shape[1]))))
        t = np.where(allowed, work(work(on.product(dq, k.T, form) + on.product(q, dk.T, form)) * c), 0.0)
        mean = on.product(work(p * t), np.ones((t.shape[1], 1)), form)
        if form.normalise == "before":
            drift = on.product(on.stored(work(p * work(t - mean))), v, form)
        else:
            drift = work(on.product(on.stored(work(p * t)), v, form) - work(mean * raw))
        return self.output(work(drift + on.product(on.stored(p), dv, form)))

    def __call__(self, q: Array, k: Array, v: Array, allowed: Mask, g: Array) -> tuple[Array, Array, Array, Array]:
        """out, dq, dk and dv."""
        work, form, on = self.on.work, self.form, self.on
        c = float(work(np.array(1 / np.sqrt(q.shape[1]))))
        raw, lse, s = self.forward(q, k, v, allowed)
        out, p = self.output(raw), self.weights(s, lse)
        dp = on.product(g, v.T, form)
        ones = np.ones((max(v.shape), 1))
        delta = on.product(work(p * dp), ones[: p.shape[1]], form) if form.delta == "pdp" else None
        if delta is None:
            delta = on.product(work(g * out), ones[: g.shape[1]], form)
        ds = on.stored(work(p * work(dp - delta)))
        dq = work(on.product(ds, k, form) * c)
        dk = work(on.product(ds.T, q, form) * c)
        return out, self.output(dq), self.output(dk), self.output(on.product(on.stored(p).T, g, form))
