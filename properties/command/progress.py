"""Shows how far a verification is: a bar in a terminal, else a line every 10 seconds. Both say how long
it will take, which follows from the calls so far.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from properties.processes.messages import Entry, Order
from properties.processes.messages import Progress as OfATask
from properties.processes.runner import Runner
from properties.verifier.plan import CALLS, QUICKLY
from properties.verifier.report import Outcome, counted
from properties.views.statuses import status_counts

__all__ = ["Shown", "in_words", "seconds_left"]

_SECONDS_BETWEEN_LINES = 10.0
_FEWEST_CALLS = 3  # before their time says something about the others
_WEIGHT_OF_CALLS = 10.0  # of the usual number of calls, in test inputs of this run
_MUCH_SHORTER = 0.75  # of the whole time: a quick run that takes longer is not worth a mention
_COLUMNS = (SpinnerColumn(), BarColumn(12), TextColumn("{task.fields[laws]}"), TimeElapsedColumn())

Place = tuple[int, str]
"""The position of an implementation in the list of entries, and an operation."""


class Shown:
    """A context in which progress is shown on a console. Without a terminal, an implementation
    also gets a line when its last law is done.
    """

    def __init__(self, console: Console, order: Order, jobs: int) -> None:
        self._console, self._order, self._jobs = console, order, jobs
        self._start = self._last_line = time.monotonic()
        self._printed = False
        self._done: dict[int, list[Outcome]] = defaultdict(list)
        self._doing = f"importing {' '.join(order.targets)}"
        self._bar = Progress(
            *(*_COLUMNS, TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True))),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_interactive,
        )
        self._task = self._bar.add_task(escape(self._doing), total=None, laws="")
        self._entries: list[Entry] = []

    def __enter__(self) -> "Shown":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._printed:
            self._print("")  # between the progress and the report, which a pipe may join

    def add(self, place: int, outcome: Outcome) -> None:
        """Show that a law is done."""
        outcomes, laws = self._done[place], self._entries[place].laws
        outcomes.append(outcome)
        if len(outcomes) == len(laws) and not self._console.is_interactive:
            counts = status_counts(Counter(each.status for each in outcomes), always=())
            self._print(f"{outcome.implementation}: {counts} ({sum(each.seconds for each in outcomes):.1f} s)")

    def look(self, runner: Runner) -> None:
        """Show what a runner is doing now."""
        self._entries = runner.entries
        if runner.entries:
            self._doing = self._told(runner)
            number_done = sum(map(len, self._done.values()))
            self._bar.update(
                self._task, total=self._laws, completed=number_done, laws=f"{number_done}/{self._laws} laws"
            )
        self._bar.update(self._task, description=escape(self._doing))
        now = time.monotonic()
        if not self._console.is_interactive and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._print(f"{in_words(now - self._start)}: {self._doing}")

    @property
    def _laws(self) -> int:
        """The number of laws of all implementations."""
        return sum(len(entry.laws) for entry in self._entries)

    def _told(self, runner: Runner) -> str:
        """Return what is being done: the operations, their test inputs so far, and how long it takes."""
        under_way = runner.progress
        if not under_way:
            return "checking laws" if sum(map(len, self._done.values())) < self._laws else "searching for causes"
        several = len(runner.entries) > 1
        operations = ", ".join(
            f"{runner.entries[place].name}: {operation}" if several else operation for place, operation in under_way
        )
        failed = sum(outcome.status == "violated" for progress in under_way.values() for outcome in progress.outcomes)
        failures = f"{counted(failed, 'law')} failed" if failed else "no failure"
        inputs = counted(sum(progress.cases for progress in under_way.values()), "test input")
        return f"{operations}: {inputs}, {failures}{self._estimated(under_way)}"

    def _estimated(self, under_way: Mapping[Place, OfATask]) -> str:
        """Return how long a call takes, and about how long this run and a quick run take."""
        order, calls = self._order, sum(progress.calls for progress in under_way.values())
        if calls < _FEWEST_CALLS:
            return ""
        places = [(place, operation) for place, entry in enumerate(self._entries) for operation in entry.groups]
        finished = {(place, outcome.operation) for place, outcomes in self._done.items() for outcome in outcomes}
        remaining = seconds_left(order, [place for place in places if place not in finished], under_way, self._jobs)
        duration = time.monotonic() - self._start + remaining
        seconds = sum(progress.in_calls for progress in under_way.values()) / calls
        quick_duration = seconds * sum(CALLS[operation][1] for _, operation in places) / min(self._jobs, len(places))
        sentence = f"; {in_words(seconds)} a call: about {in_words(duration)} in all"
        if order.time_limit < duration:
            sentence += f" (the limit is {in_words(order.time_limit)})"
        if not order.quick and order.laws is None and quick_duration < _MUCH_SHORTER * duration:
            sentence += f"; --quick about {in_words(quick_duration)}"
        return sentence

    def _print(self, line: str) -> None:
        self._printed = True
        with suppress(OSError):  # a full disk does not matter: the exit status is the verdict
            print(line, file=self._console.file, flush=True)


def seconds_left(order: Order, places: Sequence[Place], under_way: Mapping[Place, OfATask], jobs: int) -> float:
    """Return about how many seconds a run still takes for some operations, of which some are under way.

    A run of known size makes about as many calls as `CALLS` says. With each test input of this run,
    its own number of calls counts for more.
    """
    scale = order.max_examples / (QUICKLY if order.quick else 100)
    weight = _WEIGHT_OF_CALLS if order.laws is None else 0.0
    calls, seconds = (sum(getattr(progress, name) for progress in under_way.values()) for name in ("calls", "seconds"))
    remaining = []
    for place in places:
        usual_calls = CALLS[place[1]][order.quick] * scale
        if progress := under_way.get(place):
            seen = max(1.0, progress.cases + weight)  # the first test input may be under way
            expected = (max(progress.planned, progress.cases) * progress.calls + weight * usual_calls) / seen
            remaining.append(max(0.0, expected - progress.calls) * progress.seconds / max(1, progress.calls))
        else:
            remaining.append(usual_calls * seconds / calls)
    return max(sum(remaining) / min(jobs, len(places)), *remaining) if remaining else 0.0


def in_words(seconds: float) -> str:
    """Return a time in words, as people say it: "0.25 s", "40 s", "6 min"."""
    if seconds >= 100:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.2g} s"
