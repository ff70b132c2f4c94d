"""Kernels without a declaration: what raises is not taken, and what is wrong is a failure."""

from dataclasses import replace

import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.support import OF_OPTIONS, OF_SIZES
from properties.contract.tried_calls import TriedCall, not_taken
from properties.laws import find
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS
from properties.verifier.first_look import looked_at
from properties.verifier.verify import check, verify

ROPE, CAUSAL = "rope", "causal_attention"
rope, causal = REFERENCE[ROPE], REFERENCE[CAUSAL]
FEW = {"max_examples": 10, "quick": True}


def tried(error="", passes=(), **sizes):
    return TriedCall(CAUSAL, sizes, frozenset(passes), error)


def refusing(function, refuses, error=ValueError):
    """The function, which raises where `refuses` is true of its arguments."""

    def call(*arguments, **options):
        if refuses(*arguments):
            raise error("This is not taken.")
        return function(*arguments, **options)

    return call


def sentences(report):
    return [one.sentence for found in report.not_taken.values() for one in found]


# -- What is not taken -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "returned", "conditions"),
    [
        ([{"n_k": 0}], [{"n_k": 1}, {"n_k": 5}], ["n_k = 0"]),
        ([{"d": 1}, {"d": 3}, {"d": 7}], [{"d": 2}, {"d": 8}], ["odd d"]),
        ([{"n": 1}, {"n": 64}, {"n": 300}], [{"n": 128}, {"n": 384}], ["n no multiple of 128"]),
        ([{"n_q": 5, "n_k": 3}, {"n_q": 9, "n_k": 8}], [{"n_q": 3, "n_k": 5}, {"n_q": 4, "n_k": 4}], ["n_q > n_k"]),
        ([{"d": 1}, {"d": 3}, {"d": 0}, {"d": 128}], [{"d": 64}], ["d other than 64"]),
        ([{"d": 200}, {"d": 300}], [{"d": 3}, {"d": 150}, {"d": 128}], ["d > 150"]),
        ([{"leading axes": 0}, {"leading axes": 3}], [{"leading axes": 1}], ["0 leading axes", "3 leading axes"]),
        (
            [{"num_heads": 4, "kv_heads": 2}, {"num_heads": 6, "kv_heads": 3}],
            [{"num_heads": 4, "kv_heads": 4}, {"num_heads": 4, "kv_heads": 1}, {"num_heads": 2, "kv_heads": 2}],
            ["kv_heads neither 1 nor num_heads"],
        ),
        ([{"d": 2}, {"d": 3}], [], ["every call"]),
        ([{"d": 2}], [{"d": 2}], [""]),
    ],
)
def test_a_condition_is_true_of_what_raised_and_of_nothing_that_returned(raised, returned, conditions):
    calls = [*(tried("ValueError: no", **sizes) for sizes in raised), *(tried(**sizes) for sizes in returned)]
    assert [one.condition for one in not_taken(calls)] == conditions
    assert sum(one.calls for one in not_taken(calls)) == len(raised)


def test_calls_without_a_condition_are_counted_with_the_smallest():
    calls = [tried("IndexError: 3", d=8, n=n) for n in (5, 4, 9)] + [tried(d=8, n=n) for n in (4, 5, 9, 10)]
    (one,) = not_taken(calls)
    assert one.sentence == "3 calls, the smallest with d 8, n 4 (IndexError: 3)"


def test_messages_that_differ_in_numbers_alone_are_counted_together():
    calls = [tried(f"ValueError: shapes ({n}, 3) differ", d=8, n=n) for n in (5, 4)] + [tried("KeyError: n", d=8, n=4)]
    assert [one.calls for one in not_taken([*calls, *(tried(d=8, n=n) for n in (4, 5))])] == [2, 1]


def test_an_edge_comes_last():
    calls = [tried("ValueError: a", d=0), tried("ValueError: b", d=3), tried(d=2), tried(d=4)]
    assert [(one.condition, one.is_edge) for one in not_taken(calls)] == [("odd d", False), ("d = 0", True)]


# -- Verdicts --------------------------------------------------------------------------------------


def test_a_kernel_that_raises_for_odd_widths_passes_and_is_told_so():
    function = refusing(rope, lambda x, *_: x.shape[-1] % 2)
    report = verify({ROPE: function}, **FEW)
    assert report.ok
    assert sentences(report) == ["odd head_dim (ValueError: This is not taken)"]
    (data,) = (one for outcome in report.to_dict()["outcomes"] for one in outcome["not_taken"])
    assert data["condition"] == "odd head_dim"
    assert data["calls"] > 0
    assert not verify({ROPE: function}, strict=True, **FEW).ok
    declared = Implementation("even", {ROPE: function}, supports={"head_dim": lambda d: d % 2 == 0})
    assert verify(declared, strict=True, **FEW).ok
    assert not verify(Implementation("all", {ROPE: function}, supports=()), **FEW).ok


def test_a_kernel_that_raises_everywhere_is_inconclusive():
    report = verify({CAUSAL: refusing(causal, lambda *_: True)}, **FEW)
    assert (report.ok, report.is_inconclusive, report.violations) == (False, True, ())
    assert sentences(report) == ["every call (ValueError: This is not taken)"]
    assert "attnspec compared no result" in report.outcomes[0].reason


@pytest.mark.thorough
def test_a_kernel_of_one_width_is_tested_at_this_width():
    function = refusing(causal, lambda q, k, v: q.shape[-1] != 64 or v.shape[-1] != 64 or q.ndim != 4)
    report = verify({CAUSAL: function}, **FEW)
    assert report.ok
    assert report.outcomes[0].examples >= 10
    wrong = verify({CAUSAL: lambda *x: function(*x) * 1.01}, **FEW)
    assert len(wrong.causes) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            lambda out: np.where(np.arange(out.shape[-1]) == 2, np.nan, out),
            marks=pytest.mark.thorough,
            id="not a number",
        ),
        pytest.param(lambda out: out[..., :-1], id="another shape"),
        pytest.param(lambda out: out * 1.001, id="another number"),
    ],
)
def test_a_mistake_beside_restrictions_is_the_only_cause(wrong):
    function = refusing(causal, lambda q, k, v: q.shape[-1] % 2 or q.shape[-2] > k.shape[-2], IndexError)
    report = verify({CAUSAL: lambda *x: wrong(function(*x))}, **FEW)
    assert len(report.causes) == 1
    assert not report.is_inconclusive
    assert all("This is not taken" not in violation.summary for violation in report.violations)


def test_a_repeated_call_that_raises_is_a_failure():
    seen = set()

    def once(x, start_pos=0):
        key = start_pos, x.tobytes(), x.shape
        if key in seen:
            raise RuntimeError("again")
        seen.add(key)
        return rope(x, start_pos)

    (law,) = find("a second call gives the same result[rope]")
    assert check(law, Implementation("once", {ROPE: once}), 10, 0).status == "violated"


# -- The first look --------------------------------------------------------------------------------


def test_a_kernel_of_float64_gets_one_call_more():
    made = []

    def counted(x, start_pos=0):
        made.append(x)
        return rope(x, start_pos)

    look = looked_at(Implementation("mine", {ROPE: counted}, undeclared=("arrays", "arithmetic")), ROPE)
    assert (len(made), look.not_taken) == (1, ())


def test_a_kernel_of_float32_is_called_with_float32():
    made = []

    def narrow(x, start_pos=0):
        made.append(x.dtype)
        if x.dtype != np.float32:
            raise TypeError("float32 only")
        return rope(x, start_pos).astype(np.float32)

    look = looked_at(Implementation("mine", {ROPE: narrow}, undeclared=("arrays", "arithmetic")), ROPE)
    assert look.implementation.resolved_arithmetic.name == "float32"
    assert [one.sentence for one in look.not_taken] == ["float64 arrays (TypeError: float32 only)"]
    assert len(made) <= 31
    assert looked_at(Implementation("mine", {ROPE: narrow}, supports=()), ROPE).not_taken == ()


def test_a_declared_implementation_is_not_looked_at():
    never = Implementation("never", {ROPE: lambda *_: 1 / 0}, supports=())
    assert looked_at(never, ROPE).implementation is never


# -- Refusals --------------------------------------------------------------------------------------

_EVEN = {"supports": {"head_dim": lambda d: d % 2 == 0}}
(_REFUSED,) = find("unsupported sizes are refused[rope]")


def halves(x, start_pos=0):
    return rope(x, start_pos) if x.shape[-1] % 2 == 0 else x


def test_refusals_are_checked_where_they_are_declared_and_name_the_size():
    promised = Implementation("even", {ROPE: halves}, **_EVEN, refuses=(ValueError,))
    outcome = check(_REFUSED, promised, 20, 0)
    assert outcome.status == "violated"
    assert "for head_dim=" in outcome.violation.summary
    assert check(_REFUSED, Implementation("even", {ROPE: halves}, **_EVEN), 20, 0).status == "not applicable"


def test_no_call_is_made_outside_where_it_is_undefined():
    made = []

    def checked(x, start_pos=0):
        made.append(x.shape[-1] % 2)
        return halves(x, start_pos)

    promised = Implementation("C", {ROPE: checked}, **_EVEN, refuses=(ValueError,), outside="undefined")
    assert verify(promised, **FEW).ok
    assert not any(made)


def test_a_refusal_is_no_second_cause():
    promised = Implementation("even", {ROPE: lambda *x: halves(*x) * 1.01}, **_EVEN, refuses=(ValueError,))
    report = verify(promised, laws=["rope is within its error limit", _REFUSED.name], max_examples=20)
    assert len(report.causes) == 1
    (refusal,) = (one for one in report.outcomes if one.law == _REFUSED.name)
    assert refusal.status == "not applicable"


# -- Words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [*OF_SIZES, *OF_OPTIONS, "n % 128 == 0"])
def test_a_word_is_respected_by_all_test_inputs_and_keeps_the_families(word):
    features = ("causal", "window", "scale", "mask")
    for name in ("attention", CAUSAL):
        operation = OPERATIONS[name]
        mine = Implementation("mine", {name: REFERENCE[name]}, supports=word, features=features)
        for domain in ("everyday", "extreme scores", "ties"):
            cases = Cases(operation, DOMAINS[name][domain], mine)
            assert all(mine.takes(operation, cases.draw(seed)) for seed in range(8)), (name, domain)


def test_the_families_of_a_kernel_of_fixed_widths_are_kept():
    mine = Implementation("mine", {CAUSAL: causal}, supports=["n % 128 == 0", {"head_dim": lambda d: d == 64}])
    for domain in ("everyday", "extreme scores", "ties"):
        sizes = OPERATIONS[CAUSAL].sizes(Cases(OPERATIONS[CAUSAL], DOMAINS[CAUSAL][domain], mine).draw(3))
        assert (sizes["n_q"] % 128, sizes["head_dim"]) == (0, 64)


def test_the_number_of_rotated_channels_is_respected():
    mine = Implementation("mine", {ROPE: rope}, supports={"rotary_dim": (8,)}, features=("rotary_dim",))
    operation, drawn = OPERATIONS[ROPE], set()
    for domain in DOMAINS[ROPE].values():
        try:
            cases = Cases(operation, domain, mine)
        except UnsupportedError:
            continue
        drawn |= {operation.named(cases.draw(seed))["rotary_dim"] for seed in range(20)}
    assert drawn == {None, 8}


def test_two_restrictions_of_a_size_must_both_be_true():
    both = Implementation("mine", {CAUSAL: causal}, supports=["n % 128 == 0", {"n_q": (64, 256)}])
    assert [n for n in (64, 128, 256) if both.allows(n_q=n)] == [256]


@pytest.mark.parametrize("kept", [3, 4, 5])
def test_a_vjp_may_return_the_gradients_that_the_features_explain(kept):
    vjp = REFERENCE["attention_vjp"]
    features = () if kept == 3 else ("bias",)
    mine = Implementation(
        "mine", {"attention_vjp": lambda *x, **options: vjp(*x, **options)[:kept]}, supports=(), features=features
    )
    (law,) = find("attention with options is within its error limit[attention_vjp]")
    assert check(law, mine, 20, 0).status == "held"


# -- Features --------------------------------------------------------------------------------------


def test_a_parameter_that_no_feature_declares_is_told_once():
    def attention(q, k, v, causal=False, window=None):
        return REFERENCE["attention"](q, k, v)

    laws = ["the order of keys does not matter", "inputs are not modified"]
    report = verify({"attention": attention}, laws=laws, max_examples=5)
    assert [one.undeclared_features for one in report.outcomes] == [("causal", "window"), ()]
    assert report.ok
    assert not replace(report, strict=True).ok
    declared = verify(Implementation("mine", {"attention": attention}, supports=()), laws=laws, max_examples=5)
    assert replace(declared, strict=True).ok
    told = " ".join(str(report).split())
    assert 'attention: causal, window To test them, declare `features=("causal", "window")`.' in told
    assert "`attnspec inspect FILE --write adapter.py` does that." in told


def test_options_that_only_attention_has_are_told():
    def masked(q, k, v, attn_mask=None, is_causal=False, scale=None):
        return REFERENCE["scaled_dot_product_attention"](q, k, v, attn_mask)

    laws = ["inputs are not modified"]
    report = verify({"scaled_dot_product_attention": masked}, laws=laws, max_examples=5)
    assert [one.undeclared_features for one in report.outcomes] == [("scale", "causal")]
    told = " ".join(str(report).split())
    assert "scaled_dot_product_attention: scale, causal (only `attention` has such options: offer your" in told
    assert "declare `features" not in told
