"""Climbs rise, stay within what is supported, and can be run again; budgets that say nothing are no height."""

import json
from dataclasses import replace

import numpy as np
import pytest

import oracles
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.strategies.cases import Cases
from properties.strategies.changes import another, changed
from properties.strategies.climb import Effort, Height, mutated
from properties.strategies.climb import climb as climbed
from properties.strategies.domains import DOMAINS
from properties.verifier import worst_input
from properties.verifier.case_json import packed, unpacked
from properties.verifier.worst_input import climb

SDPA = "scaled_dot_product_attention"
ROUGH = 1e-16


def rough(q, k, v, mask=None):
    """Attention with an error that grows with the largest of the values."""
    return REFERENCE[SDPA](q, k, v, mask) * (1 + ROUGH * np.abs(v).max(initial=0.0))


# -- From input to input -----------------------------------------------------------------------------


def test_a_climb_rises_and_stops_at_a_counterexample():
    def measure(x):
        return Height(float(x[0, 0]), bool(x[0, 0] > 50))

    found = climbed(lambda rng: rng.random((1, 1)), mutated, measure, np.random.default_rng(0), Effort(2000))
    assert found.evaluations == 2000
    assert found.violations
    assert found.highest.value == max(height for height, _ in found.violations) > 50
    assert 1 < found.climbs < 200


def test_mutations_change_one_array_and_keep_it_finite():
    rng, x = np.random.default_rng(0), np.array([[1e308, -2.0], [0.0, 5e-324]])
    seen = [mutated(x, rng) for _ in range(300)]
    assert all(np.isfinite(y).all() and y.shape == x.shape for y in seen)
    assert len({y.tobytes() for y in seen}) > 50
    assert x.tolist() == [[1e308, -2.0], [0.0, 5e-324]]


# -- Cases and their changes -------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [name for name, o in OPERATIONS.items() if not o.is_exact])
def test_a_changed_case_is_supported_and_of_numbers_of_the_format(operation):
    o = OPERATIONS[operation]
    implementation = Implementation("reference", REFERENCE, "float32", features=FEATURES)
    cases, rng = Cases(o, DOMAINS[operation]["everyday"], implementation), np.random.default_rng(0)
    case, seen = o.named(cases.draw(3)), set()
    for _ in range(40):
        before, case = case, changed(cases, case, rng)
        assert implementation.takes(o, tuple(case.values()))
        assert o.shapes(*case.values())
        seen |= {p for p in o.parameters if repr(case[p]) != repr(before[p])}
        assert all(
            np.array_equal(x, np.float32(x), equal_nan=True) for p, x in case.items() if p in o.arrays and x is not None
        )
    assert seen


CHANGES = {
    *("q", "k", "v", "mask", "scale", "window", "softcap", "causal", "bias"),
    *("longer n_q", "longer n_k", "longer head_dim"),
}


def test_numbers_sizes_masks_and_options_change():
    o = OPERATIONS["attention"]
    cases = Cases(o, DOMAINS["attention"]["everyday"], Implementation("reference", REFERENCE, features=FEATURES))
    rng, seen, calls = np.random.default_rng(0), set(), 0
    while not seen >= CHANGES:
        calls += 1
        assert calls <= 1200, CHANGES - seen  # options with one number change seldom
        case = another(cases, rng)
        after = changed(cases, case, rng)
        sizes = o.sizes(tuple(case.values())), o.sizes(tuple(after.values()))
        grown = {name for name, n in sizes[1].items() if n > sizes[0].get(name, n)}
        seen |= {f"longer {name}" for name in grown} or {p for p in case if repr(case[p]) != repr(after[p])}
        assert after["mask"] is None or after["mask"].any(-1).all()


@pytest.mark.parametrize(
    "x",
    [
        np.array([[-0.0, np.nan, -np.inf]]),
        np.zeros((0, 3)),
        np.array([True, False]),
        np.array(3, np.int64),
        (2, 1),
        None,
        0.1,
        "append 3",
    ],
    ids=repr,
)
def test_a_case_comes_back_from_json_to_the_last_bit(x):
    back = unpacked(json.loads(json.dumps(packed({"x": x}))))["x"]
    assert type(back) is type(x)
    if isinstance(x, np.ndarray):
        assert (back.dtype, back.shape, back.tobytes()) == (x.dtype, x.shape, x.tobytes())
    else:
        assert back == x


def test_what_is_no_array_of_a_case_is_refused():
    with pytest.raises(
        ValueError, match=r"^q is no array of a case, but should have the dtype, shape and bytes of one: 'bytes'\.$"
    ):
        unpacked({"q": {"dtype": "float64", "shape": [1]}})


# -- The worst case ----------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_climb_gets_where_as_many_drawn_cases_do_not():
    implementation = Implementation("rough", {SDPA: rough})
    cases = Cases(OPERATIONS[SDPA], DOMAINS[SDPA]["everyday"], implementation)
    caller = worst_input.Caller(implementation, SDPA)
    drawn = [worst_input.ratios(caller, OPERATIONS[SDPA].named(cases.draw(seed))) for seed in range(1, 301)]
    found = climb(implementation, SDPA, "everyday", 1, 300)
    assert found.calls == 300
    assert found.output == "out"
    assert found.ratio > 3 * max(x for of in drawn for x in of.values()) > 0


def test_the_same_arguments_find_the_same_and_a_worst_case_is_where_the_next_climb_starts():
    implementation = Implementation("rough", {SDPA: rough})
    first, second = (climb(implementation, SDPA, "everyday", 7, 60) for _ in range(2))
    assert first == second
    start = json.loads(json.dumps(first.case))
    assert climb(implementation, SDPA, "everyday", 8, 1, start).ratio == first.ratio
    assert climb(implementation, SDPA, "everyday", 8, 60, start).ratio >= first.ratio


def test_one_output_alone_is_climbed_on():
    implementation = Implementation("reference", REFERENCE)
    found = [climb(implementation, f"{SDPA}_vjp", "everyday", 3, 40, output=name) for name in ("dq", "dk", "dv")]
    assert [worst.output for worst in found] == ["dq", "dk", "dv"]


def test_budgets_that_say_nothing_are_no_height(monkeypatch):
    def vacuous(*arguments, **options):
        return replace(oracle(*arguments, **options), vacuous=True)

    oracle = oracles.scaled_dot_product_attention
    monkeypatch.setitem(OPERATIONS, SDPA, replace(OPERATIONS[SDPA], oracle=vacuous))
    assert climb(Implementation("rough", {SDPA: rough}), SDPA, "everyday", 1, 20) is None


def test_a_call_that_raises_is_infinitely_far():
    found = climb(Implementation("none", {SDPA: lambda *_: 1 / 0}), SDPA, "everyday", 1, 5)
    assert (found.ratio, found.output) == (np.inf, "")


def test_a_domain_steps_and_a_start_that_are_none_are_refused():
    implementation = Implementation("reference", REFERENCE)
    with pytest.raises(ValueError, match=r"^domain='nowhere', but should be one of those of rope: everyday, .*\.$"):
        climb(implementation, "rope", "nowhere", 1, 5)
    with pytest.raises(ValueError, match=r"^steps=0, but should be at least 1\.$"):
        climb(implementation, "rope", "everyday", 1, 0)
    with pytest.raises(ValueError, match=r"^start has x, but should have the arguments of inv_freq: head_dim\.$"):
        climb(implementation, "inv_freq", "everyday", 1, 5, {"x": 1})
    assert climb(implementation, "causal_mask", "everyday", 1, 5) is None
