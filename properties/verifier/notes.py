"""Writes the notes of a violation (failed law): which entries are wrong, from which size on the law
fails, which arguments the call got, and where attnspec itself failed.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from properties.contract import conversion
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import Call, is_right
from properties.contract.wording import printable, said
from properties.verifier.report import TriedSizes, Violation

__all__ = ["failure", "handed_over", "notes", "or_note"]

_ROOT = Path(__file__).parents[2]
_INNERMOST_FRAMES = 12  # shown of a traceback
_FEW = 2  # test inputs of a size: that they pass says nothing
_MOST_SIZES = 6  # named in a note


def notes(calls: tuple[Call, ...], implementation: Implementation, seen: Sequence[TriedSizes]) -> tuple[str, ...]:
    """Return sentences about the first wrong result of some calls, and about the sizes that were
    tried.
    """
    return (*_wrong_entries(calls, implementation), *_smallest_failing_sizes(seen))


def handed_over(
    case: Mapping[str, Any], operation: str, calls: tuple[Call, ...], implementation: Implementation
) -> Iterator[str]:
    """Yield a sentence about the arguments of the first wrong call, or else of the last call, if
    they differ from the case (the law's own arguments). A law may scale, cut, or copy them to
    another memory layout.

    If they do not differ, yield a sentence about the type of the numbers, if the case is shown in
    another type.
    """
    if not calls:
        return
    call = next((one for one in calls if not _is_right(one, implementation)), calls[-1])
    called = OPERATIONS[call.operation]
    arguments = Caller(implementation, called.name).given(called, call.arguments, call.layout)
    given = called.named(arguments)
    is_own = call.operation == operation and call.layout == "contiguous"
    if not is_own or any(not np.array_equal(case[name], x) for name, x in called.named(call.arguments).items()):
        layout = "" if call.layout == "contiguous" else f", with {conversion.layout_in_words(call.layout)}"
        shown = ", ".join(f"{name}={_brief(value)}" for name, value in given.items())
        yield f"The call was {called.name}({shown}){layout}."
        return
    arrays = [value for name, value in given.items() if name in called.arrays and value is not None]
    if types := sorted({conversion.type_of(value) for value in arrays} - {"float64"}):
        yield f"The call got the numbers as {' and '.join(types)}."


def _is_right(call: Call, implementation: Implementation) -> bool:
    operation = OPERATIONS[call.operation]
    return not call.error and is_right(call, Caller(implementation, operation.name).expected(operation, call.arguments))


def _brief(value: Any) -> str:
    """Return a short text for an argument: its numbers, or the first and last of many, its type and
    its shape.
    """
    if not hasattr(value, "dtype"):
        return repr(value)
    numbers = np.array2string(
        conversion.values(value), separator=", ", threshold=16, edgeitems=2, floatmode="unique", max_line_width=10**9
    )
    return f"{' '.join(numbers.split())} {conversion.type_of(value)} {tuple(value.shape)}"


def _wrong_entries(calls: tuple[Call, ...], implementation: Implementation) -> Iterator[str]:
    """Yield a sentence about the wrong entries of the first call that has some, axis by axis. A
    wrong entry is outside its budget (error limit).
    """
    for call in calls:
        operation, caller = OPERATIONS[call.operation], Caller(implementation, call.operation)
        if operation.is_exact or call.error:
            continue
        budgets = caller.expected(operation, call.arguments)
        for name, output, budget in zip(operation.returned(call.arguments), call.outputs, budgets, strict=False):
            wrong = budget.excess(output) > 1
            if wrong.any():
                if wrong.size > 1:
                    last = ("row",) if operation.is_log_sum_exp(name) else ("row", "channel")
                    yield f"{name}, of shape {output.shape}, is wrong in {_described(wrong, last)}."
                return


def _described(wrong: Any, last: Sequence[str]) -> str:
    """Return the wrong entries of a result in words: their number, and the rows and channels that
    contain some. Rows or channels are left out if all of them do. `last` are the names of the last
    axes.
    """
    if wrong.all():
        return "every entry"
    count = f"{int(wrong.sum())} of {wrong.size} entries"
    names = (*[f"axis {axis}" for axis in range(wrong.ndim - len(last))], *last)[-wrong.ndim :]
    parts = []
    for axis, name in enumerate(names):
        indices = np.flatnonzero(wrong.any(tuple(other for other in range(wrong.ndim) if other != axis)))
        if len(indices) < wrong.shape[axis]:
            plural = len(indices) > 1
            parts.append(
                f"{'indices' if plural else 'index'} {_ranges(indices)} of {name}"
                if name.startswith("axis")
                else f"{name}{'s' if plural else ''} {_ranges(indices)}"
            )
    return f"{count}: {'; '.join(parts)}" if parts else count


def _ranges(indices: Any) -> str:
    """Return indices in words: a range, or the first of many."""
    if len(indices) > 2 and (np.diff(indices) == 1).all():
        return f"{indices[0]} to {indices[-1]}"
    return ", ".join(map(str, indices[:6])) + (" …" if len(indices) > 6 else "")


def _smallest_failing_sizes(seen: Sequence[TriedSizes]) -> Iterator[str]:
    """Yield a sentence for each size: below which value of it the law passed, and with which larger
    values it passed too.

    An empty input is always right, so it does not count as a smaller one. One key says nothing either:
    in nearly every kernel its weight is 1.
    """
    failing = [tried.sizes for tried in seen if not tried.passed]
    for name in failing[0] if len(failing) > 1 else ():
        least, empty = min(sizes.get(name, 0) for sizes in failing), -1 if name == "start_pos" else 0
        passing = Counter(tried.sizes.get(name, least) for tried in seen if tried.passed)
        smaller = sum(number for size, number in passing.items() if empty < size < least)
        if smaller > _FEW and (name, least) != ("n_k", 2):
            span = f"from {empty + 1} to {least - 1}" if least - 1 > empty + 1 else f"= {least - 1}"
            right = {size for size, number in passing.items() if number > _FEW and size > least}
            larger = sorted(right - {sizes.get(name) for sizes in failing})
            also = f"; so do those with {', '.join(map(str, larger))}" if 0 < len(larger) <= _MOST_SIZES else ""
            yield f"All {smaller} test inputs with {name} {span} pass{also}."


def failure(doing: str, error: Exception) -> str:
    """Return sentences about an exception in attnspec's own code: what attnspec was doing, what was
    raised and where, and that your kernel is not to blame.
    """
    what = ": ".join(filter(None, (type(error).__name__, said(error).rstrip("."))))
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_INNERMOST_FRAMES:])
    where = ", called from ".join(f"{_short(frame.filename)}:{frame.lineno} in {frame.name}" for frame in frames)
    defect = "This is a defect of attnspec, not of your kernel: please report it, with this traceback"
    return f"attnspec failed while {doing}: {what}. {defect}: {printable(where)}."


def or_note(violation: Violation, doing: str, work: Callable[[Violation], Violation]) -> Violation:
    """Return the result of some work on a violation. If attnspec itself fails in this work, return
    the violation with a note of the failure.
    """
    try:
        return work(violation)
    except Exception as error:
        return replace(violation, notes=(*violation.notes, failure(doing, error)))


def _short(filename: str) -> str:
    """Return the path of a file of attnspec, relative to the folder in which attnspec is installed.
    Return other paths unchanged.
    """
    file = Path(filename)
    return file.relative_to(_ROOT).as_posix() if file.is_relative_to(_ROOT) else filename
