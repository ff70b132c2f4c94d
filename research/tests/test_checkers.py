"""Today's checkers compare as their sources say, refuse no right code, and detect some bugs; the
page has what they said.
"""

import json

import numpy as np
import pytest

from oracles.formats import BINARY32, BRAIN16
from properties.bugs import CATALOGUE, GROUPS
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES
from research.checkers.__main__ import write
from research.checkers.asked import unasked
from research.checkers.comparisons import allclose, assert_close, both_beyond, times_plain
from research.checkers.counts import by_group
from research.checkers.derivatives import check_grads, gradcheck
from research.checkers.exhibits import POSERS, windows
from research.checkers.rows import ROWS
from research.checkers.table import COLUMNS
from research.checkers.trial import SDPA, Trial, posed

RIGHT = Implementation("reference", REFERENCE, features=FEATURES)
SLOW = ("KernelBench fp32", "KernelBench bf16", "flash-attention")
SAID = {
    "ONNX node suite": ("attention-window-without-a-right-side", "sdpa-reads-one-key-beyond"),
    "flashinfer-bench": ("gqa-tile-vs-repeat-interleave", "attention-scale-of-zero-is-none"),
    "assert_close float32": ("sdpa-online-nothing-rescaled", "sdpa-empty-batch-raises"),
    "assert_close float16": ("sdpa-scale-without-root", "sdpa-scores-in-single-precision"),
    "assert_close bfloat16": ("gqa-divided-by-key-heads", "vjp-noncontiguous-dout"),
    "PyTorch OpInfo": ("softmax-blocked-at-minus-epsilon", "attention-bias-of-the-first-head"),
    "check_grads float32": ("vjp-queries-scaled-in-base-two", "jvp-key-tangent-not-scaled"),
    "check_grads float64": ("jvp-mean-over-blocked-keys", "softmax-vjp-ignores-the-mask"),
}
"""A bug that each checker detects, and one that it lets through."""
POSED = {
    "says": "the mean of all values",
    "checkers": {checker.name: "refused" for checker in ROWS},
    "errors": {dtype: {"error": 0.01, "least": 0.007} for dtype in ("float32", "bfloat16")},
    "laws": {
        "violated": "4 of 14",
        "first": "attention is within its error limit",
        "summary": "out[0, 0]=0.5, but should be 0.4.",
    },
}
WINDOW = {
    "keys": 256,
    "side": "one short",
    "error": 0.125,
    "beyond": 386,
    "entries": 4096,
    "budget": 31.3,
    "budget, told": 122.4,
}


def test_the_files_have_what_was_measured(tmp_path):
    """Of a stand-in, in which each check detects each bug, except one that the first check lets through."""
    verdicts = {bug: dict.fromkeys(COLUMNS, "seen") for bug in CATALOGUE}
    bug, checker, bugs = next(iter(CATALOGUE)), next(iter(COLUMNS)), len(CATALOGUE)
    verdicts[bug][checker] = "let through"
    exhibits = {"posers": {poser.name: POSED for poser in POSERS}, "windows": [WINDOW]}
    found = {"alarms": {checker.name: [0, 9] for checker in ROWS}, "exhibits": exhibits, "verdicts": verdicts}
    write(found, tmp_path)
    assert json.loads((tmp_path / "checkers.json").read_text("utf-8")) == found
    page, drawn = (tmp_path / "checkers.md").read_text("utf-8"), (tmp_path / "checkers.svg").read_text("utf-8")
    assert f"| {checker} | {bugs} | {bugs - 1} | 1 | 100% | 0 of 9 |" in page
    assert "out[0, 0]=0.5, but should be 0.4." in page
    for of in by_group(verdicts).values():
        assert all(f">{count.seen}/{count.asked}<" in drawn for count in of.values() if count.asked)
    assert all(f">{name}<" in drawn for name in (*GROUPS, *COLUMNS))


@pytest.mark.parametrize("checker", SAID)
def test_a_checker_detects_one_bug_and_lets_another_through(checker):
    assert [COLUMNS[checker](CATALOGUE[bug]) for bug in SAID[checker]] == ["seen", "let through"]


@pytest.mark.parametrize("checker", [name for name in COLUMNS if name.startswith("attnspec")])
def test_ours_detect_a_bug(checker):
    assert COLUMNS[checker](CATALOGUE["jvp-key-tangent-ignored"]) == "seen"


def test_the_vectors_say_which_bug_takes_more_than_one_call():
    assert COLUMNS["attnspec, vectors"](CATALOGUE["cache-refuses-after-it-has-counted"]) == "one call"


@pytest.mark.parametrize(
    "checker", [checker for checker in ROWS if checker.name not in SLOW], ids=lambda checker: checker.name
)
def test_no_checker_refuses_right_code(checker):
    assert checker.takes(RIGHT, REFERENCE)


@pytest.mark.parametrize(
    ("checker", "bug", "why"),
    [
        ("assert_close float32", "sdpa-mask-polarity-inverted", "arguments"),  # its calls have no mask
        ("ONNX node suite", "attention-lse-in-base-two", "arguments"),  # it looks at the output alone
        ("PyTorch OpInfo", "gqa-tile-vs-repeat-interleave", "arguments"),  # heads share no keys
        ("ONNX node suite", "vjp-divided-by-the-batch", "operation"),
        ("ONNX node suite", "sdpa-overflow-becomes-nan", "promise"),
        ("ONNX node suite", "sdpa-scale-missing", ""),
        ("ONNX node suite", "sdpa-mask-memory-order", ""),  # views can be given to all
    ],
)
def test_a_checker_is_asked_about_what_its_arguments_could_show(checker, bug, why):
    (row,) = (row for row in ROWS if row.name == checker)
    assert unasked(row, CATALOGUE[bug]) == why


# -- Comparisons, by hand --------------------------------------------------------------------------


def trial(right, plain, target=BINARY32):
    """A trial of which a given number should come."""
    of = Trial(SDPA, (), target, ("out",), (np.array([plain]),))
    of.__dict__["right"] = (np.array([right]),)
    return of


@pytest.mark.parametrize(
    ("accepts", "right", "plain", "found", "accepted"),
    [
        (allclose(0.01, 0.01), 1.0, 1.0, 1.019, True),
        (allclose(0.01, 0.01), 1.0, 1.0, 1.021, False),
        (allclose(0.01, 0.01), 1.0, 1.0, np.nan, False),
        (both_beyond(0.01, 0.01), 10.0, 10.0, 10.09, True),  # by 0.09, of which 10 is 0.9 %
        (both_beyond(0.01, 0.01), 0.001, 0.001, 0.009, True),  # by 800 %, which is 0.008
        (both_beyond(0.01, 0.01), 1.0, 1.0, 1.02, False),
        (both_beyond(0.01, 0.01), 1.0, 1.0, np.inf, False),
        (times_plain(2, 3, 1e-5), 1.0, 1.1, 1.2, True),
        (times_plain(2, 3, 1e-5), 1.0, 1.1, 1.21, False),
        (times_plain(2, 3, 1e-5), 1.0, 1.1, np.nan, False),
        (assert_close, 1.0, 1.0, 1.00001, True),
        (assert_close, 1.0, 1.0, 1.00002, False),
    ],
)
def test_a_comparison_allows_what_its_source_says(accepts, right, plain, found, accepted):
    assert accepts((np.array([found]),), trial(right, plain)) is accepted


def test_what_is_checked_of_derivatives_is_that_they_are_those_of_the_function_itself():
    """Zeros with derivatives of zero pass; zeros with right derivatives do not, where the tolerance
    does not grow beyond them.
    """
    rng = np.random.default_rng(0)
    (plain, *_) = (t for t in posed(rng.standard_normal((3, 1, 3, 4)), BINARY32) if t.operation == SDPA)
    zeros = POSERS[1].implementation()
    half = Implementation("half", REFERENCE | {SDPA: zeros.operations[SDPA]}, features=FEATURES)
    for consistent in (gradcheck, check_grads(BINARY32, 2e-3)):
        assert consistent(RIGHT, plain)
        assert consistent(zeros, plain)
        assert not consistent(half, plain)


# -- Exhibits --------------------------------------------------------------------------------------


def test_the_mean_passes_at_one_percent_where_no_query_or_key_is_read():
    """At KernelBench's shape, of one head."""
    rng = np.random.default_rng(0)
    (call,) = (t for t in posed(rng.random((3, 1, 512, 1024)), BRAIN16) if t.operation == SDPA)
    mean, zeros = (poser.implementation() for poser in POSERS)
    assert allclose(1e-2, 1e-2)(call.of(mean), call)
    assert not allclose(1e-4, 1e-4)(call.of(mean), call)
    assert not allclose(1e-2, 1e-2)(call.of(zeros), call)


def test_the_budget_sees_a_short_window_that_is_off_by_one_key():
    for found in windows((256,)):
        assert 0 < found["beyond"] < found["entries"] / 10  # those off by more than one percent
        assert found["budget"] > 10
