"""Works on the named axes of a case (test input): finds the axes whose size can change alone, and
selects entries of an axis.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from properties.contract.operations import BATCH, Operation

__all__ = ["Case", "along", "leaves_a_query_nothing", "movable", "one_of_lead"]

Case = dict[str, Any]

_FIXED = (
    *("heads_width", "query_width", "key_width", "values_width", "joined_width", "num_heads", "kv_heads"),
    *("rows", "start_pos", "batch", "chunk", "start"),
)
"""Sizes that cannot change alone."""

_ROWS = ("n_q", "n_k")
"""Sizes that the steps of a program determine."""

_LATENT = ("head_dim", "value_dim")
"""Sizes of latent attention that depend on each other: the values are channels of the keys."""

_OF_SEQUENCES = ("total_q", "total_k", "sequences", "n_q", "num_pages", "page_size", "max_pages")
"""Sizes that the lengths of sequences determine, packed ones or with keys in pages."""


def movable(operation: Operation, case: Case, fixed: Sequence[str] = ()) -> dict[str, int]:
    """Return the axes and the sizes given as numbers that can change alone, with their sizes. Axes
    named in `fixed` are left out.
    """
    sizes = operation.sizes(tuple(case[parameter] for parameter in operation.parameters))
    determined = _OF_SEQUENCES if operation.has_sequences else _ROWS if operation.is_played else ()
    determined = (*determined, *(_LATENT if "latent" in operation.parameters else ()))
    excluded = (*_FIXED, *fixed, *determined)
    return {
        axis: sizes[axis]
        for parameter in operation.parameters
        for axis in operation.axes.get(parameter, (parameter,))
        if axis in sizes and axis not in excluded
    }


def along(operation: Operation, case: Case, axis: str, places: Sequence[int]) -> Case:
    """Return the case with the entries at `places` of an axis, in all arrays that have the axis. A
    place may occur twice. Lengths of sequences are reduced to the new size, and parents renumbered.
    Scales of sequences may have other axes than their codes.
    """
    changed = dict(case)
    for parameter in operation.parameters:
        if parameter == axis:
            changed[parameter] = len(places)
        for position, axis_name in enumerate(axes := operation.axes.get(parameter, ())):
            from_end = position - len(axes)
            array = changed[parameter]
            if (
                axis_name == axis
                and isinstance(array, np.ndarray)
                and array.ndim >= (len(axes) if operation.is_setting(parameter) else -from_end)
                and (array.shape[from_end] > 1 or not operation.broadcasts(parameter))
            ):
                changed[parameter] = array.take(places, from_end)
    if axis in ("max_len", "n") and "lengths" in changed:
        changed["lengths"] = np.minimum(changed["lengths"], len(places))
    if axis == "n" and "parents" in changed:
        changed["parents"] = _replanted(changed["parents"], places)
    return changed


def _replanted(parents: Any, places: Sequence[int]) -> Any:
    """Return the parents of the nodes that were at `places`, renumbered. A node whose parent is gone,
    or no longer earlier, is a root.
    """
    earlier: dict[int, int] = {}
    replanted = []
    for node, place in enumerate(places):
        replanted.append(earlier.get(int(parents[node]), -1))
        earlier[place] = node
    return np.array(replanted, np.int64)


def one_of_lead(operation: Operation, case: Case, axis: int, place: int, gone: bool) -> Case:
    """Return the case with one entry of a leading (batch) axis, in all arrays that have this axis.
    With `gone`, the axis is removed, else it has size 1.
    """
    changed, arguments = dict(case), tuple(case[parameter] for parameter in operation.parameters)
    lead_rank = len(operation.lead(arguments))
    for parameter, axes in operation.axes.items():
        array = changed.get(parameter)
        if isinstance(array, np.ndarray) and axes[0] == BATCH:
            own_axis = array.ndim - len(axes) + 1 - lead_rank + axis
            if own_axis >= operation.ahead(parameter, arguments):
                taken = array.take([place if array.shape[own_axis] > 1 else 0], own_axis)
                changed[parameter] = taken.squeeze(own_axis) if gone else taken
    return changed


def leaves_a_query_nothing(case: Case) -> bool:
    """Return whether the mask of a case (test input) has a fully masked row."""
    mask = case.get("mask")
    return mask is not None and not mask.any(-1).all()
