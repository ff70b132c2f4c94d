"""Other calls with arrays of the same shapes. They differ in what programs are compiled for and caches
are keyed by: the presence and the shape of a mask, the settings, and the position.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from properties.contract.features import ROTATION
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, Arguments, Operation
from properties.contract.paging import with_sequences
from properties.strategies.axes import along
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices
from properties.strategies.domains import DOMAINS
from properties.strategies.drawn_masks import live

__all__ = ["elsewhere", "of_tokens", "others"]

_ROWS = ("n_q", "seq_len")
_TOKENS = ("n_q", "n_k", "seq_len")


def others(
    operation: Operation, implementation: Implementation, arguments: Arguments, choose: Choices
) -> Iterator[Arguments]:
    """Yield supported calls with arrays of the same shapes: another everyday case at another position,
    and the call with two masks of other shapes, of which one may be no mask.

    Kinds of frequencies, rotations with options, and programs of caches have no such calls.
    """
    given = operation.named(arguments)
    is_one_problem = "q" in given or "x" in given
    if not is_one_problem or operation.is_played or any(given.get(name) is not None for name in ROTATION):
        return
    sizes, lead = operation.sizes(arguments), operation.lead(arguments)
    if "start_pos" in sizes:
        sizes["start_pos"] = choose.among([0, sizes["start_pos"] + 1])
    candidates = [Cases(operation, DOMAINS[operation.name]["everyday"], implementation).of_sizes(sizes, lead, choose)]
    if "mask" in given:
        full = (*lead, *(sizes[axis] for axis in operation.axes["mask"] if axis != BATCH))
        masks = _masks_of_other_shapes(operation, implementation, given["mask"], full, choose)
        candidates += [tuple((given | {"mask": mask}).values()) for mask in masks]
    yield from (candidate for candidate in candidates if _is_taken(operation, implementation, candidate))


def _masks_of_other_shapes(
    operation: Operation, implementation: Implementation, mask: Any, full: tuple[int, ...], choose: Choices
) -> Iterator[Any]:
    """Two masks of other shapes: none, full, without leading axes, or the same along an axis."""
    once = [(*full[:axis], 1, *full[axis + 1 :]) for axis in range(len(full) - 1)]
    shapes = [None, full, *([] if implementation.support.masks else [full[-2:], *once])]
    own = None if mask is None else mask.shape
    others = [shape for shape in dict.fromkeys(shapes) if shape != own]
    for place in choose.order(len(others))[:2]:
        shape = others[place]
        yield None if shape is None else implementation.support.drawn(operation, live(choose, shape))


def elsewhere(operation: Operation, implementation: Implementation, arguments: Arguments) -> list[Arguments]:
    """Return supported calls with the same problem in other shapes, for which no program was compiled:
    twice in a batch, and with the last row or the last query twice.
    """
    candidates = [_twice(operation, implementation, arguments), _one_row_more(operation, arguments)]
    return [candidate for candidate in candidates if candidate and _is_taken(operation, implementation, candidate)]


def _twice(operation: Operation, implementation: Implementation, arguments: Arguments) -> Arguments | None:
    """The call twice in a batch: along a new leading axis, or along the first one. Of keys in pages each
    sequence comes twice.
    """
    if operation.is_paged:
        case = operation.named(arguments)
        return tuple(with_sequences(case, [*range(len(case["lengths"]))] * 2).values())
    lead = operation.lead(arguments)
    is_new = len(lead) + 1 in implementation.ranks(operation)
    if not (is_new or lead):
        return None

    def doubled(name: str, argument: Any) -> Any:
        axes = operation.axes.get(name, (BATCH,))  # an offset for each element of the batch has no named axes
        if not isinstance(argument, np.ndarray) or BATCH not in axes or argument.ndim < len(lead) + len(axes) - 1:
            return argument
        if is_new:
            return np.stack([argument, argument])
        return argument if argument.shape[0] < lead[0] else np.concatenate([argument, argument])

    return tuple(doubled(name, argument) for name, argument in operation.named(arguments).items())


def _one_row_more(operation: Operation, arguments: Arguments) -> Arguments | None:
    given, sizes = operation.named(arguments), operation.sizes(arguments)
    axis = next((axis for axis in _ROWS if sizes.get(axis)), "")
    places = [*range(sizes[axis]), sizes[axis] - 1] if axis else []
    return tuple(along(operation, given, axis, places).values()) if axis else None


def of_tokens(
    operation: Operation, implementation: Implementation, arguments: Arguments, number: int, position: int
) -> Arguments | None:
    """Return the call with a number of tokens, repeated from its own, from a position, without mask
    and options; None if this is not supported. Programs of caches have no such calls.
    """
    given, sizes = operation.named(arguments), operation.sizes(arguments)
    if operation.is_played or ("q" not in given and "x" not in given) or given.get("cu_q") is not None:
        return None
    case = given | dict.fromkeys([*operation.options, *(["mask"] if "mask" in given else [])])
    if "start_pos" in case:
        case["start_pos"] = position
    if position + number > sizes.get("rows", position + number):
        return None
    for axis in _TOKENS:
        if axis in sizes:
            if not sizes[axis]:
                return None
            case = along(operation, case, axis, [place % sizes[axis] for place in range(number)])
    tokens = tuple(case.values())
    return tokens if _is_taken(operation, implementation, tokens) else None


def _is_taken(operation: Operation, implementation: Implementation, arguments: Arguments) -> bool:
    """Whether the implementation supports a call, its features, its mask and its shapes among them."""
    given = operation.named(arguments)
    refuses = implementation.resolved_conventions.causal_with_mask == "refuse"
    is_refused = refuses and given.get("causal") and given.get("mask") is not None
    return not is_refused and implementation.takes(operation, arguments)
