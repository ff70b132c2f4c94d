"""Keeps chunks (pieces of work) with violations, and the worst inputs, in Hypothesis' database of
examples.

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
    """Raised when the database of examples does not answer. The message is a sentence."""


def at(place: str) -> "Examples":
    """Return the database of examples in a folder, or on a Redis server such as
    redis://host:6379/0. Raises ValueError, with a sentence, for any other place.
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
    """The database of examples. For each operation of an implementation it has the seeds with a
    violation, with their numbers of test inputs, and the worst known input.

    The database is at `place`. If it does not answer, it raises `error` or OSError.
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
        """Return the kept chunks (pieces of work) for some operations of implementations, in a
        fixed order. Raises AwayError.

        For `climbs`, a chunk continues the search for the worst input from the worst one that is
        kept, for `steps` steps.
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
        """Return the kept worst inputs, the worst one first: error ÷ error limit, domain (input
        family), seed of the search, and the arguments.
        """
        return sorted((tuple(json.loads(value)) for value in self._database.fetch(_key(row, "worst"))), reverse=True)

    def note(self, chunk: Chunk, result: Result) -> None:
        """Keep a chunk (piece of work) that has a violation, and remove a chunk that no longer has
        one. Raises AwayError.

        For searches for the worst input, keep only the worst input. The result of a search replaces
        the input from which it began. A search without a result means that this input does not fit
        the implementation any more. It is then removed.
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
