"""Records the calls that a process makes, in a file that outlives the process: the current call, and
the calls before it.
"""

import contextlib
import os
import pickle
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from properties.contract.operations import OPERATIONS

__all__ = ["CallRecord", "RecordedCall", "State", "UnwritableError"]

State = Literal["idle", "calling", "returned", "raised", "calling another"]

_STATES: tuple[State, ...] = ("idle", "calling", "returned", "raised", "calling another")
_HEADER = struct.Struct("<Bdqq")  # the state, when the call began, where its record begins and where it ends
_MOST_BYTES = 2**25  # of recorded calls; then the record begins again, and the calls before are forgotten


class UnwritableError(BaseException):
    """The file cannot be written. The implementation is not to blame, so this is not an Exception,
    which a law would report as a violation.
    """


@dataclass(frozen=True)
class RecordedCall:
    """A call: its operation, its arguments in float64, the memory layout of the arrays, the law that
    makes it, and the position of the called implementation in the list of entries.
    """

    operation: str
    arguments: tuple[Any, ...]
    layout: str = "contiguous"
    law: str = ""
    entry: int = 0

    @property
    def given(self) -> dict[str, Any]:
        """The arguments by the names of their parameters, without the unused options."""
        operation = OPERATIONS[self.operation]
        named = operation.named(self.arguments)
        return {name: value for name, value in named.items() if value is not None or name not in operation.options}


class CallRecord:
    """A file with the last call, its start and its state, and with the calls before it. One process
    writes it, another reads it.

    The file holds the calls one after another. When they fill 32 MiB, the next call is written at
    the beginning again, and the calls before it are forgotten.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._entry = path, 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def close(self) -> None:
        """Close the file's descriptor. The file stays."""
        os.close(self._file)

    def clear(self, entry: int = 0) -> None:
        """Record that no call of the current task was made yet; the next calls are calls of this entry."""
        self._entry, size = entry, self.size
        os.pwrite(self._file, _HEADER.pack(0, 0.0, size, size), 0)

    def begin(self, operation: str, arguments: tuple[Any, ...], layout: str, law: str = "") -> None:
        """Record a call that is about to begin. Raises UnwritableError."""
        recorded = pickle.dumps(RecordedCall(operation, arguments, layout, law, self._entry))
        start = self.size if self.size < _MOST_BYTES else _HEADER.size
        self._write(recorded, start)
        header = _HEADER.pack(_STATES.index("calling"), time.monotonic(), start, start + len(recorded))
        self._write(header, 0)

    def begin_another(self) -> None:
        """Record that another implementation is about to be called, after the recorded call."""
        _, _, start, end = self._header()
        self._write(_HEADER.pack(_STATES.index("calling another"), time.monotonic(), start, end), 0)

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
        state, start, _, _ = self._header()
        return time.monotonic() - start if _STATES[state].startswith("calling") else 0.0

    @property
    def noted(self) -> RecordedCall | None:
        """The last call of the current task, or None."""
        _, _, start, end = self._header()
        with contextlib.suppress(Exception):  # a process that was killed while writing leaves an incomplete record
            return pickle.loads(os.pread(self._file, end - start, start)) if end > start else None
        return None

    @property
    def size(self) -> int:
        """The position in the file after the last call. `history` takes it."""
        return self._header()[3]

    def history(self, size: int, entry: int) -> tuple[RecordedCall, ...]:
        """Return the recorded calls of an entry before a position in the file, in order. The file may
        be closed.
        """
        calls: list[RecordedCall] = []
        with self._path.open("rb") as file, contextlib.suppress(Exception):  # the last record may be incomplete
            file.seek(_HEADER.size)
            while file.tell() < size:
                calls.append(pickle.load(file))
        return tuple(call for call in calls if call.operation in OPERATIONS and call.entry == entry)

    def _header(self) -> tuple[int, float, int, int]:
        header = os.pread(self._file, _HEADER.size, 0)
        return _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0.0, _HEADER.size, _HEADER.size)
