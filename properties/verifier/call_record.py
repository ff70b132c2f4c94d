"""What a process is calling, in a file that outlives the process."""

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
_HEADER = struct.Struct("<Bdq")  # state, when the call began, bytes of what is called


class UnwritableError(BaseException):
    """The file cannot be written. It says nothing of what is called, and so is none of the
    exceptions that a law may be broken by.
    """


@dataclass(frozen=True)
class RecordedCall:
    """A call: its operation, its arguments in float64, the layout of the arrays, and the law that makes it."""

    operation: str
    arguments: tuple[Any, ...]
    layout: str
    law: str = ""


class CallRecord:
    """A file that says what is being called, since when, and whether it has come back. One process
    writes, another reads.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def close(self) -> None:
        """The file's descriptor is given back; the file stays."""
        os.close(self._file)

    def clear(self) -> None:
        """Nothing has been called."""
        os.pwrite(self._file, _HEADER.pack(0, 0.0, 0), 0)

    def begin(self, operation: str, arguments: tuple[Any, ...], layout: str, law: str = "") -> None:
        """A call is about to be made. Raises UnwritableError."""
        called = pickle.dumps(RecordedCall(operation, arguments, layout, law))
        self._write(called, _HEADER.size)
        self._write(_HEADER.pack(_STATES.index("calling"), time.monotonic(), len(called)), 0)

    def begin_another(self) -> None:
        """Another implementation is about to be called, after the call that was noted."""
        self._write(_HEADER.pack(_STATES.index("calling another"), time.monotonic(), self._header()[2]), 0)

    def _write(self, what: bytes, place: int) -> None:
        try:
            full = os.pwrite(self._file, what, place) < len(what)
            why = "No space left on device"
        except OSError as error:
            full, why = True, str(error.strerror)
        if full:
            raise UnwritableError(f"What is called cannot be noted in the folder of temporary files: {why}.")

    def end(self, state: State) -> None:
        """The call has returned or raised."""
        os.pwrite(self._file, bytes([_STATES.index(state)]), 0)

    @property
    def state(self) -> State:
        """How far the last call has come."""
        return _STATES[self._header()[0]]

    @property
    def seconds(self) -> float:
        """For how long a call has been going on; 0 where none is."""
        state, start, _ = self._header()
        return time.monotonic() - start if _STATES[state].startswith("calling") else 0.0

    @property
    def noted(self) -> RecordedCall | None:
        """The last call, or None."""
        length = self._header()[2]
        with contextlib.suppress(Exception):  # a process that was killed while it wrote leaves half of it
            return pickle.loads(os.pread(self._file, length, _HEADER.size)) if length else None
        return None

    def _header(self) -> tuple[int, float, int]:
        header = os.pread(self._file, _HEADER.size, 0)
        return _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0.0, 0)
