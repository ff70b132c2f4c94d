"""Keeps chunks with violations, and the worst inputs, in Hypothesis' database of examples.

Campaigns share this database, and run its chunks first.
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
    """Return the database of examples in a folder, or on a Redis server such as
    redis://host:6379/0. Raises ValueError, a sentence, for any other place.
    """
    if not place.startswith(("redis://", "rediss://", "unix://")):
        return Examples(DirectoryBasedExampleDatabase(Path(place)), place)
    try:
        from hypothesis.extra.redis import RedisExampleDatabase
        from redis import Redis, RedisError
    except ImportError:
        raise ValueError(f"--examples {place} needs redis, which `pip install 'hypothesis[redis]'` installs.") from None
    return Examples(RedisExampleDatabase(Redis.from_url(place)), place, RedisError)


class Examples:
    """For each row, the seeds with a violation, with their numbers of cases, and the worst known input.

    They are in a database at `place`. If the database does not answer, it raises `error` or OSError.
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
        """Return the chunks that are kept for some rows, in a fixed order. Raises AwayError.

        A climb goes on from the worst input, for a number of steps.
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
        """The kept inputs of climbs, the worst one first: ratio, domain, seed of the climb, case."""
        return sorted((tuple(json.loads(value)) for value in self._database.fetch(_key(row, "worst"))), reverse=True)

    def note(self, chunk: Chunk, result: Result) -> None:
        """Keep a chunk that has a violation, and forget a chunk that no longer has one. Raises
        AwayError.

        Of climbs, keep the worst input. The result of a climb replaces the input from which it began;
        without a result, that input does not fit the implementation any more and is forgotten.
        """
        with self._asked():
            self._note(chunk, result)

    def _note(self, chunk: Chunk, result: Result) -> None:
        row = chunk.implementation, chunk.operation
        if chunk.kind == "draw":
            write: Any = self._database.save if result.statuses.get("violated") else self._database.delete
            write(_key(row), json.dumps([chunk.seed, chunk.cases]).encode())
        elif result.worst is not None or not result.statuses:  # after a death the kept inputs stay
            before = self._worst(row)
            others = [climb_entry for climb_entry in before if not chunk.start or climb_entry[3] != chunk.start]
            kept_entries = others[:1]
            if result.worst is not None and (not others or result.worst.ratio > others[0][0]):
                kept_entries = [(result.worst.ratio, chunk.domain, chunk.seed, json.dumps(result.worst.case))]
                self._database.save(_key(row, "worst"), json.dumps(kept_entries[0]).encode())
            for climb_entry in before:
                if climb_entry not in kept_entries:
                    self._database.delete(_key(row, "worst"), json.dumps(climb_entry).encode())


def _key(row: Row, *more: str) -> bytes:
    return json.dumps(["attnspec", *row, *more]).encode()
