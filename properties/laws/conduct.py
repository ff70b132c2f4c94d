"""Laws of side effects and of the contract of a call: what it returns, what it leaves alone, and what it does not depend on."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from properties import exchange, interpreter
from properties.implementation import Implementation
from properties.law import Laws
from properties.operations import OPERATIONS
from properties.strategies.cases import CASES
from properties.strategies.twins import twin
from properties.subject import RaisedError, Subject

law = Laws()
_OF_ARRAYS = tuple(name for name, o in OPERATIONS.items() if o.takes_arrays)
_OF_ROWS = tuple(name for name in _OF_ARRAYS if name != "padding_mask")  # whose lengths have one axis, and one layout


def results_of(found: Any) -> tuple[Any, ...]:
    """The results of a call: one or several."""
    return found if isinstance(found, tuple) else (found,)


def empty(subject: Subject, found: Any) -> None:
    """The results of a call have no entries; their shapes are looked at in every call."""
    for result in results_of(found):
        size = (result if isinstance(result, np.ndarray) else result.value).size
        subject.require(size == 0, f"returned {size} entries, but should return none.")


def repeats(subject: Subject, first: Iterable[Any], again: Iterable[Any]) -> None:
    """The results of a call that was made before."""
    for a, b in zip(first, again, strict=True):
        exactly = subject.implementation.deterministic or isinstance(a, np.ndarray)
        (subject.same if exactly else subject.close)(b, a)


def _equal(a: Any, b: Any) -> bool:
    x, y = exchange.values(a), exchange.values(b)
    return bool(np.array_equal(x, y, equal_nan=True) if isinstance(x, np.ndarray) else x == y)


@law(*OPERATIONS, cases=CASES, effort=0.08, purpose="The shape, the type and the kind of array are the first that callers rely on.")
def what_it_returns_is_as_promised(subject: Subject, *arguments: Any) -> None:
    """For every case: as many arrays come back as the operation has results, of the promised kind, type and shape, and finite.

    Exact.
    """
    for result in results_of(subject(*arguments)):
        subject.finite(result)


@law(*_OF_ARRAYS, cases=CASES, effort=0.1, kills="rope-rotates-in-place")
def inputs_are_not_written(subject: Subject, *arguments: Any) -> None:
    """For every case: after the call all arguments hold what they held before, masks too. Exact."""
    o = OPERATIONS[subject.operation]
    given = subject.watch(o.name, arguments).given
    for name, before, after in zip(o.parameters, subject.given(o, arguments), given, strict=True):
        subject.require(_equal(before, after), f"{name} was written to, but should be left as it is.")


def _opaque(i: Implementation) -> str:
    return "Its arrays cannot be asked whether they share memory." if callable(i.arrays) else ""


@law(*_OF_ARRAYS, cases=CASES, exempts=_opaque, effort=0.1, kills="rope-first-position-is-its-input")
def the_result_is_no_view_of_an_input(subject: Subject, *arguments: Any) -> None:
    """For every case: no result shares memory with an argument, so that neither changes with the other. Exact."""
    o = OPERATIONS[subject.operation]
    seen = subject.watch(o.name, arguments)
    for name, returned in zip(o.outputs, seen.returned, strict=True):
        for parameter, given in zip(o.parameters, seen.given, strict=True):
            subject.require(
                not exchange.overlaps(returned, given), f"{name} shares memory with {parameter}, but should be an array of its own."
            )


@law(*OPERATIONS, cases=CASES, effort=0.1, purpose="Kernels that race, or that seed themselves, differ from call to call.")
def a_second_call_gives_the_same(subject: Subject, *arguments: Any) -> None:
    """For every case: the same call again gives the same result.

    Exact for an implementation that declares to be deterministic, else within budget.
    """
    repeats(subject, results_of(subject(*arguments)), results_of(subject(*arguments)))


@law(*OPERATIONS, cases=CASES, effort=0.2, kills="rope-reuses-its-output")
def a_call_does_not_depend_on_earlier_calls(subject: Subject, *arguments: Any) -> None:
    """For every case and a twin of the same shapes, whose results follow from the case's (keys in reverse order, rows a position later,
    arrays negated): called after the case, the twin has these results; meanwhile what the case returned stays as it is; and the case,
    called again, gives the same.

    Within budget for the twin; exact for the case of an implementation that declares to be deterministic, else within budget.
    """
    o = OPERATIONS[subject.operation]
    others, relations = twin(o.name, subject.implementation, arguments)
    first = subject.watch(o.name, arguments)
    copies = [exchange.values(x) for x in first.returned]
    second = subject.watch(o.name, others)
    for name, copy, returned in zip(o.outputs, copies, first.returned, strict=True):
        subject.require(_equal(copy, returned), f"{name} was changed by a later call, but should be an array of its own.")
    for (of_case, of_twin), a, b in zip(relations, first.results, second.results, strict=True):
        if isinstance(a, np.ndarray):
            subject.same(of_twin(b), of_case(a))
            continue
        subject.finite(a)
        subject.finite(b)
        if np.array_equal(of_case(a.value), of_twin(b.value)):
            subject.same(of_twin(b.value), of_case(a.value), a.name)
        else:
            subject.close(of_twin(b.ball), of_case(a.ball), a.name)
    repeats(subject, first.results, subject.watch(o.name, arguments).results)


@law(*OPERATIONS, cases=CASES, effort=0.08, kills="softmax-silences-numpy")
def it_prints_nothing_and_leaves_the_interpreter_alone(subject: Subject, *arguments: Any) -> None:
    """For every case: nothing is printed, and what the program has one of is as before: warning filters, NumPy's and torch's settings,
    global random numbers, the environment, the working directory and the import path. Exact.
    """
    original = interpreter.states()
    interpreter.stir()
    before = interpreter.states()
    try:
        besides = subject.watch(subject.operation, arguments).besides
        changed = interpreter.changes(before, interpreter.states())
    finally:
        interpreter.restore(original)
    subject.require(not besides, besides)
    subject.require(not changed, f"changed {' and '.join(changed)}, but should leave {'it' if len(changed) == 1 else 'them'} as before.")


def _no_layouts(i: Implementation) -> str:
    return "" if exchange.layouts(i) else "It declares no layout besides contiguous arrays."


@law(*_OF_ROWS, cases=CASES, exempts=_no_layouts, effort=0.15, kills="sdpa-noncontiguous-inputs")
def a_view_equals_its_copy(subject: Subject, *arguments: Any) -> None:
    """For every case, each array by itself and each layout in memory: an array with its last two axes exchanged in memory, with gaps
    between its rows, late in its buffer, with its rows in reverse order, or read-only, gives what its contiguous copy gives.

    Within budget. An implementation that declares no layouts may raise instead; one that declares some is given no others.
    """
    o, i = OPERATIONS[subject.operation], subject.implementation
    copies = results_of(subject(*arguments))
    subject.informative_if(any(isinstance(x, np.ndarray) and min(x.shape[-2:]) > 1 for x in arguments))
    for layout in exchange.layouts(i):
        for name, x in zip(o.parameters, arguments, strict=True):
            if not isinstance(x, np.ndarray) or x.ndim < 2:
                continue
            try:
                views = subject.call(o.name, arguments, f"{layout} {name}")
            except RaisedError as raised:
                subject.require(i.layouts is None, str(raised))
                continue
            for output, a, b in zip(o.outputs, results_of(views), copies, strict=True):
                subject.alike(a, b, f"{output} of a {layout} {name}")
