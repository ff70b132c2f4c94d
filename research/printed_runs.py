"""Writes what the command prints today into README.md and two pages of the guide: `make printed-runs`.

A page holds runs. A run is a `console` block with a command, and right behind it a `text` block with
what the command printed. The Python files that the page shows before it are the user's files.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from research.stamp import ROOT

__all__ = ["COLUMNS", "PAGES", "Run", "printed", "runs", "steady"]

PAGES = ("README.md", "docs/guide/portraits.md", "docs/guide/verdicts.md")
"""The pages that show runs."""

COLUMNS = "100"
"""The width that pages are printed for."""

_BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ attnspec (.*?)(?: {2,}#.*)?$", re.MULTILINE)

_OPTIONS = {"verify": ("--jobs", "1"), "inspect": ()}
"""The options that are not shown, for each subcommand."""


def _last_line(words: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:\x1b\[[\d;]*m)*{words}(?:\x1b\[0m)?\n*\Z", re.MULTILINE)  # in colours, or plain


_VERDICTS: Mapping[str, Mapping[int, re.Pattern[str]]] = {
    "verify": {1: _last_line(r"\d+ pass(?:es)?, [1-9]\d* fails?(?:, \d+ [a-z ]+)* \(\d+\.\d s\)")},
    "inspect": {
        0: _last_line(r"No anomaly, (?:no|\d+) questions? \([^)]*\)"),
        1: _last_line(r"\d+ anomal(?:y|ies), (?:no|\d+) questions? \([^)]*\)"),
    },
}
"""The last line that a run may have, for each subcommand and each exit status that a page may show."""


@dataclass(frozen=True)
class Run:
    """A command that a page shows, and what it printed.

    files      the text of each Python file that the page shows before it, by name
    arguments  the arguments of `attnspec`
    shown      what the page says that the command prints
    place      where `shown` begins and ends in the page
    """

    files: Mapping[str, str]
    arguments: tuple[str, ...]
    shown: str
    place: tuple[int, int]

    def printed(self, options: Sequence[str] = (), **environment: str) -> str:
        """Return what the command prints today. Raises RuntimeError unless it ends with a verdict and
        its exit status: for `verify`, which should print a violation, 1.
        """
        subcommand = self.arguments[0]
        with TemporaryDirectory() as folder:
            for name, text in self.files.items():
                Path(folder, name).write_text(text, "utf-8")
            path = os.pathsep.join([folder, str(ROOT)])
            process = subprocess.run(
                [sys.executable, "-m", "attnspec", *self.arguments, *_OPTIONS[subcommand], *options],
                cwd=folder,
                env={**os.environ, "COLUMNS": COLUMNS, "PYTHONPATH": path, **environment},
                capture_output=True,
                text=True,
                check=False,
            )
        verdict = _VERDICTS[subcommand].get(process.returncode)
        if verdict is None or not verdict.search(process.stdout):
            raise RuntimeError(
                f"attnspec {shlex.join(self.arguments)} should end with a verdict and status "
                f"{' or '.join(map(str, _VERDICTS[subcommand]))}, but has status {process.returncode}.\n"
                f"{process.stdout}{process.stderr}"
            )
        return re.sub(r"[ \t]+$", "", process.stdout, flags=re.MULTILINE)


def runs(page: str) -> list[Run]:
    """Return the runs of a page, in order."""
    return list(_runs(page))


def printed(page: str) -> str:
    """Return the page with what its commands print today. A text that differs only in what changes
    from run to run stays.
    """
    for run in reversed(runs(page)):
        text, (start, end) = run.printed(), run.place
        if steady(text) != steady(run.shown):
            page = page[:start] + text + page[end:]
    return page


def steady(text: str) -> str:
    """Return a text without what changes from run to run or from machine to machine: times, and what
    changes the bits of a result.
    """
    text = re.sub(r"^ +bits .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\d[\d.]*(?:e[-+]?\d+)? (?:ns|µs|ms|s)\b", "# s", text)


def _runs(page: str) -> Iterator[Run]:
    files: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    for block in _BLOCK.finditer(page):
        language, text = block.groups()
        if language == "text" and arguments:
            yield Run(dict(files), arguments, text, block.span(2))
        commands = _COMMAND.findall(text.replace("\\\n", " ")) if language == "console" else []
        arguments = tuple(shlex.split(commands[-1])) if commands else ()
        if language == "python" and (named := re.match(r"# (\w+\.py)\n", text)):
            files[named[1]] = text


if __name__ == "__main__":
    for file in PAGES:
        (ROOT / file).write_text(printed((ROOT / file).read_text("utf-8")), "utf-8")
