"""The reports for maintainers are those of the findings and of the pages that measured them."""

import ast

import pytest

from research.reports import FOLDER, texts

TEXTS = texts()
NAMES = [name for name in TEXTS if name != "README.md"]


def test_the_folder_has_the_reports_and_nothing_else():
    assert {file.name: file.read_text("utf-8") for file in FOLDER.iterdir()} == TEXTS, (
        "`python -m research.reports` writes docs/reports again."
    )


@pytest.mark.parametrize("name", NAMES)
def test_each_report_has_versions_a_script_both_results_and_a_cause(name):
    _, *reports = TEXTS[name].split("\n## ")
    assert reports
    for report in reports:
        script = report.partition("```python\n")[2].partition("```")[0]
        assert ast.parse(script).body
        expected, actual, cause = (
            report.partition(f"\n{word}: ")[2].splitlines()[0] for word in ("Expected", "Actual", "Cause")
        )
        assert expected != actual
        assert cause
        assert ", Python 3.11, Linux, on the CPU." in report
        assert "attnspec" not in report
