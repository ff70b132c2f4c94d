"""Defines one child process as the parent sees it: the parent gives it a task, reads its answer,
and finds out how it ended.
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
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from properties.processes.clock import Clock
from properties.processes.messages import Climb, Explain, Order, Replay, Task
from properties.verifier.call_record import CallRecord

__all__ = ["Child"]

_START = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__package__}.worker import main; main()"
_SIGNALS_FROM_OUTSIDE = (1, 2, 9, 15)  # SIGHUP, SIGINT, SIGTERM from people; SIGKILL from Linux when memory is short
_TIMEOUTS_OF_AN_IMPORT = 10  # an import may take this many timeouts: compilers run there
_LOG_CHARACTERS, _LOG_LINES, _LINE_CHARACTERS, _FRAMES = 100_000, 3, 300, 4  # how much of the log a report quotes


class Child:
    """A child process that checks laws, in a new session.

    Processes that the child starts end with it. An interrupt reaches only the parent. `task` is the
    current task, which began at `since`. During the import and between tasks `task` is None.
    `calls` is the record of the child's current call.
    """

    def __init__(self, order: Order, folder: Path, number: int) -> None:
        self.task: Task | Explain | Climb | Replay | None = None
        self.since, self._timed_out, self._timeout = time.monotonic(), False, order.timeout
        self._memory_limit, self._over_memory, self._tasks_given = order.memory, False, 0
        self._log, note = folder / f"{number}.log", folder / f"{number}.note"
        self.calls = CallRecord(note)
        self.calls.begin("import", (), "contiguous")
        path = json.dumps([entry for entry in sys.path if entry])
        environment = {**os.environ, **order.environment, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
        self._answers, answers = Pipe(duplex=False)  # it reads no further than one message, so `select` sees the next
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, path],
            stdin=subprocess.PIPE,
            stdout=answers.fileno(),
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        answers.close()
        self._send((order, str(note), str(self._log)))
        self._clock, self._clocked = Clock(self._process.pid), self.calls.began

    @property
    def is_fresh(self) -> bool:
        """Whether the child has had no task."""
        return not self._tasks_given

    def begin(self, task: Task | Explain | Climb | Replay) -> None:
        """Give the child a task."""
        self.task, self.since = task, time.monotonic()
        self._tasks_given += 1
        self._send(task)

    def _send(self, message: Any) -> None:
        """Send a message to the child. If the child is dead, nothing happens here, and `answer`
        raises.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def answer(self) -> Any:
        """Return the child's answer. Raises EOFError if the child is dead, or has used too much
        memory.
        """
        try:
            answer = pickle.loads(self._answers.recv_bytes())
        except (OSError, pickle.UnpicklingError):  # it ended in the middle of a message
            raise EOFError from None
        if self._killed_over_memory():
            raise EOFError
        return answer

    def fileno(self) -> int:
        """Return the descriptor on which `select` waits. It becomes readable when an answer has
        come, or when the child has ended.
        """
        return self._answers.fileno()

    @property
    def _limit(self) -> float:
        """How many seconds the current call may take. An import, before the first task, may take
        longer.
        """
        return self._timeout * (1 if self.task else _TIMEOUTS_OF_AN_IMPORT)

    def _seconds_of_call(self) -> float:
        """How long the current call has been running, without the seconds for which the machine gave
        the child no processor. Those before the first look at the call are not known, and count.
        """
        if self.calls.began != self._clocked:
            self._clock, self._clocked = Clock(self._process.pid), self.calls.began
        return self.calls.seconds - self._clock.waited()

    def kill_if_over_limit(self) -> None:
        """Kill the child if its call takes too long, or if it uses too much memory.

        After a timeout the child first gets SIGABRT. It then writes to its log which line of code
        it was in.
        """
        if self._killed_over_memory():
            return
        if self._seconds_of_call() > self._limit:
            self._timed_out = True
            self._signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            self._signal(signal.SIGKILL)

    def _killed_over_memory(self) -> bool:
        """Kill the child if it has ever used more memory than the limit. Return whether this has
        happened, now or before.
        """
        if self._memory_limit < inf and not self._over_memory and self._peak_memory > self._memory_limit:
            self._over_memory = True
            self._signal(signal.SIGKILL)
        return self._over_memory

    @property
    def _peak_memory(self) -> int:
        """The largest number of bytes that the child has used, as Linux counts them; 0 if it is dead."""
        with suppress(OSError, TypeError):
            status = Path(f"/proc/{self._process.pid}/status").read_text()
            return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[1]) * 1024  # type: ignore[index]
        return 0

    @property
    def ended_from_outside(self) -> bool:
        """Whether something other than its last task ended the child: a signal from outside, or the
        memory that its earlier tasks had used. The child must be dead.
        """
        status = self._process.wait()
        if self._over_memory:
            return self._tasks_given > 1
        return not self._timed_out and -status in _SIGNALS_FROM_OUTSIDE

    def how_it_ended(self) -> str:
        """Return how a dead child ended, as the end of a sentence: "did not return within 60 s"."""
        if self._timed_out:
            return f"did not return within {self._limit:g} s"
        if self._over_memory:
            return f"took more than {self._memory_limit / 2**30:g} GiB of memory"
        status = self._process.wait()
        if status < 0:
            return f"killed the process: {_signal_name(-status)}"
        return f"ended the process with exit status {status}"

    def last_output(self) -> list[str]:
        """Return sentences about a dead child: the lines of the user's code that it was in, and its
        last output.

        The innermost line comes first. Lines of attnspec are left out.
        """
        printed, _, trace = self._log.read_text(errors="replace")[-_LOG_CHARACTERS:].partition("Fatal Python error")
        frames = []
        for file, line, function in re.findall(r'File "(.+)", line (\d+) in (\S+)', trace):
            if Path(__file__).parents[1] in Path(file).parents:
                break
            frames.append(f"{file}:{line} in {function}")
        lines = [line.strip() for line in printed.splitlines() if line.strip()][-_LOG_LINES:]
        where = [f"The process was at {', called from '.join(frames[:_FRAMES])}."] if frames else []
        return [*where, f"It had printed: {' / '.join(lines)[-_LINE_CHARACTERS:]}"] if lines else where

    def stop(self, gently: bool = False) -> None:
        """End the child and every process that it started. With `gently`, the child first gets two
        seconds to end by itself.
        """
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
