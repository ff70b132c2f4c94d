"""The benchmarks measure what they say: what is unsound is found out, criteria see what they are
said to see, and all of it runs.
"""

import json
from dataclasses import fields, replace
from typing import get_args

import numpy as np
import pytest
import torch

import oracles
from properties.contract.operations import OPERATIONS
from research.benchmarks import criteria, faults, judge, kernels, naive, sharpness, soundness, timing


def shrunk(operation, factor):
    """The operation with its radii multiplied by a factor."""

    def unsound(*arguments, **options):
        found = operation(*arguments, **options)
        enclosures = [e for e in (found if isinstance(found, tuple) else (found,)) if e is not None]
        smaller = tuple(
            oracles.Enclosure(e.mid, np.where(np.isinf(e.rad), np.inf, factor * np.nan_to_num(e.rad)))
            for e in enclosures
        )
        return smaller if isinstance(found, tuple) else smaller[0]

    return unsound


# -- Soundness -------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", soundness.OPERATIONS)
def test_exact_values_are_within_the_radius(operation, unchecked):
    count = 50 // soundness.SHARES.get(operation, 1)
    for method, numbers in (("fast", range(count)), ("arb", range(-(-count // 10)))):
        found = soundness.tally(operation, method, numbers, seed=1)
        assert found.cases == len(numbers)
        assert found.entries > len(numbers) / 2
        assert (found.violations, found.undecided, found.first) == (0, 0, "")


@pytest.mark.parametrize("operation", soundness.SHARES)
def test_the_second_judge_gets_no_long_case(operation):
    arrays = soundness.draw(operation, 0, soundness.LONG_EVERY - 1).arrays
    assert all(arrays[name].size <= soundness.FEW for name in "qkv")


@pytest.mark.parametrize("operation", [name for name in soundness.OPERATIONS if name != "learned_positional_encoding"])
def test_radii_of_zero_are_found_out(operation, monkeypatch, unchecked):
    name = operation.partition(" ")[0]
    monkeypatch.setattr(oracles, name, shrunk(getattr(oracles, name), 0.0))
    found = soundness.tally(operation, "fast", range(20), seed=1)
    assert found.violations > 0
    assert found.first.startswith(f"soundness.draw('{operation}', 1, ")


def every_feature(rng):
    """Arguments of attention with each of its features."""
    inputs = dict(zip("qkv", (rng.standard_normal((n, m, 2)) for n, m in ((4, 3), (2, 4), (2, 4))), strict=True))
    mask = np.array([[1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 0, 1]], dtype=bool)
    rest = {"mask": mask, "bias": rng.standard_normal((4, 3, 4)), "sink": rng.standard_normal(4), "softcap": 0.7}
    return inputs | rest | {"causal": True, "window": (1, None)}


@pytest.mark.parametrize("conventions", [{}, {"lse_base": "2", "kv_heads": "tile"}, {"lse_sink": "excluded"}])
def test_written_out_derivatives_are_those_of_series(conventions, unchecked):
    """Two witnesses of every gradient and tangent, bias and sink included."""
    rng = np.random.default_rng(0)
    given = every_feature(rng) | {"conventions": oracles.Conventions(**conventions)}
    tangents = {f"d{name}": rng.standard_normal(given[name].shape) for name in ("q", "k", "v", "bias", "sink")}
    cotangents = {"grad_out": rng.standard_normal((4, 3, 2)), "grad_lse": rng.standard_normal((4, 3))}
    for operation, arguments in (("attention_vjp", given | cotangents), ("attention_jvp", given | tangents)):
        written, series = (judge.evaluate(name, (arguments,), 200) for name in (operation, f"{operation} by series"))
        for one, other in zip(written, series, strict=True):
            assert all(a.overlaps(b) and a.rad() < 1e-30 for a, b in zip(one.ravel(), other.ravel(), strict=True))


@pytest.mark.parametrize("order", ["before_bias", "after_bias"])
def test_level_rows_have_the_derivatives_of_rows_whose_logits_are_equal(order, unchecked):
    """A row that may read nothing, and one that may read all, of the same score with every key."""
    rng = np.random.default_rng(0)
    flow = oracles.Conventions(dead_rows="uniform", dead_gradients="flow", softcap_order=order)
    said = {"scale": 1.0, "softcap": 0.7, "bias": np.full((2, 4), 0.25), "conventions": flow}
    q, k, v = np.ones((2, 2, 2)), np.full((1, 4, 2), 0.125), rng.standard_normal((1, 4, 2))
    k[..., 0] += (rest := rng.integers(-4, 4, 4) / 8)
    k[..., 1] -= rest
    tangents = {
        f"d{name}": rng.standard_normal(x.shape) for name, x in (("q", q), ("k", k), ("v", v), ("bias", said["bias"]))
    }
    cotangents = {"grad_out": rng.standard_normal((2, 2, 2)), "grad_lse": rng.standard_normal((2, 2))}
    seen = np.array([[True], [False]]) & np.ones(4, bool)
    for operation, further in (("attention_vjp", cotangents), ("attention_jvp", tangents)):
        given = {"q": q, "k": k, "v": v, **said, **further}
        level, live = (judge.evaluate(operation, (given | {"mask": mask},), 200) for mask in (seen, None))
        for one, other in zip(level, live, strict=True):
            assert all(a.overlaps(b) and a.rad() < 1e-30 for a, b in zip(one.ravel(), other.ravel(), strict=True))


def test_the_judge_of_what_libraries_disagree_about_tells_readings_apart(unchecked):
    """Each convention has another value somewhere, or the judge would follow none."""
    said = every_feature(np.random.default_rng(0))

    def mids(**named):
        given = said | {"conventions": oracles.Conventions(**named)}
        return [[float(x) for x in y.ravel()] for y in judge.evaluate("attention", (given,), 128)]

    values = {field.name: get_args(field.type) for field in fields(oracles.Conventions)}
    for name in set(OPERATIONS["attention"].conventions) - {"dead_rows"}:
        assert all(mids(**{name: value}) != mids() for value in values[name][1:] if value != "refuse"), name


def test_radii_a_little_smaller_than_the_largest_deviation_are_found_out(monkeypatch):
    operation = "sinusoidal_positional_encoding"
    largest = soundness.tally(operation, "fast", range(50), seed=1).largest
    sound = getattr(oracles, operation)
    for factor, violated in ((largest * (1 + 1e-9), False), (largest * (1 - 1e-9), True)):
        monkeypatch.setattr(oracles, operation, shrunk(sound, factor))
        assert (soundness.tally(operation, "fast", range(50), seed=1).violations > 0) == violated


def test_a_moved_midpoint_is_found_out(monkeypatch):
    sound = oracles.rope

    def moved(*arguments, **options):
        found = sound(*arguments, **options)
        return oracles.Enclosure(found.mid + 4 * found.rad, found.rad)

    monkeypatch.setattr(oracles, "rope", moved)
    assert soundness.tally("rope", "fast", range(20), seed=1).violations > 0


def test_a_value_on_the_edge_is_neither_inside_for_certain_nor_outside():
    scores, mask = np.array([[0.5, 1.0]]), np.array([[True, False]])  # the spec's weight is exp(½) / exp(½)
    one, zero = np.array([[1.0, 0.0]]), np.zeros((1, 2))
    assert judge.compare("hard_masked_softmax", (scores, mask), [(one, zero)]) == judge.Deviation(2, 0, 0, 1, 0, 0.0)
    assert judge.compare("hard_masked_softmax", (scores, mask), [(one + 1e-16, zero + 1e-18)]).outside == 1
    assert judge.compare("hard_masked_softmax", (scores, mask), [(one, zero + np.inf)]).unbounded == 2
    assert judge.compare("hard_masked_softmax", (scores, mask), [(one * np.nan, zero)]).outside == 2


def test_a_case_is_drawn_again_from_its_number(unchecked):
    for operation in soundness.OPERATIONS:
        once, again = (soundness.draw(operation, 3, 7) for _ in range(2))
        assert repr(once) == repr(again) != repr(soundness.draw(operation, 4, 7))


def test_cases_reach_their_edges(unchecked):
    operation = "scaled_dot_product_attention"
    said = soundness.OPERATIONS[operation].said
    drawn = [said(soundness.draw(operation, 0, number)) for number in range(400)]
    with np.errstate(over="ignore"):
        logits = [np.abs(q @ k.T).max() / np.sqrt(q.shape[1]) for _, (q, k, *_), _, _ in drawn]
    masks = [mask for _, (*_, mask), _, _ in drawn if mask is not None]
    assert max(logits) > 1e4
    assert any(len(exact[1]) == 1 for _, exact, _, _ in drawn)
    assert any((~mask.any(axis=1)).any() for mask in masks)
    assert any(not np.isfinite(given[1]).all() for given, *_ in drawn)
    assert any(0 < np.abs(exact[2]).max() < 2.0**-1022 for _, exact, _, _ in drawn)
    assert any(keywords.get("is_causal") for _, _, keywords, _ in drawn)
    longest = [soundness.draw(operation, 0, number) for number in range(499, 5000, soundness.LONG_EVERY)]
    assert {len(call.arrays["k"]) for call in longest} == {4096, 2}
    rotated = [soundness.draw("rope", 0, number) for number in range(50)]
    assert {call.arrays["x"].shape[1] % 2 for call in rotated} == {0, 1}
    assert max(call.options["start_pos"] for call in rotated) > 2**20


def test_soundness_prints_writes_and_fails_where_it_should(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(soundness, "OPERATIONS", {"rope": soundness.OPERATIONS["rope"]})
    options = ["--cases", "20", "--jobs", "1", "--output", str(tmp_path / "table.txt")]
    assert soundness.main(options) == 0
    assert "rope" in (tmp_path / "table.txt").read_text(encoding="utf-8")
    monkeypatch.setattr(oracles, "rope", shrunk(oracles.rope, 0.0))
    assert soundness.main(options) == 1
    assert "violation  soundness.draw('rope', 0, " in capsys.readouterr().out


# -- Sharpness and criteria ------------------------------------------------------------------------


def test_pytorchs_kernels_use_some_of_their_budget_and_never_more_than_all():
    for found in sharpness.used(sharpness.SIZES[:1], seeds=1).values():
        assert all(0 < value <= 1 for value in found.values())


@pytest.mark.parametrize("dtype", kernels.DTYPES)
def test_the_written_out_formula_is_a_correct_kernel(dtype):
    for is_causal in (False, True):
        p = kernels.draw(dtype, (32, 32, 16), 0, is_causal=is_causal)
        assert criteria.excesses(faults.formula(p, dtype), criteria.reference(p, dtype, dtype))["budget"][0] <= 1


@pytest.mark.parametrize("dtype", kernels.DTYPES)
def test_the_budget_sees_the_plain_mistakes(dtype):
    plain = (
        "one element of out off by 0.01 · max abs v",
        "the last key dropped",
        "last query row missing in dk and dv",
    )
    found = {fault.name: excesses["budget"] for fault, excesses in criteria.planted(dtype, 64, 16, seeds=2)}
    assert all(value > 1 for name in plain for value, _ in found[name])


def test_in_float32_the_budget_sees_every_fault():
    found = {fault.name: excesses["budget"] for fault, excesses in criteria.planted("float32", 128, 32, seeds=1)}
    assert [name for name, [(value, _)] in found.items() if value <= 1] == []


@pytest.mark.parametrize("dtype", kernels.DTYPES)
def test_assert_close_is_pytorchs(dtype):
    p = kernels.draw(dtype, (16, 16, 8), 0)
    r = criteria.reference(p, dtype, dtype)
    for size in (0.0, 1e-6, 1e-4, 1e-2, 1.0):
        found = r.rounded["out"] * (1 + size)
        found = kernels.to_numpy(kernels.to_torch(found, dtype))
        try:
            torch.testing.assert_close(kernels.to_torch(found, dtype), kernels.to_torch(r.rounded["out"], dtype))
            accepted = True
        except AssertionError:
            accepted = False
        assert (criteria.CRITERIA["assert_close"](found, "out", r) <= 1) == accepted


def test_faults_change_what_they_say():
    p = kernels.draw("float32", (8, 8, 4), 0)
    right = kernels.kernel(p, "float32", "math")
    planted = {fault.name: fault.plant(p, "float32") for fault in faults.FAULTS}
    assert (planted["one element of out off by 0.01 · max abs v"]["out"] != right["out"]).sum() == 1
    assert not planted["the last key dropped"]["dk"][-1].any()
    for name in ("dq", "dk", "dv"):
        assert (planted[f"{name} zeroed in one place, of median size"][name] != right[name]).sum() == 1
    missing = planted["last query row missing in dk and dv"]
    assert np.array_equal(missing["dq"], right["dq"])
    assert not np.array_equal(missing["dv"], right["dv"])
    assert faults._tf32(torch.tensor([1 + 2.0**-11, 1 + 2.0**-12])).tolist() == [1 + 2.0**-10, 1.0]


def test_the_page_has_a_row_for_every_fault(tmp_path):
    file = tmp_path / "criteria.md"
    assert (
        criteria.main(["--size", "16", "--width", "8", "--seeds", "1", "--lengths", "16", "33", "--output", str(file)])
        == 0
    )
    text = file.read_text(encoding="utf-8")
    assert all(f"| {fault.name} |" in text for fault in faults.FAULTS)
    assert "## False alarms" in text


# -- Timing ----------------------------------------------------------------------------------------


def test_the_naive_formulas_are_right():
    rng = np.random.default_rng(0)
    q, k, v, a, b, c = (rng.standard_normal((5, 4)) for _ in range(6))
    float64 = oracles.FLOAT64
    assert oracles.scaled_dot_product_attention(q, k, v, arithmetic=float64).contains(naive.attention(q, k, v)).all()
    grads = oracles.scaled_dot_product_attention_vjp(q, k, v, None, a, arithmetic=float64)
    assert all(e.contains(x).all() for e, x in zip(grads, naive.attention_vjp(q, k, v, a), strict=True))
    tangent = oracles.scaled_dot_product_attention_jvp(q, k, v, None, a, b, c, arithmetic=float64)
    assert tangent.contains(naive.attention_jvp(q, k, v, a, b, c)).all()
    assert oracles.rope(q, 3, arithmetic=float64).contains(naive.rope(q, 3)).all()
    assert oracles.sinusoidal_positional_encoding(5, 4, 3, arithmetic=float64).contains(naive.sinusoid(5, 4, 3)).all()


def test_naive_attention_with_features_is_within_its_budget():
    rng = np.random.default_rng(0)
    q, k, v, g = (rng.standard_normal((n, 4)) for n in (5, 6, 6, 5))
    of_lse, bias = rng.standard_normal(5), rng.standard_normal((5, 6))
    far = np.arange(5)[:, None] - np.arange(6)
    f = naive.Features((far >= 0) & (far <= 2), bias, 3.0, 0.5)
    given = {
        "causal": True,
        "window": (2, None),
        "softcap": 3.0,
        "bias": bias,
        "sink": np.array([0.5]),
        "arithmetic": "float64",
    }
    budgets = oracles.attention(q[None], k[None], v[None], **given)
    assert all(e.contains(x[None]).all() for e, x in zip(budgets, naive.featured(q, k, v, f), strict=True))
    *of_heads, dsink = oracles.attention_vjp(q[None], k[None], v[None], g[None], of_lse[None], **given)
    *found, moved = naive.featured_vjp(q, k, v, g, of_lse, f)
    assert all(e.contains(x.reshape(e.mid.shape)).all() for e, x in zip(of_heads, found, strict=True))
    assert dsink.contains(moved).all()


def test_every_row_is_timed_and_written(tmp_path):
    file = tmp_path / "timing.json"
    status = timing.main(["--smallest", "--repeats", "2", "--json", str(file)])
    found = json.loads(file.read_text(encoding="utf-8"))
    assert status == (1 if any(row["met"] is False for row in found["rows"]) else 0)
    assert len([row for row in found["rows"] if row["met"] is not None]) == 23
    assert all(row["low"] <= row["figure"] <= row["high"] for row in found["rows"])


def test_a_figure_is_met_at_its_bound_and_not_beyond():
    row = timing.Row("", "", 1.5, 1.5, 1.5, "×", at_most=1.5)
    assert row.met is True
    assert replace(row, figure=1.6).met is False
    assert replace(row, at_most=None).met is None
    assert replace(row, at_most=None, at_least=2.0).met is False
