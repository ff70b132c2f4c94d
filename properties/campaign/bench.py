"""A bench: one child process of `attnspec verify`, kept warm, in which chunk after chunk is run."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from properties.campaign.chunks import Chunk
from properties.campaign.climbing import Worst
from properties.campaign.packing import unpacked
from properties.command.messages import Climb, Entry, Order, Task
from properties.command.runner import Runner
from properties.command.signals import Signals
from properties.command.targets import TargetError
from properties.contract.names import parts_of
from properties.laws.agreement import AGREEMENT
from properties.verifier.note import UnwritableError
from properties.verifier.report import PASSING, Cause, Outcome, Violation, broken, reason_for, with_causes
from properties.verifier.script import script

__all__ = ["Bench", "Broken", "Lost", "Result", "agreement_of"]


@dataclass(frozen=True)
class Broken:
    """A law that a chunk has found not to hold: its status, by how many budgets, and a sentence;
    what the cause is known as, and, for one law of each cause, the case, as JSON, and the Python
    that shows it again."""

    law: str
    status: str
    excess: float
    summary: str
    diagnosis: str = ""
    case: str = ""
    script: str = ""


@dataclass(frozen=True)
class Result:
    """What came of a chunk: how many laws have which status, on how many examples, of what was
    drawn; the largest error of laws that were not broken, in budgets and in statistical lines;
    seconds, how often it was given out again, what does not hold, and the worst input of a
    climb."""

    statuses: dict[str, int]
    cases: int = 0
    examples: int = 0
    excess: float = 0.0
    line: float = 0.0
    seconds: float = 0.0
    lost: int = 0
    broken: tuple[Broken, ...] = ()
    worst: Worst | None = None


@dataclass(frozen=True)
class Lost:
    """A chunk that could not be run to its end, and why: it is to be given out again. `starts` is
    False where no process could import what is verified; `partly` is what came of the chunk before
    that, as where a process died under a law and no other could take its place."""

    why: str
    starts: bool = True
    partly: Result | None = None


@dataclass
class Bench:
    """Runs chunks by an order, one after another. `stop` may be called from another thread: what is
    run then raises StoppedError.
    """

    order: Order
    folder: str = field(default_factory=os.getcwd)
    _signals: Signals | None = None
    _runner: Runner | None = None

    def entries(self, signals: Signals | None = None) -> list[Entry]:
        """What there is to verify. Raises TargetError where there is nothing, and StoppedError
        where one of `signals` comes before that.
        """
        return self._open(signals).entries

    def _open(self, signals: Signals | None = None) -> Runner:
        if self._runner is None:
            if self.folder != os.getcwd():  # a worker elsewhere
                self._move()
            self._signals = self._signals or Signals(listens=False).__enter__()
            self._runner = Runner(self.order, 1, signals or self._signals).__enter__()
            self._runner.signals = self._signals
        return self._runner

    def _move(self) -> None:
        try:
            os.chdir(self.folder)
        except OSError as error:
            why = f"a worker cannot work in {self.folder}, {error.strerror}"
            raise TargetError(f"What is verified should be under the same path on every machine, but {why}.") from None

    def run(self, chunk: Chunk) -> Result | Lost:
        """What comes of a chunk."""
        started, before, outcomes, causes, worst = time.monotonic(), 0, list[Outcome](), tuple[Cause, ...](), None
        try:
            runner = self._open()
            before, place, entry = runner.lost, *_entry(runner.entries, chunk)
            for _, found in runner.outcomes([_task(chunk, place, entry)]):
                if isinstance(found, Outcome):
                    outcomes.append(found)
                elif isinstance(found, Worst):
                    worst = found
                    outcomes.append(_judged(worst, entry, chunk.operation))
                elif found is not None:
                    causes = found
        except (OSError, UnwritableError) as error:  # of a full disk, say: no verdict on what is verified
            self._shut()
            return Lost(str(error))
        except TargetError as error:
            self._shut()
            if not outcomes:
                return Lost(str(error), starts=False)
            told = (*outcomes, *_missing(entry, chunk.operation, outcomes, str(error)))
            partly = replace(_result(told, ()), cases=chunk.cases, seconds=time.monotonic() - started)
            return Lost(str(error), starts=False, partly=partly)
        told, causes = with_causes(outcomes, causes, lambda violation: violation.script)
        cases = 0 if not any(o.examples for o in told) else chunk.cases if worst is None else worst.calls
        return replace(
            _result(told, causes),
            cases=cases,
            seconds=time.monotonic() - started,
            lost=runner.lost - before,
            worst=worst,
        )

    def stop(self) -> None:
        """End what is being run."""
        if self._signals is not None:
            self._signals.ask(signal.SIGTERM)

    def close(self) -> None:
        """End its process."""
        self._shut()
        if self._signals is not None:
            self._signals.__exit__(None, None, None)
            self._signals = None

    def _shut(self) -> None:
        if self._runner is not None:
            self._runner.__exit__(None, None, None)
            self._runner = None


def _entry(entries: list[Entry], chunk: Chunk) -> tuple[int, Entry]:
    """The place of a chunk's implementation, and its entry. Raises TargetError where this machine
    has not found it, as another has.
    """
    for place, entry in enumerate(entries):
        if entry.name == chunk.implementation and chunk.operation in entry.groups and not entry.unavailable:
            return place, entry
    raise TargetError(
        f"{chunk.implementation} with {chunk.operation} is not found, or cannot be run, where a worker is."
    )


def _missing(entry: Entry, operation: str, outcomes: list[Outcome], why: str) -> Iterator[Outcome]:
    """An operation's laws that have no outcome, each as not run, and why."""
    known = {outcome.law_id for outcome in outcomes}
    for law in (entry.laws[place] for place in entry.groups[operation]):
        if law not in known:
            yield Outcome(*parts_of(law), entry.name, "not run", reason=why)


def _task(chunk: Chunk, place: int, entry: Entry) -> Task | Climb:
    """What a process is told to do for a chunk."""
    if chunk.kind == "draw":
        return Task(place, entry.groups[chunk.operation], chunk.seed, chunk.cases)
    start = json.loads(chunk.start) if chunk.start else None
    return Climb(place, chunk.operation, chunk.domain, chunk.seed, chunk.cases, start)


def _judged(worst: Worst, entry: Entry, operation: str) -> Outcome:
    """What a climb's worst input says of the operation's agreement with the oracle."""
    law = agreement_of(entry, operation)
    name = parts_of(law)[0]
    if worst.ratio <= 1:
        return Outcome(name, operation, entry.name, "held", worst.calls, worst.calls, worst_excess=worst.ratio)
    summary = f"{worst.output or 'A result'} is {worst.ratio:.4g} times its budget from the exact value, on the worst input of a climb."
    v = Violation(name, operation, entry.name, summary, unpacked(worst.case), worst.ratio, shrunk=False)
    v = replace(v, script=script(v, entry.target, entry.pick, entry.override, entry.reading))
    return broken(v, reason_for(entry.deviations, law), worst.calls)


def agreement_of(entry: Entry, operation: str) -> str:
    """The law, of those to be checked, by which an operation is compared with the oracle; "" for none."""
    known = {law.id for law in AGREEMENT}
    return next((law for place in entry.groups.get(operation, ()) if (law := entry.laws[place]) in known), "")


def _result(outcomes: tuple[Outcome, ...], causes: tuple[Cause, ...]) -> Result:
    shown = {cause.example.law_id for cause in causes}
    wrong = [o for o in outcomes if o.status not in PASSING and not o.unavailable]
    passed = [o for o in outcomes if o.status in PASSING and o.status != "declared"]
    return Result(
        dict(Counter(o.status for o in outcomes)),
        examples=sum(o.examples for o in outcomes),
        excess=max((o.worst_excess for o in passed), default=0.0),
        line=max((o.worst_line for o in passed), default=0.0),
        broken=tuple(_broken(o, o.law_id in shown or not causes) for o in wrong),
    )


def _broken(o: Outcome, shown: bool) -> Broken:
    v = o.violation
    if v is None:
        return Broken(o.law, o.status, 0.0, o.reason)
    likely = v.likely.id if v.likely is not None else ""
    case = json.dumps(v.to_dict()["counterexample"], default=str) if shown else ""
    return Broken(o.law, o.status, v.excess, v.summary, likely, case, v.script if shown else "")
