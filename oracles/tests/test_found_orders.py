"""What a third review found: sums that begin with what is added to them, or are one of two, and
operands that overflow, with inputs.
"""

from functools import reduce
from typing import Any

import numpy as np
import pytest

from oracles.dot_product import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.formats import BINARY16
from oracles.generalised_attention import attention, attention_jvp
from oracles.multi_head import multi_head_attention_jvp
from oracles.tests.simulated.rounding import CHOPPED_BITS, rounding, truncated

Array = Any
f16, f32, chopped = rounding(BINARY16), np.float32, truncated(CHOPPED_BITS)
ONE = np.ones((1, 1))
TINY = f32(0.98 * 2.0**-24)  # is lost beside 1


@pytest.fixture(autouse=True)
def _infinities():
    with np.errstate(all="ignore"):
        yield


def chain(first: Any, terms: Any, rounded: Any = f32) -> Any:
    """A sum that begins with `first`, rounded at every step."""
    return reduce(lambda total, x: rounded(total + x), terms, rounded(first))


@pytest.mark.parametrize(("arithmetic", "n"), [("float32-materialized", 512), ("float32", 4096)])
def test_two_sums_of_a_derivative_over_keys_may_be_one(arithmetic: str, n: int) -> None:
    """Σ p·dv, and on top of it Σ p·(t − t̄)·v: the first key has all the weight, and what the
    others add is lost beside its 1.
    """
    k = np.full((n, 1), -40.0, f32)
    k[0] = 0
    p = np.exp(k[:, 0]).astype(f32)
    rare = np.where(k == 0, 0, f32(TINY / p[1]))
    t = np.where(k == 0, 0.0, 1.0)
    ds = (p * (t[:, 0] - f32((p * t[:, 0]).sum()))).astype(f32)
    dv = np.where(k == 0, 1, rare)
    found = chain(chain(0, (p * dv[:, 0]).astype(f32)), (ds * rare[:, 0]).astype(f32))
    budget = scaled_dot_product_attention_jvp(ONE, k, rare, None, 0 * ONE, t, dv, scale=1.0, arithmetic=arithmetic)
    assert budget.excess(np.array([[found]], float)).max() <= 1


@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16-tensor-core"])
def test_a_bias_may_be_the_first_summand_of_a_score(arithmetic: str) -> None:
    rounded, step = (
        (f32, 0.98 * 2.0**-15)
        if arithmetic == "float32"
        else (lambda x: float(chopped(np.array(x))), 0.984375 * 2.0**-13)
    )
    d, bias = 128, np.full((1, 1, 2), 1000.0)
    k = np.full((1, 2, d), float(f32(step)))
    lse = chain(1000.0, k[0, 0], rounded) + np.log(2)
    given = (np.ones((1, 1, d)), k, np.array([[[1.0], [0.0]]]))
    assert attention(*given, bias=bias, scale=1.0, arithmetic=arithmetic)[1].excess(np.array([[lse]])).max() <= 1


def test_the_tangent_of_a_bias_may_be_the_first_summand_of_that_of_a_score() -> None:
    """Of one key with half of the weight: its tangent begins with 1, beside which the products with
    the tangent of q are lost.
    """
    d = 1024
    k = np.stack([np.full((d,), TINY), np.zeros(d)])[None].astype(float)
    tangent = chain(1.0, k[0, 0])
    budget = attention_jvp(
        *(0 * np.ones((1, 1, d)), k, np.array([[[1.0], [0.0]]])),
        *(np.ones((1, 1, d)), 0 * k, np.zeros((1, 2, 1))),
        bias=np.zeros((1, 1, 2)), dbias=np.array([[[1.0, 0.0]]]), scale=1.0, arithmetic="float32-materialized",
    )[0]  # fmt: skip
    assert budget.excess(np.array([[[tangent / 4]]], float)).max() <= 1


@pytest.mark.parametrize("arithmetic", ["float32", "float32-materialized"])
def test_a_projection_and_its_tangent_may_be_one_sum(arithmetic: str) -> None:
    """x·dw, and on top of it dx·w, in a single product."""
    d = 2048
    x, w, dw, none = np.ones((1, d)), np.full((d, 1), float(TINY)), np.full((d, 1), float(TINY)), np.zeros((d, 1))
    w[0], dw[0] = 0, 1
    wo = np.zeros((1, d))
    wo[0, 0] = 1
    found = np.zeros((1, d))
    found[0, 0] = chain(chain(0, dw[:, 0].astype(f32)), w[:, 0].astype(f32))
    budget = multi_head_attention_jvp(
        x, none, none, w, wo, 1, None, x, none, none, dw, 0 * wo, scale=1.0, arithmetic=arithmetic
    )
    assert budget.excess(found).max() <= 1


@pytest.mark.parametrize("arithmetic", ["float32", "float32-materialized"])
def test_minus_delta_may_be_the_first_summand_of_a_product_of_gradients(arithmetic: str) -> None:
    d_v, tiny = 2048, 0.99 * 2.0**-24
    v = np.stack([np.full(d_v, 3 * tiny), np.full(d_v, -tiny)]).astype(f32)
    v[:, 0] = [2, 0]
    delta = chain(0, ((v[0] + v[1]) / f32(2)).astype(f32))
    dq = f32(0.5) * chain(-delta, v[1])
    budget = scaled_dot_product_attention_vjp(
        0 * ONE, np.array([[0.0], [1.0]]), v, None, np.ones((1, d_v)), scale=1.0, arithmetic=arithmetic
    )
    assert budget[0].excess(np.array([[dq]], float)).max() <= 1


MASKED = np.array([[True, True, False]])


@pytest.mark.parametrize("arithmetic", ["float16-eager", "float16-scaled-inputs"])
def test_a_masked_key_that_overflows_as_it_is_scaled_spoils_derivatives(arithmetic: str) -> None:
    """PyTorch's autograd has it so: dS is 0 there, and 0 times ∞ is NaN. The output stays within its budget."""
    q, k, v = ONE, np.array([[0.5], [-0.25], [40000.0]]), np.array([[1.0], [2.0], [0.5]])
    scaled = f16(2 * k)
    assert np.isinf(scaled[2])
    s = np.where(MASKED, q @ scaled.T, -np.inf)
    p = np.exp(s - s.max()) / np.exp(s - s.max()).sum()
    dq = np.where(MASKED, p * (v.T - p @ v), 0.0) @ scaled
    options = {"scale": 2.0, "arithmetic": arithmetic}
    assert scaled_dot_product_attention(q, k, v, MASKED, **options).excess(f16(p @ v)).max() <= 1
    of_q, of_k, of_v = scaled_dot_product_attention_vjp(q, k, v, MASKED, ONE, **options)
    assert of_q.excess(dq).max() <= 1
    assert np.isfinite(of_k.rad).all()
    assert np.isfinite(of_v.rad).all()
    t = q / 1024 @ scaled.T
    dout = (p * (t - (p * t).sum())) @ v
    moved = scaled_dot_product_attention_jvp(q, k, v, MASKED, q / 1024, 0 * k, 0 * v, **options)
    assert moved.excess(dout).max() <= 1


@pytest.mark.parametrize("arithmetic", ["float16-eager", "float16-scaled-inputs"])
def test_a_query_of_a_dead_row_that_overflows_as_it_is_scaled_spoils_the_gradient_of_keys(arithmetic: str) -> None:
    q, k = np.array([[1.0], [40000.0]]), np.array([[0.5], [-0.25]])
    mask = np.array([[True, True], [False, False]])
    found = scaled_dot_product_attention_vjp(q, k, k, mask, np.ones((2, 1)), scale=2.0, arithmetic=arithmetic)
    assert found[1].excess(np.full((2, 1), np.nan)).max() <= 1


def test_a_scale_that_overflows_in_base_two_promises_nothing() -> None:
    k = np.array([[1e-20], [0.0]]).astype(f32)
    c = f32(f32(3e38) * f32(np.log2(np.e)))
    assert np.isinf(c)
    s = f32(1e-19) * k[:, 0] * c
    found = np.exp2(s - s.max()) @ np.array([1.0, 2.0])
    budget = scaled_dot_product_attention(
        np.full((1, 1), f32(1e-19)), k, np.array([[1.0], [2.0]]), scale=3e38, arithmetic="float32"
    )
    assert budget.excess(np.array([[found]])).max() <= 1


def test_an_operand_that_is_rounded_beyond_the_range_behind_a_mask_promises_nothing() -> None:
    """TF32's rounding to nearest takes the largest numbers of binary32 to ∞, and 0 times that is NaN."""
    v = np.array([[1.0], [float(np.finfo(f32).max)]])
    budget = scaled_dot_product_attention(
        ONE, np.array([[1.0], [0.0]]), v, np.array([[True, False]]), arithmetic="tf32"
    )
    assert budget.excess(np.array([[np.nan]])).max() <= 1


def test_no_heads_of_queries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^q has 0 heads, but should have at least one\.$"):
        attention(np.zeros((0, 1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1, 1)))
