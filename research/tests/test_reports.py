"""The reports for maintainers are those of the findings and of the pages that measured them."""

import ast
import re

import pytest

from research.reports.pages import FOLDER, texts
from research.reports.trackers import TRACKERS

TEXTS = texts()
NAMES = [name for name in TEXTS if name != "README.md"]
FORMS = {library: tracker for library, tracker in TRACKERS.items() if tracker.form}


def reports(name):
    """The reports of a page, each without the marks of its title."""
    return TEXTS[name].split("\n## ")[1:]


def section(report, heading):
    """The text under a heading of a report; "" without one."""
    return report.partition(f"\n### {heading}\n")[2].partition("\n### ")[0].strip()


def test_the_folder_has_the_reports_and_nothing_else():
    assert {file.name: file.read_text("utf-8") for file in FOLDER.iterdir()} == TEXTS, (
        "`python -m research.reports` writes docs/reports again."
    )


@pytest.mark.parametrize("name", NAMES)
def test_each_report_has_versions_a_script_both_results_a_severity_and_a_cause(name):
    assert reports(name)
    version = re.search(rf"\| \[{name[:-3]}\]\({name}\) \| (\S+) \|", TEXTS["README.md"])[1]
    for report in reports(name):
        script = report.partition("```python\n")[2].partition("```")[0]
        assert ast.parse(script).body
        expected, actual, severity, cause, threads = (
            report.partition(f"\n{word}: ")[2].splitlines()[0]
            for word in ("Expected", "Actual", "Severity", "Cause", "Threads")
        )
        assert expected != actual
        assert cause
        assert threads
        assert severity in {"the call raises an error.", "the call returns a wrong result and raises no error."}
        assert severity.endswith("an error.") == bool(re.search(r"Error\b|Exception|Failed", actual))
        assert {version, "3.11", "Linux", "CPU"} <= set(re.findall(r"[\w.]*\w", report))
        assert "attnspec" not in report


@pytest.mark.parametrize("library", FORMS)
def test_each_report_has_a_text_under_each_required_heading_of_the_form(library):
    tracker = FORMS[library]
    assert tracker.required
    assert set(tracker.required) <= set(tracker.sections)
    for report in reports(f"{library}.md"):
        assert report.startswith(tracker.prefix)
        assert [line[4:] for line in report.splitlines() if line.startswith("### ")] == list(tracker.sections)
        assert all(section(report, heading) for heading in tracker.required)
        assert not re.search(r"\{[a-z]+\}", re.sub(r"```.*?```", "", report, flags=re.DOTALL))


def test_ten_reports_are_compared_with_a_form():
    reviewed = {library: tracker for library, tracker in TRACKERS.items() if tracker.reviewed}
    assert len(reviewed) == 10
    for library, tracker in reviewed.items():
        assert tracker.form
        assert len(tracker.revision) == 40
        assert tracker.changes.endswith(".")
        assert f"## {tracker.prefix}{tracker.reviewed}\n" in TEXTS[f"{library}.md"]


def test_the_libraries_are_sorted_by_the_stars_of_their_repositories():
    rows = [line.split(" | ") for line in TEXTS["README.md"].splitlines() if line.startswith("| [")]
    counts = [row[5] for row in rows if len(row) == 8]
    stars = [int(count or 0) for count in counts]
    assert len(stars) == len(NAMES)
    assert stars == sorted(stars, reverse=True)


def test_a_number_of_stars_names_who_counted_it_and_when():
    for tracker in TRACKERS.values():
        assert bool(tracker.stars) == bool(re.fullmatch(r"[\w-]+/[\w-]+, 20\d\d-\d\d-\d\d", tracker.counted))


def test_every_tracker_belongs_to_a_page():
    assert {f"{library}.md" for library in TRACKERS} <= set(NAMES)
