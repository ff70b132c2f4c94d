"""What is known of a violation besides its cause: which entries are wrong, and from which size on."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from properties.contract import exchange
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import Call, is_right
from properties.contract.wording import printable, said
from properties.verifier.report import TriedSizes, Violation

__all__ = ["failure", "handed_over", "notes", "or_note", "share_of_wrong"]

_ROOT = Path(__file__).parents[2]
_FRAMES = 12  # of a traceback, the innermost ones


def share_of_wrong(seen: Sequence[TriedSizes]) -> float:
    """The share of calls that were wrong; 1 where none was seen."""
    return sum(not each.held for each in seen) / len(seen) if seen else 1.0


def notes(calls: tuple[Call, ...], implementation: Implementation, seen: Sequence[TriedSizes]) -> tuple[str, ...]:
    """Sentences on the first result that is wrong in some calls, and on the sizes that were tried."""
    return (*_where(calls, implementation), *_from_which_size_on(seen))


def handed_over(
    case: Mapping[str, Any], operation: str, calls: tuple[Call, ...], implementation: Implementation
) -> Iterator[str]:
    """A sentence on what a law handed to the call that is wrong, or to its last one, where that is
    not the case itself: a law may scale it, cut it, or hand it over in another layout. And one on
    the type of its numbers, where that is another one than the case is shown in.
    """
    if not calls:
        return
    call = next((call for call in calls if not _is_right(call, implementation)), calls[-1])
    o = OPERATIONS[call.operation]
    given = Caller(implementation, o.name).given(o, call.arguments, call.layout)
    own = call.operation == operation and call.layout == "contiguous"
    if not own or any(not np.array_equal(case[p], x) for p, x in o.named(call.arguments).items()):
        layout = "" if call.layout == "contiguous" else f", {call.layout}"
        yield f"The call was {o.name}({', '.join(f'{p}={_brief(x)}' for p, x in o.named(given).items())}){layout}."
    elif types := sorted(
        {exchange.type_of(x) for p, x in o.named(given).items() if p in o.arrays and x is not None} - {"float64"}
    ):
        yield f"The numbers are handed over as {' and '.join(types)}."


def _is_right(call: Call, implementation: Implementation) -> bool:
    o = OPERATIONS[call.operation]
    return not call.error and is_right(call, Caller(implementation, o.name).expected(o, call.arguments))


def _brief(x: Any) -> str:
    """An argument as it is handed over: its numbers, of many the first and last ones, its type and its shape."""
    if not hasattr(x, "dtype"):
        return repr(x)
    values = np.array2string(
        exchange.values(x), separator=", ", threshold=16, edgeitems=2, floatmode="unique", max_line_width=10**9
    )
    return f"{' '.join(values.split())} {exchange.type_of(x)} {tuple(x.shape)}"


def _where(calls: tuple[Call, ...], implementation: Implementation) -> Iterator[str]:
    """Which entries of the results are outside their budgets, axis by axis, for the first call that has some."""
    for call in calls:
        operation, caller = OPERATIONS[call.operation], Caller(implementation, call.operation)
        if operation.returns_booleans or call.error:
            continue
        budgets = caller.expected(operation, call.arguments)
        for name, x, budget in zip(operation.returned(call.arguments), call.outputs, budgets, strict=False):
            wrong = budget.excess(x) > 1
            if wrong.any():
                if wrong.size > 1:
                    yield f"{name}, of shape {x.shape}, is wrong in {_described(wrong)}."
                return


def _described(wrong: Any) -> str:
    """The wrong entries of a result, by rows and channels where they do not fill it."""
    if wrong.all():
        return "every entry"
    count = f"{int(wrong.sum())} of {wrong.size} entries"
    names = (*[f"axis {a}" for a in range(wrong.ndim - 2)], "row", "channel")[-wrong.ndim :]
    parts = []
    for axis, name in enumerate(names):
        at = np.flatnonzero(wrong.any(tuple(a for a in range(wrong.ndim) if a != axis)))
        if len(at) < wrong.shape[axis]:
            parts.append(f"{name} {_ranges(at)}")
    return ", ".join((count, *parts))


def _ranges(at: Any) -> str:
    """Indices in words: one, a range, a step, or some of many."""
    if len(at) == 1:
        return str(at[0])
    steps = set(np.diff(at).tolist())
    if len(steps) == 1:
        step = steps.pop()
        return f"{at[0]} to {at[-1]}" + (f" in steps of {step}" if step > 1 else "")
    return ", ".join(map(str, at[:6])) + (" …" if len(at) > 6 else "")


def _from_which_size_on(seen: Sequence[TriedSizes]) -> Iterator[str]:
    """For each size the least at which the law was seen to fail, where smaller ones held; that
    nothing at all is right says nothing.
    """
    failed = [s.sizes for s in seen if not s.held]
    for name in failed[0] if len(failed) > 1 else ():
        least, empty = min(sizes.get(name, 0) for sizes in failed), -1 if name == "start_pos" else 0
        smaller = sum(s.held and empty < s.sizes.get(name, least) < least for s in seen)
        if smaller > 2:
            yield f"Fails from {name} = {least}; {smaller} smaller cases passed."


def failure(doing: str, error: Exception) -> str:
    """The sentences on an exception that attnspec raised while it did something: what it is, whose
    defect it is, and where it happened.
    """
    what = ": ".join(filter(None, (type(error).__name__, said(error).rstrip("."))))
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_FRAMES:])
    where = ", called from ".join(f"{_short(frame.filename)}:{frame.lineno} in {frame.name}" for frame in frames)
    defect = "This is a defect of attnspec, not of your kernel: please report it, with this traceback"
    return f"attnspec failed while {doing}: {what}. {defect}: {printable(where)}."


def or_note(violation: Violation, doing: str, work: Callable[[Violation], Violation]) -> Violation:
    """What some work makes of a violation; where attnspec fails in it, the violation with a note that says so."""
    try:
        return work(violation)
    except Exception as error:
        return replace(violation, notes=(*violation.notes, failure(doing, error)))


def _short(filename: str) -> str:
    """A file of attnspec's own from where attnspec is installed; another one as it is."""
    file = Path(filename)
    return file.relative_to(_ROOT).as_posix() if file.is_relative_to(_ROOT) else filename
