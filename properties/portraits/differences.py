"""What two kernels do differently: the entries of their portraits, and their results.

Both kernels are called with the same plain numbers. Two right results may differ by the sum of
their error limits. A larger difference is not due to rounding.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from properties.contract.caller import Caller
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.meanings import meaning
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.contract.results import BrokenError, entry
from properties.contract.support import SIZES, OutsideError
from properties.inspection.array import Array
from properties.inspection.measurements import AROUND
from properties.portraits.portrait import OperationPortrait, Portrait
from properties.portraits.readings import POINTS
from properties.strategies.operating_points import Point
from properties.strategies.plain_calls import call_in_words, plain_call

__all__ = ["Difference", "differences"]

_TRIED = (0, 1, 2, 3, 5, 7, 8, 16, 64, 96, 128, 256)
"""The sizes that are compared."""


@dataclass(frozen=True)
class Difference:
    """Something that two kernels do differently.

    operation       the operation
    subject         what differs, such as "causal" or "out"
    first, second   what each kernel does, in a clause
    """

    operation: str
    subject: str
    first: str
    second: str


def differences(first: Portrait, second: Portrait, until: float = inf) -> tuple[Difference, ...]:
    """Return what two kernels do differently, operation by operation. Their results are compared
    until a reading of time.monotonic.
    """
    of_first, of_second = ({one.operation: one for one in portrait.operations} for portrait in (first, second))
    found: list[Difference] = []
    for name in (name for name in OPERATIONS if name in of_first or name in of_second):
        if name in of_first and name in of_second:
            found += _of_operation(of_first[name], of_second[name], until)
        else:
            clauses = ("offered" if name in offered else "not offered" for offered in (of_first, of_second))
            found.append(Difference(name, "operation", *clauses))
    return tuple(found)


def _of_operation(first: OperationPortrait, second: OperationPortrait, until: float) -> Iterator[Difference]:
    """The differences of one operation: results, conventions, what is taken, and anomalies."""
    operation = OPERATIONS[first.operation]
    yield from _of_results(operation, first.implementation, second.implementation, until)
    for convention, value in first.conventions.items():
        other = second.conventions.get(convention, value)
        if value != other:
            clauses = (f"{each!r}: {meaning(convention, each)}" for each in (value, other))
            yield Difference(operation.name, convention, *clauses)
    for subject, clause in _COMPARED.items():
        clauses = (clause(operation, portrait.implementation) for portrait in (first, second))
        yield from _different(operation, subject, *clauses)
    for anomaly in dict.fromkeys((*first.anomalies, *second.anomalies)):
        clauses = (anomaly if anomaly in portrait.anomalies else "not found" for portrait in (first, second))
        yield from _different(operation, "anomaly", *clauses)


def _different(operation: Operation, subject: str, first: str, second: str) -> Iterator[Difference]:
    if first != second:
        yield Difference(operation.name, subject, first, second)


def _taken(size: str, operation: Operation, implementation: Implementation) -> str:
    """Which of the sizes that are compared an implementation takes."""
    if not any(size in axes for axes in operation.axes.values()):
        return ""
    taken = [length for length in _TRIED if implementation.allows(**{size: length})]
    return f"takes {', '.join(map(str, taken)) or 'none'} of {', '.join(map(str, _TRIED))}"


_COMPARED: Mapping[str, Callable[[Operation, Implementation], str]] = {
    "arithmetic": lambda operation, implementation: implementation.resolved_arithmetic.name,
    "options": lambda operation, implementation: _listed(
        option for option in operation.options if not implementation.lacks(option)
    ),
    "results": lambda operation, implementation: _listed(
        output for output in operation.outputs if output not in implementation.support.untold(operation)
    ),
    "leading axes": lambda operation, implementation: _listed(map(str, implementation.ranks(operation))),
    **{size: partial(_taken, size) for size in SIZES},
}
"""What is compared, by subject: a clause about an implementation."""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _of_results(
    operation: Operation, first: Implementation, second: Implementation, until: float
) -> Iterator[Difference]:
    """The first call whose results differ by more than the sum of their error limits."""
    for point in _points(operation):
        arguments = _common_call(operation, first, second, point)
        if arguments is None or time.monotonic() >= until:
            continue
        with suppress(OutsideError, UngivenError):
            results = [_results(operation, implementation, arguments) for implementation in (first, second)]
            found = next(_differing(operation, call_in_words(operation, arguments), *results), None)
            if found is not None:
                yield found
                return


def _points(operation: Operation) -> Iterator[Point]:
    """The calls that are compared: those without options come first."""
    for sizes in ({}, *(sizes for _, sizes in AROUND.get(operation.name, ()) if sizes)):
        yield Point("sizes", sizes)
    yield from POINTS


def _common_call(operation: Operation, first: Implementation, second: Implementation, point: Point) -> Arguments | None:
    """The arguments of a plain call that both kernels take; None if they take no such call."""
    for one, other in ((first, second), (second, first)):
        arguments = plain_call(operation, one, point.sizes, point.options)
        if arguments is not None and other.takes(operation, arguments):
            return arguments
    return None


def _results(operation: Operation, implementation: Implementation, arguments: Arguments) -> dict[str, Any]:
    """The results of a call by name; the error under "the call" if it fails."""
    try:
        found = Caller(implementation, operation.name).watch(operation.name, arguments).results
    except BrokenError as error:
        return {"the call": str(error)}
    return dict(zip(operation.returned(arguments), found, strict=False))


def _differing(
    operation: Operation, call: str, first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[Difference]:
    """The results of a call that differ, each with the entry that differs most. A call that both
    kernels refuse does not count.
    """
    if ("the call" in first) != ("the call" in second):
        yield Difference(operation.name, call, *(each.get("the call", "returns results") for each in (first, second)))
    for name in (name for name in operation.outputs if name in first and name in second):
        values, limit = _values_and_limit(first[name], second[name])
        with np.errstate(all="ignore"):
            distance = np.where(values[0] == values[1], 0.0, np.abs(values[0] - values[1]))
            excess = np.nan_to_num(distance - limit, nan=np.inf)
        is_beyond = (distance > limit) | (np.isnan(values[0]) ^ np.isnan(values[1]))
        if is_beyond.any():
            index = np.unravel_index(int(np.where(is_beyond, excess, -1.0).argmax()), is_beyond.shape)
            numbers = (f"{value[index]:.6g}" for value in values)
            allowed = f" (error limits allow a difference of {limit[index]:.2g})"
            yield Difference(operation.name, f"{entry(name, index)} of {call}{allowed}", *numbers)


def _values_and_limit(first: Any, second: Any) -> tuple[tuple[Array, Array], Array]:
    """Two results as numbers, and the sum of their error limits; masks have the limit 0."""
    if isinstance(first, np.ndarray):
        return (first.astype(float), second.astype(float)), np.zeros(first.shape)
    return (first.value, second.value), first.budget.rad + second.budget.rad
