"""The readings of the instruments are laws: at fixed cases, whatever the seed and the number of test
inputs.
"""

import numpy as np
import pytest

from oracles import Conventions
from properties import Implementation
from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE
from properties.contract.features import FEATURES
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.contract.support import OutsideError
from properties.laws import FAMILIES, find
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS
from properties.strategies.plain_calls import plain_call
from properties.verifier.plan import is_quick
from properties.verifier.verify import examine

SDPA, GQA, ATTENTION = "scaled_dot_product_attention", "grouped_query_attention", "attention"
READINGS = {law.id: law for law in FAMILIES["readings"]}


def outcomes(operation, function, number=8, seed=0, **promises):
    """The outcomes of the readings of one operation, by the names of the laws."""
    implementation = Implementation("mine", {operation: function}, **{"features": FEATURES, **promises})
    laws = [law for law in READINGS.values() if law.operation == operation]
    return {outcome.law: outcome for outcome in examine(laws, implementation, number, seed)}


def late(change):
    """Grouped-query attention with a mistake from 1024 keys on."""

    def attention(q, k, v, mask=None):
        if k.shape[-2] >= 1024:
            q, k, v = change(q, k, v)
        return REFERENCE[GQA](q, k, v, mask)

    return attention


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda q, k, v: (q, k[:1] + 0 * k, v[:1] + 0 * v), "Batch 1 of 2 reads the values of batch 0."),
        (lambda q, k, v: (q, k[..., :-1, :], v[..., :-1, :]), "Every query misses the last visible key."),
        (lambda q, k, v: (q, k[..., :512, :], v[..., :512, :]), "Every query misses the last 528 visible keys."),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_mistake_at_an_operating_point_is_seen_with_every_seed(change, sentence, seed):
    found = outcomes(GQA, late(change), seed=seed)["each query reads what it should"]
    assert found.status == "violated"
    assert found.violation.summary == sentence


def test_the_number_of_fixed_cases_does_not_depend_on_the_seed_nor_on_the_number_of_inputs():
    found = [outcomes("rope", REFERENCE["rope"], number, seed) for number, seed in ((1, 0), (50, 0), (8, 3))]
    numbers = {each["each pair rotates by its angle"].examples for each in found}
    cases = Cases(OPERATIONS["rope"], DOMAINS["rope"]["operating points"], Implementation("mine", REFERENCE))
    assert len(numbers) == 1
    assert len(cases.fixed) < min(numbers)  # the adapter declares no options


def test_points_that_are_not_taken_are_left_out_and_named():
    found = outcomes(SDPA, REFERENCE[SDPA], supports={"n_k": lambda size: size < 1000})
    outcome = found["each query reads what it should"]
    assert outcome.status == "held"
    assert outcome.undrawn == (
        "operating points: mine does not take: 1 query, 1040 keys; 8 queries, 1040 keys; 1 query, 2048 keys.",
    )


def test_a_domain_of_points_that_are_not_taken_has_no_case():
    implementation = Implementation("mine", REFERENCE, supports={"head_dim": lambda size: size > 1000})
    with pytest.raises(UnsupportedError, match=r"^mine does not take: width 4; width 6"):
        Cases(OPERATIONS[SDPA], DOMAINS[SDPA]["operating widths"], implementation)


def test_the_seeds_of_fixed_cases_count_the_points():
    cases = Cases(OPERATIONS[SDPA], DOMAINS[SDPA]["operating points"], Implementation("mine", REFERENCE))
    first, again = cases.draw(0), cases.draw(len(cases.fixed))
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True) if one is not None)
    assert not any(array.any() for array in first if array is not None)


@pytest.mark.parametrize("law", READINGS)
def test_a_reading_is_quick_and_passes_on_the_reference(law):
    assert is_quick(READINGS[law])
    operation = READINGS[law].operation
    promises = {"caches": ()} if operation == "decode" else {}
    if "scale belongs" in law:
        promises["arithmetic"] = "float64-e4m3"
    due = "not applicable" if "rounding allows" in law else "held"  # the reference has float64 results
    implementation = Implementation("mine", {operation: REFERENCE[operation]}, features=FEATURES, **promises)
    (found,) = examine([READINGS[law]], implementation, 8, 0)
    assert found.status == due


def test_an_implementation_of_few_shapes_is_exempt():
    found = outcomes(SDPA, REFERENCE[SDPA], supports="at most 4 shapes")
    assert {outcome.reason for outcome in found.values()} == {"It takes at most 4 shapes, which other laws need."}


@pytest.mark.parametrize(
    ("bug", "sentence"),
    [
        ("merge-in-base-two", "Parts with the log-sum-exps 3 and 0 get the weights 0.8889 and 0.1111, should get"),
        ("merge-lost-with-an-empty-part", "Parts with the log-sum-exps 0 and −∞ get the weights 0 and 0, should get"),
    ],
)
def test_merging_says_which_weights_two_parts_get(bug, sentence):
    found = outcomes("merge_attention", CATALOGUE[bug].mutants["merge_attention"]())
    violation = found["parts have the weights of their log sum exps"].violation
    assert violation.summary.startswith(sentence)


def test_a_wrong_merged_log_sum_exp_is_told():
    def merge(*arguments):
        out, lse = REFERENCE["merge_attention"](*arguments)
        return out, lse + 1

    violation = outcomes("merge_attention", merge)["parts have the weights of their log sum exps"].violation
    assert violation.summary == "The merged log-sum-exp of 0 and 0 is 1.693, should be 0.6931."


@pytest.mark.parametrize(
    ("conventions", "is_read"),
    [
        ({}, True),
        ({"odd_lane": "passthrough"}, True),
        ({"odd_lane": "reject"}, False),
        ({"rope_pairing": "half"}, False),
    ],
)
def test_odd_widths_are_read_where_the_conventions_take_them(conventions, is_read):
    implementation = Implementation("mine", {"rope": REFERENCE["rope"]}, conventions=Conventions(**conventions))
    cases = Cases(OPERATIONS["rope"], DOMAINS["rope"]["operating points"], implementation)
    assert any(arguments[0].shape[-1] % 2 for arguments in cases.fixed) is is_read


def test_a_size_of_0_is_read_only_where_it_is_taken():
    implementation = Implementation("mine", {"rope": REFERENCE["rope"]}, supports="positive sizes")
    cases = Cases(OPERATIONS["rope"], DOMAINS["rope"]["operating points"], implementation)
    assert all(arguments[0].size for arguments in cases.fixed)
    assert cases.left_out.endswith("no channels; no rows.")


def test_small_errors_are_told_by_their_size_and_their_signs():
    def said(operation, law):
        rounded = lambda *arguments: REFERENCE[operation](*arguments).astype(np.float32).astype(float)  # noqa: E731
        return outcomes(operation, rounded)[law].violation.summary

    assert said(SDPA, "each query reads what it should").endswith("of the largest, all too large.")
    softmax = said("hard_masked_softmax", "weights are exponentials divided by their sum")
    assert softmax.endswith("of the largest, as by roundings.")


def test_heads_that_do_not_divide_are_not_tried_where_such_calls_are_undefined():
    (law,) = find("heads that do not divide are refused[attention]")
    for outside, expected in (
        ("undefined", "It declares that calls outside of what it supports are undefined."),
        ("called", ""),
    ):
        mine = Implementation("mine", {"attention": REFERENCE["attention"]}, supports=(), outside=outside)
        assert law.not_applicable(mine) == expected


def test_heads_that_do_not_divide_are_not_tried_where_numbers_of_heads_are_declared():
    (law,) = find("heads that do not divide are refused[attention]")
    for supports in ({"num_heads": (4,), "kv_heads": (4,)}, "no grouped heads", "heads divide"):
        mine = Implementation("mine", {"attention": REFERENCE["attention"]}, supports=supports)
        assert law.not_applicable(mine) == "It declares which numbers of heads it takes."
    mine = Implementation("mine", {"attention": REFERENCE["attention"]}, supports=())
    assert not law.not_applicable(mine)
    arguments = plain_call(OPERATIONS["attention"], mine, {"num_heads": 4, "kv_heads": 2})
    with pytest.raises(OutsideError, match="no heads that do not divide"):
        law.hold(Subject(mine, "attention"), law.case(arguments, 0))
