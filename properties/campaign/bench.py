"""Defines a bench: a warm child process of `attnspec verify` that runs one chunk (piece of work)
after another.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from properties.campaign.chunks import Chunk
from properties.contract.names import parts_of
from properties.laws.agreement import AGREEMENT
from properties.processes.adapters import AdapterError
from properties.processes.messages import Climb, Entry, Order, Task
from properties.processes.runner import Runner
from properties.processes.signals import Signals
from properties.verifier.call_record import UnwritableError
from properties.verifier.case_json import unpacked
from properties.verifier.report import PASSING, Cause, Outcome, Violation, broken, reason_for, with_causes
from properties.verifier.script import script
from properties.verifier.worst_input import Worst

__all__ = ["Bench", "Broken", "Lost", "Result", "agreement_of"]


@dataclass(frozen=True)
class Broken:
    """A law that does not pass on a chunk, a piece of a campaign's work.

    excess      error ÷ budget, the error limit
    diagnosis   the name of the likely cause
    case        the input as JSON; given for one law of each cause
    script      the Python that reproduces the failure; given for one law of each cause
    """

    law: str
    status: str
    excess: float
    summary: str
    diagnosis: str = ""
    case: str = ""
    script: str = ""


@dataclass(frozen=True)
class Result:
    """The result of a chunk, a piece of a campaign's work.

    statuses   the number of laws with each status
    cases      the number of inputs that were drawn
    examples   the number of informative inputs: they could have exposed a mistake
    excess     the largest error ÷ budget (error limit) of the laws that pass
    line       the largest error ÷ statistical line, which errors almost never exceed if roundings
               are independent
    lost       how many times the chunk was given out again
    broken     the laws that do not pass
    worst      the worst input, if the chunk was a search for it
    """

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
    """A chunk (piece of work) that did not run to its end, and the reason. It must be given out
    again.

    `starts` is False if no process could import the adapters. `partly` is the result so far, for
    example if a process died under a law and no other process could start.
    """

    why: str
    starts: bool = True
    partly: Result | None = None


@dataclass
class Bench:
    """Runs the chunks (pieces of work) of an order, the settings of a campaign, one after another.

    Another thread may call `stop`. The running chunk then raises StoppedError.
    """

    order: Order
    folder: str = field(default_factory=os.getcwd)
    _signals: Signals | None = None
    _runner: Runner | None = None

    def entries(self, signals: Signals | None = None) -> list[Entry]:
        """Return the implementations to verify. Raises AdapterError, and StoppedError if a signal
        comes first.
        """
        return self._open(signals).entries

    def _open(self, signals: Signals | None = None) -> Runner:
        if self._runner is None:
            if self.folder != os.getcwd():  # a worker on another machine
                self._move()
            self._signals = self._signals or Signals(listens=False).__enter__()
            self._runner = Runner(self.order, 1, signals or self._signals).__enter__()
            self._runner.signals = self._signals
        return self._runner

    def _move(self) -> None:
        try:
            os.chdir(self.folder)
        except OSError as error:
            reason = f"a worker cannot work in {self.folder}, {error.strerror}"
            raise AdapterError(
                f"What is verified should be under the same path on every machine, but {reason}."
            ) from None

    def run(self, chunk: Chunk) -> Result | Lost:
        """Run a chunk (a piece of work), and return its result, or the reason why it did not end."""
        started, before, outcomes, causes, worst = time.monotonic(), 0, list[Outcome](), tuple[Cause, ...](), None
        try:
            runner = self._open()
            before, place, entry = runner.lost, *_entry(runner.entries, chunk)
            for _, answer in runner.outcomes([_task(chunk, place, entry)]):
                if isinstance(answer, Outcome):
                    outcomes.append(answer)
                elif isinstance(answer, Worst):
                    worst = answer
                    outcomes.append(_judged(worst, entry, chunk.operation))
                elif answer is not None:
                    causes = answer
        except (OSError, UnwritableError) as error:  # for example a full disk: this is no verdict on the implementation
            self._shut()
            return Lost(str(error))
        except AdapterError as error:
            self._shut()
            if not outcomes:
                return Lost(str(error), starts=False)
            outcomes_with_causes = (*outcomes, *_missing(entry, chunk.operation, outcomes, str(error)))
            partly = replace(_result(outcomes_with_causes, ()), cases=chunk.cases, seconds=time.monotonic() - started)
            return Lost(str(error), starts=False, partly=partly)
        outcomes_with_causes, causes = with_causes(outcomes, causes, lambda violation: violation.script)
        cases = (
            0
            if not any(outcome.examples for outcome in outcomes_with_causes)
            else chunk.cases
            if worst is None
            else worst.calls
        )
        return replace(
            _result(outcomes_with_causes, causes),
            cases=cases,
            seconds=time.monotonic() - started,
            lost=runner.lost - before,
            worst=worst,
        )

    def stop(self) -> None:
        """End the running chunk."""
        if self._signals is not None:
            self._signals.ask(signal.SIGTERM)

    def close(self) -> None:
        """End the child process."""
        self._shut()
        if self._signals is not None:
            self._signals.__exit__(None, None, None)
            self._signals = None

    def _shut(self) -> None:
        if self._runner is not None:
            self._runner.__exit__(None, None, None)
            self._runner = None


def _entry(entries: list[Entry], chunk: Chunk) -> tuple[int, Entry]:
    """Return the position of a chunk's implementation in the list of entries, and its entry. Raises
    AdapterError if this machine does not have the implementation.
    """
    for place, entry in enumerate(entries):
        if entry.name == chunk.implementation and chunk.operation in entry.groups and not entry.unavailable:
            return place, entry
    raise AdapterError(f"A worker does not find {chunk.implementation} with {chunk.operation}, or cannot run it.")


def _missing(entry: Entry, operation: str, outcomes: list[Outcome], why: str) -> Iterator[Outcome]:
    """Yield the outcome "not run" for each law of an operation that has no outcome yet."""
    finished_laws = {outcome.law_id for outcome in outcomes}
    for law in (entry.laws[place] for place in entry.groups[operation]):
        if law not in finished_laws:
            yield Outcome(*parts_of(law), entry.name, "not run", reason=why)


def _task(chunk: Chunk, place: int, entry: Entry) -> Task | Climb:
    """Return the task for a child process that does the work of a chunk."""
    if chunk.kind == "draw":
        return Task(place, entry.groups[chunk.operation], chunk.seed, chunk.cases)
    start = json.loads(chunk.start) if chunk.start else None
    return Climb(place, chunk.operation, chunk.domain, chunk.seed, chunk.cases, start)


def _judged(worst: Worst, entry: Entry, operation: str) -> Outcome:
    """Return the outcome of the law of agreement with the oracle on the worst input that a search
    found.
    """
    law = agreement_of(entry, operation)
    name = parts_of(law)[0]
    if worst.ratio <= 1:
        return Outcome(name, operation, entry.name, "held", worst.calls, worst.calls, worst_excess=worst.ratio)
    output = worst.output or "A result"
    summary = f"{output} is {worst.ratio:.4g} times its budget from the exact value, on the worst input of a climb."
    violation = Violation(name, operation, entry.name, summary, unpacked(worst.case), worst.ratio, shrunk=False)
    reproduction = script(violation, entry.target, entry.pick, entry.override, entry.reading)
    violation = replace(violation, script=reproduction)
    return broken(violation, reason_for(entry.deviations, law), worst.calls)


def agreement_of(entry: Entry, operation: str) -> str:
    """Return the id of the law that compares an operation with the oracle. Return "" if the laws of
    the implementation do not include it.
    """
    agreement_laws = {law.id for law in AGREEMENT}
    return next((law for place in entry.groups.get(operation, ()) if (law := entry.laws[place]) in agreement_laws), "")


def _result(outcomes: tuple[Outcome, ...], causes: tuple[Cause, ...]) -> Result:
    explained_laws = {cause.example.law_id for cause in causes}
    failed = [outcome for outcome in outcomes if outcome.status not in PASSING and not outcome.unavailable]
    passed = [outcome for outcome in outcomes if outcome.status in PASSING and outcome.status != "declared"]
    return Result(
        dict(Counter(outcome.status for outcome in outcomes)),
        examples=sum(outcome.examples for outcome in outcomes),
        excess=max((outcome.worst_excess for outcome in passed), default=0.0),
        line=max((outcome.worst_line for outcome in passed), default=0.0),
        broken=tuple(_broken(outcome, outcome.law_id in explained_laws or not causes) for outcome in failed),
    )


def _broken(outcome: Outcome, shown: bool) -> Broken:
    """Return the failing law of an outcome. With `shown`, the input on which it fails is included."""
    violation = outcome.violation
    if violation is None:
        return Broken(outcome.law, outcome.status, 0.0, outcome.reason)
    likely = violation.likely.id if violation.likely is not None else ""
    counterexample = json.dumps(violation.to_dict()["counterexample"], default=str) if shown else ""
    reproduction = violation.script if shown else ""
    return Broken(
        outcome.law, outcome.status, violation.excess, violation.summary, likely, counterexample, reproduction
    )
