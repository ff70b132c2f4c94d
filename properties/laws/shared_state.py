"""The law that earlier calls leave no state: calls with other sizes, and calls of other
implementations in the same process.
"""

from typing import Any

import numpy as np

from oracles import Enclosure
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws.call_contract import check_repetition
from properties.laws.law import Laws
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices, rounded
from properties.strategies.domains import DOMAINS, usual

__all__ = ["for_both", "law"]

law = Laws(usual)
_LENGTHS = ("n_q", "n_k", "seq_len", "max_len", "rows")


@law(
    *OPERATIONS,
    effort=0.2,
    interleaves=True,
    exact="for the repeated case, if the implementation declares `deterministic`",
)
def calls_of_other_sizes_or_implementations_do_not_change_later_results(
    subject: Subject, *arguments: Any, choose: Choices
) -> bool:
    """For every test input A, and a call with another test input B, of any sizes or of twice the
    length: a second call with A gives the same result as the first one.

    If the list has other implementations, or this one has twins, one of them is called on A and on
    B first. Then this implementation must not return a result for B that is right only for the
    other.
    """
    operation, implementation = OPERATIONS[subject.operation], subject.implementation
    try:
        subject.seen(arguments)
        subject.judge(0)
    except BrokenError:  # a wrong result of the first call says nothing about shared state
        return False
    first = subject.watch(operation.name, arguments)
    several = (*implementation.beside, *implementation.paths.values())
    others = [other for other in several if operation.name in other.operations and not other.unavailable]
    other = choose.among(others) if others else implementation
    drawn = Cases(operation, DOMAINS[operation.name]["everyday"], implementation).arguments(choose)
    if other is implementation:
        elsewhere = choose.among([_doubled(operation, arguments), drawn])
    else:
        elsewhere = for_both(operation, (implementation, other), drawn)
    if subject.takes(*elsewhere):
        _check_after(subject, other, elsewhere)
    if other is not implementation:
        subject.call_another(other, arguments)
    check_repetition(subject, first.results, subject.watch(operation.name, arguments).results)
    return True


def _doubled(operation: Operation, arguments: Arguments) -> tuple[Any, ...]:
    """Return the arguments with every length above 1 doubled: the entries are repeated once."""
    if operation.is_played:  # the program fixes the lengths of its arrays
        return arguments
    found = []
    for parameter, argument in zip(operation.parameters, arguments, strict=True):
        if isinstance(argument, np.ndarray):
            for back, axis in enumerate(reversed(operation.axes.get(parameter, ())), 1):
                if axis in _LENGTHS and argument.ndim >= back and argument.shape[-back] > 1:
                    argument = np.concatenate([argument, argument], -back)
            found.append(argument)
        else:
            longer = parameter in _LENGTHS and argument is not None and argument > 1
            found.append(2 * argument if longer else argument)
    return tuple(found)


def for_both(operation: Operation, several: tuple[Implementation, ...], arguments: Arguments) -> tuple[Any, ...]:
    """Return the arguments, rounded to numbers that all of these implementations can represent."""
    for implementation in sorted(several, key=lambda one: one.resolved_arithmetic.inputs.unit_roundoff):
        formats = {
            parameter: operation.stored(parameter, implementation.resolved_arithmetic) for parameter in operation.arrays
        }
        arguments = tuple(
            rounded(argument, formats[parameter]) if parameter in formats and argument is not None else argument
            for parameter, argument in zip(operation.parameters, arguments, strict=True)
        )
    return arguments


def _check_after(subject: Subject, other: Implementation, arguments: Arguments) -> None:
    """Check a call of the implementation after a call of another one. It must not return the
    other's right result where that result is wrong for itself.
    """
    operation, alone = OPERATIONS[subject.operation], other is subject.implementation
    if not alone:
        subject.call_another(other, arguments)
    try:
        subject.watch(operation.name, arguments)
        if not alone:
            subject.judge(len(subject.calls) - 1)
    except BrokenError as broken:
        call = subject.calls[-1]
        unknown = alone or call.error or not other.takes(operation, arguments)
        answers = () if unknown else Caller(other, operation.name).expected(operation, arguments)
        taken = answers and all(map(_accepts, answers, call.outputs))
        subject.require(
            not taken,
            f"{broken} That would be right for {other.name}, which had been called on the same numbers before.",
        )


def _accepts(answer: Any, result: Any) -> bool:
    """Return whether a result agrees with the oracle's answer, an enclosure or a mask."""
    if isinstance(answer, Enclosure):
        return bool((answer.excess(result) <= 1).all())
    return bool(np.array_equal(answer, result))
