"""What a review of scores and their tangents found: kernels that left a budget, or overflowed
within it, each with its input.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oracles.dot_product import scaled_dot_product_attention
from oracles.enclosure import Enclosure
from oracles.formats import BINARY16, BINARY32, FLOAT32, Format
from oracles.generalised_attention import attention, attention_jvp
from oracles.tests.simulated.rounding import CHOPPED_BITS, rounding, truncated

Array = Any
f16, f32, chopped = rounding(BINARY16), rounding(BINARY32), truncated(CHOPPED_BITS)
STORED_SCORES = replace(FLOAT32, name="float32, scores in 16 bits", scores=BINARY16)


@pytest.fixture(autouse=True)
def _infinities():
    with np.errstate(all="ignore"):
        yield


def one_query(q: float, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """A query, keys and values of one column, as one head."""
    return np.full((1, 1, 1), q), np.reshape(k, (1, -1, 1)).astype(float), np.reshape(v, (1, -1, 1)).astype(float)


def inside(budget: Enclosure, kernel: Any) -> bool:
    """Whether what a kernel returns is within a budget."""
    return bool((budget.excess(np.broadcast_to(kernel, budget.mid.shape).astype(float)) <= 1).all())


def test_a_rescaling_that_is_flushed_takes_weights_with_it_that_a_low_reference_let_grow() -> None:
    """Keys of 0, 7.99 and 126 in base 2: the reference stays at 0 until the last, and exp2(−126) is flushed."""
    s = np.full(48, -140.0)
    s[[0, 16, 32]] = -118.0, -118.0 + 7.99, 8.0
    v = np.zeros(48)
    v[16] = 1.0
    arrays = one_query(1.0, f32(s * np.log(2)), v)
    assert FLOAT32.rescale_slack == 8
    assert FLOAT32.exp.flush >= 2.0**-126
    assert inside(scaled_dot_product_attention(*arrays, scale=1.0, arithmetic="float32"), 0.0)


@pytest.mark.parametrize("arithmetic", ["float16", "float16-eager"])
def test_products_of_weights_and_tangents_may_underflow(arithmetic: str) -> None:
    """64 keys, and p·t of about 2⁻²⁵: stored in float16 it is 0, and so is their sum, the
    derivative of the log-sum-exp.
    """
    q, k, v = one_query(0.0, np.ones(64), np.ones(64))
    tangent = np.full(q.shape, f16(64 * 2.0**-25 * 0.98))
    _, dlse = attention_jvp(q, k, v, tangent, np.zeros(k.shape), np.zeros(v.shape), scale=1.0, arithmetic=arithmetic)
    assert inside(dlse, 0.0)


CAPPED = [("float16-eager", 2.0**-4, 8192.0), ("float16-elementwise", 0.25, 20000.0), ("float32", 2.0**-4, 2.0**125)]


@pytest.mark.parametrize(("arithmetic", "cap", "size"), CAPPED, ids=lambda x: x if isinstance(x, str) else "")
def test_a_tangent_that_is_divided_by_a_cap_may_overflow(arithmetic: str, cap: float, size: float) -> None:
    q, k, v = one_query(0.0, [1.0, -1.0], [2.0**-10, 0.0])
    tangents = np.full(q.shape, size), np.zeros(k.shape), np.zeros(v.shape)
    assert all(
        inside(x, np.nan) for x in attention_jvp(q, k, v, *tangents, scale=1.0, softcap=cap, arithmetic=arithmetic)
    )


@pytest.mark.parametrize(
    ("arithmetic", "size", "moved"), [("float16-eager", 2e4, 6e4), ("float32", 2.0**126, 1.875 * 2.0**127)]
)
def test_a_tangent_of_a_masked_logit_may_overflow_where_that_of_a_bias_is_added(
    arithmetic: str, size: float, moved: float
) -> None:
    q, k, v = one_query(0.0, [0.0, 1.0], [1.0, 0.5])
    dq, dbias = np.full(q.shape, size), rounding(BINARY16 if size < 1e5 else BINARY32)([[0.0, moved]])
    tangents = dq, np.zeros(k.shape), np.zeros(v.shape), dbias
    bias, mask = np.zeros((1, 2)), np.array([[True, False]])
    assert all(
        inside(x, np.nan)
        for x in attention_jvp(q, k, v, *tangents, scale=1.0, bias=bias, mask=mask, arithmetic=arithmetic)
    )


def test_a_log_sum_exp_of_16_bits_is_that_of_a_sum_that_is_stored() -> None:
    """Two keys: exponentials and their sum in float16, as `torch.logsumexp` has them, where |m| and
    the log-sum-exp are near 0.
    """
    other = f16(np.linspace(-9, -1, 500)).reshape(-1, 1, 1, 1)
    k = np.concatenate([np.zeros(other.shape), other], axis=-2)
    arrays = np.ones(other.shape), k, np.ones(k.shape)
    found = f16(np.log(f16(1 + f16(np.exp(other)))))[..., 0]
    assert inside(attention(*arrays, scale=1.0, arithmetic="float16-elementwise")[1], found)


@pytest.mark.parametrize("scale", [0.3, 0.07, 0.125])
def test_a_score_that_is_stored_is_so_before_it_is_scaled_and_after(scale: float) -> None:
    scale, draw = float(f32(scale)), np.random.default_rng(0)
    q, k = (f32(draw.uniform(5, 20, (2000, 1, 1, 1))) for _ in range(2))
    _, lse = attention(q, k, np.ones(k.shape), scale=scale, arithmetic=STORED_SCORES)
    raw = f16(f32(q * k))
    assert inside(lse, f16(f32(raw * scale))[..., 0])
    assert inside(lse, f32(f16(f32(raw * f32(scale / np.log(2)))) * np.log(2))[..., 0])  # in base 2


def test_the_tangent_of_a_score_that_is_stored_is_stored_too() -> None:
    dq = f32(np.random.default_rng(0).uniform(1, 2, (500, 1, 1, 1)))
    one = np.ones(dq.shape)
    _, dlse = attention_jvp(0 * one, one, one, dq, 0 * one, 0 * one, scale=1.0, arithmetic=STORED_SCORES)
    assert inside(dlse, f16(dq)[..., 0])


@pytest.mark.parametrize(("cap", "scale"), [(2.0**120, 2.0**-25 * 1.1), (2.0**100, 2.0**-40 * 1.1)])
def test_a_scale_and_a_cap_may_be_one_number_that_is_subnormal(cap: float, scale: float) -> None:
    """As FlashAttention hands them to its kernel: scale/c in binary32."""
    scale = float(f32(scale))
    q, k, v = one_query(2.0**12, f32(np.array([1.0, 0.0]) * 2.0**-12 * 3 / scale), [1.0, 0.0])
    s = f32(f32(np.tanh(f32(f32(q * k) * f32(scale / cap)))) * cap)[0, :, 0]
    out, lse = attention(q, k, v, scale=scale, softcap=cap, arithmetic="float32")
    e = np.exp(s - s.max())
    assert inside(out, e[0] / e.sum())
    assert inside(lse, s.max() + np.log(e.sum()))


def test_accumulators_that_are_no_format_may_truncate_though_they_are_finer_than_what_is_between() -> None:
    """100,000 small weights of values −1, each of which costs a whole unit of the last place of what is left of 1."""
    between = Format("binary19", 2.0**-11, 2.0**-136, 2.0**-126, BINARY32.largest)
    named = {
        "name": "19 bits between products",
        "elementwise": between,
        "accumulate": 2.0**-22,
        "grad_accumulate": 2.0**-22,
    }
    a: Any = replace(FLOAT32, **named, rescale_block=None, rescale_slack=0.0, shared_weights=True)
    k, v = np.full(100_000, -30.0), np.full(100_000, -1.0)
    k[0], v[0], left = 0.0, 1.0, 1.0
    for _ in range(1, 100_000):
        left = float(chopped(np.array(left - np.exp(-30.0))))
    q, k, v = (x[0] for x in one_query(1.0, k, v))
    assert inside(scaled_dot_product_attention(q, k, v, scale=1.0, arithmetic=a), left)
