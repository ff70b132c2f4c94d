"""A child process of `attnspec verify`, as the parent sees it: it is told what to do, answers, and
ends, by itself or not.
"""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from properties.command.messages import Climb, Explain, Order, Task
from properties.verifier.call_record import CallRecord

__all__ = ["Child"]

_BOOT = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__package__}.worker import main; main()"
_FROM_OUTSIDE = (1, 2, 9, 15)  # SIGHUP, SIGINT, SIGKILL, SIGTERM: what people send, and Linux where memory is short
_IMPORTS = 10  # timeouts that an import may take: compilers run there


class Child:
    """A process that checks laws, in a session of its own: what it starts ends with it, and an
    interrupt reaches the parent alone.

    `task` is what it is at, since `since`; None until it has said what there is to verify, and
    between tasks. `calls` says what it calls.
    """

    def __init__(self, order: Order, folder: Path, number: int) -> None:
        self.task: Task | Explain | Climb | None = None
        self.since, self._overdue, self._timeout = time.monotonic(), False, order.timeout
        self._memory, self._bloated, self._begun = order.memory, False, 0
        self._log, note = folder / f"{number}.log", folder / f"{number}.note"
        self.calls = CallRecord(note)
        self.calls.begin("import", (), "contiguous")
        path = json.dumps([entry for entry in sys.path if entry])
        environment = {**os.environ, **order.environment, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._answers = self._process.stdout
        self._tell((order, str(note), str(self._log)))

    def begin(self, task: Task | Explain | Climb) -> None:
        """Give it something to do."""
        self.task, self.since = task, time.monotonic()
        self._begun += 1
        self._tell(task)

    def _tell(self, something: Any) -> None:
        """Send a request; that it may be dead already shows when its answer is awaited."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            pickle.dump(something, self._process.stdin)
            self._process.stdin.flush()

    def answer(self) -> Any:
        """What it answers; raises EOFError where it is dead, or took too much memory."""
        try:
            answer = pickle.load(self._answers)
        except pickle.UnpicklingError:
            raise EOFError from None
        if self._end_if_bloated():
            raise EOFError
        return answer

    def fileno(self) -> int:
        """What `select` waits for: it has answered, or is dead."""
        return self._answers.fileno()

    @property
    def _limit(self) -> float:
        """Seconds that a call may take, or the import before all tasks."""
        return self._timeout * (1 if self.task else _IMPORTS)

    def abort_if_overdue(self) -> None:
        """End it, if its call takes too long, where it is, and have it say where that is; or if it
        takes too much memory.
        """
        if self._end_if_bloated():
            return
        if self.calls.seconds > self._limit:
            self._overdue = True
            self._signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            self._signal(signal.SIGKILL)

    def _end_if_bloated(self) -> bool:
        """End it, if it has ever had more memory than it may; whether it is so."""
        if self._memory < inf and not self._bloated and self._peak > self._memory:
            self._bloated = True
            self._signal(signal.SIGKILL)
        return self._bloated

    @property
    def _peak(self) -> int:
        """The most bytes of memory that it has had, as Linux says it; 0 where it is dead."""
        with suppress(OSError, TypeError):
            status = Path(f"/proc/{self._process.pid}/status").read_text()
            return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[1]) * 1024  # type: ignore[index]
        return 0

    @property
    def innocent(self) -> bool:
        """Whether it was ended, being dead, by no doing of its last task: by a signal from outside,
        or by memory that others took.
        """
        status = self._process.wait()
        return self._begun > 1 if self._bloated else not self._overdue and -status in _FROM_OUTSIDE

    def end(self) -> str:
        """How it ended, being dead, as the end of a sentence."""
        if self._overdue:
            return f"did not return within {self._limit:g} s"
        if self._bloated:
            return f"took more than {self._memory / 2**30:g} GiB of memory"
        status = self._process.wait()
        return (
            f"killed the process: {_signal_name(-status)}"
            if status < 0
            else f"ended the process with exit status {status}"
        )

    def last_words(self) -> list[str]:
        """Sentences on what a dead process wrote last, and in which lines of Python it was,
        innermost first, without ours.
        """
        printed, _, trace = self._log.read_text(errors="replace")[-100_000:].partition("Fatal Python error")
        theirs = []
        for name, line, function in re.findall(r'File "(.+)", line (\d+) in (\S+)', trace):
            if Path(__file__).parents[1] in Path(name).parents:
                break
            theirs.append(f"{name}:{line} in {function}")
        lines = [line.strip() for line in printed.splitlines() if line.strip()][-3:]
        at = [f"The process was at {', called from '.join(theirs[:4])}."] if theirs else []
        return [*at, f"It had printed: {' / '.join(lines)[-300:]}"] if lines else at

    def stop(self, gently: bool = False) -> None:
        """End it and all that it started; gently, it has a while to end by itself."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if gently:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
        self._signal(signal.SIGKILL)
        self._answers.close()
        self.calls.close()
        self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
