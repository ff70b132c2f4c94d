"""Runs the parent process: it decides which child process checks which laws, and what follows when
a child dies.
"""

import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from select import select
from types import TracebackType

from properties.contract.names import parts_of
from properties.contract.support import SupportsError
from properties.processes.adapters import AdapterError
from properties.processes.child import Child
from properties.processes.deaths import death
from properties.processes.messages import Climb, Entry, Explain, Failed, Order, Progress, Replay, Task
from properties.processes.signals import Signals
from properties.verifier.call_record import CallRecord, UnwritableError
from properties.verifier.case_drawing import TimeLimit
from properties.verifier.earlier_calls import InconclusiveError, merged, reproduced
from properties.verifier.report import Cause, Outcome, Violation
from properties.verifier.worst_input import Worst

__all__ = ["Result", "Runner"]

Result = Outcome | tuple[Cause, ...] | Worst | None

_FIRST_CHILDREN = 2  # started before the number of tasks is known: an import may take as long as all laws
_MOST_DEATHS = 3  # in one operation of one implementation; its other laws are then not run: each may cost a timeout


class Runner:
    """Runs an order in `jobs` child processes; no call takes longer than the order's timeout.

        with Runner(order, jobs, signals) as runner:
            for entry, result in runner.outcomes(): ...

    `entries` says what there is to verify. An order with `fail_fast` ends the run at the first
    violation that is not known, or else with the causes of the first implementation that has a new
    cause. `waiting` is called again and again while children work; `progress` has what they have done
    so far. The example of each cause is replayed in a fresh process, see `earlier_calls`; the end of a
    process is not replayed. Raises AdapterError if the adapters cannot be imported or used, UnwritableError and
    OSError if the processes cannot go on, and StoppedError if one of `signals` has come.
    """

    def __init__(
        self, order: Order, jobs: int, signals: Signals, waiting: Callable[["Runner"], None] = lambda runner: None
    ) -> None:
        self.order, self.jobs, self.signals, self._waiting = order, jobs, signals, waiting
        self.progress: dict[tuple[int, str], Progress] = {}  # by entry and operation: of tasks that are under way
        self.entries: list[Entry] = []
        self._folder = tempfile.TemporaryDirectory(prefix="attnspec-")
        self._children: list[Child] = []
        self._number_started = 0
        self._time = TimeLimit(order.time_limit)
        self._finished = False
        self._tasks: deque[Task | Explain | Climb] = deque()
        self._idle: list[Child] = []
        self._laws_left: list[int] = []  # by entry: how many laws have no outcome yet
        self._violations: list[list[Violation]] = []  # by entry
        self._found_after: dict[
            tuple[int, str], tuple[CallRecord, tuple[int, int]]
        ] = {}  # by entry and law: a violation's calls
        self._deaths: Counter[tuple[int, str]] = Counter()  # by entry and operation
        self.lost = 0  # how many times a task was given out again

    def __enter__(self) -> "Runner":
        try:
            for _ in range(min(self.jobs, _FIRST_CHILDREN)):
                self._start()
            while not self._idle:
                for child in self._ready(self._children):
                    self._admit(child)
                for child in self._children:
                    child.kill_if_over_limit()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            # A child that still imports would not notice that its input was closed.
            child.stop(gently=self._finished and child in self._idle)
        self._children.clear()
        self._folder.cleanup()

    def outcomes(self, tasks: Iterable[Task | Climb] | None = None) -> Iterator[tuple[int, Result]]:
        """Yield pairs of an implementation's index in `entries` and a result, as soon as each
        result is known.

        Without `tasks`, the results are the outcomes of all laws; else they are the results of the
        given tasks. After the last outcome of an implementation come the causes of its violations
        (failed laws), if it has any. A `Climb` task, which searches for the worst input, gives that
        input or None, and no causes follow. The child processes stay, so the method may be called
        again.
        """
        self._tasks.extend(self._all_tasks() if tasks is None else tasks)
        self._laws_left = [0 for _ in self.entries]
        for task in self._tasks:
            self._laws_left[task.entry] += len(task.laws) if isinstance(task, Task) else 0
        self._violations = [[] for _ in self.entries]
        self._deaths.clear()
        while len(self._children) < min(self.jobs, len(self._tasks)):
            self._start()
        while True:
            yield from self._hand_out()
            busy = [child for child in self._children if child not in self._idle]
            if not self._tasks and all(child.task is None for child in busy):
                self._finished = True
                return
            ready = self._ready(busy)
            for child in busy:
                if child not in self._children:  # it was ended while the others were collected
                    continue
                if child in ready:
                    yield from self._collect(child)
                else:
                    child.kill_if_over_limit()

    def _all_tasks(self) -> Iterator[Task]:
        """Yield a task for each operation of each implementation."""
        for position, entry in enumerate(self.entries):
            for laws in entry.groups.values():
                yield Task(position, laws, self.order.seed, self.order.max_examples)

    def _hand_out(self) -> Iterator[tuple[int, Outcome]]:
        """Give tasks to the idle child processes. Yield the outcomes of laws that are no longer
        run, because their operation ended too many processes.
        """
        while self._idle and self._tasks:
            task = self._tasks.popleft()
            if isinstance(task, Task):
                operation = parts_of(self._law_ids(task)[0])[1]
                if self._deaths[task.entry, operation] >= _MOST_DEATHS:
                    yield from self._not_tried(task, operation)
                    continue
                later = sum(len(other.laws) for other in self._tasks if isinstance(other, Task))
                number = len(task.laws)
                task = replace(task, until=self._time.share(number, number + later, len(self._children)))
            self._idle.pop().begin(task)
            if isinstance(task, Explain):
                self._fresh()  # it imports the adapters meanwhile

    def _not_tried(self, task: Task, operation: str) -> Iterator[tuple[int, Outcome]]:
        """Return the outcomes of laws whose operation has already ended too many processes: "not
        run".
        """
        reason = f"It was not tried: {operation} had ended the process, or not returned, {_MOST_DEATHS} times."
        name = self.entries[task.entry].name
        outcomes = [Outcome(*parts_of(law), name, "not run", reason=reason) for law in self._law_ids(task)]
        return self._known(task.entry, outcomes)

    def _law_ids(self, task: Task | Climb) -> list[str]:
        """Return the ids of a task's laws, "law[operation]". For a search for the worst input,
        these are all laws of its operation.
        """
        entry = self.entries[task.entry]
        positions = task.laws if isinstance(task, Task) else entry.groups[task.operation]
        return [entry.laws[position] for position in positions]

    def _collect(self, child: Child) -> Iterator[tuple[int, Result]]:
        """Yield the results in a child's answer, and mark the child as idle. If the child is dead,
        yield the results that follow from its death.
        """
        task = child.task
        if task is None:
            self._admit(child)
            return
        assert not isinstance(task, Replay)  # its child is removed as soon as it has answered
        try:
            answer = child.answer()
        except EOFError:
            yield from self._after_death(child, task)
            return
        if isinstance(answer, Progress):
            self.progress[task.entry, answer.operation] = answer
            return
        child.task = None
        self._forget_progress(task)
        if isinstance(answer, SupportsError):
            raise AdapterError(f"{self.entries[task.entry].name} cannot be used: {answer}")
        if isinstance(answer, UnwritableError):
            raise answer
        if isinstance(answer, Failed):
            yield from self._without_verdict(task, answer.reason)
        elif isinstance(task, Climb):
            yield task.entry, answer
        elif isinstance(task, Explain):
            if self.order.fail_fast and not all(map(self.order.known.may_be, answer)):
                self._give_up()
            yield task.entry, merged([self._reproduced(task, cause, child.calls) for cause in answer])
        else:
            self._found_after |= {
                (task.entry, outcome.law_id): (child.calls, child.calls.position) for outcome in answer
            }
            yield from self._known(task.entry, answer)
        self._idle.append(child)

    def _forget_progress(self, task: Task | Explain | Climb) -> None:
        if isinstance(task, Task):
            self.progress.pop((task.entry, parts_of(self._law_ids(task)[0])[1]), None)

    def _after_death(self, child: Child, task: Task | Explain | Climb) -> Iterator[tuple[int, Result]]:
        """Handle a task whose child process is dead: give the task out again, or yield its results.
        Then start another child if tasks are left.
        """
        if child.ended_from_outside and task.lost < self.order.again:
            self._give_again(child, replace(task, lost=task.lost + 1))
        elif isinstance(task, Explain):
            yield from self._unexplained(child, task)
        else:
            yield from self._failed(child, task)
        if self._tasks:
            self._start()

    def _known(self, position: int, outcomes: Iterable[Outcome]) -> Iterator[tuple[int, Outcome]]:
        """Return the outcomes of one task, without the calls that only the search for causes needs.

        After the last outcome of an implementation, add the task to search for causes.
        """
        light = []
        for outcome in outcomes:
            self._laws_left[position] -= 1
            violation = outcome.violation
            if outcome.status == "violated" and violation is not None:
                self._violations[position].append(violation)
            light.append(outcome if violation is None else replace(outcome, violation=violation.without_calls()))
        if not self._laws_left[position]:
            self._explain(position)
        if self.order.fail_fast and any(
            outcome.status == "violated" and not self.order.known.has(outcome.implementation, outcome.law_id)
            for outcome in light
        ):
            self._give_up()
        for outcome in light:
            yield position, outcome

    def _explain(self, position: int) -> None:
        """Add a task to find the causes of an implementation's violations (failed laws), if it has
        any. The violations are in the order of its laws.
        """
        planned = self.entries[position].laws.index
        if in_order := sorted(self._violations[position], key=lambda violation: planned(violation.law_id)):
            self._tasks.appendleft(Explain(position, tuple(in_order), until=self._time.end))

    def _give_up(self) -> None:
        """Stop checking laws, and end the child processes that check one. The causes of the
        violations that are already known are still searched for.
        """
        explaining = [task for task in self._tasks if isinstance(task, Explain)]
        self._tasks.clear()
        self._tasks.extend(explaining)
        for child in [child for child in self._children if isinstance(child.task, Task)]:
            self._remove(child)
        for position in [position for position, left in enumerate(self._laws_left) if left]:
            self._laws_left[position] = 0
            self._explain(position)

    def _failed(self, child: Child, task: Task | Climb) -> Iterator[tuple[int, Outcome]]:
        """Return the outcome of the law under which a child process died. The other laws of the
        task become a new task.

        If the task was a search for the worst input, return the outcome of the operation's first
        law.
        """
        law_ids, noted = self._law_ids(task), child.calls.noted
        law = noted.law if noted is not None and noted.law in law_ids else law_ids[0]
        outcome = death(self.entries[task.entry], law, child, time.monotonic() - child.since)
        self._remove(child)
        if isinstance(task, Climb):
            return iter([(task.entry, outcome)])
        self._forget_progress(task)
        self._deaths[task.entry, outcome.operation] += 1
        others = tuple(position for position, each in zip(task.laws, law_ids, strict=True) if each != law)
        if others:
            self._tasks.appendleft(replace(task, laws=others))
        return self._known(task.entry, [outcome])

    def _give_again(self, child: Child, task: Task | Explain | Climb) -> None:
        """Give out a task again, after something from outside, such as a signal, has ended its
        process.
        """
        self._remove(child)
        self._tasks.appendleft(task)
        self.lost += 1

    def _unexplained(self, child: Child, task: Explain) -> Iterator[tuple[int, tuple[Cause, ...]]]:
        """Handle a search for causes in which a child process died.

        The search is repeated without smaller inputs, so that it calls no function of the
        implementation. If that fails too, yield one cause for all violations, which is not
        recognised.
        """
        how = child.how_it_ended()
        self._remove(child)
        if task.shrinks:
            self._tasks.append(replace(task, shrinks=False))
            return
        yield task.entry, _unknown_cause(task, f"When smaller inputs were looked for, the implementation {how}.")

    def _without_verdict(self, task: Task | Explain | Climb, reason: str) -> Iterator[tuple[int, Result]]:
        """Yield the results of a task in which attnspec itself failed: laws without a verdict, or
        violations (failed laws) whose cause is not recognised.
        """
        if isinstance(task, Explain):
            yield task.entry, _unknown_cause(task, reason)
            return
        name, law_ids = self.entries[task.entry].name, self._law_ids(task)
        outcomes = [Outcome(*parts_of(law), name, "not run", reason=reason, defect=True) for law in law_ids]
        yield from self._known(task.entry, outcomes) if isinstance(task, Task) else [(task.entry, outcomes[0])]

    def _reproduced(self, task: Explain, cause: Cause, calls: CallRecord) -> Cause:
        """A cause whose example fails in a fresh process, or says that it passes there. `calls` are the
        calls of the process that has searched for the cause.
        """
        example = cause.example
        if not cause.searched:
            return cause
        found_here = calls, calls.position
        record, position = found_here if example.larger else self._found_after[task.entry, example.law_id]
        history = record.history(position, task.entry)
        found = reproduced(example, history, partial(self._replayed, task.entry), self._time.end)
        return replace(cause, example=replace(found, larger=()))

    def _replayed(self, entry: int, violation: Violation) -> Violation | None:
        """A violation as it shows in a fresh process, which ends then; None if the law passes. A process
        that ends by itself shows the violation.
        """
        child = self._fresh()
        try:
            while child not in self._idle:
                if self._ready([child]):
                    self._welcome(child)
                    self._idle.append(child)
                child.kill_if_over_limit()
            child.begin(Replay(entry, violation))
            while not self._ready([child]):
                child.kill_if_over_limit()
            answer = child.answer()
        except AdapterError:
            raise InconclusiveError from None
        except EOFError:
            if child.ended_from_outside:
                raise InconclusiveError from None
            return violation
        finally:
            self._remove(child)
        if not (answer is None or isinstance(answer, Violation)):
            raise InconclusiveError
        return answer

    def _fresh(self) -> Child:
        """A child that has had no task and gets none; it may still import the adapters."""
        fresh = (child for child in self._children if child.is_fresh)
        return next(fresh, None) or self._start()

    def _remove(self, child: Child) -> None:
        self._children.remove(child)
        if child in self._idle:
            self._idle.remove(child)
        child.stop()

    def _start(self) -> Child:
        child = Child(self.order, Path(self._folder.name), self._number_started)
        self._number_started += 1
        self._children.append(child)
        return child

    def _admit(self, child: Child) -> None:
        """Mark a new child as idle. A child that a signal from outside has ended during its import, as
        Linux does when memory is short, is removed instead, unless it is the only one.
        """
        try:
            self._welcome(child)
        except AdapterError:
            if len(self._children) == 1 or not child.ended_from_outside:
                raise
            self._remove(child)
        else:
            self._idle.append(child)

    def _welcome(self, child: Child) -> None:
        """Read a new child's first answer, the list of implementations. Raises AdapterError if the
        child could not import them.
        """
        try:
            answer = child.answer()
        except EOFError:
            targets = " and ".join(self.order.targets)
            raise AdapterError(f"{targets} could not be imported: it {child.how_it_ended()}.") from None
        if isinstance(answer, str):
            raise AdapterError(answer)
        child.calls.clear()
        self.entries = self.entries or answer

    def _ready(self, children: list[Child]) -> list[Child]:
        """Return the child processes that have answered or are dead. Wait at most a short time.
        Raises StoppedError if a signal has come.
        """
        watched: list[Child | Signals] = [self.signals, *children]
        ready, _, _ = select(watched, (), (), min(0.5, self.order.timeout / 4))
        self.signals.obey()
        self._waiting(self)
        return [child for child in children if child in ready]


def _unknown_cause(task: Explain, reason: str) -> tuple[Cause, ...]:
    """Return one cause for all violations (failed laws) of a task. A note says why attnspec did not
    search for causes.
    """
    first = task.violations[0]
    example = replace(first, notes=(*first.notes, reason)).without_calls()
    laws = tuple(violation.law_id for violation in task.violations)
    return (Cause(example.implementation, laws, example, searched=False),)
