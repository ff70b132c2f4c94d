"""A bench: one child process of `attnspec verify`, kept warm, in which chunk after chunk is run."""

import json
import os
import signal
import time
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any

from properties.campaign.chunks import Chunk
from properties.command.messages import Entry, Order, Task
from properties.command.runner import Runner
from properties.command.signals import Signals
from properties.command.targets import TargetError
from properties.verifier.note import UnwritableError
from properties.verifier.report import PASSING, Cause, Outcome, with_causes

__all__ = ["Bench", "Broken", "Lost", "Result"]


@dataclass(frozen=True)
class Broken:
    """A law that a chunk has found not to hold: its status, by how many budgets, and a sentence; what the cause is known as, and, for one
    law of each cause, the case, as JSON, and the Python that shows it again."""

    law: str
    status: str
    excess: float
    summary: str
    diagnosis: str = ""
    case: str = ""
    script: str = ""


@dataclass(frozen=True)
class Result:
    """What came of a chunk: how many laws have which status, on how many examples, of what was drawn; the largest error in budgets of
    laws that were not broken; seconds, how often it was given out again, and what does not hold."""

    statuses: dict[str, int]
    cases: int
    examples: int
    excess: float
    seconds: float
    lost: int = 0
    broken: tuple[Broken, ...] = ()


@dataclass(frozen=True)
class Lost:
    """A chunk that could not be run to its end, by no fault of the implementation, and why: it is to be given out again."""

    why: str


@dataclass
class Bench:
    """Runs chunks by an order, one after another. `stop` may be called from another thread: what is run then raises StoppedError."""

    order: Order
    folder: str = field(default_factory=os.getcwd)
    _signals: Signals | None = None
    _runner: Runner | None = None

    def entries(self) -> list[Entry]:
        """What there is to verify. Raises TargetError, where there is nothing, and ValueError where it is somewhere else."""
        return self._open().entries

    def _open(self) -> Runner:
        if self._runner is None:
            if self.folder != os.getcwd():  # a worker elsewhere
                os.chdir(self.folder)
            self._signals = self._signals or Signals(listens=False).__enter__()
            self._runner = Runner(self.order, 1, self._signals).__enter__()
        return self._runner

    def run(self, chunk: Chunk) -> Result | Lost:
        """What comes of a chunk."""
        started = time.monotonic()
        try:
            runner = self._open()
            before = runner.lost
            place, entry = next((place, entry) for place, entry in enumerate(runner.entries) if entry.name == chunk.implementation)
            outcomes: list[Outcome] = []
            causes: tuple[Cause, ...] = ()
            for _, found in runner.outcomes([Task(place, entry.groups[chunk.operation], chunk.seed, chunk.cases)]):
                if isinstance(found, Outcome):
                    outcomes.append(found)
                else:
                    causes = found
        except (TargetError, OSError, UnwritableError) as error:  # of a full disk, say: no verdict on what is verified
            self._shut()
            return Lost(str(error))
        told, causes = with_causes(outcomes, causes, lambda violation: violation.script)
        return _result(chunk, told, causes, time.monotonic() - started, runner.lost - before)

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


def _result(chunk: Chunk, outcomes: tuple[Outcome, ...], causes: tuple[Cause, ...], seconds: float, lost: int) -> Result:
    statuses: dict[str, int] = {}
    for o in outcomes:
        statuses[o.status] = statuses.get(o.status, 0) + 1
    shown = {cause.example.law_id for cause in causes}
    wrong = [o for o in outcomes if o.status not in PASSING and not o.unavailable]
    return Result(
        statuses,
        chunk.cases if any(o.examples for o in outcomes) else 0,
        sum(o.examples for o in outcomes),
        max((o.worst_excess for o in outcomes if o.status in PASSING and o.status != "declared"), default=0.0),
        seconds,
        lost,
        tuple(_broken(o, o.law_id in shown or not causes) for o in wrong),
    )


def _broken(o: Outcome, shown: bool) -> Broken:
    v = o.violation
    if v is None:
        return Broken(o.law, o.status, 0.0, o.reason)
    likely = v.likely.id if v.likely is not None else ""
    case: Any = json.dumps(v.to_dict()["counterexample"], default=str) if shown else ""
    return Broken(o.law, o.status, nan if isnan(v.excess) else v.excess, v.summary, likely, case, v.script if shown else "")
