"""No term of the budget can be left out: a covered kernel and an input leave the budget once that
term is deleted.

Each case is float64 attention with one kind of rounding put in, coarse enough to see, and the
arithmetic that allows exactly that.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

import oracles.error_analysis.ball_attention
import oracles.error_analysis.terms
import oracles.softmax
from oracles.ball import Array
from oracles.dot_product import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.enclosure import Enclosure
from oracles.error_analysis.terms import Exponents, Sum, Terms
from oracles.error_analysis.terms import terms as all_terms
from oracles.formats import BINARY64, BRAIN16, FLOAT32, FLOAT64, Arithmetic, Elementary, Format
from oracles.generalised_attention import attention
from oracles.softmax import hard_masked_softmax

Rounding = Callable[[Array], Array]

# Fixed-point numbers: no relative error, and steps of 2⁻⁶ everywhere.
STEPS = Format("fixed point", 2.0**-53, 2.0**-6, 2.0**-6, BINARY64.largest)


def brain16(x: Array) -> Array:
    """x rounded to 8 significant bits."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(mantissa * 2**8) / 2**8, exponent))


def steps(x: Array) -> Array:
    """x rounded to a multiple of 2⁻⁶."""
    return np.rint(x * 2**6) / 2**6


def next_step(x: Array) -> Array:
    """The next multiple of 2⁻⁶ away from 0, as of a rounding that is not to the nearest."""
    return np.copysign(np.ceil(np.abs(x) * 2**6) / 2**6, x)


def apart_by_steps(x: Array) -> Array:
    """x moved by a step of 2⁻⁶: upwards for the larger half of each row, downwards for the others."""
    return x + np.where(x >= np.median(x, axis=1, keepdims=True), 2.0**-6, -(2.0**-6))


def chopped(bits: int) -> Rounding:
    """Rounding to `bits` significant bits by leaving out the rest, as a truncating accumulator does."""

    def chop(x: Array) -> Array:
        mantissa, exponent = np.frexp(x)
        return np.asarray(np.ldexp(np.trunc(mantissa * 2.0**bits) / 2.0**bits, exponent))

    return chop


def nearest(bits: int) -> Rounding:
    """Rounding to the nearest number of `bits` significant bits."""

    def rounded(x: Array) -> Array:
        mantissa, exponent = np.frexp(x)
        return np.asarray(np.ldexp(np.rint(mantissa * 2.0**bits) / 2.0**bits, exponent))

    return rounded


def product(a: Array, b: Array, accumulate: Rounding) -> Array:
    """a·b, summed in order by an accumulator that rounds every addition."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for left, right in zip(a.T, b, strict=True):
        total = accumulate(total + left[:, None] * right)
    return total


def unchanged(x: Array) -> Array:
    """x, not rounded."""
    return x


@dataclass(frozen=True)
class Kernel:
    """Attention in float64 with a rounding in each place."""

    operands: Rounding = unchanged
    scaled_q: Rounding = unchanged
    accumulate: Rounding = unchanged
    score: Rounding = unchanged
    exp: Rounding = np.exp
    block: int | None = None
    rescale: float = 1.0
    saved_lse: Rounding = unchanged
    summed: Rounding = unchanged
    weight: Rounding = unchanged
    saved_weight: Rounding = unchanged
    grad_weight: Rounding = unchanged
    term: Rounding = unchanged
    output: Rounding = unchanged
    saved: Rounding = unchanged
    grad_accumulate: Rounding = unchanged
    grad_score: Rounding = unchanged
    grad_scaled: Rounding = unchanged
    delta_of_weights: bool = False
    kept: bool = False
    cap: float | None = None
    quotient: Rounding = unchanged
    tanh: Rounding = np.tanh
    bias: Array | None = None
    biased: Rounding = unchanged

    def scores(self, q: Array, k: Array) -> Array:
        """s = (q/√d)·kᵀ, capped and with a bias, if there are such."""
        scaled = self.scaled_q(self.operands(q) / np.sqrt(q.shape[1]))
        s = self.score(product(scaled, self.operands(k).T, self.accumulate))
        s = s if self.cap is None else self.cap * self.tanh(self.quotient(s / self.cap))
        return s if self.bias is None else self.biased(s + self.bias)

    def exponentials(self, s: Array) -> tuple[Array, Array]:
        """exp(s − m), block by block with a rescaling of the earlier ones where a larger score is met, and m."""
        m = s.max(axis=1, keepdims=True)
        e = self.exp(s - m)
        for start in range(self.block or s.shape[1], s.shape[1], self.block or 1):
            moves = s[:, start : start + (self.block or 1)].max(axis=1) > s[:, :start].max(axis=1)
            e[moves, :start] *= self.rescale
        return e, m

    def forward(self, q: Array, k: Array, v: Array) -> Array:
        """The output, with stored weights normalised before the product with v."""
        e, _ = self.exponentials(self.scores(q, k))
        p = self.weight(self.summed(e) / product(self.summed(e), np.ones((e.shape[1], 1)), self.accumulate))
        total = np.zeros((q.shape[0], v.shape[1]))
        for left, right in zip(p.T, self.operands(v), strict=True):
            total = self.accumulate(total + self.term(left[:, None] * right))
        return self.output(total)

    def vjp(self, q: Array, k: Array, v: Array, g: Array) -> tuple[Array, Array, Array]:
        """dq, dk and dv from the saved log-sum-exp, with delta = rowsum(g·o) of the saved output, or rowsum(p·dP)."""
        s = self.scores(q, k)
        e, m = self.exponentials(s)
        total = e.sum(axis=1, keepdims=True)
        if self.kept:  # and the sum is of a pass of its own, whose rescalings err the other way
            total = replace(self, rescale=2 - self.rescale).exponentials(s)[0].sum(axis=1, keepdims=True)
        p = self.saved_weight(e / total if self.kept else self.exp(s - self.saved_lse(m + np.log(total))))
        dp = self.grad_weight(product(g, v.T, self.grad_accumulate))
        delta = (g * self.saved(e / total @ v)).sum(axis=1, keepdims=True)
        if self.delta_of_weights:
            delta = product(p * dp, np.ones((dp.shape[1], 1)), self.grad_accumulate)
        ds = self.grad_score(p * (dp - delta))
        scale = 1 / np.sqrt(q.shape[1])
        dq = scale * self.grad_scaled(product(ds, k, self.grad_accumulate))
        dk = scale * product(ds.T, q, self.grad_accumulate)
        return self.output(dq), self.output(dk), self.output(product(p.T, g, self.grad_accumulate))

    def jvp(self, q: Array, k: Array, v: Array, dq: Array) -> Array:
        """The derivative in the direction (dq, 0, 0)."""
        e, _ = self.exponentials(self.scores(q, k))
        p = e / e.sum(axis=1, keepdims=True)
        t = product(dq, k.T, self.accumulate) / np.sqrt(q.shape[1])
        return self.output(product(p * (t - (p * t).sum(axis=1, keepdims=True)), v, self.grad_accumulate))


@dataclass(frozen=True)
class Case:
    """A term, an arithmetic that has it, a kernel that uses it up, sizes and values, and the result it shows in."""

    term: str
    arithmetic: Arithmetic
    kernel: Kernel
    sizes: tuple[int, int, int, int]
    result: str = "out"
    q: float | None = None
    v: float | None = None
    offset: float = 0.0
    values: str = "normal"
    prepare: Callable[[Array, Array, Array], None] = lambda k, v, g: None
    bias: bool = False

    def inputs(self) -> tuple[Array, ...]:
        """q, k, v, the cotangent, and the tangent of q."""
        n_q, n_k, d, d_v = self.sizes
        rng = np.random.default_rng(0)
        draw = {"normal": rng.standard_normal, "positive": rng.random, "one": np.ones}[self.values]
        q, k, v, g = (draw(shape) for shape in ((n_q, d), (n_k, d), (n_k, d_v), (n_q, d_v)))
        if self.q is not None:
            q = q * self.q
        if self.v is not None:
            v = np.full_like(v, self.v)
        self.prepare(k, v, g)
        return q, k, v + self.offset, g, draw((n_q, d))

    def worst(self) -> float:
        """The largest error ÷ budget of the kernel's result."""
        q, k, v, g, dq = self.inputs()
        a = self.arithmetic
        budgets: tuple[Enclosure, ...]
        results: tuple[Array, ...]
        if self.bias or self.kernel.cap is not None:
            bias = np.random.default_rng(1).standard_normal(self.sizes[:2]) if self.bias else None
            budgets = (attention(q[None], k[None], v[None], bias=bias, softcap=self.kernel.cap, arithmetic=a)[0],)
            results = (replace(self.kernel, bias=bias).forward(q, k, v)[None],)
        elif self.result == "out":
            budgets, results = (scaled_dot_product_attention(q, k, v, arithmetic=a),), (self.kernel.forward(q, k, v),)
        elif self.result == "dout":
            zeros = np.zeros_like(k), np.zeros_like(v)
            budgets = (scaled_dot_product_attention_jvp(q, k, v, None, dq, *zeros, arithmetic=a),)
            results = (self.kernel.jvp(q, k, v, dq),)
        else:
            which = ("dq", "dk", "dv").index(self.result)
            budgets = scaled_dot_product_attention_vjp(q, k, v, None, g, arithmetic=a)[which:]
            results = self.kernel.vjp(q, k, v, g)[which:]
        return float(budgets[0].excess(results[0]).max())


def coarse_exp(x: Array) -> Array:
    """exp with a relative error of 2⁻⁸: upwards for the larger half of the arguments, downwards for the others."""
    return np.exp(x) * np.where(x >= np.median(x), 1 + 2.0**-8, 1 - 2.0**-8)


def coarse_tanh(x: Array) -> Array:
    """tanh with a relative error of 2⁻⁸, upwards and downwards as exp above."""
    return np.tanh(x) * np.where(x >= np.median(x), 1 + 2.0**-8, 1 - 2.0**-8)


def tanh_by_exponentials(x: Array) -> Array:
    """tanh with an absolute error of 2⁻⁸, as a difference from 1 has."""
    return np.tanh(x) + np.where(x >= np.median(x), 2.0**-8, -(2.0**-8))


def sloping_exp(x: Array) -> Array:
    """exp with a relative error of 2⁻⁸ per unit of its argument."""
    return np.exp(x) * (1 + 2.0**-8 * np.abs(x))


def first_key_and_value_zero(k: Array, v: Array, g: Array) -> None:
    """Errors of scores then differ from key to key."""
    k[0], v[0] = 0, 0


def small_gradients(k: Array, v: Array, g: Array) -> None:
    """Cotangents and keys far below a step of 2⁻⁶."""
    g *= 2.0**-30
    k *= 2.0**-10


def keys_along_the_gradient(k: Array, v: Array, g: Array) -> None:
    """All terms of the second element of dq = dS·k are then positive; most of the weight is on the first key."""
    k[:] = np.hstack([0 * v, np.sign(g[0] * v)])
    k[0], v[0] = (100, 0), 0


def two_large_keys(k: Array, v: Array, g: Array) -> None:
    """The first key and, with a larger score, a late one; queries are 1."""
    k[:], v[:] = -100, 0
    k[0], k[100], v[0] = 0, 1, 1


def keys_of_one_and_a_half_roundoffs(k: Array, v: Array, g: Array) -> None:
    """Each moves a sum of 1 by two roundoffs of 2⁻⁹, to the nearest number; queries are 1."""
    k[:], v[:] = np.log(1.5 * 2.0**-9), 0
    k[0], v[0] = 0, 1


def ascending_keys(k: Array, v: Array, g: Array) -> None:
    """Every key is the largest so far; queries are 1."""
    k[:, 0] = np.arange(len(k)) / 2**10


def ascending_keys_of_two_values(k: Array, v: Array, g: Array) -> None:
    """Every key is the largest so far, and the first eighth of them have values; queries are 1."""
    k[:, 0] = np.arange(len(k)) / 2**10
    v[len(v) // 8 :] = 0


def far_keys(k: Array, v: Array, g: Array) -> None:
    """Only the first key has a score near 0; queries are 1."""
    k[:] = -10
    k[0] = 0


def keys_that_are_rounded_up(k: Array, v: Array, g: Array) -> None:
    """All weights but the first gain almost a roundoff where they are stored; queries are 1."""
    k[:], v[:] = np.log(0.502), 0
    k[0], v[0] = 0, 1


FIXED = replace(BINARY64, smallest_subnormal=2.0**-20, smallest_normal=2.0**-20)
COARSE = Elementary(2.0**-8, 0.0, 0.0)
ABSOLUTE = Elementary(2.0**-50, 0.0, 2.0**-8)
EAGER = replace(FLOAT64, rescale_slack=0.0)


def divided_by_its_weight(x: Array) -> Array:
    """(e·v)·(1/e) for one key of weight e = 2 − 2⁻⁷, which bfloat16 has; 1/e is half way between
    two of its numbers, nearly.
    """
    e = 2 - 2.0**-7
    return brain16(brain16(e * x) * brain16(np.array(1 / e)))


NINE_BITS = replace(BINARY64, unit_roundoff=2.0**-9)
CASES = [
    Case(
        "dot",
        replace(FLOAT64, accumulate=2.0**-9),
        Kernel(accumulate=chopped(10)),
        (4, 2, 256, 1),
        q=0.4,
        values="positive",
        prepare=first_key_and_value_zero,
    ),
    Case("cap", replace(FLOAT64, tanh=COARSE), Kernel(cap=4.0, tanh=coarse_tanh), (4, 8, 8, 2), q=4),
    Case("cap_absolute", replace(FLOAT64, tanh=ABSOLUTE), Kernel(cap=4.0, tanh=tanh_by_exponentials), (4, 8, 8, 2)),
    Case("quotient_underflow", replace(FLOAT64, scores=STEPS), Kernel(cap=32.0, quotient=steps), (4, 8, 8, 2)),
    Case(
        "logit_underflow",
        replace(FLOAT64, scores=STEPS),
        Kernel(score=apart_by_steps, biased=apart_by_steps),
        (4, 2, 8, 1),
        bias=True,
    ),
    Case("biased", replace(FLOAT64, scores=BRAIN16), Kernel(biased=brain16), (4, 8, 8, 2), q=0, bias=True),
    Case("product", replace(FLOAT64, product=2.0**-9), Kernel(operands=chopped(10)), (4, 8, 8, 2), q=4),
    Case("scale_on_inputs", replace(FLOAT64, scale_on_inputs=BRAIN16), Kernel(scaled_q=brain16), (4, 8, 8, 2), q=4),
    Case("stored_scores", replace(FLOAT64, scores=BRAIN16), Kernel(score=brain16), (4, 8, 8, 2), q=4),
    Case(
        "separate.slope",
        replace(EAGER, exp=Elementary(2.0**-50, 2.0**-8, 0.0)),
        Kernel(exp=sloping_exp),
        (4, 8, 8, 2),
        q=4,
    ),
    Case(
        "shared.slope",
        replace(EAGER, exp=Elementary(2.0**-50, 2.0**-8, 0.0), shared_weights=True),
        Kernel(exp=sloping_exp),
        (4, 8, 8, 2),
        q=4,
    ),
    Case(
        "anew.slope",
        replace(EAGER, exp=Elementary(2.0**-50, 2.0**-8, 0.0)),
        Kernel(exp=sloping_exp),
        (1, 8, 1, 1),
        "dv",
        values="one",
        prepare=far_keys,
    ),
    Case("anew.exp", replace(FLOAT64, exp=COARSE), Kernel(exp=coarse_exp), (4, 8, 8, 2), "dv"),
    Case(
        "anew.rescale",
        replace(FLOAT64, rescale_block=1, exp=COARSE),
        Kernel(block=1, rescale=1 + 2.0**-8, kept=True),
        (1, 32, 1, 1),
        "dv",
        values="one",
        prepare=ascending_keys,
    ),
    Case("saved_lse", replace(FLOAT64, saved_lse=BRAIN16), Kernel(saved_lse=brain16), (4, 8, 8, 2), "dv", q=4),
    Case("separate.exp", replace(FLOAT64, exp=Elementary(2.0**-8, 0.0, 0.0)), Kernel(exp=coarse_exp), (4, 8, 8, 2)),
    Case("shared.exp", replace(FLOAT64, exp=COARSE, shared_weights=True), Kernel(exp=coarse_exp), (4, 8, 8, 2)),
    Case(
        "separate.rescale",
        replace(FLOAT64, rescale_block=1, exp=COARSE),
        Kernel(block=1, rescale=1 + 2.0**-5),
        (8, 32, 2, 2),
    ),
    Case(
        "shared.rescale",
        replace(FLOAT64, rescale_block=1, exp=COARSE, shared_weights=True),
        Kernel(block=1, rescale=1 + 2.0**-5),
        (8, 32, 2, 2),
    ),
    Case(
        "separate.rescaling",
        replace(FLOAT64, rescale_block=1, exp=COARSE),
        Kernel(block=1, rescale=1 + 2.0**-6),
        (1, 128, 1, 1),
        values="one",
        prepare=two_large_keys,
    ),
    Case(
        "shared.rescaling",
        replace(FLOAT64, rescale_block=1, exp=COARSE, shared_weights=True),
        Kernel(block=1, rescale=1 + 2.0**-6),
        (1, 128, 1, 1),
        values="one",
        prepare=two_large_keys,
    ),
    Case(
        "rescaled",
        replace(EAGER, elementwise=NINE_BITS, scale_on_inputs=None, saved_output=None, rescale_block=1),
        Kernel(block=1, rescale=1 + 2.9 * 2.0**-9),
        (1, 64, 1, 1),
        values="one",
        prepare=ascending_keys_of_two_values,
    ),
    Case(
        "addition",
        replace(
            FLOAT64,
            accumulate=2.0**-9,
            elementwise=NINE_BITS,
            scale_on_inputs=None,
            saved_output=None,
            rescale_block=None,
        ),
        Kernel(accumulate=nearest(9)),
        (1, 128, 1, 1),
        values="one",
        prepare=keys_of_one_and_a_half_roundoffs,
    ),
    Case(
        "sum",
        replace(FLOAT64, accumulate=2.0**-9),
        Kernel(accumulate=chopped(10)),
        (2, 256, 1, 2),
        q=0,
        values="positive",
    ),
    Case(
        "normalise",
        replace(EAGER, elementwise=replace(BRAIN16, largest=BINARY64.largest), scale_on_inputs=None, saved_output=None),
        Kernel(term=divided_by_its_weight),
        (1, 1, 2, 4096),
        q=0,
    ),
    Case("weights", replace(FLOAT64, weights=BRAIN16), Kernel(weight=brain16), (4, 8, 8, 2)),
    Case(
        "summed_weights",
        replace(FLOAT64, weights=BRAIN16, stored_sum=True),
        Kernel(summed=brain16, weight=brain16),
        (1, 52, 1, 1),
        values="one",
        prepare=keys_that_are_rounded_up,
    ),
    Case("saved_weights", replace(FLOAT64, saved_weights=BRAIN16), Kernel(saved_weight=brain16), (4, 8, 8, 2), "dq"),
    Case("grad_weights", replace(FLOAT64, grad_weights=BRAIN16), Kernel(grad_weight=brain16), (4, 8, 8, 2), "dq"),
    Case("output", replace(FLOAT64, output=BRAIN16), Kernel(output=brain16), (4, 8, 8, 2)),
    Case("saved_output", replace(FLOAT64, saved_output=BRAIN16), Kernel(saved=brain16), (4, 8, 8, 2), "dq", offset=10),
    Case(
        "grad_dot", replace(FLOAT64, grad_accumulate=2.0**-9), Kernel(grad_accumulate=chopped(10)), (2, 2, 2, 256), "dq"
    ),
    Case(
        "tangent_dot",
        replace(FLOAT64, accumulate=2.0**-9),
        Kernel(accumulate=chopped(10)),
        (4, 2, 256, 1),
        "dout",
        q=0,
        values="positive",
        prepare=first_key_and_value_zero,
    ),
    Case("grad_scores", replace(FLOAT64, grad_scores=BRAIN16), Kernel(grad_score=brain16), (4, 8, 8, 2), "dq"),
    Case(
        "keys_sum",
        replace(FLOAT64, grad_accumulate=2.0**-9),
        Kernel(grad_accumulate=chopped(10)),
        (1, 256, 2, 1),
        "dq",
        prepare=keys_along_the_gradient,
    ),
    Case(
        "tangent_sum",
        replace(FLOAT64, grad_accumulate=2.0**-9),
        Kernel(grad_accumulate=chopped(10)),
        (4, 64, 8, 2),
        "dout",
    ),
    Case(
        "delta_sum",
        replace(FLOAT64, grad_accumulate=2.0**-9),
        Kernel(grad_accumulate=chopped(10), delta_of_weights=True),
        (1, 256, 1, 1),
        "dq",
        q=0,
        v=1,
        values="positive",
    ),
    Case(
        "queries_sum",
        replace(FLOAT64, grad_accumulate=2.0**-9),
        Kernel(grad_accumulate=chopped(10)),
        (256, 2, 1, 1),
        "dv",
        q=0,
        values="positive",
    ),
    Case("score_underflow", replace(FLOAT64, scores=STEPS), Kernel(score=steps), (4, 8, 8, 2)),
    Case("input_underflow", replace(FLOAT64, scale_on_inputs=STEPS), Kernel(scaled_q=steps), (4, 8, 8, 2)),
    Case(
        "scaled_underflow",
        replace(FLOAT64, scale_on_inputs=STEPS),
        Kernel(grad_scaled=next_step),
        (4, 8, 1, 2),
        "dq",
        prepare=small_gradients,
    ),
    Case("weight_underflow", replace(FLOAT64, weights=STEPS), Kernel(weight=steps), (4, 8, 8, 2)),
    Case(
        "sum_underflow",
        replace(FLOAT64, elementwise=FIXED),
        Kernel(term=lambda x: 0.0 * x),
        (2, 4, 2, 2),
        q=0,
        v=2.0**-20,
    ),
    Case("grad_underflow", replace(FLOAT64, grad_scores=STEPS), Kernel(grad_score=steps), (4, 8, 8, 2), "dq"),
    Case("output_underflow", replace(FLOAT64, output=STEPS), Kernel(output=steps), (4, 8, 8, 2)),
    Case("saved_underflow", replace(FLOAT64, saved_output=STEPS), Kernel(saved=steps), (4, 8, 8, 2), "dq"),
]


def test_a_base_two_softmax_of_large_scores_needs_the_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """The roundings of s·log₂e and m·log₂e alone: the exponential's own slope is 0 in float32, and
    scores are given, not computed.
    """
    s = (1000 + np.random.default_rng(0).random((4, 8))).astype(np.float32)
    t = s * np.float32(np.log2(np.e))
    e = np.exp2(t - t.max(axis=1, keepdims=True))
    weights = e / e.sum(axis=1, keepdims=True)

    def worst() -> float:
        return float(hard_masked_softmax(s, arithmetic=FLOAT32).excess(weights).max())

    assert worst() <= 1
    monkeypatch.setattr(oracles.softmax, "terms", lambda *sizes: without("anew.slope", all_terms(*sizes)))
    assert worst() > 1


def test_a_reference_that_is_rescaled_lazily_needs_its_slack() -> None:
    """Exponentials of arguments up to 5.5 where the largest score is 0, of an exponential with a slope."""
    q, k, v = np.ones((1, 1)), np.array([[-5.5], [0.0], [0.0]]), np.array([[0.0], [1.0], [0.0]])
    error = 2.0**-8 * (k - k[0]).T
    e = np.exp((k - k[0]).T) * (1 + error * [0, 1, -1])

    def excess(slack: float) -> float:
        sloping = replace(FLOAT64, exp=Elementary(2.0**-50, 2.0**-8, 0.0), rescale_slack=slack)
        return float(scaled_dot_product_attention(q, k, v, scale=1.0, arithmetic=sloping).excess(e @ v / e.sum()).max())

    assert excess(8.0) <= 1 < excess(0.0)


GROUPS = {"slope": ("slope", "maximum", "lse"), "exp": ("exp",), "rescale": ("rescale",), "rescaling": ("rescaling",)}
"""The exponents that are deleted together: an argument is off by all of its parts at once."""


def names() -> list[str]:
    """The terms, those of `Exponents` one by one; no weight that is computed anew counts its rescalings."""
    sets = [
        f"{name}.{part}"
        for name in ("shared", "separate", "anew")
        for part in GROUPS
        if (name, part) != ("anew", "rescaling")
    ]
    return sorted([f.name for f in fields(Terms) if f.type is not Exponents] + sets)


def without(term: str, t: Terms) -> Terms:
    """The terms with one of them deleted."""
    name, _, inside = term.partition(".")
    given = getattr(t, name)
    gone = (
        replace(given, **dict.fromkeys(GROUPS[inside], 0.0))
        if inside
        else Sum(0.0, 0.0)
        if isinstance(given, Sum)
        else 0.0
    )
    return replace(t, **{name: gone})


def test_arithmetics_of_one_name_have_terms_of_their_own() -> None:
    coarse = replace(FLOAT32, accumulate=2.0**-20)
    sizes = (2, 3, 4, 5, 0.5)
    assert hash(coarse) == hash(FLOAT32)
    assert all_terms(FLOAT32, *sizes).sum.positive < all_terms(coarse, *sizes).sum.positive


def test_every_term_has_a_case() -> None:
    assert sorted(case.term for case in CASES) == names()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.term)
def test_a_budget_without_the_term_refuses_a_correct_kernel(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert case.worst() <= 1
    monkeypatch.setattr(
        oracles.error_analysis.ball_attention,
        "terms",
        lambda *given: without(case.term, all_terms(*given)),
    )
    assert case.worst() > 1
