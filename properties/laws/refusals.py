"""Laws of arguments that an implementation does not support: it must refuse them, or compute the
right result.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.ball import Array
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError, RaisedError
from properties.contract.subject import Subject
from properties.contract.support import EVERY_SIZE, SIZES
from properties.laws.law import Laws
from properties.strategies.cases import Cases, UnsupportedError
from properties.strategies.choices import Choices
from properties.strategies.domains import ODDITIES, usual

__all__ = ["check_refusal", "law", "results_unless_refused"]

law = Laws(usual)


def check_refusal(subject: Subject, arguments: tuple[Any, ...], given: str) -> None:
    """Check that a call raises one of the exceptions that the adapter declares in `refuses`, or
    returns the right result.

    `given` names the arguments in messages. If the oracle has no answer, as for a sequence of
    length 0, only a result without entries is right. The call is not recorded, because no known bug
    explains a call that may be refused.
    """
    operation, refuses = OPERATIONS[subject.operation], subject.implementation.refusals
    wanted = " or ".join(kind.__name__ for kind in refuses)
    try:
        values, *_ = subject.run(operation, arguments)
    except RaisedError as raised:
        subject.require(isinstance(raised.__cause__, refuses), f"{raised} But {given} should be refused by {wanted}.")
        return
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


def results_unless_refused(subject: Subject, arguments: tuple[Any, ...]) -> list[tuple[str, Array]]:
    """Return the results of a call by name. Return no results if the call raises an exception that
    the adapter declares in `refuses`.

    The call is not recorded, because the oracles refuse some of these arguments too.
    """
    operation = OPERATIONS[subject.operation]
    try:
        values, *_ = subject.run(operation, arguments)
    except RaisedError as raised:
        if isinstance(raised.__cause__, subject.implementation.refusals):
            return []
        raise
    return list(zip(operation.returned(arguments), values, strict=True))


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


def _supports_every_size(implementation: Implementation) -> str:
    tensor2tensor = implementation.resolved_conventions.sinusoid_layout == "tensor2tensor"
    return "" if implementation.restricted or tensor2tensor else "It declares no size that it does not support."


@law(*OPERATIONS, exempts=_supports_every_size, effort=0.4, exact="for the exception")
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
    check_refusal(subject, case, "sizes that are not supported")
    return True


def _with_sizes(implementation: Implementation, sizes: dict[str, Callable[[int], bool]]) -> Implementation:
    """Return the implementation with other predicates for sizes."""
    return replace(implementation, supports=replace(implementation.support, sizes=sizes))
