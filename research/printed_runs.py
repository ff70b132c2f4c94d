"""Writes what the command prints today into README.md and docs/guide/verdicts.md: `make printed-runs`.

A page holds an adapter, the command that verifies it, and what the command printed, the first `text` block.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from research.stamp import ROOT

__all__ = ["PAGES", "adapter", "command", "printed", "shown"]

COLUMNS = "100"
"""The width that pages are printed for."""
_SHOWN = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)


def adapter(page: str) -> tuple[str, str]:
    """The name and the text of the file that a page verifies, its first Python block that begins with a file's name."""
    found = re.search(r"```python\n(# (\w+\.py)\n.*?)```", page, re.DOTALL)
    assert found is not None
    return found[2], found[1]


def command(page: str) -> list[str]:
    """The arguments of the command by which a page verifies that file, without the comment behind it."""
    found = re.search(r"^\$ attnspec (verify \w+[.:]\w+(?:.*\\\n)*.*?)(?: {2,}#.*)?$", page, re.MULTILINE)
    assert found is not None
    return shlex.split(found[1].replace("\\\n", " "))


def shown(page: str) -> str:
    """What a page says that the command prints."""
    found = _SHOWN.search(page)
    assert found is not None
    return found[0]


def printed(page: str) -> str:
    """The page with what its command prints today."""
    name, text = adapter(page)
    with TemporaryDirectory() as folder:
        Path(folder, name).write_text(text)
        run = subprocess.run(
            [sys.executable, "-m", "attnspec", *command(page), "--jobs", "1"],
            cwd=folder,
            env={**os.environ, "COLUMNS": COLUMNS, "PYTHONPATH": os.pathsep.join([folder, str(ROOT)])},
            capture_output=True,
            text=True,
            check=False,
        )
    last = run.stdout.rstrip().rpartition("\n")[2]
    if run.returncode != 1 or not re.fullmatch(r"\d+ held, [1-9]\d* violated(, \d+ [a-z ]+)*", last):
        raise RuntimeError(
            f"The command of {name} should print a violation, and end with a verdict and status 1.\n{run.stdout}{run.stderr}"
        )
    return _SHOWN.sub(lambda _: re.sub(r"[ \t]+$", "", run.stdout, flags=re.MULTILINE), page, count=1)


PAGES = ("README.md", "docs/guide/verdicts.md")
"""The pages that show a run."""


if __name__ == "__main__":
    for file in PAGES:
        (ROOT / file).write_text(printed((ROOT / file).read_text("utf-8")), "utf-8")
