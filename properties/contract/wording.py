"""Makes values and exceptions safe and short enough to be part of a sentence."""

import sysconfig
import traceback
from pathlib import Path
from typing import Any

__all__ = ["printable", "raised", "said", "shown", "told"]

_LONGEST_MESSAGE, _LONGEST_LINE = 300, 100  # characters
_HOME = Path(__file__).parents[1]
_LIBRARIES = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def printable(text: str) -> str:
    """Return a text on one line. Control characters and invisible characters become escapes, such
    as "\\x1b" for ESC.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in text
    )


def shown(x: Any) -> str:
    """Return the repr of an object, on one line and shortened. If the repr raises, return the type."""
    try:
        text = repr(x)
    except Exception:
        text = f"an object of type {type(x).__name__}"
    return printable(text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]} …")


def said(error: BaseException) -> str:
    """Return the last line of an exception's message. The lines above it often quote source code
    instead of a reason.
    """
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:
        lines = []
    text = lines[-1] if lines else ""
    return printable(text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]} …")


def raised(error: BaseException) -> str:
    """Return a phrase that says which exception was raised: "raised OSError: no disk", or "raised
    AssertionError without a message".
    """
    text = said(error)
    return f"raised {type(error).__name__}{f': {text}' if text else ' without a message'}"


def told(error: BaseException) -> str:
    """Return an exception as text, with the user's line that led to it: "OSError: no disk, at
    kernels.py:3: `open(name)`". A line of an installed library is named only if no other line led to it.
    """
    said_and_where = [": ".join(filter(None, [type(error).__name__, said(error).rstrip(".")]))]
    if isinstance(error, SyntaxError) and error.filename:
        said_and_where.append(f"at {error.filename}:{error.lineno}{_code(error.text)}")
    elif frames := _frames_outside(error):
        users = [frame for frame in frames if _LIBRARIES.isdisjoint(Path(frame.filename).parents)]
        frame = (users or frames)[-1]
        said_and_where.append(f"at {frame.filename}:{frame.lineno}{_code(frame.line)}")
    return printable(", ".join(said_and_where))


def _frames_outside(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames that led to an exception, without the frames of this package and of Python's
    import.
    """
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")
        and "importlib" not in Path(frame.filename).parts
        and _HOME not in Path(frame.filename).parents
    ]


def _code(line: str | None) -> str:
    """Return a line of code as the end of a place; "" if Python does not know the line."""
    text = (line or "").strip()
    return f": `{text[:_LONGEST_LINE]}`" if text else ""
