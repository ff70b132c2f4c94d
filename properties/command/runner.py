"""The parent's side of `attnspec verify`: which child process checks which laws, and what became of
those that did not come back.
"""

import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from select import select
from types import TracebackType

from properties.campaign.climbing import Worst
from properties.command.child import Child
from properties.command.deaths import death
from properties.command.messages import Climb, Entry, Explain, Failed, Order, Task
from properties.command.signals import Signals
from properties.command.targets import TargetError
from properties.contract.names import parts_of
from properties.verifier.note import UnwritableError
from properties.verifier.report import Cause, Outcome, Violation
from properties.verifier.timing import Time

__all__ = ["Found", "Runner"]

Found = Outcome | tuple[Cause, ...] | Worst | None

_AT_ONCE = 2  # processes that are started before it is known how many there are tasks for: an import may take as long as all laws
_DEATHS = 3  # of the process in one operation of one implementation, after which its other laws are not tried: each costs up to a timeout


class Runner:
    """What is verified by an order, in `jobs` processes, of which none waits longer than the
    order's timeout for one call.

        with Runner(order, jobs, signals) as runner:
            for entry, found in runner.outcomes(): ...

    `entries` says what there is to verify. An order to fail fast ends it at the first violation of
    a law that is not known to be violated, or else with the causes of the first implementation of
    which one is new. Raises TargetError where a process cannot find out what there is to verify,
    UnwritableError and OSError where none can go on, and StoppedError where one of `signals` has
    come.
    """

    def __init__(self, order: Order, jobs: int, signals: Signals) -> None:
        self.order, self.jobs, self.signals = order, jobs, signals
        self.entries: list[Entry] = []
        self._folder = tempfile.TemporaryDirectory(prefix="attnspec-")
        self._children: list[Child] = []
        self._started = 0
        self._time = Time(order.budget)
        self._gently = False
        self._tasks: deque[Task | Explain | Climb] = deque()
        self._idle: list[Child] = []
        self._left: list[int] = []  # of each entry the laws that are not known
        self._violations: list[list[Violation]] = []  # of each entry
        self._deaths: Counter[tuple[int, str]] = Counter()  # in an operation of an entry
        self.lost = 0  # how often a task was given out again

    def __enter__(self) -> "Runner":
        try:
            for _ in range(min(self.jobs, _AT_ONCE)):
                self._start()
            while not (ready := self._ready(self._children)):
                for child in self._children:
                    child.abort_if_overdue()
            self._welcome(ready[0])
            self._idle.append(ready[0])
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.stop(self._gently and child in self._idle)  # one that still imports would not notice
        self._children.clear()
        self._folder.cleanup()

    def outcomes(self, tasks: Iterable[Task | Climb] | None = None) -> Iterator[tuple[int, Found]]:
        """(the entry's place, an outcome) as they are known, and after its last one the causes of
        its violations, if there are some.

        Of all laws, or of some tasks: when they are done others may be asked for, of processes that
        are kept. A climb has a worst input, or none, and no causes.
        """
        self._tasks.extend(self._all() if tasks is None else tasks)
        self._left = [0 for _ in self.entries]
        for task in self._tasks:
            self._left[task.entry] += len(task.laws) if isinstance(task, Task) else 0
        self._violations = [[] for _ in self.entries]
        self._deaths.clear()
        while len(self._children) < min(self.jobs, len(self._tasks)):
            self._start()
        while True:
            yield from self._hand_out()
            busy = [child for child in self._children if child not in self._idle]
            if not self._tasks and all(child.task is None for child in busy):
                self._gently = True
                return
            ready = self._ready(busy)
            for child in busy:
                if child not in self._children:  # it was ended as the others were
                    continue
                if child in ready:
                    yield from self._collect(child)
                else:
                    child.abort_if_overdue()

    def _all(self) -> Iterator[Task]:
        """All laws of all entries, those about one operation together."""
        for place, entry in enumerate(self.entries):
            for laws in entry.groups.values():
                yield Task(place, laws, self.order.seed, self.order.max_examples)

    def _hand_out(self) -> Iterator[tuple[int, Outcome]]:
        """Give tasks to children that are idle; the outcomes of those that are not tried."""
        while self._idle and self._tasks:
            task = self._tasks.popleft()
            if isinstance(task, Task):
                laws = [parts_of(self.entries[task.entry].laws[law]) for law in task.laws]
                operation = laws[0][1]
                if self._deaths[task.entry, operation] >= _DEATHS:
                    reason = f"It was not tried: {operation} had ended the process, or not returned, {_DEATHS} times."
                    name = self.entries[task.entry].name
                    yield from self._known(task.entry, [Outcome(*law, name, "not run", reason=reason) for law in laws])
                    continue
                later = sum(len(each.laws) for each in self._tasks if isinstance(each, Task))
                task = replace(task, until=self._time.share(len(laws), len(laws) + later, len(self._children)))
            self._idle.pop().begin(task)

    def _collect(self, child: Child) -> Iterator[tuple[int, Found]]:
        """What a child answers, which is idle then, or what its death means."""
        task = child.task
        if task is None:
            self._welcome(child)
        else:
            try:
                answer = child.answer()
            except EOFError:
                if child.innocent and task.lost < self.order.again:
                    self._again(child, replace(task, lost=task.lost + 1))
                else:
                    yield from (
                        self._unexplained(child, task) if isinstance(task, Explain) else self._failed(child, task)
                    )
                if self._tasks:
                    self._start()
                return
            child.task = None
            if isinstance(answer, str):
                raise UnwritableError(answer)
            if isinstance(answer, Failed):
                yield from self._without_verdict(task, answer.why)
            elif isinstance(task, Climb):
                yield task.entry, answer
            elif isinstance(task, Explain):
                if self.order.fail_fast and not all(map(self.order.known.may_be, answer)):
                    self._give_up()
                yield task.entry, answer
            else:
                yield from self._known(task.entry, answer)
        self._idle.append(child)

    def _known(self, place: int, found: Iterable[Outcome]) -> Iterator[tuple[int, Outcome]]:
        """Outcomes of one task, without what only their causes need, which are asked for when the
        entry's last outcome is known.
        """
        told = []
        for outcome in found:
            self._left[place] -= 1
            v = outcome.violation
            if outcome.status == "violated" and v is not None:
                self._violations[place].append(v)
            told.append(outcome if v is None else replace(outcome, violation=v.without_calls()))
        if not self._left[place]:
            self._explain(place)
        if self.order.fail_fast and any(
            o.status == "violated" and not self.order.known.has(o.implementation, o.law_id) for o in told
        ):
            self._give_up()
        for outcome in told:
            yield place, outcome

    def _explain(self, place: int) -> None:
        """Ask for the causes of an entry's violations, if there are some, in the order of its plan,
        and not as they came.
        """
        planned = self.entries[place].laws.index
        if in_order := sorted(self._violations[place], key=lambda v: planned(v.law_id)):
            self._tasks.appendleft(Explain(place, tuple(in_order), until=self._time.end))

    def _give_up(self) -> None:
        """Check no further law, and end those that are being checked; of what is known the causes
        are still looked for.
        """
        explaining = [task for task in self._tasks if isinstance(task, Explain)]
        self._tasks.clear()
        self._tasks.extend(explaining)
        for child in [child for child in self._children if isinstance(child.task, Task)]:
            self._bury(child)
        for place in [place for place, left in enumerate(self._left) if left]:
            self._left[place] = 0
            self._explain(place)

    def _failed(self, child: Child, task: Task | Climb) -> Iterator[tuple[int, Outcome]]:
        """The outcome of the law under which a child died, by climbs the first of the operation; a
        task's other laws are gone on with.
        """
        entry = self.entries[task.entry]
        laws = task.laws if isinstance(task, Task) else entry.groups[task.operation]
        noted, ids = child.calls.noted, [entry.laws[law] for law in laws]
        law = noted.law if noted is not None and noted.law in ids else ids[0]
        seconds = time.monotonic() - child.since
        found = death(entry, *parts_of(law), child.end(), child.calls, *child.last_words(), seconds=seconds)
        self._bury(child)
        if isinstance(task, Climb):
            return iter([(task.entry, found)])
        self._deaths[task.entry, found.operation] += 1
        others = tuple(place for place, each in zip(task.laws, ids, strict=True) if each != law)
        if others:
            self._tasks.appendleft(replace(task, laws=others))
        return self._known(task.entry, [found])

    def _again(self, child: Child, task: Task | Explain | Climb) -> None:
        """Give out a task again, whose process something else has ended."""
        self._bury(child)
        self._tasks.appendleft(task)
        self.lost += 1

    def _unexplained(self, child: Child, task: Explain) -> Iterator[tuple[int, tuple[Cause, ...]]]:
        """What is told where a child died when causes were looked for: the same without smaller
        inputs, or else the violations alone.
        """
        how = child.end()
        self._bury(child)
        if task.shrinks:
            self._tasks.append(replace(task, shrinks=False))  # which calls nothing
            return
        yield task.entry, _unknown_cause(task, f"When smaller inputs were looked for, the implementation {how}.")

    def _without_verdict(self, task: Task | Explain | Climb, why: str) -> Iterator[tuple[int, Found]]:
        """What is told of a task in which attnspec itself failed: its laws have no verdict, its violations no cause."""
        if isinstance(task, Explain):
            yield task.entry, _unknown_cause(task, why)
            return
        entry = self.entries[task.entry]
        laws = [
            entry.laws[place] for place in (task.laws if isinstance(task, Task) else entry.groups[task.operation][:1])
        ]
        found = [Outcome(*parts_of(law), entry.name, "not run", reason=why, defect=True) for law in laws]
        yield from self._known(task.entry, found) if isinstance(task, Task) else [(task.entry, found[0])]

    def _bury(self, child: Child) -> None:
        self._children.remove(child)
        if child in self._idle:
            self._idle.remove(child)
        child.stop()

    def _start(self) -> Child:
        child = Child(self.order, Path(self._folder.name), self._started)
        self._started += 1
        self._children.append(child)
        return child

    def _welcome(self, child: Child) -> None:
        """The entries that a child has found, or a TargetError that says why it found none."""
        try:
            found = child.answer()
        except EOFError:
            raise TargetError(f"{' and '.join(self.order.targets)} could not be imported: it {child.end()}.") from None
        if isinstance(found, str):
            raise TargetError(found)
        child.calls.clear()
        self.entries = self.entries or found

    def _ready(self, children: list[Child]) -> list[Child]:
        """The children that have answered, or are dead, after a while at most. Raises StoppedError
        where a signal has come.
        """
        watched: list[Child | Signals] = [self.signals, *children]
        ready, _, _ = select(watched, (), (), min(0.5, self.order.timeout / 4))
        self.signals.obey()
        return [child for child in children if child in ready]


def _unknown_cause(task: Explain, why: str) -> tuple[Cause, ...]:
    """One cause of all violations of a task, with a note that says why no cause was searched for."""
    first = task.violations[0]
    example = replace(first, notes=(*first.notes, why)).without_calls()
    return (Cause(example.implementation, tuple(v.law_id for v in task.violations), example, searched=False),)
