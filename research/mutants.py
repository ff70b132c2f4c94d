"""The kill matrix: every law against every known bug.

`python -m research.mutants` writes docs/kill-matrix.md, docs/kill-matrix.json, and the laws of the
quick plan.

A bug has a row for each operation that can have it: "bug" for the operation where it was seen,
"bug[operation]" for each other one.

Every processor gives the same matrix: a violation exceeds the rounding of the mutant's values. The
number of cases until a kill may differ by a few, if a mutant is wrong by little.
"""

import argparse
import json
import statistics
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from properties.bugs import CATALOGUE
from properties.bugs.mutants import EQUIVALENT_MUTANTS, MUTANTS
from properties.bugs.reference import REFERENCE
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, Operation
from properties.laws import LAWS
from properties.laws.law import Law
from properties.tests.kills import EXAMPLES, SEED, kills_of
from properties.verifier.plan import QUICK
from properties.verifier.verify import examine

__all__ = ["HOW", "REPORTED", "SEEDS", "Matrix", "Survivors"]
__all__ += [
    "as_json",
    "complaints",
    "leans",
    "lives",
    "main",
    "markdown",
    "needless",
    "quick_plan",
    "sole_victims",
    "write_quick",
]

SEEDS = range(10)
Matrix = dict[str, dict[str, int]]
"""{mutant: {law: examples}}, for the laws that kill it."""
REPORTED = [bug.id for bug in CATALOGUE.values() if bug.public or bug.citations]
"""The bugs that were reported in public, and the thirty that the suite was tuned on."""
MOST_BY_AGREEMENT, SOON = 0.05, 3
"""The largest share of bugs that may survive without agreement with the oracle, and the most examples
after which the median bug may be killed.
"""
HOW = ("with agreement", "without agreement")
Survivors = dict[str, list[str]]
"""{how: bug@seed}, for the reported bugs that live with a seed: with agreement with the oracle, or without it."""


def matrix(jobs: int) -> Matrix:
    """Runs every law on every mutant, also on the mutants that are equivalent to the reference."""
    kill_matrix: Matrix = {mutant: {} for mutant in (*MUTANTS, *EQUIVALENT_MUTANTS)}
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for place, (law, kills) in enumerate(zip(LAWS, pool.map(kills_of, [law.id for law in LAWS]), strict=True), 1):
            for mutant, examples in kills.items():
                kill_matrix[mutant][law.id] = examples
            print(f"[{place}/{len(LAWS)}] {law.id}: kills {len(kills)}", flush=True)
    return kill_matrix


def lives(mutant: str, seed: int, kills: dict[str, int]) -> tuple[str, ...]:
    """How a mutant lives with a seed: with agreement with the oracle no law kills it, without
    agreement no other law does. Laws that killed it before are tried first."""
    laws = sorted(
        (law for law in LAWS if MUTANTS[mutant].operation in law.operations),
        key=lambda law: kills.get(law.id, EXAMPLES + 1),
    )
    if any(kills_of(law.id, [mutant], seed) for law in laws if not law.agreement):
        return ()
    return HOW[1:] if any(kills_of(law.id, [mutant], seed) for law in laws if law.agreement) else HOW


def sole_victims(kill_matrix: Matrix) -> dict[str, list[str]]:
    """{law: the mutants that no other law but plain agreement kills}."""
    laws = {law.id: law for law in LAWS}
    alone: dict[str, list[str]] = {}
    for bug, kills in kill_matrix.items():
        names = {laws[law].name for law in kills if not laws[law].agreement}
        if len(names) == 1:
            alone.setdefault(names.pop(), []).append(bug)
    return alone


def quick_plan(kill_matrix: Matrix) -> list[str]:
    """The laws of the quick plan: agreement, the laws that watch the call of the case alone, and
    then, one by one, the law that kills most of the remaining mutants, until no law kills another.
    """
    plan = [law.id for law in LAWS if law.agreement or law.watches]
    left = {mutant: set(kills) for mutant, kills in kill_matrix.items() if kills and set(plan).isdisjoint(kills)}
    while left:
        best = max((law.id for law in LAWS), key=lambda law: sum(law in kills for kills in left.values()))
        plan.append(best)
        left = {mutant: kills for mutant, kills in left.items() if best not in kills}
    return [law.id for law in LAWS if law.id in plan]


def write_quick(laws: Collection[str]) -> None:
    """Write the data file of the quick plan: of these laws, those that it does not have by their nature."""
    named_laws = [law.id for law in LAWS if law.id in laws and not (law.agreement or law.watches)]
    QUICK.write_text(json.dumps(named_laws, indent=1, ensure_ascii=False) + "\n", "utf-8")


def markdown(kill_matrix: Matrix, survivors: Survivors) -> str:
    """The page."""
    return "\n".join([*_summary(kill_matrix, survivors), "", *_bugs(kill_matrix), "", *_laws(kill_matrix), ""])


def _summary(kill_matrix: Matrix, survivors: Survivors) -> list[str]:
    tried = len(REPORTED) * len(SEEDS)
    killed, apart = (tried - len(survivors[how]) for how in HOW)
    agreements = {law.id for law in LAWS if law.agreement}
    first = [min(kills.values()) for kills in kill_matrix.values() if kills]
    by_law = sum(not agreements.issuperset(kills) for kills in kill_matrix.values())
    plan = {*quick_plan(kill_matrix)}
    quickly = sum(not plan.isdisjoint(kills) for kills in kill_matrix.values())
    return [
        "# The kill matrix",
        "",
        f"Written by `make mutants`: {len({law.name for law in LAWS})} laws, {len(LAWS)} with their operations,",
        f"against {len(CATALOGUE)} known bugs in {len(kill_matrix)} mutants, on up to {EXAMPLES} cases, seed {SEED}.",
        f"The laws kill {len(first)} mutants, {by_law} of them also without plain agreement with the oracle.",
        f"The median of the examples to the first kill is {statistics.median(first):g}.",
        f"The {len(EQUIVALENT_MUTANTS)} mutants that are equivalent to the reference pass every law.",
        "",
        f"The quick plan has {len(plan)} of the laws with their operations, which kill {quickly} of the mutants.",
        "[What today's checkers let through](checkers.md) says how many bugs it sees on its few cases.",
        "",
        f"{len(REPORTED)} of the bugs were reported in public, or belong to the thirty that the suite was tuned on.",
        f"The laws met them with the seeds {SEEDS[0]} to {SEEDS[-1]}, {tried} times in all.",
        f"They killed them {killed} times, and without agreement with the oracle {apart} times: "
        f"{100 * apart / tried:.4g} %.",
        "",
        "Every processor gives the same kills; the number of examples may differ by a few.",
    ]


def _bugs(kill_matrix: Matrix) -> Iterator[str]:
    laws = {law.id: law for law in LAWS}
    yield "## Which laws kill each bug"
    yield "\nAfter each law stands the number of examples up to the first violation. Plain agreement with the"
    yield "oracle is in italics.\n"
    yield "| bug | seen in | killed by |\n|---|---|---|"
    for mutant in sorted(kill_matrix, key=lambda mutant: (MUTANTS[mutant].operation, mutant)):
        killers = []
        for law, examples in sorted(kill_matrix[mutant].items(), key=lambda kill: kill[1]):
            mark = "*" if laws[law].agreement else ""
            killers.append(f"{mark}{laws[law].name}{mark} {examples}")
        bug, operation = MUTANTS[mutant].bug, MUTANTS[mutant].operation
        yield f"| **{bug.id}** ({operation}) | {bug.citation} | {' · '.join(killers) or 'nobody'} |"


def _laws(kill_matrix: Matrix) -> Iterator[str]:
    alone = sole_victims(kill_matrix)
    yield "## What each law kills"
    yield "\n| law | operations | kills | which no other law kills |\n|---|---|---|---|"
    for name in dict.fromkeys(law.name for law in LAWS):
        laws_of_name = [law for law in LAWS if law.name == name]
        killed = sum(any(law.id in kills for law in laws_of_name) for kills in kill_matrix.values())
        operations = (
            f"{len(laws_of_name)} operations"
            if len(laws_of_name) > 3
            else ", ".join(law.operation for law in laws_of_name)
        )
        yield f"| {name} | {operations} | {killed} | {', '.join(alone.get(name, [])[:4]) or '–'} |"


def as_json(kill_matrix: Matrix, survivors: Survivors) -> str:
    """The matrix, what it was made of, and the reported bugs that live with some seed."""
    content: dict[str, Any] = {
        "examples": EXAMPLES,
        "seed": SEED,
        "laws": [law.id for law in LAWS],
        "survivors": survivors,
        "kills": kill_matrix,
    }
    return json.dumps(content, indent=1) + "\n"


def needless(kill_matrix: Matrix) -> list[Law]:
    """The laws that kill no mutant beyond those that earlier laws kill, without agreement. Laws
    with the same name count as one, and the first of them stands for all.
    """
    killed: set[str] = set()
    laws: list[Law] = []
    for name in dict.fromkeys(law.name for law in LAWS):
        laws_of_name = [law for law in LAWS if law.name == name]
        kills = {
            mutant for mutant, own_kills in kill_matrix.items() if any(law.id in own_kills for law in laws_of_name)
        }
        if not laws_of_name[0].agreement:
            laws += laws_of_name[:1] if kills <= killed else []
            killed |= kills
    return laws


def leans(law: Law) -> bool:
    """Whether a law fails on the reference if the oracle's values are wrong, but its tolerances and
    infinities are right. A law that passes is independent of the oracle.
    """
    true = Caller.expected

    def lie(self: Caller, o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        killers = true(self, o, arguments)
        return tuple(
            ~x if isinstance(x, np.ndarray) else replace(x, mid=np.where(np.isinf(x.mid), x.mid, 1e300))
            for x in killers
        )

    with patch.object(Caller, "expected", lie):
        outcome, *_ = examine([law], Implementation("NumPy", REFERENCE, features=FEATURES), 2, 0)
    return outcome.status != "held"


def complaints(kill_matrix: Matrix, survivors: Survivors) -> Iterator[str]:
    """What a matrix should not say, in sentences."""
    laws, runs_asked = {law.id: law for law in LAWS}, len(REPORTED) * len(SEEDS)
    yield from (f"{mutant} survives." for mutant, kills in kill_matrix.items() if not kills)
    by_agreement = [mutant for mutant, kills in kill_matrix.items() if all(laws[law].agreement for law in kills)]
    if len(by_agreement) > MOST_BY_AGREEMENT * len(kill_matrix):
        yield f"Too many are killed by agreement alone: {', '.join(by_agreement)}."
    yield from (f"{survivor} lives with agreement." for survivor in survivors[HOW[0]])
    if len(survivors[HOW[1]]) > MOST_BY_AGREEMENT * runs_asked:
        yield f"Too many reported bugs live without agreement: {', '.join(survivors[HOW[1]])}."
    if statistics.median(min(kills.values(), default=EXAMPLES + 1) for kills in kill_matrix.values()) > SOON:
        yield f"The median bug is killed after more than {SOON} examples."
    killing = {laws[law].name for kills in kill_matrix.values() for law in kills}
    yield from (
        f"{name!r} kills no known bug." for name in dict.fromkeys(law.name for law in LAWS) if name not in killing
    )
    for bug in CATALOGUE.values():
        if bug.law not in {laws[law].name for law in kill_matrix[bug.id]}:
            yield f"{bug.id} names the law {bug.law!r}, which does not kill it."
    yield from (f"{law.id} kills nothing new, and needs the oracle." for law in needless(kill_matrix) if leans(law))


def main(arguments: list[str] | None = None) -> int:
    """Make the matrix; returns 1 where it says what it should not."""
    parser = argparse.ArgumentParser(prog="python -m research.mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("docs"), help="the folder to write to (docs)")
    options = parser.parse_args(arguments)
    kill_matrix = matrix(options.jobs)
    wrongly = {trap: kills for trap in EQUIVALENT_MUTANTS if (kills := kill_matrix.pop(trap))}
    seeded = [(bug, seed, kill_matrix[bug]) for bug in REPORTED for seed in SEEDS]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        lived = list(zip(seeded, pool.map(lives, *zip(*seeded, strict=True)), strict=True))
    survivors = {how: [f"{bug}@{seed}" for (bug, seed, _), ways in lived if how in ways] for how in HOW}
    (options.output / "kill-matrix.json").write_text(as_json(kill_matrix, survivors))
    (options.output / "kill-matrix.md").write_text(markdown(kill_matrix, survivors))
    write_quick(quick_plan(kill_matrix))
    wrong = [
        *complaints(kill_matrix, survivors),
        *(f"{trap} is equivalent, but {', '.join(kills)} kills it." for trap, kills in wrongly.items()),
    ]
    print(*wrong, f"{len(kill_matrix)} mutants, {len(wrong)} complaints.", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
