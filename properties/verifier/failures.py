"""Failures of attnspec's own code: a report says them in a sentence, as what they are, and keeps
the rest of the verdict.
"""

import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from properties.contract.wording import printable, said
from properties.verifier.report import Violation

__all__ = ["failure", "or_note"]

_ROOT = Path(__file__).parents[2]
_FRAMES = 12  # of a traceback, the innermost ones


def failure(doing: str, error: Exception) -> str:
    """The sentences on an exception that attnspec raised while it did something: what it is, whose
    defect it is, and where it happened.
    """
    what = ": ".join(filter(None, (type(error).__name__, said(error).rstrip("."))))
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_FRAMES:])
    where = ", called from ".join(f"{_short(frame.filename)}:{frame.lineno} in {frame.name}" for frame in frames)
    defect = "This is a defect of attnspec, not of your kernel: please report it, with this traceback"
    return f"attnspec failed while {doing}: {what}. {defect}: {printable(where)}."


def or_note(violation: Violation, doing: str, work: Callable[[Violation], Violation]) -> Violation:
    """What some work makes of a violation; where attnspec fails in it, the violation with a note that says so."""
    try:
        return work(violation)
    except Exception as error:
        return replace(violation, notes=(*violation.notes, failure(doing, error)))


def _short(filename: str) -> str:
    """A file of attnspec's own from where attnspec is installed; another one as it is."""
    file = Path(filename)
    return file.relative_to(_ROOT).as_posix() if file.is_relative_to(_ROOT) else filename
