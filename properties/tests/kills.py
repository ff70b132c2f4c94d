"""Which known bugs a law kills: it is put to a mutant on seeded cases of its domains, and kills the
mutant where it is violated.

The other operations that a law needs are the reference's. Mutants that promise what the reference
promises share the cases of a law and the oracle's answers to them.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import tee, zip_longest
from math import ceil
from typing import Any
from zlib import crc32

import numpy as np

from properties.bugs.mutants import EQUIVALENT_MUTANTS, MUTANTS, Mutant
from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import FEATURES, OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws import LAWS, find
from properties.laws.law import Law
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS
from properties.verifier.plan import is_quick

__all__ = ["EXAMPLES", "SEED", "killers", "kills_of"]

EXAMPLES, SEED = 24, 0
"""Cases that are drawn from each domain of a law, at most, and their seed. All fixed cases follow."""
_LEAST = 16  # cases of a domain with a small share

Answers = dict[Any, tuple[Any, ...]]
Draws = Iterator[tuple[tuple[Any, ...], int]]
"""Cases, each with the seed of what a law chooses."""


class _Remembering(Subject):
    """A subject that asks the oracle once for each call: mutants of one operation are mostly called alike."""

    def __init__(self, mutant: Implementation, operation: str, answers: Answers) -> None:
        super().__init__(mutant, operation)
        self.known = answers

    def expected(self, o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The oracle's enclosures."""
        key = o.name, *((x.shape, x.tobytes()) if isinstance(x, np.ndarray) else x for x in arguments)
        if key not in self.known:
            self.known[key] = super().expected(o, arguments)
        return self.known[key]


def _draws(law: Law, implementation: Implementation, seed: int) -> Draws:
    """The cases that a law is put to: one of each of its domains, then the next of each."""

    def of(name: str) -> Draws:
        with suppress(UnsupportedError):
            cases = Cases(OPERATIONS[law.operation], DOMAINS[law.operation][name], implementation)
            yield cases.draw(0), 0
            for n in range(max(_LEAST, ceil(EXAMPLES * cases.domain.share))):
                drawn = crc32(f"{seed} {law.operation} {name} {n}".encode()) % 2**24
                yield cases.draw(drawn), drawn
            for place in range(1, len(cases.fixed)):  # as in every run
                yield cases.draw(place), place

    domains = () if law.not_applicable(implementation) else law.domains
    return (case for turn in zip_longest(*map(of, domains)) for case in turn if case is not None)


def _examples_to_kill(mutant: Mutant, law: Law, draws: Draws, answers: Answers) -> int:
    """After how many cases the law is violated; 0 if it is on none. `answers` remembers the oracle's."""
    subject, number = _Remembering(mutant.implementation(), law.operation, answers), 0
    for arguments, seed in draws:
        subject.begin()
        try:
            number += law.hold(subject, law.case(arguments, seed))
        except BrokenError:
            return number + 1
        except Exception:  # a law may stumble over what no implementation should return
            return 0
    return 0


def kills_of(law_id: str, mutants: Sequence[str] | None = None, seed: int = SEED) -> dict[str, int]:
    """The mutants, among some or all, that a law kills, and after how many examples. Raises
    ValueError for a mutant that does not exist.
    """
    if unknown := {*(mutants or ())} - {*MUTANTS, *EQUIVALENT_MUTANTS}:
        raise ValueError(f"There are no mutants {', '.join(sorted(unknown))}.")
    (law,) = find(law_id)
    usual, answers, found = (
        _draws(law, Implementation("NumPy", REFERENCE, features=FEATURES), seed),
        Answers(),
        dict[str, int](),
    )
    for mutant in (MUTANTS | EQUIVALENT_MUTANTS).values():
        if mutant.operation in law.operations and (mutants is None or mutant.id in mutants):
            usual, same = tee(usual)  # cases are drawn when a mutant first needs them
            own = (_draws(law, mutant.implementation(), seed), Answers()) if mutant.bug.promises else (same, answers)
            if examples := _examples_to_kill(mutant, law, *own):
                found[mutant.id] = examples
    return found


def killers(mutants: Sequence[str], laws: Sequence[Law] = LAWS) -> dict[str, str]:
    """For each mutant a law that kills it, if any of some laws does: the law that its bug names,
    else agreement, else the quick plan's.
    """
    found: dict[str, str] = {}

    def put(law: Law, among: Sequence[Mutant]) -> None:
        if left := [mutant.id for mutant in among if mutant.id not in found and mutant.operation in law.operations]:
            found.update(dict.fromkeys(kills_of(law.id, left), law.id))

    those = [(MUTANTS | EQUIVALENT_MUTANTS)[mutant] for mutant in mutants]
    for law in laws:
        put(law, [mutant for mutant in those if mutant.bug.law == law.name])
    for law in sorted(laws, key=lambda law: (not law.agreement, not is_quick(law))):
        put(law, those)
    return found
