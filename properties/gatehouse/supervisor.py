"""Stands between the gate and an untrusted process, where the system gives the process no namespace
of its own: processes that lose their parent become children of the supervisor, which ends them.

The process gets this module as text, so the module imports only the standard library.
"""

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["supervise"]

_DEATH_OF_PARENT, _SUBREAPER = 1, 36  # of prctl


def supervise() -> None:
    """Fork, and return in the child, which has a session of its own and ends with this process. This
    process waits for the child, ends all that is left of it, and ends in the same way.
    """
    prctl: Any = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)
    worker = os.fork()
    if not worker:
        os.setsid()
        prctl(_DEATH_OF_PARENT, signal.SIGKILL, 0, 0, 0)
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    os.closerange(3, 256)
    status = _status_of(worker)
    _end_children()
    if os.WIFSIGNALED(status):
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _status_of(worker: int) -> int:
    """Return the status of a child when it ends. Other children that end meanwhile are forgotten."""
    while True:
        child, status = os.wait()
        if child == worker:
            return status


def _end_children() -> None:
    """End all children, and theirs, which then become children of this process."""
    with suppress(ChildProcessError):
        while True:
            for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            os.wait()
