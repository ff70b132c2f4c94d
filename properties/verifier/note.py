"""What a process is calling, in a file that outlives the process."""

import contextlib
import os
import pickle
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["Note", "Noted", "State"]

State = Literal["idle", "calling", "returned", "raised"]

_STATES: tuple[State, ...] = ("idle", "calling", "returned", "raised")
_HEADER = struct.Struct("<Bdq")  # state, when the call began, bytes of what is called


@dataclass(frozen=True)
class Noted:
    """A call: its operation, its arguments in float64, the layout of the arrays, and the law that makes it."""

    operation: str
    arguments: tuple[Any, ...]
    layout: str
    law: str = ""


class Note:
    """A file that says what is being called, since when, and whether it has come back. One process writes, another reads."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def close(self) -> None:
        """The file's descriptor is given back; the file stays."""
        os.close(self._file)

    def clear(self) -> None:
        """Nothing has been called."""
        os.pwrite(self._file, _HEADER.pack(0, 0.0, 0), 0)

    def begin(self, operation: str, arguments: tuple[Any, ...], layout: str, law: str = "") -> None:
        """A call is about to be made."""
        called = pickle.dumps(Noted(operation, arguments, layout, law))
        os.pwrite(self._file, called, _HEADER.size)
        os.pwrite(self._file, _HEADER.pack(_STATES.index("calling"), time.monotonic(), len(called)), 0)

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
        return time.monotonic() - start if _STATES[state] == "calling" else 0.0

    @property
    def noted(self) -> Noted | None:
        """The last call, or None."""
        length = self._header()[2]
        with contextlib.suppress(Exception):  # a process that was killed while it wrote leaves half of it
            return pickle.loads(os.pread(self._file, length, _HEADER.size)) if length else None
        return None

    def _header(self) -> tuple[int, float, int]:
        header = os.pread(self._file, _HEADER.size, 0)
        return _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0.0, 0)
