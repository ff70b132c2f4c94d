"""Where libraries disagree: which conventions change the required results of a call, and the
results under each.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np

from oracles import Conventions, Enclosure
from properties.contract.operations import Operation

__all__ = ["alternatives", "changed"]

_NO_READINGS = ("rope_base", "rope_scale", "mask_polarity", "dead_gradients", "packed_lse", "page_layout")
"""Numbers are settings, a polarity is how masks are written, and of equal weights the vectors say
what comes of constant ones.
"""


def alternatives(o: Operation, reading: Conventions) -> Iterator[tuple[str, str, Conventions]]:
    """Each other value of each convention that an operation follows, and the reading with that value."""
    for field in fields(Conventions):
        if field.name in o.conventions and field.name not in _NO_READINGS:
            for value in get_args(field.type):
                if value != getattr(reading, field.name):
                    yield field.name, value, replace(reading, **{field.name: value})


def changed(o: Operation, arguments: tuple[Any, ...], reading: Conventions) -> list[tuple[str, str, Conventions]]:
    """The alternatives by which something else comes of a call, in float64; a refusal is something else."""
    usual = _results(o, arguments, reading)
    return [
        operation_conventions
        for operation_conventions in alternatives(o, reading)
        if _differ(usual, _results(o, arguments, operation_conventions[2]))
    ]


def _results(o: Operation, arguments: tuple[Any, ...], reading: Conventions) -> tuple[Any, ...] | None:
    try:
        return o.expected(arguments, "float64", reading)
    except ValueError:
        return None


def _differ(a: tuple[Any, ...] | None, b: tuple[Any, ...] | None) -> bool:
    if a is None or b is None:
        return a is not b
    return any(_apart(x, y) for x, y in zip(a, b, strict=True))


def _apart(a: Enclosure | Any, b: Enclosure | Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return not np.array_equal(np.asarray(a), np.asarray(b))
    with np.errstate(all="ignore"):
        further = ~(np.abs(a.mid - b.mid) <= a.rad + b.rad) & (a.mid != b.mid)
    return bool((further & ~(np.isnan(a.mid) & np.isnan(b.mid))).any())
