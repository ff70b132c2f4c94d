"""The signals that ask a verification to end: noted when they come, and obeyed where nothing is left half done."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Signals", "StoppedError"]

_ASKING = [
    getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)
]  # Windows has no SIGHUP


class StoppedError(Exception):
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name} came")
        self.number = number

    @property
    def status(self) -> int:
        """The exit status that says so: 129, 130 or 143."""
        return 128 + self.number


class Signals:
    """Within it SIGHUP, SIGINT and SIGTERM are noted, those apart that the process was started to
    ignore, as by nohup.

    `select` on it returns as soon as one has come, and `obey` raises StoppedError then. Only a
    program's first thread can note signals, if it `listens`; in another none comes but what another
    thread asks for.
    """

    def __init__(self, listens: bool = True) -> None:
        self.number = 0
        self._listens = listens
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        self._read, self._write = os.pipe()
        if self._listens and threading.current_thread() is threading.main_thread():
            asking = [number for number in _ASKING if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in asking}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.ask(number)

    def ask(self, number: int) -> None:
        """Note a signal as if it had come."""
        if not self.number:
            self.number = number
            os.write(self._write, b"!")

    def fileno(self) -> int:
        """What `select` waits for."""
        return self._read

    def obey(self) -> None:
        """Raise StoppedError if a signal has come."""
        if self.number:
            raise StoppedError(self.number)
