"""Cases along their named axes: which of these have a size of their own, and a case with some places of one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from properties.contract.operations import BATCH, Operation

__all__ = ["Case", "along", "leaves_a_query_nothing", "movable", "one_of_lead"]

Case = dict[str, Any]

_FIXED = ("heads_width", "num_heads", "kv_heads", "rows", "start_pos", "batch")
"""What has no size by itself."""

_ROWS = ("n_q", "n_k")
"""What the steps of a program decide."""


def movable(o: Operation, case: Case, fixed: Sequence[str] = ()) -> dict[str, int]:
    """The axes, and numbers of what is counted, whose size may change while the others stay, and
    their sizes; but those that are fixed.
    """
    sizes = o.sizes(tuple(case[p] for p in o.parameters))
    kept = (*_FIXED, *fixed, *(_ROWS if o.is_played else ()))
    return {a: sizes[a] for p in o.parameters for a in o.axes.get(p, (p,)) if a in sizes and a not in kept}


def along(o: Operation, case: Case, axis: str, places: Sequence[int]) -> Case:
    """Some places of an axis, in all arrays that have it: a part of it, or places more than once.
    Lengths stay within what is left.
    """
    found = dict(case)
    for p in o.parameters:
        if p == axis:
            found[p] = len(places)
        for place, name in enumerate(axes := o.axes.get(p, ())):
            back = place - len(axes)
            x = found[p]
            if (
                name == axis
                and isinstance(x, np.ndarray)
                and x.ndim >= -back
                and (x.shape[back] > 1 or not o.broadcasts(p))
            ):
                found[p] = x.take(places, back)
    if axis == "max_len" and "lengths" in found:
        found["lengths"] = np.minimum(found["lengths"], len(places))
    return found


def one_of_lead(o: Operation, case: Case, axis: int, place: int, gone: bool) -> Case:
    """One place of a leading axis, in all arrays that have it; the axis stays, or is gone."""
    found, arguments = dict(case), tuple(case[p] for p in o.parameters)
    rank = len(o.lead(arguments))
    for p, axes in o.axes.items():
        x = found.get(p)
        if isinstance(x, np.ndarray) and axes[0] == BATCH:
            own = x.ndim - len(axes) + 1 - rank + axis
            if own >= o.ahead(p, arguments):
                part = x.take([place if x.shape[own] > 1 else 0], own)
                found[p] = part.squeeze(own) if gone else part
    return found


def leaves_a_query_nothing(case: Case) -> bool:
    """Whether the mask of a case leaves some query no key."""
    mask = case.get("mask")
    return mask is not None and not mask.any(-1).all()
