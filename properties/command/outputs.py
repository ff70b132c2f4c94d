"""What a verification writes besides what it prints: files, each in its form, and annotations in a workflow."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from properties.verifier.report import Report
from properties.views.github import annotations
from properties.views.junit import junit
from properties.views.sarif import sarif
from properties.views.whole import write_whole

__all__ = ["files", "write"]

_FORMS: dict[str, Callable[[Report], str]] = {"junit": junit, "sarif": sarif}
"""The forms by the names of their options."""


def files(options: argparse.Namespace) -> dict[str, Path]:
    """The files that are asked for, which are found out to be writable before the work is done. Raises ValueError, a sentence."""
    found = {form: Path(name) for form in _FORMS if (name := getattr(options, form)) is not None}
    for form, file in found.items():
        if not file.name or file.is_dir():
            raise ValueError(f"--{form} {str(file)!r}, but should name a file.")
        if not (file.parent.is_dir() and os.access(file if file.exists() else file.parent, os.W_OK)):
            raise ValueError(f"{file} cannot be written.")
    return found


def write(files: dict[str, Path], report: Report) -> None:
    """Write the files, each whole or not at all, and annotate code where a workflow of GitHub's runs."""
    for form, file in files.items():
        try:
            write_whole(file, _FORMS[form](report))
        except OSError as error:
            raise ValueError(f"{file} cannot be written: {error.strerror}.") from error
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print(annotations(report), end="", file=sys.stderr, flush=True)
