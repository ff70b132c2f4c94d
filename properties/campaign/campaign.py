"""Runs the loop of a campaign: chunks (pieces of work) go to an engine, and their results to the
store, until the time is over.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from properties.campaign.bench import Lost, Result
from properties.campaign.chunks import Chunk
from properties.campaign.engines import Engine
from properties.campaign.examples import AwayError, Examples
from properties.campaign.store import FullError, Store
from properties.processes.adapters import AdapterError
from properties.processes.signals import Signals

__all__ = ["Campaign", "until_cases"]

_TICK = 0.5  # seconds between two checks of the time and of signals
_WAIT = 5.0  # seconds until a failed step is tried again
_STARTS = 5  # failed starts per worker, without a finished chunk in between, that end the campaign


@dataclass
class Campaign:
    """A running campaign over `chunks` (pieces of work). Chunks that are already in the store are
    left out.

    `said` is called with sentences about problems. `done` is called with each finished chunk and
    its result. After `end`, a time of time.monotonic, no chunk is given out, and the loop waits for
    the running chunks. A chunk that is lost then runs in another campaign.
    """

    engine: Engine
    store: Store
    chunks: Iterable[Chunk]
    examples: Examples
    signals: Signals
    end: float = inf
    said: Callable[[str], None] = print
    done: Callable[[Chunk | None, Result | None], None] = lambda chunk, result: None
    wait: float = _WAIT
    _again: deque[tuple[float, Chunk]] = field(default_factory=deque)
    _partly: dict[Chunk, Result] = field(default_factory=dict)
    _away: bool = False  # the examples' database
    _failures: int = 0  # to start, since a chunk was finished

    def run(self) -> None:
        """Run the campaign to its end.

        Raises StoppedError if a signal has come, and AdapterError if workers can no longer start.
        Chunks that are running then have no result.
        """
        new_chunks = self._fresh()
        while True:
            while self.engine.running < self.engine.workers and (chunk := self._next(new_chunks)) is not None:
                self.engine.submit(chunk)
            if not self.engine.running:
                if not self._again or time.monotonic() >= self.end:
                    return
                time.sleep(min(_TICK, self.wait))
            for chunk, result in self.engine.finished(_TICK) if self.engine.running else ():
                if isinstance(result, Lost):
                    self._lose(chunk, result)
                else:
                    self._failures = 0
                    self._keep(chunk, result)
            self.done(None, None)
            self.signals.obey()

    def _next(self, fresh: Iterator[Chunk]) -> Chunk | None:
        """Return the next chunk (piece of work): one that was lost a while ago, or else a new one.
        Return None if no chunk is left or the time is over.
        """
        now = time.monotonic()
        if now >= self.end:
            return None
        if self._again and self._again[0][0] <= now:
            return self._again.popleft()[1]
        return next(fresh, None)

    def _fresh(self) -> Iterator[Chunk]:
        """Yield the chunks (pieces of work) that are not done, each of them once."""
        yielded_ids = set()
        for chunk in self.chunks:
            if chunk.id not in yielded_ids and not self.store.has(chunk):
                yielded_ids.add(chunk.id)
                yield chunk

    def _lose(self, chunk: Chunk, lost: Lost) -> None:
        """Give a lost chunk (piece of work) out again. If workers have failed to start too often,
        keep the partial results, and end the campaign.
        """
        self._failures += not lost.starts
        if lost.partly is not None:
            self._partly[chunk] = lost.partly
        if self._failures >= _STARTS * self.engine.workers:
            for partial_chunk, result in list(self._partly.items()):
                self._keep(partial_chunk, result)
            raise AdapterError(f"No worker starts any more: {lost.why}")
        self.said(f"{chunk.id} runs again in {self.wait:g} s: {lost.why}")
        self._again.append((time.monotonic() + self.wait, chunk))

    def _keep(self, chunk: Chunk, result: Result) -> None:
        """Write the result of a chunk to the store. If that fails, wait and try again."""
        self._note(chunk, result)
        while True:
            try:
                is_new = self.store.add(chunk, result)
            except FullError as error:
                self.said(
                    f"The result of {chunk.id} cannot be written: {error}; attnspec tries again in {self.wait:g} s."
                )
                self._pause()
            else:
                break
        self._partly.pop(chunk, None)
        if is_new:
            self.done(chunk, result)

    def _note(self, chunk: Chunk, result: Result) -> None:
        """Keep the inputs with which a later campaign begins. If that fails, report it once, until
        it works again.
        """
        try:
            self.examples.note(chunk, result)
        except AwayError as error:
            if not self._away:
                self.said(f"{error} The results are in the campaign's database only.")
            self._away = True
        else:
            self._away = False

    def _pause(self) -> None:
        end_of_pause = time.monotonic() + self.wait
        while time.monotonic() < end_of_pause:
            self.signals.obey()
            time.sleep(min(_TICK, self.wait))


def until_cases(chunks: Iterable[Chunk], cases: int) -> Iterator[Chunk]:
    """Yield chunks (pieces of work) in order, until together they have a number of test inputs. The
    same chunks are chosen every time.
    """
    for chunk in chunks:
        if cases <= 0:
            return
        yield chunk
        cases -= chunk.cases
