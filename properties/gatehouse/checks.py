"""The gate's own checks, besides the laws: that a candidate is right after all other calls, in
another process, and from two threads.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.gatehouse.candidate import Candidate
from properties.laws.call_contract import another
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS
from properties.verifier.report import Outcome, Violation, broken

__all__ = ["AFTERWARDS", "STATEMENTS", "checked", "finished"]

AFTERWARDS = "what it has done is done when it returns"

STATEMENTS = {
    "it is right after all other calls": "Further cases, put to it after those of the laws, some of them longer or wider than any before, "
    "are within their budgets.",
    "another process gives the same": "A fresh process, asked for the same cases in the reverse order, returns the same, to the last bit.",
    "two threads give the same": "While another call is made in another thread, it returns the same, to the last bit.",
    AFTERWARDS: "Results that were kept are at the end what they were, and no fork of the process comes back.",
}
"""The checks by their names. Where a candidate does not promise to be deterministic, "the same" is
within the budget.
"""

_CALLING = tuple(name for name in STATEMENTS if name != AFTERWARDS)
_SEEDS = 2**24
_LARGE = {
    "n_q": (512, 1100),
    "n_k": (512, 1100),
    "seq_len": (512, 1100),
    "head_dim": (257, 1024),
    "value_dim": (257, 1024),
}
"""Between which sizes an axis is large."""


@dataclass(frozen=True)
class _Made:
    """One case, what came of it, and why it is wrong, or ""."""

    case: tuple[Any, ...]
    outputs: tuple[Array, ...]
    wrong: str

    def differs(self, other: "_Made") -> str:
        """How its results differ from another's, in a sentence, or ""."""
        same = len(self.outputs) == len(other.outputs) and all(
            np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
            for x, y in zip(self.outputs, other.outputs, strict=True)
        )
        return "" if same else "The same case gave something else before."


def checked(
    implementation: Implementation, first: Candidate, second: Candidate, number: int, seed: int
) -> Iterator[Outcome]:
    """The outcomes of the checks that call it, on so many further cases of each operation, and at
    large sizes. Both processes have the same functions."""
    random = Random(f"{seed} afterwards")
    for operation in implementation.operations:
        outcome = partial(_outcome, implementation.name, operation)
        unasked = partial(Outcome, operation=operation, implementation=implementation.name)
        if ended := first.process.ended or second.process.ended:
            yield from (unasked(name, status="not run", reason=f"It {ended}.") for name in _CALLING)
            continue
        try:
            cases = [
                *_in_threes(OPERATIONS[operation], implementation, number // 3, random),
                *_large(OPERATIONS[operation], implementation, random),
            ]
        except UnsupportedError as unsupported:
            yield from (unasked(name, status="not applicable", reason=str(unsupported)) for name in _CALLING)
            continue
        again = _made(implementation, second, operation, cases[::-1])[::-1]
        alone = _made(implementation, first, operation, cases)
        first.in_two_threads = True
        beside = _made(implementation, first, operation, cases)
        first.in_two_threads = False
        for name, found in zip(_CALLING, (alone, again, beside), strict=True):
            exactly = found is not alone and implementation.deterministic
            yield outcome(
                name, [(x.case, x.differs(y) if exactly else x.wrong) for x, y in zip(found, alone, strict=True)]
            )


def _in_threes(o: Operation, i: Implementation, number: int, random: Random) -> Iterator[tuple[Any, ...]]:
    """Cases, each followed by two of the same shapes: of other numbers throughout, and of others in
    half of a single array, by turns. What was kept of a call, by shapes or by some of the numbers,
    is wrong for the next ones."""
    drawn, turn = Cases(o, DOMAINS[o.name]["everyday"], i), random.randrange(_SEEDS)
    for place in range(number):
        case = drawn.draw(random.randint(1, _SEEDS))
        yield case
        yield another(o, i, case)
        arrays = [j for j, x in enumerate(case) if isinstance(x, np.ndarray) and x.size > 1]
        within = [*case]
        if arrays:
            x = case[j := arrays[(turn + place) % len(arrays)]].copy()
            flat, quarter = x.reshape(-1), x.size // 4
            flat[quarter : x.size - quarter] = flat[quarter : x.size - quarter][::-1].copy()
            within[j] = x
        yield tuple(within) if i.takes(o, tuple(within)) else case


def _large(o: Operation, i: Implementation, random: Random) -> Iterator[tuple[Any, ...]]:
    """A case for each axis that may be longer than in any law's domain, along which it is; none
    where that is not supported.
    """
    everyday = DOMAINS[o.name]["everyday"]
    for axis in sorted(_LARGE.keys() & {axis for axes in o.axes.values() for axis in axes}):
        far = replace(everyday, sizes={**everyday.sizes, axis: (random.randint(*_LARGE[axis]),)})
        with suppress(UnsupportedError):
            yield Cases(o, far, i).draw(random.randint(1, _SEEDS))


def finished(implementation: Implementation, candidates: Sequence[Candidate]) -> Outcome:
    """The outcome of the check at the end. It is as good as the candidate's process is honest,
    which could say that all is well.
    """
    wrong = [((), sentence) for candidate in candidates for sentence in candidate.finish()]
    return _outcome(implementation.name, next(iter(implementation.operations)), AFTERWARDS, wrong or [((), "")])


def _made(
    implementation: Implementation, candidate: Candidate, operation: str, cases: Sequence[tuple[Any, ...]]
) -> list[_Made]:
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
    return broken(violation, examples=len(found))
