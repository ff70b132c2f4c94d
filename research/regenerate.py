"""Make again what the product reads and a change touches: the laws of the quick plan, the vectors,
and the guide's page of operations. `make regenerate` runs it.

git says which lines have changed since HEAD, or since its parent where nothing has, or since the
revision that SINCE names. A known bug is touched where its function or its row of a table has
changed, or something that these use. Each of its mutants is put to the laws until one kills it, and
to the vectors of its operation. A change of what all laws and bugs rest on touches all of them.
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

_RESTS_ON = ("oracles/", "properties/contract/", "properties/strategies/", "properties/vectors/", "research/vectors/")
"""Folders whose code all vectors rest on: bugs and laws too, but for the last two."""
_LAWS = {law.id: law for law in LAWS}
_OPERATIONS_PAGE = ROOT / "docs/guide/operations.md"


@dataclass(frozen=True)
class Touched:
    """What a change touches: known bugs and laws, by name, operations all of whose mutants are, and
    whether all vectors are.
    """

    bugs: frozenset[str]
    laws: frozenset[str]
    operations: frozenset[str]
    vectors: bool

    @property
    def mutants(self) -> list[str]:
        """The mutants that are to be put to the laws: of touched bugs and operations, and those
        that a touched law of the quick plan may have killed, or one that the bug names."""
        relied = {o for law in LAWS if law.name in self.laws and is_quick(law) for o in law.operations}
        return [
            m.id
            for m in MUTANTS.values()
            if m.bug.id in self.bugs or m.operation in self.operations | relied or m.bug.law in self.laws
        ]  # fmt: skip


def touched(lines: dict[str, Spans]) -> Touched:
    """What changed lines of files, by their paths, touch."""
    code = {path: spans for path, spans in lines.items() if path.endswith(".py") and "/tests/" not in path}
    all_of_them = any(path.startswith(_RESTS_ON[:3]) for path in code)
    bugs, operations = _bugs(code)
    every = frozenset(REFERENCE) if all_of_them else operations
    return Touched(bugs, _laws(code), every, any(path.startswith(_RESTS_ON) for path in code))


def _parts_of(folder: str, lines: dict[str, Spans], ends: Collection[str] = ()) -> dict[str, list[Part]]:
    """The touched parts of the modules of a folder."""
    files = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in sorted((ROOT / folder).glob("*.py"))}
    names = {path: path.removesuffix(".py").replace("/", ".") for path in files}
    modules = {names[path]: parts(names[path], source) for path, source in files.items()}
    return touched_parts(modules, {names[path]: spans for path, spans in lines.items() if path in names}, ends)


def _bugs(lines: dict[str, Spans]) -> tuple[frozenset[str], frozenset[str]]:
    """The touched bugs, and the operations that take a touched step of the reference."""
    reference = "properties.bugs.reference"
    tables = [
        f"{reference}:{name}" for name in ("REFERENCE", "_SCOPE", "_FUNCTIONS", "_NAMES")
    ]  # all steps stand in them
    bugs, steps = set[str](), set[str]()
    for module, its in _parts_of("properties/bugs", lines, tables).items():
        group = {bug.id for bug in GROUPS.get(module.rpartition(".")[2], ())}
        for part in its:
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
    """The touched laws, by name."""
    families = {name.replace(" ", "_"): laws for name, laws in FAMILIES.items()}
    found = set[str]()
    for module, its in _parts_of("properties/laws", lines).items():
        family = families.get(module.rpartition(".")[2], ())
        for part in its:
            named = {law.name for law in family if law.body.__name__ in part.labels}
            found |= named if named or part.defines else {law.name for law in family}
    return frozenset(found)


def _killed(mutants: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The law that kills each mutant, the one that its bug names if that does; and one of the quick plan's."""
    found = killers(mutants)
    by_quick = {mutant: law for mutant, law in found.items() if is_quick(_LAWS[law])}
    others = [mutant for mutant in found if mutant not in by_quick]
    return found, by_quick | killers(others, [law for law in LAWS if is_quick(law)])


def _victim(laws: Sequence[str]) -> str:
    """A mutant that one of some laws of one name kills; "" where all live."""
    for law in laws:
        about = [m for m in MUTANTS.values() if m.operation in _LAWS[law].operations]
        for some in ([m.id for m in about if m.bug.law == _LAWS[law].name], [m.id for m in about]):
            if kills := kills_of(law, some) if some else {}:
                return next(iter(kills))
    return ""


def _by_operation(mutants: Sequence[str]) -> list[list[str]]:
    grouped: dict[str, list[str]] = {}
    for mutant in mutants:
        grouped.setdefault(MUTANTS[mutant].operation, []).append(mutant)
    return sorted(grouped.values(), key=len, reverse=True)


def _laws_made(pool: ProcessPoolExecutor, what: Touched) -> Iterator[str]:
    """Put touched mutants to the laws, and touched laws to mutants; mend the quick plan's file.
    Sentences about what is wrong.
    """
    found: dict[str, str] = {}
    quickly: dict[str, str] = {}
    names = sorted(what.laws)
    victims = pool.map(_victim, [[law.id for law in LAWS if law.name == name] for name in names])
    for some, by_quick in pool.map(_killed, _by_operation(what.mutants)):
        found, quickly = found | some, quickly | by_quick
    before = json.loads(QUICK.read_text("utf-8"))
    added = {law for mutant, law in found.items() if mutant not in quickly}
    gone = [law for law in before if law not in _LAWS]
    if added or gone:
        write_quick({*before, *added})
    print(f"Killed by a law: {counted(len(found), 'mutant')}.")
    print(f"Quick plan: {counted(len(added), 'law')} added, {counted(len(gone), 'law')} removed.")
    for mutant in what.mutants:
        bug = MUTANTS[mutant].bug
        if mutant not in found:
            yield f"{mutant} is killed by no law about {MUTANTS[mutant].operation}."
        elif mutant == bug.id and _LAWS[found[mutant]].name != bug.law:
            yield f"{bug.id} names the law {bug.law!r}, which does not kill it; {_LAWS[found[mutant]].name!r} does."
    yield from (f"{name!r} kills no known bug." for name, victim in zip(names, victims, strict=True) if not victim)


def _written(operation: str) -> list[Path]:
    return list(write(VECTORS / "data", [operation]))


def _vectors_made(pool: ProcessPoolExecutor, what: Touched) -> Iterator[str]:
    """Choose cases again for touched operations, and write the vectors whose cases are others.
    Sentences about what is wrong.
    """
    known = {operation: [one for one in chosen() if one.choice.operation == operation] for operation in SHOWN}
    mutants = {m.id for m in MUTANTS.values() if m.bug.id in what.bugs or m.operation in what.operations}
    asked: dict[str, set[str] | None] = {}
    for operation, its in known.items():
        gone = any(kill not in MUTANTS for one in its for kills in one.kills.values() for kill in kills)
        by_law = any(
            one.choice.law and (_LAWS.get(one.choice.law) is None or _LAWS[one.choice.law].name in what.laws)
            for one in its
        )
        own = {mutant for mutant in mutants if MUTANTS[mutant].operation == operation}
        if own or gone or by_law or what.vectors:
            asked[operation] = None if what.vectors or by_law or not its else own
    found = dict(
        zip(asked, pool.map(choose, asked, [known[operation] for operation in asked], asked.values()), strict=True)
    )
    others = [operation for operation in asked if what.vectors or found[operation] != known[operation]]
    if found:
        CHOSEN.write_text(written(list(chain.from_iterable((known | found).values()))), "utf-8")
    for places in pool.map(_written, others):
        print("Written:", *(place.relative_to(ROOT) for place in places))
    print(
        f"Vectors: {counted(len(asked), 'operation')} checked, {counted(len(others), 'operation')} with other vectors than before."
    )
    yield from (f"{mutant} is shown by no vector." for mutant in survivors(chosen()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is touched; returns 1 where a known bug, a law or a vector is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m research.regenerate", description=__doc__)
    parser.add_argument(
        "--since",
        default="",
        metavar="REVISION",
        help="compare with it (HEAD, or its parent where nothing has changed)",
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
        f"{time.monotonic() - began:.0f} s. Pages are left as they are: `make release-pages` makes them.",
        sep="\n",
    )
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
