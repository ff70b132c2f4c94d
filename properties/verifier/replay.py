"""Repeats a check: a law on one case, or one call, for the scripts in reports, and in a process that
has made no call before.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from oracles import Arithmetic, Conventions
from properties.contract.caller import Caller, Observer
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation, implementation_of
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.contract.support import OutsideError
from properties.contract.wording import shown
from properties.laws import find
from properties.verifier.call_record import RecordedCall
from properties.verifier.first_look import looked_at
from properties.verifier.notes import handed_over, notes
from properties.verifier.report import Violation

__all__ = ["call", "replay", "replayed"]

_T = TypeVar("_T")


def replay(
    law: str,
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    beside: Sequence[Any] = (),
    before: Sequence[tuple[str, Mapping[str, Any]]] = (),
    **case: Any,
) -> None:
    """Check a law, "law[operation]", on one case. Raises BrokenError, an AssertionError, if the law fails.

    `case` has the entries of the case by their names. `beside` are other implementations, which the
    law may call between the calls of the implementation. `before` are calls that are made first, each
    with its operation and the arguments of `call`; results and exceptions of these calls are ignored.
    Raises ValueError for an unknown law, and
    for a law of several operations.
    """
    laws = find(law)
    if len(laws) != 1:
        raise ValueError(f"{law!r} is a law of {len(laws)} operations, but should name one, as in {laws[0].id!r}.")
    others = tuple(implementation_of(other, arithmetic, conventions) for other in beside)
    earlier = [_recorded(operation, arguments) for operation, arguments in before]

    def hold(implementation: Implementation) -> None:
        _make(earlier, implementation)
        subject = Subject(replace(implementation, beside=others or implementation.beside), laws[0].operation)
        laws[0].hold(subject, case)

    _done(hold, implementation_of(target, arithmetic, conventions), laws[0].operation)


def call(
    operation: str,
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    layout: str = "contiguous",
    conventions: Conventions | None = None,
    **arguments: Any,
) -> Any:
    """Call an operation once, as the laws call it, and return the results. A mask is returned as an
    array of booleans.

    `layout` is the memory layout of the arrays. Raises BrokenError, an AssertionError, if the call
    raises or returns something that is not a result. Raises ValueError for an unknown operation.
    """
    recorded = _recorded(operation, {**arguments, "layout": layout})

    def make(implementation: Implementation) -> Any:
        return Caller(implementation, operation)(*recorded.arguments, layout=layout)

    return _done(make, implementation_of(target, arithmetic, conventions), operation)


def _done(
    act: Callable[[Implementation], _T], implementation: Implementation, name: str, observe: Observer | None = None
) -> _T:
    """Return what `act` returns for an implementation, or else for the form in which a look shows that it
    can be called. The look comes last: its calls must not be earlier calls of what is repeated.
    """
    look = partial(looked_at, implementation, name, observe)
    try:
        found = act(implementation)
    except Exception:
        if (looked := look().implementation) is implementation:
            raise
    else:
        if (looked := look().implementation) is implementation:
            return found
    return act(looked)


def _recorded(operation: Any, arguments: Mapping[str, Any]) -> RecordedCall:
    """The call of an operation with the arguments of `call`."""
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise ValueError(f"There is no operation {shown(operation)}, but there are {', '.join(OPERATIONS)}.")
    called = OPERATIONS[operation]
    given = (arguments.get(name) if name in called.options else arguments[name] for name in called.parameters)
    return RecordedCall(operation, tuple(given), arguments.get("layout", "contiguous"))


def _make(calls: Sequence[RecordedCall], implementation: Implementation, observe: Observer | None = None) -> None:
    """Make calls, and ignore what they return or raise."""
    for earlier in calls:
        caller = Caller(implementation, earlier.operation, observe)
        with suppress(BrokenError, OutsideError, UngivenError):
            caller.call(earlier.operation, earlier.arguments, earlier.layout)


def replayed(implementation: Implementation, violation: Violation, observe: Observer) -> Violation | None:
    """Return a violation as it shows after its earlier calls, with the notes on its calls. Return None
    if the law passes.
    """
    law, case = find(violation.law_id)[0], violation.counterexample

    def show(implementation: Implementation) -> Violation | None:
        _make(violation.earlier_calls, implementation, observe)
        subject = Subject(implementation, law.operation, observe)
        try:
            law.hold(subject, case)
        except BrokenError as broken:
            calls = tuple(subject.calls)
            told = (*handed_over(case, violation.operation, calls, implementation), *notes(calls, implementation, ()))
            return replace(violation, summary=str(broken), excess=broken.excess, notes=told, larger=())
        return None

    return _done(show, implementation, law.operation, observe)
