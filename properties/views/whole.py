"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(file: Path, text: str) -> None:
    """Write a text to a file: a reader finds what was there before, or all of it. Its folder should
    be there.

    What is no ordinary file, such as /dev/stdout, cannot be replaced, and is written to.
    """
    if file.exists() and not file.is_file():
        file.write_text(text, "utf-8")
        return
    target = file.resolve()
    number, name = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=target.suffix)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as opened:
            opened.write(text)
        os.chmod(name, target.stat().st_mode if target.exists() else 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
