"""Reports what a campaign has found: reads its database, and prints to a terminal or writes a page."""

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from properties.campaign.store import reading
from properties.contract.wording import printable, shown
from properties.verifier.report import counted
from properties.views.html.rendering import rendered
from properties.views.statuses import SIGNS
from properties.views.whole import write_whole

__all__ = ["Found", "found_in", "print_status", "write_page"]

_SOON = 60.0  # a run without news for more seconds is not called running
_MOST = 200  # laws on a page, each with its first input; the database has all

_IMPLEMENTATIONS = """
SELECT implementation, count(*) AS chunks, sum(cases) AS cases, sum(examples) AS examples, sum(held) AS held,
    sum(suspicious) AS suspicious, sum(violated) AS violated, sum(declared) AS declared, sum(vacuous) AS vacuous,
    sum(not_run) AS not_run, max(excess) AS excess, sum(seconds) AS seconds
FROM chunk GROUP BY implementation ORDER BY implementation
"""
_VIOLATIONS = """
SELECT implementation, operation, law, status, chunks, first AS seed, diagnosis, summary, example, script FROM (
    SELECT *, count(*) OVER same AS chunks, min(seed) OVER same AS first,
        row_number() OVER (same ORDER BY diagnosis = '', example = '', seed, chunk) AS place
    FROM violation JOIN chunk USING (chunk) WINDOW same AS (PARTITION BY implementation, operation, law, status)
) WHERE place = 1 ORDER BY status <> 'violated', implementation, operation, law
"""
_WORST = """
SELECT implementation, operation, domain, output, max(ratio) AS ratio, count(*) AS climbs, example
FROM worst GROUP BY implementation, operation ORDER BY ratio DESC, implementation, operation
"""
_RUNS = """
SELECT run.*, count(chunk) AS chunks, ifnull(sum(cases), 0) AS cases
FROM run LEFT JOIN chunk USING (run) GROUP BY run ORDER BY run
"""


@dataclass(frozen=True)
class Found:
    """The contents of a campaign's database.

    implementations   a row for each implementation
    violations        a row for each operation and each law that fails on an implementation
    worst             a row for the worst input of each operation
    runs              a row for each run; `rate` is the number of test inputs per second of the last
                      one
    """

    settings: dict[str, Any]
    chunks: int
    cases: int
    lost: int
    rate: float
    running: bool
    implementations: Sequence[dict[str, Any]]
    violations: Sequence[dict[str, Any]]
    worst: Sequence[dict[str, Any]]
    runs: Sequence[dict[str, Any]]

    @property
    def verdict(self) -> str:
        """The verdict of the campaign, as a sentence."""
        breaking = len({row["implementation"] for row in self.violations if row["status"] == "violated"})
        after = f"after {counted(self.chunks, 'chunk')}"
        if not self.chunks:
            return "No chunk is done."
        if breaking:
            breaks = "breaks" if breaking == 1 else "break"
            return f"{breaking} of {counted(len(self.implementations), 'implementation')} {breaks} a law {after}."
        return f"No law was broken {after}{', but not every one was put to the test' if self.violations else ''}."


def found_in(file: Path) -> Found:
    """Return what a campaign's database contains now. Raises ValueError, with a sentence, if the
    file is not such a database.
    """
    try:
        with reading(file) as database:
            database.row_factory = sqlite3.Row
            database.execute("BEGIN")  # all queries see the same moment
            return _found(database)
    except (sqlite3.Error, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read as a campaign's database: {printable(str(error))}.") from error


_TEXTS = (
    *("implementation", "operation", "law", "status", "diagnosis", "summary", "example", "script", "domain", "output"),
    *("engine", "environment", "device", "ended", "name", "value"),
)
"""The columns that hold text. All others hold numbers."""


def _found(database: sqlite3.Connection) -> Found:
    def rows(query: str) -> list[dict[str, Any]]:
        found = [dict(row) for row in database.execute(query)]
        for name, value in (column for row in found for column in row.items()):
            if not isinstance(value, str if name in _TEXTS else int | float):
                raise ValueError(f"the column {name} holds {shown(value)}")
        return found

    (total,) = rows(
        "SELECT count(*) AS chunks, ifnull(sum(cases), 0) AS cases, ifnull(sum(lost), 0) AS lost FROM chunk"
    )
    all_runs = rows(_RUNS)
    for run in all_runs:
        run["environment"] = json.loads(run["environment"])
        run["seconds"] = run["seen"] - run["started"]
    last_run = all_runs[-1] if all_runs else None
    return Found(
        settings={row["name"]: json.loads(row["value"]) for row in rows("SELECT * FROM campaign")},
        **total,
        rate=last_run["cases"] / last_run["seconds"] if last_run and last_run["seconds"] > 0 else 0.0,
        running=bool(last_run and not last_run["ended"] and time.time() - last_run["seen"] < _SOON),
        implementations=rows(_IMPLEMENTATIONS),
        violations=rows(_VIOLATIONS),
        worst=rows(_WORST),
        runs=all_runs,
    )


def print_status(console: Console, found: Found) -> None:
    """Print a summary line, a table of implementations, the violations and the worst inputs."""
    rate = f", {found.rate:,.0f} cases a second now" if found.running else ""
    lost_chunks = f", {found.lost} given out again" if found.lost else ""
    console.print(
        f"{counted(found.chunks, 'chunk')}, {found.cases:,} cases in {counted(len(found.runs), 'run')}"
        f"{lost_chunks}{rate}.",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    for name in ("", "chunks", "cases", "held", "violated", "declared", "max error\n÷ budget", "seconds"):
        table.add_column(name, justify="left" if not name else "right")
    for row in found.implementations:
        numbers = [f"{row[name]:,}" for name in ("chunks", "cases", "held", "violated", "declared")]
        sign, style = SIGNS["violated" if row["violated"] else "held"]
        table.add_row(
            Text(f"{sign} {printable(row['implementation'])}", style=style),
            *numbers,
            f"{row['excess']:.2g}",
            f"{row['seconds']:,.0f}",
        )
    if found.implementations:
        console.print(table)
    for row in found.violations:
        likely = f" ({row['diagnosis']})" if row["diagnosis"] else ""
        chunks = f"{counted(row['chunks'], 'chunk')}, the first by seed {row['seed']}"
        law = f"{row['law']}[{row['operation']}] on {row['implementation']}{likely}"
        console.print(Text(_lines(f"{row['status']}: {law}, in {chunks}: {row['summary']}")))
    for row in found.worst:
        name = f"{row['implementation']}[{row['operation']}] {row['output']}"
        console.print(Text(_lines(f"worst: {name}: {row['ratio']:.3g} × its error limit")))
    console.print(found.verdict, style="bold red" if found.violations else "bold green", highlight=False)


def _lines(text: str) -> str:
    """Return a text whose control characters, except the ends of lines, are written as escapes."""
    return "\n".join(map(printable, text.split("\n")))


def write_page(found: Found, directory: Path) -> Path:
    """Write the page index.html to a directory, and return the file. The page is written completely
    or not at all.
    """
    page = rendered(
        "campaign.html", {"brief": "{:.2g}".format, "moment": _moment}, found=found, violations=found.violations[:_MOST]
    )
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / "index.html", page)
    return directory / "index.html"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
