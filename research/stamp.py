"""The head of a page of measurements: its command, the revision and the machine that were measured,
and the minutes that it took.

    Command: `make gates`; revision: a42e1c8; machine: 2 cores of Intel(R) Xeon(R) Processor;
    minutes: 14.

A page in Markdown has this line below its title, a page of plain text has it as its first line.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from properties.views.html.environment import processor

__all__ = ["MEASURED", "Stamp", "machine", "read", "revision", "stamped"]

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("spec", "oracles", "properties", "systems", "research", "Makefile", "pyproject.toml", "constraints.txt")
"""The files that a measurement depends on. Pages are not among them: a commit of pages leaves the revision as it is."""
_HEAD = re.compile(
    r"^Command: `(.+?)`; revision: (.+?); machine: (.+?); minutes: (.+?)(?:; exit status: (\d+))?\.\n\n", re.MULTILINE
)


@dataclass(frozen=True)
class Stamp:
    """By which command a page was made, on which revision and machine, in how many minutes, and the
    exit status of the command.
    """

    command: str
    revision: str
    machine: str
    minutes: str
    status: int = 0

    def __str__(self) -> str:
        ended = f"; exit status: {self.status}" if self.status else ""
        measured = f"revision: {self.revision}; machine: {self.machine}; minutes: {self.minutes}"
        return f"Command: `{self.command}`; {measured}{ended}."


def read(page: str) -> Stamp | None:
    """The head of a page; None if it has no head."""
    matched = _HEAD.search(page)
    return Stamp(matched[1], matched[2], matched[3], matched[4], int(matched[5] or 0)) if matched else None


def stamped(page: str, stamp: Stamp) -> str:
    """The page with this head in the place of an earlier one."""
    page = _HEAD.sub("", page, count=1)
    title, blank, rest = page.partition("\n\n") if page.startswith("# ") else ("", "", page)
    return f"{title}{blank}{stamp}\n\n{rest}"


def revision() -> str:
    """The last commit that changed what is measured; it ends with "-dirty" where files differ from it."""
    last = _git("log", "-1", "--format=%h", "--", *MEASURED)
    return last + "-dirty" * bool(_git("status", "--porcelain", "--", *MEASURED))


def machine() -> str:
    """The number of cores, and the processor's name."""
    return f"{os.cpu_count()} cores of {processor()}"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
