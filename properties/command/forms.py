"""A report written down in the forms that are asked for: files, each whole or not at all, a page, and annotations in a workflow."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from properties.command.outputs import file_to_write
from properties.verifier.report import Report
from properties.views.github import annotations
from properties.views.junit import junit
from properties.views.reproductions import reproductions
from properties.views.sarif import sarif
from properties.views.whole import write_whole

__all__ = ["annotate", "as_json", "files", "lost"]


def as_json(report: Report) -> str:
    """The report as JSON, as report.schema.json says."""
    return json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"


_FORMS: dict[str, Callable[[Report], str]] = {"json": as_json, "junit": junit, "sarif": sarif}
"""The forms by the names of their options."""


def files(options: argparse.Namespace) -> dict[str, Path]:
    """The files that options name, found out to be writable before the work is done; - for JSON is none. Raises ValueError, a sentence."""
    named = {form: getattr(options, form) for form in _FORMS}
    return {form: file_to_write(name, f"--{form}") for form, name in named.items() if name is not None and (form, name) != ("json", "-")}


def lost(files: dict[str, Path], page: Path | None, tests: Path | None, report: Report) -> Iterator[str]:
    """Write the files, the page into its folder, and the tests into theirs; the sentences on those that cannot be written after all."""
    texts = [(file, _FORMS[form](report)) for form, file in files.items()]
    texts += [(tests / name, text) for name, text in reproductions(report, tests).items()] if tests is not None else []
    for file, text in texts:
        try:
            write_whole(file, text)
        except OSError as error:
            yield f"{file} cannot be written: {error.strerror}."
    if page is not None:
        from properties.views.html.page import write

        try:
            write([report.to_dict()], page)
        except OSError as error:
            yield f"{page} cannot be written to: {error.strerror}."


def annotate(report: Report) -> None:
    """Annotate code where a workflow of GitHub's runs: it reads standard error too, and standard output may be the report's."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        with suppress(OSError):  # of a full disk: the verdict is what matters
            print(annotations(report), end="", file=sys.stderr, flush=True)
