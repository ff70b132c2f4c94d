"""Chunks that found a law broken, and the worst inputs, in Hypothesis' own database of examples,
which campaigns share and begin with.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from properties.campaign.bench import Result
from properties.campaign.chunks import Chunk, Row

__all__ = ["AwayError", "Examples", "at"]


class AwayError(ValueError):
    """The database of examples does not answer; the message is a sentence."""


def at(place: str) -> "Examples":
    """The examples in a folder, or at a Redis server's address, redis://host:6379/0. Raises ValueError, a sentence."""
    if not place.startswith(("redis://", "rediss://", "unix://")):
        return Examples(DirectoryBasedExampleDatabase(Path(place)), place)
    try:
        from hypothesis.extra.redis import RedisExampleDatabase
        from redis import Redis, RedisError
    except ImportError:
        raise ValueError(f"--examples {place} needs redis, which `pip install 'hypothesis[redis]'` installs.") from None
    return Examples(RedisExampleDatabase(Redis.from_url(place)), place, RedisError)


class Examples:
    """The seeds on which a row was found to break a law, with their numbers of cases, and the worst
    input that is known for it.

    They are kept in a database at a place, which raises errors of a type of its own where it is
    away, or else OSError.
    """

    def __init__(self, database: ExampleDatabase, place: str, error: type[Exception] = OSError) -> None:
        self._database, self._place, self._errors = database, place, (error, OSError)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise AwayError(f"The examples at {self._place} cannot be used: {str(error).rstrip('.')}.") from error

    def of(self, rows: Sequence[Row], climbs: Sequence[Row], steps: int) -> list[Chunk]:
        """What is known of some rows, as chunks, in a fixed order; climbs go on from the worst
        input, so many steps. Raises AwayError.
        """
        with self._asked():
            return list(self._of(rows, climbs, steps))

    def _of(self, rows: Sequence[Row], climbs: Sequence[Row], steps: int) -> Iterator[Chunk]:
        for row in rows:
            for seed, cases in sorted(json.loads(value) for value in self._database.fetch(_key(row))):
                yield Chunk(*row, seed, cases)
        for row in climbs:
            for _, domain, seed, start in self._worst(row)[:1]:
                yield Chunk(*row, seed, steps, "climb", domain, start)

    def _worst(self, row: Row) -> list[tuple[float, str, int, str]]:
        """The worst inputs, the very worst first: the ratio, the domain, the climb's seed, the case."""
        return sorted((tuple(json.loads(value)) for value in self._database.fetch(_key(row, "worst"))), reverse=True)

    def note(self, chunk: Chunk, result: Result) -> None:
        """Keep what is broken on a chunk's cases, and forget what no longer is; keep what is worse
        than all that is known, of which the input that the chunk began with is what it has become,
        or nothing where it is no case any more. Raises AwayError."""
        with self._asked():
            self._note(chunk, result)

    def _note(self, chunk: Chunk, result: Result) -> None:
        row = chunk.implementation, chunk.operation
        if chunk.kind == "draw":
            keep: Any = self._database.save if result.statuses.get("violated") else self._database.delete
            keep(_key(row), json.dumps([chunk.seed, chunk.cases]).encode())
        elif result.worst is not None or not result.statuses:  # a death says nothing of what is known
            before = self._worst(row)
            rest = [each for each in before if not chunk.start or each[3] != chunk.start]
            worst = rest[:1]
            if result.worst is not None and (not rest or result.worst.ratio > rest[0][0]):
                worst = [(result.worst.ratio, chunk.domain, chunk.seed, json.dumps(result.worst.case))]
                self._database.save(_key(row, "worst"), json.dumps(worst[0]).encode())
            for each in before:
                if each not in worst:
                    self._database.delete(_key(row, "worst"), json.dumps(each).encode())


def _key(row: Row, *more: str) -> bytes:
    return json.dumps(["attnspec", *row, *more]).encode()
