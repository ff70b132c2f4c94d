"""What a review of sums of weights found: kernels that left a budget of a log-sum-exp, a merge or a
softmax, each with its input.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oracles.conventions import Conventions
from oracles.formats import BINARY16, BINARY32, FLOAT32, Elementary, preset
from oracles.generalised_attention import attention, attention_jvp, attention_vjp
from oracles.merge import merge_attention
from oracles.softmax import hard_masked_softmax_vjp
from oracles.tests.simulated.rounding import rounding

Array = Any
f32 = np.float32


def logits(*k: float, columns: int) -> tuple[Array, Array, Array]:
    """One query, keys that are the logits at a scale of 1, and values of 0 in so many columns."""
    return np.ones((1, 1, 1)), np.array(k).reshape(1, -1, 1), np.zeros((1, len(k), columns))


@pytest.mark.parametrize("columns", [0, 1])
@pytest.mark.parametrize(("sink", "known"), [(100.0, False), (10.0, True)])
def test_a_sink_that_overflows_loses_its_row_though_values_have_no_columns(
    sink: float, known: bool, columns: int
) -> None:
    """A kernel that takes the maximum over keys alone adds up ∞: its log-sum-exp is ∞, and all its weights 0."""
    q, k, v = logits(0.0, -0.5, columns=columns)
    told: Any = {"sink": np.array([sink]), "scale": 1.0, "arithmetic": "float32"}
    with np.errstate(over="ignore"):
        found = np.log(np.exp(k[0, :, 0].astype(f32)).sum() + np.exp(f32(sink)))
    _, lse = attention(q, k, v, **told)
    dq, dk, _, _, dsink = attention_vjp(q, k, v, v[:, :1], np.ones((1, 1)), **told)
    _, dlse = attention_jvp(q, k, v, q, k, v, dsink=np.ones(1), **told)
    assert (lse.excess(np.array([[found]])) <= 1).all()
    assert all(x is not None and (np.isfinite(x.rad) == known).all() for x in (lse, dq, dk, dsink, dlse))


@pytest.mark.parametrize("block", [None, 16])
@pytest.mark.parametrize("columns", [0, 1])
def test_weights_whose_sum_overflows_have_no_log_sum_exp_though_values_have_no_columns(
    columns: int, block: int | None
) -> None:
    """70000 weights of 1 in binary16: the log-sum-exp is ∞, a weight that is taken from it 0 and
    one of two sums NaN.
    """
    q, k, v = logits(*[0.0] * 70000, columns=columns)
    arithmetic = replace(preset("float16-elementwise"), rescale_block=block)
    _, lse = attention(q, k, v, scale=1.0, arithmetic=arithmetic)
    dq = attention_vjp(q, k, v, v[:, :1], np.ones((1, 1)), scale=1.0, arithmetic=arithmetic)[0]
    _, dlse = attention_jvp(q, k, v, q, k, v, scale=1.0, arithmetic=arithmetic)
    assert all(np.isinf(x.rad).all() for x in (lse, dq, dlse))


@pytest.mark.parametrize("columns", [0, 1])
def test_a_tangent_that_overflows_loses_the_tangent_of_the_log_sum_exp_though_values_have_no_columns(
    columns: int,
) -> None:
    """2⁶⁴·2⁶⁴ is ∞ in binary32, and ∞ − ∞ NaN."""
    q, k, v = logits(2.0**64, -(2.0**64), columns=columns)
    _, dlse = attention_jvp(0 * q, k, v, np.full((1, 1, 1), 2.0**64), 0 * k, v, scale=2.0**-20, arithmetic="float32")
    assert np.isinf(dlse.rad).all()


def test_values_that_overflow_leave_the_log_sum_exp_as_it_is() -> None:
    q, k, v = logits(0.0, 0.0, columns=1)
    out, lse = attention(q, k, v + 2.0**127, scale=1.0, arithmetic="float32")
    assert np.isinf(out.rad).all()
    assert (lse.rad < 1e-5).all()


@pytest.mark.parametrize("other", [0.0, -np.inf])
@pytest.mark.parametrize(("arithmetic", "size"), [("float32", 2.0**127 * 1.5), ("float16-elementwise", 48000.0)])
def test_merged_log_sum_exps_may_overflow_in_base_2(arithmetic: str, size: float, other: float) -> None:
    stored = rounding(BINARY32 if arithmetic == "float32" else BINARY16)
    sums = np.array([size, size / 4, 1.0]), np.array([size, size / 4, 1.0]) + other
    with np.errstate(over="ignore", invalid="ignore"):
        x, y = (stored(s * stored(np.log2(np.e))) for s in sums)
        m = np.maximum(x, y)
        total = stored(stored(np.exp2(stored(x - m))) + stored(np.exp2(stored(y - m))))
        found = stored(stored(m + stored(np.log2(total))) * stored(np.log(2)))
    parts: Any = np.zeros((3, 1)), sums[0], np.ones((3, 1)), sums[1]
    out, lse = merge_attention(*parts, arithmetic=arithmetic)
    assert (lse.excess(found) <= 1).all()
    assert np.isfinite(lse.rad).tolist() == [False, True, True]
    assert np.isinf(out.rad[0]).all()
    assert np.isfinite(
        merge_attention(*parts, arithmetic=arithmetic, conventions=Conventions(lse_base="2"))[1].rad
    ).all()


@pytest.mark.parametrize(
    ("name", "sink", "known"),
    [
        pytest.param("float32", 60.0, True, id="the slope of the sink"),
        pytest.param("float32", 100.0, False, id="weights are subnormal, and may be flushed"),
        pytest.param("float16-elementwise", 10.0, True, id="the slope of the sink in binary16"),
        pytest.param("float16-elementwise", 11.0, True, id="weights are subnormal in binary16"),
        pytest.param("float16-elementwise", 20.0, False, id="weights are 0"),
    ],
)
def test_a_log_sum_exp_without_its_sink_may_have_it_as_its_reference(name: str, sink: float, known: bool) -> None:
    """As a kernel has that takes one maximum for both of its sums."""
    stored = rounding(BINARY32 if name == "float32" else BINARY16)
    q, k, v = logits(1.0, 0.5, -0.25, 0.0, columns=1)
    allowed, moves = np.array([True, True, True, False]), np.array([0.5, -1.0, 2.0, 0.0])
    with np.errstate(divide="ignore", invalid="ignore"):
        e = stored(np.exp(stored(np.where(allowed, k[0, :, 0], -np.inf) - sink)))
        total = stored(e.sum())
        p = stored(e / total)
        found = [
            stored(sink + stored(np.log(total))),
            stored(p / 16),
            stored((p * moves).sum()),
            stored((p / 16 * k[0, :, 0]).sum()),
        ]
    told: Any = {"mask": allowed[None], "sink": np.array([sink]), "scale": 1.0, "arithmetic": name}
    told["conventions"] = Conventions(lse_sink="excluded")
    _, lse = attention(q, k, v, **told)
    _, dlse = attention_jvp(q, k, v, 0 * q, moves.reshape(1, 4, 1), v, **told)
    dq, dk, *_ = attention_vjp(q, k, v, v[:, :1], np.full((1, 1), 1 / 16), **told)
    for budget, value in zip((lse, dk, dlse, dq), found, strict=True):
        assert (budget.excess(np.reshape(value, budget.mid.shape)) <= 1).all()
        assert (np.isfinite(budget.rad) == known).all()


@pytest.mark.parametrize("base", ["e", "2"])
def test_an_exponential_that_is_flushed_is_missing_from_a_merged_log_sum_exp(base: Any) -> None:
    unit = 1.0 if base == "e" else f32(np.log(2.0))
    arithmetic = replace(FLOAT32, exp=Elementary(2.0**-21, 0.0, 2.0**-12))
    parts: Any = np.ones((1, 1)), np.zeros(1), np.ones((1, 1)), np.array([f32(-8.5 / unit)])
    _, lse = merge_attention(*parts, arithmetic=arithmetic, conventions=Conventions(lse_base=base))
    assert np.exp(parts[3] * unit) < arithmetic.exp.flush
    assert (lse.excess(np.zeros(1)) <= 1).all()
    assert (lse.rad < 1e-3).all()


@pytest.mark.parametrize("log", [2.0**-12, 2.0**-16])
@pytest.mark.parametrize("lower", [0.0, -1.0])
def test_the_logarithm_of_a_merge_counts_in_weights_that_are_taken_from_it(lower: float, log: float) -> None:
    parts: Any = np.ones((1, 1)), np.zeros(1), np.ones((1, 1)), np.array([lower])
    out, lse = merge_attention(*parts, arithmetic=replace(FLOAT32, log=log))
    merged = (np.log1p(np.exp(f32(lower))) * f32(1 + 0.98 * log)).astype(f32)
    weights = np.exp(np.array([0.0, lower], f32) - merged)
    assert (lse.excess(np.array([merged], float)) <= 1).all()
    assert (out.excess(np.array([[weights.sum()]], float)) <= 1).all()


@pytest.mark.parametrize(("last", "step"), [(3, 170), (5, 102)])
def test_a_derivative_of_softmax_may_store_products_of_weights_and_cotangents(last: int, step: int) -> None:
    """PyTorch on a GPU: grad·output in binary16, and the rest in binary32.  All cotangents but one
    are equal, so that most cancels.

    In attention they are dP = v·(1, 1), rounded by as much as may be.
    """
    half, weight = rounding(BINARY16), 2.0**-7 * (1 + (last - 0.5) * 2.0**-10)
    base, apart = half(np.log(1 / weight - 127)), half(0.98 * 4 * 2.0**-11)
    g = np.full((1, 128), 4 * (1 + (step + 1) * 2.0**-10))
    g[0, 0] = 4 * (1 + step * 2.0**-10)
    v: Any = np.stack([g[0], np.full(128, -apart)], axis=1)[None]
    v[0, 0, 1] = apart
    eager = replace(preset("float16-eager"), delta=None, rescale_block=None, shared_weights=True)
    for off in range(-3, 4):
        s = np.array([[0.0] * 127 + [half(base + off * 2.0**-11 * max(abs(base), 2.0**-5))]])
        e = np.exp(s - s.max()).astype(f32)
        p = half(e / e.sum())
        products = half(p * g)
        found = half((products - p * products.sum().astype(f32)).astype(f32))
        assert (hard_masked_softmax_vjp(s, None, g, arithmetic="float16-eager").excess(found) <= 1).all()
        keys = s.reshape(1, -1, 1)
        _, dk, *_ = attention_vjp(np.ones((1, 1, 1)), keys, v, np.ones((1, 1, 2)), scale=1.0, arithmetic=eager)
        assert (dk.excess(found.reshape(1, -1, 1)) <= 1).all()


def test_a_weight_of_a_merge_that_is_taken_by_a_sigmoid_is_0_where_its_exponential_overflows() -> None:
    """1/(1 + exp(11.1)) in binary16."""
    parts: Any = np.ones((1, 1)), np.zeros(1), np.zeros((1, 1)), np.array([11.1015625])
    out, _ = merge_attention(*parts, arithmetic="float16-elementwise")
    assert np.exp(11.1015625) > BINARY16.largest
    assert (out.excess(np.zeros((1, 1))) <= 1).all()


def test_the_sum_in_a_derivative_of_softmax_may_be_stored_too() -> None:
    """Each of p·g, its sum, the product of that with p, and the difference, in binary16."""
    half = rounding(BINARY16)
    s = np.array([[0.270751953125, -1.0498046875, 1.4013671875]])
    g = np.array([[0.09906005859375, 2.134765625, 2.927734375]])
    e = np.exp(s - s.max()).astype(f32)
    p = half(e / e.sum())
    w = half(p * g)
    found = half(w - half(p * half(w.sum(-1, keepdims=True))))
    assert (hard_masked_softmax_vjp(s, None, g, arithmetic="float16-eager").excess(found) <= 1).all()
