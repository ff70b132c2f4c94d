"""Processes of a folder, and waiting for what they do."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["processes_in", "wait_for"]


def wait_for(happened: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something has happened."""
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)


def processes_in(folder: Path) -> list[str]:
    """The processes whose working directory is beneath a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "cwd").startswith(str(folder)):
                found.append(process.name)
    return found
