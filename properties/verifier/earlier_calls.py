"""Finds the earlier calls after which a counterexample fails, by replaying it in fresh processes.

Most counterexamples fail in a fresh process, and nothing else is tried. If one passes there, earlier
calls changed the result, or the kernel is not deterministic. Then the search goes on:

(1) The larger inputs from which the counterexample was shrunk: if the first one fails in a fresh
    process, only the smaller inputs need earlier calls. The smallest that fails alone is taken.
(2) The recorded calls: calls with arrays of the same shapes, first single ones, and the counterexample
    with ones for its numbers; then the last 1, 4, 16 … calls.
(3) Of the first sequence after which the counterexample fails, parts are left out, halves first,
    while it still fails. A single call is made more like the counterexample, one argument at a time.
(4) The counterexample must fail twice after earlier calls, and alone pass once more. Otherwise the
    kernel is not deterministic.

A known bug that needs no earlier calls is then no cause, and all causes of one operation that need
earlier calls are one.

A search takes at most 32 processes and 60 seconds. Calls of other implementations and of other
processes are not recorded, so state that they leave is not found.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from properties.contract.operations import OPERATIONS
from properties.verifier.call_record import RecordedCall
from properties.verifier.report import Cause, Diagnosis, Violation

__all__ = ["InconclusiveError", "Replay", "merged", "reproduced"]

Replay = Callable[[Violation], Violation | None]
"""Replays a violation after its earlier calls in a fresh process: the violation that is seen there, or
None if the law passes. Raises InconclusiveError.
"""

_MOST_PROCESSES, _MOST_SECONDS = 32, 60.0  # of one search
_CONFIRMING = 2  # processes that the last step takes, also after the limits
_MOST_SUFFIXES = 10  # the longest has 4⁹ calls
_MOST_DESCRIBED = 3  # earlier calls, in a sentence
_NOT_REPRODUCED = (
    "It failed in this run and passes in a fresh process; no sequence of the recorded calls reproduces it."
)
_LAW = "a call does not depend on earlier calls"
_AT_LIMIT = " The search ended at its limit of processes or of time."


class InconclusiveError(Exception):
    """A replay neither passed nor failed: its process could not start, or something else ended it."""


class _LimitError(Exception):
    """The search has taken all its processes or all its time."""


def reproduced(violation: Violation, history: Sequence[RecordedCall], replay: Replay, until: float) -> Violation:
    """Return a violation that fails in a fresh process: unchanged if it does so alone; else on a larger
    input, or with the earlier calls that it needs. If none is found, a sentence says so, and the
    violation has no script.

    `history` holds the calls of the process that found the violation, in order. After `until`, a
    reading of time.monotonic, only the first replay is made.
    """
    search = _Search(replay, min(until, time.monotonic() + _MOST_SECONDS))
    try:
        if replay(violation) is not None:
            return violation
        found, limit = search.result(violation, history), ""
    except InconclusiveError:
        return violation
    except _LimitError:
        found, limit = None, _AT_LIMIT
    found = found or replace(violation, script="", measured=(), on_earlier_calls=_NOT_REPRODUCED + limit)
    return replace(found, diagnosis=_with_memory(found.diagnosis)) if found.on_earlier_calls else found


def _with_memory(diagnosis: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """The known bugs that need earlier calls, of some explanations. They take a while to load, so they
    are loaded only here.
    """
    from properties.bugs import CATALOGUE

    return tuple(each for each in diagnosis if each.id in CATALOGUE and CATALOGUE[each.id].remembers)


def merged(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Return the causes, with all causes of one operation as one whose examples need earlier calls, or
    are about earlier calls. It has the example that fails after recorded calls, and a known bug.
    """
    groups: dict[str, list[Cause]] = {}
    for cause in causes:
        if cause.example.on_earlier_calls or cause.example.law == _LAW:
            groups.setdefault(cause.example.operation, []).append(cause)
    found = list(causes)
    for group in groups.values():
        if len(group) > 1 and any(cause.example.on_earlier_calls for cause in group):
            best = min(group, key=lambda cause: (not cause.example.earlier_calls, not cause.likely))
            laws = tuple(dict.fromkeys(law for cause in (best, *group) for law in cause.laws))
            found = [cause for cause in found if not any(cause is other for other in group if other is not best)]
            found[next(place for place, cause in enumerate(found) if cause is best)] = replace(best, laws=laws)
    return tuple(found)


@dataclass
class _Search:
    """A search for what makes a counterexample fail in a fresh process, within limits."""

    replay: Replay
    until: float
    taken: int = 1  # processes

    def result(self, violation: Violation, history: Sequence[RecordedCall]) -> Violation | None:
        """The violation on a larger input that fails alone, or after earlier calls; None if neither fails."""
        return self._on_a_larger_input(violation) or self._after_earlier_calls(violation, history)

    def _try(self, violation: Violation, calls: Sequence[RecordedCall] = ()) -> Violation | None:
        """Replay a violation after some calls. Raises _LimitError."""
        if self.taken >= _MOST_PROCESSES - _CONFIRMING or time.monotonic() >= self.until:
            raise _LimitError
        self.taken += 1
        return self.replay(replace(violation, earlier_calls=tuple(calls)))

    def _on_a_larger_input(self, violation: Violation) -> Violation | None:
        """The violation on the last input of the shrinking that fails alone, found by bisection."""
        inputs = [replace(violation, counterexample=case) for case in violation.larger]
        best = self._try(inputs[0]) if inputs else None
        fails, passes = 0, len(inputs)
        while best is not None and passes - fails > 1:
            middle = (fails + passes) // 2
            found = self._try(inputs[middle])
            best, fails, passes = (best, fails, middle) if found is None else (found, middle, passes)
        return best

    def _after_earlier_calls(self, violation: Violation, history: Sequence[RecordedCall]) -> Violation | None:
        """The violation after the shortest sequence of recorded calls that is found."""
        failed: list[Violation] = []

        def fails(calls: Sequence[RecordedCall]) -> bool:
            found = self._try(violation, calls)
            failed.extend([found] if found else [])
            return found is not None

        own = _own_call(violation)
        calls = next(filter(fails, _sequences(_before(history, own), own)), None)
        if calls is None:
            return None
        with suppress(_LimitError):
            for shorter in _shortened(calls, fails):
                calls = shorter
            if len(calls) == 1:
                calls = next(([call] for call in _nearer(calls[0], own) if fails([call])), calls)
        again = len(failed) > 1 or self.replay(failed[-1]) is not None
        if not again or self.replay(violation) is not None:
            return None
        return replace(failed[-1], measured=(), on_earlier_calls=_sentence(calls, own))


def _own_call(violation: Violation) -> RecordedCall:
    """The call of the operation on the counterexample itself."""
    arguments = tuple(violation.counterexample.get(name) for name in OPERATIONS[violation.operation].parameters)
    return RecordedCall(violation.operation, arguments)


def _before(history: Sequence[RecordedCall], own: RecordedCall) -> Sequence[RecordedCall]:
    """The calls before the last call on the counterexample; all calls if it was never called itself."""
    places = (place for place in reversed(range(len(history))) if not _differing(history[place], own))
    return history[: next(places, len(history))]


def _sequences(history: Sequence[RecordedCall], own: RecordedCall) -> Iterator[Sequence[RecordedCall]]:
    """The sequences of recorded calls that are tried: calls with arrays of the same shapes, first single
    calls that differ in most arguments; then the last calls.
    """
    same_shapes = [call for call in history if _shapes(call) == _shapes(own) and _differing(call, own)]
    most = max((len(_differing(call, own)) for call in same_shapes), default=0)
    unlike = [call for call in same_shapes if len(_differing(call, own)) == most]
    other_numbers = replace(own, arguments=tuple(_other_numbers(own)))
    candidates: list[Sequence[RecordedCall]] = [unlike[:1], unlike[-1:], [other_numbers]]
    candidates += [same_shapes[:1], same_shapes[-1:], same_shapes]
    candidates += [history[-(4**power) :] for power in range(_MOST_SUFFIXES) if 4**power < 4 * len(history)]
    tried: set[tuple[int, ...]] = {()}
    for candidate in candidates:
        if (key := tuple(map(id, candidate))) not in tried:
            tried.add(key)
            yield candidate


def _other_numbers(own: RecordedCall) -> Iterator[Any]:
    """The arguments of a call with ones in its arrays of numbers, or zeros in an array of ones."""
    operation = OPERATIONS[own.operation]
    for name, value in operation.named(own.arguments).items():
        is_changed = name in operation.arrays and name not in operation.options
        yield np.full(value.shape, float(not (value == 1).all())) if is_changed else value


def _shortened(
    calls: Sequence[RecordedCall], fails: Callable[[Sequence[RecordedCall]], bool]
) -> Iterator[Sequence[RecordedCall]]:
    """Ever shorter sequences that fail, by delta debugging: of 2, 4, 8 … parts, keep one that suffices,
    or leave out one that is not needed.
    """
    kept, parts = list(calls), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        starts = range(0, len(kept), size)
        alone = [(kept[start : start + size], 2) for start in starts]
        others = [(kept[:start] + kept[start + size :], parts - 1) for start in starts] if parts > 2 else []
        shorter = next((each for each in (*alone, *others) if fails(each[0])), None)
        if shorter is not None:
            kept, parts = shorter
            yield kept
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(kept))


def _nearer(call: RecordedCall, own: RecordedCall) -> Iterator[RecordedCall]:
    """Calls between the counterexample and an earlier call with arrays of the same shapes: the
    counterexample with one argument of the earlier call, and the counterexample itself.
    """
    if _shapes(call) != _shapes(own) or len(differing := _differing(call, own)) < 2:
        return
    operation = OPERATIONS[own.operation]
    settings = [name for name in differing if name not in (*operation.arrays, "layout")]
    arrays = [name for name in reversed(differing) if name in operation.arrays]
    for name in (*settings, *arrays):
        place = operation.parameters.index(name)
        yield replace(own, arguments=(*own.arguments[:place], call.arguments[place], *own.arguments[place + 1 :]))
    yield own


def _shapes(call: RecordedCall) -> tuple[Any, ...]:
    """The operation and the shapes of its arrays of numbers that every call has."""
    operation = OPERATIONS[call.operation]
    given = operation.named(call.arguments)
    return call.operation, *(np.shape(given[name]) for name in operation.arrays if name not in operation.options)


def _differing(call: RecordedCall, own: RecordedCall) -> tuple[str, ...]:
    """The names of the parameters in which two calls differ, or "operation" or "layout"."""
    if call.operation != own.operation:
        return ("operation",)
    names = OPERATIONS[own.operation].parameters
    pairs = zip(names, call.arguments, own.arguments, strict=False)
    layout = ("layout",) if call.layout != own.layout else ()
    return (*(name for name, one, other in pairs if not _equal(one, other)), *layout)


def _equal(one: Any, other: Any) -> bool:
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return type(one) is type(other) and bool(one == other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _sentence(calls: Sequence[RecordedCall], own: RecordedCall) -> str:
    """The sentence on the earlier calls that the counterexample needs."""
    if len(calls) == 1:
        return f"The result is wrong only after an earlier call: {_compared(calls[0], own)}."
    described = [_described(call) for call in calls[:_MOST_DESCRIBED]]
    more = f"; and {len(calls) - len(described)} more" if len(calls) > len(described) else ""
    return f"The result is wrong only after {len(calls)} earlier calls: {'; '.join(described)}{more}."


def _compared(call: RecordedCall, own: RecordedCall) -> str:
    """An earlier call in words, by its differences from the counterexample if its arrays have the same shapes."""
    if _shapes(call) != _shapes(own) or call.layout != own.layout:
        return _described(call)
    given, here = (OPERATIONS[own.operation].named(each.arguments) for each in (call, own))
    changes = [_change(name, given[name], here[name]) for name in _differing(call, own)]
    return f"the same call {' and '.join(changes)}" if changes else "the same call, made before"


def _change(name: str, earlier: Any, here: Any) -> str:
    """How an argument of an earlier call differs: "with a mask of shape (1, 8) instead of (4, 8)"."""
    if earlier is None:
        return f"without {name}"
    if not isinstance(earlier, np.ndarray):
        return f"with {name}={earlier!r} instead of {here!r}"
    article = "a " if name == "mask" else ""
    if here is None:
        return f"with {article}{name} of shape {earlier.shape} instead of none"
    if not isinstance(here, np.ndarray) or earlier.shape != here.shape:
        return f"with {article}{name} of shape {earlier.shape} instead of {getattr(here, 'shape', here)}"
    return f"with other values in {name}"


def _described(call: RecordedCall) -> str:
    """A call in words: "rope(x of shape (1, 2), start_pos=3)"."""
    given = OPERATIONS[call.operation].named(call.arguments)
    arguments = (
        f"{name} of shape {value.shape}" if isinstance(value, np.ndarray) else f"{name}={value!r}"
        for name, value in given.items()
        if value is not None
    )
    return f"{call.operation}({', '.join(arguments)})"
