"""Writes docs/reports: a page for each library with a report for each defect, and a page with the tables of all.

A report has a title, versions, a script that needs the library alone, what it should print, what it
printed, and the cause. The data are the files of research/findings and what the scripts printed
when docs/peers.md and docs/native.md were written. A report that names threads says what was found
upstream in November 2026: comment there, and open no second thread.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from research import native, peers
from research.findings.library import LibraryFinding
from research.reports.trackers import TRACKERS, Tracker
from systems.native import recipes

__all__ = ["FOLDER", "main", "parts", "texts"]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/reports"
_PAGES = ("docs/peers.md", "docs/native.md")
_CONSTRAINTS = ROOT / "systems/peers/constraints.txt"
_ERROR = re.compile(r"(Error|Exception|Failed)\b")
_INTRODUCTION = """\
# Reports for maintainers

`python -m research.reports` writes these files. A page has the reports about one library, for its tracker. Where the
library has a form for bug reports, each text stands under the heading of the form.

Before you report a defect: run the script with the newest release, read the threads that the report names, and read
the rule of the tracker on its page. Some trackers take only texts in your own words; there, the page is material
for your own words. The form may have changed since the revision that the page names.

The order is by the stars of the repository. A column says who counted them, and when. Libraries whose stars were not
found stand at the end."""
_REVIEWED = """
## Ten reports, compared with the form of the library

The ten libraries are chosen from twelve. The other two, keras and mlx-lm, have no form. A heading is followed by the
parts of the report that stand under it, in brackets; other headings have a fixed text on the page. In November
2026 nine scripts were run again. The one of mlx was not, since its compiled library was missing.

| library | report | severity | required headings | what changed |
|---|---|---|---|---|"""


def _versions() -> dict[str, str]:
    """The pinned version of each library."""
    pinned = re.findall(r"^([\w.-]+)==(\S+)$", _CONSTRAINTS.read_text("utf-8"), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in pinned} | recipes.LIBRARIES


def _measured(page: str, finding: LibraryFinding, field: str) -> str:
    """A field of a finding on the page that measured it; "" if it is not there."""
    _, _, section = page.partition(f"\n#### {finding.name}\n")
    found = re.search(rf"^\| {field} \| (.*) \|$", section.partition("\n#### ")[0], re.MULTILINE)
    return found[1].replace("\\|", "|") if found else ""


def _severity(actual: str) -> str:
    """What the caller notices, by what the script printed."""
    return (
        "the call raises an error" if _ERROR.search(actual) else "the call returns a wrong result and raises no error"
    )


def parts(finding: LibraryFinding, page: str, versions: dict[str, str]) -> dict[str, str]:
    """The parts of a report that a form may name, and the version of each library under its name."""
    actual = _measured(page, finding, "actual")
    line = f", `{finding.line.strip().splitlines()[-1].strip()}`" if finding.line else ""
    report = {
        "detail": finding.detail.strip(),
        "script": f"```python\n{finding.script.strip()}\n```",
        "expected": f"Expected: `{finding.expected}`",
        "actual": f"Actual: {actual}",
        "severity": f"Severity: {_severity(actual)}.",
        "cause": f"Cause: {_measured(page, finding, 'source')}{line}",
    }
    environment = f"{finding.library} {versions[finding.library.lower()]}, Python 3.11, Linux, on the CPU."
    output = f"```text\n{actual.strip('`')}\n```"
    return versions | report | {"report": "\n\n".join(report.values()), "environment": environment, "output": output}


def _report(finding: LibraryFinding, tracker: Tracker, values: dict[str, str]) -> str:
    """The report of a defect, under the headings of the form."""
    title = f"## {tracker.prefix}{finding.title}"
    sections = [
        "\n\n".join([*([f"### {heading}"] if heading else []), text.format(**values)])
        for heading, text in tracker.sections.items()
    ]
    return "\n\n".join([title, f"Threads: {finding.known}.", *sections]) + "\n"


def _head(library: str, tracker: Tracker) -> Iterator[str]:
    """What the reporter must know before the first report of a page."""
    yield f"# Reports about {library}\n"
    if tracker.form:
        yield f"- Tracker: {tracker.repository}"
        yield f"- Form: {tracker.form}, in the revision {tracker.revision[:12]}"
        yield f"- Required headings: {'; '.join(tracker.required)}"
    if tracker.environment:
        yield f"- Versions of your machine: `{tracker.environment}`"
    if tracker.rule:
        yield f"- Rule: {tracker.rule}"
    if tracker.form or tracker.rule:
        yield ""


def texts() -> dict[str, str]:
    """{name of a file: its text}: a page for each library, with a report for each measured defect, and the tables."""
    page, versions = "".join((ROOT / name).read_text("utf-8") for name in _PAGES), _versions()
    defects: dict[str, list[LibraryFinding]] = {}
    for finding in (*native.FINDINGS, *peers.FINDINGS):
        if finding.cause == "defect" and _measured(page, finding, "actual"):
            defects.setdefault(finding.library, []).append(finding)
    files = {"README.md": "\n".join([_INTRODUCTION, *_libraries(defects, versions), *_reviews(defects, page), ""])}
    for library, findings in defects.items():
        reports = [_report(finding, _tracker(library), parts(finding, page, versions)) for finding in findings]
        files[f"{library}.md"] = "\n".join([*_head(library, _tracker(library)), *reports])
    return files


def _tracker(library: str) -> Tracker:
    """The tracker of a library. Without a table its reports have no headings."""
    return TRACKERS.get(library, Tracker())


def _by_stars(library: str) -> tuple[int, str]:
    """The key that sorts libraries: most stars first, then by name."""
    return -_tracker(library).stars, library


def _libraries(defects: dict[str, list[LibraryFinding]], versions: dict[str, str]) -> Iterator[str]:
    """The table of all libraries: the number of reports, and how many of them name a thread upstream."""
    yield "\n| library | version | reports | with a thread | repository | stars | counted by | form |"
    yield "|---|---|---|---|---|---|---|---|"
    for library in sorted(defects, key=_by_stars):
        tracker, findings = _tracker(library), defects[library]
        known = sum(finding.known != "none found" for finding in findings)
        form = Path(tracker.form).name or ("none" if tracker.revision else "")
        yield (
            f"| [{library}]({library}.md) | {versions[library.lower()]} | {len(findings)} | {known or ''} | "
            f"{tracker.repository} | {tracker.stars or ''} | {tracker.counted} | {form} |"
        )


def _heading(heading: str, text: str) -> str:
    """A heading, and in brackets the parts of a report that stand under it."""
    names = ", ".join(re.findall(r"{(\w+)}", text))
    return f"{heading} [{names}]" if names else heading


def _reviews(defects: dict[str, list[LibraryFinding]], page: str) -> Iterator[str]:
    """The table of the reports that were compared with a form: where the text of each required heading comes from."""
    yield _REVIEWED
    for library in sorted((name for name in TRACKERS if TRACKERS[name].reviewed), key=_by_stars):
        tracker = TRACKERS[library]
        (finding,) = (finding for finding in defects[library] if finding.title == tracker.reviewed)
        headings = "; ".join(_heading(name, tracker.sections[name]) for name in tracker.required)
        severity = _severity(_measured(page, finding, "actual"))
        yield f"| [{library}]({library}.md) | {finding.title} | {severity} | {headings} | {tracker.changes} |"


def main() -> None:
    """Write the files, and remove the files of libraries without a defect."""
    FOLDER.mkdir(exist_ok=True)
    written = texts()
    for file in FOLDER.iterdir():
        if file.name not in written:
            file.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, "utf-8")
