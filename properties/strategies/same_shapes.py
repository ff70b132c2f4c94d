"""Other calls with arrays of the same shapes. They differ in what programs are compiled for and caches
are keyed by: the presence and the shape of a mask, the settings, and the position.
"""

from collections.abc import Iterator
from typing import Any

from properties.contract.features import ROTATION
from properties.contract.implementation import Implementation
from properties.contract.operations import Operation
from properties.strategies.axes import along
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices
from properties.strategies.domains import DOMAINS
from properties.strategies.drawn_masks import live

__all__ = ["of_tokens", "one_row_more", "others"]

Arguments = tuple[Any, ...]

_ROWS = ("n_q", "seq_len")
_TOKENS = ("n_q", "n_k", "seq_len")


def others(
    operation: Operation, implementation: Implementation, arguments: Arguments, choose: Choices
) -> Iterator[Arguments]:
    """Yield supported calls with arrays of the same shapes: the call with a mask of another shape or
    without its mask, and another everyday case at another position.

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
        full = (*lead, sizes["n_q"], sizes["n_k"])
        changed = given | {"mask": _mask_of_another_shape(operation, implementation, given["mask"], full, choose)}
        candidates.append(tuple(changed.values()))
    yield from (candidate for candidate in candidates if _is_taken(operation, implementation, candidate))


def _mask_of_another_shape(
    operation: Operation, implementation: Implementation, mask: Any, full: tuple[int, ...], choose: Choices
) -> Any:
    """No mask, or a mask for all leading axes, for none, or the same along one of them."""
    once = [(*full[:axis], 1, *full[axis + 1 :]) for axis in range(len(full) - 2)]
    shapes = [None, full[-2:], full, *once] if not implementation.support.masks else [None, full]
    shape = choose.among([shape for shape in shapes if shape != (None if mask is None else mask.shape)])
    return None if shape is None else implementation.support.drawn(operation, live(choose, shape))


def one_row_more(operation: Operation, implementation: Implementation, arguments: Arguments) -> Arguments | None:
    """Return the call with its last row, or its last query, twice; None if this is not supported."""
    given, sizes = operation.named(arguments), operation.sizes(arguments)
    for axis in _ROWS:
        if sizes.get(axis, 0):
            places = [*range(sizes[axis]), sizes[axis] - 1]
            longer = tuple(along(operation, given, axis, places).values())
            return longer if _is_taken(operation, implementation, longer) else None
    return None


def of_tokens(
    operation: Operation, implementation: Implementation, arguments: Arguments, number: int, position: int
) -> Arguments | None:
    """Return the call with a number of tokens, repeated from its own, from a position, without mask
    and options; None if this is not supported.
    """
    given, sizes = operation.named(arguments), operation.sizes(arguments)
    if "q" not in given and "x" not in given:
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
