"""Which bugs a checker is asked about: those that some call shows that it could make, by the
operations and arguments that it has.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from oracles import Conventions, Enclosure, preset
from properties.bugs.bug import Bug
from properties.bugs.mutants import Mutant
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.strategies.cases import UnsupportedError
from properties.strategies.domains import DOMAINS
from research.checkers.checker import Checker
from research.checkers.trial import grouped
from research.vectors.choice import Choice
from research.vectors.choosing import chosen
from research.vectors.kills import MARGIN, beyond_vectors

__all__ = ["REASONS", "concerned", "unasked"]

REASONS = {
    "operation": "it calls no operation that has the bug",
    "arguments": "no call shows the bug with the arguments and the results that it has",
    "promise": "code with the bug promises another reading or arithmetic, or to refuse",
    "one call": "no single call on plain arrays shows the bug",
}
"""Why a checker is not asked about a bug."""

_DRAWS = 4  # of each domain, beside the cases of the vectors, which show every bug that one call can


def concerned(checker: Checker, bug: Bug) -> list[Mutant]:
    """The mutants of a bug in operations that a checker calls."""
    return [Mutant(bug, operation) for operation in bug.mutants if operation in checker.asks]


def unasked(checker: Checker, bug: Bug) -> str:
    """Why a checker is not asked about a bug: a key of `REASONS`; "" where it is."""
    mutants = concerned(checker, bug)
    if not mutants:
        return "operation"
    if bug.promises:
        return "promise"
    by_conduct = any(
        beyond_vectors(m) for m in mutants
    )  # several calls, views, sizes of 0, what a call does besides: all have these
    return (
        "" if by_conduct or any(_shown(m, checker.asks[m.operation], checker.results) for m in mutants) else "arguments"
    )


def _shown(mutant: Mutant, given: frozenset[str], results: frozenset[str]) -> bool:
    """Whether some call with these arguments alone returns something wrong among these results."""
    i = mutant.implementation()
    return any(
        _wrong(i, mutant.operation, arguments, right, results) for arguments, right in _calls(mutant.operation, given)
    )


def _wrong(
    i: Implementation, operation: str, arguments: tuple[Any, ...], right: tuple[Enclosure, ...], results: frozenset[str]
) -> bool:
    o = OPERATIONS[operation]
    try:
        with np.errstate(all="ignore"):
            values, *_ = Caller(i, operation).run(o, arguments)
    except BrokenError:
        return True
    looked = zip(o.returned(arguments), values, right, strict=True)
    return any((of.excess(x) > MARGIN).any() for name, x, of in looked if name in results)


@cache
def _calls(operation: str, given: frozenset[str]) -> list[tuple[tuple[Any, ...], tuple[Enclosure, ...]]]:
    """Calls of an operation with these arguments alone, and what should come of them."""
    o, found = OPERATIONS[operation], []
    for arguments in _cases(operation):
        each = dict(zip(o.parameters, arguments, strict=True))
        if "groups" in given or not grouped({p: x for p, x in each.items() if x is not None}):
            kept = tuple(x if p in given or not (p in o.options or o.is_mask(p)) else None for p, x in each.items())
            with suppress(ValueError):  # what the oracle refuses
                found.append((kept, o.expected(kept, preset("float64"), Conventions())))
    return found


def _cases(operation: str) -> Iterator[tuple[Any, ...]]:
    plain = [one.choice for one in chosen() if one.choice.operation == operation and not one.choice.conventions]
    drawn = [
        Choice(operation, domain, seed)
        for domain in DOMAINS[operation]
        for seed in range(_DRAWS)
        if domain != "131072 keys"
    ]
    for choice in (*plain, *drawn):
        with suppress(UnsupportedError):
            yield choice.arguments("float64")
