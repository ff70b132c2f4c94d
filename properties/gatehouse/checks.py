"""The gate's own checks, besides the laws: that a candidate is right after all other calls, in another process, and from two threads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.gatehouse.candidate import Candidate
from properties.laws.conduct import another
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS
from properties.verifier.report import Outcome, Violation

__all__ = ["AFTERWARDS", "STATEMENTS", "checked", "finished"]

AFTERWARDS = "what it has done is done when it returns"

STATEMENTS = {
    "it is right after all other calls": "Further cases, put to it after those of the laws, are within their budgets.",
    "another process gives the same": "A fresh process, asked for the same cases in the reverse order, returns the same, to the last bit.",
    "two threads give the same": "While another call is made in another thread, it returns the same, to the last bit.",
    AFTERWARDS: "Results that were kept are at the end what they were, and no fork of the process comes back.",
}
"""The checks by their names. Where a candidate does not promise to be deterministic, "the same" is within the budget."""

_CALLING = tuple(name for name in STATEMENTS if name != AFTERWARDS)
_SEEDS = 2**24


@dataclass(frozen=True)
class _Made:
    """One case, what came of it, and why it is wrong, or ""."""

    case: tuple[Any, ...]
    outputs: tuple[Array, ...]
    wrong: str

    def differs(self, other: "_Made") -> str:
        """How its results differ from another's, in a sentence, or ""."""
        same = len(self.outputs) == len(other.outputs) and all(
            np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(self.outputs, other.outputs, strict=True)
        )
        return "" if same else "The same case gave something else before."


def checked(implementation: Implementation, first: Candidate, second: Candidate, number: int, seed: int) -> Iterator[Outcome]:
    """The outcomes of the checks that call it, on so many further cases of each operation, each other one of the shapes of the one before:
    a candidate that keeps results by their shapes is wrong on it. Both processes have the same functions."""
    random = Random(f"{seed} afterwards")
    for operation in implementation.operations:
        outcome = partial(_outcome, implementation.name, operation)
        unasked = partial(Outcome, operation=operation, implementation=implementation.name)
        if ended := first.process.ended or second.process.ended:
            yield from (unasked(name, status="not run", reason=f"It {ended}.") for name in _CALLING)
            continue
        try:
            drawn = Cases(OPERATIONS[operation], DOMAINS[operation]["everyday"], implementation)
        except UnsupportedError as unsupported:
            yield from (unasked(name, status="not applicable", reason=str(unsupported)) for name in _CALLING)
            continue
        pairs = [drawn.draw(random.randint(1, _SEEDS)) for _ in range(number // 2)]
        cases = [each for case in pairs for each in (case, another(OPERATIONS[operation], implementation, case))]
        again = _made(implementation, second, operation, cases[::-1])[::-1]
        alone = _made(implementation, first, operation, cases)
        first.in_two_threads = True
        beside = _made(implementation, first, operation, cases)
        first.in_two_threads = False
        for name, found in zip(_CALLING, (alone, again, beside), strict=True):
            exactly = found is not alone and implementation.deterministic
            yield outcome(name, [(x.case, x.differs(y) if exactly else x.wrong) for x, y in zip(found, alone, strict=True)])


def finished(implementation: Implementation, candidates: Sequence[Candidate]) -> Outcome:
    """The outcome of the check at the end. It is as good as the candidate's process is honest, which could say that all is well."""
    wrong = [((), sentence) for candidate in candidates for sentence in candidate.finish()]
    return _outcome(implementation.name, next(iter(implementation.operations)), AFTERWARDS, wrong or [((), "")])


def _made(implementation: Implementation, candidate: Candidate, operation: str, cases: Sequence[tuple[Any, ...]]) -> list[_Made]:
    """What comes of some cases in a candidate's process, each judged by the oracle."""
    subject = Subject(replace(implementation, operations=candidate.functions), operation)
    found = []
    for case in cases:
        subject.begin()
        wrong = ""
        try:
            subject.watch(operation, case)
            subject.judge(0)
        except BrokenError as broken:
            wrong = str(broken)
        found.append(_Made(case, subject.calls[-1].outputs, wrong))
    return found


def _outcome(implementation: str, operation: str, name: str, found: Sequence[tuple[tuple[Any, ...], str]]) -> Outcome:
    """What became of a check, by what was wrong with each case, or ""."""
    wrong = next(((case, sentence) for case, sentence in found if sentence), None)
    if wrong is None:
        return Outcome(name, operation, implementation, "held", len(found), len(found))
    case = dict(zip(OPERATIONS[operation].parameters, wrong[0], strict=False))
    violation = Violation(name, operation, implementation, wrong[1], case, inf, shrunk=False)
    return Outcome(name, operation, implementation, "violated", len(found), len(found), worst_excess=inf, violation=violation)
