"""Records SIGHUP, SIGINT and SIGTERM when they come, and obeys them later, when no work is half
done.
"""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Signals", "StoppedError"]

_NAMES = ("SIGHUP", "SIGINT", "SIGTERM")
_NUMBERS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]  # Windows has no SIGHUP


class StoppedError(Exception):
    """Raised to end the process when a signal has asked for it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name} came")
        self.number = number

    @property
    def status(self) -> int:
        """The exit status for the signal: 129, 130 or 143."""
        return 128 + self.number


class Signals:
    """A context in which SIGHUP, SIGINT and SIGTERM are recorded instead of ending the process.

    A signal that the process ignored at its start, as under nohup, stays ignored. `select` on the
    context returns as soon as a signal has come. `obey` then raises StoppedError. Python handles
    signals only in the main thread. In another thread, or with `listens=False`, only signals from
    `ask` are recorded.
    """

    def __init__(self, listens: bool = True) -> None:
        self.number = 0
        self._listens = listens
        self._handlers_before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        self._read, self._write = os.pipe()
        if self._listens and threading.current_thread() is threading.main_thread():
            numbers = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
            self._handlers_before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.ask(number)

    def ask(self, number: int) -> None:
        """Record a signal as if it had come from outside."""
        if not self.number:
            self.number = number
            os.write(self._write, b"!")

    def fileno(self) -> int:
        """Return the descriptor on which `select` waits."""
        return self._read

    def obey(self) -> None:
        """Raise StoppedError if a signal has come."""
        if self.number:
            raise StoppedError(self.number)
