"""Laws of batches: an element of a batch has the result that it has alone."""

from typing import Any

import numpy as np

from oracles.ball import Ball
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, OPERATIONS, Arguments, Operation
from properties.contract.results import results_of
from properties.contract.subject import Subject
from properties.contract.support import WORDS
from properties.laws.law import Laws
from properties.strategies.domains import usual

law = Laws(usual)
_BATCHED = tuple(
    name
    for name, operation in OPERATIONS.items()
    if any(BATCH in operation.axes.get(p, ()) for p in operation.arrays) and not operation.is_paged
)
"""Operations with leading axes. Sequences with pages have an axis of their own, and laws of their own."""
Index = tuple[slice | int, ...]


def _part_of_batch(operation: Operation, arguments: Arguments, index: Index) -> tuple[Any, ...]:
    """Return the arguments for a part of the batch, which `index` selects.

    An array that the whole batch shares, such as a mask with fewer axes, is returned unchanged.
    """

    def part(parameter: str, argument: Any) -> Any:
        axes, ahead = operation.axes.get(parameter, ()), operation.ahead(parameter, arguments)
        if not isinstance(argument, np.ndarray) or BATCH not in axes:
            return argument
        leading = argument.ndim - ahead - len(axes) + 1
        if leading < 1:
            return argument
        places = (
            place if size > 1 or not operation.broadcasts(parameter) else _of_size_one(place)
            for place, size in zip(index[-leading:], argument.shape[ahead:], strict=False)
        )
        return argument[(*[slice(None)] * ahead, *places)]

    return tuple(part(parameter, argument) for parameter, argument in zip(operation.parameters, arguments, strict=True))


def _of_size_one(place: slice | int) -> slice | int:
    """Return the index into an axis of size 1 that is broadcast, for an index into the full axis."""
    return slice(None) if isinstance(place, slice) else 0


def _no_batches(implementation: Implementation) -> str:
    return "" if implementation.support.batches else WORDS["no batch axes"]


def _placed(gradient: Ball, shape: tuple[int, ...], index: Index) -> Ball:
    """Return the gradient of one element of the batch in the shape of an array that the batch
    shares or broadcasts. Entries that do not belong to the element are 0.
    """
    if gradient.mid.shape == shape:
        return gradient
    mid, rad = np.zeros(shape), np.zeros(shape)
    place = tuple(place if size > 1 else _of_size_one(place) for place, size in zip(index, shape, strict=False))
    mid[place], rad[place] = gradient.mid, gradient.rad
    return Ball(mid, rad)


@law(*_BATCHED, exempts=_no_batches, effort=0.5)
def a_batch_gives_the_same_as_its_elements_one_by_one(subject: Subject, *arguments: Any) -> bool:
    """For every batch: each element gives the same result alone, or as a batch of one if the
    implementation takes only batches. An array that the batch shares gets the sum of its gradients.
    """
    operation = OPERATIONS[subject.operation]
    lead = operation.lead(arguments)
    places = list(np.ndindex(*lead))
    alone = bool(places) and subject.takes(*_part_of_batch(operation, arguments, places[0]))
    indices: list[Index] = list(places) if alone else [tuple(slice(k, k + 1) for k in place) for place in places]
    elements = [_part_of_batch(operation, arguments, index) for index in indices]
    if not lead or not (alone or len(places) > 1) or not subject.takes(*elements[0]):
        return False
    whole = results_of(subject(*arguments))
    names = operation.returned(arguments)
    sums: dict[str, Ball] = {}
    for index, element in zip(indices, elements, strict=True):
        for name, batch, single in zip(names, whole, results_of(subject(*element)), strict=True):
            if BATCH not in operation.axes[name] or operation.broadcasts(name):
                leading = batch.value.ndim - len(operation.axes[name]) + 1  # may be fewer axes than the batch has
                part = _placed(single.ball, batch.value.shape, index[max(len(index) - leading, 0) :])
                sums[name] = sums[name] + part if name in sums else part
                continue
            subject.finite(batch)
            subject.finite(single)
            if np.array_equal(batch.value[index], single.value, equal_nan=True):
                subject.same(batch.value[index], single.value, name)
            else:
                subject.close(batch.ball[index], single, name)
    for name, batch in zip(names, whole, strict=True):
        if name in sums:
            subject.close(batch, sums[name], name)
    return True


@law(*_BATCHED, exempts=_no_batches, effort=0.2, exact=True)
def an_empty_batch_gives_an_empty_result(subject: Subject, *arguments: Any) -> bool:
    """For every batch without elements: the result has no elements, and the gradients of arrays
    that the batch shares are 0.
    """
    operation, case = OPERATIONS[subject.operation], arguments
    if not operation.lead(arguments):
        case = tuple(
            np.expand_dims(argument, operation.ahead(parameter, arguments))
            if isinstance(argument, np.ndarray) and BATCH in operation.axes[parameter]
            else argument
            for parameter, argument in zip(operation.parameters, arguments, strict=True)
        )
    case = _part_of_batch(operation, case, (slice(0, 0),) + (slice(None),) * (len(operation.lead(case)) - 1))
    if not subject.takes(*case):
        return False
    for parameter, result in zip(operation.returned(case), results_of(subject(*case)), strict=True):
        subject.same(result.value, np.zeros(result.value.shape), parameter)
    return True
