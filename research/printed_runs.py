"""Writes what the command prints today into README.md and docs/guide/verdicts.md:
`make printed-runs`.

A page holds an adapter, the command that verifies it, and what the command printed, the first
`text` block.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from research.stamp import ROOT

__all__ = ["PAGES", "adapter", "command", "printed", "run", "shown"]

COLUMNS = "100"
"""The width that pages are printed for."""
_VERDICT = re.compile(
    r"^(?:\x1b\[[\d;]*m)*\d+ pass(?:es)?, [1-9]\d* fails?(?:, \d+ [a-z ]+)*(?:\x1b\[0m)?\n*\Z", re.MULTILINE
)  # in colours, or plain
_SHOWN = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)


def adapter(page: str) -> tuple[str, str]:
    """The name and the text of the file that a page verifies, its first Python block that begins with a file's name."""
    matched = re.search(r"```python\n(# (\w+\.py)\n.*?)```", page, re.DOTALL)
    assert matched is not None
    return matched[2], matched[1]


def command(page: str) -> list[str]:
    """The arguments of the command by which a page verifies that file, without the comment behind it."""
    matched = re.search(r"^\$ attnspec (verify \w+[.:]\w+(?:.*\\\n)*.*?)(?: {2,}#.*)?$", page, re.MULTILINE)
    assert matched is not None
    return shlex.split(matched[1].replace("\\\n", " "))


def shown(page: str) -> str:
    """What a page says that the command prints."""
    matched = _SHOWN.search(page)
    assert matched is not None
    return matched[0]


def run(page: str, options: Sequence[str] = (), **environment: str) -> str:
    """What the command of a page prints today. Raises RuntimeError unless it prints a violation,
    and ends with a verdict and status 1.
    """
    name, text = adapter(page)
    with TemporaryDirectory() as folder:
        Path(folder, name).write_text(text)
        process = subprocess.run(
            [sys.executable, "-m", "attnspec", *command(page), "--jobs", "1", *options],
            cwd=folder,
            env={**os.environ, "COLUMNS": COLUMNS, "PYTHONPATH": os.pathsep.join([folder, str(ROOT)]), **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    if process.returncode != 1 or not _VERDICT.search(process.stdout):
        raise RuntimeError(
            f"The command of {name} should print a violation, and end with a verdict and status 1.\n"
            f"{process.stdout}{process.stderr}"
        )
    return re.sub(r"[ \t]+$", "", process.stdout, flags=re.MULTILINE)


def printed(page: str) -> str:
    """The page with what its command prints today."""
    return _SHOWN.sub(lambda _: run(page), page, count=1)


PAGES = ("README.md", "docs/guide/verdicts.md")
"""The pages that show a run."""


if __name__ == "__main__":
    for file in PAGES:
        (ROOT / file).write_text(printed((ROOT / file).read_text("utf-8")), "utf-8")
