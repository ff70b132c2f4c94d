"""`python -m research.benchmarks.soundness`: does every enclosure contain the exact value?

Draws cases of every operation and asks the literal `spec` over balls (`judge`) whether the exact
value of every entry lies in [mid − rad, mid + rad]. One that certainly does not is a violation.
Both evaluations are judged: `fast` on all cases, `arb` on a share.
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

from research.benchmarks.attack import features
from research.benchmarks.attack.calls import Call, drawn
from research.benchmarks.attack.certificates import OPERATIONS as ATTACKED
from research.benchmarks.attack.certificates import Target
from research.benchmarks.judge import compare, enclosed
from research.benchmarks.report import console, save

__all__ = ["OPERATIONS", "SHARES", "Tally", "draw", "main", "run", "tally"]

SERIES = {f"{operation} by series": ATTACKED[operation] for operation in ("attention_vjp", "attention_jvp")}
OPERATIONS: dict[str, Target] = ATTACKED | SERIES
"""What is judged: every operation that is attacked, and derivatives by a second judge."""
SHARES = dict.fromkeys(SERIES, 10)
"""The second judge takes long: it is asked about one case in ten."""
FEW = 24
"""The most numbers of an input whose gradient is judged by a series for each."""
LONG_EVERY = 500
"""One case in 500 is long. The second judge gets no long case: each has more numbers than `FEW`."""
WITHOUT_FEATURES = ("scaled_dot", "causal", "grouped", "multi_head", "hard_masked")
"""Operations of which a long case has 4096 keys, 130 queries or 24 tokens; those with features have
some of several tiles.
"""
CHUNK = 250
ARB_SHARE = 10
"""The arb evaluation is judged on one case in so many."""


@dataclass(frozen=True)
class Tally:
    """What was found on some cases of one operation, by one method.

    violations counts entries that are certainly outside, touching those on the edge of the interval
    for all that balls can tell, undecided those that no precision decided; largest is the largest
    (|exact − mid| + ball radius) ÷ rad; unbounded counts entries with an infinite radius, which
    promise nothing; not_judged counts cases that the oracle itself marks as too wide to judge by.
    `first` describes the first violation.
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


def draw(operation: str, seed: int, number: int) -> Call:
    """Case `number` of an operation: of each of its families in turn."""
    is_long = operation not in SHARES and number % LONG_EVERY == LONG_EVERY - 1
    rng, families = (
        np.random.default_rng([seed, list(OPERATIONS).index(operation), number]),
        OPERATIONS[operation].families,
    )
    if is_long and operation.startswith(WITHOUT_FEATURES):
        n_q, n_k = (1, 4096) if rng.random() < 0.7 else (130, 2)
        sizes = {"n_q": n_q, "n_k": n_k, "seq_len": 24, "head_dim": 1, "value_dim": 1, "kv_heads": 1, "group": 1}
        return drawn(operation, rng, {name: (n,) for name, n in sizes.items()})
    names = [name for name in families if (name in features.LONG) == is_long] or [*families]
    call = families[names[number % len(names)]](rng)
    while (
        operation in SHARES and sum(x.size for name, x in call.arrays.items() if name in ("q", "k", "v", "bias")) > FEW
    ):
        call = families[names[number % len(names)]](rng)
    return call


def tally(operation: str, method: str, numbers: range, seed: int) -> Tally:
    """Judge an operation on the cases of these numbers."""
    tallies = Tally()
    for number in numbers:
        given, exact, keywords, meaning = OPERATIONS[operation].said(draw(operation, seed, number))
        enclosures = enclosed(operation, given, keywords, method)
        deviation = compare(
            operation, exact, [(enclosure.mid, enclosure.rad) for enclosure in enclosures], meaning=meaning
        )
        tallies += Tally(
            cases=1,
            entries=deviation.entries,
            violations=deviation.outside,
            touching=deviation.touching,
            undecided=deviation.undecided,
            unbounded=deviation.unbounded,
            not_judged=int(not all(enclosure.judged for enclosure in enclosures)),
            largest=deviation.largest,
            first=f"soundness.draw({operation!r}, {seed}, {number}) by {method}: {deviation}"
            if deviation.outside
            else "",
        )
    return tallies


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


def _print(target: Console, tallies: dict[tuple[str, str], Tally], seed: int) -> None:
    table = Table(title=f"Are exact values within the radius? (seed {seed})", title_justify="left", title_style="bold")
    for heading in (
        "operation",
        "method",
        "cases",
        "entries",
        "violations",
        "touching",
        "undecided",
        "largest",
        "unbounded",
        "not judged",
    ):
        table.add_column(heading, justify="left" if heading in ("operation", "method") else "right")
    for (operation, method), tally in tallies.items():
        infinite = tally.unbounded / max(tally.entries + tally.unbounded, 1)
        table.add_row(
            operation, method, f"{tally.cases:,}", f"{tally.entries:,}", str(tally.violations), str(tally.touching),
            str(tally.undecided),
            f"{tally.largest:.3g}", f"{infinite:.1%}", f"{tally.not_judged / max(tally.cases, 1):.1%}",
        )  # fmt: skip
    target.print(table)
    target.print(
        "largest: the largest (|exact − mid| + the ball's radius) ÷ rad. "
        "unbounded: entries with an infinite radius. "
        "not judged: cases with a radius that the oracle itself calls too wide.\n"
        "The literal spec gives the exact value over balls, at 128 bits and more until each entry is decided."
    )
    for tally in tallies.values():
        if tally.first:
            target.print(f"violation  {tally.first}", style="bold red", markup=False)


def main(arguments: list[str] | None = None) -> int:
    """Draws, judges and prints. Returns 0 if every entry is decided and inside, and 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m research.benchmarks.soundness", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="cases for each operation (10000)")
    parser.add_argument("--seed", type=int, default=0, help="what the cases are drawn from (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each processor)")
    parser.add_argument("--output", type=Path, help="a text file for the table")
    options = parser.parse_args(arguments)

    os.environ["OMP_NUM_THREADS"] = "1"  # the workers share the processors among them
    tallies = {(operation, method): Tally() for operation in OPERATIONS for method in ("fast", "arb")}
    total = sum(count for operation in OPERATIONS for _, count in _methods(operation, options.cases))
    with Progress(console=Console(stderr=True), transient=True) as progress, np.errstate(all="ignore"):
        task = progress.add_task("cases", total=total)
        for operation, method, part in run(options.cases, options.seed, options.jobs):
            tallies[operation, method] += part
            progress.update(task, advance=part.cases)

    target = console()
    _print(target, tallies, options.seed)
    save(target, options.output)
    return 1 if any(tally.violations or tally.undecided for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
