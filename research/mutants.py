"""The kill matrix: every law against every known bug.

`python -m research.mutants` writes docs/kill-matrix.md and docs/kill-matrix.json; with `--only rope,rope_vjp` what is
known of laws that call none of these operations stays as it was, and with `--keep` what is known of a law and a bug.

A law is put to a mutant on up to 24 cases of each of its domains, and kills it where it is violated; the cases up to the first violation
are counted. The other operations that a law needs are the reference's.

A bug has a row for each operation in which it is: "bug" for the one where it was seen, "bug[operation]" for each of the others.

Which laws kill which bugs is the same on every processor: a violation is by more than the rounding of the mutant's own values. After how
many cases may differ by a few, where a mutant is wrong by little.
"""

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import zip_longest
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from properties.bugs import CATALOGUE
from properties.bugs.mutants import MUTANTS, TRAPS, Mutant
from properties.bugs.reference import OPERATIONS
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, Operation
from properties.contract.operations import OPERATIONS as OPERATIONS_
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws import LAWS, find, quick
from properties.laws.law import Law
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS

__all__ = [
    *("EXAMPLES", "HOW", "MUTANTS", "REPORTED", "SEEDS", "TRAPS", "Matrix", "Survivors"),
    *("as_json", "kills_of", "lives", "main", "markdown", "quick_module", "sole_victims"),
]

EXAMPLES, LEAST, SEED, SEEDS = 24, 16, 0, range(10)
Matrix = dict[str, dict[str, int]]
"""{mutant: {law: examples}}, for the laws that kill it."""
REPORTED = [bug.id for bug in CATALOGUE.values() if bug.public or not bug.citation.startswith("none")]
"""The bugs that were reported in public, and the thirty that the suite was tuned on."""
HOW = ("with agreement", "without agreement")
Survivors = dict[str, list[str]]
"""{how: bug@seed}, for the reported bugs that live with a seed: with agreement with the oracle, or without it."""


class _Remembering(Subject):
    """A subject that asks the oracle once for each call: mutants of one operation are mostly called alike."""

    def __init__(self, mutant: Implementation, operation: str, answers: dict[Any, tuple[Any, ...]]) -> None:
        super().__init__(mutant, operation)
        self.known = answers

    def expected(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The oracle's enclosures."""
        key = o.name, *((x.shape, x.tobytes()) if isinstance(x, np.ndarray) else x for x in arguments)
        if key not in self.known:
            self.known[key] = super().expected(o, arguments)
        return self.known[key]


def cases_of(law: Law, implementation: Implementation, seed: int = SEED) -> list[tuple[tuple[Any, ...], int]]:
    """The cases that a law is put to, and the seeds of what it chooses: of its domains by turns, fewer of those with a small share."""
    found: list[list[tuple[tuple[Any, ...], int]]] = []
    for name in () if law.not_applicable(implementation) else law.domains:
        with suppress(UnsupportedError):
            cases = Cases(OPERATIONS_[law.operation], DOMAINS[law.operation][name], implementation)
            number = max(LEAST, ceil(EXAMPLES * cases.domain.share))
            seeds = [0, *(crc32(f"{seed} {law.operation} {name} {n}".encode()) % 2**24 for n in range(number))]
            found.append([(cases.draw(n), n) for n in seeds])
    return [case for turn in zip_longest(*found) for case in turn if case is not None]


def examples_to_kill(mutant: Mutant, law: Law, cases: Iterable[tuple[tuple[Any, ...], int]], answers: dict[Any, tuple[Any, ...]]) -> int:
    """After how many cases the law is violated; 0 if it is on none. `answers` remembers the oracle's."""
    subject, number = _Remembering(mutant.implementation(), law.operation, answers), 0
    for arguments, seed in cases:
        subject.begin()
        try:
            number += law.hold(subject, law.case(arguments, seed))
        except BrokenError:
            return number + 1
        except Exception:  # a law may stumble over what no implementation should return
            return 0
    return 0


def kills_of(law_id: str, mutants: Sequence[str] | None = None, seed: int = SEED) -> dict[str, int]:
    """The mutants, among some or all, that a law kills, and after how many examples. Raises ValueError for a mutant that there is not."""
    if unknown := {*(mutants or ())} - {*MUTANTS, *TRAPS}:
        raise ValueError(f"There are no mutants {', '.join(sorted(unknown))}.")
    (law,) = find(law_id)
    entries = [m for m in (MUTANTS | TRAPS).values() if m.operation in law.operations and (mutants is None or m.id in mutants)]
    usual, answers, found = cases_of(law, Implementation("NumPy", OPERATIONS, features=FEATURES), seed), dict[Any, tuple[Any, ...]](), {}
    for mutant in entries:
        own = (cases_of(law, mutant.implementation(), seed), dict[Any, tuple[Any, ...]]()) if mutant.bug.promises else (usual, answers)
        found[mutant.id] = examples_to_kill(mutant, law, *own)
    return {mutant: examples for mutant, examples in found.items() if examples}


def matrix(jobs: int, known: Matrix, put: Mapping[str, Sequence[str]]) -> Matrix:
    """Some laws, each against some mutants, and of others what is known."""
    found: Matrix = {m: {law: n for law, n in known.get(m, {}).items() if m not in put.get(law, ())} for m in (*MUTANTS, *TRAPS)}
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for place, (law, kills) in enumerate(zip(put, pool.map(kills_of, put, put.values()), strict=True), 1):
            for mutant, examples in kills.items():
                found[mutant][law] = examples
            print(f"[{place}/{len(put)}] {law}: kills {len(kills)}", flush=True)
    order = [law.id for law in LAWS]
    return {mutant: {law: kills[law] for law in order if law in kills} for mutant, kills in found.items()}


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


def quick_module(found: Matrix) -> str:
    """The text of `properties.laws.quick`."""
    by_nature = {law.id for law in LAWS if law.agreement or law.watches}
    laws = "".join(f'    "{law}",\n' for law in quick_plan(found) if law not in by_nature)
    title = "The quick plan, written by `make mutants`: what kills bugs that neither agreement nor a look at the call itself does."
    return f'"""{title}"""\n\nQUICK = (\n{laws})\n'


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


def _operations(text: str) -> tuple[str, ...]:
    """The names of operations; all for none."""
    if unknown := set(filter(None, text.split(","))) - set(OPERATIONS):
        raise argparse.ArgumentTypeError(f"no operations: {', '.join(sorted(unknown))}. There are {', '.join(OPERATIONS)}.")
    return tuple(filter(None, text.split(","))) or tuple(OPERATIONS)


def main(arguments: list[str] | None = None) -> int:
    """Make the matrix; returns 1 if a mutant survives every law, or an equivalent mutant does not."""
    parser = argparse.ArgumentParser(prog="python -m research.mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("docs"), help="the folder to write to (docs)")
    parser.add_argument("--only", type=_operations, default=tuple(OPERATIONS), help="operations, with commas: keep the rest as it is there")
    parser.add_argument("--keep", action="store_true", help="what is known as it is there: put new laws to all bugs, others to new ones")
    options = parser.parse_args(arguments)
    all_anew = set(options.only) == set(OPERATIONS) and not options.keep
    before = {} if all_anew else json.loads((options.output / "kill-matrix.json").read_text())
    every = [*MUTANTS, *TRAPS]
    mutants = [m for m in every if not options.keep or m not in (*before["kills"], *TRAPS)]
    among = set(options.only) & {(MUTANTS | TRAPS)[m].operation for m in mutants}
    put = {law.id: mutants for law in LAWS if not among.isdisjoint(law.operations)}
    if options.keep:
        put |= {law.id: every for law in LAWS if law.id not in before["laws"] and not set(options.only).isdisjoint(law.operations)}
    found = matrix(options.jobs, before.get("kills", {}), put)
    wrongly = {trap: kills for trap in TRAPS if (kills := found.pop(trap))}
    again = [bug for bug in REPORTED if bug in mutants and MUTANTS[bug].operation in options.only]
    seeded = [(bug, seed, found[bug]) for bug in again for seed in SEEDS]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        lived = list(zip(seeded, pool.map(lives, *zip(*seeded, strict=True)), strict=True)) if seeded else []
    survivors: Survivors = {}
    for how in HOW:
        kept = [one for one in before.get("survivors", {}).get(how, []) if one.partition("@")[0] in {*REPORTED}.difference(again)]
        survivors[how] = kept + [f"{bug}@{seed}" for (bug, seed, _), ways in lived if how in ways]
    (options.output / "kill-matrix.json").write_text(as_json(found, survivors))
    (options.output / "kill-matrix.md").write_text(markdown(found, survivors))
    Path(quick.__file__).write_text(quick_module(found))
    alive = [mutant for mutant, kills in found.items() if not kills]
    print(f"{len(alive)} mutants survive: {', '.join(alive) or 'none'}. Equivalent mutants reported: {wrongly or 'none'}.")
    for how, those in survivors.items():
        print(f"Reported bugs that live with some seed {how}: {', '.join(those) or 'none'}.")
    return 1 if alive or wrongly or survivors["with agreement"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
