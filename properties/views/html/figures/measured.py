"""Measurements that a checkout keeps in docs/, and that take minutes to make again."""

import json
import re
from pathlib import Path

__all__ = ["Judged", "criteria", "kills"]

_DOCS = Path(__file__).resolve().parents[4] / "docs"

Judged = dict[str, list[list[str]]]
"""{heading of a table: its rows, the first of which has the names of the columns}."""


def kills(folder: Path = _DOCS) -> dict[str, dict[str, int]] | None:
    """{bug: {law[operation]: examples until it was killed}} of docs/kill-matrix.json; None where there is no such file."""
    file = folder / "kill-matrix.json"
    if not file.exists():
        return None
    found: dict[str, dict[str, int]] = json.loads(file.read_text(encoding="utf-8"))["kills"]
    return found


def criteria(folder: Path = _DOCS) -> Judged | None:
    """The tables of docs/criteria.md by their headings; None where there is no such file."""
    file = folder / "criteria.md"
    if not file.exists():
        return None
    tables: Judged = {}
    heading = ""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("|") and not re.fullmatch(r"[|\- ]+", line):
            tables.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return tables
