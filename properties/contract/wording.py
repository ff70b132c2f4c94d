"""Makes values and exceptions safe and short enough to be part of a sentence."""

import traceback
from pathlib import Path
from typing import Any

__all__ = ["printable", "raised", "said", "shown", "told"]

_LONGEST_MESSAGE = 300  # characters
_HOME = Path(__file__).parents[1]


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
    """Return an exception as text, with the place that raised it, outside of this package:
    "OSError: no disk, at kernels.py:3".
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _HOME not in Path(frame.filename).parents]
    outside = [
        frame
        for frame in frames
        if not frame.filename.startswith("<") and "importlib" not in Path(frame.filename).parts
    ]
    location = f", at {outside[-1].filename}:{outside[-1].lineno}" if outside else ""
    return ": ".join(filter(None, [type(error).__name__, said(error).rstrip(".")])) + printable(location)
