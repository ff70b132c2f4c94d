"""Stores the results of a campaign in an SQLite file, with a row for each finished chunk (piece of
work) and for each failing law.

The file is SQLite and not DuckDB for three reasons. Other processes can read while one writes (the
write-ahead log), which DuckDB refuses. A chunk is a transaction of a few rows, the normal work of
SQLite. Python includes SQLite. For larger questions DuckDB can read the file: `ATTACH`.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from math import inf, isnan
from pathlib import Path
from types import TracebackType
from typing import Any

from properties.campaign.bench import Result
from properties.campaign.chunks import Chunk

__all__ = ["VERSION", "FullError", "Store", "reading"]

VERSION = 2
"""The version of the tables, which is in the file too."""

_TABLES = """
CREATE TABLE campaign (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE known (place INTEGER PRIMARY KEY, chunk TEXT NOT NULL);
CREATE TABLE run (
    run INTEGER PRIMARY KEY, engine TEXT NOT NULL, workers INTEGER NOT NULL, environment TEXT NOT NULL,
    device TEXT NOT NULL, started REAL NOT NULL, seen REAL NOT NULL, ended TEXT NOT NULL DEFAULT ''
);
CREATE TABLE chunk (
    chunk TEXT PRIMARY KEY, kind TEXT NOT NULL, implementation TEXT NOT NULL, operation TEXT NOT NULL,
    domain TEXT NOT NULL, seed INTEGER NOT NULL, cases INTEGER NOT NULL, examples INTEGER NOT NULL,
    held INTEGER NOT NULL, suspicious INTEGER NOT NULL, violated INTEGER NOT NULL, declared INTEGER NOT NULL,
    vacuous INTEGER NOT NULL, not_applicable INTEGER NOT NULL, not_run INTEGER NOT NULL,
    excess REAL NOT NULL, line REAL NOT NULL, seconds REAL NOT NULL, lost INTEGER NOT NULL,
    run INTEGER NOT NULL REFERENCES run, finished REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE violation (
    chunk TEXT NOT NULL REFERENCES chunk, law TEXT NOT NULL, status TEXT NOT NULL, excess REAL, summary TEXT NOT NULL,
    diagnosis TEXT NOT NULL, example TEXT NOT NULL, script TEXT NOT NULL, PRIMARY KEY (chunk, law)
) WITHOUT ROWID;
CREATE TABLE worst (
    chunk TEXT PRIMARY KEY REFERENCES chunk, implementation TEXT NOT NULL, operation TEXT NOT NULL,
    domain TEXT NOT NULL, output TEXT NOT NULL, ratio REAL NOT NULL, example TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX worst_of ON worst (implementation, operation, ratio);
"""
_FORGET = """
UPDATE worst SET example = '' WHERE implementation = :implementation AND operation = :operation AND example <> ''
    AND ratio < (SELECT max(ratio) FROM worst WHERE implementation = :implementation AND operation = :operation)
"""  # inputs are large, so only the worst one is kept
_STATUSES = ("held", "suspicious", "violated", "declared", "vacuous", "not applicable", "not run")
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY}  # primary codes of errors that may pass


class FullError(ValueError):
    """Raised when the database cannot be written now, for example because the disk is full. Nothing
    was written.
    """


class Store:
    """The database of a campaign, for writing. A new file is created. An existing file must belong
    to the same campaign.

    `campaign` is the identity of the campaign, everything that its verdicts depend on. Raises
    ValueError, with a sentence, for another campaign.
    """

    def __init__(self, file: Path, campaign: Mapping[str, Any]) -> None:
        try:
            self._database = _connected(file, "rwc")
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")  # chunks that a power cut deletes run again
            self._database.execute("PRAGMA foreign_keys=ON")
            self._require(file, {name: json.dumps(value) for name, value in campaign.items()})
        except sqlite3.Error as error:
            raise ValueError(f"{file} cannot be used as a database: {error}.") from error
        self._run = 0

    def _require(self, file: Path, campaign: dict[str, str]) -> None:
        """Create the tables in a new file. In an existing file, check that they belong to this
        campaign.
        """
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if not _tables(self._database):
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._database.execute(statement)
                self._database.executemany("INSERT INTO campaign VALUES (?, ?)", campaign.items())
                self._database.execute(f"PRAGMA user_version={VERSION}")
        _require_version(self._database, file)
        stored = dict(self._database.execute("SELECT name, value FROM campaign"))
        for name in dict.fromkeys([*stored, *campaign]):
            if stored.get(name) != campaign.get(name):
                raise ValueError(
                    f"{file} holds a campaign with {name}={stored.get(name)}, "
                    f"but {name}={campaign.get(name)} was given: another needs another --database."
                )

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def begin(self, engine: str, workers: int, environment: Mapping[str, str]) -> None:
        """Record the begin of a run. The results that follow belong to it."""
        now = time.time()
        device = environment.get("accelerators", "") or environment.get("processor", "")
        run_row = (engine, workers, json.dumps(dict(environment)), device, now, now)
        self._run = self._written(
            lambda: (
                self._database.execute(
                    "INSERT INTO run (engine, workers, environment, device, started, seen) VALUES (?, ?, ?, ?, ?, ?)",
                    run_row,
                ).lastrowid
                or 0
            )
        )

    def end(self, how: str) -> None:
        """Record how the run has ended. If the database cannot be written, do nothing."""
        run_end = how, time.time(), self._run
        with suppress(FullError):
            self._written(
                lambda: self._database.execute("UPDATE run SET ended = ?, seen = ? WHERE run = ?", run_end).rowcount
            )

    def begins_with(self, known: Iterable[Chunk]) -> list[Chunk]:
        """Return the chunks (pieces of work) that run first: those with known violations or worst
        inputs when the first run of the campaign began.
        """

        def write() -> int:
            if not self._database.execute("SELECT 1 FROM run").fetchone():
                self._database.execute("DELETE FROM known")
                self._database.executemany(
                    "INSERT INTO known (chunk) VALUES (?)", [(json.dumps(vars(chunk)),) for chunk in known]
                )
            return 0

        self._written(write)
        return [
            Chunk(**json.loads(chunk)) for (chunk,) in self._database.execute("SELECT chunk FROM known ORDER BY place")
        ]

    def has(self, chunk: Chunk) -> bool:
        """Return whether a chunk (piece of work) is done."""
        return self._database.execute("SELECT 1 FROM chunk WHERE chunk = ?", (chunk.id,)).fetchone() is not None

    def add(self, chunk: Chunk, result: Result) -> bool:
        """Write the result of a chunk, and return True. If the chunk was done already, change
        nothing, and return False. Raises FullError.
        """
        counts = [result.statuses.get(status, 0) for status in _STATUSES]
        identifying = (chunk.id, chunk.kind, chunk.implementation, chunk.operation, chunk.domain, chunk.seed)
        worst_of = _number(result.excess), _number(result.line)
        chunk_row = (
            *identifying,
            result.cases,
            result.examples,
            *counts,
            *worst_of,
            result.seconds,
            result.lost,
            self._run,
            time.time(),
        )
        broken = [
            (
                chunk.id,
                broken_law.law,
                broken_law.status,
                _number(broken_law.excess),
                broken_law.summary,
                broken_law.diagnosis,
                broken_law.case,
                broken_law.script,
            )
            for broken_law in result.broken
        ]
        identity = (chunk.id, chunk.implementation, chunk.operation, chunk.domain)
        worst = (
            []
            if result.worst is None
            else [(*identity, result.worst.output, _number(result.worst.ratio), json.dumps(result.worst.case))]
        )

        def write() -> int:
            insert = f"INSERT INTO chunk VALUES ({', '.join('?' * len(chunk_row))}) ON CONFLICT(chunk) DO NOTHING"
            added = self._database.execute(insert, chunk_row).rowcount
            if added:
                self._database.executemany("INSERT INTO violation VALUES (?, ?, ?, ?, ?, ?, ?, ?)", broken)
                self._database.executemany("INSERT INTO worst VALUES (?, ?, ?, ?, ?, ?, ?)", worst)
                self._database.execute(_FORGET, {"implementation": chunk.implementation, "operation": chunk.operation})
                self._database.execute("UPDATE run SET seen = ? WHERE run = ?", (time.time(), self._run))
            return added

        return bool(self._written(write))

    def _written(self, write: Callable[[], int]) -> int:
        """Run `write` in one transaction, and return its result."""
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                return write()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in _FULL:
                raise FullError(f"{error}") from error
            raise ValueError(f"The database cannot be written: {error}.") from error

    def counts(self) -> tuple[int, int, int]:
        """Return how many chunks (pieces of work) are done, with how many test inputs, and how many
        violations were found.
        """
        return counts(self._database)


def _number(excess: float) -> float:
    """Return an error ÷ error limit as a number for SQLite. SQLite has no NaN, so ∞ replaces NaN."""
    return inf if isnan(excess) else excess


def counts(database: sqlite3.Connection) -> tuple[int, int, int]:
    """Return how many chunks (pieces of work) are done, with how many test inputs, and how many
    violations were found.
    """
    chunks, cases, violated = database.execute(
        "SELECT count(*), ifnull(sum(cases), 0), ifnull(sum(violated), 0) FROM chunk"
    ).fetchone()
    return chunks, cases, violated


def reading(file: Path) -> "closing[sqlite3.Connection]":
    """Open a database for reading, also during a campaign, and return the connection. Raises
    ValueError, with a sentence, for a file that is not the database of a campaign.
    """
    if not file.is_file():
        raise ValueError(f"{file} does not exist.")
    try:
        database = _connected(file, "ro")
        _require_version(database, file)
    except sqlite3.Error as error:
        raise ValueError(f"{file} is not the database of a campaign: {error}.") from error
    return closing(database)


def _connected(file: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.resolve().as_uri()}?mode={mode}", uri=True, timeout=30, isolation_level=None)


def _tables(database: sqlite3.Connection) -> Sequence[Any]:
    return database.execute("SELECT name FROM sqlite_master").fetchall()


def _require_version(database: sqlite3.Connection, file: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise ValueError(
            f"{file} has tables of version {version}, but should have those of a campaign of version {VERSION}."
        )
