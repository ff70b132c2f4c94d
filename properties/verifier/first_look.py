"""Looks, by a few calls, at how an implementation without declarations can be called: with which
arrays, and at which sizes.

The look changes how attnspec calls the functions. It never changes what their results should be,
except for the number format: a kernel that takes no float64 is judged in the widest type it takes.

Process-wide state that a call of the look changes is restored, so that the law of this state sees the
change at a later call.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from properties import interpreters
from properties.contract import process_state
from properties.contract.caller import Caller, Observer
from properties.contract.conversion import UngivenError
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments
from properties.contract.results import BrokenError
from properties.contract.support import OutsideError
from properties.contract.tried_calls import NotTaken
from properties.inspection.form_search import NoFormError, form_of
from properties.inspection.forms import Form
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.domains import DOMAINS

__all__ = ["Look", "looked_at", "narrowed"]

_MOST_CALLS = 30


@dataclass(frozen=True)
class Look:
    """An implementation as it can be called, and what it does not take of the usual arrays."""

    implementation: Implementation
    not_taken: tuple[NotTaken, ...] = ()


def looked_at(implementation: Implementation, name: str, observe: Observer | None = None) -> Look:
    """Return the implementation with the arrays, the number type and the results that its function
    for an operation shows.

    The simplest everyday call decides: if it returns what the contract says, nothing changes.
    Otherwise at most 30 further calls are made. An `Implementation` that declares `supports` is
    returned unchanged.
    """
    operation = OPERATIONS[name]
    if implementation.support.declared or implementation.unavailable or operation.is_played:
        return Look(implementation)
    try:
        arguments = Cases(operation, DOMAINS[name]["everyday"], implementation).draw(0)
    except UnsupportedError:
        return Look(implementation)
    error = _error_of(implementation, name, arguments, observe)
    if not error:
        return Look(implementation)
    form = _form_of(implementation.operations[name], name, observe)
    if form is None:
        return Look(implementation)
    made = form.implementation(implementation.name, implementation.operations[name])
    changes: dict[str, Any] = {"supports": replace(implementation.support, sums=made.support.sums)}
    found: list[NotTaken] = []
    if "arrays" in implementation.undeclared and form.arrays != "numpy":
        changes["arrays"] = made.arrays
        found.append(NotTaken(name, "the first call, with NumPy arrays", error, 1))
    if "arithmetic" in implementation.undeclared and form.dtype != "float64":
        changes["arithmetic"] = made.arithmetic
        reasons = {refusal.what: refusal.error.rstrip(".") for refusal in form.refusals}
        calls = 0 if interpreters.is_interpreting() else 1
        found.append(NotTaken(name, "float64 arrays", reasons.get("float64", error), calls))
    if not made.support.sums:
        found.append(NotTaken(name, "log-sum-exp", "it returns the output alone", 0))
    return Look(replace(implementation, **changes), tuple(found))


def narrowed(implementation: Implementation, name: str, observe: Observer | None = None) -> Implementation:
    """Return an implementation without declarations, restricted to the sizes and the leading axes
    that trial calls show. It is returned unchanged if no call works.
    """
    form = None if OPERATIONS[name].is_played else _form_of(implementation.operations[name], name, observe)
    if form is None:
        return implementation
    made = form.implementation(implementation.name, implementation.operations[name])
    support = replace(implementation.support, sizes=made.support.sizes)
    return replace(implementation, supports=support, batch_ranks=made.batch_ranks)


@process_state.restored()
def _error_of(implementation: Implementation, name: str, arguments: Arguments, observe: Observer | None) -> str:
    """Return why a call fails; "" if it returns something in the form that the contract says."""
    try:
        Caller(implementation, name, observe).call(name, arguments)
    except (BrokenError, OutsideError, UngivenError) as error:
        return str(error).removeprefix("raised ").rstrip(".")
    return ""


@process_state.restored()
def _form_of(function: Callable[..., Any], name: str, observe: Observer | None) -> Form | None:
    """Return how a function can be called; None if no call works."""
    try:
        return form_of(function, name, calls=_MOST_CALLS, observe=observe)
    except NoFormError:
        return None
