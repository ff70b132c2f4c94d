"""The loop of a campaign: chunks that are not done go to an engine, what comes of them to the
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

_TICK = 0.5  # seconds between two looks at the time and at signals
_WAIT = 5.0  # seconds until what could not be done for now is tried again
_STARTS = 5  # times that each worker may fail to start, one after another, while none finishes anything


@dataclass
class Campaign:
    """A campaign that runs: `chunks` are all there are, of which those in the store are left out.

    `said` is told sentences on what holds it up, and `done` each chunk that was finished, with what
    came of it. Until `end`, of time.monotonic, chunks are given out; those under way are waited
    for, and one that is lost then is run another time.
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
        """Run it to its end. Raises StoppedError where a signal has come: what is under way then is
        run another time; and AdapterError where workers do not start any more."""
        fresh = self._fresh()
        while True:
            while self.engine.running < self.engine.workers and (chunk := self._next(fresh)) is not None:
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
        """The chunk to be given out now, before the end: one that was lost a while ago, or a fresh one."""
        now = time.monotonic()
        if now >= self.end:
            return None
        if self._again and self._again[0][0] <= now:
            return self._again.popleft()[1]
        return next(fresh, None)

    def _fresh(self) -> Iterator[Chunk]:
        """The chunks that are not done, each once."""
        given = set()
        for chunk in self.chunks:
            if chunk.id not in given and not self.store.has(chunk):
                given.add(chunk.id)
                yield chunk

    def _lose(self, chunk: Chunk, lost: Lost) -> None:
        """Give a chunk out again; or end, where that was tried often enough, with what is known of
        chunks that were run in part.
        """
        self._failures += not lost.starts
        if lost.partly is not None:
            self._partly[chunk] = lost.partly
        if self._failures >= _STARTS * self.engine.workers:
            for known, result in list(self._partly.items()):
                self._keep(known, result)
            raise AdapterError(f"No worker starts any more: {lost.why}")
        self.said(f"{chunk.id} is run again in {self.wait:g} s: {lost.why}")
        self._again.append((time.monotonic() + self.wait, chunk))

    def _keep(self, chunk: Chunk, result: Result) -> None:
        """Write what came of a chunk, and wait for as long as that cannot be done."""
        self._note(chunk, result)
        while True:
            try:
                added = self.store.add(chunk, result)
            except FullError as error:
                self.said(
                    f"What came of {chunk.id} waits to be written: {error}; it is tried again in {self.wait:g} s."
                )
                self._pause()
            else:
                break
        self._partly.pop(chunk, None)
        if added:
            self.done(chunk, result)

    def _note(self, chunk: Chunk, result: Result) -> None:
        """Keep what a later campaign begins with; where that cannot be done now it is said, once
        until it can be again.
        """
        try:
            self.examples.note(chunk, result)
        except AwayError as error:
            if not self._away:
                self.said(f"{error} What is found is in the campaign's own database alone for now.")
            self._away = True
        else:
            self._away = False

    def _pause(self) -> None:
        end = time.monotonic() + self.wait
        while time.monotonic() < end:
            self.signals.obey()
            time.sleep(min(_TICK, self.wait))


def until_cases(chunks: Iterable[Chunk], cases: int) -> Iterator[Chunk]:
    """The first chunks, up to so many cases together: always the same ones."""
    for chunk in chunks:
        if cases <= 0:
            return
        yield chunk
        cases -= chunk.cases
