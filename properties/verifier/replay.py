"""Once more: a law on one case, or one call, as the scripts in reports ask for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from oracles import Arithmetic, Conventions
from properties.contract.caller import Caller
from properties.contract.implementation import implementation_of
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.contract.wording import shown
from properties.laws import find

__all__ = ["call", "replay"]


def replay(
    law: str,
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    beside: Sequence[Any] = (),
    **case: Any,
) -> None:
    """A law, "law[operation]", on one case, by the names of its entries; raises BrokenError, an
    AssertionError, where it does not hold.

    `beside` are others between whose calls a law may call the implementation.

    Raises ValueError for a law that there is not, or is one of several operations.
    """
    found = find(law)
    if len(found) != 1:
        raise ValueError(f"{law!r} is a law of {len(found)} operations, but should name one, as in {found[0].id!r}.")
    implementation = implementation_of(target, arithmetic, conventions)
    others = tuple(implementation_of(other, arithmetic, conventions) for other in beside)
    subject = Subject(replace(implementation, beside=others or implementation.beside), found[0].operation)
    found[0].hold(subject, case)


def call(
    operation: str,
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    layout: str = "contiguous",
    conventions: Conventions | None = None,
    **arguments: Any,
) -> Any:
    """What an operation returns, called as laws call it, with arrays in a layout: Results, or for a
    mask an array of booleans.

    Raises BrokenError, an AssertionError, where it raises or returns something else, and ValueError
    for an operation that there is not.
    """
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise ValueError(f"There is no operation {shown(operation)}, but there are {', '.join(OPERATIONS)}.")
    caller, o = Caller(implementation_of(target, arithmetic, conventions), operation), OPERATIONS[operation]
    return caller(*(arguments.get(p) if p in o.options else arguments[p] for p in o.parameters), layout=layout)
