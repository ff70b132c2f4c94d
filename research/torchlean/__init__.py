"""docs/torchlean.md: what TorchLean changes after the revision that `spec` transcribes, and which
errata it mends.

`changes.toml` has what we read in Lean, declaration by declaration, and `page.md` the text.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spec.errata import ERRATA

__all__ = ["CHANGES", "markdown"]

HERE = Path(__file__).parent

CHANGES: dict[str, Any] = tomllib.loads((HERE / "changes.toml").read_text("utf-8"))
"""The revisions, the declarations of each file, and the changes that mend errata."""

_REVISIONS = {row["name"]: row for row in CHANGES["revision"]}


def _line(revision: str, file: str, line: int) -> str:
    """Return a link to a line of a file at a revision."""
    row = _REVISIONS[revision]
    return f"[{revision}, line {line}](https://github.com/{row['repository']}/blob/{row['commit']}/{file}#L{line})"


def _revisions() -> Iterator[str]:
    """Yield the row of each revision."""
    for name, row in _REVISIONS.items():
        address = f"https://github.com/{row['repository']}/commit/{row['commit']}"
        yield f"| {name} | [`{row['commit']}`]({address}) of {row['repository']} | {row['read']} |"


def _declarations() -> Iterator[str]:
    """Yield the table of each file."""
    for file in CHANGES["file"]:
        yield f"\n### `{file['seed']}`\n\nCompared with {file['now']}.\n"
        yield "| declaration | name now | change | values differ |\n|---|---|---|---|"
        for seed, now, change, values in file["declarations"]:
            name = {"": "the same", "–": "gone"}.get(now, f"`{now}`")
            yield f"| `{seed}` | {name} | {change or 'none'} | {values or 'no'} |"


def _errata() -> Iterator[str]:
    """Yield the row of each erratum, with what its law gives at the seed revision."""
    for mending in CHANGES["mending"]:
        seed, *later = (_line(revision, mending["file"], line) for revision, line in mending["lines"].items())
        for identifier in mending["errata"]:
            erratum = ERRATA[identifier]
            broken = erratum.law(erratum.literal)
            numbers = [", ".join(f"{x:.4g}" for x in found) for found in (broken.actual, broken.expected)]
            law = f"{erratum.law_says} Input: {broken.witness}.".replace("|", "\\|")
            row = [identifier, f"`{mending['declaration']}`, {seed}", law, *numbers, ", ".join(later)]
            yield f"| {' | '.join(row)} |"


def markdown() -> str:
    """Return the page."""
    rows = [row for file in CHANGES["file"] for row in file["declarations"]]
    return (
        (HERE / "page.md")
        .read_text("utf-8")
        .format(
            changed=sum(bool(values) for *_, values in rows),
            declared=len(rows),
            mended=sum(len(mending["errata"]) for mending in CHANGES["mending"]),
            errata=len(ERRATA),
            revisions="\n".join(_revisions()),
            declarations="\n".join(_declarations()),
            rows="\n".join(_errata()),
        )
    )
