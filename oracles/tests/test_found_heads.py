"""What a second review found in attention and its heads: kernels that left a budget, and a value
outside a certificate, with inputs.
"""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from oracles.conventions import Conventions
from oracles.dot_product import scaled_dot_product_attention_vjp
from oracles.formats import BINARY16
from oracles.generalised_attention import attention, attention_jvp
from oracles.multi_head import multi_head_attention, multi_head_attention_jvp, multi_head_attention_vjp
from oracles.tests.simulated.rounding import rounding

Array = Any
f16 = rounding(BINARY16)
ONE = np.ones((1, 1))
FLOW = Conventions(dead_rows="uniform", dead_gradients="flow")


@pytest.fixture(autouse=True)
def _infinities():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("arithmetic", [None, "float32"])
@pytest.mark.parametrize(
    "mask", [[[False, False], [False, False]], [[True, False], [False, False]]], ids=["all dead", "one dead"]
)
@pytest.mark.parametrize(("q", "k"), [([1.0, 2.0], [1.0, np.inf]), ([1.0, np.nan], [1.0, 2.0])], ids=["k", "q"])
def test_rows_of_level_scores_know_nothing_of_what_is_not_finite(
    q: Array, k: Array, mask: Array, arithmetic: Any
) -> None:
    """Their weights are equal whatever q and k are, but dq is a sum of k, and dk of q."""
    arrays = [np.array(x).reshape(-1, 1) for x in (q, k, [1.0, 3.0])]
    case = (*arrays, np.array(mask), np.array([[1.0], [2.0]]))
    exactly = scaled_dot_product_attention_vjp(*case, conventions=FLOW, method="arb")
    for found, exact in zip(
        scaled_dot_product_attention_vjp(*case, conventions=FLOW, arithmetic=arithmetic), exactly, strict=True
    ):
        assert np.isinf(found.rad[np.isinf(exact.rad)]).all()
        assert found.excess(np.where(np.isinf(exact.rad), 0.0, exact.mid)).max() <= 1


def heads(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, mask: Array, g: Array) -> dict[str, Array]:
    """Multi-head attention of one head in float16, with weights of 0 in dead rows, its derivative
    along ones in x, and gradients.
    """
    q, k, v = (f16(x @ w) for w in (wq, wk, wv))
    s = np.where(mask, q @ k.T, -np.inf)
    e = np.exp(s - np.maximum(s.max(1, keepdims=True), -1e300))
    total = e.sum(1, keepdims=True)
    p = np.where(total > 0, e / np.where(total > 0, total, 1), 0.0)
    concat, dc = f16(p @ v), f16(g @ wo.T)
    dp = dc @ v.T
    ds = f16(p * (dp - (p * dp).sum(1, keepdims=True)))
    dq, dk, dv = f16(ds @ k), f16(ds.T @ q), f16(p.T @ dc)
    tq, tk, tv = (f16(np.ones(x.shape) @ w) for w in (wq, wk, wv))
    t = tq @ k.T + q @ tk.T
    drift = f16((p * (t - (p * t).sum(1, keepdims=True))) @ v + p @ tv)
    parts = [f16(d @ w.T) for d, w in ((dq, wq), (dk, wk), (dv, wv))]
    return {
        "out": f16(concat @ wo), "dout": f16(drift @ wo), "dx": parts,
        "dwq": f16(x.T @ dq), "dwk": f16(x.T @ dk), "dwv": f16(x.T @ dv), "dwo": f16(concat.T @ g),
    }  # fmt: skip


LIVE, DEAD, PADDED = (
    [[False, False], [True, False]],
    [[False, False]] * 2,
    [[True, True, False], [True, True, False], [False, False, False]],
)
LOST = {
    "a value, one row dead": ([1, 2**9], 2.0**-8, 2.0**7, 1.0, [1, 1], LIVE),
    "a value, all rows dead": ([1, 2**9], 2.0**-8, 2.0**7, 1.0, [1, 1], DEAD),
    "a value, padding": ([2**5, 2**-5, 2**-6], 2.0**-3, 2.0**12, 1.0, [1, 1, 1], PADDED),
    "a cotangent, padding": ([1, 0.5, 0.25], 2.0**-3, 1.0, 2.0**7, [2**9, 1, 1], PADDED),
}


@pytest.mark.parametrize(("tokens", "small", "wv", "wo", "g", "mask"), LOST.values(), ids=LOST)
def test_a_projection_that_overflows_reaches_tokens_that_read_nothing(
    tokens: Array, small: float, wv: float, wo: float, g: Array, mask: Array
) -> None:
    """A weight of 0 times ∞ is NaN: in a dead row too, and in the gradient of a token that nobody reads."""
    x, cotangent = (np.array(y, float).reshape(-1, 1) for y in (tokens, g))
    case = (x, small * ONE, small * ONE, wv * ONE, wo * ONE)
    found, may = heads(*case, np.array(mask), cotangent), np.array(mask)
    zeros = [np.zeros((1, 1))] * 4
    out = multi_head_attention(*case, 1, may, scale=1.0, arithmetic="float16")
    dout = multi_head_attention_jvp(*case, 1, may, np.ones(x.shape), *zeros, scale=1.0, arithmetic="float16")
    dx, *weights = multi_head_attention_vjp(*case, 1, may, cotangent, scale=1.0, arithmetic="float16")
    a, b, c = found["dx"]
    kernels = (found["out"], found["dout"], f16(f16(a + b) + c), found["dwq"], found["dwk"], found["dwv"], found["dwo"])
    for budget, kernel in zip((out, dout, dx, *weights), kernels, strict=True):
        assert budget.excess(kernel).max() <= 1


@pytest.mark.parametrize("size", [8000.0, 40000.0])
def test_gradients_of_three_projections_are_added_up_in_any_order(size: float) -> None:
    """−40000 + 40000 + 40000 overflows float16 where the last two come first, as in PyTorch's backward pass."""
    x, wo, g = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[1.0, 0.0]]), np.array([[32.0, 0.0], [16.0, 0.0]])
    plain = [np.array([[0.5], [0.0]])] * 3
    pulled = [2 * part[0, 0] for part in heads(x, *plain, wo, np.ones((2, 2), bool), g)["dx"]]
    wq, wk, wv = (np.array([[0.5], [f16(sign * size / d)]]) for sign, d in zip((-1, 1, 1), pulled, strict=True))
    (dx, *_) = multi_head_attention_vjp(x, wq, wk, wv, wo, 1, None, g, scale=1.0, arithmetic="float16")
    for a, b, c in permutations(heads(x, wq, wk, wv, wo, np.ones((2, 2), bool), g)["dx"]):
        assert dx.excess(f16(f16(a + b) + c)).max() <= 1
    assert np.isfinite(dx.rad).all() == (size < 30000)


@pytest.mark.parametrize("scale", [2.0**12, 2.0**18])
def test_what_underflows_before_it_is_scaled_is_off_by_as_much_more(scale: float) -> None:
    """q·kᵀ and its tangent, of about 2⁻²⁵, are 0 in float16, and are multiplied by the scale then."""
    q, small = np.full((1, 1, 1), 2.0**-12), f16(2.0**-13 * 0.98)
    k, v = np.array([[[small], [0.0]]]), np.array([[[1.0], [-1.0]]])
    case, options = (q, k, v), {"scale": scale, "arithmetic": "float16-eager"}
    out, lse = attention(*case, **options)
    assert not lse.vacuous
    assert out.excess(np.zeros((1, 1, 1))).max() <= 1
    assert lse.excess(np.full((1, 1), np.log(2))).max() <= 1
    dout, dlse = attention_jvp(*case, q, np.zeros(k.shape), np.zeros(v.shape), **options)
    assert dout.excess(np.zeros((1, 1, 1))).max() <= 1
    assert dlse.excess(np.zeros((1, 1))).max() <= 1


def test_gradients_of_packed_projections_are_one_sum() -> None:
    """dx in float32, as one product of width 3·2048: the first term is 1, and each of the others is
    lost half a unit of the last place.
    """
    width, f32 = 2048, np.float32
    x, g = np.array([[1.0], [-1.0]]), np.array([[0.510], [1.4925]]).astype(f32).astype(float)
    wq = wk = np.full((1, width), float(f32(np.sqrt(2.01 * 2.0**-24))))
    wv, wo = np.zeros((1, width)), np.zeros((width, 1))
    wv[0, 0] = wo[0, 0] = 1.0
    q, k, v, dc = (y.astype(f32) for y in (x * wq, x * wk, x * wv, g @ wo.T))
    e = np.exp(q @ k.T - (q @ k.T).max(-1, keepdims=True))
    p, dp = e / e.sum(-1, keepdims=True), dc @ v.T
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    total = f32(0)
    for term in np.concatenate([(p.T @ dc)[0] * wv[0], (ds @ k)[0] * wq[0], (ds.T @ q)[0] * wk[0]]).astype(f32):
        total = f32(total + term)
    dx, *_ = multi_head_attention_vjp(x, wq, wk, wv, wo, 1, None, g, scale=1.0, arithmetic="float32")
    assert dx.excess(np.array([[total], [dx.mid[1, 0]]], float)).max() <= 1


@pytest.mark.parametrize("seed", range(5))
def test_budgets_do_not_depend_on_the_order_in_which_a_processor_adds_up(seed: int) -> None:
    """Permuted columns of the projections are other orders: midpoints differ; radii come of sizes
    alone, by less than 2¹² roundings.
    """
    rng = np.random.default_rng(seed)
    x, wq, wk, wv, wo = arrays = [rng.standard_normal(shape) for shape in ((5, 6), (6, 8), (6, 8), (6, 8), (8, 6))]
    dx, dwq, dwk, dwv, dwo = (rng.standard_normal(a.shape) for a in arrays)
    radii = []
    for c in (np.arange(8), np.concatenate([rng.permutation(4), 4 + rng.permutation(4)])):
        weights, moved = (wq[:, c], wk[:, c], wv[:, c], wo[c]), (dwq[:, c], dwk[:, c], dwv[:, c], dwo[c])
        pulled = multi_head_attention_vjp(x, *weights, 2, None, dx, arithmetic="float64")[0]
        radii.append(
            np.stack([pulled.rad, multi_head_attention_jvp(x, *weights, 2, None, dx, *moved, arithmetic="float64").rad])
        )
    np.testing.assert_allclose(radii[0], radii[1], rtol=2.0**12 * 2.0**-53)
