"""Writes the generated files that a change touches: the laws of the quick plan, the vectors, and the
guide's page of operations. `make regenerate` runs it.

git reports the lines that have changed since HEAD (since the parent of HEAD if nothing has changed,
or since the revision that SINCE names). A change touches a known bug if it changes the bug's
function, or code that this function uses. Each mutant of a touched bug meets the laws, until one
kills it, and the vectors of its operation. A change of shared code touches all laws and bugs.
"""

import argparse
import json
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

from properties.bugs import CATALOGUE, GROUPS
from properties.bugs.mutants import MUTANTS
from properties.bugs.reference import REFERENCE, users_of
from properties.laws import FAMILIES, LAWS
from properties.tests.kills import killers, kills_of
from properties.verifier.plan import QUICK, is_quick
from properties.verifier.report import counted
from properties.views.operations import markdown
from research.changes import ROOT, Part, Spans, base, changed_lines, parts, touched_parts
from research.mutants import write_quick
from research.vectors.choosing import CHOSEN, SHOWN, choose, chosen, survivors, written
from research.vectors.writing import VECTORS, write

__all__ = ["Touched", "main", "touched"]

_SHARED = ("oracles/", "properties/contract/", "properties/strategies/", "properties/vectors/", "research/vectors/")
"""Folders whose code all vectors depend on. All bugs and laws depend on the first three."""
_LAWS = {law.id: law for law in LAWS}
_OPERATIONS_PAGE = ROOT / "docs/guide/operations.md"


@dataclass(frozen=True)
class Touched:
    """What a change touches: known bugs and laws by name, operations with all their mutants, and
    whether it touches all vectors.
    """

    bugs: frozenset[str]
    laws: frozenset[str]
    operations: frozenset[str]
    vectors: bool

    @property
    def mutants(self) -> list[str]:
        """The mutants that must meet the laws again: mutants of touched bugs and operations, mutants
        that a touched law of the quick plan may have killed, and mutants whose bug names a touched
        law.
        """
        quick = {operation for law in LAWS if law.name in self.laws and is_quick(law) for operation in law.operations}
        return [
            mutant.id
            for mutant in MUTANTS.values()
            if mutant.bug.id in self.bugs or mutant.operation in self.operations | quick or mutant.bug.law in self.laws
        ]


def touched(lines: dict[str, Spans]) -> Touched:
    """What changed lines touch; the lines are given by the path of their file."""
    code = {path: spans for path, spans in lines.items() if path.endswith(".py") and "/tests/" not in path}
    bugs, operations = _bugs(code)
    if any(path.startswith(_SHARED[:3]) for path in code):
        operations = frozenset(REFERENCE)
    return Touched(bugs, _laws(code), operations, any(path.startswith(_SHARED) for path in code))


def _parts_of(folder: str, lines: dict[str, Spans], ends: Collection[str] = ()) -> dict[str, list[Part]]:
    """The touched parts of the modules of a folder."""
    files = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in sorted((ROOT / folder).glob("*.py"))}
    names = {path: path.removesuffix(".py").replace("/", ".") for path in files}
    modules = {names[path]: parts(names[path], source) for path, source in files.items()}
    return touched_parts(modules, {names[path]: spans for path, spans in lines.items() if path in names}, ends)


def _bugs(lines: dict[str, Spans]) -> tuple[frozenset[str], frozenset[str]]:
    """The touched bugs, and the operations that take a touched step of the reference."""
    reference = "properties.bugs.reference"
    # Tables of all steps.
    tables = [f"{reference}:{name}" for name in ("REFERENCE", "_SCOPE", "_FUNCTIONS", "_NAMES")]
    bugs, steps = set[str](), set[str]()
    for module, members in _parts_of("properties/bugs", lines, tables).items():
        group = {bug.id for bug in GROUPS.get(module.rpartition(".")[2], ())}
        for part in members:
            if group:
                named = group.intersection(label.replace("_", "-") for label in part.labels)
                bugs |= named if named or part.defines else group
            elif module.startswith(reference):
                steps |= (
                    {name.partition(":")[2] for name in part.defines}
                    if part.defines.isdisjoint(tables)
                    else {*REFERENCE}
                )
            elif module.endswith(".mutants"):
                bugs |= {*CATALOGUE}
    return frozenset(bugs), frozenset(users_of(*steps) if steps else ())


def _laws(lines: dict[str, Spans]) -> frozenset[str]:
    """The touched laws, by name. A statement that defines nothing and names no law touches all laws
    of its module.
    """
    families = {name.replace(" ", "_"): laws for name, laws in FAMILIES.items()}
    killed_by = set[str]()
    for module, members in _parts_of("properties/laws", lines).items():
        family = families.get(module.rpartition(".")[2], ())
        for part in members:
            labelled = {law.name for law in family if law.body.__name__ in part.labels}
            killed_by |= labelled if labelled or part.defines else {law.name for law in family}
    return frozenset(killed_by)


def _killed(mutants: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """A law that kills each mutant (the law that its bug names, if that one kills it), and a law of the
    quick plan that kills it.
    """
    killed_by = killers(mutants)
    by_quick = {mutant: law for mutant, law in killed_by.items() if is_quick(_LAWS[law])}
    others = [mutant for mutant in killed_by if mutant not in by_quick]
    return killed_by, by_quick | killers(others, [law for law in LAWS if is_quick(law)])


def _victim(laws: Sequence[str]) -> str:
    """A mutant that one of these laws, which have one name, kills; "" if all mutants survive."""
    for law in laws:
        mutants = [mutant for mutant in MUTANTS.values() if mutant.operation in _LAWS[law].operations]
        likely = [mutant.id for mutant in mutants if mutant.bug.law == _LAWS[law].name]
        for candidates in (likely, [mutant.id for mutant in mutants]):
            if kills := kills_of(law, candidates) if candidates else {}:
                return next(iter(kills))
    return ""


def _by_operation(mutants: Sequence[str]) -> list[list[str]]:
    grouped: dict[str, list[str]] = {}
    for mutant in mutants:
        grouped.setdefault(MUTANTS[mutant].operation, []).append(mutant)
    return sorted(grouped.values(), key=len, reverse=True)


def _laws_made(pool: ProcessPoolExecutor, what: Touched) -> Iterator[str]:
    """Runs the laws on touched mutants, and touched laws on mutants, and updates the file of the
    quick plan. Yields a sentence for each problem.
    """
    killed_by: dict[str, str] = {}
    quickly: dict[str, str] = {}
    names = sorted(what.laws)
    victims = pool.map(_victim, [[law.id for law in LAWS if law.name == name] for name in names])
    for by_law, by_quick in pool.map(_killed, _by_operation(what.mutants)):
        killed_by, quickly = killed_by | by_law, quickly | by_quick
    before = json.loads(QUICK.read_text("utf-8"))
    added = {law for mutant, law in killed_by.items() if mutant not in quickly}
    gone = [law for law in before if law not in _LAWS]
    if added or gone:
        write_quick({*before, *added})
    print(f"Killed by a law: {counted(len(killed_by), 'mutant')}.")
    print(f"Quick plan: {counted(len(added), 'law')} added, {counted(len(gone), 'law')} removed.")
    for mutant in what.mutants:
        bug = MUTANTS[mutant].bug
        if mutant not in killed_by:
            yield f"No law about {MUTANTS[mutant].operation} kills {mutant}."
        elif mutant == bug.id and _LAWS[killed_by[mutant]].name != bug.law:
            yield f"{bug.id} names the law {bug.law!r}, which does not kill it; {_LAWS[killed_by[mutant]].name!r} does."
    yield from (f"{name!r} kills no known bug." for name, victim in zip(names, victims, strict=True) if not victim)


def _written(operation: str) -> list[Path]:
    return list(write(VECTORS / "data", [operation]))


def _vectors_made(pool: ProcessPoolExecutor, what: Touched) -> Iterator[str]:
    """Chooses cases again for touched operations, and writes the vectors whose cases have changed.
    Yields a sentence for each problem.
    """
    known = {operation: [case for case in chosen() if case.choice.operation == operation] for operation in SHOWN}
    mutants = {
        mutant.id for mutant in MUTANTS.values() if mutant.bug.id in what.bugs or mutant.operation in what.operations
    }
    operations_asked: dict[str, set[str] | None] = {}
    for operation, cases in known.items():
        gone = any(kill not in MUTANTS for case in cases for kills in case.kills.values() for kill in kills)
        laws = [case.choice.law for case in cases if case.choice.law]
        by_law = any(_LAWS.get(law) is None or _LAWS[law].name in what.laws for law in laws)
        own = {mutant for mutant in mutants if MUTANTS[mutant].operation == operation}
        if own or gone or by_law or what.vectors:
            operations_asked[operation] = None if what.vectors or by_law or not cases else own
    killed_by = dict(
        zip(
            operations_asked,
            pool.map(
                choose,
                operations_asked,
                [known[operation] for operation in operations_asked],
                operations_asked.values(),
            ),
            strict=True,
        )
    )
    others = [operation for operation in operations_asked if what.vectors or killed_by[operation] != known[operation]]
    if killed_by:
        CHOSEN.write_text(written(list(chain.from_iterable((known | killed_by).values()))), "utf-8")
    for places in pool.map(_written, others):
        print("Written:", *(place.relative_to(ROOT) for place in places))
    print(
        f"Vectors: {counted(len(operations_asked), 'operation')} checked, {counted(len(others), 'operation')} changed."
    )
    yield from (f"No vector shows {mutant}." for mutant in survivors(chosen()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes what the change touches. Returns 1 if a known bug, a law or a vector has a problem."""
    parser = argparse.ArgumentParser(prog="python -m research.regenerate", description=__doc__)
    parser.add_argument(
        "--since",
        default="",
        metavar="REVISION",
        help="compare with this revision (HEAD, or its parent if nothing has changed)",
    )
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    began, since = time.monotonic(), base(options.since)
    what = touched(changed_lines(since))
    touches = ", ".join(
        [
            counted(len(what.bugs), "bug"),
            counted(len(what.laws), "law"),
            counted(len(what.operations), "whole operation"),
        ]
    )
    print(f"The change since {since} touches {touches}.")
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        wrong = [*_laws_made(pool, what), *_vectors_made(pool, what)]
    _OPERATIONS_PAGE.write_text(markdown(), "utf-8")
    print(
        *wrong,
        f"{time.monotonic() - began:.0f} s. `make release-pages` writes the other pages.",
        sep="\n",
    )
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
