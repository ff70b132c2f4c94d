"""Which known bugs a test kills: a mutant is called on its inputs, and something that comes back is
wrong, or nothing does.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.formats import resolve
from properties.bugs.mutants import MUTANTS, Mutant
from properties.contract.caller import Caller
from properties.contract.operations import OPERATIONS
from properties.contract.quantising import scales_of
from properties.contract.results import BrokenError
from properties.strategies.choices import rounded
from properties.vectors.expectation import Expected, is_right
from research.vectors.choice import Choice

__all__ = ["MARGIN", "beyond_vectors", "killed", "mutants_of"]

MARGIN = 2.0
"""How many budgets off a mutant must be: so it is the same on every processor who is killed."""

_REMEMBERING = ("strided views", "two calls in a row")
_CONDUCT = (
    "inputs are not modified",
    "the output does not share memory with an input",
    "a call prints nothing and leaves process-wide state unchanged",
)
_UNCERTIFIED = {
    "without queries the output is empty and gradients are 0": (
        "The definitions refuse a call without queries, and so may code: a file does not know "
        "which exceptions are an implementation's refusals."
    ),
    "without keys every row is fully masked": (
        "The definitions refuse a call without keys: no value is certified, and its law asks for a "
        "convention of fully masked rows, or a refusal."
    ),
    "a single visible key has weight 1, however low its score": (
        "Scores as low as that may each be off by more than exp can tell, so that no "
        "budget bounds the result: its law compares with scores of 0."
    ),
    "declared contracts in bits are kept": "It compares the bits of two calls, and a test has one.",
    "row numbers beyond 16 bits are right": "It takes more than 65536 rows, and files of tests are small.",
    "numbers of pages beyond 8 and 16 bits are right": "It takes many pages, and files of tests are small.",
}
"""Why no file has the cases of a law."""


@cache
def _by_reading() -> dict[tuple[str, Conventions], list[Mutant]]:
    by_conventions: dict[tuple[str, Conventions], list[Mutant]] = {}
    for mutant in MUTANTS.values():
        by_conventions.setdefault((mutant.operation, mutant.implementation().resolved_conventions), []).append(mutant)
    return by_conventions


def mutants_of(choice: Choice) -> list[Mutant]:
    """The mutants that a test of a choice is about: mutants of its operation that promise its
    conventions.
    """
    return _by_reading().get((choice.operation, choice.reading), [])


def beyond_vectors(mutant: Mutant) -> str:
    """Why no test of a file, a single call on plain arrays, shows a mutant, as a sentence; "" where one can."""
    if OPERATIONS[mutant.operation].is_played:
        return "It takes a program of several calls."
    if "supports" in mutant.bug.promises and "conventions" not in mutant.bug.promises:
        return "It answers what it promises to refuse."
    if "twins" in mutant.bug.promises:
        return "It is wrong by another path."
    if (arithmetic := resolve(mutant.bug.promises.get("arithmetic"))) is not None and scales_of(arithmetic):
        return "It takes codes on a grid."
    if mutant.bug.law in _UNCERTIFIED:
        return _UNCERTIFIED[mutant.bug.law]
    needed = [need for need in _REMEMBERING if need in mutant.bug.requires]
    return (
        f"It takes {needed[0]}."
        if needed
        else f"It is seen by what it does: {mutant.bug.law}."
        if mutant.bug.law in _CONDUCT
        else ""
    )


def killed(
    choice: Choice, arithmetic: str, arguments: tuple[Any, ...], wanted: tuple[Expected, ...], among: Iterable[Mutant]
) -> list[str]:
    """The names of the mutants whose results differ from the required results of a choice in an
    arithmetic. Mutants compute in float64, and then round.
    """
    return [mutant.id for mutant in among if not _returns(mutant, choice, arithmetic, arguments, wanted)]


def _returns(
    mutant: Mutant, choice: Choice, arithmetic: str, arguments: tuple[Any, ...], wanted: tuple[Expected, ...]
) -> bool:
    """Whether a mutant returns what it should; so it does where it is not asked: it has another
    arithmetic, or refuses the sizes.
    """
    implementation = mutant.implementation()
    if mutant.bug.promises.get("arithmetic", arithmetic) != arithmetic or not implementation.takes(
        choice.of, arguments
    ):
        return True
    try:
        with np.errstate(all="ignore"):
            outputs, *_ = Caller(implementation, choice.operation).run(choice.of, arguments)
    except BrokenError:
        return False
    return all(_near(x, expected_result) for x, expected_result in zip(outputs, wanted, strict=True))


def _near(out: Any, of: Expected) -> bool:
    if of.format is None:
        return np.array_equal(out, of.value)
    return bool(is_right(rounded(out, of.format), replace(of, budget=of.budget * MARGIN)).all())
