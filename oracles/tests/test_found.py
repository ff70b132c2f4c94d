"""What a review of the error analysis found: kernels that left a budget, and radii that said
nothing, each with its input.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from oracles.alibi import alibi_bias, alibi_slopes
from oracles.conventions import Conventions
from oracles.dot_product import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.formats import BINARY16, BRAIN16, FLOAT32, Format, preset
from oracles.generalised_attention import attention, attention_jvp, attention_vjp
from oracles.merge import merge_attention
from oracles.multi_head import multi_head_attention, multi_head_attention_jvp, multi_head_attention_vjp
from oracles.rotary.embeddings import rope, rope_vjp
from oracles.rotary.frequencies import rotary_frequencies
from oracles.rotary.tables import rotary_tables
from oracles.softmax import hard_masked_softmax, hard_masked_softmax_vjp
from oracles.tests.simulated.rounding import rounding

Array = Any
f32 = np.float32


def capped(q: float, k: list[float], cap: float, allowed: list[bool], target: Format) -> tuple[Array, Array]:
    """The output, each value 0 but for the last of 1, and the log-sum-exp: scores capped operator
    by operator, blocked ones −∞.
    """
    stored = rounding(target)
    s = np.where(allowed, stored(q * np.array(k)), -np.inf)
    t = stored(stored(np.tanh(stored(s / f32(cap)))) * f32(cap))
    e = np.exp((t - t.max()).astype(f32))
    return stored(stored(e / e.sum())[-1:]).reshape(1, 1, 1), np.array([[t.max() + np.log(e.sum())]])


@pytest.mark.parametrize(
    ("arithmetic", "q", "k", "cap", "allowed"),
    [
        pytest.param(
            "bfloat16-eager",
            0.0,
            [0.0, 0.0],
            20.06,
            [True, False],
            id="a blocked entry that comes to −c has the roundings of c",
        ),
        pytest.param(
            replace(preset("bfloat16"), scores=BRAIN16),
            7.25,
            [0.0, -4.5],
            257.0,
            [True, True],
            id="the quotient is stored too",
        ),
        pytest.param(
            "float16-eager",
            2.0**-11,
            [1.0],
            16384.0,
            [True],
            id="a quotient that underflows is off by the cap times as much",
        ),
    ],
)
def test_a_score_that_is_capped_operator_by_operator(
    arithmetic: Any, q: float, k: list[float], cap: float, allowed: list[bool]
) -> None:
    a = preset(arithmetic) if isinstance(arithmetic, str) else arithmetic
    found = capped(q, k, cap, allowed, a.output)
    arrays = (
        np.full((1, 1, 1), q, f32),
        np.array(k, f32).reshape(1, -1, 1),
        np.eye(1, len(k), len(k) - 1, dtype=f32).reshape(1, -1, 1),
    )
    after = Conventions(softcap_order="after_mask")
    budgets = attention(*arrays, mask=np.array([allowed]), softcap=cap, scale=1.0, conventions=after, arithmetic=a)
    assert all(budget.excess(x).max() <= 1 for budget, x in zip(budgets, found, strict=True))
    assert (budgets[0].rad < 1.1 * np.abs(budgets[0].mid)).all()


def merged(s: Array, v: Array, block: int) -> Array:
    """An online softmax in float32 that keeps its output normalised: every block multiplies it by
    a·(1/(a + b)), which rounds.
    """
    m, total, out = f32(-np.inf), f32(0), f32(0)
    for start in range(0, len(s), block):
        part, values = s[start : start + block], v[start : start + block]
        e = np.exp(part - part.max())
        highest = max(m, part.max())
        a, b = total * np.exp(m - highest), e.sum() * np.exp(part.max() - highest)
        r = f32(1) / (a + b)
        out = out * (a * r) + (e @ values / e.sum()) * (b * r)
        m, total = highest, a + b
    return np.array([[out]])


@pytest.mark.parametrize("block", [16, 64])
def test_an_output_that_is_kept_normalised_rounds_at_every_merge_though_few_keys_are_large(block: int) -> None:
    k, v = np.full((16384, 1), -40, f32), np.full((16384, 1), 1.37, f32)
    k[0], k[1] = 0, np.log(0.7)
    budget = scaled_dot_product_attention(np.ones((1, 1), f32), k, v, scale=1.0, arithmetic="float32")
    assert budget.excess(merged(k[:, 0], v[:, 0], block)).max() <= 1


@pytest.mark.parametrize("delta", [None, "output", "weights"])
@pytest.mark.parametrize(("g", "change"), [(2.0**-137, {"product": 2.0**-10}), (2.0**-127, {"flush_to_zero": True})])
def test_a_cotangent_that_is_lost_before_a_product_is_lost_in_delta_too(
    g: float, change: dict[str, Any], delta: str | None
) -> None:
    k, v = np.array([[0.0], [1.0]], f32), np.array([[1e10], [0.0]], f32)
    arithmetic = replace(FLOAT32, delta=delta, **change)
    dq, _, _ = scaled_dot_product_attention_vjp(
        np.zeros((1, 1), f32), k, v, None, np.array([[g]], f32), scale=1.0, arithmetic=arithmetic
    )
    assert dq.contains(np.zeros((1, 1))).all()


def test_a_sum_of_weights_that_are_off_may_overflow() -> None:
    k = np.array([[0, 0, 0], [2.0**21, -0.06, -(2.0**21)]], f32)
    v = np.full((2, 1), 1.71e38, f32)
    budget = scaled_dot_product_attention(np.ones((1, 3), f32), k, v, scale=1.0, arithmetic="float32")
    assert np.isinf(
        budget.rad
    ).all()  # the scores are 0 and 0 in that order of summation, and 2·1.71e38 is beyond float32


def test_values_whose_squares_overflow_have_budgets() -> None:
    q, k, v, g = np.random.default_rng(0).standard_normal((4, 5, 4))
    for gradient in scaled_dot_product_attention_vjp(q, k, v * 1e155, None, g, arithmetic="float64"):
        assert (gradient.rad <= 2.0**-30 * np.abs(gradient.mid).max()).all()


def test_weights_saved_in_16_bits_count_in_the_derivative_of_softmax() -> None:
    rng = np.random.default_rng(0)
    arithmetic = replace(FLOAT32, saved_weights=BRAIN16)
    for _ in range(20):
        s, g = rng.standard_normal((1, 8)).astype(f32), np.zeros((1, 8), f32)
        g[0, rng.integers(8)] = 1
        e = np.exp(s.astype(float) - s.max())
        mantissa, exponent = np.frexp(e / e.sum())
        p = np.ldexp(np.rint(mantissa * 2**8) / 2**8, exponent)
        found = p * (g - (p * g).sum())
        assert hard_masked_softmax_vjp(s, None, g, arithmetic=arithmetic).excess(found.astype(f32)).max() <= 1


def test_a_huge_column_excuses_no_radius_in_another() -> None:
    q = np.array([[292598302.1125003, 530751212.1544336, 448818386.20727897, 743746845.2518846, 1.0]])
    k = np.array(
        [
            [0.0] * 5,
            [502423809.6445777, 276162733.15357417, -325840243.91829437, -197949134.71076122, -114922117775053.83],
        ]
    )
    v = np.array([[0.0, 1e307], [1e299, 1e307]])
    found = scaled_dot_product_attention(q, k, v, scale=1.0, method="fast")
    assert not found.judged or found.rad[0, 0] < 1e-8
    exact = scaled_dot_product_attention(q, k, v, scale=1.0)
    assert exact.judged
    assert exact.rad[0, 0] < 1e-8


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_a_row_whose_scores_overflow_spoils_the_gradients_of_blocked_keys_too(scale: float) -> None:
    """exp(−∞ − NaN) is NaN, and so are the sums over queries in dk and dv."""
    q, k, v, g = np.random.default_rng(0).standard_normal((4, 3, 4)).astype(np.float16)
    mask = np.array([[True, True, False]] * 3)
    stores = replace(preset("float16"), scores=BINARY16)
    _, *found = scaled_dot_product_attention_vjp(q, k, v, mask, g, scale=scale, arithmetic=stores)
    for gradient in found:
        assert (gradient.rad[2] == (0 if scale == 1.0 else np.inf)).all()


def test_a_row_of_scores_that_overflow_in_units_of_ln_2_spoils_its_blocked_entries_too() -> None:
    s, mask = np.array([[3.0e38, 0.0], [1.0, 0.0]], f32), np.array([[True, False], [True, False]])
    assert hard_masked_softmax(s, mask, arithmetic="float32").rad[:, 1].tolist() == [np.inf, 0.0]
    g = np.array([[1.0, 1.0], [3e38, 1.0]], f32)
    assert hard_masked_softmax_vjp(s, mask, g, arithmetic="float32").rad[:, 1].tolist() == [np.inf, np.inf]


def test_sums_that_are_rescaled_lazily_may_overflow_before_they_are() -> None:
    """A kernel that keeps the first maximum adds up e⁵·v, and overflows where one that follows the maximum does not."""
    k, v = np.array([[0.0]] * 16 + [[5.0]] * 16, f32), np.full((32, 1), 1e37, f32)
    arithmetic = replace(FLOAT32, rescale_block=16)
    assert np.isinf(
        scaled_dot_product_attention(np.ones((1, 1), f32), k, v, scale=1.0, arithmetic=arithmetic).rad
    ).all()
    never = replace(FLOAT32, rescale_block=None)
    assert np.isfinite(
        scaled_dot_product_attention(np.ones((1, 1), f32), k, v / 2, scale=1.0, arithmetic=never).rad
    ).all()


def test_sums_of_a_tile_may_overflow_though_a_later_key_outweighs_it() -> None:
    """Each tile has its own maximum as the reference at first: there all weights may be 1."""
    q, k = np.ones((1, 1), f32), np.array([[0.0]] * 16 + [[30.0]] * 16, f32)
    v = np.array([[1e38]] * 16 + [[1e33]] * 16, f32)
    assert np.isinf(scaled_dot_product_attention(q, k, v, scale=1.0, arithmetic="float32").rad).all()
    at_once = replace(FLOAT32, rescale_block=None)
    assert np.isfinite(scaled_dot_product_attention(q, k, v, scale=1.0, arithmetic=at_once).rad).all()


@pytest.mark.parametrize("block", [None, 16])
def test_weights_of_which_there_are_too_many_for_their_format_overflow_though_values_are_small(
    block: int | None,
) -> None:
    q, k, v = np.ones((1, 1), np.float16), np.zeros((70000, 1), np.float16), np.full((70000, 1), 1e-3, np.float16)
    narrow = replace(preset("float16-elementwise"), rescale_block=block)
    assert np.isinf(scaled_dot_product_attention(q, k, v, arithmetic=narrow).rad).all()
    assert np.isinf(scaled_dot_product_attention_vjp(q, k, v, None, q, arithmetic=narrow)[2].rad).all()
    assert np.isinf(hard_masked_softmax(k.T, None, arithmetic=narrow).rad).all()


@pytest.mark.parametrize("offset", [2**63 - 1, -(2**63), 2**63, 2**70])
def test_positions_that_leave_the_integers_of_64_bits_are_refused(offset: int) -> None:
    """The last of three queries stood on the other side of the keys, and an offset of 2⁶³ itself did."""
    q, k, v = np.ones((1, 3, 1)), np.ones((1, 4, 1)), np.ones((1, 4, 1))
    with pytest.raises(ValueError, match=r"offset=-?(92|11)\d+, but should be within ±2\*\*53\."):
        attention(q, k, v, offset=offset, causal=True)


@pytest.mark.parametrize("method", ["auto", "fast", "arb"])
def test_parts_of_no_columns_merge(method: Any) -> None:
    out, lse = merge_attention(np.zeros((2, 0)), np.zeros(2), np.zeros((2, 0)), np.zeros(2), method=method)
    assert out.mid.shape == (2, 0)
    assert lse.contains(np.log([2.0, 2.0])).all()


def test_distances_that_are_no_numbers_of_float64_are_refused() -> None:
    with pytest.raises(ValueError, match=r"offset=92\d+, but should be within ±2\*\*52\."):
        alibi_bias(3, 2, 3, 2**63 - 1)
    far = alibi_bias(3, 1, 2**20, 2**52 - 1, conventions=Conventions(alibi_slopes="geometric"))
    assert (far.mid[2, 0, :1] == -(2.0**-8) * (2**52 - 1)).all()


def test_the_gradient_of_a_bias_that_underflows_is_no_exact_zero() -> None:
    """Its weight is 7e-238 and what it is multiplied by 1e-124: the product, and the bound of its error, were 0."""
    zero, bias = np.zeros((1, 1, 1)), np.array([[-545.0, 0.0]])
    lse = np.array([[1e-124]])
    found = attention_vjp(zero, np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), zero, lse, bias=bias, method="fast")[3]
    assert found is not None
    assert 0 < found.rad[0, 0] < 1e-300
    blocked = attention_vjp(
        zero, np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), zero, lse, bias=np.array([[-np.inf, 0.0]]), method="fast"
    )[3]
    assert blocked is not None
    assert blocked.rad[0, 0] == 0


def test_a_distance_that_its_format_does_not_hold_has_no_bias_there() -> None:
    budget = alibi_bias(1, 1, 2, 65505, arithmetic="float16-elementwise")
    assert budget.rad[0, 0, 0] == np.inf
    assert np.isfinite(budget.rad[0, 0, 1])


def test_query_heads_may_round_their_gradients_before_these_are_added_up() -> None:
    """PyTorch repeats keys and sums the repeated gradients, FlashAttention-2 has dk_expanded: of
    two heads, the sum all but cancels.
    """
    stored, rng = rounding(BRAIN16), np.random.default_rng(584)
    k, v, q = (
        stored(rng.standard_normal(shape) * size) for shape, size in (((1, 2, 1), 1), ((1, 2, 1), 1), ((2, 1, 1), 0.1))
    )
    g = stored(rng.standard_normal((1, 1, 1)) * np.array([1, -1])[:, None, None])
    e = np.exp(q @ k[0].T)
    weights = stored(e / e.sum(axis=-1, keepdims=True))
    found = stored(stored(weights.swapaxes(-1, -2) @ g).sum(axis=0, keepdims=True))
    dv = attention_vjp(*(x.astype(f32) for x in (q, k, v, g)), arithmetic="bfloat16")[2]
    assert dv.excess(found).max() <= 1


def test_biases_by_distance_are_of_the_format_in_which_they_are_computed() -> None:
    """-141421 is no number of binary16, to which the output would be rounded: an infinite bias was within it."""
    budget = alibi_bias(12, 1, 200001, offset=0, arithmetic="float16")
    found = budget.mid.copy()
    found[8, 0, -1] = -np.inf
    assert not budget.contains(found)[8, 0, -1]
    assert budget.format is alibi_slopes(12, arithmetic="float16").format is FLOAT32.elementwise


@pytest.mark.parametrize(
    "parameters", [{"attention_factor": 1.5e-242}, {"factor": 1.3e149, "mscale": 1.0, "mscale_all_dim": 0.8}]
)
def test_a_parameter_that_binary32_does_not_hold_leaves_nothing_known(parameters: dict[str, float]) -> None:
    """A kernel has 0 or ∞ for it."""
    given = {"factor": 2.0, "original_max_position_embeddings": 105} | parameters
    assert all(np.isinf(e.rad).all() for e in rotary_frequencies("yarn", 8, arithmetic="float32", **given))
    assert all(np.isfinite(e.rad).all() for e in rotary_frequencies("yarn", 8, arithmetic="float64", **given))


def test_a_frequency_that_overflows_makes_the_angle_of_position_0_unknown_too() -> None:
    """0·∞ is NaN."""
    x = np.ones((1, 4), f32)
    found = rope(x, positions=np.array([0]), inv_freq=np.array([1e39, 1.0]), arithmetic="float32")
    assert np.isinf(found.rad).tolist() == [[True, True, False, False]]


def test_an_attention_factor_that_overflows_makes_a_sine_of_0_unknown_too() -> None:
    for factor, known in ((1e39, False), (1e38, True)):
        tables = rotary_tables(np.array([0]), np.array([1.0]), factor, arithmetic="float32")
        assert all((np.isfinite(table.rad) == known).all() for table in tables)


@pytest.mark.parametrize(("cap", "known"), [(1e-40, False), (1e39, False), (1e-37, True)])
def test_a_cap_that_its_format_does_not_hold_leaves_nothing_known(cap: float, known: bool) -> None:
    """A score of 0 times the reciprocal of 1e-40 is 0·∞ in binary32."""
    one, k = np.ones((1, 1, 1), f32), np.array([[[0.0], [2.0]]], f32)
    budgets = (
        *attention(one, k, k, softcap=cap, arithmetic="float32"),
        *attention_vjp(one, k, k, one, softcap=cap, arithmetic="float32"),
    )
    assert all((np.isfinite(budget.rad) == known).all() for budget in budgets if budget is not None)


@pytest.mark.parametrize("name", ["float32", "float16-elementwise"])
def test_a_sink_that_overflows_beside_the_largest_key_loses_all_weights_in_derivatives_too(name: str) -> None:
    """A kernel that takes the maximum over keys alone adds up ∞, and has weights of 0."""
    one, k = np.ones((1, 1, 1), f32), np.array([[[0.0], [-1.0]]], f32)
    sink = np.array([89.0 if name == "float32" else 12.0], f32)
    dq, dk, dv, _, dsink = attention_vjp(one, k, k, one, sink=sink, scale=1.0, arithmetic=name)
    moved = attention_jvp(one, k, k, one, k, k, dsink=np.ones(1, f32), sink=sink, scale=1.0, arithmetic=name)
    assert all(e is not None and np.isinf(e.rad).all() for e in (dq, dk, dv, dsink, *moved))


def test_a_row_whose_scores_overflow_spoils_the_gradient_of_its_blocked_biases_too() -> None:
    q, bias = np.array([[[300.0], [0.0]]]), np.zeros((2, 2))
    mask = np.array([[True, False], [True, False]])
    one = np.ones((1, 2, 1))
    found = attention_vjp(q, q, one, one, bias=bias, mask=mask, scale=1.0, arithmetic="float16-elementwise")[3]
    assert found is not None
    assert np.isinf(found.rad).tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize(
    ("cap", "size"), [(1024.0, 64.0), (2.0**-12, 0.01953125)], ids=["c·dU overflows", "c·dU underflows"]
)
def test_a_gradient_that_is_stored_operator_by_operator_passes_through_a_cap(cap: float, size: float) -> None:
    stored = rounding(BINARY16)
    k, v, g = np.array([0.0, cap / 1024]), np.array([0.0, size]), size
    t = stored(np.tanh(stored(k / cap)))
    e = np.exp(stored(t * cap))
    p = stored(e / e.sum())
    with np.errstate(over="ignore"):
        du = stored(p * (stored(g * v) - (p * stored(g * v)).sum()))
        ds = stored(stored(stored(du * cap) * stored(1 - stored(t * t))) / cap)
    arrays = (np.ones((1, 1, 1)), k.reshape(1, 2, 1), v.reshape(1, 2, 1), np.full((1, 1, 1), g))
    found = attention_vjp(*arrays, softcap=cap, scale=1.0, arithmetic="float16-eager")[1]
    assert (found.excess(ds.reshape(1, 2, 1)) <= 1).all()
    assert np.isinf(found.rad).any() == np.isinf(ds).any()


@pytest.mark.parametrize(("g", "known"), [(1000.0, False), (10.0, True)])
def test_two_gradients_that_are_stored_by_themselves_may_overflow_where_their_sum_does_not(
    g: float, known: bool
) -> None:
    """p·(dP − δ) and p·g_lse in binary16: .6 times ±65504, and a sum of at most 31000."""
    stored = rounding(BINARY16)
    q, k, of_lse = np.ones((1, 1, 1)), stored(np.array([[[0.4055], [0.0]]])), float(stored(np.array(-65.504 * g)))
    v = stored(np.array([[[(31.0 * g - 0.6 * of_lse) / 0.24 / g], [0.0]]]))
    e = np.exp((q @ k.swapaxes(-1, -2)).astype(f32))
    p, dp = e / e.sum(), g * v.swapaxes(-1, -2)
    with np.errstate(over="ignore", invalid="ignore"):
        ds = stored(stored(p * (dp - (p * dp).sum())) + stored(p * of_lse))
        dk = stored(ds.swapaxes(-1, -2) @ q)
    _, budget, *_ = attention_vjp(
        q, k, v, np.full((1, 1, 1), g), np.full((1, 1), of_lse), scale=1.0, arithmetic="float16"
    )
    assert np.isfinite(budget.rad).all() == known
    assert (budget.excess(dk) <= 1).all()


def test_a_band_without_a_width_in_its_format_is_no_line_even_where_nothing_is_divided() -> None:
    """high − low is 0 in float32, and 0/0 NaN, whatever the factor."""
    told = {
        "kind": "llama3",
        "base": 1e4,
        "factor": 1.0,
        "original_max_position_embeddings": 1029,
        "low_freq_factor": 163.77043644156032,
    }
    for high, known in ((163.77043659408344, False), (200.0, True)):
        frequencies, _ = rotary_frequencies(
            head_dim=6, rotary_dim=4, **told, high_freq_factor=high, arithmetic="float32"
        )
        assert np.isfinite(frequencies.rad).all() == known


def test_a_ramp_may_have_its_low_end_rounded_in_one_of_two_differences() -> None:
    """As transformers has it: i − low of tensors in binary32, over high − low of Python's floats.
    At the last pair it is 1, or not.
    """
    rng, c, i = np.random.default_rng(0), Conventions(yarn_upper="last_pair"), np.arange(4)
    for _ in range(60):
        base, s, m = float(rng.uniform(20, 100)), float(rng.uniform(8, 64)), int(rng.integers(2000, 9000))
        low, high = (8 * np.log(m / (2 * np.pi * turns)) / (2 * np.log(base)) for turns in (32, 1))
        low, high = max(low, 0.0), min(high, 3.0)
        if not high - low > 0.1:
            continue
        ramp = np.clip((i.astype(f32) - f32(low)) / f32(high - low), 0, 1)
        f = f32(1) / f32(base) ** (i.astype(f32) / f32(4))
        mixed = f / f32(s) * ramp + f * (1 - ramp)
        found, _ = rotary_frequencies(
            kind="yarn",
            head_dim=8,
            base=base,
            factor=s,
            original_max_position_embeddings=m,
            truncate=False,
            conventions=c,
            arithmetic="float32",
        )
        assert found.excess(mixed.astype(np.float64)).max() <= 1


@pytest.mark.parametrize("after", [0.0, 3.0])
def test_a_subnormal_scale_may_be_flushed(after: float) -> None:
    """A kernel that flushes takes a scale below the smallest normal number for 0: scores are 0, and
    so are the gradients through them.
    """
    arithmetic = replace(preset("float32"), flush_to_zero=True)
    q, k = np.array([[2.0**64, 0.0]]), np.array([[2.0**63, 0.0], [-(2.0**63), 1.0]])
    v, g = np.array([[1.0], [3.0]]), np.array([[1.0]])
    dq, dk, dv = 0 * q, k[::-1], 0 * v
    scale = 2.0**-127 + after * 2.0**-149
    told = {"scale": scale, "arithmetic": arithmetic}
    flushed = np.array([[2.0]]), np.zeros((1, 1)), (0 * q, 0 * k, np.array([[0.5], [0.5]]))
    out = scaled_dot_product_attention(q, k, v, **told)
    tangent = scaled_dot_product_attention_jvp(q, k, v, None, dq, dk, dv, **told)
    gradients = scaled_dot_product_attention_vjp(q, k, v, None, g, **told)
    for budget, value in zip((out, tangent, *gradients), (*flushed[:2], *flushed[2]), strict=True):
        assert (budget.excess(value) <= 1).all()
    assert (scaled_dot_product_attention(q, k, v, scale=scale, arithmetic="float32").excess(flushed[0]) > 1).all()


def test_an_attention_factor_may_overflow_where_it_multiplies_what_is_rotated() -> None:
    """x·m is beyond the largest number, though x·(m·cos) would not be: nothing is known of that
    pair, and all of the others.
    """
    x = np.array([[2.0**127, 0.0, 1.0, 2.0]])
    told = {"positions": np.array([1]), "inv_freq": np.array([1.5, 0.5]), "attention_factor": 2.5}
    budget = rope(x, **told, arithmetic="float32")
    assert np.isinf(budget.rad[0, :2]).all()
    assert np.isfinite(budget.rad[0, 2:]).all()
    assert np.isfinite(rope(x, **told | {"attention_factor": 0.5}, arithmetic="float32").rad).all()


@pytest.mark.parametrize(("size", "known"), [(48000.0, False), (30000.0, True)])
@pytest.mark.parametrize("back", [False, True])
def test_an_attention_factor_may_come_too_late_for_what_is_rotated(size: float, known: bool, back: bool) -> None:
    """A kernel that rotates, and then multiplies by 1/2, forms √2·x before: the gradient of one
    that multiplies first does so.
    """
    x, told = (
        np.full((1, 2), size),
        {"positions": np.array([1]), "inv_freq": np.array([0.785]), "attention_factor": 0.5},
    )
    budget = (
        rope_vjp(x, x, **told, arithmetic="float16-elementwise")
        if back
        else rope(x, **told, arithmetic="float16-elementwise")
    )
    assert np.isfinite(budget.rad).all() == known


@pytest.mark.parametrize(
    ("cap", "conventions"), [(None, None), (20.0, None), (20.0, Conventions(softcap_order="after_mask"))]
)
def test_a_masked_tangent_that_overflows_spoils_its_row(cap: float | None, conventions: Conventions | None) -> None:
    """A weight of 0 times ∞ is NaN, where a kernel stores tangents of all scores in float16."""
    q, k, v = np.ones((1, 1, 1)), np.array([[[1.0], [1024.0]]]), np.ones((1, 2, 1))
    mask = np.array([[[True, False]]])
    for moves, known in ((256.0, False), (1.0, True)):
        told = {"scale": 1.0, "softcap": cap, "arithmetic": "float16-eager", "conventions": conventions}
        dout, dlse = attention_jvp(q, k, v, dq=np.full((1, 1, 1), moves), dk=0 * k, dv=0 * v, mask=mask, **told)
        assert np.isfinite(dout.rad).all() == known
        assert np.isfinite(dlse.rad).all() == known


@pytest.mark.parametrize(
    ("arithmetic", "v", "g"), [("float16-eager", 1024.0, 256.0), ("float32-materialized", 2.0**127, 4.0)]
)
def test_a_masked_product_that_overflows_spoils_the_gradients_of_its_row(arithmetic: str, v: float, g: float) -> None:
    """dP of a key that is masked is ∞, and P·(dP − ΣP·dP) NaN throughout the row."""
    q, k, mask = np.ones((1, 1)), np.ones((2, 1)), np.array([[True, False]])
    for size, known in ((v, False), (1.0, True)):
        dq, dk, dv = scaled_dot_product_attention_vjp(
            q, k, np.array([[1.0], [size]]), mask, np.array([[g]]), arithmetic=arithmetic
        )
        assert [np.isfinite(x.rad).all() for x in (dq, dk, dv)] == [known, known, True]


@pytest.mark.parametrize(("g_lse", "known"), [(60000.0, False), (10000.0, True)])
def test_the_cotangent_of_the_log_sum_exp_may_overflow_where_it_is_added(g_lse: float, known: bool) -> None:
    """dP − δ + g is beyond binary16, though the weight makes it small."""
    q, k, v = np.ones((1, 1, 1)), np.array([[[0.0], [-7.0]]]), np.array([[[0.0], [120.0]]])
    told = {"grad_lse": np.full((1, 1), g_lse), "bias": np.zeros((1, 1, 2)), "arithmetic": "float16-elementwise"}
    _, dk, _, dbias, _ = attention_vjp(q, k, v, np.full((1, 1, 1), 100.0), **told)
    assert (np.isfinite(dk.rad[0, 1]).all(), np.isfinite(dbias.rad[0, 0, 1])) == (known, known)


@pytest.mark.parametrize(("size", "known"), [(1000.0, False), (10.0, True)])
def test_a_row_s_gradient_of_a_sink_may_overflow_before_rows_are_added_up(size: float, known: bool) -> None:
    """The two rows' are ∓150 · g, which are ±∞ as binary16 stores them."""
    zeros, v = np.zeros((1, 2, 1)), np.full((1, 1, 1), 300.0)
    found = attention_vjp(zeros, zeros[:, :1], v, np.array([[[size], [-size]]]), sink=np.zeros(1), arithmetic="float16")
    assert np.isfinite(found[-1].rad).all() == known


@pytest.mark.parametrize(("size", "known"), [(40000.0, False), (1000.0, True)])
def test_a_masked_entry_of_a_cotangent_may_overflow_beside_the_mean(size: float, known: bool) -> None:
    """Its weight of 0 times −40000 − 30000, which is −∞ in binary16, is NaN."""
    mask, g = np.array([[True, True, False]]), np.array([[size, size / 2, -size]])
    budget = hard_masked_softmax_vjp(np.zeros((1, 3)), mask, g, arithmetic="float16-elementwise")
    assert np.isfinite(budget.rad[0]).tolist() == [True, True, known]


def test_a_share_of_a_cotangent_that_underflows_is_no_exact_zero() -> None:
    """The smallest number over two keys, which a row without keys weighs alike, is half of it, and 0 in float64."""
    q, k, g = np.zeros((1, 1)), np.zeros((2, 1)), np.full((1, 1), 2.0**-1074)
    mask, conventions = np.zeros((1, 2), bool), Conventions(dead_rows="uniform")
    for method in ("fast", "auto", "arb"):
        options = {"conventions": conventions, "method": method}
        *_, dv = scaled_dot_product_attention_vjp(q, k, k, mask, g, **options)  # type: ignore[arg-type]
        assert (dv.rad > 0).all()


# -- What is stored before it is scaled, and what overflows in a projection behind a mask ----------


def _autograd(function, *given, g):
    """The gradients that PyTorch's autograd has, as float64."""
    given = [torch.from_numpy(x).half().requires_grad_() for x in given]
    return [x.double().numpy() for x in torch.autograd.grad(function(*given), given, torch.from_numpy(g).half())]


@pytest.mark.parametrize("preset", ["float16-eager", "float16-scaled-inputs"])
@pytest.mark.parametrize(
    ("k", "v", "g", "scale"),
    [([16, -16], [64, -64], 128, 0.25), ([2.0**-11, 0], [2.0**-6, 0], 2.0**-6, 1024.0)],
    ids=["overflow", "underflow"],
)
def test_the_gradient_of_a_scaled_query_is_stored_before_it_is_scaled(preset, k, v, g, scale):
    given = np.zeros((1, 1)), np.array(k, dtype=float)[:, None], np.array(v, dtype=float)[:, None]
    found = _autograd(lambda q, k, v: torch.softmax(q * scale @ k.mT, -1) @ v, *given, g=np.full((1, 1), float(g)))
    budgets = scaled_dot_product_attention_vjp(*given, None, np.full((1, 1), float(g)), scale=scale, arithmetic=preset)
    assert found[0].ravel()[0] in (np.inf, 0.0)
    assert all((budget.excess(x) <= 1).all() for x, budget in zip(found, budgets, strict=True))


def test_a_tangent_that_overflows_where_it_is_scaled_leaves_nothing_known():
    q, k, dk, zero = np.full((1, 1), 2.0**-8), np.zeros((2, 1)), np.array([[8000.0], [0.0]]), np.zeros((2, 1))
    told = {"scale": 16.0, "arithmetic": "float16-eager"}
    found = scaled_dot_product_attention_jvp(q, k, np.array([[1.0], [0.0]]), None, 0 * q, dk, zero, **told)
    assert np.isinf(found.rad).all()
    found = scaled_dot_product_attention_jvp(q, k, np.array([[1.0], [0.0]]), None, 0 * q, dk / 16, zero, **told)
    assert np.isfinite(found.rad).all()


BLOCKED = np.array([[True, False], [True, True]])


def _tokens(x, wv, wo):
    one = np.zeros((1, 1))
    return np.array(x)[:, None], one, one, np.full((1, 1), wv), np.full((1, 1), wo), 1, BLOCKED


@pytest.mark.parametrize("behind", ["finite", "unread"])
def test_a_projection_that_overflows_behind_a_mask_spoils_what_is_multiplied_with_it(behind):
    """0·∞ is NaN, in a kernel that reads what is blocked."""
    told = {"arithmetic": "float32", "conventions": Conventions(blocked_values=behind)}
    large, larger = (float(np.float32(x)) for x in (1e20, 1e30))
    out = multi_head_attention(*_tokens([1.0, large], large, 1.0), **told)
    dx, *_ = multi_head_attention_vjp(*_tokens([1.0, 1.0], 1.0, larger), np.array([[larger], [1.0]]), **told)
    moves = np.array([[0.0], [0.0]]), np.zeros((1, 1)), np.zeros((1, 1)), np.full((1, 1), large), np.zeros((1, 1))
    dout = multi_head_attention_jvp(*_tokens([1.0, large], 0.0, 1.0), *moves, **told)
    assert [bool(np.isfinite(x.rad[at, 0])) for x, at in ((out, 0), (dx, 1), (dout, 0))] == [behind == "unread"] * 3


def test_a_key_s_tangent_that_overflows_where_it_is_scaled_spoils_rows_that_do_not_read_it():
    q, k, v, dk = np.full((1, 1), 2.0**-8), np.zeros((2, 1)), np.ones((2, 1)), np.array([[0.0], [8000.0]])
    for scale, known in ((16.0, False), (1.0, True)):
        told = {"scale": scale, "arithmetic": "float16-eager"}
        found = scaled_dot_product_attention_jvp(q, k, v, np.array([[True, False]]), 0 * q, dk, 0 * v, **told)
        assert np.isfinite(found.rad).all() == known


@pytest.mark.parametrize(("moves", "known"), [(300.0, False), (1.0, True)])
def test_a_tangent_that_overflows_in_a_tile_that_nobody_reads_spoils_the_row(moves, known):
    """A row of a sink alone."""
    q, k, v = np.ones((1, 1, 1)), np.full((1, 2, 1), 300.0), np.ones((1, 2, 1))
    told = {"bias": np.full((1, 2), -np.inf), "sink": np.zeros(1), "scale": 1.0, "arithmetic": "float16-eager"}
    for x in attention_jvp(q, k, v, moves * q, 0 * k, v, **told):
        assert np.isfinite(x.rad).all() == known
