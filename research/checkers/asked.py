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
        beyond_vectors(mutant) for mutant in mutants
    )  # several calls, views, sizes of 0, what a call does besides: all have these
    return (
        ""
        if by_conduct or any(_shown(mutant, checker.asks[mutant.operation], checker.results) for mutant in mutants)
        else "arguments"
    )


def _shown(mutant: Mutant, given: frozenset[str], results: frozenset[str]) -> bool:
    """Whether some call with these arguments alone returns something wrong among these results."""
    implementation = mutant.implementation()
    return any(
        _wrong(implementation, mutant.operation, arguments, right, results)
        for arguments, right in _calls(mutant.operation, given)
    )


def _wrong(
    implementation: Implementation,
    operation: str,
    arguments: tuple[Any, ...],
    right: tuple[Enclosure, ...],
    results: frozenset[str],
) -> bool:
    definition = OPERATIONS[operation]
    try:
        with np.errstate(all="ignore"):
            values, *_ = Caller(implementation, operation).run(definition, arguments)
    except BrokenError:
        return True
    looked = zip(definition.returned(arguments), values, right, strict=True)
    return any((enclosure.excess(x) > MARGIN).any() for name, x, enclosure in looked if name in results)


@cache
def _calls(operation: str, given: frozenset[str]) -> list[tuple[tuple[Any, ...], tuple[Enclosure, ...]]]:
    """Calls of an operation with these arguments alone, and what should come of them."""
    definition, calls = OPERATIONS[operation], []
    for arguments in _cases(operation):
        given_arguments = dict(zip(definition.parameters, arguments, strict=True))
        if "groups" in given or not grouped(
            {parameter: x for parameter, x in given_arguments.items() if x is not None}
        ):
            kept = tuple(
                x
                if parameter in given or not (parameter in definition.options or definition.is_mask(parameter))
                else None
                for parameter, x in given_arguments.items()
            )
            with suppress(ValueError):  # what the oracle refuses
                calls.append((kept, definition.expected(kept, preset("float64"), Conventions())))
    return calls


def _cases(operation: str) -> Iterator[tuple[Any, ...]]:
    plain = [
        chosen_case.choice
        for chosen_case in chosen()
        if chosen_case.choice.operation == operation and not chosen_case.choice.conventions
    ]
    drawn = [
        Choice(operation, domain, seed)
        for domain in DOMAINS[operation]
        for seed in range(_DRAWS)
        if domain != "131072 keys"
    ]
    for choice in (*plain, *drawn):
        with suppress(UnsupportedError):
            yield choice.arguments("float64")
