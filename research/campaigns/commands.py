"""Campaigns as a user runs them, by the command, and what their databases say."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from properties.campaign.store import reading

__all__ = ["TARGET", "chunks", "planned", "rows", "started", "verdicts"]

TARGET = "properties.bugs.reference:REFERENCE"  # all operations in NumPy, which imports little

_VERDICTS = (
    "SELECT chunk, cases, examples, held, suspicious, violated, declared, vacuous, not_applicable, not_run, excess, "
    "line FROM chunk",
    "SELECT chunk, law, status, excess, summary, diagnosis, example, script FROM violation",
    "SELECT * FROM worst",
)


def started(
    folder: Path, database: Path, *more: str, target: str = TARGET, engine: str = "local", jobs: int = 2
) -> "subprocess.Popen[str]":
    """A campaign that has been started, whose examples are its own, in a folder; what it says is to be read."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "attnspec",
        "campaign",
        target,
        "--database",
        str(database),
        "--engine",
        engine,
    ]
    command += ["--jobs", str(jobs), "--examples", f"{folder / database.stem}-examples", *more]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=folder,
    )


def rows(database: Path, query: str) -> list[Any]:
    """The rows that a database answers with."""
    with reading(database) as opened:
        return list(opened.execute(query))


def verdicts(database: Path, of: Path | None = None) -> list[set[Any]]:
    """All that a database says but when and by whom it was found out; of the chunks that are in
    another alone, if one is given.
    """
    known_chunks = {chunk for (chunk,) in rows(of or database, "SELECT chunk FROM chunk")}
    return [{row for row in rows(database, query) if row[0] in known_chunks} for query in _VERDICTS]


def chunks(database: Path) -> int:
    """How many chunks are done; 0 where the database is being made."""
    return _number(database, "SELECT count(*) FROM chunk")


def planned(database: Path) -> int:
    """How many cases and steps the chunks that are done were planned to have, by their names; 0
    where the database is being made.
    """
    return _number(database, "SELECT ifnull(sum(substr(chunk, instr(chunk, ' cases=') + 7)), 0) FROM chunk")


def _number(database: Path, query: str) -> int:
    try:
        return int(rows(database, query)[0][0])
    except (sqlite3.Error, ValueError):
        return 0
