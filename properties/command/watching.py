"""Runs `attnspec verify --watch`: runs it again whenever a source file changes."""

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from properties.command.outputs import complain

__all__ = ["watch"]

_SUFFIXES = (".py", ".toml", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".metal", ".so", ".dylib")
_LEFT_OUT = ("__pycache__", "site-packages", "node_modules")
_SECONDS = 0.5  # between two looks at the files
_STOPPED = (129, 130, 143)  # the exit statuses after a signal

Times = dict[str, int]


def watch(
    run: Callable[[], int],
    targets: Iterable[str],
    written: str | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> int:
    """Run a command now, and after each change of a source file below the working directory or below
    the folder of a target. Ctrl-C ends this; the exit status of the last run is returned.

    `written` is a folder into which the command writes, so changes there do not count. `wait` waits
    for a number of seconds before the next look at the files.
    """
    left_out = {Path(written).resolve()} if written else set[Path]()
    folders = {Path.cwd(), *(file.resolve().parent for file in map(_file, targets) if file.is_file())}
    status = 128 + signal.SIGINT
    try:
        while True:
            before = _times(folders, left_out)
            status = _status(run)
            if status in _STOPPED:
                return status
            while not (changed := _changed(before, _times(folders, left_out))):
                wait(_SECONDS)
            print(f"\nChanged: {', '.join(changed)}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        return status


def _status(run: Callable[[], int]) -> int:
    """Run the command once, and return its exit status. A file may be half written: its error is
    printed, and the next change may repair it.
    """
    try:
        return run()
    except ValueError as error:
        complain(str(error))
        return 2


def _file(target: str) -> Path:
    return Path(target.partition(":")[0])


def _times(folders: Iterable[Path], left_out: Collection[Path]) -> Times:
    """Return when each source file below some folders was last changed. Some folders are left out."""
    found: Times = {}
    for folder in folders:
        for place, names, files in os.walk(folder):
            names[:] = [
                name
                for name in names
                if not (name.startswith(".") or name in _LEFT_OUT or Path(place, name).resolve() in left_out)
            ]
            for file in (Path(place, name) for name in files if name.endswith(_SUFFIXES)):
                try:
                    found[str(file)] = file.stat().st_mtime_ns
                except OSError:  # it was removed meanwhile
                    continue
    return found


def _changed(before: Times, now: Times) -> list[str]:
    """Return the files that were changed, added or removed, relative to the working directory."""
    return [os.path.relpath(file) for file in sorted({*before, *now}) if before.get(file) != now.get(file)]
