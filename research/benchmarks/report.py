"""Prints the benchmarks as wide as the terminal, or wide enough for every column without a
terminal, and saves the same text to a file.
"""

import sys
from pathlib import Path

from rich.console import Console

__all__ = ["console", "save"]

WIDTH = 140


def console() -> Console:
    """The console of a terminal or of a pipe, which keeps what it prints."""
    return Console(record=True, width=None if sys.stdout.isatty() else WIDTH)


def save(printed: Console, output: Path | None) -> None:
    """Write what a console has printed to a text file, if one is given."""
    if output:
        lines = printed.export_text(styles=False).splitlines()
        output.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
