"""docs/peers.md: what released libraries do, on inputs to paste: `make peers` writes it, of reports by `attnspec verify --json`.

    python -m properties.measurements.peers build/peers/*.json

A matrix of libraries and kinds of operations; the laws that are declared not to hold; and every finding, each script run in a process of
its own. The exit status is 1 where a law is broken that is not declared, and where a finding no longer happens.
"""

import argparse
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from properties.contract.operations import OPERATIONS
from properties.measurements.findings.shown import CAUSES, Shown
from properties.verifier.reading import read

__all__ = ["FINDINGS", "families", "markdown"]

_MODULES = ("rotary_peers", "peers_jax", "peers_keras", "peers_mlx", "peers_torch")
_PACKAGE = "properties.measurements.findings"
FINDINGS: list[Shown] = [
    found for name in _MODULES if find_spec(f"{_PACKAGE}.{name}") for found in import_module(f"{_PACKAGE}.{name}").FINDINGS
]
"""All findings about released libraries."""

_FAMILIES = {
    "attention": ("scaled_dot_product", "causal_attention", "grouped_query", "attention", "merge"),
    "multi-head attention": ("multi_head",),
    "caches": ("decode",),
    "masks": ("causal_mask", "padding_mask", "combine_masks", "hard_masked_softmax"),
    "rotary": ("rope", "rotary", "apply_rotary", "rotate_half", "inv_freq"),
    "positions and biases": ("sinusoidal", "add_positional", "learned", "table_lookup", "alibi"),
}
"""The columns of the matrix: the operations of a kind, by the beginnings of their names."""

Row = dict[str, Any]


def families() -> dict[str, str]:
    """{operation: the column of the matrix that it is in}."""
    return {o: next(family for family, names in _FAMILIES.items() if any(o.startswith(n) for n in names)) for o in OPERATIONS}


def _rows(reports: Sequence[dict[str, Any]]) -> list[Row]:
    """The outcomes of all reports, with the library of each; what one report could not run is taken from another that could."""
    groups = {entry["name"]: entry["group"] for report in reports for entry in report["settings"]["implementations"]}
    found: dict[tuple[str, str, str], Row] = {}
    for row in (row for report in reports for row in report["outcomes"]):
        key = row["implementation"], row["operation"], row["law"]
        if key not in found or found[key]["status"] == "not run":
            found[key] = row | {"group": groups[row["implementation"]]}
    return list(found.values())


def _cell(rows: Sequence[Row]) -> str:
    """How many laws held, are declared not to hold, had budgets too wide to say, and are broken besides; that nothing was run."""
    count = Counter(row["status"] for row in rows)
    told = [
        (count["held"] + count["suspicious"], "held"),
        (count["declared"], "declared not to hold"),
        (count["vacuous"], "undecided"),
        (count["violated"], "**violated**"),
    ]
    if text := ", ".join(f"{n} {what}" for n, what in told if n):
        return text
    return "not run here" if count["not run"] else ""


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    column = families()
    yield f"| library | {' | '.join(_FAMILIES)} |"
    yield "|---" * (len(_FAMILIES) + 1) + "|"
    for library in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == library]
        cells = [_cell([row for row in own if column[row["operation"]] == family]) for family in _FAMILIES]
        yield f"| {library} | {' | '.join(cells)} |"


def _implementations(rows: Sequence[Row]) -> Iterator[str]:
    """What was put to the laws of each library, with its version, and why something was not run."""
    yield "| library | what of it | |\n|---|---|---|"
    for library in dict.fromkeys(row["group"] for row in rows):
        for name in dict.fromkeys(row["implementation"] for row in rows if row["group"] == library):
            own = [row for row in rows if row["implementation"] == name]
            reasons = {row["reason"] for row in own if row["status"] == "not run"}
            yield f"| {library} | {name} | {'not run here: ' + ' '.join(sorted(reasons)) if reasons else ''} |"


def _declared(rows: Sequence[Row]) -> Iterator[str]:
    """The laws that are declared not to hold, by reason."""
    declared = [row for row in rows if row["status"] == "declared"]
    for reason in dict.fromkeys(row["reason"] for row in declared):
        where = [row for row in declared if row["reason"] == reason]
        names = ", ".join(dict.fromkeys(row["implementation"] for row in where))
        laws = "; ".join(dict.fromkeys(f"{row['law']} [{row['operation']}]" for row in where))
        yield f"\n{reason}\n\n- {names}\n- {laws}"


def _findings(wrong: list[str]) -> Iterator[str]:
    """Every finding, two scripts at a time; what no longer happens is noted."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda found: find_spec(found.module.split(".")[0]) and found.actual, FINDINGS))
    for found in FINDINGS:
        try:
            yield from list(found.markdown())
        except ImportError as missing:
            yield f"\n### {found.library}: {found.title}\n\nNot run here: {missing}."
        except ValueError as changed:
            wrong.append(str(changed))


def markdown(reports: Sequence[dict[str, Any]], wrong: list[str]) -> str:
    """The page; what is not as declared is added to a list."""
    rows, count = _rows(reports), Counter(found.cause for found in FINDINGS)
    wrong += [f"{r['implementation']} breaks {r['law']} [{r['operation']}]." for r in rows if r["status"] == "violated"]
    lines = [
        "# Released libraries under the suite",
        "",
        f"Written by `make peers`, on one {platform.machine()} machine with {os.cpu_count()} cores, no GPU, {platform.system()}, Python",
        f"{platform.python_version()}. Versions are those of `properties/implementations/peers/constraints.txt`. Verdicts are those of",
        f"`--max-examples` {' or '.join(map(str, sorted({report['settings']['max_examples'] for report in reports})))}.",
        "",
        "A law counts for each operation of each implementation. What is declared not to hold is below, by its reason; a release that",
        "mends it fails `make peers` until the declaration is taken away.",
        "",
        *_matrix(rows),
        "",
        "## What was put to the laws",
        "",
        *_implementations(rows),
        "",
        "## Laws that are declared not to hold",
        *_declared(rows),
        "",
        "## What was found",
        "",
        f"{len(FINDINGS)} findings: {', '.join(f'{count[cause]} of cause {cause}' for cause in CAUSES)}. Each script needs the library",
        "alone, and was run in a process of its own when this page was written. A *defect* is at odds with the library's documentation, or",
        "with itself; a *convention* is one of several readings in use; *arithmetic* is what a type of numbers does not hold.",
        *_findings(wrong),
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m properties.measurements.peers", description=__doc__)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, default=Path("docs/peers.md"))
    options = parser.parse_args()
    problems: list[str] = []
    options.output.write_text(markdown([read(file) for file in options.reports], problems), "utf-8")
    sys.exit("\n".join(problems) or 0)
