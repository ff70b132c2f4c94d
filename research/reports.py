"""Writes docs/reports/, a text for the tracker of each library about each defect that was found in it.

    python -m research.reports

A text has a title, versions, a script that needs the library alone, what it should print, what it
printed, and the cause. The data are the files of research/findings and what the scripts printed when
docs/peers.md and docs/native.md were written. No script runs here. A report that names threads
says what was found upstream in November 2026: comment there, and open no second thread.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from research import native, peers
from research.findings.library import LibraryFinding
from systems.native import recipes

__all__ = ["FOLDER", "main", "texts"]

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/reports"
_PAGES = ("docs/peers.md", "docs/native.md")
_CONSTRAINTS = ROOT / "systems/peers/constraints.txt"


def _versions() -> dict[str, str]:
    """The pinned version of each library."""
    pinned = re.findall(r"^([\w.-]+)==(\S+)$", _CONSTRAINTS.read_text("utf-8"), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in pinned} | recipes.LIBRARIES


def _measured(page: str, finding: LibraryFinding, field: str) -> str:
    """A field of a finding on the page that measured it; "" if it is not there."""
    _, _, section = page.partition(f"\n#### {finding.name}\n")
    found = re.search(rf"^\| {field} \| (.*) \|$", section.partition("\n#### ")[0], re.MULTILINE)
    return found[1].replace("\\|", "|") if found else ""


def _text(finding: LibraryFinding, page: str, version: str) -> str:
    """The report of a defect."""
    threads = "" if finding.known == "none found" else f"Threads: {finding.known}.\n\n"
    return (
        f"## {finding.title}\n\n"
        f"{threads}{finding.library} {version}, Python 3.11, Linux, on the CPU.\n\n"
        f"{finding.detail.strip()}\n\n"
        f"```python\n{finding.script.strip()}\n```\n\n"
        f"Expected: `{finding.expected}`\n\n"
        f"Actual: {_measured(page, finding, 'actual')}\n\n"
        f"Cause: {_measured(page, finding, 'source')}"
        + (f", `{finding.line.strip().splitlines()[-1].strip()}`\n" if finding.line else "\n")
    )


def texts() -> dict[str, str]:
    """{name of a file: its text}: a file for each library, with a report for each measured defect, and a table."""
    page, versions = "".join((ROOT / name).read_text("utf-8") for name in _PAGES), _versions()
    defects: dict[str, list[LibraryFinding]] = {}
    for finding in (*native.FINDINGS, *peers.FINDINGS):
        if finding.cause == "defect" and _measured(page, finding, "actual"):
            defects.setdefault(finding.library, []).append(finding)
    files = {"README.md": "\n".join([*_table(defects, versions), ""])}
    for library, findings in defects.items():
        reports = [_text(finding, page, versions[library.lower()]) for finding in findings]
        files[f"{library}.md"] = "\n".join([f"# Reports about {library}\n", *reports])
    return files


def _table(defects: dict[str, list[LibraryFinding]], versions: dict[str, str]) -> Iterator[str]:
    """The table of all libraries: the number of reports, and how many of them name a thread upstream."""
    yield "# Reports for maintainers\n"
    yield "`python -m research.reports` writes these files. A section is the text of one report, for the tracker of the"
    yield "library. Run its script with the newest release first, and read the threads that it names.\n"
    yield "| library | version | reports | with a thread |\n|---|---|---|---|"
    for library, findings in sorted(defects.items()):
        known = sum(finding.known != "none found" for finding in findings)
        yield f"| [{library}]({library}.md) | {versions[library.lower()]} | {len(findings)} | {known or ''} |"


def main() -> None:
    """Write the files, and remove the files of libraries without a defect."""
    FOLDER.mkdir(exist_ok=True)
    written = texts()
    for file in FOLDER.iterdir():
        if file.name not in written:
            file.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
