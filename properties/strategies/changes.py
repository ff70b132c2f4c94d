"""Changes one thing of a case (test input): numbers, a size, a mask, or an option. The search for
the worst input goes from case to case by these changes.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from properties.contract.features import ROTATION
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, Operation
from properties.strategies.axes import Case, along, leaves_a_query_nothing, movable, one_of_lead
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices, rounded
from properties.strategies.climb import mutated

__all__ = ["another", "changed"]

_LONGEST, _MOST = 256, 2**15
"""The longest axis, and the largest total of numbers, that a change may reach."""

_TRIES = 8  # changes to try; the first one with a supported case is taken
_SEEDS = 2**24

Change = Callable[[Cases, Case, Generator], Case]


def another(cases: Cases, rng: Generator) -> Case:
    """Return a new case (test input) from the domain (input family) of `cases`."""
    return cases.operation.named(cases.draw(int(rng.integers(1, _SEEDS))))


def changed(cases: Cases, case: Case, rng: Generator) -> Case:
    """Return the case with one thing changed. The implementation supports the result. If no change
    is found, return a new case from the same domain (input family).

    Kinds of rotary frequencies always give a new case, because their parameters depend on each
    other.
    """
    for _ in range(_TRIES if "kind" not in cases.operation.parameters else 0):
        candidate = _CHANGES[int(rng.integers(len(_CHANGES)))](cases, case, rng)
        if candidate is not case and _is_taken(cases.operation, candidate, cases.implementation, case):
            return candidate
    return another(cases, rng)


def _is_taken(operation: Operation, changed_case: Case, implementation: Implementation, before: Case) -> bool:
    """Return whether a changed case (test input) may be used: the implementation supports it, it
    has no new fully masked row, and its size stays within bounds.
    """
    most_numbers = max(_MOST, _numbers(before))
    keeps_alive = leaves_a_query_nothing(before) or not leaves_a_query_nothing(changed_case)
    return (
        keeps_alive
        and _numbers(changed_case) <= most_numbers
        and implementation.takes(operation, tuple(changed_case.values()))
    )


def _numbers(case: Case) -> int:
    return sum(array.size for array in case.values() if isinstance(array, np.ndarray))


def _of_numbers(cases: Cases, case: Case, rng: Generator) -> Case:
    """Return the case (test input) with one array changed: an entry, a row, or the scale."""
    operation = cases.operation
    names = [
        parameter
        for parameter in operation.arrays
        if case[parameter] is not None and case[parameter].size and parameter not in ROTATION
    ]
    if not names:
        return case
    parameter = names[int(rng.integers(len(names)))]
    array = case[parameter]
    changed_array = mutated(array.reshape(-1, array.shape[-1]), rng).reshape(array.shape)
    return case | {
        parameter: rounded(changed_array, operation.stored(parameter, cases.implementation.resolved_arithmetic))
    }


def _of_sizes(cases: Cases, case: Case, rng: Generator) -> Case:
    """Return the case (test input) with an axis shorter or longer: a half, one entry less, one
    entry twice, or all entries twice. Even widths stay even.
    """
    operation = cases.operation
    rotates = any(case.get(parameter) is not None for parameter in ROTATION)
    sizes = movable(operation, case, ("head_dim", "pairs") if rotates else ("pairs",))
    if not sizes:
        return case
    axis, length = list(sizes.items())[int(rng.integers(len(sizes)))]
    stride = 2 if axis.endswith("_dim") and length % 2 == 0 else 1
    middle, start = length // 2 // stride * stride, int(rng.integers(max(length - stride + 1, 1)))
    places = (
        [*range(middle)],
        [*range(middle, length)],
        [*range(start), *range(start + stride, length)],
        [*range(length), *range(start, start + stride)],
        [*range(length)] * 2,
    )
    chosen = places[int(rng.integers(len(places)))]
    return along(operation, case, axis, chosen) if 0 < len(chosen) <= max(_LONGEST, length) and length else case


def _of_lead(cases: Cases, case: Case, rng: Generator) -> Case:
    """Return the case (test input) with only one element of a batch: one entry of a leading axis."""
    lead = cases.operation.lead(tuple(case.values()))
    several = [axis for axis, length in enumerate(lead) if length > 1]
    if not several:
        return case
    axis = several[int(rng.integers(len(several)))]
    return one_of_lead(cases.operation, case, axis, int(rng.integers(lead[axis])), gone=False)


def _of_masks(cases: Cases, case: Case, rng: Generator) -> Case:
    """Return the case (test input) with a mask changed: one entry or one key inverted, a new mask,
    or no mask.
    """
    operation, implementation = cases.operation, cases.implementation
    names = [parameter for parameter in operation.parameters if operation.is_mask(parameter)]
    if not names:
        return case
    parameter = names[int(rng.integers(len(names)))]
    mask, choice = case[parameter], int(rng.integers(3))
    if mask is None or choice == 0 or not mask.size:
        sizes, lead = operation.sizes(tuple(case.values())), operation.lead(tuple(case.values()))
        shape = tuple(
            length for axis in operation.axes[parameter] for length in (lead if axis == BATCH else (sizes[axis],))
        )
        choose = Choices(int(rng.integers(1, _SEEDS)))
        return case | {
            parameter: implementation.support.drawn(
                operation, cases.domain.mask(choose, implementation.support.mask_shape(operation, parameter, shape))
            )
        }
    changed_mask = mask.copy()
    index = np.unravel_index(int(rng.integers(mask.size)), mask.shape)
    if choice == 1:
        changed_mask[index] ^= True
    else:
        changed_mask[..., index[-1]] ^= True
    return case | {parameter: changed_mask}


def _of_options(cases: Cases, case: Case, rng: Generator) -> Case:
    """Return the case (test input) with one option or position from a new case, or without a bias
    or sinks. The tangents of a bias or of sinks are removed too.
    """
    operation = cases.operation
    if operation.is_played or any(case.get(parameter) is not None for parameter in ROTATION):
        return case
    names = [
        parameter
        for parameter in operation.parameters
        if (
            operation.is_setting(parameter)
            or parameter == "start_pos"
            or (parameter in operation.options and parameter in operation.arrays)
        )
        and parameter not in ROTATION
    ]
    if not names:
        return case
    parameter = names[int(rng.integers(len(names)))]
    if parameter in operation.arrays:
        return case | {name: None for name in (parameter, f"d{parameter}") if name in case}
    other_value = another(cases, rng)[parameter]
    return (
        case
        if isinstance(other_value, np.ndarray) and np.shape(case[parameter]) != other_value.shape
        else case | {parameter: other_value}
    )


_CHANGES: tuple[Change, ...] = (*[_of_numbers] * 4, *[_of_sizes] * 2, _of_lead, _of_masks, _of_options)
"""The changes, as often as they are chosen. Numbers come most often, because a case has many of
them. Sizes come often enough that cases become small, where each number counts.
"""
