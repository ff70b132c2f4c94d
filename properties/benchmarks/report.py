"""How the benchmarks print: as wide as the terminal, or wide enough for every column where there is none."""

import sys
from typing import TextIO

from rich.console import Console

__all__ = ["console"]

WIDTH = 140


def console(file: TextIO | None = None) -> Console:
    """The console of a terminal, of a pipe or of a text file."""
    target = file or sys.stdout
    return Console(file=target, width=None if target.isatty() else WIDTH)
