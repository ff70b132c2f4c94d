"""The published findings are what is measured today, and each is one."""

from pathlib import Path

import pytest

from research.findings.page import FINDINGS, declared, errata, findings

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda f: f"{f.system}: {f.title}")
def test_a_finding_differs_from_what_was_to_be_expected(finding):
    seen = finding.measure()
    assert seen.actual != seen.expected
    assert finding.detail.endswith(".")


def test_the_page_has_the_measurements_of_today():
    assert "\n".join(findings()) in PAGE
    assert "\n".join(errata()) in PAGE


def test_the_page_has_every_declared_deviation():
    for reason, where in declared().items():
        assert reason in PAGE
        for implementation, law in where:
            assert implementation.name in PAGE
            assert law in PAGE
