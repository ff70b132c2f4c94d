"""Checks the answers of the process that runs an untrusted kernel. If an answer does not have the
expected form, the process is ended.
"""

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

IMPORTED, RAISED = {"imported": bool}, {"raised": (str, str)}
FINISHED = {"kept": [object], "forked": bool, "used": [str], "replaced": [str]}
"""The forms of three answers: a successful import; an exception of an import or a call; the last answer."""


def has(value: Any, form: Any) -> bool:
    """Return whether a JSON value has the form `form`.

    A form is a dict from keys to forms, a list with one form for all items, a tuple of forms, a
    type, or `object` for anything.
    """
    if isinstance(form, dict):
        return type(value) is dict and value.keys() == form.keys() and all(has(value[key], form[key]) for key in form)
    if isinstance(form, tuple):
        return type(value) is list and len(value) == len(form) and all(map(has, value, form))
    if isinstance(form, list):
        return type(value) is list and all(has(each, form[0]) for each in value)
    return form is object or type(value) is form


def answers(header: dict[str, Any], data: memoryview, given: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return the answer to each call, with its arrays. `given` are the arguments of the calls.
    Raises wire.NonsenseError for an answer of another form.
    """
    if not has(header, {"answers": [object]}) or len(header["answers"]) != len(given):
        raise wire.NonsenseError
    all_answers: list[dict[str, Any]] = header["answers"]
    if not all(any(has(answer, form) for form in (_RETURNED, RAISED, _OTHER)) for answer in all_answers):
        raise wire.NonsenseError
    returned = [
        (answer, arguments) for answer, arguments in zip(all_answers, given, strict=True) if "results" in answer
    ]
    values = wire.unlisted([[answer["results"], answer["after"]] for answer, _ in returned], data)
    for (answer, arguments), (results, after) in zip(returned, values, strict=True):
        answer["results"], answer["after"] = results, after
        if not _possible(answer, arguments):
            raise wire.NonsenseError
    return all_answers


def _possible(answer: dict[str, Any], arguments: tuple[Any, ...]) -> bool:
    """Return whether the parts of an answer fit together, and fit the arguments of the call."""
    results, written, after = answer["results"], answer["written"], answer["after"]
    places = range(len(arguments))
    return (
        len(results) == len(answer["kinds"])
        and (answer["several"] or len(results) == 1)
        and all(result in range(len(results)) and argument in places for result, argument in answer["shares"])
        and len(written) == len(after)
        and all(
            argument in places and _alike(arguments[argument], array)
            for argument, array in zip(written, after, strict=True)
        )
    )


def _alike(first: Any, second: Any) -> bool:
    """Return whether two values are arrays of the same type and shape."""
    return (
        isinstance(first, np.ndarray)
        and isinstance(second, np.ndarray)
        and (first.dtype, first.shape) == (second.dtype, second.shape)
    )
