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


def written(chosen_cases: Sequence[Chosen]) -> str:
    """The text of chosen.json: a row a line."""

    def row(case: Chosen) -> str:
        told_before = {
            name: value
            for name, value in asdict(case.choice).items()
            if value or name in ("operation", "domain", "seed")
        }
        shows = {"shows": case.shows} if case.shows else {}
        return json.dumps({"choice": told_before, "kills": case.kills, **shows}, separators=(",", ":"))

    return "[\n" + ",\n".join(map(row, chosen_cases)) + "\n]\n"


def choose(operation: str, known: Sequence[Chosen] = (), touched: Collection[str] | None = None) -> list[Chosen]:
    """The cases of an operation: the known cases that still kill a mutant, and further cases for
    the remaining mutants.

    With `touched`, a set of mutants by name, only these are run. The known results of all other
    mutants and of conventions stay.
    """
    pool = _Pool(operation, touched)
    for case in known:
        kills = pool.kills_again(case) if case.choice.exists else {}
        if kills:
            pool.kept[case.choice] = kills
            pool.shows |= {case.choice: case.shows} if case.shows and touched is not None else {}
    for arithmetic in pool.formats:
        pool.cover(arithmetic, pool.drawn(range(_SEEDS), _SMALL))
        pool.cover(arithmetic, pool.called(arithmetic))
        if arithmetic == FORMATS[0]:
            pool.cover(arithmetic, pool.drawn(range(_SEEDS, _MORE), _LARGE))
    if touched is None:
        pool.show()
    chosen_cases = [Chosen(choice, kills, pool.shows.get(choice, [])) for choice, kills in pool.kept.items()]
    return told_once(pruned(chosen_cases if touched is None else told_once(chosen_cases)))


class _Pool:
    """The cases of an operation that were chosen so far."""

    def __init__(self, operation: str, touched: Collection[str] | None) -> None:
        self.operation, self.kept = operation, dict[Choice, dict[str, list[str]]]()
        self.shows = dict[Choice, list[str]]()
        self.formats = FORMATS[:1] if OPERATIONS[operation].is_exact else FORMATS  # masks are the same in all
        self.mutants = [
            mutant for mutant in MUTANTS.values() if mutant.operation == operation and not beyond_vectors(mutant)
        ]
        self.touched = [mutant for mutant in self.mutants if touched is None or mutant.id in touched]

    def kills_again(self, case: Chosen) -> dict[str, list[str]]:
        """What a known case kills, in the formats in which it still says something."""
        chosen_cases: dict[str, list[str]] = {}
        for arithmetic, before in case.kills.items():
            again = _kills(case.choice, arithmetic, self.touched) if self.touched else []
            if again is not None:
                kept = {*before}.difference(mutant.id for mutant in self.touched).union(again)
                chosen_cases[arithmetic] = [mutant.id for mutant in self.mutants if mutant.id in kept]
        return chosen_cases

    def left(self, arithmetic: str) -> list[Mutant]:
        """The mutants that no chosen case kills in a format."""
        done = {name for kills in self.kept.values() for name in kills.get(arithmetic, ())}
        return [
            mutant
            for mutant in self.touched
            if mutant.id not in done and mutant.bug.promises.get("arithmetic", arithmetic) == arithmetic
        ]

    def cover(self, arithmetic: str, candidates: Iterator[Choice]) -> None:
        """Choose candidates until nothing more is killed in a format."""
        left = self.left(arithmetic)
        chosen_cases = {
            choice: kills for choice in (candidates if left else ()) if (kills := _kills(choice, arithmetic, left))
        }
        alive = {mutant.id for mutant in left}

        def worth(choice: Choice) -> float:
            return len(alive.intersection(chosen_cases[choice])) / (
                _OVERHEAD + size(choice.of, choice.arguments(arithmetic))
            )

        while chosen_cases and alive.intersection(chosen_cases[best := max(chosen_cases, key=worth)]):
            self.kept[best] = {name: kills for name in self.formats if (kills := _kills(best, name, self.mutants))}
            alive -= set(chosen_cases.pop(best))

    def show(self) -> None:
        """Assigns to each other value of a convention the smallest chosen case whose results it
        changes, or chooses a case.
        """
        left = {f"{name}={value}" for name, value, _ in alternatives(OPERATIONS[self.operation], Conventions())}

        def small(choices: Iterable[Choice]) -> list[Choice]:
            return sorted(choices, key=lambda choice: size(choice.of, choice.arguments(FORMATS[0])))

        plain = (choice for choice, kills in self.kept.items() if FORMATS[0] in kills and not choice.conventions)
        for choice in chain(small(plain), small(self.drawn(range(_SEEDS), _SMALL))):
            chosen_cases = left and left.intersection(
                f"{n}={x}" for n, x, _ in changed(choice.of, choice.arguments(FORMATS[0]), choice.reading)
            )
            if chosen_cases and choice not in self.kept:
                kills = {
                    name: kills
                    for name in self.formats[:_SHOWN]
                    if (kills := _kills(choice, name, self.mutants)) is not None
                }
                chosen_cases = chosen_cases if FORMATS[0] in kills else set()
                self.kept |= {choice: kills} if chosen_cases else {}
            if chosen_cases:
                self.shows[choice] = sorted(chosen_cases)
                left -= chosen_cases

    def drawn(self, seeds: Sequence[int], most: int) -> Iterator[Choice]:
        """The cases of the domains, up to a size."""
        for domain in DOMAINS[self.operation].values():
            for n in seeds if domain.name not in _LEFT_OUT else ():
                yield from self._small(Choice(self.operation, domain.name, _seed(self.operation, domain.name, n)), most)

    def called(self, arithmetic: str) -> Iterator[Choice]:
        """The calls that the laws make which the mutants name that are left."""
        for mutant in self.left(arithmetic):
            changed = mutant.bug.promises.get("conventions")
            reading = (
                {}
                if changed is None
                else {name: x for name, x in asdict(changed).items() if x != getattr(Conventions(), name)}
            )
            for law in find(mutant.bug.law) if arithmetic == FORMATS[0] or mutant.bug.promises else ():
                for domain in law.domains if mutant.operation in law.operations else ():
                    for n in range(_CALLS):
                        yield from self._calls(
                            Choice(mutant.operation, domain, _seed(law.operation, domain, n), law.id, 0, reading),
                            arithmetic,
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


def pruned(chosen_cases: Sequence[Chosen]) -> list[Chosen]:
    """The cases, each in the formats in which it kills what no other does, or shows a reading; the
    largest are left out first.

    Large ones are tests in the two widest formats alone: so the files stay small.
    """
    kept = [Chosen(case.choice, dict(case.kills), case.shows) for case in chosen_cases]
    for case in kept:
        if size(case.choice.of, case.choice.arguments(next(iter(case.kills)))) > _SMALL and case.kills.keys() & set(
            FORMATS[:_SHOWN]
        ):
            for arithmetic in FORMATS[_SHOWN:]:
                case.kills.pop(arithmetic, None)
    for case in sorted(kept, key=lambda case: -size(case.choice.of, case.choice.arguments(next(iter(case.kills))))):
        for arithmetic, kills in list(case.kills.items()):
            others = {name for other in kept if other is not case for name in other.kills.get(arithmetic, ())}
            if others.issuperset(kills) and not (case.shows and arithmetic in FORMATS[:_SHOWN]):
                del case.kills[arithmetic]
    return [case for case in kept if case.kills]


def told_once(chosen_cases: Sequence[Chosen]) -> list[Chosen]:
    """The cases, each mutant told in each format by the first that kills it: so a new bug changes
    one line for each of its operations.
    """
    told_before: set[tuple[str, str]] = set()
    kept: list[Chosen] = []
    for case in chosen_cases:
        first = {
            name: [kill for kill in kills if (name, kill) not in told_before] for name, kills in case.kills.items()
        }
        told_before |= {(name, kill) for name, kills in first.items() for kill in kills}
        kept.append(Chosen(case.choice, first, case.shows))
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
    about = {mutant.id for mutant in mutants_of(choice)}
    return killed(choice, arithmetic, arguments, wanted, [mutant for mutant in mutants if mutant.id in about])


def survivors(chosen_cases: Sequence[Chosen]) -> list[str]:
    """The mutants that vectors can show and that no chosen case kills, in float64 or in the format that they have."""
    dead = {(name, arithmetic) for case in chosen_cases for arithmetic, kills in case.kills.items() for name in kills}
    shown = [mutant for mutant in MUTANTS.values() if not beyond_vectors(mutant)]
    return [mutant.id for mutant in shown if (mutant.id, mutant.bug.promises.get("arithmetic", FORMATS[0])) not in dead]
