"""Kernels with one kind of rounding: float64 attention with one rounding that is coarse enough to
see.

`KERNELS` has the kernels by the names in the rows of `oracles.error_analysis.roundings`. `CASES`
has, for each row, an arithmetic that allows exactly this rounding, and inputs that show it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracles.ball import Array
from oracles.dot_product import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.enclosure import Enclosure
from oracles.error_analysis.roundings import PARTS, TERMS, Terms
from oracles.error_analysis.sums import Sum
from oracles.formats import BINARY64, BRAIN16, FLOAT64, Arithmetic, Elementary, Format
from oracles.generalised_attention import attention

__all__ = ["CASES", "KERNELS", "Case", "Kernel", "kernel_names", "without", "worst"]

Change = Callable[[Array], Array]

# Fixed-point numbers: no relative error, and steps of 2⁻⁶ everywhere.
STEPS = Format("fixed point", 2.0**-53, 2.0**-6, 2.0**-6, BINARY64.largest)


def brain16(x: Array) -> Array:
    """x rounded to 8 significant bits."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(mantissa * 2**8) / 2**8, exponent))


def steps(x: Array) -> Array:
    """x rounded to a multiple of 2⁻⁶."""
    return np.asarray(np.rint(x * 2**6) / 2**6)


def next_step(x: Array) -> Array:
    """The next multiple of 2⁻⁶ away from 0: a rounding that does not go to the nearest number."""
    return np.asarray(np.copysign(np.ceil(np.abs(x) * 2**6) / 2**6, x))


def apart_by_steps(x: Array) -> Array:
    """x moved by a step of 2⁻⁶: upwards for the larger half of each row, downwards for the others."""
    return x + np.where(x >= np.median(x, axis=1, keepdims=True), 2.0**-6, -(2.0**-6))


def chopped(bits: int) -> Change:
    """Truncation to `bits` significant bits, as in a truncating accumulator."""

    def chop(x: Array) -> Array:
        mantissa, exponent = np.frexp(x)
        return np.asarray(np.ldexp(np.trunc(mantissa * 2.0**bits) / 2.0**bits, exponent))

    return chop


def nearest(bits: int) -> Change:
    """Rounding to the nearest number of `bits` significant bits."""

    def rounded(x: Array) -> Array:
        mantissa, exponent = np.frexp(x)
        return np.asarray(np.ldexp(np.rint(mantissa * 2.0**bits) / 2.0**bits, exponent))

    return rounded


def product(a: Array, b: Array, accumulate: Change) -> Array:
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

    operands: Change = unchanged
    scaled_q: Change = unchanged
    accumulate: Change = unchanged
    score: Change = unchanged
    exp: Change = np.exp
    block: int | None = None
    rescale: float = 1.0
    at_zero: float = 1.0
    saved_lse: Change = unchanged
    summed: Change = unchanged
    weight: Change = unchanged
    saved_weight: Change = unchanged
    grad_weight: Change = unchanged
    term: Change = unchanged
    output: Change = unchanged
    saved: Change = unchanged
    grad_accumulate: Change = unchanged
    grad_score: Change = unchanged
    grad_scaled: Change = unchanged
    delta_of_weights: bool = False
    kept: bool = False
    cap: float | None = None
    quotient: Change = unchanged
    tanh: Change = np.tanh
    bias: Array | None = None
    biased: Change = unchanged
    read_bias: Change = unchanged
    difference: Change = unchanged
    part: Change | None = None
    accumulated: Change = unchanged

    def scores(self, q: Array, k: Array) -> Array:
        """s = (q/√d)·kᵀ, with a softcap and a bias if the kernel has them."""
        scaled = self.scaled_q(self.operands(q) / np.sqrt(q.shape[1]))
        s = self.score(product(scaled, self.operands(k).T, self.accumulate))
        s = s if self.cap is None else self.cap * self.tanh(self.quotient(s / self.cap))
        return s if self.bias is None else self.biased(s + self.read_bias(self.bias))

    def exponentials(self, s: Array) -> tuple[Array, Array]:
        """exp(s − m) and m; a block with a larger score rescales the exponentials of earlier
        blocks by an exponential, every other block by exp(0).
        """
        m = s.max(axis=1, keepdims=True)
        e = self.exp(self.difference(s - m))
        for start in range(self.block or s.shape[1], s.shape[1], self.block or 1):
            moves = s[:, start : start + (self.block or 1)].max(axis=1) > s[:, :start].max(axis=1)
            e[moves, :start] *= self.rescale
            e[~moves, :start] *= self.at_zero
        return e, m

    def forward(self, q: Array, k: Array, v: Array) -> Array:
        """The output, with stored weights normalised before the product with v."""
        e, _ = self.exponentials(self.scores(q, k))
        p = self.weight(self.summed(e) / product(self.summed(e), np.ones((e.shape[1], 1)), self.accumulate))
        total = np.zeros((q.shape[0], v.shape[1]))
        if self.part is not None:  # every key is a part, whose output is its value
            v = self.part(v)
        for left, right in zip(p.T, self.operands(v), strict=True):
            total = self.accumulated(self.accumulate(total + self.term(left[:, None] * right)))
        return self.output(total)

    def vjp(self, q: Array, k: Array, v: Array, g: Array) -> tuple[Array, Array, Array]:
        """dq, dk and dv from the saved log-sum-exp; delta is rowsum(g·o) of the saved output, or
        rowsum(p·dP).
        """
        s = self.scores(q, k)
        e, m = self.exponentials(s)
        total = e.sum(axis=1, keepdims=True)
        if self.kept:  # a second pass computes the sum, and its rescalings err in the other direction
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
    """An arithmetic that allows one rounding, sizes and values that show it, and the result that
    shows it.
    """

    arithmetic: Arithmetic
    sizes: tuple[int, int, int, int]
    result: str = "out"
    q: float | None = None
    v: float | None = None
    offset: float = 0.0
    values: str = "normal"
    prepare: Callable[[Array, Array, Array], None] = lambda k, v, g: None
    bias: bool = False
    slope: float | None = None
    scale: float | None = None

    def inputs(self) -> tuple[Array, ...]:
        """q, k, v, the cotangent, and the tangent of q."""
        n_q, n_k, d, d_v = self.sizes
        rng = np.random.default_rng(0)
        draws: dict[str, Callable[..., Array]] = {"normal": rng.standard_normal, "positive": rng.random, "one": np.ones}
        draw = draws[self.values]
        q, k, v, g = (draw(shape) for shape in ((n_q, d), (n_k, d), (n_k, d_v), (n_q, d_v)))
        if self.q is not None:
            q = q * self.q
        if self.v is not None:
            v = np.full_like(v, self.v)
        self.prepare(k, v, g)
        return q, k, v + self.offset, g, draw((n_q, d))

    def worst(self, kernel: Kernel) -> float:
        """The largest error ÷ budget of a kernel's result."""
        q, k, v, g, dq = self.inputs()
        a = self.arithmetic
        budgets: tuple[Enclosure, ...]
        results: tuple[Array, ...]
        if self.slope is not None:
            distances = np.abs(np.subtract.outer(np.arange(self.sizes[0]), np.arange(self.sizes[1])))
            slopes = np.array([self.slope])
            budgets = (
                attention(q[None], k[None], v[None], alibi=slopes, scale=self.scale, softcap=kernel.cap, arithmetic=a)[
                    0
                ],
            )
            results = (replace(kernel, bias=-self.slope * distances).forward(q, k, v)[None],)
        elif self.bias or kernel.cap is not None:
            bias = np.random.default_rng(1).standard_normal(self.sizes[:2]) if self.bias else None
            budgets = (attention(q[None], k[None], v[None], bias=bias, softcap=kernel.cap, arithmetic=a)[0],)
            results = (replace(kernel, bias=bias).forward(q, k, v)[None],)
        elif self.result == "out":
            budgets, results = (scaled_dot_product_attention(q, k, v, arithmetic=a),), (kernel.forward(q, k, v),)
        elif self.result == "dout":
            zeros = np.zeros_like(k), np.zeros_like(v)
            budgets = (scaled_dot_product_attention_jvp(q, k, v, None, dq, *zeros, arithmetic=a),)
            results = (kernel.jvp(q, k, v, dq),)
        else:
            which = ("dq", "dk", "dv").index(self.result)
            budgets = scaled_dot_product_attention_vjp(q, k, v, None, g, arithmetic=a)[which:]
            results = kernel.vjp(q, k, v, g)[which:]
        return float(budgets[0].excess(results[0]).max())


def coarse_exp(x: Array) -> Array:
    """exp with a relative error of 2⁻⁸: upwards for the larger half of the arguments, downwards for
    the others.
    """
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
    """All terms of the second element of dq = dS·k are then positive; most of the weight is on the
    first key.
    """
    k[:] = np.hstack([0 * v, np.sign(g[0] * v)])
    k[0], v[0] = (100, 0), 0


def two_large_keys(k: Array, v: Array, g: Array) -> None:
    """The first key and, with a larger score, a late one; queries are 1."""
    k[:], v[:] = -100, 0
    k[0], k[100], v[0] = 0, 1, 1


def two_equal_large_keys(k: Array, v: Array, g: Array) -> None:
    """The first key and a late one have the largest score; queries are 1."""
    k[:], v[:] = -100, 0
    k[[0, 100]], v[0] = 0, 1


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
OFF_AT_ZERO = Elementary(2.0**-8, 0.0, 0.0, at_zero=2.0**-8)
ABSOLUTE = Elementary(2.0**-50, 0.0, 2.0**-8)
EAGER = replace(FLOAT64, rescale_slack=0.0)


def divided_by_its_weight(x: Array) -> Array:
    """(e·v)·(1/e) for one key of weight e = 2 − 2⁻⁷, which bfloat16 has; 1/e is half way between
    two of its numbers, nearly.
    """
    e = 2 - 2.0**-7
    return brain16(brain16(e * x) * brain16(np.array(1 / e)))


NINE_BITS = replace(BINARY64, unit_roundoff=2.0**-9)
KERNELS = {
    "truncating accumulator": Kernel(accumulate=chopped(10)),
    "coarse tanh": Kernel(cap=4.0, tanh=coarse_tanh),
    "tanh by exponentials": Kernel(cap=4.0, tanh=tanh_by_exponentials),
    "fixed-point quotient": Kernel(cap=32.0, quotient=steps),
    "scores moved by a step": Kernel(score=apart_by_steps, biased=apart_by_steps),
    "bfloat16 sum with a bias": Kernel(biased=brain16),
    "nine bits from the slope to the weight": Kernel(
        cap=4.0,
        read_bias=lambda x: x * (1 + 5.9 * 2.0**-9),
        biased=lambda x: x * (1 + 2.9 * 2.0**-9),
        exp=lambda x: np.exp(x * (1 + 5.9 * 2.0**-9)),
    ),
    "slopes over the scale flushed to zero": Kernel(read_bias=lambda x: 0.0 * x),
    "truncated operands": Kernel(operands=chopped(10)),
    "bfloat16 scaled queries": Kernel(scaled_q=brain16),
    "bfloat16 scores": Kernel(score=brain16),
    "sloping exponential": Kernel(exp=sloping_exp),
    "coarse exponential": Kernel(exp=coarse_exp),
    "kept weights": Kernel(block=1, rescale=1 + 2.0 ** (-8), kept=True),
    "bfloat16 differences": Kernel(difference=brain16),
    "bfloat16 parts": Kernel(part=brain16),
    "bfloat16 bias": Kernel(read_bias=brain16),
    "bfloat16 log-sum-exp": Kernel(saved_lse=brain16),
    "coarse rescalings": Kernel(block=1, rescale=1 + 2.0 ** (-5)),
    "coarse rescaling of large keys": Kernel(block=1, rescale=1 + 2.0 ** (-6)),
    "coarse rescaling by exp(0)": Kernel(block=1, at_zero=1 - 2.0 ** (-8)),
    "rescalings in nine bits": Kernel(block=1, rescale=1 + 2.9 * 2.0 ** (-9)),
    "accumulator of nine bits": Kernel(accumulate=nearest(9)),
    "values accumulated in bfloat16": Kernel(accumulated=brain16),
    "division in bfloat16": Kernel(term=divided_by_its_weight),
    "bfloat16 weights": Kernel(weight=brain16),
    "sum of bfloat16 weights": Kernel(summed=brain16, weight=brain16),
    "saved bfloat16 weights": Kernel(saved_weight=brain16),
    "bfloat16 dP": Kernel(grad_weight=brain16),
    "bfloat16 output": Kernel(output=brain16),
    "saved bfloat16 output": Kernel(saved=brain16),
    "truncating backward accumulator": Kernel(grad_accumulate=chopped(10)),
    "bfloat16 dS": Kernel(grad_score=brain16),
    "truncated delta of weights": Kernel(grad_accumulate=chopped(10), delta_of_weights=True),
    "fixed-point scores": Kernel(score=steps),
    "fixed-point scaled queries": Kernel(scaled_q=steps),
    "fixed-point gradients of scaled queries": Kernel(grad_scaled=next_step),
    "fixed-point weights": Kernel(weight=steps),
    "fixed-point log-sum-exp": Kernel(saved_lse=steps),
    "products flushed to zero": Kernel(term=lambda x: 0.0 * x),
    "fixed-point dS": Kernel(grad_score=steps),
    "fixed-point output": Kernel(output=steps),
    "fixed-point saved output": Kernel(saved=steps),
}
"""The kernels, by the name that a row of the table states."""

CASES = {
    "dot": Case(
        replace(FLOAT64, accumulate=2.0 ** (-9)),
        (4, 2, 256, 1),
        q=0.4,
        values="positive",
        prepare=first_key_and_value_zero,
    ),
    "product": Case(replace(FLOAT64, product=2.0 ** (-9)), (4, 8, 8, 2), q=4),
    "scale_on_inputs": Case(replace(FLOAT64, scale_on_inputs=BRAIN16), (4, 8, 8, 2), q=4),
    "stored_scores": Case(replace(FLOAT64, scores=BRAIN16), (4, 8, 8, 2), q=4),
    "shared.slope": Case(
        replace(EAGER, exp=Elementary(2.0 ** (-50), 2.0 ** (-8), 0.0), shared_weights=True), (4, 8, 8, 2), q=4
    ),
    "shared.exp": Case(replace(FLOAT64, exp=COARSE, shared_weights=True), (4, 8, 8, 2)),
    "shared.rescale": Case(replace(FLOAT64, rescale_block=1, exp=COARSE, shared_weights=True), (8, 32, 2, 2)),
    "shared.rescaling": Case(
        replace(FLOAT64, rescale_block=1, exp=COARSE, shared_weights=True),
        (1, 128, 1, 1),
        values="one",
        prepare=two_large_keys,
    ),
    "shared.unmoved": Case(
        replace(FLOAT64, rescale_block=1, rescale_exp=OFF_AT_ZERO, shared_weights=True),
        (1, 128, 1, 1),
        values="one",
        prepare=two_equal_large_keys,
    ),
    "separate.slope": Case(replace(EAGER, exp=Elementary(2.0 ** (-50), 2.0 ** (-8), 0.0)), (4, 8, 8, 2), q=4),
    "separate.exp": Case(replace(FLOAT64, exp=Elementary(2.0 ** (-8), 0.0, 0.0)), (4, 8, 8, 2)),
    "separate.rescale": Case(replace(FLOAT64, rescale_block=1, exp=COARSE), (8, 32, 2, 2)),
    "separate.rescaling": Case(
        replace(FLOAT64, rescale_block=1, exp=COARSE), (1, 128, 1, 1), values="one", prepare=two_large_keys
    ),
    "separate.unmoved": Case(
        replace(FLOAT64, rescale_block=1, rescale_exp=OFF_AT_ZERO),
        (1, 128, 1, 1),
        values="one",
        prepare=two_equal_large_keys,
    ),
    "anew.slope": Case(
        replace(EAGER, exp=Elementary(2.0 ** (-50), 2.0 ** (-8), 0.0)),
        (1, 8, 1, 1),
        "dv",
        values="one",
        prepare=far_keys,
    ),
    "anew.exp": Case(replace(FLOAT64, exp=COARSE), (4, 8, 8, 2), "dv"),
    "anew.rescale": Case(
        replace(FLOAT64, rescale_block=1, exp=COARSE), (1, 32, 1, 1), "dv", values="one", prepare=ascending_keys
    ),
    "rescaled": Case(
        replace(EAGER, elementwise=NINE_BITS, scale_on_inputs=None, saved_output=None, rescale_block=1),
        (1, 64, 1, 1),
        values="one",
        prepare=ascending_keys_of_two_values,
    ),
    "stored_differences": Case(replace(FLOAT64, stored_differences=BRAIN16), (4, 8, 8, 2), q=4),
    "stored_parts": Case(replace(FLOAT64, stored_parts=BRAIN16), (4, 8, 8, 2)),
    "bias": Case(replace(FLOAT64, bias=BRAIN16), (4, 8, 8, 2), bias=True),
    "saved_lse": Case(replace(FLOAT64, saved_lse=BRAIN16), (4, 8, 8, 2), "dv", q=4),
    "sum": Case(replace(FLOAT64, accumulate=2.0 ** (-9)), (2, 256, 1, 2), q=0, values="positive"),
    "accumulated": Case(
        replace(FLOAT64, accumulate_values=BRAIN16, rescale_block=None), (2, 64, 1, 2), q=0, values="positive"
    ),
    "addition": Case(
        replace(
            FLOAT64,
            accumulate=2.0 ** (-9),
            elementwise=NINE_BITS,
            scale_on_inputs=None,
            saved_output=None,
            rescale_block=None,
        ),
        (1, 128, 1, 1),
        values="one",
        prepare=keys_of_one_and_a_half_roundoffs,
    ),
    "normalise": Case(
        replace(EAGER, elementwise=replace(BRAIN16, largest=BINARY64.largest), scale_on_inputs=None, saved_output=None),
        (1, 1, 2, 4096),
        q=0,
    ),
    "weights": Case(replace(FLOAT64, weights=BRAIN16), (4, 8, 8, 2)),
    "summed_weights": Case(
        replace(FLOAT64, weights=BRAIN16, stored_sum=True),
        (1, 52, 1, 1),
        values="one",
        prepare=keys_that_are_rounded_up,
    ),
    "saved_weights": Case(replace(FLOAT64, saved_weights=BRAIN16), (4, 8, 8, 2), "dq"),
    "output": Case(replace(FLOAT64, output=BRAIN16), (4, 8, 8, 2)),
    "saved_output": Case(replace(FLOAT64, saved_output=BRAIN16), (4, 8, 8, 2), "dq", offset=10),
    "grad_dot": Case(replace(FLOAT64, grad_accumulate=2.0 ** (-9)), (2, 2, 2, 256), "dq"),
    "grad_weights": Case(replace(FLOAT64, grad_weights=BRAIN16), (4, 8, 8, 2), "dq"),
    "delta_sum": Case(replace(FLOAT64, grad_accumulate=2.0 ** (-9)), (1, 256, 1, 1), "dq", q=0, v=1, values="positive"),
    "cap": Case(replace(FLOAT64, tanh=COARSE), (4, 8, 8, 2), q=4),
    "cap_absolute": Case(replace(FLOAT64, tanh=ABSOLUTE), (4, 8, 8, 2)),
    "biased": Case(replace(FLOAT64, scores=BRAIN16), (4, 8, 8, 2), q=0, bias=True),
    "alibi": Case(
        replace(EAGER, elementwise=NINE_BITS, scale_on_inputs=None, saved_output=None),
        (1, 2, 1, 1),
        values="one",
        q=0,
        prepare=first_key_and_value_zero,
        slope=8.0,
    ),
    "alibi_underflow": Case(
        replace(FLOAT64, elementwise=FIXED), (1, 8, 0, 1), slope=0.4375 * 2.0 ** (16 - 20), scale=2.0**16
    ),
    "tangent_dot": Case(
        replace(FLOAT64, accumulate=2.0 ** (-9)),
        (4, 2, 256, 1),
        "dout",
        q=0,
        values="positive",
        prepare=first_key_and_value_zero,
    ),
    "grad_scores": Case(replace(FLOAT64, grad_scores=BRAIN16), (4, 8, 8, 2), "dq"),
    "keys_sum": Case(
        replace(FLOAT64, grad_accumulate=2.0 ** (-9)), (1, 256, 2, 1), "dq", prepare=keys_along_the_gradient
    ),
    "tangent_sum": Case(replace(FLOAT64, grad_accumulate=2.0 ** (-9)), (4, 64, 8, 2), "dout"),
    "queries_sum": Case(replace(FLOAT64, grad_accumulate=2.0 ** (-9)), (256, 2, 1, 1), "dv", q=0, values="positive"),
    "score_underflow": Case(replace(FLOAT64, scores=STEPS), (4, 8, 8, 2)),
    "quotient_underflow": Case(replace(FLOAT64, scores=STEPS), (4, 8, 8, 2)),
    "logit_underflow": Case(replace(FLOAT64, scores=STEPS), (4, 2, 8, 1), bias=True),
    "input_underflow": Case(replace(FLOAT64, scale_on_inputs=STEPS), (4, 8, 8, 2)),
    "scaled_underflow": Case(replace(FLOAT64, scale_on_inputs=STEPS), (4, 8, 1, 2), "dq", prepare=small_gradients),
    "weight_underflow": Case(replace(FLOAT64, weights=STEPS), (4, 8, 8, 2)),
    "lse_underflow": Case(replace(FLOAT64, saved_lse=STEPS), (4, 8, 8, 2), "dv"),
    "sum_underflow": Case(replace(FLOAT64, elementwise=FIXED), (2, 4, 2, 2), q=0, v=2.0 ** (-20)),
    "grad_underflow": Case(replace(FLOAT64, grad_scores=STEPS), (4, 8, 8, 2), "dq"),
    "output_underflow": Case(replace(FLOAT64, output=STEPS), (4, 8, 8, 2)),
    "saved_underflow": Case(replace(FLOAT64, saved_output=STEPS), (4, 8, 8, 2), "dq"),
}
"""The inputs on which a budget without the row refuses its kernel, by the name of the row."""


def kernel_names() -> dict[str, str]:
    """The kernel that each row names; an exponent of a weight is a row of its own, such as
    `shared.slope`.
    """
    names: dict[str, str] = {}
    for name, row in TERMS.items():
        kernels = {"": row.kernel} if isinstance(row.kernel, str) else row.kernel
        names |= {f"{name}.{part}" if part else name: kernel for part, kernel in kernels.items()}
    return names


def worst(name: str) -> float:
    """The largest error ÷ budget of the kernel that a row names."""
    return CASES[name].worst(KERNELS[kernel_names()[name]])


def without(name: str, t: Terms) -> Terms:
    """The terms without one row."""
    term, _, part = name.partition(".")
    given = getattr(t, term)
    changes: dict[str, Any] = {term: Sum(0.0, 0.0) if isinstance(given, Sum) else 0.0}
    if part:
        changes = {term: replace(given, **dict.fromkeys(PARTS[part], 0.0))}
    return replace(t, **changes)
