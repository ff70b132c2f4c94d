"""What README.md and docs/guide/verdicts.md show of runs and counts, made again: `make numbers`.

A page holds an adapter, the command that verifies it, and what the command printed, the first `text` block.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from properties.bugs import CATALOGUE
from properties.contract.operations import OPERATIONS
from properties.laws import LAWS
from properties.verifier.plan import plan
from systems import GROUPS

__all__ = ["PAGES", "adapter", "command", "counted", "shown"]

ROOT = Path(__file__).resolve().parents[1]
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


def counted(page: str) -> str:
    """README with the counts of today: laws, operations, bugs, and for each system its implementations, laws and declared deviations."""
    found = re.sub(
        r"There are \d+ laws of \d+ operations, and \d+ known bugs",
        f"There are {len({law.name for law in LAWS})} laws of {len(OPERATIONS)} operations, and {len(CATALOGUE)} known bugs",
        page,
    )
    for system, group in GROUPS.items():
        present = [i for i in group if not i.unavailable or "pip install" in i.unavailable]  # the same on every machine without a device
        applicable = [(i, law) for i in present for law in plan(i) if not law.not_applicable(i)]
        declared = sum(bool({law.name, law.id} & set(i.known_deviations)) for i, law in applicable)
        row = f"| {system} | {len(present)} | {len(applicable)} | {declared} |"
        found, once = re.subn(rf"\| {re.escape(system)} \| \d+ \| \d+ \| \d+ \|", row, found)
        assert once == 1, f"{system} has no row."
    return found


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


PAGES: dict[str, tuple[Callable[[str], str], ...]] = {"README.md": (counted, printed), "docs/guide/verdicts.md": (printed,)}
"""The pages, and what is made again in each."""


if __name__ == "__main__":
    for file, steps in PAGES.items():
        page = (ROOT / file).read_text()
        for step in steps:
            page = step(page)
        (ROOT / file).write_text(page)
