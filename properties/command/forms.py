"""Writes a report in the forms that the options ask for: files, which are written completely or not
at all, a page, and annotations of code.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from properties.command.outputs import file_to_write, folder_of_page, folder_to_write
from properties.verifier.report import Report
from properties.verifier.report_file import text_of
from properties.views.github import annotations
from properties.views.junit import junit
from properties.views.reproductions import reproductions
from properties.views.sarif import sarif
from properties.views.whole import write_whole

__all__ = ["Places", "annotate", "as_json", "lost", "places"]


def as_json(report: Report) -> str:
    """Return the report as JSON. The schema report.schema.json describes it."""
    return text_of(report.to_dict()) + "\n"


_FORMS: dict[str, Callable[[Report], str]] = {"json": as_json, "junit": junit, "sarif": sarif}
"""The forms, by the names of their options."""


@dataclass(frozen=True)
class Places:
    """The places to which the report will be written: files by their forms, and the folders of the
    page and of the tests.

    attnspec checks before it runs laws that it can write to them.
    """

    files: dict[str, Path]
    page: Path | None
    tests: Path | None


def places(options: argparse.Namespace) -> Places:
    """Return the places that the options name. Raises ValueError, with a sentence, for a place that
    cannot be written.

    "-" for JSON means standard output, and is not a place.
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


def lost(chosen: Places, report: Report) -> Iterator[str]:
    """Write the report to its places. Yield a sentence for each place that cannot be written after
    all.

    A page needs at least one implementation.
    """
    texts = [(file, _FORMS[form](report)) for form, file in chosen.files.items()]
    texts += (
        [(chosen.tests / name, text) for name, text in reproductions(report, chosen.tests).items()]
        if chosen.tests is not None
        else []
    )
    for file, text in texts:
        try:
            write_whole(file, text)
        except OSError as error:
            yield f"{file} cannot be written: {error.strerror}."
    if chosen.page is not None and report.settings["implementations"]:
        from properties.views.html.page import write

        try:
            write([report.to_dict()], chosen.page)
        except OSError as error:
            yield f"{chosen.page} cannot be written to: {error.strerror}."


def annotate(report: Report) -> None:
    """Print annotations of code in a GitHub workflow. They go to standard error, because standard
    output may hold the report.
    """
    if os.environ.get("GITHUB_ACTIONS") == "true":
        with suppress(OSError):  # a full disk does not matter: the exit status is the verdict
            print(annotations(report), end="", file=sys.stderr, flush=True)
