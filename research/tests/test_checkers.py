"""What is published of today's checkers is what they are, and what they say of the bugs that there are."""

import json
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from oracles.formats import BINARY32, BRAIN16
from properties.bugs import CATALOGUE, GROUPS
from properties.bugs.reference import OPERATIONS
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES
from research.checkers.__main__ import as_json
from research.checkers.asked import REASONS, unasked
from research.checkers.comparisons import allclose, assert_close, both_beyond, times_plain
from research.checkers.counts import by_group
from research.checkers.derivatives import check_grads, gradcheck
from research.checkers.exhibits import POSERS, windows
from research.checkers.page import markdown
from research.checkers.rows import ROWS
from research.checkers.table import COLUMNS
from research.checkers.trial import SDPA, Trial, posed

DOCS = Path(__file__).parents[2] / "docs"
PUBLISHED = json.loads((DOCS / "checkers.json").read_text("utf-8"))
REFERENCE = Implementation("reference", OPERATIONS, features=FEATURES)
SLOW = ("KernelBench fp32", "KernelBench bf16", "flash-attention")


def test_the_page_is_what_was_measured_of_the_bugs_and_the_checkers_that_there_are():
    assert list(PUBLISHED["verdicts"]) == list(CATALOGUE)
    assert {tuple(said) for said in PUBLISHED["verdicts"].values()} == {tuple(COLUMNS)}
    assert {x for said in PUBLISHED["verdicts"].values() for x in said.values()} <= {"seen", "let through", *REASONS}
    assert (DOCS / "checkers.json").read_text("utf-8") == as_json(PUBLISHED)
    assert (DOCS / "checkers.md").read_text("utf-8") == markdown(PUBLISHED)


def test_the_picture_has_every_count():
    drawn = (DOCS / "checkers.svg").read_text("utf-8")
    for of in by_group(PUBLISHED["verdicts"]).values():
        assert all(f">{count.seen}/{count.asked}<" in drawn for count in of.values() if count.asked)
    assert all(f">{name}<" in drawn for name in (*GROUPS, *COLUMNS))


@pytest.mark.parametrize("checker", [name for name in COLUMNS if name not in SLOW])
def test_a_checker_says_of_some_bugs_what_is_published(checker):
    """Of one bug for each verdict that it gives, chosen by its name; two more make none of them likely to rot unseen."""
    order = sorted(CATALOGUE, key=lambda bug: crc32(f"{checker} {bug}".encode()))
    of_each = {PUBLISHED["verdicts"][bug][checker]: bug for bug in order}
    for bug in {*of_each.values(), *order[:2]}:
        assert COLUMNS[checker](CATALOGUE[bug]) == PUBLISHED["verdicts"][bug][checker], bug


@pytest.mark.parametrize("checker", ROWS, ids=lambda checker: checker.name)
def test_no_checker_refuses_right_code(checker):
    refused, asked = PUBLISHED["alarms"][checker.name]
    assert refused == 0 < asked
    if checker.name not in SLOW:
        assert checker.takes(REFERENCE, OPERATIONS)


def test_every_bug_is_seen_by_a_check_of_ours_and_by_the_vectors_if_one_call_shows_it():
    for bug, said in PUBLISHED["verdicts"].items():
        assert "seen" in (said["attnspec, quick plan"], said["attnspec, default plan"], said["attnspec, vectors"]), bug
        assert said["attnspec, vectors"] in ("seen", "one call"), bug


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


# -- Comparisons, by hand --------------------------------------------------------------------------------------------------------


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
    """Zeros with derivatives of zero pass; zeros with right derivatives do not, where the tolerance does not grow beyond them."""
    rng = np.random.default_rng(0)
    (plain, *_) = (t for t in posed(*rng.standard_normal((3, 1, 3, 4)), BINARY32) if t.operation == SDPA)
    zeros = POSERS[1].implementation()
    half = Implementation("half", OPERATIONS | {SDPA: zeros.operations[SDPA]}, features=FEATURES)
    for consistent in (gradcheck, check_grads(BINARY32, 2e-3)):
        assert consistent(REFERENCE, plain)
        assert consistent(zeros, plain)
        assert not consistent(half, plain)


# -- Exhibits --------------------------------------------------------------------------------------------------------------------


def test_the_mean_passes_at_one_percent_where_no_query_or_key_is_read():
    """At KernelBench's shape, of one head."""
    rng = np.random.default_rng(0)
    (call,) = (t for t in posed(*rng.random((3, 1, 512, 1024)), BRAIN16) if t.operation == SDPA)
    mean, zeros = (poser.implementation() for poser in POSERS)
    assert allclose(1e-2, 1e-2)(call.of(mean), call)
    assert not allclose(1e-4, 1e-4)(call.of(mean), call)
    assert not allclose(1e-2, 1e-2)(call.of(zeros), call)
    said = PUBLISHED["exhibits"]["posers"]["V.mean(dim=-2)"]
    assert said["checkers"]["KernelBench bf16"] == "accepted"
    assert 1e-4 < said["errors"]["float32"]["least"] < said["errors"]["bfloat16"]["least"] < 1e-2


def test_a_short_window_is_what_is_published():
    published = [row for row in PUBLISHED["exhibits"]["windows"] if row["keys"] == 256]
    for found, row in zip(windows((256,)), published, strict=True):
        assert {name: x for name, x in found.items() if name in ("keys", "side", "beyond")}.items() <= row.items()
        assert found["budget"] == pytest.approx(row["budget"], rel=0.1)
