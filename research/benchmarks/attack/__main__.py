"""`python -m research.benchmarks.attack`: hill climbing for a false certificate, or a budget that
refuses an honest kernel.

The work is a list of chunks, each a few climbs in one family, drawn from the seed and the chunk's
number alone. A run takes them in order until its time is over, and says how many it took:
`--chunks` with that number finds the same again, and `--chunk` repeats a single one.
"""

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from research.benchmarks.attack import certificates
from research.benchmarks.attack.chunks import KINDS, Kind, Tally, run
from research.benchmarks.report import console, save

__all__ = ["main"]


def _merged(tallies: dict[Kind, Tally], *fields: int) -> dict[tuple[str, ...], Tally]:
    merged: dict[tuple[str, ...], Tally] = {}
    for kind in sorted(tallies):
        key = tuple(kind[place] for place in fields)
        merged[key] = merged.get(key, Tally()) + tallies[kind]
    return merged


def _table(title: str, rows: list[tuple[str, ...]], headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column, heading in enumerate(headings.split("|")):
        table.add_column(heading, justify="left" if column < 2 or heading == "where" else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _print(target: Console, tallies: dict[Kind, Tally], chunks: int, seed: int) -> None:
    certified = {kind: tally for kind, tally in tallies.items() if kind[0] == "certificate"}
    budgeted = {kind: tally for kind, tally in tallies.items() if kind[0] == "budget"}
    half = "certificate"
    rows = [
        (operation, family, f"{tally.evaluations:,}", str(tally.climbs),
         *(f"{tallies.get((half, operation, family, method), Tally()).largest:.3g}" for method in certificates.METHODS),
         str(tally.violations), str(tally.undecided), str(tally.useless))
        for (operation, family), tally in _merged(certified, 1, 2).items()
    ]  # fmt: skip
    methods = "|".join(certificates.METHODS)
    headings = f"operation|family|evaluations|climbs|{methods}|violations|undecided|useless"
    target.print(_table(f"|exact − mid| ÷ rad of certificates (seed {seed}, {chunks:,} chunks)", rows, headings))
    for title, fields in (("by arithmetic", (3, 1)), ("by family", (2, 1))):
        rows = [
            (
                *key,
                f"{tally.evaluations:,}",
                str(tally.climbs),
                f"{tally.largest:.3g}",
                str(tally.violations),
                tally.where,
            )
            for key, tally in sorted(_merged(budgeted, *fields).items())
        ]
        headings = f"{title.removeprefix('by ')}|operation|evaluations|climbs|largest|violations|where"
        target.print(_table(f"error ÷ budget of honest kernels, {title}", rows, headings))
    target.print(
        "Certificates: a largest of at most 1 is sound; auto and arb come near 1 by design, "
        "if they round an exact value once. useless: judged, with a radius above all values of a row.\n"
        "where: the family and the arithmetic of the largest."
    )
    for kind in sorted(tallies):
        for example in tallies[kind].examples:
            target.print(f"violation  {example}", style="bold red", markup=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    """Attack, print. Returns 0 if no counterexample was found and nothing was left undecided, and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to search (60)")
    parser.add_argument("--chunks", type=int, help="how many chunks to run, however long it takes")
    parser.add_argument("--chunk", type=int, help="a single chunk to run again")
    parser.add_argument("--seed", type=int, default=0, help="what everything is drawn from (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each processor)")
    parser.add_argument("--output", type=Path, help="a text file for the tables")
    options = parser.parse_args(arguments)

    os.environ["OMP_NUM_THREADS"] = "1"  # the workers share the processors among them
    numbers: range = range(sys.maxsize)
    seconds = 60 * options.minutes
    if options.chunk is not None or options.chunks is not None:
        numbers, seconds = (
            range(options.chunk, options.chunk + 1) if options.chunk is not None else range(options.chunks),
            float("inf"),
        )
    tallies: dict[Kind, Tally] = {}
    chunks = 0
    for number, part in run(numbers, options.seed, options.jobs, seconds):
        kind = KINDS[number % len(KINDS)]
        tallies[kind] = tallies.get(kind, Tally()) + part
        chunks += 1

    target = console()
    _print(target, tallies, chunks, options.seed)
    save(target, options.output)
    return 1 if any(tally.violations or tally.undecided for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
