"""What a candidate's process answers, as far as it can be so: everything else is nonsense, which ends it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from properties.gatehouse import wire

__all__ = ["FINISHED", "IMPORTED", "RAISED", "answers", "has"]

_OTHER = {"other": str}
_RETURNED = {
    "results": [object],
    "kinds": [str],
    "several": bool,
    "shares": [(int, int)],
    "written": [int],
    "after": [object],
}

IMPORTED, RAISED, FINISHED = {"imported": bool}, {"raised": (str, str)}, {"kept": [object], "forked": bool}
"""The forms of the answers to an import, to an import or a call that raised something, and to the last question."""


def has(told: Any, form: Any) -> bool:
    """Whether JSON has a form: a dict of forms by keys, a list of one form, a tuple of forms, a
    type, or `object` for anything.
    """
    if isinstance(form, dict):
        return type(told) is dict and told.keys() == form.keys() and all(has(told[key], form[key]) for key in form)
    if isinstance(form, tuple):
        return type(told) is list and len(told) == len(form) and all(map(has, told, form))
    if isinstance(form, list):
        return type(told) is list and all(has(each, form[0]) for each in told)
    return form is object or type(told) is form


def answers(header: dict[str, Any], data: memoryview, given: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """What is told of each call, with its arrays, by the arguments that each was given. Raises wire.NonsenseError."""
    if not has(header, {"answers": [object]}) or len(header["answers"]) != len(given):
        raise wire.NonsenseError
    found: list[dict[str, Any]] = header["answers"]
    if not all(any(has(told, form) for form in (_RETURNED, RAISED, _OTHER)) for told in found):
        raise wire.NonsenseError
    returned = [(told, arguments) for told, arguments in zip(found, given, strict=True) if "results" in told]
    values = wire.unlisted([[told["results"], told["after"]] for told, _ in returned], data)
    for (told, arguments), (results, after) in zip(returned, values, strict=True):
        told["results"], told["after"] = results, after
        if not _possible(told, arguments):
            raise wire.NonsenseError
    return found


def _possible(told: dict[str, Any], given: tuple[Any, ...]) -> bool:
    """Whether what is told of a call's results, and of arguments that it wrote to, can be so."""
    results, written, after = told["results"], told["written"], told["after"]
    places = range(len(given))
    return (
        len(results) == len(told["kinds"])
        and (told["several"] or len(results) == 1)
        and all(i in range(len(results)) and j in places for i, j in told["shares"])
        and len(written) == len(after)
        and all(j in places and _alike(given[j], x) for j, x in zip(written, after, strict=True))
    )


def _alike(x: Any, y: Any) -> bool:
    """Whether two things are arrays of one type and shape."""
    return isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and (x.dtype, x.shape) == (y.dtype, y.shape)
