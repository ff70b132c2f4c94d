"""Where the command writes: found out to be possible before the work is done, and what to say where
it is not afterwards.
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

_SIGPIPE = 128 + 13  # the status of a program that SIGPIPE ended, which Windows does not know


def file_to_write(name: str, option: str) -> Path:
    """The file that an option names, found out to be writable; nothing is made yet. Raises ValueError, a sentence."""
    if not name:
        raise ValueError(f"{option} is followed by an empty name, but should be by that of a file.")
    file = Path(name)
    try:
        ordinary = file.is_file() or not file.exists()
    except OSError as error:
        raise ValueError(f"{name} cannot be written: {error.strerror}.") from error
    if file.is_dir():
        raise ValueError(f"{name} cannot be written: it is a folder.")
    folder = file.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"{name} cannot be written: there is no folder {folder}.")
    needed = ([file] if file.exists() else []) + (
        [folder] if ordinary else []
    )  # it is written beside its place, and put there whole
    if missing := [place for place in needed if not os.access(place, os.W_OK)]:
        raise ValueError(f"{name} cannot be written: {missing[0]} is read-only.")
    return file


def folder_of_page(name: str, option: str) -> Path:
    """The folder for a page, made, and found out to be writable, as the page's makers are to be
    there. Raises ValueError, a sentence.
    """
    if missing := [module for module in ("jinja2", "matplotlib") if find_spec(module) is None]:
        raise ValueError(f"A page needs {' and '.join(missing)}, which `pip install 'attnspec[report]'` installs.")
    return folder_to_write(name, option)


def folder_to_write(name: str, option: str) -> Path:
    """The folder that an option names, made, and found out to be writable. Raises ValueError, a sentence."""
    if not name:
        raise ValueError(f"{option} is followed by an empty name, but should be by that of a folder.")
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{name} cannot be made: {error.strerror}.") from error
    if not os.access(name, os.W_OK):
        raise ValueError(f"{name} cannot be written to.")
    return Path(name)


def open_streams() -> None:
    """Standard error is there, if only to swallow what is written. Raises ValueError where there is
    no standard output.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        raise ValueError("There is no standard output, which is closed, but should be open.")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without ✓ shows "?", and no traceback
            stream.reconfigure(errors="replace")


def complain(sentence: str) -> None:
    """Print a sentence to standard error; where that is full too, nobody can be told."""
    try:
        print(f"attnspec: {printable(sentence)}", file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@contextmanager
def printing(verdict: str = "") -> Iterator[None]:
    """What is printed within it reaches standard output. Raises ValueError where it does not, with
    the verdict, which is lost there.

    A list that a reader leaves off, as `attnspec laws | head`, ends as other programs do there:
    without a word, by SIGPIPE's status.
    """
    why = ""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        why = error.strerror or type(error).__name__
    except SystemExit:  # of rich, where a pipe is closed
        why = os.strerror(EPIPE)
    if why:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the interpreter's last flush goes
        if why == os.strerror(EPIPE) and not verdict:
            raise SystemExit(_SIGPIPE)
        raise ValueError(
            f"Standard output cannot be written: {why}.{f' The verdict was: {verdict}' if verdict else ''}"
        )
