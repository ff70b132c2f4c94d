"""Forward derivatives, several heads and flushed results: simulated kernels stay inside those budgets, too."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from oracles.ball import Array
from oracles.dot_product import scaled_dot_product_attention, scaled_dot_product_attention_jvp, scaled_dot_product_attention_vjp
from oracles.enclosure import Enclosure
from oracles.formats import BFLOAT16, FLOAT32, Arithmetic
from oracles.multi_head import multi_head_attention, multi_head_attention_jvp, multi_head_attention_vjp
from oracles.scores import Mask
from oracles.tests.kernels import DTYPES, Form, Kernel, machine, to
from oracles.tests.test_coverage import inputs

ARITHMETICS = [(FLOAT32, "float32"), (BFLOAT16, "bfloat16")]
FORMS = [
    Form(order="sequential", normalise="before"),
    Form(order="fused", scale="q", recompute=False),
    Form(order="reversed", base="2", tile=3),
    Form(scale="both", base="2", split=2, delta="pdp"),
]
SEEDS = st.integers(0, 2**32 - 1)
SETTINGS = settings(max_examples=30)


def kernel(form: Form, dtype: str) -> Kernel:
    """A simulated kernel of a dtype."""
    return Kernel(form, machine(dtype), to(DTYPES[dtype]))


def require_inside(results: tuple[Array, ...], budgets: tuple[Enclosure, ...]) -> None:
    """Assert that results are within their budgets."""
    for i, (result, budget) in enumerate(zip(results, budgets, strict=True)):
        excess = budget.excess(result).max()
        assert excess <= 1, f"result {i}: {excess}"


@pytest.mark.parametrize("form", FORMS, ids=str)
@SETTINGS
@given(seed=SEEDS, kind=st.sampled_from(["plain", "large", "offset", "tiny", "grid"]), which=st.sampled_from(ARITHMETICS))
def test_forward_derivatives_stay_inside(form: Form, seed: int, kind: str, which: tuple[Arithmetic, str]) -> None:
    arithmetic, dtype = which
    q, k, v, allowed, _ = inputs(seed, kind, dtype)
    rng, store = np.random.default_rng(seed), to(DTYPES[dtype])
    dq, dk, dv = (store(rng.standard_normal(x.shape)) for x in (q, k, v))
    budget = scaled_dot_product_attention_jvp(q, k, v, allowed, dq, dk, dv, arithmetic=arithmetic)
    require_inside((kernel(form, dtype).jvp((q, k, v), (dq, dk, dv), allowed),), (budget,))


class Heads:
    """Multi-head attention by a kernel, everything that passes between two products stored in the kernel's output format."""

    def __init__(self, one: Kernel, heads: int, x: Array, projections: tuple[Array, Array, Array], wo: Array, allowed: Mask) -> None:
        self.one, self.heads, self.x, self.projections, self.wo, self.allowed = one, heads, x, projections, wo, allowed
        self.points = list(zip(*(self.split(self.product(x, w)) for w in projections), strict=True))
        self.concat = np.concatenate([one.output(one.forward(*point, allowed)[0]) for point in self.points], axis=1)

    def product(self, a: Array, b: Array) -> Array:
        """A product, stored."""
        return self.one.output(self.one.on.product(a, b, self.one.form))

    def split(self, joined: Array) -> list[Array]:
        """The heads' columns."""
        return np.split(joined, self.heads, axis=1)

    def forward(self) -> Array:
        """The output."""
        return self.product(self.concat, self.wo)

    def vjp(self, g: Array) -> tuple[Array, ...]:
        """dx, dwq, dwk, dwv and dwo."""
        grads = self.split(self.product(g, self.wo.T))
        pulled = [self.one(*point, self.allowed, grad)[1:] for point, grad in zip(self.points, grads, strict=True)]
        d = [np.concatenate(parts, axis=1) for parts in zip(*pulled, strict=True)]
        a, b, c = (self.product(one, w.T) for one, w in zip(d, self.projections, strict=True))
        dx = self.one.output(self.one.output(a + b) + c)
        return dx, *(self.product(self.x.T, one) for one in d), self.product(self.concat.T, g)

    def jvp(self, dx: Array, moves: tuple[Array, Array, Array], dwo: Array) -> Array:
        """The tangent of the output."""
        stored = self.one.output
        pairs = zip(self.projections, moves, strict=True)
        joined = (stored(self.product(dx, w) + self.product(self.x, dw)) for w, dw in pairs)
        tangents = zip(*(self.split(t) for t in joined), strict=True)
        drifts = [self.one.jvp(point, tangent, self.allowed) for point, tangent in zip(self.points, tangents, strict=True)]
        return stored(self.product(np.concatenate(drifts, axis=1), self.wo) + self.product(self.concat, dwo))


@pytest.mark.parametrize("form", FORMS, ids=str)
@SETTINGS
@given(seed=SEEDS, which=st.sampled_from(ARITHMETICS))
def test_several_heads_and_their_derivatives_stay_inside(form: Form, seed: int, which: tuple[Arithmetic, str]) -> None:
    arithmetic, dtype = which
    rng, store = np.random.default_rng(seed), to(DTYPES[dtype])
    n, heads, width, d_model = (int(rng.choice(sizes)) for sizes in ([1, 3, 9], [1, 2, 3], [1, 4], [2, 5]))

    def drawn(*shape: int) -> Array:
        return store(rng.choice([0.3, 1.0, 3.0]) * rng.standard_normal(shape))

    x, dx, g, wo, dwo = (drawn(*s) for s in (*[(n, d_model)] * 3, *[(heads * width, d_model)] * 2))
    wq, wk, wv, dwq, dwk, dwv = (drawn(d_model, heads * width) for _ in range(6))
    allowed = rng.random((n, n)) < 0.7
    allowed[np.arange(n), rng.integers(0, n, n)] = True
    simulated = Heads(kernel(form, dtype), heads, x, (wq, wk, wv), wo, allowed)
    arguments = (x, wq, wk, wv, wo, heads, allowed)
    require_inside((simulated.forward(),), (multi_head_attention(*arguments, arithmetic=arithmetic),))
    require_inside(simulated.vjp(g), multi_head_attention_vjp(*arguments, g, arithmetic=arithmetic))
    budget = multi_head_attention_jvp(*arguments, dx, dwq, dwk, dwv, dwo, arithmetic=arithmetic)
    require_inside((simulated.jvp(dx, (dwq, dwk, dwv), dwo),), (budget,))


def flushing(x: Array) -> Array:
    """x rounded to binary32, and 0 where that is subnormal."""
    rounded = to(np.float32)(x)
    return np.where(np.abs(rounded) < 2.0**-126, 0.0, rounded)


@pytest.mark.parametrize("form", FORMS, ids=str)
@SETTINGS
@given(seed=SEEDS, small=st.tuples(*[st.sampled_from([0, -40, -63, -120, -130])] * 4))
def test_flushed_results_stay_inside_where_flushing_is_said(form: Form, seed: int, small: tuple[int, int, int, int]) -> None:
    q, k, v, allowed, g = inputs(seed, "plain", "float32")
    q, k, v, g = (to(np.float32)(np.ldexp(x, e)) for x, e in zip((q, k, v, g), small, strict=True))
    on = replace(machine("float32"), work=flushing, accumulate=flushing, scaled=flushing)
    arithmetic = replace(FLOAT32, flush_to_zero=True)
    budgets = (
        scaled_dot_product_attention(q, k, v, allowed, arithmetic=arithmetic),
        *scaled_dot_product_attention_vjp(q, k, v, allowed, g, arithmetic=arithmetic),
    )
    require_inside(Kernel(form, on, flushing)(q, k, v, allowed, g), budgets)


def test_flushed_results_are_outside_where_flushing_is_not_said() -> None:
    q, k, v = np.zeros((1, 1)), np.zeros((2, 1)), np.full((2, 1), 2.0**-127)
    on = replace(machine("float32"), work=flushing, accumulate=flushing, scaled=flushing)
    out = Kernel(FORMS[0], on, flushing).forward(q, k, v, np.ones((1, 2), dtype=bool))[0]
    assert not scaled_dot_product_attention(q, k, v, arithmetic=FLOAT32).contains(out).any()
    assert scaled_dot_product_attention(q, k, v, arithmetic=replace(FLOAT32, flush_to_zero=True)).contains(out).all()
