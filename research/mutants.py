"""The kill matrix: every law against every known bug.

`python -m research.mutants` writes docs/kill-matrix.md, docs/kill-matrix.json, and the laws of the quick plan.

A bug has a row for each operation in which it is: "bug" for the one where it was seen, "bug[operation]" for each of the others.

Which laws kill which bugs is the same on every processor: a violation is by more than the rounding of the mutant's own values. After how
many cases may differ by a few, where a mutant is wrong by little.
"""

import argparse
import json
import statistics
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from properties.bugs import CATALOGUE
from properties.bugs.mutants import MUTANTS, TRAPS
from properties.laws import LAWS
from properties.verifier.kills import EXAMPLES, SEED, kills_of
from properties.verifier.plan import QUICK

__all__ = ["HOW", "REPORTED", "SEEDS", "Matrix", "Survivors"]
__all__ += ["as_json", "lives", "main", "markdown", "quick_plan", "sole_victims", "write_quick"]

SEEDS = range(10)
Matrix = dict[str, dict[str, int]]
"""{mutant: {law: examples}}, for the laws that kill it."""
REPORTED = [bug.id for bug in CATALOGUE.values() if bug.public or not bug.citation.startswith("none")]
"""The bugs that were reported in public, and the thirty that the suite was tuned on."""
HOW = ("with agreement", "without agreement")
Survivors = dict[str, list[str]]
"""{how: bug@seed}, for the reported bugs that live with a seed: with agreement with the oracle, or without it."""


def matrix(jobs: int) -> Matrix:
    """All laws, each against all mutants, those that are equivalent to the reference too."""
    found: Matrix = {mutant: {} for mutant in (*MUTANTS, *TRAPS)}
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for place, (law, kills) in enumerate(zip(LAWS, pool.map(kills_of, [law.id for law in LAWS]), strict=True), 1):
            for mutant, examples in kills.items():
                found[mutant][law.id] = examples
            print(f"[{place}/{len(LAWS)}] {law.id}: kills {len(kills)}", flush=True)
    return found


def lives(mutant: str, seed: int, kills: dict[str, int]) -> tuple[str, ...]:
    """How a mutant lives with a seed: with agreement with the oracle no law kills it, without agreement no other law does. Laws that killed
    it before are tried first."""
    laws = sorted((law for law in LAWS if MUTANTS[mutant].operation in law.operations), key=lambda law: kills.get(law.id, EXAMPLES + 1))
    if any(kills_of(law.id, [mutant], seed) for law in laws if not law.agreement):
        return ()
    return HOW[1:] if any(kills_of(law.id, [mutant], seed) for law in laws if law.agreement) else HOW


def sole_victims(found: Matrix) -> dict[str, list[str]]:
    """{law: the mutants that no other law but plain agreement kills}."""
    laws = {law.id: law for law in LAWS}
    alone: dict[str, list[str]] = {}
    for bug, kills in found.items():
        names = {laws[law].name for law in kills if not laws[law].agreement}
        if len(names) == 1:
            alone.setdefault(names.pop(), []).append(bug)
    return alone


def quick_plan(found: Matrix) -> list[str]:
    """The laws of the quick plan: agreement, what looks at the case's own call alone, and of the others those that kill most of what is
    left, until nothing is left that some law kills."""
    plan = [law.id for law in LAWS if law.agreement or law.watches]
    left = {mutant: set(kills) for mutant, kills in found.items() if kills and set(plan).isdisjoint(kills)}
    while left:
        best = max((law.id for law in LAWS), key=lambda law: sum(law in kills for kills in left.values()))
        plan.append(best)
        left = {mutant: kills for mutant, kills in left.items() if best not in kills}
    return [law.id for law in LAWS if law.id in plan]


def write_quick(laws: Collection[str]) -> None:
    """Write the data file of the quick plan: of these laws, those that it does not have by their nature."""
    named = [law.id for law in LAWS if law.id in laws and not (law.agreement or law.watches)]
    QUICK.write_text(json.dumps(named, indent=1, ensure_ascii=False) + "\n", "utf-8")


def markdown(found: Matrix, survivors: Survivors) -> str:
    """The page."""
    return "\n".join([*_summary(found, survivors), "", *_bugs(found), "", *_laws(found), ""])


def _summary(found: Matrix, survivors: Survivors) -> list[str]:
    asked = len(REPORTED) * len(SEEDS)
    killed, apart = (asked - len(survivors[how]) for how in HOW)
    agreements = {law.id for law in LAWS if law.agreement}
    first = [min(kills.values()) for kills in found.values() if kills]
    by_law = sum(not agreements.issuperset(kills) for kills in found.values())
    plan = {*quick_plan(found)}
    quickly = sum(not plan.isdisjoint(kills) for kills in found.values())
    return [
        "# The kill matrix",
        "",
        f"Written by `make mutants`: {len({law.name for law in LAWS})} laws ({len(LAWS)} with their operations) against",
        f"{len(CATALOGUE)} known bugs in {len(found)} mutants, on up to {EXAMPLES} cases, seed {SEED}. {len(first)} mutants are killed,",
        f"{by_law} of them by a law other than plain agreement with the oracle; the median is {statistics.median(first):g} examples to the",
        f"first kill. The {len(TRAPS)} mutants that are equivalent to the reference pass every law.",
        "",
        f"The quick plan has {len(plan)} of the laws with their operations, and they kill {quickly} of the mutants; how many bugs it",
        "sees on its few cases is in [what today's checkers see](checkers.md).",
        "",
        f"{len(REPORTED)} of the bugs were reported in public, or are of the thirty that the suite was tuned on. Put to the laws with each",
        f"of the seeds {SEEDS[0]} to {SEEDS[-1]}, {asked} times in all, they are killed {killed} times, and without agreement with the",
        f"oracle {apart} times: {100 * apart / asked:.4g} %.",
        "",
        "Which law kills which bug is the same on every processor; after how many examples may differ by a few.",
    ]


def _bugs(found: Matrix) -> Iterator[str]:
    laws = {law.id: law for law in LAWS}
    yield "## Which laws kill each bug"
    yield "\nAfter each law the examples up to the first violation; plain agreement with the oracle is in italics.\n"
    yield "| bug | seen in | killed by |\n|---|---|---|"
    for mutant in sorted(found, key=lambda mutant: (MUTANTS[mutant].operation, mutant)):
        told = []
        for law, examples in sorted(found[mutant].items(), key=lambda kill: kill[1]):
            mark = "*" if laws[law].agreement else ""
            told.append(f"{mark}{laws[law].name}{mark} {examples}")
        bug, operation = MUTANTS[mutant].bug, MUTANTS[mutant].operation
        yield f"| **{bug.id}** ({operation}) | {bug.citation} | {' · '.join(told) or 'nobody'} |"


def _laws(found: Matrix) -> Iterator[str]:
    alone = sole_victims(found)
    yield "## What each law kills"
    yield "\n| law | operations | kills | which no other law kills |\n|---|---|---|---|"
    for name in dict.fromkeys(law.name for law in LAWS):
        same = [law for law in LAWS if law.name == name]
        killed = sum(any(law.id in kills for law in same) for kills in found.values())
        operations = f"{len(same)} operations" if len(same) > 3 else ", ".join(law.operation for law in same)
        yield f"| {name} | {operations} | {killed} | {', '.join(alone.get(name, [])[:4]) or '–'} |"


def as_json(found: Matrix, survivors: Survivors) -> str:
    """The matrix, what it was made of, and the reported bugs that live with some seed."""
    content: dict[str, Any] = {"examples": EXAMPLES, "seed": SEED, "laws": [law.id for law in LAWS], "survivors": survivors, "kills": found}
    return json.dumps(content, indent=1) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Make the matrix; returns 1 if a mutant survives every law, or an equivalent mutant does not."""
    parser = argparse.ArgumentParser(prog="python -m research.mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("docs"), help="the folder to write to (docs)")
    options = parser.parse_args(arguments)
    found = matrix(options.jobs)
    wrongly = {trap: kills for trap in TRAPS if (kills := found.pop(trap))}
    seeded = [(bug, seed, found[bug]) for bug in REPORTED for seed in SEEDS]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        lived = list(zip(seeded, pool.map(lives, *zip(*seeded, strict=True)), strict=True))
    survivors = {how: [f"{bug}@{seed}" for (bug, seed, _), ways in lived if how in ways] for how in HOW}
    (options.output / "kill-matrix.json").write_text(as_json(found, survivors))
    (options.output / "kill-matrix.md").write_text(markdown(found, survivors))
    write_quick(quick_plan(found))
    alive = [mutant for mutant, kills in found.items() if not kills]
    print(f"{len(alive)} mutants survive: {', '.join(alive) or 'none'}. Equivalent mutants reported: {wrongly or 'none'}.")
    for how, those in survivors.items():
        print(f"Reported bugs that live with some seed {how}: {', '.join(those) or 'none'}.")
    return 1 if alive or wrongly or survivors["with agreement"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
