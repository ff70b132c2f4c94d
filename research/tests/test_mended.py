"""Each kernel with a planted mistake fails, its mended version passes, and its report says what is wrong."""

import json
import re

import pytest

from properties.contract.meanings import meaning
from research.mended.__main__ import HERE, KERNELS, verify

PAGE = (HERE / "README.md").read_text("utf-8")
REPORTS = {name: json.loads((HERE / "reports" / f"{name}.json").read_text("utf-8")) for name in KERNELS}


def test_twenty_kernels_have_a_report_a_mended_version_and_a_row():
    assert len(KERNELS) == 20
    for folder, suffix in (("mended", "py"), ("reports", "json")):
        assert sorted(path.stem for path in (HERE / folder).glob(f"*.{suffix}")) == KERNELS
    assert sorted(re.findall(r"^\| (\w+) \|", PAGE, re.MULTILINE)) == sorted(["kernel", *KERNELS])


@pytest.mark.parametrize("name", KERNELS)
def test_a_report_says_what_is_wrong_where_and_for_which_input(name):
    """By a likely cause, by a measurement, or by a sentence that names the argument and what happened to it."""
    cause = REPORTS[name]["causes"][0]
    example = cause["example"]
    likely = [found for found in cause["diagnosis"] if not found["partial"]]
    assert likely or example["measured"] or "was written to" in example["summary"] or cause["diagnosis"]
    assert example["counterexample"]
    assert "properties.replay(" in example["script"]


def test_a_report_of_a_convention_says_what_its_values_mean():
    found = [diagnosis for report in REPORTS.values() for cause in report["causes"] for diagnosis in cause["diagnosis"]]
    conventions = [one for one in found if "or declare Conventions(" in one["repair"]]
    assert conventions
    for one in conventions:
        name, _, value = one["id"].partition("=")
        assert meaning(name, value) in one["mechanism"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_fails_and_its_mended_version_passes(name):
    assert verify(HERE / "kernels" / f"{name}.py", "--quick") == 1
    assert verify(HERE / "mended" / f"{name}.py", "--quick") == 0
