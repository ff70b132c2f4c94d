"""Counts the seconds that a process takes, without those for which the machine gave it no
processor.

A machine that runs other work makes each call longer. Linux tells for each thread how long it was
ready to run and had to wait (the second number of `schedstat`). These seconds are not the kernel's.
A kernel that sleeps, or waits for something else, does not wait for a processor: its seconds count.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress

__all__ = ["Clock"]


class Clock:
    """Counts the seconds from its start on.

    The process waited as long as that one of its threads which waited most. This process may have to
    wait too, after the answer has come. Where the system does not tell, nobody waited.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._start = pid, time.monotonic()
        self._before, self._own = dict(_waits(f"/proc/{pid}/task")), _wait("/proc/thread-self")

    def elapsed(self) -> float:
        """Return all seconds since the start."""
        return time.monotonic() - self._start

    def taken(self) -> float:
        """Return the seconds since the start, without the time of waiting for a processor."""
        return max(0.0, self.elapsed() - self.waited())

    def waited(self) -> float:
        """Return the seconds since the start in which the process, or this one, waited for a processor."""
        waits = (seconds - self._before.get(thread, 0.0) for thread, seconds in _waits(f"/proc/{self._pid}/task"))
        return max(waits, default=0.0) + _wait("/proc/thread-self") - self._own


def _waits(folder: str) -> Iterator[tuple[str, float]]:
    """Yield the threads of a process, and the seconds for which each has waited for a processor."""
    with suppress(OSError):
        for thread in os.listdir(folder):
            yield thread, _wait(f"{folder}/{thread}")


def _wait(folder: str) -> float:
    """Return the seconds for which a thread has waited for a processor; 0 if the system does not tell."""
    try:
        with open(f"{folder}/schedstat", "rb", buffering=0) as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
