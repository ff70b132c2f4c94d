"""Runs an order (the settings of a verification) until it is done or something stops it, and shows
the progress.
"""

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from properties.processes.adapters import AdapterError
from properties.processes.messages import Entry, Order
from properties.processes.runner import Runner
from properties.processes.signals import Signals, StoppedError
from properties.verifier.call_record import UnwritableError
from properties.verifier.report import Cause, Outcome
from properties.views.statuses import status_counts

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
    """Add the results as they come, and show the progress: a bar in a terminal, or else a line for
    each implementation.
    """
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        BarColumn(24),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_interactive) as progress:
        task = progress.add_task(f"importing {escape(' '.join(order.targets))}", total=None)
        with Runner(order, jobs, signals) as runner:
            known.entries = runner.entries
            laws_left = [len(entry.laws) for entry in known.entries]
            progress.update(task, total=sum(laws_left))
            for place, found in runner.outcomes():
                if isinstance(found, tuple):
                    known.causes_of[place] = (*known.causes_of.get(place, ()), *found)
                    continue
                assert isinstance(found, Outcome)  # the order has no climbs
                known.outcomes[place, found.law_id] = found
                laws_left[place] -= 1
                progress.update(task, advance=1, description=escape(f"{found.implementation}: {found.law}"))
                if not laws_left[place] and not console.is_interactive:
                    _print_line(
                        console, [outcome for (position, _), outcome in known.outcomes.items() if position == place]
                    )


def _print_line(console: Console, outcomes: list[Outcome]) -> None:
    """Print how many laws of an implementation have each status, and how long they took."""
    counts = status_counts(Counter(outcome.status for outcome in outcomes), always=())
    with suppress(OSError):  # a full disk does not matter: the exit status is the verdict
        print(
            f"{outcomes[0].implementation}: {counts} ({sum(outcome.seconds for outcome in outcomes):.1f} s)",
            file=console.file,
            flush=True,
        )
