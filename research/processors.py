"""Measures the processor time of a command, in all processes that it starts, also in those that
outlive their parents. It needs Linux.
"""

import ctypes
import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["measured"]

_ORPHANS_ARE_MINE = 36  # PR_SET_CHILD_SUBREAPER
_PATIENCE = 60.0  # seconds until the last process that was started should have ended
_T = TypeVar("_T")


def measured(run: Callable[[], _T]) -> tuple[_T, float, float]:
    """The result of a function, its seconds by the clock, and the processor seconds of all
    processes that it starts. It waits for the last of them; this process should have no other
    children. Raises TimeoutError if a process does not end.
    """
    ctypes.CDLL(None).prctl(_ORPHANS_ARE_MINE, 1, 0, 0, 0)
    before, start = _processors(), time.monotonic()
    result = run()
    seconds = time.monotonic() - start
    until = time.monotonic() + _PATIENCE
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)
        raise TimeoutError(f"A process that was started goes on {_PATIENCE:.0f} s after all is done, but should end.")
    return result, seconds, _processors() - before


def _processors() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
