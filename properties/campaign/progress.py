"""Shows the progress of a running campaign: a bar in a terminal, or else a line every minute."""

import time
from math import inf
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from properties.campaign.bench import Result
from properties.campaign.chunks import Chunk
from properties.verifier.report import counted

__all__ = ["Shown"]

_LINE = 60.0  # seconds between two lines without a terminal
_YEAR = 365 * 86400.0  # seconds; an end after more is not shown


class Shown:
    """Shows the number of test inputs per second, the violations, and the time of the end.

    The campaign ends after a number of seconds or of test inputs. The earlier end is shown.
    """

    def __init__(self, log: Console, seconds: float, cases: float, before: tuple[int, int, int]) -> None:
        self._log, self._seconds, self._cases = log, seconds, cases
        _, self._before, self._violations = before
        self._drawn, self._start, self._line = 0, time.monotonic(), time.monotonic()
        columns = SpinnerColumn(), BarColumn(24), TimeElapsedColumn(), TextColumn("{task.description}")
        self._progress = Progress(*columns, console=log, transient=True, disable=not log.is_interactive)
        endless = seconds == inf and cases == inf
        self._task = self._progress.add_task("", total=None if endless else 1.0)

    def __enter__(self) -> "Shown":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, sentence: str) -> None:
        """Show a sentence about a problem."""
        self._log.print(escape(f"attnspec: {sentence}"), highlight=False)

    def done(self, chunk: Chunk | None, result: Result | None) -> None:
        """Count a chunk (piece of work) as done. With None, show that time has passed."""
        if result is not None:
            self._drawn += result.cases
            self._violations += result.statuses.get("violated", 0)
        now = time.monotonic()
        share_done = max((now - self._start) / self._seconds, (self._before + self._drawn) / self._cases)
        self._progress.update(self._task, completed=min(share_done, 1.0), description=escape(self._told(now)))
        if not self._log.is_interactive and now - self._line >= _LINE:
            self._line = now
            self._log.print(self._told(now), highlight=False, markup=False)

    def _told(self, now: float) -> str:
        cases_per_second = self._drawn / max(now - self._start, 1e-9)
        seconds_left = self._start + self._seconds - now
        if cases_per_second:
            seconds_left = min(seconds_left, (self._cases - self._before - self._drawn) / cases_per_second)
        ending = f", ends {_moment(time.time() + max(seconds_left, 0.0))}" if seconds_left < _YEAR else ""
        cases_sentence = f"{self._before + self._drawn:,} cases, {cases_per_second:,.0f} a second"
        return f"{cases_sentence}, {counted(self._violations, 'violation')}{ending}"


def _moment(seconds: float) -> str:
    """Return a moment in local time as text, with the day if it is not today."""
    moment, today = time.localtime(seconds), time.localtime()
    day = "" if moment[:3] == today[:3] else time.strftime("on %Y-%m-%d ", moment)
    return f"{day}at {time.strftime('%H:%M', moment)}"
