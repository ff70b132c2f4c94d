"""Laws of arguments that an implementation does not support: it must refuse them, or compute the
right result.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.ball import Array
from properties.contract.aborts import AbortedError, aborts
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments, Operation
from properties.contract.results import BrokenError, RaisedError
from properties.contract.subject import Subject
from properties.contract.support import EVERY_SIZE, SIZES
from properties.laws.law import Laws
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.choices import Choices
from properties.strategies.domains import ODDITIES, usual

__all__ = ["UNDEFINED", "UNSUPPORTED", "check_refusal", "law", "results_unless_refused"]

UNSUPPORTED = "unsupported sizes are refused"
"""The name of the law that says that sizes outside of `supports` are refused."""

UNDEFINED = "It declares that calls outside of what it supports are undefined."
"""Why no call outside of `supports` is made."""

law = Laws(usual)


def check_refusal(subject: Subject, arguments: Arguments, given: str) -> bool:
    """Check that a call raises one of the exceptions that the adapter declares in `refuses`, or
    returns the right result. Return False if the adapter says that such calls are undefined: then
    the call is not made. If the adapter declares no `refuses`, every exception is right.

    `given` names the arguments in messages. If the oracle has no answer, as for a sequence of
    length 0, only a result without entries is right. The call is not recorded, because no known bug
    explains a call that may be refused.
    """
    if subject.implementation.outside == "undefined":
        return False
    operation, refuses = OPERATIONS[subject.operation], subject.implementation.refusals
    wanted = " or ".join(kind.__name__ for kind in refuses)
    if _aborts(subject, operation, arguments):
        subject.require(True, "")  # the end of the process is the refusal
        return True
    try:
        values, *_ = subject.run(operation, arguments)
    except RaisedError as raised:
        subject.require(isinstance(raised.__cause__, refuses), f"{raised} But {given} should be refused by {wanted}.")
        return True
    except BrokenError as broken:
        raise BrokenError(f"{broken} But {given} should be refused by {wanted}.") from None
    try:
        answers = subject.expected(operation, arguments)
    except ValueError:  # the conventions define no right answer
        answers = ()
    subject.require(
        answers or not any(np.size(value) for value in values),
        f"returned something for {given}, but should refuse it by {wanted}.",
    )
    wrong = f"returned something wrong for {given}, but should refuse it by {wanted}"
    for name, value, answer in zip(operation.outputs, values, answers, strict=False):
        if isinstance(answer, Enclosure):
            excess = answer.excess(value).max(initial=0.0)
            subject.require(excess <= 1, f"{wrong}: {name} is {excess:.4g} budgets off.")
        else:
            subject.require(np.array_equal(value, answer), f"{wrong}: {name} is another mask.")
    return True


def results_unless_refused(subject: Subject, arguments: Arguments) -> list[tuple[str, Array]]:
    """Return the results of a call by name. Return no results if the call raises an exception that
    the adapter declares in `refuses`.

    The call is not recorded, because the oracles refuse some of these arguments too.
    """
    operation = OPERATIONS[subject.operation]
    if _aborts(subject, operation, arguments):
        return []
    try:
        values, *_ = subject.run(operation, arguments)
    except RaisedError as raised:
        if isinstance(raised.__cause__, subject.implementation.refusals):
            return []
        raise
    return list(zip(operation.returned(arguments), values, strict=True))


def _aborts(subject: Subject, operation: Operation, arguments: Arguments) -> bool:
    """Return whether a call ends its process with SIGABRT, and the adapter declares this as a refusal."""
    implementation = subject.implementation
    return AbortedError in implementation.refusals and aborts(
        lambda: Caller(implementation, operation.name).run(operation, arguments)
    )


def _restrictions(operation: Operation, implementation: Implementation) -> dict[str, Callable[[int], bool]]:
    """Return the predicates that restrict sizes: those that the adapter declares, and those that
    follow from the conventions.
    """
    restrictions = dict(implementation.restricted)
    tensor2tensor = implementation.resolved_conventions.sinusoid_layout == "tensor2tensor"
    if operation.name == "sinusoidal_positional_encoding" and tensor2tensor:
        declared: Callable[[int], bool] = restrictions.get("embed_dim", lambda size: True)
        restrictions["embed_dim"] = lambda size: size % 2 == 0 and size != 2 and declared(size)
    return restrictions


def _promises_no_refusal(implementation: Implementation) -> str:
    """Return why no size has to be refused; "" if some have to be."""
    if implementation.refuses is None:
        return "It declares no exceptions by which it refuses a size (`refuses`)."
    if implementation.outside == "undefined":
        return UNDEFINED
    tensor2tensor = implementation.resolved_conventions.sinusoid_layout == "tensor2tensor"
    return "" if implementation.restricted or tensor2tensor else "It declares no size that it does not support."


@law(*OPERATIONS, name=UNSUPPORTED, exempts=_promises_no_refusal, effort=0.4, exact="for the exception")
def unsupported_sizes_are_refused(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every size that the implementation declares as unsupported, beside supported sizes: the
    call raises one of the exceptions declared in `refuses`, or returns the right result.
    """
    operation, implementation = OPERATIONS[subject.operation], subject.implementation
    restrictions = _restrictions(operation, implementation)
    if not restrictions:
        return False
    target = choose.among(sorted(restrictions))
    predicate = restrictions.pop(target)
    if target == EVERY_SIZE:
        sizes = sorted(name for name in operation.sizes(arguments) if name in SIZES and name != "start_pos")
        if not sizes:
            return False
        target = choose.among(sizes)
    opposite = {**restrictions, target: lambda size: not predicate(size)}
    try:
        case = Cases(operation, ODDITIES, _with_sizes(implementation, opposite)).arguments(choose)
    except UnsupportedError:
        return False
    lacks_mask = operation.name == "combine_masks" and any(mask is None for mask in case)  # it always takes two
    if lacks_mask or _with_sizes(implementation, _restrictions(operation, implementation)).takes(operation, case):
        return False
    return check_refusal(subject, case, _outside(implementation, operation, case, target))


def _outside(implementation: Implementation, operation: Operation, arguments: Arguments, target: str) -> str:
    """Return the size of a call that is not supported: "head_dim=7"."""
    sizes = implementation.sizes(operation, arguments)
    return f"{target}={sizes[target]}" if target in sizes else f"an unsupported {target}"


def _with_sizes(implementation: Implementation, sizes: dict[str, Callable[[int], bool]]) -> Implementation:
    """Return the implementation with other predicates for sizes."""
    return replace(implementation, supports=replace(implementation.support, sizes=sizes))
