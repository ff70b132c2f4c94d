"""Runs an order (the settings of a verification) until it is done or something stops it."""

import os
from dataclasses import dataclass, field

from rich.console import Console

from properties.command.progress import Shown
from properties.processes.adapters import AdapterError
from properties.processes.messages import Entry, Order
from properties.processes.runner import Runner
from properties.processes.signals import Signals, StoppedError
from properties.verifier.call_record import UnwritableError
from properties.verifier.report import Cause, Outcome

__all__ = ["Run", "run"]


@dataclass
class Run:
    """The results of a verification so far: the entries, which are the implementations to verify,
    the outcomes by entry and law, and the causes by entry. `stopped` is the exception that ended
    the run early, if one did.

    An entry is identified by its position, because two entries may have the same name. A law is
    identified by "law[operation]".
    """

    entries: list[Entry] = field(default_factory=list)
    outcomes: dict[tuple[int, str], Outcome] = field(default_factory=dict)
    causes_of: dict[int, tuple[Cause, ...]] = field(default_factory=dict)
    stopped: Exception | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of the failures of all implementations, in the order of the implementations."""
        return tuple(cause for place in sorted(self.causes_of) for cause in self.causes_of[place])


def run(order: Order, jobs: int) -> Run:
    """Run an order (the settings of a verification) in a number of processes, and return the
    results.
    """
    threads = max(1, (os.cpu_count() or 1) // jobs)  # the processes share the processors
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    known = Run()
    try:
        with Signals() as signals:
            _follow(known, order, jobs, signals)
            signals.obey()
    except (StoppedError, AdapterError) as stopped:
        known.stopped = stopped
    except (OSError, UnwritableError) as error:
        reason = str(getattr(error, "strerror", "") or error).rstrip(".")
        known.stopped = AdapterError(f"The processes cannot be run: {reason}.")
    return known


def _follow(known: Run, order: Order, jobs: int, signals: Signals) -> None:
    """Add the results as they come, and show the progress. If the run is stopped, add what the
    operations that are under way have shown so far.
    """
    console = Console(stderr=True)
    with Shown(console, order, jobs) as shown, Runner(order, jobs, signals, shown.look) as runner:
        known.entries = runner.entries
        try:
            for place, found in runner.outcomes():
                if isinstance(found, tuple):
                    known.causes_of[place] = (*known.causes_of.get(place, ()), *found)
                    continue
                assert isinstance(found, Outcome)  # the order has no climbs
                known.outcomes[place, found.law_id] = found
                shown.add(place, found)
        except StoppedError:
            for (place, _), progress in runner.progress.items():
                for outcome in progress.outcomes:
                    known.outcomes.setdefault((place, outcome.law_id), outcome)
            raise
