"""Chunks that found a law broken, in Hypothesis' own database of examples, which campaigns share, and begin with."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from properties.campaign.chunks import Chunk, Row

__all__ = ["Examples", "at"]


def at(place: str) -> "Examples":
    """The examples in a folder, or at a Redis server's address, redis://host:6379/0. Raises ValueError, a sentence."""
    if not place.startswith(("redis://", "rediss://", "unix://")):
        return Examples(DirectoryBasedExampleDatabase(Path(place)))
    try:
        from hypothesis.extra.redis import RedisExampleDatabase
        from redis import Redis
    except ImportError:
        raise ValueError(f"--examples {place} needs redis, which `pip install 'hypothesis[redis]'` installs.") from None
    return Examples(RedisExampleDatabase(Redis.from_url(place)))


class Examples:
    """The seeds on which a row was found to break a law: a row's key, whose values are seeds with their numbers of cases."""

    def __init__(self, database: ExampleDatabase) -> None:
        self._database = database

    def of(self, rows: Sequence[Row]) -> Iterator[Chunk]:
        """What is known of some rows, as chunks, in a fixed order."""
        for row in rows:
            for seed, cases in sorted(json.loads(value) for value in self._database.fetch(_key(row))):
                yield Chunk(*row, seed, cases)

    def note(self, chunk: Chunk, broken: bool) -> None:
        """Keep what is broken on a chunk's cases, and forget what no longer is."""
        if chunk.kind == "draw":
            keep: Any = self._database.save if broken else self._database.delete
            keep(_key((chunk.implementation, chunk.operation)), json.dumps([chunk.seed, chunk.cases]).encode())


def _key(row: Row) -> bytes:
    return json.dumps(["attnspec", *row]).encode()
