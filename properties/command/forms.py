"""A report written down in the forms that are asked for: files, each whole or not at all, a page,
and annotations in a workflow.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from properties.command.outputs import file_to_write, folder_of_page, folder_to_write
from properties.verifier.report import Report
from properties.views.github import annotations
from properties.views.junit import junit
from properties.views.reproductions import reproductions
from properties.views.sarif import sarif
from properties.views.whole import write_whole

__all__ = ["Places", "annotate", "as_json", "lost", "places"]


def as_json(report: Report) -> str:
    """The report as JSON, as report.schema.json says."""
    return json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"


_FORMS: dict[str, Callable[[Report], str]] = {"json": as_json, "junit": junit, "sarif": sarif}
"""The forms by the names of their options."""


@dataclass(frozen=True)
class Places:
    """Where a report is to be written, found out to be possible before the work is done: files by
    their forms, and the folders of the page and of the tests, if they are asked for."""

    files: dict[str, Path]
    page: Path | None
    tests: Path | None


def places(options: argparse.Namespace) -> Places:
    """The places that options name; - for JSON is none. Raises ValueError, a sentence, for one that
    cannot be written to.
    """
    named = {form: getattr(options, form) for form in _FORMS}
    return Places(
        {
            form: file_to_write(name, f"--{form}")
            for form, name in named.items()
            if name is not None and (form, name) != ("json", "-")
        },
        None if options.html is None else folder_of_page(options.html, "--html"),
        None if options.write_tests is None else folder_to_write(options.write_tests, "--write-tests"),
    )


def lost(to: Places, report: Report) -> Iterator[str]:
    """Write a report to its places; the sentences on those that cannot be written after all. A page
    is of some implementation.
    """
    texts = [(file, _FORMS[form](report)) for form, file in to.files.items()]
    texts += (
        [(to.tests / name, text) for name, text in reproductions(report, to.tests).items()]
        if to.tests is not None
        else []
    )
    for file, text in texts:
        try:
            write_whole(file, text)
        except OSError as error:
            yield f"{file} cannot be written: {error.strerror}."
    if to.page is not None and report.settings["implementations"]:
        from properties.views.html.page import write

        try:
            write([report.to_dict()], to.page)
        except OSError as error:
            yield f"{to.page} cannot be written to: {error.strerror}."


def annotate(report: Report) -> None:
    """Annotate code where a workflow of GitHub's runs: it reads standard error too, and standard
    output may be the report's.
    """
    if os.environ.get("GITHUB_ACTIONS") == "true":
        with suppress(OSError):  # of a full disk: the verdict is what matters
            print(annotations(report), end="", file=sys.stderr, flush=True)
