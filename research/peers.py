"""Writes docs/peers.md, the findings about released libraries with inputs to paste, from reports of
`attnspec verify --json`. `make peers` runs it.

    python -m research.peers build/peers/*.json

The page has a matrix of libraries and kinds of operations, the laws that are declared not to hold,
and every finding. A separate process runs each script. A report may have a part of the libraries;
if several reports have the same one, the newest counts. The exit status is 1 if a law that is not
declared is broken, or if a finding no longer happens.
"""

import argparse
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from properties.contract.operations import OPERATIONS
from properties.verifier.report_file import read
from properties.views.html.environment import processor
from research.findings.confirmed import confirmed
from research.findings.library import CAUSES, FAMILIES, LibraryFinding
from research.findings.loader import read as read_findings
from systems.peers import GROUPS
from systems.peers.transformers_models import DEVIATIONS, MODELS, PATHS, compared

__all__ = ["FINDINGS", "families", "markdown"]

FINDINGS = read_findings(Path(__file__).parent / "findings" / "libraries", LibraryFinding)
"""All findings about released libraries."""

_ROWS = {i.name.split()[0]: library for library, each in GROUPS.items() for i in each}
"""The library, as the matrix has it, of each distribution, by whose name the names of implementations begin."""

Row = dict[str, Any]
Cells = dict[tuple[str, str], list[LibraryFinding]]


def families() -> dict[str, str]:
    """{operation: the column of the matrix that it is in}."""
    return {
        operation: next(family for family, names in FAMILIES.items() if any(operation.startswith(n) for n in names))
        for operation in OPERATIONS
    }


def _rows(reports: Sequence[dict[str, Any]]) -> list[Row]:
    """The outcomes of all reports, in the order of the registry, each with its library. The last
    report that could run a law counts.
    """
    groups = {entry["name"]: entry["group"] for report in reports for entry in report["settings"]["implementations"]}
    finding: dict[tuple[str, str, str], Row] = {}
    for row in (row for report in reports for row in report["outcomes"]):
        key = row["implementation"], row["operation"], row["law"]
        if key not in finding or row["status"] != "not run":
            finding[key] = row | {"group": groups[row["implementation"]]}
    return sorted(finding.values(), key=lambda row: _place(row["group"]))


def _place(library: str) -> tuple[int, str]:
    """What libraries are sorted by: their order in the registry, and behind them the names of others."""
    return list(GROUPS).index(library) if library in GROUPS else len(GROUPS), library


def _cells() -> Cells:
    """{(library, family): its findings}, in the order of the matrix."""
    cells: Cells = {}
    for finding in FINDINGS:
        cells.setdefault((_ROWS.get(finding.library, finding.library), finding.family), []).append(finding)
    return dict(sorted(cells.items(), key=lambda cell: (_place(cell[0][0]), list(FAMILIES).index(cell[0][1]))))


def _laws(rows: Sequence[Row]) -> str:
    """How many laws held, are declared not to hold, had budgets too wide to decide, and are
    violated; or "not run here".
    """
    count = Counter(row["status"] for row in rows)
    counts = [
        (count["held"] + count["suspicious"], "held"),
        (count["declared"], "declared not to hold"),
        (count["vacuous"], "undecided"),
        (count["violated"], "**violated**"),
    ]
    if text := ", ".join(f"{n} {label}" for n, label in counts if n):
        return text
    return "not run here" if count["not run"] else ""


def _anchor(library: str, family: str) -> str:
    """What a link to the heading of some findings has, as GitHub and MyST make it."""
    return "#" + f"{library}, {family}".lower().replace(",", "").replace(" ", "-")


def _link(library: str, family: str, findings: Sequence[LibraryFinding]) -> str:
    """The number of findings of each cause, as a link to their heading; "" without findings."""
    count = Counter(finding.cause for finding in findings)
    singular, plural = ("defect", "convention", "of arithmetic"), ("defects", "conventions", "of arithmetic")
    text = ", ".join(
        f"{count[cause]} {(singular if count[cause] == 1 else plural)[i]}"
        for i, cause in enumerate(CAUSES)
        if count[cause]
    )
    return f"[{text}]({_anchor(library, family)})" if text else ""


def _matrix(rows: Sequence[Row], cells: Cells) -> Iterator[str]:
    column = families()
    yield f"| library | {' | '.join(FAMILIES)} |"
    yield "|---" * (len(FAMILIES) + 1) + "|"
    for library in sorted({row["group"] for row in rows} | {library for library, _ in cells}, key=_place):
        texts = []
        for family in FAMILIES:
            laws = _laws([row for row in rows if row["group"] == library and column[row["operation"]] == family])
            link = _link(library, family, cells.get((library, family), []))
            texts.append("; ".join(filter(None, (laws, link))))
        yield f"| {library} | {' | '.join(texts)} |"


def _implementations(rows: Sequence[Row]) -> Iterator[str]:
    """The tested implementations of each library, with their versions, and why some were not run."""
    yield "| library | implementation | |\n|---|---|---|"
    for library in dict.fromkeys(row["group"] for row in rows):
        for name in dict.fromkeys(row["implementation"] for row in rows if row["group"] == library):
            own_findings = [row for row in rows if row["implementation"] == name]
            reasons = {row["reason"] for row in own_findings if row["status"] == "not run"}
            yield f"| {library} | {name} | {'not run here: ' + ' '.join(sorted(reasons)) if reasons else ''} |"


def _declared(rows: Sequence[Row]) -> Iterator[str]:
    """The laws that are declared not to hold, by reason, which is the title of a finding."""
    places = {
        finding.title: _anchor(_ROWS.get(finding.library, finding.library), finding.family) for finding in FINDINGS
    }
    declared = [row for row in rows if row["status"] == "declared"]
    for reason in dict.fromkeys(row["reason"] for row in declared):
        where = [row for row in declared if row["reason"] == reason]
        names = ", ".join(dict.fromkeys(row["implementation"] for row in where))
        laws = "; ".join(dict.fromkeys(f"{row['law']} [{row['operation']}]" for row in where))
        yield f"\n[{reason}]({places[reason]})\n\n- {names}\n- {laws}"


def _findings(cells: Cells, before: str, wrong: list[str]) -> Iterator[str]:
    """Every finding under a heading for each cell, measured by two scripts at a time. Adds to
    `wrong` a finding that no longer happens, or whose output differs from the page before.
    """
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda finding: find_spec(finding.module.split(".")[0]) and finding.actual, FINDINGS))
    for (library, family), own_findings in cells.items():
        yield f"\n### {library}, {family}"
        for finding in own_findings:
            try:
                yield from list(finding.markdown(confirmed(finding)))
                if (seen := _seen(before, finding)) not in ("", finding.actual):
                    wrong.append(
                        f"{finding.name} prints {finding.actual} now, and printed {seen} before: look at it again."
                    )
            except ImportError as missing:
                yield f"\n#### {finding.name}\n\nNot run here: {missing}."
            except ValueError as changed:
                wrong.append(str(changed))


def _seen(page: str, finding: LibraryFinding) -> str:
    """What the script of a finding printed when a page was written; "" where it is not there."""
    _, _, own_findings = page.partition(f"### {finding.name}\n")
    return own_findings.partition("| actual | `")[2].partition("` |\n")[0].replace("\\|", "|")


def _models(wrong: list[str]) -> Iterator[str]:
    """Whole decoders: the error ÷ bound of each path, compared with the eager path on whole
    sequences. Adds to `wrong` a path that differs from its declaration.
    """
    if not find_spec("transformers"):
        yield "Not run here: transformers is not installed."
        return
    yield f"| model | {' | '.join(PATHS)} |"
    yield "|---" * (len(PATHS) + 1) + "|"
    missing: dict[str, list[str]] = {}
    for model in MODELS:
        cells = []
        for path, finding in compared(model):
            declared = (model.name, path) in DEVIATIONS
            if finding.missing:
                reason = finding.missing.partition(". ")[0].rstrip(".")
                reason = reason.replace(model.config.removesuffix("Config"), "…")
                missing.setdefault(reason, []).append(f"{model.name} ({path})")
            if finding.agree == declared:
                wrong.append(f"{model.name} by {path} {'agrees' if declared else 'disagrees'} with the eager path.")
            ratio = f"**{finding.ratio:.2g}**" if declared else f"{finding.ratio:.2g}"
            cells.append("–" if finding.missing else ratio)
        yield f"| {model.name} | {' | '.join(cells)} |"
    yield "\nWhat the library says about missing paths:\n"
    yield from (f"- {reason}: {', '.join(names)}." for reason, names in missing.items())


def markdown(reports: Sequence[dict[str, Any]], wrong: list[str], before: str = "", took: str = "") -> str:
    """The page; what is not as declared, or not as on the page before, is added to a list."""
    rows, cells, count = _rows(reports), _cells(), Counter(finding.cause for finding in FINDINGS)
    wrong += [
        f"{row_of_report['implementation']} breaks {row_of_report['law']} [{row_of_report['operation']}]."
        for row_of_report in rows
        if row_of_report["status"] == "violated"
    ]
    examples = " or ".join(map(str, sorted({report["settings"]["max_examples"] for report in reports})))
    lines = [
        "# Released libraries under the suite",
        "",
        f"Written by `make peers`, on {platform.system()} with Python {platform.python_version()}, on {os.cpu_count()}",
        f"cores of {processor()}, without a graphics processor.",
        "`systems/peers/constraints.txt` has the versions of the libraries. The verdicts come from",
        f"`--max-examples` {examples}. {took}".rstrip(),
        "",
        "A law counts for each operation of each implementation. The laws that are declared not to hold are below, by",
        "their reason. After a release that corrects one, `make peers` fails until the declaration is removed. The",
        "laws do not run on whole models: [below](#whole-decoders), their paths are compared. The number of",
        "findings in a cell is a link to them.",
        "",
        *_matrix(rows, cells),
        "",
        "## Implementations under test",
        "",
        *_implementations(rows),
        "",
        "## Laws that are declared not to hold",
        *_declared(rows),
        "",
        "## Whole decoders",
        "",
        "Tiny models without weights. A cell is the distance between the logits of a path and the logits of the",
        "eager path on whole sequences, in units of a bound (`systems.peers.transformers_models` derives it,",
        "without a proof). Bold: declared, by a finding below. –: the model does not have this path.",
        "",
        *_models(wrong),
        "",
        "## What was found",
        "",
        f"{len(FINDINGS)} findings: {', '.join(f'{count[cause]} of cause {cause}' for cause in CAUSES)}.",
        "Each script needs the library alone, and ran in a separate process when this page was written. A *defect*",
        "contradicts the library's documentation, or the library itself; a *convention* is one of several in use;",
        "*arithmetic* is a number that its type does not hold. Twenty of the findings that expect numbers were",
        "drawn by chance, and mpmath alone computed their numbers again, as they say. The line of each finding was",
        "looked up in the source of the installed library. Trackers were searched in November 2026: *none found* is",
        "the result of a search, not a proof.",
        *_findings(cells, before, wrong),
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m research.peers", description=__doc__)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, default=Path("docs/peers.md"))
    parser.add_argument("--took", type=Path, help="a file that says how long it took")
    options = parser.parse_args()
    problems: list[str] = []
    by_age = sorted(options.reports, key=lambda file: file.stat().st_mtime)
    last = options.output.read_text("utf-8") if options.output.exists() else ""
    told = options.took.read_text("utf-8") if options.took and options.took.exists() else ""
    options.output.write_text(markdown([read(file) for file in by_age], problems, last, told), "utf-8")
    sys.exit("\n".join(problems) or 0)
