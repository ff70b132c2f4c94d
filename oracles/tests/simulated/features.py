"""Simulated kernels of attention with features: the forms of `attention` with a softcap, a bias, a
sink and fully masked rows.

Query heads that share a key head are rows of one problem. If an arithmetic stores scores, it also
stores the result of each operator on them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array
from oracles.error_analysis.visible_keys import Mask
from oracles.formats import Arithmetic
from oracles.tests.simulated.attention import LN2, LOG2E, Forward, Kernel, Part
from oracles.tests.simulated.forms import Form
from oracles.tests.simulated.rounding import Sums, rounding

__all__ = ["FeaturedKernel", "Features"]


class Features(NamedTuple):
    """The features of a problem, by rows.

    cap         the softcap c
    after_bias  whether the softcap comes after the bias
    bias        finite, (rows, keys)
    sink        (rows, 1)
    of_lse      the cotangent of the log-sum-exp, (rows, 1)
    dbias       the tangent of the bias
    dsink       the tangent of the sinks
    base        of the log-sum-exp, "e" or "2"
    blocked     the scores that become −c, (rows, keys)
    heads       the query head of each row
    alone       whether the log-sum-exp is over the keys without the sink
    alike       the fully masked rows that give all keys the same weight, (rows, 1)
    flows       whether derivatives flow in these rows
    slope       ALiBi's, (rows, 1)
    steps       what the slopes multiply, (rows, keys)
    """

    cap: float | None = None
    after_bias: bool = False
    bias: Array | None = None
    sink: Array | None = None
    of_lse: Array | None = None
    dbias: Array | None = None
    dsink: Array | None = None
    base: str = "e"
    blocked: Mask | None = None
    heads: NDArray[np.int64] | None = None
    alone: bool = False
    alike: Mask | None = None
    flows: bool = False
    slope: Array | None = None
    steps: Array | None = None


class FeaturedKernel(Kernel):
    """A form of attention with features."""

    def __init__(
        self, form: Form, a: Arithmetic, scale: float, mask: Mask | None, features: Features, seed: int = 0
    ) -> None:
        super().__init__(form, a, scale, mask, seed)
        self.of, self.held = features, rounding(a.scores)
        self.cap = None if features.cap is None else float(self.work(np.array(features.cap)))
        self.sink = None if features.sink is None else self.in_base(features.sink)
        self.by_keys: Array | None = None

    @property
    def alone(self) -> "FeaturedKernel":
        """The kernel without sinks, for conventions whose log-sum-exp leaves the sink out."""
        return FeaturedKernel(
            self.form, self.a, self.c, self.mask, self.of._replace(sink=None, dsink=None, alone=False), self.seed
        )

    # -- Forward -----------------------------------------------------------------------------------

    def quotient(self, s: Array) -> Array:
        """tanh(s/c)."""
        assert self.cap is not None
        x = self.work(s / self.cap) if self.form.divided else self.work(s * self.work(1 / np.array(self.cap)))
        x = self.held(x)
        y = np.tanh(x)
        accuracy = self.a.exp if self.a.tanh is None else self.a.tanh
        if self.form.tanh != "near":
            u = self.a.elementwise.unit_roundoff
            signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], y.shape)
            signs = (
                signs if self.form.tanh == "random" else np.full(y.shape, 1.0 if self.form.tanh == "values" else -1.0)
            )
            room = accuracy.relative - 4 * u if accuracy.relative > 4 * u else accuracy.relative / 2
            y = np.where((np.abs(y) < accuracy.flush) & (signs < 0), 0.0, y * (1 + signs * room))
        return self.held(self.work(np.clip(y, -1, 1)))

    def capped(self, s: Array) -> Array:
        """c·tanh(s/c)."""
        return s if self.cap is None else self.held(self.work(self.quotient(s) * self.cap))

    def scores(self, q: Array, k: Array, sums: Sums | None = None) -> Array:
        """The scores; 0 for all keys in the rows of `alike`."""
        s = super().scores(q, k, sums)
        return s if self.of.alike is None else np.where(self.of.alike, 0.0, s)

    def live(self, x: Array) -> Array:
        """A cotangent or a tangent of scores; 0 in the rows of `alike`, unless derivatives flow
        there.
        """
        return x if self.of.alike is None or self.of.flows else np.where(self.of.alike, 0.0, x)

    def logits(self, s: Array) -> Array:
        """The logits after the softcap, the bias, and the change of base."""
        if self.of.after_bias:
            s = self.biased(s)
            return self.in_base(self.capped(s if self.of.blocked is None else np.where(self.of.blocked, -np.inf, s)))
        t = self.capped(s)
        if self.form.biased:
            return self.in_base(self.biased(t))
        u = self.in_base(t)
        if self.of.bias is not None:
            u = self.held(self.work(u + self.in_base(rounding(self.a.bias)(self.of.bias))))
        return u if self.of.slope is None else self.held(self.work(u + self.distances(self.in_base(self.of.slope))))

    def biased(self, s: Array) -> Array:
        """s plus the bias, and plus ALiBi."""
        s = s if self.of.bias is None else self.held(self.work(s + rounding(self.a.bias)(self.of.bias)))
        return s if self.of.slope is None else self.held(self.work(s + self.distances(self.of.slope)))

    def distances(self, slope: Array) -> Array:
        """A slope times the distances, each of them a number of the format."""
        assert self.of.steps is not None
        return self.work(self.work(slope) * self.work(self.of.steps.astype(np.float64)))

    def attended(self, s: Array, v: Array, signs: Array) -> Forward:
        """The result with the sink as a key of value 0, if the form puts it among the keys."""
        if self.sink is None or self.form.sink in ("apart", "merged"):
            return super().attended(s, v, signs)
        zero, first = np.zeros((1, v.shape[1])), self.form.sink == "first"
        with_sink = super().attended(
            np.hstack([self.sink, s] if first else [s, self.sink]),
            np.vstack([zero, v] if first else [v, zero]),
            np.hstack([signs[:, :1], signs]),
        )
        return with_sink._replace(scores=s, weights=with_sink.weights[:, 1:] if first else with_sink.weights[:, :-1])

    def parts(self, s: Array, v: Array, signs: Array) -> list[Part]:
        """The parts of the keys; the form makes the sink a separate part, or adds it to the only
        part.
        """
        if self.sink is None or self.form.sink in ("first", "last"):
            return super().parts(s, v, signs)
        if self.form.sink == "merged" or self.form.normalise == "each" or self.form.split > 1:
            return [*super().parts(s, v, signs), (np.zeros((len(s), v.shape[1])), self.sink, np.zeros((len(s), 0)))]
        return [self.part(s, v, signs, self.sink)]

    def returned(self, x: Array, base: str = "e") -> Array:
        """A log-sum-exp in units of a base, or its tangent in natural units, as it is stored."""
        units = {("e", "2"): LOG2E, ("2", "e"): LN2}.get((base, self.of.base))
        x = x if units is None else self.work(x * float(self.work(np.array(units))))
        return rounding(self.a.saved_lse)(x)

    # -- Backward ----------------------------------------------------------------------------------

    def natural(self, of_lse: Array) -> Array:
        """The cotangent of a natural log-sum-exp."""
        return of_lse if self.of.base == "e" else self.work(of_lse * float(self.work(np.array(LOG2E))))

    def grad_logits(self, p: Array, dp: Array, delta: Array) -> Array:
        """p ⊙ (dP − delta + g_lse)."""
        if self.of.of_lse is None:
            return self.live(super().grad_logits(p, dp, delta))
        from_lse, work, store = self.natural(self.of.of_lse), self.work, rounding(self.a.grad_scores)
        if self.by_keys is not None:
            return self.live(work(store(work(p * work(dp - delta))) + store(work(self.by_keys * from_lse))))
        shifted = (
            work(dp - work(delta - from_lse)) if self.form.added == "−delta" else work(work(dp - delta) + from_lse)
        )
        return self.live(work(p * shifted))

    def bent(self, x: Array, q: Array, k: Array) -> Array:
        """x ⊙ (1 − tanh²)."""
        if self.cap is None:
            return x
        s = self.stored(q, k)
        y = self.quotient(self.biased(s) if self.of.after_bias else s)
        work = self.work
        h = work(1 - work(y * y)) if self.form.squared else work(work(1 - y) * work(1 + y))
        return self.held(work(x * h if self.of.blocked is None else np.where(self.of.blocked, 0.0, x * h)))

    def sink_weights(self, lse: Array, sign: float = 1.0) -> Array:
        """exp(sink − lse)."""
        assert self.sink is not None
        return self.exp(self.work(self.sink - rounding(self.a.saved_lse)(lse)), np.full_like(lse, sign))

    def sink_shift(self, lse: Array, delta: Array) -> Array:
        """The sink's weight times delta − g_lse, in one product or in two; the sink's dP is 0."""
        work, weights = self.work, self.sink_weights(lse)
        if self.of.of_lse is None or self.of.alone:
            return work(weights * delta)
        from_lse = self.natural(self.of.of_lse)
        if self.form.added == "dU":
            return work(work(weights * delta) - work(self.sink_weights(lse, -1.0) * from_lse))
        return work(weights * work(delta - from_lse))

    def weights_of_lse(self, q: Array, k: Array, v: Array) -> Array:
        """∂lse/∂u, the weights of the keys in the log-sum-exp; a form may compute them again from
        it.
        """
        kernel = self.alone if self.of.alone else self
        result = kernel.forward(q, k, v)
        if self.form.added != "dU":
            return result.weights
        weights = kernel.exp(self.work(result.scores - rounding(self.a.saved_lse)(result.lse)), kernel.signs(v, len(q)))
        return np.where(result.lse == -np.inf, 0.0, weights)

    def gradients(
        self, q: Array, k: Array, v: Array, g: Array
    ) -> tuple[Array, Array, Array, Array | None, Array | None]:
        """dq, dk and dv as they are stored, the gradient of a bias, and the gradient of each row's
        sink.

        The last two are not summed over axes that the bias or the sink shares.
        """
        if self.of.of_lse is not None and (self.of.alone or self.form.added == "dU"):
            self.by_keys = self.weights_of_lse(q, k, v)
        result, store = self.backward(q, k, v, g), rounding(self.a.output, self.a.flush_to_zero)
        du = result.du if not self.of.after_bias else self.bent(result.du, q, k)
        dsink = None if self.sink is None else -self.sink_shift(result.lse, result.delta)
        dbias = None if self.of.bias is None else rounding(self.a.grad_scores)(du)
        return store(result.dq), store(result.dk), store(result.dv), dbias, dsink

    def of_keys(self, left: Array, right: Array, factor: float) -> Array:
        """The gradient of keys or values; a form may store each query head's gradient before their
        sum.
        """
        heads = np.unique(np.zeros(0) if self.of.heads is None else self.of.heads)
        if not self.form.heads or len(heads) < 2:
            return super().of_keys(left, right, factor)
        parts = [
            super(FeaturedKernel, self).of_keys(left[self.of.heads == head], right[self.of.heads == head], factor)
            for head in heads
        ]
        stored = rounding(self.a.output)(np.stack(parts))
        return self.work(self.grad_sums.total(stored.reshape(len(parts), -1))).reshape(parts[0].shape)

    def shared(self, x: Array, shape: tuple[int, ...]) -> Array:
        """The stored sum of x over the axes along which an array of this shape broadcasts to x."""
        padded = (1,) * (x.ndim - len(shape)) + shape
        axes = [axis for axis, length in enumerate(padded) if length != x.shape[axis]]
        rest = [axis for axis in range(x.ndim) if axis not in axes]
        flat = x.transpose(*axes, *rest).reshape(-1, *(x.shape[axis] for axis in rest))
        return rounding(self.a.output, self.a.flush_to_zero)(self.work(self.grad_sums.total(flat))).reshape(shape)

    def tangents(self, t: Array, q: Array, k: Array) -> Array:
        """The tangents of the logits, from those of the scores: after the softcap, and with the
        bias.
        """
        if self.of.after_bias:
            return self.live(self.bent(t if self.of.dbias is None else self.work(t + self.of.dbias), q, k))
        t = self.bent(t, q, k)
        return self.live(t if self.of.dbias is None else self.work(t + self.of.dbias))

    def mean(self, of_keys: Array, lse: Array) -> Array:
        """The mean tangent of the logits, with the share of the sink."""
        if self.sink is None or self.of.dsink is None:
            return of_keys
        return self.work(of_keys + self.work(self.sink_weights(lse) * self.of.dsink))
