"""Writes a test file for pytest for each cause of failures. The test fails now, and passes when the
kernel is fixed.
"""

import os
import re
import textwrap
from pathlib import Path

from properties.verifier.report import Cause, Report
from properties.verifier.script import literal
from properties.views.violation import statement_of

__all__ = ["reproductions"]

_SECONDS_OF_IMPORTS = 60.0  # added to the time limit of the call

_ALONE = """\
def {name}():
    script = r'''
{script}'''
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout={timeout:g}, check=False)
    assert ran.returncode == 0, ran.stderr
"""
_HERE = """\
def {name}(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
{script}"""


def reproductions(report: Report, folder: Path) -> dict[str, str]:
    """Return the name and the text of a test file for each cause that has a script. If the process
    ended, the test runs the script in another process.

    The tests import the implementation from the working directory, by a path relative to their
    folder.
    """
    found: dict[str, str] = {}
    root = os.path.relpath(Path.cwd(), folder.resolve())
    for cause in report.causes:
        if cause.example.script:
            parts = (cause.implementation, cause.example.law, cause.example.operation)
            name = first = "_".join(["test", *map(_slug, parts)])
            number = 1
            while f"{name}.py" in found:
                number += 1
                name = f"{first}_{number}"
            found[f"{name}.py"] = _file(cause, name, root, report.settings.get("timeout", 60.0))
    return found


def _file(cause: Cause, name: str, root: str, timeout: float) -> str:
    modules = [] if cause.searched else ["import subprocess", "import sys"]
    imports = "\n".join([*modules, "from pathlib import Path"])
    where = f"ROOT = Path(__file__).resolve().parent / {literal(root)}  # the folder in which `attnspec verify` was run"
    script = textwrap.indent(cause.example.script, "    ") if cause.searched else cause.example.script
    template = _HERE if cause.searched else _ALONE
    test = template.format(name=name, script=script, timeout=timeout + _SECONDS_OF_IMPORTS)
    return f"{_docstring(cause)}\n\n{imports}\n\n{where}\n\n\n{test}"


def _docstring(cause: Cause) -> str:
    """Return the docstring of a test file: the law, what it says, what was found, and the likely
    cause.
    """
    example, likely = cause.example, cause.likely
    paragraphs = [
        f"{example.law_id}, on {cause.implementation}.",
        statement_of(example.law, example.operation),
        f"Found: {example.summary} {example.on_earlier_calls}".rstrip(),
        f"Likely cause: {likely.id}. {likely.mechanism} {likely.repair}" if likely else "",
    ]
    text = "\n\n".join(textwrap.fill(_plain(paragraph), 120) for paragraph in paragraphs if paragraph)
    return f'"""{text}\n\n`attnspec verify --write-tests` wrote this test. It fails until the kernel is fixed.\n"""'


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _plain(text: str) -> str:
    """Return a text in which characters that a docstring cannot contain are escaped."""
    return text.encode(errors="backslashreplace").decode().replace("\\", "\\\\").replace('"""', "'''")
