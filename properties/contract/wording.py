"""What others gave or raised, as a part of a sentence: safe to print, and short."""

import traceback
from pathlib import Path
from typing import Any

__all__ = ["printable", "raised", "said", "shown", "told"]

_LONGEST = 300  # characters of a message
_HOME = Path(__file__).parents[1]


def printable(text: str) -> str:
    """A text on one line in which characters that a terminal obeys, or does not show, are written
    as escapes: "\\x1b" for ESC.
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode("ascii") for c in text
    )


def shown(x: Any) -> str:
    """The repr of a thing, on one line and not too long; what has none is called by its type."""
    try:
        text = repr(x)
    except Exception:
        text = f"an object of type {type(x).__name__}"
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")


def said(error: BaseException) -> str:
    """An exception's message in short: its last line, for those above quote sources more often than
    they tell the reason.
    """
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:
        lines = []
    text = lines[-1] if lines else ""
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")


def raised(error: BaseException) -> str:
    """That an exception was raised: "raised OSError: no disk", or "raised AssertionError without a message"."""
    text = said(error)
    return f"raised {type(error).__name__}{f': {text}' if text else ' without a message'}"


def told(error: BaseException) -> str:
    """An exception and where it was raised, outside of this package: "OSError: no disk, at kernels.py:3"."""
    at = [frame for frame in traceback.extract_tb(error.__traceback__) if _HOME not in Path(frame.filename).parents]
    outside = [
        frame for frame in at if not frame.filename.startswith("<") and "importlib" not in Path(frame.filename).parts
    ]
    place = f", at {outside[-1].filename}:{outside[-1].lineno}" if outside else ""
    return ": ".join(filter(None, [type(error).__name__, said(error).rstrip(".")])) + printable(place)
