"""The parent's side of `attnspec verify`: child processes that check law after law, and what became of those that did not come back."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any

from properties.command.signals import Signals
from properties.command.targets import TargetError
from properties.command.worker import Entry, Explain, Order, Task, death
from properties.verifier.note import Note
from properties.verifier.report import Cause, Outcome, Violation
from properties.verifier.timing import Time

__all__ = ["Runner"]

_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from properties.command.worker import main; main()"
_DEATHS = 3  # of the process in one operation of one implementation, after which its other laws are not tried: each costs up to a timeout
_IMPORTS = 10  # timeouts that an import may take: compilers run there


class _Child:
    """A process that checks laws, in a session of its own: what it starts ends with it, and an interrupt reaches the parent alone."""

    def __init__(self, order: Order, folder: Path, number: int) -> None:
        self.task: Task | Explain | None = None
        self.since, self.overdue = time.monotonic(), False
        self.log, note = folder / f"{number}.log", folder / f"{number}.note"
        self.calls = Note(note)
        self.calls.begin("import", (), "contiguous")
        path = json.dumps([entry for entry in sys.path if entry])
        environment = {**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.answers = self.process.stdout
        self.tell((order, str(note), str(self.log)))

    def tell(self, something: Any) -> None:
        """Send a request; that it may be dead already shows when its answer is awaited."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            pickle.dump(something, self.process.stdin)
            self.process.stdin.flush()

    def answer(self) -> Any:
        """What it answers; raises EOFError where it is dead."""
        try:
            return pickle.load(self.answers)
        except pickle.UnpicklingError:
            raise EOFError from None

    def abort(self) -> None:
        """End it where it is, and have it say where that is."""
        self.overdue = True
        self._signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        self._signal(signal.SIGKILL)

    def stop(self, gently: bool = False) -> int:
        """End it and all that it started; its exit status."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        if gently:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(2)
        self._signal(signal.SIGKILL)
        self.answers.close()
        self.calls.close()
        return self.process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Runner:
    """What is verified by an order, in `jobs` processes, of which none waits longer than `timeout` seconds for one call.

        with Runner(order, jobs, timeout, fail_fast, signals) as runner:
            for entry, found in runner.outcomes(): ...

    `entries` says what there is to verify. With `fail_fast` no operation is begun after the first violation. Raises TargetError where what
    there is to verify cannot be found out, or a process cannot go on, and StoppedError where one of `signals` has come.
    """

    def __init__(self, order: Order, jobs: int, timeout: float, fail_fast: bool, signals: Signals) -> None:
        self.order, self.jobs, self.timeout, self.fail_fast, self.signals = order, jobs, timeout, fail_fast, signals
        self.entries: list[Entry] = []
        self._folder = tempfile.TemporaryDirectory(prefix="attnspec-")
        self._children: list[_Child] = []
        self._started = 0
        self._time = Time(order.budget)
        self._gently = False

    def __enter__(self) -> "Runner":
        try:
            child = self._start()
            while not self._ready([child]):
                self._abort_if_overdue(child)
            self._welcome(child)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in self._children:
            child.stop(self._gently)
        self._children.clear()
        self._folder.cleanup()

    def outcomes(self) -> Iterator[tuple[int, Outcome | tuple[Cause, ...]]]:
        """(the entry's place, an outcome) as they are known, and after its last one the causes of its violations, if there are some."""
        tasks: deque[Task | Explain] = deque(Task(i, laws) for i, entry in enumerate(self.entries) for laws in _groups(entry))
        left = [len(entry.laws) for entry in self.entries]
        violations: list[list[Violation]] = [[] for _ in self.entries]
        deaths: Counter[tuple[int, str]] = Counter()

        def known(place: int, found: Outcome | tuple[Cause, ...]) -> tuple[int, Outcome | tuple[Cause, ...]]:
            """What is yielded; the causes are asked for when the last outcome is known."""
            if isinstance(found, Outcome):
                left[place] -= 1
                if found.status == "violated" and found.violation is not None:
                    violations[place].append(found.violation)
                    if self.fail_fast:
                        self._give_up(tasks, left)
                if found.violation is not None:
                    found = replace(found, violation=replace(found.violation, calls=(), evidence=(), fresh=(), seen=()))
                if not left[place] and violations[place]:
                    planned = self.entries[place].laws.index
                    in_order = sorted(violations[place], key=lambda v: planned(v.law_id))  # and not as they came
                    tasks.append(Explain(place, tuple(in_order), until=self._time.end))
            return place, found

        while len(self._children) < min(self.jobs, len(tasks)):
            self._start()
        idle = [self._children[0]]
        while True:
            while idle and tasks:
                task = tasks.popleft()
                if isinstance(task, Task):
                    left_over = sum(len(later.laws) for later in tasks if isinstance(later, Task))
                    task = replace(task, until=self._time.share(len(task.laws), len(task.laws) + left_over, len(self._children)))
                    entry = self.entries[task.entry]
                    parts = [_parts(entry.laws[law]) for law in task.laws]
                    if deaths[task.entry, parts[0][1]] >= _DEATHS:
                        reason = f"It was not tried: {parts[0][1]} had ended the process, or not returned, {_DEATHS} times."
                        for each in parts:
                            yield known(task.entry, Outcome(*each, entry.name, "not run", reason=reason))
                        continue
                child = idle.pop()
                child.task, child.since = task, time.monotonic()
                child.tell(task)
            busy = [child for child in self._children if child not in idle]
            if not tasks and all(child.task is None for child in busy):
                self._gently = True
                return
            ready = self._ready(busy)
            for child in busy:
                if child not in ready:
                    self._abort_if_overdue(child)
                    continue
                try:
                    if child.task is None:
                        self._welcome(child)
                    else:
                        place, answer = child.task.entry, child.answer()
                        child.task = None
                        if isinstance(answer, str):
                            raise TargetError(answer)
                        for found in answer if isinstance(answer, list) else [answer]:
                            yield known(place, found)
                    idle.append(child)
                except EOFError:
                    assert child.task is not None
                    task = child.task
                    found = self._death(child, task)
                    if isinstance(found, Outcome) and isinstance(task, Task):
                        deaths[task.entry, found.operation] += 1
                        laws = self.entries[task.entry].laws
                        others = tuple(law for law in task.laws if laws[law] != f"{found.law}[{found.operation}]")
                        if others:
                            tasks.appendleft(Task(task.entry, others))
                    if isinstance(task, Explain) and task.shrinks:
                        tasks.append(replace(task, shrinks=False))  # which calls nothing
                    else:
                        yield known(task.entry, found)
                    if tasks:
                        self._start()

    def _give_up(self, tasks: deque[Task | Explain], left: list[int]) -> None:
        """Begin no other law: left are those that are being checked."""
        explaining = [task for task in tasks if isinstance(task, Explain)]
        tasks.clear()
        tasks.extend(explaining)
        begun: Counter[int] = Counter()
        for child in self._children:
            if isinstance(child.task, Task):
                begun[child.task.entry] += len(child.task.laws)
        left[:] = [begun[place] for place in range(len(left))]

    def _start(self) -> _Child:
        child = _Child(self.order, Path(self._folder.name), self._started)
        self._started += 1
        self._children.append(child)
        return child

    def _welcome(self, child: _Child) -> None:
        """The entries that a child has found, or a TargetError that says why it found none."""
        try:
            found = child.answer()
        except EOFError:
            raise TargetError(f"{' and '.join(self.order.targets)} could not be imported: it {self._end(child)}.") from None
        if isinstance(found, str):
            raise TargetError(found)
        child.calls.clear()
        self.entries = self.entries or found

    def _ready(self, children: list[_Child]) -> list[_Child]:
        """The children that have answered, or are dead, after a while at most. Raises StoppedError where a signal has come."""
        found, _, _ = select([self.signals.fileno(), *(child.answers.fileno() for child in children)], (), (), min(0.5, self.timeout / 4))
        self.signals.obey()
        return [child for child in children if child.answers.fileno() in found]

    def _limit(self, child: _Child) -> float:
        return self.timeout * (1 if child.task else _IMPORTS)

    def _abort_if_overdue(self, child: _Child) -> None:
        if child.calls.seconds > self._limit(child):
            child.abort()

    def _end(self, child: _Child) -> str:
        """How a dead child ended, as the end of a sentence."""
        if child.overdue:
            return f"did not return within {self._limit(child):g} s"
        status = child.process.wait()
        return f"killed the process: {_signal_name(-status)}" if status < 0 else f"ended the process with exit status {status}"

    def _death(self, child: _Child, task: Task | Explain) -> Outcome | tuple[Cause, ...]:
        """The outcome of the law under which a child died, or the causes it did not find."""
        entry = self.entries[task.entry]
        how = self._end(child)
        seconds = time.monotonic() - child.since
        found: Outcome | tuple[Cause, ...]
        if isinstance(task, Explain):
            found = (_unexplained(entry.name, task.violations, f"When smaller inputs were looked for, the implementation {how}."),)
        else:
            noted, ids = child.calls.noted, [entry.laws[law] for law in task.laws]
            law = noted.law if noted is not None and noted.law in ids else ids[0]
            found = death(entry, *_parts(law), how, child.calls, *_last_words(child.log), seconds=seconds)
        self._children.remove(child)
        child.stop()
        return found


def _unexplained(implementation: str, violations: tuple[Violation, ...], why: str) -> Cause:
    """The cause of violations that could not be looked for, by the first of them."""
    example = replace(violations[0], notes=(*violations[0].notes, why), calls=(), evidence=(), fresh=(), seen=())
    return Cause(implementation, tuple(v.law_id for v in violations), (), example, searched=False)


def _groups(entry: Entry) -> list[tuple[int, ...]]:
    """The places of an entry's laws, those about one operation together."""
    groups: dict[str, list[int]] = {}
    for place, law in enumerate(entry.laws):
        groups.setdefault(_parts(law)[1], []).append(place)
    return [tuple(group) for group in groups.values()]


def _parts(law: str) -> tuple[str, str]:
    name, _, operation = law.partition("[")
    return name, operation.removesuffix("]")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_words(log: Path) -> list[str]:
    """Sentences on what a dead process wrote last, and in which lines of Python it was, innermost first, without ours."""
    printed, _, trace = log.read_text(errors="replace")[-100_000:].partition("Fatal Python error")
    theirs = []
    for name, line, function in re.findall(r'File "(.+)", line (\d+) in (\S+)', trace):
        if Path(__file__).parents[1] in Path(name).parents:
            break
        theirs.append(f"{name}:{line} in {function}")
    lines = [line.strip() for line in printed.splitlines() if line.strip()][-3:]
    at = [f"The process was at {', called from '.join(theirs[:4])}."] if theirs else []
    return [*at, f"It had printed: {' / '.join(lines)[-300:]}"] if lines else at
