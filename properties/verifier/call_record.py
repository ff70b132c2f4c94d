"""Records the last call that a process made, in a file that stays when the process ends."""

import contextlib
import os
import pickle
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["CallRecord", "RecordedCall", "State", "UnwritableError"]

State = Literal["idle", "calling", "returned", "raised", "calling another"]

_STATES: tuple[State, ...] = ("idle", "calling", "returned", "raised", "calling another")
_HEADER = struct.Struct("<Bdq")  # the state, when the call began, the number of bytes of the recorded call


class UnwritableError(BaseException):
    """Raised when the file cannot be written.

    The implementation is not to blame. This is not an Exception, because a law would report an
    Exception as a violation.
    """


@dataclass(frozen=True)
class RecordedCall:
    """A recorded call: its operation, its arguments in float64, the memory layout of the arrays,
    and the law that makes the call.
    """

    operation: str
    arguments: tuple[Any, ...]
    layout: str
    law: str = ""


class CallRecord:
    """A file with the last call, its start and its state. One process writes the file, and another
    process reads it.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def close(self) -> None:
        """Close the file's descriptor. The file is not deleted."""
        os.close(self._file)

    def clear(self) -> None:
        """Record that no call has been made yet."""
        os.pwrite(self._file, _HEADER.pack(0, 0.0, 0), 0)

    def begin(self, operation: str, arguments: tuple[Any, ...], layout: str, law: str = "") -> None:
        """Record a call that is about to begin. Raises UnwritableError if the file cannot be
        written.
        """
        recorded = pickle.dumps(RecordedCall(operation, arguments, layout, law))
        self._write(recorded, _HEADER.size)
        self._write(_HEADER.pack(_STATES.index("calling"), time.monotonic(), len(recorded)), 0)

    def begin_another(self) -> None:
        """Record that another implementation is about to be called, after the recorded call."""
        self._write(_HEADER.pack(_STATES.index("calling another"), time.monotonic(), self._header()[2]), 0)

    def _write(self, content: bytes, offset: int) -> None:
        try:
            full = os.pwrite(self._file, content, offset) < len(content)
            reason = "No space left on device"
        except OSError as error:
            full, reason = True, str(error.strerror)
        if full:
            raise UnwritableError(f"attnspec cannot record the call in the folder of temporary files: {reason}.")

    def end(self, state: State) -> None:
        """Record that the call has returned or raised."""
        os.pwrite(self._file, bytes([_STATES.index(state)]), 0)

    @property
    def state(self) -> State:
        """The state of the last call."""
        return _STATES[self._header()[0]]

    @property
    def seconds(self) -> float:
        """How long the call has been running; 0 if no call is running."""
        state, start, _ = self._header()
        return time.monotonic() - start if _STATES[state].startswith("calling") else 0.0

    @property
    def noted(self) -> RecordedCall | None:
        """The last call, or None if no call has been made."""
        length = self._header()[2]
        with contextlib.suppress(Exception):  # a process that was killed while writing leaves an incomplete record
            return pickle.loads(os.pread(self._file, length, _HEADER.size)) if length else None
        return None

    def _header(self) -> tuple[int, float, int]:
        header = os.pread(self._file, _HEADER.size, 0)
        return _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0.0, 0)
