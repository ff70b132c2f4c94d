"""Generalised attention: enclosed as the definitions say, by convention, within budget of kernels,
and refusing what makes no sense.
"""

import tracemalloc
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import oracles
from oracles import Conventions, Enclosure
from oracles.arb_matrix import working_precision
from oracles.ball import Array
from oracles.error_analysis.computation import Sizes
from oracles.error_analysis.roundings import terms
from oracles.tests.test_attention import KINDS, require_sound
from spec import context
from spec.extended import attention as literal
from spec.extended import attention_derivatives as derivatives

SETTINGS = settings(max_examples=60)


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Inputs, tangents and cotangents of every kind, and any features together."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kv_heads, group = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2)]))
    heads = kv_heads * group
    n_q, n_k = draw(st.integers(1, 4)), draw(st.sampled_from([0, 1, 2, 5]))
    d, d_v = draw(st.integers(0, 3)), draw(st.integers(1, 2))
    kind = st.sampled_from(["plain", "grid", "large", "mixed", "sparse", "tiny"])

    def array(*shape: int) -> Array:
        return KINDS[draw(kind)](rng, shape)

    q, k, v = array(heads, n_q, d), array(kv_heads, n_k, d), array(kv_heads, n_k, d_v)
    features: dict[str, Any] = {
        "causal": draw(st.booleans()),
        "offset": draw(st.sampled_from([None, 0, 2, -2])),
        "window": draw(st.sampled_from([(None, None), (1, None), (0, 0), (2, 1)])),
        "softcap": draw(st.sampled_from([None, 0.5, 30.0, 1e-3])),
        "scale": draw(st.sampled_from([None, 1.0, -0.3, 0.0])),
    }
    if draw(st.booleans()):
        features["mask"] = rng.random(draw(st.sampled_from([(n_q, n_k), (heads, 1, n_k), (1, n_k)]))) < 0.6
    tangents = [array(*x.shape) for x in (q, k, v)]
    if draw(st.booleans()):
        bias = array(*draw(st.sampled_from([(heads, n_q, n_k), (n_q, n_k), (heads, 1, n_k), (n_q, 1)])))
        features["bias"] = np.where(rng.random(bias.shape) < 0.15, -np.inf, bias)
        tangents.append(array(*bias.shape))
    if draw(st.booleans()):
        features["sink"] = np.where(rng.random(heads) < 0.2, -np.inf, array(heads))
    if draw(st.booleans()):
        features["alibi"] = array(heads)
    return {
        "inputs": [q, k, v],
        "features": features,
        "dbias": tangents[3] if len(tangents) > 3 else None,
        "dsink": array(heads) if "sink" in features else None,
        "tangents": tangents[:3],
        "cotangents": [array(heads, n_q, d_v), array(heads, n_q)],
    }


def require_encloses(found: Enclosure | None, expected: Any) -> None:
    """Assert that balls of the definition are within an enclosure: to what both are known."""
    if found is None or expected is None:
        assert found is expected is None
        return
    assert found.mid.shape == expected.shape
    for index in np.ndindex(*expected.shape):
        x, mid, rad = expected[index], found.mid[index], found.rad[index]
        if not (np.isfinite(mid) and np.isfinite(rad)):
            assert np.isinf(rad) or float(x) == mid
            continue
        assert not abs(x - float(mid)) > float(rad), (index, x, mid, rad)


@SETTINGS
@given(problem=problems())
def test_the_definitions_are_enclosed(problem: dict[str, Any]) -> None:
    inputs, features = problem["inputs"], problem["features"]
    with working_precision(200):
        for method in ("fast", "arb"):
            for found, expected in zip(
                oracles.attention(*inputs, method=method, **features),
                literal.attention(*inputs, scalar=context.ARB, **features),
                strict=True,
            ):
                require_encloses(found, expected)
            gradients = oracles.attention_vjp(*inputs, *problem["cotangents"], method=method, **features)
            balls = derivatives.attention_vjp(*inputs, *problem["cotangents"], scalar=context.ARB, **features)
            for one, other in zip(gradients, balls, strict=True):
                require_encloses(one, other)
            directions = (*problem["tangents"], problem["dbias"], problem["dsink"])
            moved = oracles.attention_jvp(*inputs, *directions, method=method, **features)
            derivative = derivatives.attention_jvp(*inputs, *directions, scalar=context.ARB, **features)
            for one, other in zip(moved, derivative, strict=True):
                require_encloses(one, other)


CONVENTIONS = [
    {"dead_rows": "nan"},
    {"dead_rows": "uniform"},
    {"kv_heads": "tile"},
    {"causal": "bottom_right"},
    {"window": "count"},
    {"softcap_order": "after_bias"},
    {"softcap_order": "after_mask"},
    {"lse_base": "2"},
    {"lse_sink": "excluded"},
    {"scale_default": "one"},
    {"alibi_reference": "key"},
]


@pytest.mark.parametrize("named", CONVENTIONS, ids=lambda named: "=".join(*named.items()))
@settings(max_examples=15)
@given(problem=problems())
def test_every_convention_has_sound_enclosures(named: dict[str, Any], problem: dict[str, Any]) -> None:
    """Ball arithmetic is the judge; it follows the conventions by code of its own."""
    inputs, features = problem["inputs"], problem["features"] | {"conventions": Conventions(**named)}
    if named.get("window") == "count" and features["window"][0] is not None:
        features["window"] = (features["window"][0] + 1, features["window"][1])
    require_sound(oracles.attention, *inputs, **features)
    require_sound(
        lambda *x, **o: tuple(e for e in oracles.attention_vjp(*x, **o) if e),
        *inputs,
        *problem["cotangents"],
        **features,
    )
    require_sound(oracles.attention_jvp, *inputs, *problem["tangents"], problem["dbias"], problem["dsink"], **features)


def test_operations_without_features_are_attention() -> None:
    """What existing operations return is attention with arguments left out, bit by bit."""
    rng = np.random.default_rng(3)
    q, k, v = rng.standard_normal((2, 3, 5, 4)), rng.standard_normal((2, 3, 7, 4)), rng.standard_normal((2, 3, 7, 2))
    mask = rng.random((5, 7)) < 0.7
    for arithmetic in (None, "float64", "bfloat16"):
        if arithmetic == "bfloat16":
            q, k, v = (torch.tensor(x).bfloat16().double().numpy() for x in (q, k, v))
        plain = oracles.scaled_dot_product_attention(q, k, v, mask, is_causal=True, arithmetic=arithmetic)
        general, _ = oracles.attention(q, k, v, mask=mask, causal=True, arithmetic=arithmetic)
        assert (plain.mid == general.mid).all()
        assert (plain.rad == general.rad).all()
        grouped = oracles.grouped_query_attention(q, k[:, :1], v[:, :1], mask, arithmetic=arithmetic)
        shared, _ = oracles.attention(q, k[:, :1], v[:, :1], mask=mask, arithmetic=arithmetic)
        assert (np.abs(grouped.mid - shared.mid) <= grouped.rad + shared.rad).all()


def written_out(inputs: list[Any], cap: float | None, bias: Any, sink: Any, dtype: torch.dtype) -> list[Any]:
    """Output, log-sum-exp and all gradients for cotangents of 1, by PyTorch's operators and its autograd."""
    q, k, v = given = [torch.tensor(x, dtype=dtype, requires_grad=True) for x in inputs]
    others = [None if x is None else torch.tensor(x, dtype=dtype, requires_grad=True) for x in (bias, sink)]
    group = q.shape[-3] // k.shape[-3]
    s = q @ k.repeat_interleave(group, -3).mT * q.shape[-1] ** -0.5
    s = s if cap is None else cap * torch.tanh(s / cap)
    s = s if others[0] is None else s + others[0]
    u = s if others[1] is None else torch.cat([s, others[1][:, None, None].expand(*s.shape[:-1], 1)], -1)
    lse = torch.logsumexp(u.float(), -1)
    out = torch.exp(s.float() - lse[..., None]).to(dtype) @ v.repeat_interleave(group, -3)
    (out.float().sum() + lse.sum()).backward()  # type: ignore[no-untyped-call]
    return [out, lse, *(x.grad for x in given), *(x.grad for x in others if x is not None)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16-eager"])
@pytest.mark.parametrize("seed", range(12))
def test_kernels_are_within_budget_and_in_float32_dropped_features_are_not(seed: int, dtype: str) -> None:
    """PyTorch's operators with a cap, a bias and a sink, and the same without each of these in turn."""
    rng = np.random.default_rng(seed)
    kind = getattr(torch, dtype.partition("-")[0])
    n_q, n_k, d = (int(n) for n in rng.integers(3, 24, 3))
    shapes = ((4, n_q, d), (2, n_k, d), (2, n_k, 5), (4, n_q, n_k), (4,))
    *inputs, bias, sink = ((torch.tensor(rng.standard_normal(shape) * 2).to(kind).double().numpy()) for shape in shapes)
    features = {"softcap": float(rng.choice([2.0, 30.0])), "bias": bias, "sink": sink, "arithmetic": dtype}
    out, lse = oracles.attention(*inputs, **features)
    ones = np.ones(out.mid.shape), np.ones(lse.mid.shape)
    budgets = [out, lse, *oracles.attention_vjp(*inputs, *ones, **features)]
    found = written_out(inputs, features["softcap"], bias, sink, kind)
    for budget, x in zip(budgets, found, strict=True):
        assert budget is not None
        assert budget.excess(x.detach().double().numpy()).max() <= 1
    if kind is torch.bfloat16:  # whose budget is as wide as a sink among twenty keys, or a cap of 30, is weak
        return
    for cap, b, s in ((None, bias, sink), (features["softcap"], None, sink), (features["softcap"], bias, None)):
        wrong = written_out(inputs, cap, b, s, kind)
        assert max(e.excess(x.detach().double().numpy()).max() for e, x in zip(budgets[:2], wrong[:2], strict=True)) > 1


FORMS = [(600,), (300, 1), (4, 1, 1), (2, 1, 1, 600), (2, 4, 300, 1), (4, 1, 600), (1,), (4, 300, 600)]


@pytest.mark.parametrize("kv_heads", ["repeat", "tile"])
@pytest.mark.parametrize("shape", FORMS, ids=str)
def test_the_gradient_of_a_broadcast_bias_is_the_sum_over_all_that_share_it(
    shape: tuple[int, ...], kv_heads: Any
) -> None:
    """Over several tiles of rows, of keys, and of grouped heads in one tile, against each head by
    itself; the sink's beside it.
    """
    rng = np.random.default_rng(0)
    q, k, v, g = (rng.standard_normal((2, heads, n, 2)) for heads, n in ((4, 300), (2, 600), (2, 600), (4, 300)))
    bias, sink = rng.standard_normal(shape), rng.standard_normal(4)
    given: dict[str, Any] = {"window": (250, 400), "softcap": 5.0, "method": "fast"}
    c = Conventions(kv_heads=kv_heads)
    *_, dbias, dsink = oracles.attention_vjp(q, k, v, g, bias=bias, sink=sink, conventions=c, **given)
    assert dbias is not None
    assert dsink is not None
    assert dbias.mid.shape == shape
    full, (mid, rad), of_sinks = (
        np.broadcast_to(bias, (2, 4, 300, 600)),
        np.empty((2, 2, 4, 300, 600)),
        np.zeros((2, 4)),
    )
    for b, h in np.ndindex(2, 4):
        of = h // 2 if kv_heads == "repeat" else h % 2
        head = (x[b, i : i + 1] for x, i in ((q, h), (k, of), (v, of), (g, h)))
        *_, one, of_sink = oracles.attention_vjp(*head, bias=full[b, h], sink=sink[h : h + 1], **given)
        assert one is not None
        assert of_sink is not None
        mid[b, h], rad[b, h] = one.mid, one.rad
        of_sinks[:, h] += of_sink.mid[0], of_sink.rad[0]
    axes = tuple(i for i, n in enumerate((1,) * (4 - len(shape)) + shape) if n == 1 or i < 4 - len(shape))
    total, most, size = (x.sum(axis=axes).reshape(shape) for x in (mid, rad, np.abs(mid)))
    assert (np.abs(total - dbias.mid) <= most + dbias.rad).all()
    assert (dbias.rad <= 2 * (most + mid.size / bias.size * 2.0**-53 * size)).all()
    assert (np.abs(of_sinks[0] - dsink.mid) <= of_sinks[1] + dsink.rad).all()


@pytest.mark.parametrize("shape", [(2048,), (4, 1, 1), (4, 1, 2048), (512, 1)], ids=str)
def test_what_is_broadcast_is_never_as_large_as_the_scores(shape: tuple[int, ...]) -> None:
    """Neither a mask nor a bias of grouped heads, nor its gradient: 4 × 512 × 2048 scores take 32 MiB, and a mask 4."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((4, 512, 1)), rng.standard_normal((2, 2048, 1))
    bias, mask = rng.standard_normal(shape), rng.random(2048) < 0.9
    given = {"bias": bias, "mask": mask, "window": (32, 0), "offset": 100, "method": "fast"}
    for run in (
        lambda: oracles.attention(q, k, k, **given),
        lambda: oracles.attention_vjp(q, k, k, q, **given),
        lambda: oracles.attention_jvp(q, k, k, q, k, k, bias, **given),
    ):
        tracemalloc.start()
        run()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 9 << 20  # of which the five tiles that are kept take five


def test_a_window_far_along_a_long_sequence_looks_at_its_own_keys_only() -> None:
    """Rows at the end of 2¹⁷ keys, each of which reads 512 of them: as if the others were not there."""
    rng = np.random.default_rng(0)
    n, left = 1 << 17, 511
    q, k, v = rng.standard_normal((1, 3, 8)), rng.standard_normal((1, n, 8)), rng.standard_normal((1, n, 4))
    out, lse = oracles.attention(q, k, v, causal=True, window=(left, None), offset=n - 3)
    for i in range(3):
        keys = slice(n - 3 + i - left, n - 3 + i + 1)
        one, of_one = oracles.attention(q[:, i : i + 1], k[:, keys], v[:, keys])
        assert (np.abs(one.mid[:, 0] - out.mid[:, i]) <= one.rad[:, 0] + out.rad[:, i]).all()
        assert (np.abs(of_one.mid[:, 0] - lse.mid[:, i]) <= of_one.rad[:, 0] + lse.rad[:, i]).all()


@pytest.mark.parametrize("base", ["e", "2"])
@pytest.mark.parametrize("arithmetic", [None, "float32"])
def test_parts_of_the_keys_merge_to_the_whole(base: Any, arithmetic: str | None) -> None:
    """At every cut, an empty part included; the merge of float32 results is as far off as these and
    its own budget allow.
    """
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 4), (2, 6, 4), (2, 6, 3)))
    c = Conventions(lse_base=base)
    whole = oracles.attention(q, k, v, conventions=c)
    for cut in range(7):
        parts = [oracles.attention(q, k[:, keys], v[:, keys], conventions=c) for keys in (slice(cut), slice(cut, None))]
        flat = [e.mid.astype(np.float32) if arithmetic else e.mid for part in parts for e in part]
        off = 1e-6 if arithmetic else 1e-14
        merged = oracles.merge_attention(*flat, arithmetic=arithmetic, conventions=c)
        exact = oracles.merge_attention(*flat, arithmetic=arithmetic, conventions=c, method="arb")
        for one, other, of_all in zip(merged, exact, whole, strict=True):
            assert (np.abs(one.mid - other.mid) <= one.rad + other.rad).all()
            assert (np.abs(one.mid - of_all.mid) <= one.rad + of_all.rad + off).all()


def test_a_merge_follows_its_definition_and_its_conventions() -> None:
    out_a, out_b, lse_a, lse_b = (
        np.array([[2.0], [9.0], [9.0]]),
        np.array([[6.0], [1.0], [9.0]]),
        np.zeros(3),
        np.zeros(3),
    )
    lse_a[1:], lse_b[2] = -np.inf, -np.inf
    for method in ("fast", "arb"):
        out, lse = oracles.merge_attention(out_a, lse_a, out_b, lse_b, method=method)  # type: ignore[arg-type]
        assert (np.abs(out.mid.ravel() - [4.0, 1.0, 0.0]) <= out.rad.ravel()).all()
        assert lse.mid[1] == 0.0
        assert lse.mid[2] == -np.inf
        assert lse.rad[2] == 0.0
    assert np.isnan(
        oracles.merge_attention(out_a, lse_a, out_b, lse_b, conventions=Conventions(dead_rows="nan"))[0].mid[2, 0]
    )
    with pytest.raises(ValueError, match="without the sink"):
        oracles.merge_attention(out_a, lse_a, out_b, lse_b, conventions=Conventions(lse_sink="excluded"))


@pytest.mark.parametrize("slopes", ["press", "geometric"])
@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 20])
def test_slopes_are_enclosed_and_powers_of_two_where_they_are(heads: int, slopes: Any) -> None:
    c = Conventions(alibi_slopes=slopes)
    require_sound(oracles.alibi_slopes, heads, conventions=c)
    require_sound(oracles.alibi_bias, heads, 3, 5, 1, conventions=c)
    found = oracles.alibi_slopes(heads, conventions=c)
    exponents = -8 * np.arange(1, heads + 1) / heads
    if slopes == "geometric" or heads in (1, 2, 8):
        assert (np.abs(found.mid - 2.0**exponents) <= found.rad + 2.0**-52 * found.mid).all()
        assert (found.rad[exponents % 1 == 0] == 0).all()
    budget = oracles.alibi_slopes(heads, arithmetic="float32", conventions=c)
    ratio = np.float32(found.mid[0])
    if slopes == "geometric":  # as libraries do: the first, multiplied by itself
        assert budget.contains(np.multiply.accumulate(np.full(heads, ratio, np.float32))).all()


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"bias": np.array([[np.nan]])}, ValueError, r"bias has a NaN or \+∞"),
    ({"bias": np.array([[np.inf]])}, ValueError, r"bias has a NaN or \+∞"),
    ({"bias": np.zeros((5, 1))}, ValueError, r"bias has shape \(5, 1\), but should broadcast to \(4, 3, 6\)\."),
    ({"sink": np.zeros(3)}, ValueError, r"sink has shape \(3,\), but should be \(4,\)"),
    ({"sink": np.array([0.0, np.nan, 0.0, 0.0])}, ValueError, r"sink has a NaN or \+∞"),
    ({"softcap": 0.0}, ValueError, "softcap=0.0, but should be more than 0"),
    ({"softcap": -1.0}, ValueError, "softcap=-1.0, but should be more than 0"),
    ({"softcap": "2"}, TypeError, "softcap has type str"),
    ({"window": 3}, TypeError, "window=3, but should be a pair"),
    ({"window": (-1, None)}, ValueError, r"window\[0\]"),
    ({"window": (0, 1), "conventions": Conventions(window="count")}, ValueError, r"window\[0\]"),
    ({"causal": 1}, TypeError, "causal has type int, but should be a bool"),
    ({"offset": 1.5}, TypeError, "offset has element type float64"),
    ({"offset": np.zeros(2, int)}, ValueError, r"offset has shape \(2,\), but should be \(\) or \(\)"),
    (
        {"mask": np.ones((3, 6), bool), "causal": True, "conventions": Conventions(causal_with_mask="refuse")},
        ValueError,
        "A mask is given",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("options", "error", "sentence"), BAD)
def test_bad_input_is_refused_in_a_sentence(options: dict[str, Any], error: type[Exception], sentence: str) -> None:
    q, k, v = np.zeros((4, 3, 2)), np.zeros((2, 6, 2)), np.zeros((2, 6, 1))
    with pytest.raises(error, match=sentence):
        oracles.attention(q, k, v, **options)


def test_causality_alone_ignores_the_mask_and_the_bias() -> None:
    """The results are those without a mask and a bias. The gradient of the bias is 0, and its tangent has
    no effect.
    """
    alone, random = Conventions(causal_with_mask="causal_alone"), np.random.default_rng(0)
    q, k, v, g = (random.normal(size=(2, 4, 3)) for _ in range(4))
    ignored: Any = {"mask": random.random((2, 4, 4)) > 0.5, "bias": random.normal(size=(1, 4)), "conventions": alone}
    for name, arguments, tangents in (
        ("attention", (q, k, v), {}),
        ("attention_vjp", (q, k, v, g), {}),
        ("attention_jvp", (q, k, v, g, g, g), {"dbias": np.ones((1, 4))}),
    ):
        found = getattr(oracles, name)(*arguments, **ignored, **tangents, causal=True)
        plain = getattr(oracles, name)(*arguments, causal=True)
        for one, other in zip(found[:3], plain[:3], strict=True):
            assert np.array_equal(one.mid, other.mid)
        if name == "attention_vjp":
            assert not found[3].mid.any()
            assert found[3].mid.shape == (1, 4)
        with_bias = getattr(oracles, name)(*arguments, **ignored, **tangents)
        assert not np.array_equal(found[0].mid, with_bias[0].mid)


def test_a_sink_is_a_summand_and_a_block_of_its_own() -> None:
    """One block of keys is rescaled once where a sink comes after it, by the oracle too; at once, none is."""
    sizes = Sizes(2, 8, 4, 3, 0.5)
    for a, more in ((None, 1), (oracles.FLOAT32, 2), (oracles.preset("float32-materialized"), 1)):
        with_sink, plain = terms(a, sizes._replace(sink=True)), terms(a, sizes)
        assert with_sink.sum.positive > plain.sum.positive
        assert with_sink.rescaled > plain.rescaled == 0
        assert (with_sink.rescaled > 2.0**-40) == (more == 2)


@pytest.mark.parametrize("method", ["fast", "arb"])
def test_tangents_of_what_is_blocked_are_not_read_where_it_takes_part(method: Any) -> None:
    rng = np.random.default_rng(5)
    q, k, v, dq, dv = (rng.standard_normal((1, 3, 2)) for _ in range(5))
    mask, dk = np.array([True, True, False]), rng.standard_normal((1, 3, 2))
    given = {"mask": mask, "softcap": 2.0, "conventions": Conventions(softcap_order="after_mask"), "method": method}
    poisoned = np.where(mask[:, None], dk, np.nan)
    for one, other in zip(
        oracles.attention_jvp(q, k, v, dq, dk, dv, **given),
        oracles.attention_jvp(q, k, v, dq, poisoned, dv, **given),
        strict=True,
    ):
        assert (np.abs(one.mid - other.mid) <= one.rad + other.rad).all()
        assert np.isfinite(other.rad).all()


def test_heads_and_tangents_that_do_not_fit_are_refused() -> None:
    q, k, v = np.zeros((4, 3, 2)), np.zeros((3, 6, 2)), np.zeros((3, 6, 1))
    with pytest.raises(ValueError, match="q has 4 heads, but should have a multiple of k's 3"):
        oracles.attention(q, k, v)
    k, v = k[:2], v[:2]
    with pytest.raises(ValueError, match="dbias is given, but should not be: there is no bias"):
        oracles.attention_jvp(q, k, v, q, k, v, np.zeros((3, 6)))
    with pytest.raises(ValueError, match=r"dsink has shape \(2,\), but should be \(4,\)"):
        oracles.attention_jvp(q, k, v, q, k, v, None, np.zeros(2), sink=np.zeros(4))
    with pytest.raises(ValueError, match=r"grad_lse has shape \(4,\), but should be \(4, 3\)"):
        oracles.attention_vjp(q, k, v, np.zeros((4, 3, 1)), np.zeros(4))


def test_a_statistical_line_follows_the_cotangent_of_the_log_sum_exp() -> None:
    rng = np.random.default_rng(4)
    q, k, v, g = (rng.standard_normal((1, 80, 2)) for _ in range(4))
    lines, budgets = (
        oracles.attention_vjp(q, k, v, g, np.full((1, 80), 3.0), arithmetic=a)
        for a in (replace(oracles.FLOAT64, likely=8.4), oracles.FLOAT64)
    )
    for line, budget in zip(lines[:3], budgets[:3], strict=True):
        assert line is not None
        assert budget is not None
        assert (np.abs(line.mid - budget.mid) <= line.rad + budget.rad).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_output_with_features_has_a_statistical_line_below_its_budget(seed: int) -> None:
    """PyTorch's operators in float32 are within it, with a cap, a bias and a sink, and the same
    without each of these are not.
    """
    rng = np.random.default_rng(seed)
    shapes = ((4, 100, 16), (2, 600, 16), (2, 600, 5), (4, 1, 600), (4,))
    *inputs, bias, sink = (rng.standard_normal(shape).astype(np.float32) * 2 for shape in shapes)
    given: dict[str, Any] = {"softcap": float(rng.choice([2.0, 30.0])), "bias": bias, "sink": sink + 4}
    line, budget = (
        oracles.attention(*inputs, **given, arithmetic=replace(oracles.FLOAT32, likely=x))[0] for x in (8.4, None)
    )
    assert np.median(line.rad / budget.rad) < 0.4
    found, *others = (
        written_out(inputs, cap, b, s, torch.float32)[0].detach().double().numpy()
        for cap, b, s in (
            tuple(given.values()),
            (None, bias, sink + 4),
            (given["softcap"], None, sink + 4),
            (given["softcap"], bias, None),
        )
    )
    assert 0.001 < line.excess(found).max() <= 1
    assert all(line.excess(other).max() > 1 for other in others)


def test_the_gradient_of_a_bias_of_each_head_has_its_shape_beside_a_sink() -> None:
    """A bias of shape (H, 1, 1) is shaped as sinks are while they are broadcast: its gradient keeps
    its axes, theirs has one.
    """
    rng = np.random.default_rng(3)
    q, k, v, g = (rng.standard_normal((3, 4, 2)) for _ in range(4))
    *_, dbias, dsink = oracles.attention_vjp(q, k, v, g, bias=np.ones((3, 1, 1)), sink=np.zeros(3))
    assert dbias is not None
    assert dsink is not None
    assert (dbias.mid.shape, dsink.mid.shape) == ((3, 1, 1), (3,))
