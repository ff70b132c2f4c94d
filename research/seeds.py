"""False alarms: `python -m research.seeds` runs a campaign of 50 seeds, or its remaining part, and
writes docs/seeds.txt.

With a DATABASE, the page describes that campaign. With `--later DATABASE`, the page takes the
implementations of a second, later campaign from there; it must have the same number of cases. So a
corrected declaration of one implementation needs no new run of the others. The page says which
implementations it took.

The page has the implementations that come with attnspec, with their declared conventions and
deviations. A false alarm is a law that is violated or decides too little, or a declared deviation
that does not happen. A law is suspicious with a seed if some error was beyond the statistical line
and within the budget: for correct code this is a false alarm of the line, which the page counts
separately.
"""

import argparse
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from properties.campaign.store import reading
from properties.verifier.plan import grouped, plan
from properties.verifier.report import counted
from properties.views.whole import write_whole
from research.stamp import ROOT, revision
from systems import GROUPS

__all__ = ["main", "page"]

_PAGE = ROOT / "docs/seeds.txt"
_DRAWN = "kind = 'draw' AND chunk LIKE '% cases=' || (SELECT value FROM campaign WHERE name = 'max_examples')"
"""The chunks that the campaign drew, without examples from earlier campaigns."""
_SEEDS = f"SELECT seed FROM chunk WHERE {_DRAWN} GROUP BY seed HAVING count(*) = :rows"
_IMPLEMENTATIONS = f"""
SELECT implementation, sum(held), sum(declared), sum(cases), sum(examples), max(excess), max(line), sum(suspicious),
    sum(violated + vacuous + not_run)
FROM chunk WHERE {_DRAWN} AND seed IN ({_SEEDS}) GROUP BY implementation ORDER BY implementation
"""
_ALARMS = f"""
SELECT implementation, seed, law, operation, summary FROM violation JOIN chunk USING (chunk)
WHERE {_DRAWN} AND seed IN ({_SEEDS})
ORDER BY 1, 2, 3, 4
"""
_EARLIER = "implementation NOT IN (SELECT implementation FROM later.chunk)"
_TOGETHER = f"""
CREATE TEMP VIEW chunk AS SELECT * FROM main.chunk WHERE {_EARLIER} UNION ALL SELECT * FROM later.chunk;
CREATE TEMP VIEW violation AS
    SELECT * FROM main.violation WHERE chunk IN (SELECT chunk FROM main.chunk WHERE {_EARLIER})
    UNION ALL SELECT * FROM later.violation;
"""


def page(database: sqlite3.Connection, number: int) -> tuple[str, bool]:
    """The results of all finished seeds as text, and whether some seed is finished without a false alarm. A
    seed is finished if it has `number` operations of implementations.
    """

    def rows(query: str) -> list[Any]:
        return database.execute(query, {"rows": number}).fetchall()

    seeds, implementations = [seed for (seed,) in rows(_SEEDS)], rows(_IMPLEMENTATIONS)
    ((most,),) = rows("SELECT ifnull(max(cases), 0) FROM chunk")
    width = max((len(row[0]) for row in implementations), default=0)
    alarms = [
        f"{name}, seed {seed}: {law}[{operation}]: {summary}" for name, seed, law, operation, summary in rows(_ALARMS)
    ]
    lines = [
        f"False alarms on what comes with attnspec: {counted(len(seeds), 'seed')}, "
        f"{min(seeds, default=0)} to {max(seeds, default=0)}, {most} cases of each operation for each seed, "
        f"{sum(row[3] for row in implementations):,} in all, of {number} operations of implementations.",
        "",
        f"{'implementation':{width}}  {'held':>7}  {'declared':>8}  {'cases':>7}  {'examples':>9}  "
        f"{'max error ÷ budget':>18}  {'÷ line':>6}  {'suspicious':>10}  {'false alarms':>12}",
        *(
            f"{name:{width}}  {held:7}  {declared:8}  {cases:7}  {examples:9}  "
            f"{excess:18.3g}  {line:6.2g}  {suspicious:10}  {wrong:12}"
            for name, held, declared, cases, examples, excess, line, suspicious, wrong in implementations
        ),
        "",
        *(alarms or ["No false alarm."]),
    ]
    return "\n".join(lines) + "\n", bool(seeds) and not alarms and not sum(row[-1] for row in implementations)


def together(database: sqlite3.Connection, later: Path) -> list[str]:
    """Replaces the implementations of the campaign by the ones of a later campaign, through views with the
    tables' names. Returns the names of these implementations.

    Raises ValueError if the later campaign has another number of cases.
    """
    with reading(later) as other:
        cases, before = (
            opened.execute("SELECT value FROM campaign WHERE name = 'max_examples'").fetchall()
            for opened in (other, database)
        )
        names = [name for (name,) in other.execute("SELECT DISTINCT implementation FROM chunk ORDER BY 1")]
    if cases != before:
        raise ValueError(
            f"{later} has max_examples={cases[0][0]}, but should have {before[0][0]} like the campaign before."
        )
    database.execute("ATTACH ? AS later", (f"{later.resolve().as_uri()}?mode=ro",))
    database.executescript(_TOGETHER)
    return names


def planned() -> int:
    """How many operations of implementations come with attnspec that can be run here, and that some law is about."""
    available = [
        implementation for group in GROUPS.values() for implementation in group if not implementation.unavailable
    ]
    return sum(len(grouped(plan(implementation))) for implementation in available)


def campaign(jobs: int) -> Path:
    """Run the campaign, or what is left of it, and return its database. One of a revision with changes begins again."""
    state = revision()
    database = ROOT / f"build/seeds-{state}.db"
    database.parent.mkdir(exist_ok=True)
    if state.endswith("-dirty"):
        database.unlink(missing_ok=True)
    drawn = "--seeds 0:50 --climb 0 --max-examples 100"
    options = f"systems:GROUPS {drawn} --jobs {jobs} --database {database} --examples build/seeds-examples"
    process = subprocess.run([sys.executable, "-m", "attnspec", "campaign", *options.split()], cwd=ROOT, check=False)
    if process.returncode not in (0, 1):  # 1 is a violation, which the page shows
        raise SystemExit(process.returncode)
    return database


def main(arguments: list[str] | None = None, rows: int | None = None) -> int:
    """Writes the page. Returns 1 if it has a false alarm or no finished seed. The campaign has
    `rows` operations of implementations (those `planned`).
    """
    parser = argparse.ArgumentParser(prog="python -m research.seeds", description=__doc__)
    parser.add_argument(
        "database", type=Path, nargs="?", metavar="DATABASE", help="of a campaign that was run (run one)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes of the campaign (2)")
    parser.add_argument(
        "--later",
        type=Path,
        metavar="DATABASE",
        help="of a campaign of some of the implementations, which counts for these",
    )
    parser.add_argument("--output", type=Path, default=_PAGE, help="the page (docs/seeds.txt)")
    options = parser.parse_args(arguments)
    with reading(options.database or campaign(options.jobs)) as database:
        names = together(database, options.later) if options.later else []
        text, fine = page(database, planned() if rows is None else rows)
    text += f"Of a later campaign by itself: {', '.join(names)}.\n" if names else ""
    write_whole(options.output, text)
    print(text, end="")
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
