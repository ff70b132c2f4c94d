"""The page of released kernels shows what attnspec printed of failures, and tells when a verdict changed."""

import pytest

from research import kernels
from research.kernels import Run, markdown
from systems.kernels import NO_FINDING, RECIPES

ONE = next(name for name, text in RECIPES.items() if text != NO_FINDING)
NONE = next(name for name, text in RECIPES.items() if text == NO_FINDING)
PRINTED = "✗ one: {} is wrong\n  the smallest input\n\n-v prints all checks that fail"


@pytest.fixture(autouse=True)
def no_finding(monkeypatch):
    monkeypatch.setattr(kernels, "FINDINGS", [])


def run(recipe, violated, text, not_run=0):
    counts = {"held": 3, "violated": violated, "not applicable": 1, "not run": not_run}
    report = {"counts": counts, "coverage": {"calls": 7, "left_out": 2, "line": "largest: n_k 64."}, "seconds": 12.4}
    return Run(recipe, report, PRINTED.format(text), "attention  4 calls\n")


def test_a_failure_is_shown_without_the_hint_on_options():
    wrong = []
    page = markdown([run(ONE, 1, RECIPES[ONE]), run(NONE, 0, "")], wrong)
    assert not wrong
    assert page.count("the smallest input") == 1
    assert "-v prints" not in page
    assert f"| [{ONE}](#{ONE}) | 3 | 1 | 1 |  | 7 | 2 | 12 |" in page
    assert page.count("attention  4 calls") == 2


def test_a_kernel_that_ends_its_process_may_leave_checks_that_are_not_run():
    assert not run(ONE, 1, f"{RECIPES[ONE]}, killed the process: SIGSEGV,", not_run=1).wrong
    assert run(ONE, 1, RECIPES[ONE], not_run=1).wrong == f"{ONE} was not run."


@pytest.mark.parametrize(
    "changed",
    [run(ONE, 1, "another thing"), run(NONE, 1, "a thing"), run(NONE, 0, "", not_run=1)],
    ids=lambda each: each.recipe,
)
def test_a_verdict_that_changed_is_told(changed):
    wrong = []
    markdown([changed], wrong)
    assert len(wrong) == 1
    assert changed.recipe in wrong[0]
