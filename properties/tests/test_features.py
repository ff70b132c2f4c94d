"""Features are declared: what is not is never passed, of what is every pair comes up, and
conventions are told from outputs alone.
"""

import os
import re
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

import oracles
from oracles import Conventions
from properties import verify
from properties.bugs import CATALOGUE
from properties.bugs.reference import REFERENCE
from properties.contract.features import NEEDS, QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.contract.support import WORDS
from properties.laws import LAWS, find
from properties.laws.frequency_bands import ramp
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.tests.diagnosing import first_cause
from properties.tests.readings import meaning
from properties.verifier.report_file import array

FEATURED = ("attention", "attention_vjp", "attention_jvp")


def recording(operation, seen):
    def called(*arguments, **options):
        seen.append(options)
        return REFERENCE[operation](*arguments, **options)

    return called


@pytest.mark.parametrize(
    ("operation", "declared"),
    [
        pytest.param(operation, declared, marks=[pytest.mark.thorough] * (place != number % len(FEATURED)))
        for number, declared in enumerate([(), ("mask", "sink", "softcap"), ("bias",), ("window", "offset")])
        for place, operation in enumerate(FEATURED)
    ],
)
def test_what_is_not_declared_is_never_passed_and_said_not_to_apply(operation, declared):
    seen = []
    report = verify(Implementation("some", {operation: recording(operation, seen)}, features=declared), max_examples=5)
    passed = {p for options in seen for p in options}
    assert report.ok
    assert passed == {*declared, *(f"d{p}" for p in declared if operation.endswith("jvp") and p in ("bias", "sink"))}
    (outcome,) = [
        o for o in report.outcomes if (o.law, o.operation) == ("a window equals the mask of its band", operation)
    ]
    missing = [p for p in ("mask", "window") if p not in declared]
    assert outcome.status == "not applicable"
    assert outcome.reason == f"It does not declare the feature{'s' * (len(missing) > 1)} {' and '.join(missing)}."


@pytest.mark.parametrize("operation", FEATURED)
def test_every_pair_of_features_comes_up_with_and_without_each(operation):
    o = OPERATIONS[operation]
    i = Implementation("NumPy", REFERENCE, features=FEATURES)
    cases = Cases(o, DOMAINS[operation]["everyday"], i)
    given = [set(o.given(cases.draw(seed))) for seed in range(1, 80)]
    named = [p for p in FEATURES if p in o.options and p not in QUANTISED]  # these come up with a grid alone
    met = {(a, b, a in x, b in x) for x in given for a, b in combinations(named, 2)}
    possible = product(combinations(named, 2), product((True, False), repeat=2))
    assert met >= {(a, b, *has) for (a, b), has in possible if has != (False, True) or NEEDS.get(b) != a}
    assert any(x.issuperset(named) for x in given)
    assert set() in given
    assert any("offsets" in x for x in given)


DRAWN = """
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS
from properties.tests.diagnosing import first_cause
from properties.tests.readings import meaning

i = Implementation("NumPy", REFERENCE, features=FEATURES)
for o in OPERATIONS.values():
    cases = Cases(o, DOMAINS[o.name]["everyday"], i)
    print(*([x is None for x in cases.draw(seed)] for seed in range(6)))
"""


def test_a_seed_is_the_same_case_in_every_process():
    """Strings are hashed otherwise in each: no choice may be made in the order of a set."""
    drawn = {
        subprocess.run(
            [sys.executable, "-c", DRAWN],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(oracles.__file__).parents[1])},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in "12"
    }  # fmt: skip
    assert len(drawn) == 1


def test_a_feature_that_there_is_not_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"Unknown feature 'biass'\. Did you mean 'bias'\?"):
        Implementation("x", {"attention": REFERENCE["attention"]}, features=["biass"])
    with pytest.raises(TypeError, match="features='bias', but should be some of mask, bias"):
        Implementation("x", {"attention": REFERENCE["attention"]}, features="bias")


@pytest.mark.parametrize(("name", "needed"), NEEDS.items(), ids=NEEDS)
def test_a_feature_that_no_call_would_show_is_refused_in_a_sentence(name, needed):
    alone = f"features has {name!r} without {needed!r}. Add {needed!r}: no call shows the feature without it."
    with pytest.raises(ValueError, match=re.escape(alone)):
        Implementation("x", {"attention": REFERENCE["attention"]}, features=[name])
    together = {name, needed, NEEDS.get(needed, needed)}
    assert Implementation("x", {"attention": REFERENCE["attention"]}, features=together).features == together


CAPS = [
    ("float64", ""),
    ("float32", ""),
    ("bfloat16-eager", ""),
    ("float32-tanh-by-exponentials", "Its tanh has an absolute error, which the softcap multiplies."),
    ("float16-eager", "Scores in binary16 underflow where they are divided by a very large softcap."),
]


@pytest.mark.parametrize(("arithmetic", "reason"), CAPS, ids=str)
def test_a_far_cap_is_put_to_who_can_compute_it(arithmetic, reason):
    (law,) = find("a very large softcap changes nothing[attention]")
    assert (
        law.not_applicable(
            Implementation("x", {"attention": REFERENCE["attention"]}, arithmetic, features=("softcap",))
        )
        == reason
    )


def test_scales_above_all_that_are_drawn_are_a_factor_of_the_queries():
    def cut(*arguments, scale=None):
        return REFERENCE["attention"](*arguments, scale=None if scale is None else min(scale, 1.0))

    i = Implementation("x", {"attention": cut}, features=("scale",))
    assert verify(i, laws=["attention with options is within its error limit"], max_examples=30).ok
    assert not verify(i, laws=["scale=s equals multiplying the queries by s"], max_examples=30).ok


def test_parts_are_not_merged_by_sums_without_the_sink():
    offered = {name: REFERENCE[name] for name in ("merge_attention", "rotate_half")}
    report = verify(Implementation("x", offered, conventions=Conventions(lse_sink="excluded")), max_examples=3)
    assert report.ok
    left = {o.reason for o in report.outcomes if o.operation == "merge_attention"}
    assert left == {"Its log-sum-exps are without the sink: parts cannot be merged by them."}


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 5.0), (2.5, 6.25), (3.0000000001, 7.0), (1.0, 3.9999999999), (2.0, 2.0)]
)
def test_a_ramp_contains_that_of_ends_that_float64_rounds(low, high):
    """Ends that are whole numbers are exact: there the ramp is."""
    found, i = ramp(8, low, high), np.arange(8)
    for a, b in product((-1e-10, 0, 1e-10), repeat=2):
        first, last = low + a * (low != round(low)), high + b * (high != round(high))
        exactly = np.clip((i - first) / (last - first), 0, 1) if last > first else np.where(i > first, 1.0, 0.0)
        assert (np.abs(found.mid - exactly) <= found.rad + 1e-15 * (found.mid % 1 > 0)).all()
    assert not found.rad[[0, 7]].any() or high >= 7


def test_gradients_of_what_is_not_given_are_none():
    def gives_all(*arguments, **options):
        dq, dk, dv, dbias, dsink = REFERENCE["attention_vjp"](*arguments, **options)
        return dq, dk, dv, dbias, np.zeros(arguments[0].shape[-3]) if dsink is None else dsink

    report = verify(
        {"attention_vjp": gives_all},
        laws=["all results have the declared types and shapes, and are finite"],
        max_examples=3,
    )
    assert "dsink is an array, but should be None, since no sink is given." in report.outcomes[0].violation.summary


MEANT = [
    ("attention", {"window": "count"}),
    ("attention", {"lse_base": "2"}),
    ("attention_vjp", {"lse_base": "2"}),
    ("attention", {"softcap_order": "after_bias"}),
    ("attention", {"softcap_order": "after_mask"}),
    ("attention", {"lse_sink": "excluded"}),
    ("attention_vjp", {"lse_sink": "excluded"}),
    ("attention", {"scale_default": "one"}),
    ("attention", {"kv_heads": "tile"}),
    ("attention", {"causal": "bottom_right"}),
    ("attention", {"causal_with_mask": "mask_wins"}),
    ("attention", {"causal_with_mask": "causal_wins"}),
    ("attention", {"causal_with_mask": "causal_alone"}),
    ("attention_vjp", {"causal_with_mask": "causal_alone"}),
    ("alibi_bias", {"alibi_slopes": "geometric"}),
    ("alibi_bias", {"alibi_reference": "key"}),
    ("rotary_frequencies", {"yarn_truncate": "exact"}),
    ("rotary_frequencies", {"yarn_upper": "last_pair"}),
    ("rotary_frequencies", {"longrope_switch": "below"}),
    ("rotary_frequencies", {"dynamic_length": "configured"}),
    ("rope", {"mrope": "interleaved"}),
    ("rotary_tables", {"mrope": "interleaved"}),
    ("rotary_tables", {"rope_pairing": "half"}),
    ("position_ids", {"padding_position": "one"}),
]


TAKES_LONG = ({"causal_with_mask": "causal_wins"}, {"causal_with_mask": "mask_wins"})
"""Conventions that take long to be told; "causal_alone" is another answer to the same question."""


@pytest.mark.parametrize(
    ("operation", "meant"),
    [
        pytest.param(operation, meant, marks=[pytest.mark.thorough] * (meant in TAKES_LONG), id=f"{operation}-{meant}")
        for operation, meant in MEANT
    ],
)
def test_a_convention_is_told_from_outputs_alone(operation, meant):
    follows = meaning(OPERATIONS[operation], Conventions(**meant))
    cause = first_cause(Implementation("other", {operation: follows}, features=FEATURES))
    ((field, value),) = meant.items()
    assert f"{field}={value}" in [d.id for d in cause.diagnosis[:2]]


def test_a_set_of_conventions_is_told_as_the_version_of_onnx_that_means_it():
    follows = meaning(OPERATIONS["attention"], Conventions.onnx("1.20"))
    features = ("mask", "bias", "scale", "causal", "softcap")
    other = Implementation("other", {"attention": follows}, features=features)
    told = (
        verify(other, laws=["attention with options is within its error limit"], max_examples=60, seed=1)
        .causes[0]
        .diagnosis[0]
    )
    assert told.id == "onnx=1.20"
    assert told.mechanism == "Your kernel behaves like ONNX 1.20: dead_rows=nan, softcap_order=after_mask."
    assert told.repair == "Change the kernel, or declare Conventions.onnx('1.20') if it is right."


def test_without_a_log_sum_exp_the_output_is_judged_and_told_apart():
    """A bug of the output is named; laws about the log-sum-exp do not apply; and a number there is not looked at."""
    wrong = CATALOGUE["attention-window-one-key-too-many"].mutants["attention"]()
    for answer in (lambda *x, **o: wrong(*x, **o)[0], lambda *x, **o: (wrong(*x, **o)[0], None), wrong):
        mine = Implementation("mine", {"attention": answer}, features=FEATURES, supports="no log-sum-exp")
        assert first_cause(mine).diagnosis[0].id == "attention-window-one-key-too-many"
        left = {
            law.name
            for law in LAWS
            if law.operation == "attention" and law.not_applicable(mine) == WORDS["no log-sum-exp"]
        }
        assert left == {
            "merging attention over two parts of the keys gives the whole",
            "a softcap bounds the log-sum-exp",
            "the log-sum-exp counts the visible keys",
        }
    silent = Implementation(
        "mine", {"attention": lambda *x, **o: REFERENCE["attention"](*x, **o)[0]}, features=FEATURES
    )
    assert not verify(silent, laws=["attention with options is within its error limit"], max_examples=2).ok


@pytest.mark.parametrize(
    "meant",
    [
        {"dead_rows": "uniform"},
        *(
            pytest.param({"causal_with_mask": value}, marks=pytest.mark.thorough)
            for value in ("refuse", "mask_wins", "causal_alone")
        ),
    ],
    ids=str,
)
def test_who_declares_a_convention_keeps_every_law(meant):
    conventions = Conventions(**meant)
    follows = meaning(OPERATIONS["attention"], conventions)
    report = verify(
        Implementation("other", {"attention": follows}, features=FEATURES, conventions=conventions),
        max_examples=30,
        seed=2,
    )
    assert report.ok, report


WRONG = """
import properties
from properties.bugs import CATALOGUE
from properties.contract.operations import FEATURES

wrong = CATALOGUE["attention-window-one-key-too-many"].mutants
adapter = properties.Implementation("mine", {"attention": wrong["attention"]()}, features=FEATURES)
"""


def test_the_command_passes_options_and_names_the_cause(tmp_path):
    (tmp_path / "mine.py").write_text(WRONG)
    laws = [
        "--laws",
        "attention with options is within its error limit",
        "a window equals the mask of its band[attention]",
    ]
    line = [sys.executable, "-P", "-m", "attnspec", "verify", "mine.py", *laws, "--json", "r.json", "--html", "page"]
    ran = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.returncode, ran.stderr.count("Traceback")) == (1, 0)
    assert "likely cause: attention-window-one-key-too-many\n" in ran.stdout


def test_a_window_with_an_open_side_is_read_back_as_a_pair():
    assert array([None, 2]) == (None, 2)
    assert array([1, None]) == (1, None)
    with pytest.raises(ValueError, match="not numbers"):
        array([None, None, 1])
