"""Counts how much of the changed text is generated: `python -m research.churn`, of the last 400
commits.

    python -m research.churn cbecffb..HEAD
    python -m research.churn -400 cbecffb

The command counts two lists of generated files in the same commits. The first list has all files
that were generated and compared with the code at revision cbecffb. The second list has the files
among them that a push still makes again. The first share says what commits carried along, the
second what they still carry.
"""

import argparse
import re
import subprocess
from collections.abc import Iterator

from research.stamp import ROOT

__all__ = ["changed", "main", "share"]

AT_CBECFFB = re.compile(
    r"docs/[^/]+\.(json|txt)|docs/(kill-matrix|named|findings|peers|rotary|worst|criteria|small-mistakes)\.md"
    r"|docs/checkers\.\w+|docs/results/.*"
    r"|vectors/(data|onnx)/.*|vectors/MATRIX\.md|(properties|research)/vectors/chosen\.json|properties/laws/quick\.py"
)
"""The generated files, each compared with the code on every push."""
STILL = re.compile(r"vectors/(data|onnx)/.*|(properties|research)/vectors/chosen\.json|properties/laws/quick\.\w+")
"""The generated files that a push makes again: the data that the product reads, and the vectors of
the operations that changed.
"""


def changed(commits: list[str]) -> Iterator[tuple[str, int]]:
    """Each text file that a commit changes, by its name after the commit, and the number of lines added and removed."""
    log = ["git", "log", "--no-merges", "--numstat", "--format=", "-z", "--find-renames", *commits]
    fields = iter(subprocess.run(log, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"))
    for field in fields:
        if not field.strip():
            continue
        added, removed, name = field.strip("\n").split("\t")
        if not name:  # a renamed file: its two names follow
            next(fields)
            name = next(fields)
        if added != "-":  # not binary
            yield name, int(added) + int(removed)


def share(changes: list[tuple[str, int]], generated: re.Pattern[str]) -> tuple[int, int]:
    """The lines in generated files, and all lines."""
    return sum(lines for name, lines in changes if generated.fullmatch(name)), sum(lines for _, lines in changes)


def main(arguments: list[str] | None = None) -> int:
    """Print both shares."""
    parser = argparse.ArgumentParser(prog="python -m research.churn", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "commits", nargs="*", default=["-400"], help="as git log names them: cbecffb..HEAD, or -400 cbecffb (-400)"
    )
    changes = list(changed(parser.parse_args(arguments).commits))
    for label, generated in (("generated at cbecffb", AT_CBECFFB), ("still made on a push", STILL)):
        lines, total = share(changes, generated)
        print(
            f"{label}: {lines:,} of {total:,} changed text lines, {lines / total:.1%}"
            if total
            else f"{label}: no text line is changed"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
