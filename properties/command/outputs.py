"""Checks before the work that outputs can be written. If an output cannot be written after the
work, reports it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EPIPE
from importlib.util import find_spec
from pathlib import Path

from properties.contract.wording import printable

__all__ = ["complain", "file_to_write", "folder_of_page", "folder_to_write", "open_streams", "printing"]

_SIGPIPE = 128 + 13  # the exit status after SIGPIPE, which Windows does not have


def file_to_write(name: str, option: str) -> Path:
    """Return the file that an option names, without creating it. Raises ValueError, with a
    sentence, if the file cannot be written.
    """
    if not name:
        raise ValueError(f"{option} has an empty name, but should have the name of a file.")
    file = Path(name)
    try:
        ordinary = file.is_file() or not file.exists()
    except OSError as error:
        raise ValueError(f"{name} cannot be written: {error.strerror}.") from error
    if file.is_dir():
        raise ValueError(f"{name} cannot be written: it is a folder.")
    folder = file.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"{name} cannot be written: the folder {folder} does not exist.")
    # An ordinary file is written beside its place, and then moved there.
    needed = ([file] if file.exists() else []) + ([folder] if ordinary else [])
    if missing := [place for place in needed if not os.access(place, os.W_OK)]:
        raise ValueError(f"{name} cannot be written: {missing[0]} is read-only.")
    return file


def folder_of_page(name: str, option: str) -> Path:
    """Create and return the folder of a page.

    Raises ValueError if the folder is not writable, or if a library that makes pages is not
    installed.
    """
    if missing := [module for module in ("jinja2", "matplotlib") if find_spec(module) is None]:
        raise ValueError(f"A page needs {' and '.join(missing)}, which `pip install 'attnspec[report]'` installs.")
    return folder_to_write(name, option)


def folder_to_write(name: str, option: str) -> Path:
    """Create and return the folder that an option names."""
    if not name:
        raise ValueError(f"{option} has an empty name, but should have the name of a folder.")
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{name} cannot be created: {error.strerror}.") from error
    if not os.access(name, os.W_OK):
        raise ValueError(f"{name} cannot be written to.")
    return Path(name)


def open_streams() -> None:
    """Replace standard error if it is closed. Raises ValueError if standard output is closed."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        raise ValueError("Standard output is closed, but should be open.")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without ✓ shows "?", and no traceback
            stream.reconfigure(errors="replace")


def complain(sentence: str) -> None:
    """Print a sentence to standard error, if standard error can be written."""
    try:
        print(f"attnspec: {printable(sentence)}", file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@contextmanager
def printing(verdict: str = "") -> Iterator[None]:
    """Return a context for printing. Raises ValueError, with the verdict, if the text does not
    reach standard output, and for another file or program that cannot be used.

    If the reader of a list has closed the pipe, as in `attnspec laws | head`, the command ends
    silently with the exit status of SIGPIPE, as other programs do.
    """
    reason, told = "", f" The verdict was: {verdict}" if verdict else ""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise ValueError(f"{error.filename} cannot be used: {error.strerror}.{told}") from error
        reason = error.strerror or type(error).__name__
    except SystemExit:  # rich raises it when a pipe is closed
        reason = os.strerror(EPIPE)
    if reason:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush of the interpreter
        if reason == os.strerror(EPIPE) and not verdict:
            raise SystemExit(_SIGPIPE)
        raise ValueError(f"Standard output cannot be written: {reason}.{told}")
