"""`python -m research.benchmarks.soundness`: does every enclosure contain the exact value?

Draws cases of every operation and asks the literal `spec` over balls (`judge`) whether the exact value of every entry lies in
[mid − rad, mid + rad]. One that certainly does not is a violation. Both evaluations are judged: `fast` on all cases, `arb` on a share.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from research.benchmarks.cases import OPERATIONS, SHARES, draw
from research.benchmarks.judge import compare, enclosed
from research.benchmarks.report import console, save

__all__ = ["Tally", "main", "run", "tally"]

CHUNK = 250
ARB_SHARE = 10
"""The arb evaluation is judged on one case in so many."""


@dataclass(frozen=True)
class Tally:
    """What was found on some cases of one operation, by one method.

    violations counts entries that are certainly outside, touching those on the edge of the interval for all that balls can tell, undecided
    those that no precision decided; largest is the largest
    (|exact − mid| + ball radius) ÷ rad; unbounded counts entries with an infinite radius, which promise nothing; not_judged counts cases
    that the oracle itself marks as too wide to judge by. `first` describes the first violation.
    """

    cases: int = 0
    entries: int = 0
    violations: int = 0
    touching: int = 0
    undecided: int = 0
    unbounded: int = 0
    not_judged: int = 0
    largest: float = 0.0
    first: str = ""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.cases + other.cases,
            self.entries + other.entries,
            self.violations + other.violations,
            self.touching + other.touching,
            self.undecided + other.undecided,
            self.unbounded + other.unbounded,
            self.not_judged + other.not_judged,
            max(self.largest, other.largest),
            self.first or other.first,
        )


def tally(operation: str, method: str, numbers: range, seed: int) -> Tally:
    """Judge an operation on the cases of these numbers."""
    found = Tally()
    for number in numbers:
        case = draw(operation, seed, number)
        enclosures = enclosed(operation, case.given, case.options, method)
        deviation = compare(operation, case.exact, [(e.mid, e.rad) for e in enclosures])
        found += Tally(
            cases=1,
            entries=deviation.entries,
            violations=deviation.outside,
            touching=deviation.touching,
            undecided=deviation.undecided,
            unbounded=deviation.unbounded,
            not_judged=int(not all(e.judged for e in enclosures)),
            largest=deviation.largest,
            first=f"cases.draw({operation!r}, {seed}, {number}) by {method}: {deviation}" if deviation.outside else "",
        )
    return found


def _methods(operation: str, cases: int) -> tuple[tuple[str, int], ...]:
    """Each method, and on how many cases it is judged."""
    count = -(-cases // SHARES.get(operation, 1))
    return ("fast", count), ("arb", -(-count // ARB_SHARE))


def run(cases: int, seed: int, jobs: int) -> Iterator[tuple[str, str, Tally]]:
    """(operation, method, tally) as chunks of cases finish."""
    tasks = [
        (operation, method, range(start, min(start + CHUNK, count)), seed)
        for operation in OPERATIONS
        for method, count in _methods(operation, cases)
        for start in range(0, count, CHUNK)
    ]
    if jobs == 1:
        for task in tasks:
            yield *task[:2], tally(*task)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(tally, *task): task[:2] for task in tasks}
        for future in as_completed(futures):
            yield *futures[future], future.result()


def _print(target: Console, found: dict[tuple[str, str], Tally], seed: int) -> None:
    table = Table(title=f"Are exact values within the radius? (seed {seed})", title_justify="left", title_style="bold")
    for heading in ("operation", "method", "cases", "entries", "violations", "touching", "undecided", "largest", "unbounded", "not judged"):
        table.add_column(heading, justify="left" if heading in ("operation", "method") else "right")
    for (operation, method), t in found.items():
        infinite = t.unbounded / max(t.entries + t.unbounded, 1)
        table.add_row(
            operation, method, f"{t.cases:,}", f"{t.entries:,}", str(t.violations), str(t.touching), str(t.undecided),
            f"{t.largest:.3g}", f"{infinite:.1%}", f"{t.not_judged / max(t.cases, 1):.1%}",
        )  # fmt: skip
    target.print(table)
    target.print(
        "largest: the largest (|exact − mid| + the ball's radius) ÷ rad. unbounded: entries with an infinite radius. "
        "not judged: cases whose radius the oracle itself calls too wide to judge by.\n"
        "The exact value is the literal spec's over balls, at 128 bits and more until each entry is decided."
    )
    for t in found.values():
        if t.first:
            target.print(f"violation  {t.first}", style="bold red", markup=False)


def main(arguments: list[str] | None = None) -> int:
    """Draw, judge, print. Returns 0 if nothing is outside, or left undecided, and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.soundness", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="cases for each operation (10000)")
    parser.add_argument("--seed", type=int, default=0, help="what the cases are drawn from (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each processor)")
    parser.add_argument("--output", type=Path, help="a text file for the table")
    options = parser.parse_args(arguments)

    os.environ["OMP_NUM_THREADS"] = "1"  # the workers share the processors among them
    found = {(operation, method): Tally() for operation in OPERATIONS for method in ("fast", "arb")}
    total = sum(count for operation in OPERATIONS for _, count in _methods(operation, options.cases))
    with Progress(console=Console(stderr=True), transient=True) as progress, np.errstate(all="ignore"):
        task = progress.add_task("cases", total=total)
        for operation, method, part in run(options.cases, options.seed, options.jobs):
            found[operation, method] += part
            progress.update(task, advance=part.cases)

    target = console()
    _print(target, found, options.seed)
    save(target, options.output)
    return 1 if any(t.violations or t.undecided for t in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
