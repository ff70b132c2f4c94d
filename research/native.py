"""Writes docs/native.md, the verdicts of native runtimes and the findings about them, from a report of
`attnspec verify --json`. `make native` runs it.

    python -m research.native build/native/report.json

A separate process runs the script of each finding. The exit status is 1 if a law that is not
declared is broken, or if a finding no longer happens.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from properties.verifier.report_file import read
from research.findings.library import LibraryFinding, shown
from research.findings.loader import read as read_findings

__all__ = ["FINDINGS", "markdown"]

FINDINGS = read_findings(Path(__file__).parent / "findings" / "native", LibraryFinding)
"""All findings about native runtimes."""

Row = dict[str, Any]
_COLUMNS = {"held": "pass", "declared": "fail as declared", "violated": "fail", "not applicable": "do not apply"}


def _verdicts(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each implementation: how many laws have which outcome, and the largest error in limits if no law
    fails.
    """
    yield f"| implementation | {' | '.join(_COLUMNS.values())} | not run | largest error ÷ limit if none fails |"
    yield "|---" * (len(_COLUMNS) + 3) + "|"
    for name in dict.fromkeys(row["implementation"] for row in rows):
        own = [row for row in rows if row["implementation"] == name]
        count = Counter(row["status"] for row in own)
        worst = max((float(row["worst_excess"]) for row in own if row["status"] == "held"), default=0.0)
        numbers = [str(count[status] or "") for status in (*_COLUMNS, "not run")]
        yield f"| {name} | {' | '.join(numbers)} | {'' if count['declared'] or count['violated'] else f'{worst:.2g}'} |"


def _declared(rows: Sequence[Row]) -> Iterator[str]:
    """The laws that are declared to fail, by the title of the finding that explains them."""
    declared = [row for row in rows if row["status"] == "declared"]
    for reason in dict.fromkeys(row["reason"] for row in declared):
        names = dict.fromkeys(row["implementation"] for row in declared if row["reason"] == reason)
        laws = dict.fromkeys(row["law"] for row in declared if row["reason"] == reason)
        yield f"\n{reason}\n\n- {', '.join(names)}\n- {'; '.join(laws)}"


def markdown(report: dict[str, Any], wrong: list[str]) -> str:
    """The page. What differs from the declarations is added to a list."""
    rows = report["outcomes"]
    wrong += [
        f"{row['implementation']} breaks {row['law']} [{row['operation']}]."
        for row in rows
        if row["status"] == "violated"
    ]
    lines = [
        "# Native runtimes under the suite",
        "",
        "`make native` installs or builds each runtime in its pinned version (`systems/native/recipes.py`), checks the",
        "laws on it, and writes this page. The processor decides which paths run: OpenVINO has float16 on some",
        "processors only. A law that is declared to fail is explained by a finding below.",
        "",
        *_verdicts(rows),
        "",
        "## Laws that are declared to fail",
        *_declared(rows),
        "",
        "## What was found",
        "",
        "Each script needs the library alone, and ran in a separate process when this page was written. The scripts",
        "for ggml run in this repository after `python -m systems.native ggml`. Trackers were searched in November",
        "2026: *none found* is the result of a search, not a proof.",
        *shown(FINDINGS, wrong),
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m research.native", description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--output", type=Path, default=Path("docs/native.md"))
    options = parser.parse_args()
    problems: list[str] = []
    options.output.write_text(markdown(read(options.report), problems), "utf-8")
    sys.exit("\n".join(problems) or 0)
