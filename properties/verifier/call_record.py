"""Records the calls that a process makes, in files that outlive the process: the current call, and the
calls before it.
"""

import contextlib
import os
import pickle
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from properties.contract.operations import OPERATIONS, Arguments

__all__ = ["CallRecord", "RecordedCall", "State", "UnwritableError"]

State = Literal["idle", "calling", "returned", "raised", "calling another"]

_STATES: tuple[State, ...] = ("idle", "calling", "returned", "raised", "calling another")
_HEADER = struct.Struct("<Bdqqq")  # the state, when the call began, the log, where the call begins and ends there
_MOST_BYTES = 2**26  # of a log: a longer one is continued in another file


class UnwritableError(BaseException):
    """Raised when the file cannot be written.

    The implementation is not to blame. This is not an Exception, because a law would report an
    Exception as a violation.
    """


@dataclass(frozen=True)
class RecordedCall:
    """A call: its operation, its arguments in float64, the memory layout of the arrays, the law that
    makes it, and the position of the called implementation in the list of entries.
    """

    operation: str
    arguments: Arguments
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
    """A file with the state and the start of the last call, and logs with the calls themselves. One
    process writes them, another reads them.

    A log holds calls one after another. When it has 64 MiB, another log begins, and the log before the
    last one is removed: the last 64 MiB of calls are always there.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._entry = path, 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._number, self._log = self.position[0], -1
        self.made, self.spent, self._began = 0, 0.0, 0.0  # calls of this task that have ended, and their seconds

    def close(self) -> None:
        """Close the descriptors. The files stay."""
        os.close(self._file)
        if self._log >= 0:
            os.close(self._log)

    def clear(self, entry: int = 0) -> None:
        """Record that no call of the current task was made yet; the next calls are calls of this entry."""
        self.made, self.spent = 0, 0.0
        self._entry, (number, end) = entry, self.position
        os.pwrite(self._file, _HEADER.pack(0, 0.0, number, end, end), 0)

    def begin(self, operation: str, arguments: Arguments, layout: str, law: str = "") -> None:
        """Record a call that is about to begin. Raises UnwritableError if the file cannot be
        written.
        """
        recorded = pickle.dumps(RecordedCall(operation, arguments, layout, law, self._entry))
        number, start = self.position
        if start >= _MOST_BYTES:
            number, start = number + 1, 0
        self._write(self._log_of(number), recorded, start)
        self._began = time.monotonic()
        header = _HEADER.pack(_STATES.index("calling"), self._began, number, start, start + len(recorded))
        self._write(self._file, header, 0)

    def _log_of(self, number: int) -> int:
        """The descriptor of a log, to write in it. The logs before the last one are removed."""
        if number != self._number or self._log < 0:
            if self._log >= 0:
                os.close(self._log)
            self._number, self._log = number, os.open(self._log_path(number), os.O_WRONLY | os.O_CREAT, 0o600)
            self._log_path(number - 2).unlink(missing_ok=True)
        return self._log

    def _log_path(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def begin_another(self) -> None:
        """Record that another implementation is about to be called, after the recorded call."""
        rest = self._header()[2:]
        self._write(self._file, _HEADER.pack(_STATES.index("calling another"), time.monotonic(), *rest), 0)

    def _write(self, file: int, content: bytes, offset: int) -> None:
        try:
            full = os.pwrite(file, content, offset) < len(content)
            reason = "No space left on device"
        except OSError as error:
            full, reason = True, str(error.strerror)
        if full:
            raise UnwritableError(f"attnspec cannot record the call in the folder of temporary files: {reason}.")

    def end(self, state: State) -> None:
        """Record that the call has returned or raised."""
        os.pwrite(self._file, bytes([_STATES.index(state)]), 0)
        self.made, self.spent = self.made + 1, self.spent + time.monotonic() - self._began

    @property
    def state(self) -> State:
        """The state of the last call."""
        return _STATES[self._header()[0]]

    @property
    def began(self) -> float:
        """When the last call began, by time.monotonic."""
        return self._header()[1]

    @property
    def seconds(self) -> float:
        """How long the call has been running; 0 if no call is running."""
        state, start = self._header()[:2]
        return time.monotonic() - start if _STATES[state].startswith("calling") else 0.0

    @property
    def noted(self) -> RecordedCall | None:
        """The last call of the current task, or None."""
        number, start, end = self._header()[2:]
        calls = self._calls(number, start, end)
        return calls[0] if calls else None

    @property
    def position(self) -> tuple[int, int]:
        """The number of the log, and the position after the last call in it. `history` takes both."""
        number, _, end = self._header()[2:]
        return number, end

    def history(self, position: tuple[int, int], entry: int) -> tuple[RecordedCall, ...]:
        """Return the recorded calls of an entry up to a position, in order. The record may be closed."""
        number, end = position
        calls = [*self._calls(number - 1, 0, None), *self._calls(number, 0, end)]
        return tuple(call for call in calls if call.operation in OPERATIONS and call.entry == entry)

    def _calls(self, number: int, start: int, end: int | None) -> list[RecordedCall]:
        """The calls between two positions of a log, or to its end. A process that was killed while it
        was writing leaves an incomplete record, which is left out.
        """
        calls: list[RecordedCall] = []
        with contextlib.suppress(Exception), self._log_path(number).open("rb") as log:
            log.seek(start)
            while end is None or log.tell() < end:
                calls.append(pickle.load(log))
        return calls

    def _header(self) -> tuple[int, float, int, int, int]:
        header = os.pread(self._file, _HEADER.size, 0)
        return _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0.0, 0, 0, 0)
