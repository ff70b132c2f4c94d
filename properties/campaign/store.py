"""Where a campaign is kept: a file of SQLite's, with a row for each chunk that is done, and one for
each law that it found broken.

SQLite and not DuckDB: while one process writes, others read (its write-ahead log), which DuckDB
refuses them; a chunk is a transaction of a few rows, which is what SQLite is for; and Python comes
with it. DuckDB reads the file, where questions are larger: `ATTACH`.
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
"""Of the tables, which the file says too."""

_TABLES = """
CREATE TABLE campaign (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE known (place INTEGER PRIMARY KEY, chunk TEXT NOT NULL);
CREATE TABLE run (
    run INTEGER PRIMARY KEY, engine TEXT NOT NULL, workers INTEGER NOT NULL, environment TEXT NOT NULL, device TEXT NOT NULL,
    started REAL NOT NULL, seen REAL NOT NULL, ended TEXT NOT NULL DEFAULT ''
);
CREATE TABLE chunk (
    chunk TEXT PRIMARY KEY, kind TEXT NOT NULL, implementation TEXT NOT NULL, operation TEXT NOT NULL, domain TEXT NOT NULL,
    seed INTEGER NOT NULL, cases INTEGER NOT NULL, examples INTEGER NOT NULL,
    held INTEGER NOT NULL, suspicious INTEGER NOT NULL, violated INTEGER NOT NULL, declared INTEGER NOT NULL, vacuous INTEGER NOT NULL,
    not_applicable INTEGER NOT NULL, not_run INTEGER NOT NULL, excess REAL NOT NULL, line REAL NOT NULL,
    seconds REAL NOT NULL, lost INTEGER NOT NULL, run INTEGER NOT NULL REFERENCES run, finished REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE violation (
    chunk TEXT NOT NULL REFERENCES chunk, law TEXT NOT NULL, status TEXT NOT NULL, excess REAL, summary TEXT NOT NULL,
    diagnosis TEXT NOT NULL, example TEXT NOT NULL, script TEXT NOT NULL, PRIMARY KEY (chunk, law)
) WITHOUT ROWID;
CREATE TABLE worst (
    chunk TEXT PRIMARY KEY REFERENCES chunk, implementation TEXT NOT NULL, operation TEXT NOT NULL, domain TEXT NOT NULL,
    output TEXT NOT NULL, ratio REAL NOT NULL, example TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX worst_of ON worst (implementation, operation, ratio);
"""
_FORGET = """
UPDATE worst SET example = '' WHERE implementation = :implementation AND operation = :operation AND example <> ''
    AND ratio < (SELECT max(ratio) FROM worst WHERE implementation = :implementation AND operation = :operation)
"""  # inputs are large, and the worst one is kept
_STATUSES = ("held", "suspicious", "violated", "declared", "vacuous", "not applicable", "not run")
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY}  # primary codes of what passes


class FullError(ValueError):
    """What is known could not be written for now, as where the disk is full: the message says why.
    Nothing of it was.
    """


class Store:
    """The database of a campaign, as its driver writes it. It is made, or else should be of the
    same campaign.

    `campaign` says what is verified and how, by name: only an equal one goes on with what is in the
    file. Raises ValueError, a sentence.
    """

    def __init__(self, file: Path, campaign: Mapping[str, Any]) -> None:
        try:
            self._database = _connected(file, "rwc")
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")  # what a power cut takes is run again
            self._database.execute("PRAGMA foreign_keys=ON")
            self._require(file, {name: json.dumps(value) for name, value in campaign.items()})
        except sqlite3.Error as error:
            raise ValueError(f"{file} cannot be used as a database: {error}.") from error
        self._run = 0

    def _require(self, file: Path, campaign: dict[str, str]) -> None:
        """The tables, new or as they should be."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if not _tables(self._database):
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._database.execute(statement)
                self._database.executemany("INSERT INTO campaign VALUES (?, ?)", campaign.items())
                self._database.execute(f"PRAGMA user_version={VERSION}")
        _require_version(self._database, file)
        known = dict(self._database.execute("SELECT name, value FROM campaign"))
        for name in dict.fromkeys([*known, *campaign]):
            if known.get(name) != campaign.get(name):
                raise ValueError(
                    f"{file} holds a campaign with {name}={known.get(name)}, but {name}={campaign.get(name)} was given: another needs "
                    "another --database."
                )

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def begin(self, engine: str, workers: int, environment: Mapping[str, str]) -> None:
        """A run begins, in an environment: what is added is of it."""
        now = time.time()
        device = environment.get("accelerators", "") or environment.get("processor", "")
        row = (engine, workers, json.dumps(dict(environment)), device, now, now)
        self._run = self._written(
            lambda: (
                self._database.execute(
                    "INSERT INTO run (engine, workers, environment, device, started, seen) VALUES (?, ?, ?, ?, ?, ?)",
                    row,
                ).lastrowid
                or 0
            )
        )

    def end(self, how: str) -> None:
        """The run has ended, and how; where that cannot be written, the run is one that ended without a word."""
        ended = how, time.time(), self._run
        with suppress(FullError):
            self._written(
                lambda: self._database.execute("UPDATE run SET ended = ?, seen = ? WHERE run = ?", ended).rowcount
            )

    def begins_with(self, known: Iterable[Chunk]) -> list[Chunk]:
        """What is put first: what was known when the campaign's first run began, however often it is gone on with."""

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
        """Whether a chunk is done."""
        return self._database.execute("SELECT 1 FROM chunk WHERE chunk = ?", (chunk.id,)).fetchone() is not None

    def add(self, chunk: Chunk, result: Result) -> bool:
        """A chunk is done; False where it was already, and nothing is counted twice. Raises
        FullError where it cannot be written now.
        """
        counts = [result.statuses.get(status, 0) for status in _STATUSES]
        who = (chunk.id, chunk.kind, chunk.implementation, chunk.operation, chunk.domain, chunk.seed)
        worst_of = _number(result.excess), _number(result.line)
        row = (
            *who,
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
            (chunk.id, b.law, b.status, _number(b.excess), b.summary, b.diagnosis, b.case, b.script)
            for b in result.broken
        ]
        at = (chunk.id, chunk.implementation, chunk.operation, chunk.domain)
        worst = (
            []
            if result.worst is None
            else [(*at, result.worst.output, _number(result.worst.ratio), json.dumps(result.worst.case))]
        )

        def write() -> int:
            insert = f"INSERT INTO chunk VALUES ({', '.join('?' * len(row))}) ON CONFLICT(chunk) DO NOTHING"
            added = self._database.execute(insert, row).rowcount
            if added:
                self._database.executemany("INSERT INTO violation VALUES (?, ?, ?, ?, ?, ?, ?, ?)", broken)
                self._database.executemany("INSERT INTO worst VALUES (?, ?, ?, ?, ?, ?, ?)", worst)
                self._database.execute(_FORGET, {"implementation": chunk.implementation, "operation": chunk.operation})
                self._database.execute("UPDATE run SET seen = ? WHERE run = ?", (time.time(), self._run))
            return added

        return bool(self._written(write))

    def _written(self, write: Callable[[], int]) -> int:
        """What writes, in one transaction: all of it or nothing."""
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                return write()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in _FULL:
                raise FullError(f"{error}") from error
            raise ValueError(f"The database cannot be written: {error}.") from error

    def counts(self) -> tuple[int, int, int]:
        """How many chunks are done, with how many cases, and how many violations were found."""
        return counts(self._database)


def _number(excess: float) -> float:
    """An error ÷ budget as it is written: SQLite knows no NaN, and what is none of a number of
    budgets is beyond all of them.
    """
    return inf if isnan(excess) else excess


def counts(database: sqlite3.Connection) -> tuple[int, int, int]:
    """How many chunks are done, with how many cases, and how many violations were found."""
    chunks, cases, violated = database.execute(
        "SELECT count(*), ifnull(sum(cases), 0), ifnull(sum(violated), 0) FROM chunk"
    ).fetchone()
    return chunks, cases, violated


def reading(file: Path) -> "closing[sqlite3.Connection]":
    """The database, to be read, while a campaign writes it or not. Raises ValueError, a sentence, where it is none."""
    if not file.is_file():
        raise ValueError(f"There is no file {file}.")
    try:
        database = _connected(file, "ro")
        _require_version(database, file)
    except sqlite3.Error as error:
        raise ValueError(f"{file} is no campaign's database: {error}.") from error
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
