"""At the ends of the range: errors that underflow do not vanish, what may overflow is not judged,
NaN stays where it is."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oracles import ball
from oracles.ball import Array, Ball
from oracles.conventions import Conventions
from oracles.dot_product import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.error_analysis.computation import Sizes
from oracles.error_analysis.roundings import terms_of
from oracles.formats import BRAIN16, FLOAT32, FLOAT64, Elementary
from oracles.multi_head import multi_head_attention, multi_head_attention_vjp
from oracles.rotary.embeddings import apply_rotary
from oracles.softmax import hard_masked_softmax, hard_masked_softmax_vjp

HUGE_KEYS = np.array(
    [[8.18480844e152, 6.34893357e152, 2.37105432e153], [5.08263818e152, 9.06635120e152, 2.16193936e153]]
)
HUGE_QUERY = np.array([[1.30400005e153, 9.47080963e152, -7.03735236e152]])
SIGNS = np.array([[1.0], [-1.0]])


def test_a_tiny_scale_does_not_make_errors_of_huge_products_vanish() -> None:
    k, none = HUGE_KEYS, np.zeros((1, 3))
    point, tangent = (none, k, SIGNS), (HUGE_QUERY, 0 * k, 0 * SIGNS)
    fast, exact = (
        scaled_dot_product_attention_jvp(*point, None, *tangent, scale=1e-320, method=method)  # type: ignore[arg-type]
        for method in ("fast", "arb")
    )
    assert (np.abs(fast.mid - exact.mid) + exact.rad <= fast.rad).all()


def test_a_power_of_two_may_move_between_the_scale_and_its_factors() -> None:
    def radius(dq: Any, k: Any, scale: float) -> Any:
        zeros = 0 * dq, 0 * k, 0 * SIGNS
        return scaled_dot_product_attention_jvp(
            zeros[0], k, SIGNS, None, dq, *zeros[1:], scale=scale, arithmetic="float64"
        ).rad

    tiny = radius(HUGE_QUERY, HUGE_KEYS, 1e-320)
    moved = radius(HUGE_QUERY * 2.0**-500, HUGE_KEYS * 2.0**-500, 1e-320 * 2.0**1000)
    assert (
        np.abs(tiny - moved) <= 2.0**-30 * moved
    ).all()  # a radius is computed by far fewer than 2²³ roundings of 2⁻⁵³ each


def test_a_relative_error_of_a_divisor_that_underflows_is_not_zero() -> None:
    a, b = (Ball(np.array([x]), np.array([r])) for x, r in ((1e-310, 0.0), (1e-300, 1e-315)))
    quotient = ball.divide(a, b)
    assert quotient.rad[0] >= 1e-10 * 1e-15


def kernel(q: Array, k: Array, v: Array, g: Array, stored: Any) -> tuple[Array, ...]:
    """dq, dk and dv in float32, with dS stored in a dtype and the scale last."""
    q, k, v, g = (x.astype(np.float32) for x in (q, k, v, g))
    scale = np.float32(1 / np.sqrt(q.shape[1]))
    s = q @ k.T * scale
    e = np.exp(s - s.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    dp = g @ v.T
    ds = (p * (dp - (p * dp).sum(axis=1, keepdims=True))).astype(stored).astype(np.float32)
    return ds @ k * scale, ds.T @ q * scale, np.add.accumulate(p[:, :, None] * g[:, None, :])[-1]


OVERFLOWS = {
    "stored dS": ("float16", np.float16, [[2.0**-10]], [[2.0**-8], [2.0**-7]], [[1000.0], [-1000.0]], [[1000.0]]),
    "dP": ("float32", np.float32, [[1.0]], [[2.0**-66], [2.0**-65]], [[2.0**66], [-(2.0**66)]], [[2.0**66]]),
    "dS·k": (
        "float32",
        np.float32,
        np.zeros((1, 64)),
        np.ones((2, 64)) * 2.0**63 * np.array([[1.0], [-1.0]]),
        np.ones((2, 64)) * 2.0**65 * np.array([[1.0], [-1.0]]),
        np.eye(1, 64),
    ),
    "dSᵀ·q": (
        "float32",
        np.float32,
        np.full((2, 64), 2.0**62),
        np.zeros((2, 64)),
        [[2.0**66], [-(2.0**66)]],
        [[1.0], [1.0]],
    ),
    "pᵀ·g": (
        "float32",
        np.float32,
        np.zeros((4, 1)),
        np.zeros((1, 1)),
        [[0.0]],
        2.0**127 * np.array([[1.0], [1.0], [-1.0], [-1.0]]),
    ),
}


@pytest.mark.parametrize("site", OVERFLOWS)
def test_a_gradient_that_overflows_on_its_way_is_not_refused(site: str) -> None:
    arithmetic, stored, *values = OVERFLOWS[site]
    q, k, v, g = (np.asarray(x) for x in values)
    with np.errstate(all="ignore"):
        results = kernel(q, k, v, g, stored)
    assert not all(np.isfinite(x).all() for x in results)
    for budget, result in zip(
        scaled_dot_product_attention_vjp(q, k, v, None, g, arithmetic=arithmetic), results, strict=True
    ):
        assert budget.contains(result.astype(np.float64)).all()


def test_a_gradient_far_from_overflow_has_a_finite_budget() -> None:
    rng = np.random.default_rng(0)
    q, k, v, g = (np.round(20 * rng.standard_normal((8, 4))) for _ in range(4))
    for arithmetic in ("float16", "float32", "float16-stored-gradients"):
        for budget in scaled_dot_product_attention_vjp(q / 16, k / 16, v, None, g, arithmetic=arithmetic):
            assert np.isfinite(budget.rad).all()


def test_blocked_keys_do_not_overflow() -> None:
    q, k, v, g = (
        np.zeros((1, 1)),
        np.array([[1.0], [2.0], [2.0**127]]),
        np.array([[1.0], [2.0], [2.0**127]]),
        np.ones((1, 1)),
    )
    mask = np.array([[True, True, False]])
    for budget in scaled_dot_product_attention_vjp(q, k, v, mask, g, arithmetic="float32"):
        assert np.isfinite(budget.rad).all()


def test_a_tangent_that_overflows_on_its_way_is_not_refused() -> None:
    q, k, dq = np.zeros((1, 1)), np.array([[2.0**64], [-(2.0**64)]]), np.array([[2.0**64]])
    zeros = 0 * k, np.zeros((2, 1))
    assert np.isinf(
        scaled_dot_product_attention_jvp(q, k, SIGNS, None, dq, *zeros, scale=2.0**-20, arithmetic="float32").rad
    ).all()
    dv = np.array([[2.0**127], [2.0**127], [-(2.0**127)], [-(2.0**127)]])
    q, k, v = np.array([[0.0]]), np.zeros((4, 1)), np.zeros((4, 1))
    assert np.isinf(scaled_dot_product_attention_jvp(q, k, v, None, q, k, dv, arithmetic="float32").rad).all()


def test_a_scaled_query_that_overflows_is_not_refused() -> None:
    q, k, v = np.array([[2.0**126], [1.0]]), np.array([[2.0**-120], [0.0]]), SIGNS
    assert np.isinf(scaled_dot_product_attention(q, k, v, scale=10.0, arithmetic="float32").rad).tolist() == [
        [True],
        [False],
    ]


def test_a_softmax_gradient_that_overflows_on_its_way_is_not_refused() -> None:
    s, g = (
        np.array([[0.0, -25.0], [0.0, 0.0]]),
        np.array([[-3e38, 3e38], [1.0, 2.0]]).astype(np.float32).astype(np.float64),
    )
    budget = hard_masked_softmax_vjp(s, None, g, arithmetic="float32")
    p = np.exp(s).astype(np.float32) / np.exp(s).astype(np.float32).sum(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        result = p * (g.astype(np.float32) - (p * g.astype(np.float32)).sum(axis=1, keepdims=True))
    assert np.isinf(result).any()
    assert budget.contains(result.astype(np.float64)).all()
    assert np.isfinite(budget.rad[1]).all()


def test_multi_head_gradients_that_overflow_on_their_way_are_not_refused() -> None:
    x, g = np.array([[1.0], [-1.0]]), np.array([[32.0], [0.0]])
    wq, wk, wv, wo = (np.array([[w]]) for w in (2.0**-12, 64.0, 1024.0, 1.0))
    with np.errstate(over="ignore"):
        dq, dk, dv = (d.astype(np.float16) for d in kernel(x * wq, x * wk, x * wv, g * wo, np.float16))
        dx = (dq * wq + dk * wk + dv * wv).astype(np.float16)
    assert np.isinf(dx[0])
    budgets = multi_head_attention_vjp(x, wq, wk, wv, wo, 1, None, g, arithmetic="float16")
    assert np.abs(budgets[0].mid[0]) < 2.0**15
    assert budgets[0].contains(dx.astype(np.float64)).all()


def test_partial_sums_of_a_projection_that_overflow_are_not_refused() -> None:
    x, w = np.full((1, 2), 2.0**64), np.array([[2.0**63], [-(2.0**63)]])
    ones, wo = np.ones((2, 1)), np.ones((1, 2))
    budget = multi_head_attention(x, ones * 0, ones * 0, w, wo, 1, arithmetic="float32")
    assert np.isinf(budget.rad).all()


def test_nan_in_a_query_stays_in_the_gradients_of_what_it_may_read() -> None:
    rng = np.random.default_rng(0)
    q, k, v, g = (rng.standard_normal((4, 2)) for _ in range(4))
    q[0, 0] = np.nan
    exact = scaled_dot_product_attention_vjp(q, k, v, None, g, is_causal=True, method="arb")
    fast = scaled_dot_product_attention_vjp(q, k, v, None, g, is_causal=True, method="fast")
    for ours, theirs in zip(fast, exact, strict=True):
        np.testing.assert_array_equal(np.isnan(ours.mid), np.isnan(theirs.mid))
        np.testing.assert_array_equal(np.isinf(ours.rad), np.isinf(theirs.rad))
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, v, None, g, is_causal=True, arithmetic="float64")
    assert np.isinf(dq.rad).all(axis=1).tolist() == [True, False, False, False]
    assert np.isinf(dk.rad).all()  # a kernel's exp(−∞ − NaN) is NaN
    assert np.isinf(dv.rad).all()


def test_a_score_out_of_range_stays_in_its_row_of_dq_and_spoils_dk_and_dv() -> None:
    q, k, v, g = np.array([[2.0**100], [1.0]]), np.array([[2.0**60], [1.0]]), SIGNS, np.ones((2, 1))
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, v, np.eye(2, dtype=bool), g, arithmetic="float32")
    assert np.isfinite(dq.rad[1]).all()
    for budget in (dk, dv):
        assert np.isinf(budget.rad).all()


def test_nan_in_an_allowed_score_leaves_blocked_weights_0() -> None:
    s, mask = np.array([[np.nan, 1.0, 2.0]]), np.array([[True, True, False]])
    for budget in (hard_masked_softmax(s, mask), hard_masked_softmax_vjp(s, mask, np.ones((1, 3)))):
        assert np.isnan(budget.mid).tolist() == [[True, True, False]]
        assert budget.rad.tolist() == [[np.inf, np.inf, 0.0]]


def test_stored_weights_of_a_query_that_reads_all_keys_equally_may_be_rounded() -> None:
    n = 60001
    q, k, v, g = np.zeros((1, 1)), np.zeros((n, 1)), np.zeros((n, 1)), np.array([[1000.0]])
    blocked, c = np.zeros((1, n), dtype=bool), Conventions(dead_rows="uniform")
    dv = scaled_dot_product_attention_vjp(q, k, v, blocked, g, arithmetic="float16", conventions=c, method="fast")[2]
    weight = float(np.float16(1 / n))
    assert dv.contains(np.full((n, 1), float(np.float16(weight * 1000)))).all()


def test_the_weights_of_a_query_that_reads_all_keys_equally_come_from_a_saved_lse() -> None:
    q, k, v, g = np.zeros((1, 1)), np.zeros((600, 1)), np.zeros((600, 1)), np.ones((1, 1))
    narrow, c = replace(FLOAT64, saved_lse=BRAIN16), Conventions(dead_rows="uniform")
    dv = scaled_dot_product_attention_vjp(q, k, v, np.zeros((1, 600), dtype=bool), g, arithmetic=narrow, conventions=c)[
        2
    ]
    saved = float(np.log(600).astype(ml_dtypes.bfloat16))
    assert abs(saved - np.log(600)) > 2.0**-7
    assert dv.contains(np.full((600, 1), np.exp(-saved))).all()


def test_tf32_may_truncate_subnormal_operands_to_0() -> None:
    zero, tiny = np.zeros((1, 1)), np.array([[2.0**-140]])
    assert scaled_dot_product_attention(zero, zero, tiny, arithmetic="tf32").contains(zero).all()
    dv = scaled_dot_product_attention_vjp(zero, zero, zero, None, tiny, arithmetic="tf32")[2]
    assert dv.contains(zero).all()
    assert multi_head_attention(tiny, zero, zero, 1000 + zero, 1 + zero, 1, arithmetic="tf32").contains(zero).all()
    keys, large = np.array([[2.0**-140], [0.0]]), np.array([[2.0**120]])
    moved = scaled_dot_product_attention_jvp(zero, keys, SIGNS, None, large, 0 * keys, 0 * SIGNS, arithmetic="tf32")
    assert moved.contains(zero).all()
    scaled = scaled_dot_product_attention_jvp(zero, SIGNS, keys, None, large, 0 * keys, 0 * SIGNS, arithmetic="tf32")
    assert scaled.contains(zero).all()


def test_operands_may_be_flushed_to_0() -> None:
    flushing, zero, tiny = replace(FLOAT32, flush_to_zero=True), np.zeros((1, 1)), np.array([[2.0**-127]])
    assert multi_head_attention(tiny, zero, zero, 1000 + zero, 1 + zero, 1, arithmetic=flushing).contains(zero).all()
    tables = np.full((1, 2), 100.0)
    assert (
        apply_rotary(np.full((1, 2), 2.0**-127), tables, 0 * tables, arithmetic=flushing)
        .contains(np.zeros((1, 2)))
        .all()
    )
    assert (
        apply_rotary(tables, np.full((1, 2), 2.0**-127), 0 * tables, arithmetic=flushing)
        .contains(np.zeros((1, 2)))
        .all()
    )


def test_a_coarse_logarithm_may_move_all_weights() -> None:
    q, k, v, g = np.zeros((1, 1)), np.zeros((64, 1)), np.zeros((64, 1)), np.ones((1, 1))
    moved = np.full((64, 1), np.exp(-np.log(64) * (1 + 2.0**-8)))
    for log, accepted in ((0.0, False), (2.0**-8, True)):
        dv = scaled_dot_product_attention_vjp(q, k, v, None, g, arithmetic=replace(FLOAT64, log=log))[2]
        assert dv.contains(moved).all() == accepted


@pytest.mark.parametrize("change", [{"accumulate": 0.1}, {"product": 0.4}])
def test_the_slope_of_the_exponential_acts_on_the_error_of_its_score(change: dict[str, float]) -> None:
    sloping = Elementary(2.0**-50, 0.25, 0.0)
    steep, flat = (
        terms_of(replace(FLOAT64, exp=exp, **change), Sizes(1, 4, 4, 1, 1.0))
        for exp in (sloping, replace(sloping, per_unit=0.0))
    )
    wrong = flat.dot.positive + flat.product
    assert steep.dot.positive + steep.product + steep.anew.slope >= wrong + 0.25 * (1 + 0.99 * wrong)


def test_scores_that_overflow_in_units_of_ln_2_are_not_judged() -> None:
    s = np.array([[2.0**127, 2.0**127], [0.0, 1.0], [2.0**127, 0.0]])
    mask = np.array([[True, True], [True, True], [False, True]])
    for budget in (
        hard_masked_softmax(s, mask, arithmetic="float32"),
        hard_masked_softmax_vjp(s, mask, np.ones((3, 2)), arithmetic="float32"),
    ):
        assert np.isinf(budget.rad).tolist() == [[True, True], [False, False], [False, False]]


def test_a_statistical_line_that_overflows_leaves_the_budget() -> None:
    x = np.random.default_rng(0).normal(size=(4, 70, 2)) * 1e160
    q, k, v, g = 1e-160 * x[0], 1e-160 * x[1], x[2], x[3]
    likely = replace(FLOAT64, likely=8.4)
    for operation, arguments in (
        (scaled_dot_product_attention, (q, k, v)),
        (scaled_dot_product_attention_vjp, (q, k, v, None, g)),
    ):
        line, budget = (np.ravel(operation(*arguments, arithmetic=a)) for a in (likely, FLOAT64))
        for likely_one, proved in zip(line, budget, strict=True):
            assert (likely_one.rad <= proved.rad).all()
            assert not np.isnan(likely_one.rad).any()
