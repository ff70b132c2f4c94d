"""Running an order to its end, or until something stops it, while what is known so far is shown."""

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from properties.command.messages import Entry, Order
from properties.command.runner import Runner
from properties.command.signals import Signals, StoppedError
from properties.command.targets import TargetError
from properties.verifier.call_record import UnwritableError
from properties.verifier.report import Cause, Outcome
from properties.views.statuses import status_counts

__all__ = ["Run", "run"]


@dataclass
class Run:
    """What is known of a run: its entries, the outcomes by entry and law, and what stopped it
    before its end, if something did.

    An entry is meant by its place, for two may have one name; a law is "law[operation]".
    """

    entries: list[Entry] = field(default_factory=list)
    outcomes: dict[tuple[int, str], Outcome] = field(default_factory=dict)
    causes_of: dict[int, tuple[Cause, ...]] = field(default_factory=dict)
    stopped: Exception | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of all entries, in their order."""
        return tuple(cause for place in sorted(self.causes_of) for cause in self.causes_of[place])


def run(order: Order, jobs: int) -> Run:
    """Run an order in so many processes; what is known at the end."""
    os.environ.setdefault(
        "OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs))
    )  # the processes share the processors
    known = Run()
    try:
        with Signals() as signals:
            _follow(known, order, jobs, signals)
            signals.obey()
    except (StoppedError, TargetError) as stopped:
        known.stopped = stopped
    except (OSError, UnwritableError) as error:
        why = str(getattr(error, "strerror", "") or error).rstrip(".")
        known.stopped = TargetError(f"The processes cannot be run: {why}.")
    return known


def _follow(known: Run, order: Order, jobs: int, signals: Signals) -> None:
    """Add to what is known as it comes, and show it: a bar in a terminal, elsewhere a line for each
    entry that is done.
    """
    log = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        BarColumn(24),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=log, transient=True, disable=not log.is_interactive) as progress:
        task = progress.add_task(f"importing {escape(' '.join(order.targets))}", total=None)
        with Runner(order, jobs, signals) as runner:
            known.entries = runner.entries
            left = [len(entry.laws) for entry in known.entries]
            progress.update(task, total=sum(left))
            for place, found in runner.outcomes():
                if isinstance(found, tuple):
                    known.causes_of[place] = (*known.causes_of.get(place, ()), *found)
                    continue
                assert isinstance(found, Outcome)  # nothing was asked to climb
                known.outcomes[place, found.law_id] = found
                left[place] -= 1
                progress.update(task, advance=1, description=escape(f"{found.implementation}: {found.law}"))
                if not left[place] and not log.is_interactive:
                    _print_line(log, [o for (of, _), o in known.outcomes.items() if of == place])


def _print_line(log: Console, outcomes: list[Outcome]) -> None:
    """How many laws of an entry have come to what, and in how long."""
    counts = status_counts(Counter(o.status for o in outcomes), always=())
    with suppress(OSError):  # of a full disk: the verdict is what matters
        print(
            f"{outcomes[0].implementation}: {counts} ({sum(o.seconds for o in outcomes):.1f} s)",
            file=log.file,
            flush=True,
        )
