"""Writes files completely or not at all."""

import os
import tempfile
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(file: Path, text: str) -> None:
    """Write a text to a file in an existing folder. A reader finds the old text or the complete new
    one.

    A special file, such as /dev/stdout, cannot be replaced. The text is written into it.
    """
    if file.exists() and not file.is_file():
        file.write_text(text, "utf-8")
        return
    target = file.resolve()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=target.suffix)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
        os.chmod(name, target.stat().st_mode if target.exists() else 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
