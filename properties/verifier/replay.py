"""Repeats a check: a law on one case, or one call, for the scripts in reports, and in a process that
has made no call before.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

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
    implementation = implementation_of(target, arithmetic, conventions)
    implementation = looked_at(implementation, laws[0].operation).implementation
    others = tuple(implementation_of(other, arithmetic, conventions) for other in beside)
    _make([_recorded(operation, arguments) for operation, arguments in before], implementation)
    subject = Subject(replace(implementation, beside=others or implementation.beside), laws[0].operation)
    laws[0].hold(subject, case)


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
    implementation = implementation_of(target, arithmetic, conventions)
    caller = Caller(looked_at(implementation, operation).implementation, operation)
    return caller(*recorded.arguments, layout=layout)


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
    law = find(violation.law_id)[0]
    implementation = looked_at(implementation, law.operation, observe).implementation
    _make(violation.earlier_calls, implementation, observe)
    subject = Subject(implementation, law.operation, observe)
    try:
        law.hold(subject, violation.counterexample)
    except BrokenError as broken:
        calls, case = tuple(subject.calls), violation.counterexample
        told = (*handed_over(case, violation.operation, calls, implementation), *notes(calls, implementation, ()))
        return replace(violation, summary=str(broken), excess=broken.excess, notes=told, larger=())
    return None
