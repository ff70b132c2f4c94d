"""Laws of any call: what it returns, what it must not change, and what its result must not depend
on.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from properties.contract import conversion, process_state
from properties.contract.features import QUANTISED
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.contract.results import BrokenError, RaisedError, results_of
from properties.contract.subject import Subject
from properties.contract.support import OutsideError
from properties.laws.law import Laws
from properties.strategies import drawn_frequencies, same_shapes
from properties.strategies.axes import along
from properties.strategies.choices import Choices
from properties.strategies.domains import usual

law = Laws(usual)
_OF_ARRAYS = tuple(name for name, operation in OPERATIONS.items() if operation.takes_arrays)
_WITH_LAYOUTS = tuple(name for name in _OF_ARRAYS if name != "padding_mask")  # its lengths have one axis: one layout
_TOKENS = 16  # of a prompt, between two calls with one token
_IF_DETERMINISTIC = "if the implementation declares `deterministic`"


def check_repetition(subject: Subject, first: Iterable[Any], again: Iterable[Any]) -> None:
    """Check that a repeated call gives the same results as the first call."""
    for before, after in zip(first, again, strict=True):
        exactly = subject.implementation.deterministic or isinstance(before, np.ndarray)
        (subject.same if exactly else subject.close)(after, before)


def _equal(first: Any, second: Any) -> bool:
    a, b = conversion.values(first), conversion.values(second)
    return bool(np.array_equal(a, b, equal_nan=True) if isinstance(a, np.ndarray) else a == b)


@law(
    *OPERATIONS,
    name="all results have the declared types and shapes, and are finite",
    watches=True,
    exact=True,
)
def results_are_as_declared(subject: Subject, *arguments: Any) -> None:
    """For every test input: the call returns one array for each result of the operation, of the
    declared kind, type and shape, and with finite entries.
    """
    for result in results_of(subject(*arguments)):
        subject.finite(result)


@law(*_OF_ARRAYS, watches=True, exact=True)
def inputs_are_not_modified(subject: Subject, *arguments: Any) -> None:
    """For every test input: after the call all arguments, masks too, hold their values from before the call."""
    operation = OPERATIONS[subject.operation]
    given = subject.seen(arguments).given
    for name, before, after in zip(operation.parameters, subject.given(operation, arguments), given, strict=True):
        subject.require(_equal(before, after), f"{name} was written to, but should be left as it is.")


@law(
    *_OF_ARRAYS,
    exempts=lambda i: "Its arrays cannot be asked whether they share memory." if callable(i.arrays) else "",
    watches=True,
    exact=True,
)
def the_output_does_not_share_memory_with_an_input(subject: Subject, *arguments: Any) -> None:
    """For every test input: no result shares memory with an argument, so a change of one does not change the other."""
    operation = OPERATIONS[subject.operation]
    seen = subject.seen(arguments)
    for name, returned in zip(operation.returned(arguments), seen.returned, strict=False):
        for parameter, given in zip(operation.parameters, seen.given, strict=True):
            apart = not conversion.overlaps(returned, given)
            subject.require(apart, f"{name} shares memory with {parameter}, but should be an array of its own.")


@law(*OPERATIONS, effort=0.2, exact=_IF_DETERMINISTIC)
def a_second_call_gives_the_same_result(subject: Subject, *arguments: Any) -> None:
    """For every test input: the same call again gives the same result."""
    check_repetition(subject, results_of(subject(*arguments)), results_of(subject.call(subject.operation, arguments)))


def another(operation: Operation, implementation: Implementation, arguments: Arguments) -> tuple[Any, ...]:
    """Return other arguments of the same shapes, or the same arguments if the implementation
    supports no others.

    Arrays and masks are reversed along the last axis that has no rows of packed sequences, because rows
    that no sequence uses may be NaN. The position is one later. Without arrays
    and positions all sizes are 2 more. The nodes of a tree become roots. A kind of frequencies gets
    another factor, base and length. Scales of codes are twice as large.
    """
    given = operation.named(arguments)
    if "kind" in given:
        return tuple(drawn_frequencies.another(given, implementation).values())
    if "parents" in given:
        return tuple(along(operation, given, "n", range(len(given["parents"]))[::-1]).values())
    increments = _increments(operation, given)
    changed = tuple(
        argument
        if operation.is_length(parameter)
        else 2.0 * argument
        if parameter in QUANTISED and argument is not None
        else _changed(argument, increments.get(parameter), operation.axes.get(parameter, ())[-1:] == ("total_q",))
        for parameter, argument in given.items()
    )
    return changed if implementation.takes(operation, changed) else arguments


def _increments(operation: Operation, given: dict[str, Any]) -> dict[str, int]:
    """Return the numbers that `another` adds to parameters, by parameter."""
    if not operation.takes_arrays and "start_pos" not in given:
        return dict.fromkeys(given, 2)
    has_first_position = "table" not in given and given.get("positions") is None
    return {"start_pos": 1} if has_first_position else {}


def _changed(argument: Any, increment: int | None, ends_with_rows: bool) -> Any:
    if argument is None:
        return None
    if increment is not None:
        return argument + increment
    reverses = isinstance(argument, np.ndarray) and argument.size and argument.ndim
    return np.ascontiguousarray(np.flip(argument, -2 if ends_with_rows else -1)) if reverses else argument


@law(*OPERATIONS, exact=f"for the repeated case, {_IF_DETERMINISTIC}")
def a_call_does_not_depend_on_earlier_calls(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every test input A, and another case B with arrays of the same shapes: B, called after A,
    gives the right result; the arrays that A returned keep their values; and A, called again, gives
    the same.

    B has other numbers, or another position, mask or other settings: programs are compiled for
    these, and caches are keyed by them. A call with one token at position 0 gives the same again
    after a call with 16, and a call with one token at position 16 gives the right result. If a call
    is also wrong in other shapes, for which no program was compiled, other laws say so.
    """
    operation = OPERATIONS[subject.operation]
    try:
        subject.seen(arguments)
        subject.judge(0)
    except BrokenError:  # a wrong result of the first call says nothing about earlier calls
        return False
    first = subject.watch(operation.name, arguments)
    copies = [conversion.values(returned) for returned in first.returned]
    subject.watch(operation.name, another(operation, subject.implementation, arguments))
    subject.judge(2)
    for name, copy, returned in zip(operation.returned(arguments), copies, first.returned, strict=False):
        unchanged = _equal(copy, returned)
        subject.require(unchanged, f"{name} was changed by a later call, but should be an array of its own.")
    check_repetition(subject, first.results, subject.watch(operation.name, arguments).results)
    with suppress(OutsideError):  # the implementation takes a few shapes or masks only
        for changed in same_shapes.others(operation, subject.implementation, arguments, choose):
            _check_after_same_shapes(subject, changed)
        _check_tokens(subject, arguments)
    return True


def _check_after_same_shapes(subject: Subject, arguments: Arguments) -> None:
    """Check a call whose arrays have the shapes of an earlier call. It may be wrong if it is also wrong
    in other shapes.
    """
    try:
        subject.watch(subject.operation, arguments)
        subject.judge(len(subject.calls) - 1)
    except BrokenError:
        wrong = len(subject.calls) - 1
        again = same_shapes.elsewhere(OPERATIONS[subject.operation], subject.implementation, arguments)
        if again and all(_is_right(subject, each) for each in again):
            subject.judge(wrong)


def _check_tokens(subject: Subject, arguments: Arguments) -> None:
    """Check that a call with one token gives the same result after a call with 16, and the right one
    at the next position.
    """
    operation, implementation = OPERATIONS[subject.operation], subject.implementation
    one, several, following = (
        same_shapes.of_tokens(operation, implementation, arguments, number, position)
        for number, position in ((1, 0), (_TOKENS, 0), (1, _TOKENS))
    )
    if one is None or several is None or not _is_right(subject, one):
        return
    first = subject.answers[-1]
    with suppress(BrokenError):  # other laws say what is wrong with it
        subject.watch(operation.name, several)
    if following is not None:
        _check_after_same_shapes(subject, following)
    check_repetition(subject, first, subject.watch(operation.name, one).results)


def _is_right(subject: Subject, arguments: Arguments) -> bool:
    """Make a call; whether its result is right."""
    try:
        subject.watch(subject.operation, arguments)
        subject.judge(len(subject.calls) - 1)
    except BrokenError:
        return False
    return True


@law(
    *OPERATIONS,
    name="a call prints nothing and leaves process-wide state unchanged",
    effort=0.2,
    exact=True,
)
def a_call_leaves_the_process_unchanged(subject: Subject, *arguments: Any) -> None:
    """For every test input: the call prints nothing. It leaves the state of the process unchanged:
    warning filters, the settings of NumPy and torch, global random generators, the environment, the
    working directory and the import path.
    """
    process_state.restore(subject.original)
    process_state.stir()
    before = process_state.states()
    try:
        printed = subject.watch(subject.operation, arguments).side_effect
        changed = process_state.changes(before, process_state.states())
    finally:
        process_state.restore(subject.original)
    subject.require(not printed, printed)
    subject.require(
        not changed,
        f"changed {' and '.join(changed)}, but should leave {'it' if len(changed) == 1 else 'them'} as before.",
    )


def _no_layouts(implementation: Implementation) -> str:
    return "" if conversion.layouts(implementation) else "It declares no layout besides contiguous arrays."


@law(*_WITH_LAYOUTS, domains=lambda operation: usual(operation, "masks of sequences"), exempts=_no_layouts)
def a_view_gives_the_same_result_as_its_contiguous_copy(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every test input and every memory layout, of one array or of all arrays: the view gives
    the same result as its contiguous copy.

    The layouts exchange the last two axes, or rows and heads, in memory; leave gaps between rows;
    start late in a buffer; reverse the rows; or are read-only. An implementation that declares no
    layouts may raise instead. An implementation that declares layouts gets only these, and only
    those that its kind of arrays can have.
    """
    operation, implementation = OPERATIONS[subject.operation], subject.implementation
    named = operation.named(arguments)
    several = [name for name, x in named.items() if isinstance(x, np.ndarray) and x.ndim > 1 and min(x.shape[-2:]) > 1]
    if not several:
        return False
    copies, name = results_of(subject(*arguments)), choose.among(several)
    possible = conversion.layouts(implementation, named[name])
    taken = [layout for layout in possible if _is_handed_over(subject, arguments, f"{layout} {name}")]
    if possible and not taken:
        subject.given(operation, arguments, f"{possible[0]} {name}")  # raises an error with the reason
    for layout in taken:
        one = f"{layout} {name}"
        every = layout if _is_handed_over(subject, arguments, layout) else one
        chosen = choose.among([one, every])
        try:
            views = subject.call(operation.name, arguments, chosen)
        except RaisedError as raised:
            subject.require(implementation.layouts is None, str(raised))
            continue
        for output, view, copy in zip(operation.returned(arguments), results_of(views), copies, strict=False):
            subject.alike(view, copy, f"with {conversion.layout_in_words(chosen)}, {output}")
    return bool(taken)


def _is_handed_over(subject: Subject, arguments: Arguments, layout: str) -> bool:
    """Return whether attnspec can pass the arguments to the implementation in a memory layout."""
    with suppress(conversion.UngivenError):
        return bool(subject.given(OPERATIONS[subject.operation], arguments, layout))
    return False
