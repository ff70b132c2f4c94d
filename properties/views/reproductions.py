"""Counterexamples as files of tests for pytest: each fails now, and passes when what is wrong is mended."""

import os
import re
import textwrap
from pathlib import Path

from properties.verifier.report import Cause, Report
from properties.verifier.script import literal
from properties.views.violation import statement_of

__all__ = ["reproductions"]

_IMPORTS = 60.0  # seconds that imports may take, besides the call

_ALONE = """\
def {name}():
    script = r'''
{script}'''
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout={timeout:g}, check=False)
    assert ran.returncode == 0, ran.stderr
"""
_HERE = """\
def {name}(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
{script}"""


def reproductions(report: Report, folder: Path) -> dict[str, str]:
    """A file's name and text for each cause whose example can be shown again. What ended the
    process is tried in another one.

    They import what is under test from the working directory, by the way to it from the folder that
    they will be in.
    """
    found: dict[str, str] = {}
    root = os.path.relpath(Path.cwd(), folder.resolve())
    for cause in report.causes:
        if cause.example.script:
            name = first = (
                f"test_{_slug(cause.implementation)}_{_slug(cause.example.law)}_{_slug(cause.example.operation)}"
            )
            number = 1
            while f"{name}.py" in found:
                number += 1
                name = f"{first}_{number}"
            found[f"{name}.py"] = _file(cause, name, root, report.settings.get("timeout", 60.0))
    return found


def _file(cause: Cause, name: str, root: str, timeout: float) -> str:
    example = cause.example
    told = [
        f"{example.law_id}, on {cause.implementation}.",
        statement_of(example.law, example.operation),
        f"Found: {example.summary}",
    ]
    told += [f"Likely cause: {cause.likely.id}. {cause.likely.mechanism} {cause.likely.repair}"] if cause.likely else []
    said = "\n\n".join(textwrap.fill(_plain(part), 120) for part in told if part)
    imports = (
        ["from pathlib import Path"]
        if cause.searched
        else ["import subprocess", "import sys", "from pathlib import Path"]
    )
    head = (
        f'"""{said}\n\n`attnspec verify --write-tests` wrote this: it fails until that is mended.\n"""\n\n'
        + "\n".join(imports)
    )
    where = f"ROOT = Path(__file__).resolve().parent / {literal(root)}  # where `attnspec verify` was run, and finds what is under test"
    script = textwrap.indent(example.script, "    ") if cause.searched else example.script
    return f"{head}\n\n{where}\n\n\n" + (_HERE if cause.searched else _ALONE).format(
        name=name, script=script, timeout=timeout + _IMPORTS
    )


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _plain(text: str) -> str:
    """A text that may stand in a docstring."""
    return text.encode(errors="backslashreplace").decode().replace("\\", "\\\\").replace('"""', "'''")
