"""Forward derivatives, several heads and flushed results: simulated kernels stay inside those budgets, too."""

from collections.abc import Iterator
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from oracles.ball import Array
from oracles.dot_product import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.enclosure import Enclosure
from oracles.formats import BFLOAT16, BINARY32, FLOAT32, Arithmetic
from oracles.multi_head import multi_head_attention, multi_head_attention_jvp, multi_head_attention_vjp
from oracles.tests.simulated.attention import Kernel
from oracles.tests.simulated.forms import Form
from oracles.tests.simulated.rounding import rounding
from oracles.tests.test_coverage import inputs

ARITHMETICS = st.sampled_from([FLOAT32, BFLOAT16])
FLUSHING = replace(FLOAT32, flush_to_zero=True)
FORMS = [
    Form(normalise="before", delta="output", reciprocal=True),
    Form(order="fused", scale="q", folded=False, recompute=False, delta="output"),
    Form(order="reversed", base="2", tile=3, delta="output"),
    Form(order="library", scale="both", base="2", split=2),
]
SEEDS = st.integers(0, 2**32 - 1)
SETTINGS = settings(max_examples=30)


@pytest.fixture(autouse=True)
def _infinities() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def require_inside(results: tuple[Array, ...], budgets: tuple[Enclosure, ...]) -> None:
    """Assert that results are within their budgets."""
    for i, (result, budget) in enumerate(zip(results, budgets, strict=True)):
        excess = budget.excess(result).max()
        assert excess <= 1, f"result {i}: {excess}"


@pytest.mark.parametrize("form", FORMS, ids=str)
@SETTINGS
@given(seed=SEEDS, kind=st.sampled_from(["plain", "large", "offset", "tiny", "grid"]), arithmetic=ARITHMETICS)
def test_forward_derivatives_stay_inside(form: Form, seed: int, kind: str, arithmetic: Arithmetic) -> None:
    q, k, v, allowed, _ = inputs(seed, kind, arithmetic)
    rng, store = np.random.default_rng(seed), rounding(arithmetic.inputs)
    dq, dk, dv = (store(rng.standard_normal(x.shape)) for x in (q, k, v))
    budget = scaled_dot_product_attention_jvp(q, k, v, allowed, dq, dk, dv, arithmetic=arithmetic)
    require_inside((Kernel(form, arithmetic, q.shape[1] ** -0.5, allowed).jvp(q, k, v, dq, dk, dv),), (budget,))


class Heads:
    """Multi-head attention by a kernel, everything that passes between two products stored in the
    kernel's output format.
    """

    def __init__(self, one: Kernel, heads: int, x: Array, projections: tuple[Array, Array, Array], wo: Array) -> None:
        self.one, self.heads, self.x, self.projections, self.wo = one, heads, x, projections, wo
        self.stored = rounding(one.a.output)
        self.points = list(zip(*(self.split(self.product(x, w)) for w in projections), strict=True))
        self.concat = np.concatenate([one.output(*point) for point in self.points], axis=1)

    def product(self, a: Array, b: Array) -> Array:
        """A product, stored."""
        return self.stored(self.one.product(a, b))

    def split(self, joined: Array) -> list[Array]:
        """The heads' columns."""
        return np.split(joined, self.heads, axis=1)

    def forward(self) -> Array:
        """The output."""
        return self.product(self.concat, self.wo)

    def vjp(self, g: Array) -> tuple[Array, ...]:
        """dx, dwq, dwk, dwv and dwo."""
        grads = self.split(self.product(g, self.wo.T))
        pulled = [self.one.vjp(*point, grad)[1:] for point, grad in zip(self.points, grads, strict=True)]
        d = [np.concatenate(parts, axis=1) for parts in zip(*pulled, strict=True)]
        a, b, c = (self.product(one, w.T) for one, w in zip(d, self.projections, strict=True))
        dx = self.stored(self.stored(a + b) + c)
        return dx, *(self.product(self.x.T, one) for one in d), self.product(self.concat.T, g)

    def jvp(self, dx: Array, moves: tuple[Array, Array, Array], dwo: Array) -> Array:
        """The tangent of the output."""
        pairs = zip(self.projections, moves, strict=True)
        joined = (self.stored(self.product(dx, w) + self.product(self.x, dw)) for w, dw in pairs)
        tangents = zip(*(self.split(t) for t in joined), strict=True)
        drifts = [self.one.jvp(*point, *tangent) for point, tangent in zip(self.points, tangents, strict=True)]
        return self.stored(self.product(np.concatenate(drifts, axis=1), self.wo) + self.product(self.concat, dwo))


@pytest.mark.parametrize("form", FORMS, ids=str)
@SETTINGS
@given(seed=SEEDS, arithmetic=ARITHMETICS)
def test_several_heads_and_their_derivatives_stay_inside(form: Form, seed: int, arithmetic: Arithmetic) -> None:
    rng, store = np.random.default_rng(seed), rounding(arithmetic.inputs)
    n, heads, width, d_model = (int(rng.choice(sizes)) for sizes in ([1, 3, 9], [1, 2, 3], [1, 4], [2, 5]))

    def drawn(*shape: int) -> Array:
        return store(rng.choice([0.3, 1.0, 3.0]) * rng.standard_normal(shape))

    x, dx, g, wo, dwo = (drawn(*s) for s in (*[(n, d_model)] * 3, *[(heads * width, d_model)] * 2))
    wq, wk, wv, dwq, dwk, dwv = (drawn(d_model, heads * width) for _ in range(6))
    allowed = rng.random((n, n)) < 0.7
    allowed[np.arange(n), rng.integers(0, n, n)] = True
    simulated = Heads(Kernel(form, arithmetic, width**-0.5, allowed), heads, x, (wq, wk, wv), wo)
    arguments = (x, wq, wk, wv, wo, heads, allowed)
    require_inside((simulated.forward(),), (multi_head_attention(*arguments, arithmetic=arithmetic),))
    require_inside(simulated.vjp(g), multi_head_attention_vjp(*arguments, g, arithmetic=arithmetic))
    budget = multi_head_attention_jvp(*arguments, dx, dwq, dwk, dwv, dwo, arithmetic=arithmetic)
    require_inside((simulated.jvp(dx, (dwq, dwk, dwv), dwo),), (budget,))


@pytest.mark.parametrize("form", FORMS, ids=str)
@SETTINGS
@given(seed=SEEDS, small=st.tuples(*[st.sampled_from([0, -40, -63, -120, -130])] * 4))
def test_flushed_results_stay_inside_where_flushing_is_said(
    form: Form, seed: int, small: tuple[int, int, int, int]
) -> None:
    q, k, v, allowed, g = inputs(seed, "plain", FLOAT32)
    q, k, v, g = (rounding(BINARY32)(np.ldexp(x, e)) for x, e in zip((q, k, v, g), small, strict=True))
    budgets = (
        scaled_dot_product_attention(q, k, v, allowed, arithmetic=FLUSHING),
        *scaled_dot_product_attention_vjp(q, k, v, allowed, g, arithmetic=FLUSHING),
    )
    require_inside(Kernel(form, FLUSHING, q.shape[1] ** -0.5, allowed).vjp(q, k, v, g), budgets)


def test_flushed_results_are_outside_where_flushing_is_not_said() -> None:
    q, k, v = np.zeros((1, 1)), np.zeros((2, 1)), np.full((2, 1), 2.0**-127)
    out = Kernel(FORMS[0], FLUSHING, 1.0).output(q, k, v)
    assert not scaled_dot_product_attention(q, k, v, arithmetic=FLOAT32).contains(out).any()
    assert scaled_dot_product_attention(q, k, v, arithmetic=FLUSHING).contains(out).all()
