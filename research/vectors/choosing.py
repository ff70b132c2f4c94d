"""Chooses the cases that become vectors: a greedy cover of the known bugs by small cases, kept in
chosen.json.

Candidates are the cases of each operation's domains, from the seeds of the kill matrix. In float64
the next case is the one that kills most of the remaining mutants for its size, until no candidate
kills another one. Then each other format adds the cases that it needs. For a mutant that no case of
a domain kills, the candidates are the calls of the laws that kill it in the published matrix. Each
format has all the cases for which its budget decides something.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from zlib import crc32

from oracles import Conventions
from properties.bugs.mutants import MUTANTS, Mutant
from properties.contract.operations import OPERATIONS
from properties.laws import find
from properties.strategies.cases import UnsupportedError
from properties.strategies.domains import DOMAINS
from properties.vectors.expectation import expected, judges
from research.vectors.choice import FORMATS, Choice, size
from research.vectors.kills import beyond_vectors, killed, mutants_of
from research.vectors.readings import alternatives, changed

__all__ = ["CHOSEN", "SHOWN", "Chosen", "choose", "chosen", "pruned", "survivors", "told_once", "written"]

CHOSEN = Path(__file__).parent / "chosen.json"
SHOWN = tuple(name for name, o in OPERATIONS.items() if not o.is_played)
"""The operations that have vectors: a program of calls is no vector."""
_SEEDS, _MORE, _CALLS = 14, 60, 8
_SMALL, _LARGE = (
    2500,
    20000,
)  # numbers of a case: candidates are small, and only what these do not kill is put to larger ones
_OVERHEAD = 150  # numbers that the text about a test is worth
_SHOWN = 2  # formats in which readings are shown, and large cases are tests: the widest
_LEFT_OUT = ("131072 keys", "dominating keys")  # the file of long cases has them


@dataclass(frozen=True)
class Chosen:
    """A case, the mutants that it is the first to kill in each format in which it is a test, and
    the readings that it is there to show.
    """

    choice: Choice
    kills: dict[str, list[str]]
    shows: list[str] = field(default_factory=list)


def chosen() -> list[Chosen]:
    """What was chosen, in the order of the operations."""
    return [
        Chosen(Choice(**row["choice"]), row["kills"], row.get("shows", []))
        for row in json.loads(CHOSEN.read_text("utf-8"))
    ]


def written(found: Sequence[Chosen]) -> str:
    """The text of chosen.json: a row a line."""

    def row(one: Chosen) -> str:
        told = {
            name: value
            for name, value in asdict(one.choice).items()
            if value or name in ("operation", "domain", "seed")
        }
        shows = {"shows": one.shows} if one.shows else {}
        return json.dumps({"choice": told, "kills": one.kills, **shows}, separators=(",", ":"))

    return "[\n" + ",\n".join(map(row, found)) + "\n]\n"


def choose(operation: str, known: Sequence[Chosen] = (), touched: Collection[str] | None = None) -> list[Chosen]:
    """The cases of an operation: the known cases that still kill a mutant, and further cases for
    the remaining mutants.

    With `touched`, a set of mutants by name, only these are run. The known results of all other
    mutants and of conventions stay.
    """
    pool = _Pool(operation, touched)
    for one in known:
        kills = pool.kills_again(one) if one.choice.exists else {}
        if kills:
            pool.kept[one.choice] = kills
            pool.shows |= {one.choice: one.shows} if one.shows and touched is not None else {}
    for arithmetic in pool.formats:
        pool.cover(arithmetic, pool.drawn(range(_SEEDS), _SMALL))
        pool.cover(arithmetic, pool.called(arithmetic))
        if arithmetic == FORMATS[0]:
            pool.cover(arithmetic, pool.drawn(range(_SEEDS, _MORE), _LARGE))
    if touched is None:
        pool.show()
    found = [Chosen(choice, kills, pool.shows.get(choice, [])) for choice, kills in pool.kept.items()]
    return told_once(pruned(found if touched is None else told_once(found)))


class _Pool:
    """The cases of an operation that were chosen so far."""

    def __init__(self, operation: str, touched: Collection[str] | None) -> None:
        self.operation, self.kept = operation, dict[Choice, dict[str, list[str]]]()
        self.shows = dict[Choice, list[str]]()
        self.formats = FORMATS[:1] if OPERATIONS[operation].returns_booleans else FORMATS  # masks are the same in all
        self.mutants = [m for m in MUTANTS.values() if m.operation == operation and not beyond_vectors(m)]
        self.touched = [m for m in self.mutants if touched is None or m.id in touched]

    def kills_again(self, one: Chosen) -> dict[str, list[str]]:
        """What a known case kills, in the formats in which it still says something."""
        found: dict[str, list[str]] = {}
        for arithmetic, before in one.kills.items():
            again = _kills(one.choice, arithmetic, self.touched) if self.touched else []
            if again is not None:
                kept = {*before}.difference(m.id for m in self.touched).union(again)
                found[arithmetic] = [m.id for m in self.mutants if m.id in kept]
        return found

    def left(self, arithmetic: str) -> list[Mutant]:
        """The mutants that no chosen case kills in a format."""
        done = {name for kills in self.kept.values() for name in kills.get(arithmetic, ())}
        return [
            m for m in self.touched if m.id not in done and m.bug.promises.get("arithmetic", arithmetic) == arithmetic
        ]

    def cover(self, arithmetic: str, candidates: Iterator[Choice]) -> None:
        """Choose candidates until nothing more is killed in a format."""
        left = self.left(arithmetic)
        found = {
            choice: kills for choice in (candidates if left else ()) if (kills := _kills(choice, arithmetic, left))
        }
        alive = {m.id for m in left}

        def worth(choice: Choice) -> float:
            return len(alive.intersection(found[choice])) / (_OVERHEAD + size(choice.of, choice.arguments(arithmetic)))

        while found and alive.intersection(found[best := max(found, key=worth)]):
            self.kept[best] = {name: kills for name in self.formats if (kills := _kills(best, name, self.mutants))}
            alive -= set(found.pop(best))

    def show(self) -> None:
        """Assigns to each other value of a convention the smallest chosen case whose results it
        changes, or chooses a case.
        """
        left = {f"{name}={value}" for name, value, _ in alternatives(OPERATIONS[self.operation], Conventions())}

        def small(choices: Iterable[Choice]) -> list[Choice]:
            return sorted(choices, key=lambda choice: size(choice.of, choice.arguments(FORMATS[0])))

        plain = (choice for choice, kills in self.kept.items() if FORMATS[0] in kills and not choice.conventions)
        for choice in chain(small(plain), small(self.drawn(range(_SEEDS), _SMALL))):
            found = left and left.intersection(
                f"{n}={x}" for n, x, _ in changed(choice.of, choice.arguments(FORMATS[0]), choice.reading)
            )
            if found and choice not in self.kept:
                kills = {
                    name: kills
                    for name in self.formats[:_SHOWN]
                    if (kills := _kills(choice, name, self.mutants)) is not None
                }
                found = found if FORMATS[0] in kills else set()
                self.kept |= {choice: kills} if found else {}
            if found:
                self.shows[choice] = sorted(found)
                left -= found

    def drawn(self, seeds: Sequence[int], most: int) -> Iterator[Choice]:
        """The cases of the domains, up to a size."""
        for domain in DOMAINS[self.operation].values():
            for n in seeds if domain.name not in _LEFT_OUT else ():
                yield from self._small(Choice(self.operation, domain.name, _seed(self.operation, domain.name, n)), most)

    def called(self, arithmetic: str) -> Iterator[Choice]:
        """The calls that the laws make which the mutants name that are left."""
        for m in self.left(arithmetic):
            changed = m.bug.promises.get("conventions")
            reading = (
                {}
                if changed is None
                else {name: x for name, x in asdict(changed).items() if x != getattr(Conventions(), name)}
            )
            for law in find(m.bug.law) if arithmetic == FORMATS[0] or m.bug.promises else ():
                for domain in law.domains if m.operation in law.operations else ():
                    for n in range(_CALLS):
                        yield from self._calls(
                            Choice(m.operation, domain, _seed(law.operation, domain, n), law.id, 0, reading), arithmetic
                        )

    def _calls(self, first: Choice, arithmetic: str) -> Iterator[Choice]:
        """The calls of a law, from the first."""
        with suppress(UnsupportedError):
            for call in range(len(first.calls(arithmetic))):
                yield from self._small(replace(first, call=call), _LARGE, arithmetic)

    def _small(self, choice: Choice, most: int, arithmetic: str = FORMATS[0]) -> Iterator[Choice]:
        with suppress(UnsupportedError):
            if size(choice.of, choice.arguments(arithmetic)) <= most:
                yield choice


def pruned(found: Sequence[Chosen]) -> list[Chosen]:
    """The cases, each in the formats in which it kills what no other does, or shows a reading; the
    largest are left out first.

    Large ones are tests in the two widest formats alone: so the files stay small.
    """
    kept = [Chosen(one.choice, dict(one.kills), one.shows) for one in found]
    for one in kept:
        if size(one.choice.of, one.choice.arguments(next(iter(one.kills)))) > _SMALL and one.kills.keys() & set(
            FORMATS[:_SHOWN]
        ):
            for arithmetic in FORMATS[_SHOWN:]:
                one.kills.pop(arithmetic, None)
    for one in sorted(kept, key=lambda one: -size(one.choice.of, one.choice.arguments(next(iter(one.kills))))):
        for arithmetic, kills in list(one.kills.items()):
            others = {name for other in kept if other is not one for name in other.kills.get(arithmetic, ())}
            if others.issuperset(kills) and not (one.shows and arithmetic in FORMATS[:_SHOWN]):
                del one.kills[arithmetic]
    return [one for one in kept if one.kills]


def told_once(found: Sequence[Chosen]) -> list[Chosen]:
    """The cases, each mutant told in each format by the first that kills it: so a new bug changes
    one line for each of its operations.
    """
    told: set[tuple[str, str]] = set()
    kept: list[Chosen] = []
    for one in found:
        first = {name: [kill for kill in kills if (name, kill) not in told] for name, kills in one.kills.items()}
        told |= {(name, kill) for name, kills in first.items() for kill in kills}
        kept.append(Chosen(one.choice, first, one.shows))
    return kept


def _seed(operation: str, domain: str, n: int) -> int:
    """The seeds of the kill matrix; the simplest case first."""
    return crc32(f"0 {operation} {domain} {n - 1}".encode()) % 2**24 if n else 0


def _kills(choice: Choice, arithmetic: str, mutants: Sequence[Mutant]) -> list[str] | None:
    """The mutants among these that a case kills; None if its budget decides nothing in the format."""
    try:
        arguments = choice.arguments(arithmetic)
    except (UnsupportedError, IndexError):  # in this format its domain has no case, or its law makes fewer calls
        return None
    try:
        wanted = expected(choice.of, arguments, arithmetic, choice.reading)
    except ValueError:  # a law is put to what the oracle refuses, as to no queries
        return None
    if not judges(wanted):
        return None
    about = {m.id for m in mutants_of(choice)}
    return killed(choice, arithmetic, arguments, wanted, [m for m in mutants if m.id in about])


def survivors(found: Sequence[Chosen]) -> list[str]:
    """The mutants that vectors can show and that no chosen case kills, in float64 or in the format that they have."""
    dead = {(name, arithmetic) for one in found for arithmetic, kills in one.kills.items() for name in kills}
    shown = [m for m in MUTANTS.values() if not beyond_vectors(m)]
    return [m.id for m in shown if (m.id, m.bug.promises.get("arithmetic", FORMATS[0])) not in dead]
