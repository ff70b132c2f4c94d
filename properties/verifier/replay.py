"""Repeats a check for the scripts in reports: a law on one case (one set of arguments), or one
call.
"""

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
    """Check a law, "law[operation]", on one case. Raises BrokenError, an AssertionError, if the law
    fails.

    `case` has the arguments of the law's call by their names. `beside` are other implementations,
    which the law may call between the calls of the implementation. Raises ValueError for an unknown
    law, and for a name that laws of several operations have.
    """
    laws = find(law)
    if len(laws) != 1:
        raise ValueError(f"{law!r} is a law of {len(laws)} operations, but should name one, as in {laws[0].id!r}.")
    implementation = implementation_of(target, arithmetic, conventions)
    others = tuple(implementation_of(other, arithmetic, conventions) for other in beside)
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
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise ValueError(f"There is no operation {shown(operation)}, but there are {', '.join(OPERATIONS)}.")
    called = OPERATIONS[operation]
    caller = Caller(implementation_of(target, arithmetic, conventions), operation)
    given = (arguments.get(name) if name in called.options else arguments[name] for name in called.parameters)
    return caller(*given, layout=layout)
