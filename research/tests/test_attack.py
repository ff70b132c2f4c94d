"""The attack finds what is planted, its kernels are honest, and what it says can be run again."""

from dataclasses import fields, replace
from typing import Literal, get_args

import numpy as np
import pytest

import oracles
from oracles import Conventions
from oracles.error_analysis import ball_attention, grad_scores, jvp, logits, roundings, scores, vjp
from oracles.formats import BINARY16
from oracles.tests.simulated import attention, forms
from oracles.tests.simulated.features import Features
from oracles.tests.simulated.rounding import rounding
from properties.contract import operations as contract
from properties.contract.features import FEATURES, KINDS
from research.benchmarks import judge, soundness
from research.benchmarks.attack import __main__ as command
from research.benchmarks.attack import (
    budgets,
    certificates,
    chunks,
    featured_budgets,
    features,
)

SDPA = "scaled_dot_product_attention"


def altered(operation, change):
    """The operation with its enclosures changed: `change` takes and returns a midpoint and a radius."""

    def unsound(*arguments, **options):
        found = operation(*arguments, **options)
        present = [e for e in np.atleast_1d(found) if e is not None]
        changed = tuple(replace(e, **dict(zip(("mid", "rad"), change(e.mid, e.rad), strict=True))) for e in present)
        return changed if isinstance(found, tuple) else changed[0]

    return unsound


# -- Certificates ----------------------------------------------------------------------------------


def test_the_judge_follows_a_scale_a_base_and_a_stretch():
    rng = np.random.default_rng(0)
    q, k, v, g = rng.standard_normal((4, 3, 2))
    tangents = rng.standard_normal((3, 3, 2))
    for operation, rest in ((SDPA, ()), (f"{SDPA}_vjp", (g,)), (f"{SDPA}_jvp", tuple(tangents))):
        for scale in (0.3, -2.0, 0.0):
            answer = getattr(oracles, operation)(q, k, v, None, *rest, scale=scale)
            intervals = [(e.mid, e.rad) for e in np.atleast_1d(answer)]
            assert (
                judge.compare(operation, (q, k, v, None, *rest), intervals, meaning=judge.Meaning(scale=scale)).outside
                == 0
            )
            assert judge.compare(operation, (q, k, v, None, *rest), intervals).outside > 0
    turned = oracles.rope(q, 5, conventions=oracles.Conventions(rope_base=7.0, rope_scale=0.25))
    for meaning, outside in ((judge.Meaning(base=7.0, stretch=0.25), 0), (judge.Meaning(), 6)):
        assert judge.compare("rope", (q, 5), [(turned.mid, turned.rad)], meaning=meaning).outside == outside


@pytest.mark.parametrize(
    ("operation", "family"),
    [(operation, family) for operation, target in certificates.OPERATIONS.items() for family in target.families],
)
def test_every_family_is_judged(operation, family, unchecked):
    for method, evaluations in zip(certificates.METHODS, (3, 1, 1), strict=True):
        found = certificates.attack(operation, family, method, np.random.default_rng(0), evaluations)
        assert found.evaluations == evaluations
        assert (found.violations, found.remarks.count("undecided")) == ((), 0)


@pytest.mark.parametrize(
    "operation",
    ["attention", "attention_vjp", "attention_jvp", "merge_attention", "rope at positions", "rotary_tables"],
)
def test_radii_of_what_goes_by_keyword_that_are_too_small_are_found(operation, monkeypatch, unchecked):
    name = operation.partition(" ")[0]
    sound = getattr(oracles, name)
    for family in ("normal", "every feature", "quarter turns"):
        if family not in certificates.OPERATIONS[operation].families:
            continue
        monkeypatch.setattr(oracles, name, altered(sound, lambda mid, rad: (mid, rad * 2.0**-30)))
        assert certificates.attack(operation, family, "fast", np.random.default_rng(0), 40).violations


def test_a_call_is_changed_in_one_thing_and_stays_sensible(unchecked):
    rng = np.random.default_rng(0)
    for operation, target in certificates.OPERATIONS.items():
        call = next(iter(target.families.values()))(rng)
        seen = {repr(call)}
        for _ in range(30):
            after = target.changed(call, rng)
            arrays = [name for name in call.arrays if after.arrays[name] is not call.arrays[name]]
            options = [
                name
                for name in {*call.options, *after.options}
                if after.options.get(name) is not call.options.get(name)
            ]
            assert len(arrays) + len(options) <= 3, operation
            seen.add(repr(after))
        assert len(seen) > 5, operation


def test_features_reach_their_edges(unchecked):
    rng = np.random.default_rng(0)
    drawn = [features.featured("attention_vjp", family, rng) for family in features.FEATURED for _ in range(20)]
    arrays, said = [c.arrays for c in drawn], [c.options for c in drawn]
    assert {x["bias"].ndim for x in arrays if "bias" in x} >= {2, 3}
    assert any(np.isneginf(x["bias"]).any() for x in arrays if "bias" in x)
    assert any(np.isneginf(x["sink"]).any() for x in arrays if "sink" in x)
    assert any(np.ndim(o.get("offset", 0)) for o in said)
    assert max(np.max(np.abs(o.get("offset", 0))) for o in said) > 2**40
    assert {0, None} <= {o["window"][0] for o in said if "window" in o}
    assert any(x["k"].shape[-2] == 0 for x in arrays)
    assert any(len(x["q"]) > len(x["k"]) for x in arrays)


def attacked(calls):
    """The values of each convention, the arguments, and the kinds of frequencies among some calls."""
    meant = [call.options["conventions"] for call in calls if "conventions" in call.options]
    values = {field.name: {getattr(c, field.name) for c in meant} for field in fields(Conventions)}
    return values, {name for call in calls for name in call.exact}, {call.options.get("kind") for call in calls}


@pytest.fixture(scope="module")
def calls():
    """A hundred calls or more of every operation, of its families in turn."""
    rng, families = (
        np.random.default_rng(0),
        [[*target.families.values()] for target in certificates.OPERATIONS.values()],
    )
    return [draws[n % len(draws)](rng) for draws in families for n in range(max(100, 8 * len(draws)))]


def test_every_value_of_every_convention_is_attacked(calls):
    values, *_ = attacked(calls)
    of_numbers = {name for o in contract.OPERATIONS.values() if not o.is_exact for name in o.conventions}
    for field in fields(Conventions):
        named = set(get_args(field.type))
        if named and field.name in of_numbers:  # exact results have no radius
            assert values[field.name] == named, field.name


def test_every_feature_and_every_argument_is_attacked(calls):
    _, given, kinds = attacked(calls)
    assert set(KINDS) <= kinds
    assert set(FEATURES) - set(KINDS) - {"offsets", "axial"} <= given
    assert any(np.ndim(call.options.get("offset")) for call in calls)
    for o in contract.OPERATIONS.values():
        if o.name in certificates.OPERATIONS:
            assert set(o.parameters) <= given | {"positions"}, o.name


def test_a_new_value_of_a_convention_is_attacked(monkeypatch, unchecked):
    kv_heads = next(field for field in fields(Conventions) if field.name == "kv_heads")
    monkeypatch.setattr(kv_heads, "type", Literal["repeat", "tile", "mirrored"])
    rng = np.random.default_rng(0)
    drawn = [features.featured("attention", "normal", rng).options["conventions"].kv_heads for _ in range(60)]
    assert set(drawn) == {"repeat", "tile", "mirrored"}


@pytest.mark.parametrize(
    ("operation", "family"),
    [(SDPA, "offset"), (f"{SDPA}_vjp", "opposite"), ("hard_masked_softmax", "dead"), ("rope", "plain")],
)
def test_radii_that_are_a_little_too_small_are_climbed_to(operation, family, monkeypatch, unchecked):
    sound = getattr(oracles, operation)
    largest = certificates.attack(operation, family, "fast", np.random.default_rng(1), 30).highest.value
    monkeypatch.setattr(oracles, operation, altered(sound, lambda mid, rad: (mid, rad * largest / 4)))
    assert certificates.attack(operation, family, "fast", np.random.default_rng(2), 100).violations


@pytest.mark.parametrize("operation", [SDPA, f"{SDPA}_jvp"])
def test_a_weight_that_underflows_because_its_score_is_off_is_found(operation, monkeypatch, unchecked):
    """The radius that an analysis gives which takes such a weight for a zero: only the largest key,
    and what underflows, count.
    """
    sound = getattr(oracles, operation)

    def naive(q, k, v, *rest, **options):
        s = q @ k.T
        seen = np.where(np.exp(s - s.max(axis=1, keepdims=True)) > 0, 0.0, 3 * 2.0**-1022)
        found = sound(q, k, v, *rest, **options)
        if (seen > 0).sum() != len(k) - 1:
            return found
        arrays = v, *rest[3:]  # the values, and their tangent
        mid = arrays[-1][s.argmax(axis=1)]
        return oracles.Enclosure(mid, seen @ sum(map(np.abs, arrays)) + 1e-9 * np.abs(mid))

    monkeypatch.setattr(oracles, operation, naive)
    assert certificates.attack(operation, "cancelling", "auto", np.random.default_rng(0), 80).violations


@pytest.mark.parametrize(("operation", "module"), [("attention_vjp", grad_scores), ("attention_jvp", jvp)])
def test_the_slope_of_a_cap_that_is_taken_as_known_in_level_rows_is_found(operation, module, monkeypatch, unchecked):
    def forgetful(p, *rest):
        found = scores.growth(p, *rest)
        return found if p.level is None else np.where(p.level[..., : found.shape[-2], :], 0.0, found)

    monkeypatch.setattr(module, "growth", forgetful)
    assert any(
        certificates.attack(operation, "level rows", "fast", np.random.default_rng(seed), 300).violations
        for seed in range(4)
    )


def test_a_quadrant_that_is_lost_beyond_the_integers_of_float64_is_found(monkeypatch, unchecked):
    sound = oracles.rope

    def lossy(x, start, *, conventions, method):
        found = sound(x, start, conventions=conventions, method=method)
        quarters = float(start) * (conventions.rope_scale * 2 / np.pi % 4)
        lost = quarters > 2**53 and int(quarters) // 2 % 2  # in every other case an odd step is rounded away
        return replace(found, mid=np.roll(found.mid, 1, axis=1) if lost else found.mid)

    monkeypatch.setattr(oracles, "rope", lossy)
    assert any(
        certificates.attack("rope", "huge positions", "fast", np.random.default_rng(seed), 400).violations
        for seed in range(4)
    )


# -- Budgets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mask", [None, np.arange(48) // 16 == [[0], [1], [2]]], ids=["all keys", "a tile for each query"]
)
@pytest.mark.parametrize("name", budgets.ARITHMETICS)
def test_every_allowed_form_is_attention(name, mask, unchecked):
    """In as many bits as the arithmetic has: a mistake in a kernel would look like a budget that is too narrow."""
    a, rng = budgets.ARITHMETICS[name], np.random.default_rng(0)
    rough = (
        max(2.0**-7, 2**6 * a.elementwise.unit_roundoff)
        if a.output.unit_roundoff > 2.0**-24
        else 2**10 * max(a.accumulate, a.product)
    )
    q, k, v, g, *tangents = (rounding(a.inputs)(rng.standard_normal((n, 4))) for n in (3, 48, 48, 3, 3, 48, 48))
    exact = [
        oracles.scaled_dot_product_attention(q, k, v, mask),
        *oracles.scaled_dot_product_attention_vjp(q, k, v, mask, g),
    ]
    moved = oracles.scaled_dot_product_attention_jvp(q, k, v, mask, *tangents)
    choices = forms.allowed_forms(a)
    for field, values in choices.items():
        for value in values:
            kernel = attention.Kernel(replace(forms.Form(delta=choices["delta"][0]), **{field: value}), a, 0.5, mask)
            with np.errstate(all="ignore"):
                found = *kernel.vjp(q, k, v, g), kernel.jvp(q, k, v, *tangents)
            for result, expected in zip(found, (*exact, moved), strict=True):
                assert np.abs(result - expected.mid).max() <= rough * 8 * max(1.0, np.abs(expected.mid).max()), (
                    field,
                    value,
                )


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16"])
def test_honest_kernels_are_within_the_budget_and_not_within_an_eighth_of_it(name, monkeypatch, unchecked):
    families = "normal", "one hot", "aligned", "large"
    found = [budgets.attack("dk", family, name, np.random.default_rng(0), 10) for family in families]
    assert not any(f.violations for f in found)
    largest = max(f.highest.value for f in found)
    monkeypatch.setattr(oracles, SDPA, altered(getattr(oracles, SDPA), lambda mid, rad: (mid, rad * largest / 8)))
    monkeypatch.setattr(
        oracles, f"{SDPA}_vjp", altered(getattr(oracles, f"{SDPA}_vjp"), lambda mid, rad: (mid, rad * largest / 8))
    )
    assert any(budgets.attack("dk", family, name, np.random.default_rng(1), 10).violations for family in families)


@pytest.mark.parametrize(
    "operation", [name for name, (target, _) in budgets.OPERATIONS.items() if target.results != ("dq", "dk", "dv")]
)
def test_honest_kernels_of_every_kind_are_within_the_budget_and_use_some_of_it(operation, unchecked):
    target, _ = budgets.OPERATIONS[operation]
    families = target.families[:: max(1, len(target.families) // 5)]
    found = [budgets.attack(operation, family, "float32", np.random.default_rng(2), 32) for family in families]
    assert not any(f.violations for f in found)
    assert max(f.highest.value for f in found) > 1e-3


def test_a_kernel_that_forgets_a_feature_is_out_of_its_budget(monkeypatch, unchecked):
    """So an honest one is not within it by chance."""
    for field in ("cap", "bias", "sink", "of_lse", "alike"):
        forgetful = lambda *rest, field=field, **named: Features(*rest, **named)._replace(**{field: None})  # noqa: E731
        monkeypatch.setattr(featured_budgets, "Features", forgetful)
        operation = "attention dq" if field == "of_lse" else "attention out"
        family = {
            "cap": "near the cap", "bias": "cancelling bias", "sink": "dominating sink", "of_lse": "cotangent of lse",
            "alike": "rows without keys",
        }[field]  # fmt: skip
        assert budgets.attack(operation, family, "float32", np.random.default_rng(0), 12).violations, field


@pytest.mark.parametrize(
    ("operation", "family", "arithmetic"),
    [
        ("attention lse", "blocked to the cap", "bfloat16-eager"),
        ("attention lse", "far below the cap", "float16-eager"),
    ],
)
def test_a_budget_without_what_is_stored_on_the_way_is_climbed_out_of(
    operation, family, arithmetic, monkeypatch, unchecked
):
    """−c of blocked entries, and the quotient of a cap."""

    def found():
        return budgets.attack(operation, family, arithmetic, np.random.default_rng(0), 200).violations

    assert not found()
    known = logits.passed

    def forgets(x, *rest):
        return known(x, *rest) if x.blocked is None else np.where(x.blocked, 0.0, known(x, *rest))

    monkeypatch.setattr(scores, "passed", forgets)
    monkeypatch.setattr(
        ball_attention, "terms", lambda *given: replace(roundings.terms(*given), quotient_underflow=0.0)
    )
    assert found()


@pytest.mark.parametrize("operation", ["attention dq", "attention dsink"])
def test_a_budget_that_takes_two_products_with_weights_for_one_is_climbed_out_of(operation, monkeypatch, unchecked):
    """p·(dP − δ) + p'·g, of which the second weights are made by themselves."""

    def found():
        attacks = (
            budgets.attack(operation, "cancelling lse", "bfloat16-stored-sum", np.random.default_rng(seed), 200)
            for seed in range(4)
        )
        return any(attack.violations for attack in attacks)

    assert not found()
    shift = vjp._shift
    monkeypatch.setattr(vjp, "_shift", lambda *given: shift(*given)._replace(apart=None, sink_apart=None))
    assert found()


def test_a_budget_that_does_not_say_what_a_kernel_stores_is_climbed_out_of(monkeypatch, unchecked):
    """Kernels that store scaled inputs in 16 bits, held to the budget of those that do not."""

    def silent(operation):
        return lambda *arguments, arithmetic, **options: operation(*arguments, arithmetic="float16", **options)

    monkeypatch.setitem(budgets.ARITHMETICS, "stores", replace(oracles.FLOAT16, scale_on_inputs=BINARY16))
    for name in (SDPA, f"{SDPA}_vjp"):
        monkeypatch.setattr(oracles, name, silent(getattr(oracles, name)))
    assert budgets.attack("out", "one coordinate", "stores", np.random.default_rng(0), 300).violations


# -- The command -----------------------------------------------------------------------------------


def test_a_chunk_is_the_same_when_it_is_run_again(monkeypatch, unchecked):
    monkeypatch.setattr(chunks, "EVALUATIONS", {"certificate": 5, "budget": 5})
    assert [t for _, t in chunks.run(range(3), 5, 1)] == [chunks.tally(number, 5) for number in range(3)]
    number = chunks.KINDS.index(("certificate", "rope", "plain", "fast"))
    assert chunks.tally(number, 5) != chunks.tally(number, 6)


def test_the_command_writes_its_tables_and_fails_where_it_should(tmp_path, monkeypatch, capsys, unchecked):
    number = next(i for i, kind in enumerate(chunks.KINDS) if kind == ("certificate", "rope", "plain", "fast"))
    options = ["--chunk", str(number), "--jobs", "1", "--output", str(tmp_path / "table.txt")]
    assert command.main(options) == 0
    assert "rope" in (tmp_path / "table.txt").read_text(encoding="utf-8")
    monkeypatch.setattr(oracles, "rope", altered(oracles.rope, lambda mid, rad: (mid, 0 * rad)))
    assert command.main(options) == 1
    assert f"--seed 0 --chunk {number}" in capsys.readouterr().out


def test_every_certificate_is_attacked_and_put_to_the_judge():
    """Except those of `oracles.lookups`, which copies numbers, and of a cache, which is attention's."""
    operations = {
        o.name
        for o in contract.OPERATIONS.values()
        if not o.is_exact and o.oracle.__module__ != "oracles.lookups" and not o.is_played
    }
    for drawn in (certificates.OPERATIONS, soundness.OPERATIONS):
        assert operations <= {name.partition(" ")[0] for name in drawn}


def test_an_input_that_is_refused_is_a_violation_and_the_rest_goes_on(monkeypatch):
    def refused(*_):
        raise ValueError("softcap=0.0")

    monkeypatch.setattr(chunks.certificates, "attack", refused)
    number = next(n for n, kind in enumerate(chunks.KINDS) if kind[0] == "certificate")
    found = chunks.tally(number, 0)
    assert found.violations == 1
    assert "raised ValueError('softcap=0.0')" in found.examples[0]


def test_no_time_is_no_chunk():
    assert list(chunks.run(range(5), 0, 1, seconds=-1)) == []
