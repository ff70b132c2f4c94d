"""The law of twins: every code path of an implementation, such as compiled code, gives the same
result.
"""

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments
from properties.contract.results import BrokenError, RaisedError, Result
from properties.contract.subject import Subject
from properties.contract.support import OutsideError
from properties.laws.call_contract import another
from properties.laws.law import Laws
from properties.laws.shared_state import for_both
from properties.strategies.domains import DOMAINS

__all__ = ["TWINS", "law"]

TWINS = "all code paths of an implementation give the same result"
"""The law's name."""

law = Laws(lambda operation: tuple(name for name in DOMAINS[operation] if name != "131072 keys"))


def _no_twins(operation: str, implementation: Implementation) -> str:
    offered = any(operation in twin.operations for twin in implementation.paths.values())
    return "" if offered else f"It names no other path of {operation}."


def check_twins(subject: Subject, *arguments: Any) -> bool:
    """For every test input, and each other path that the implementation names in `twins`: the path
    returns the result of the implementation, after a call on another case of the same shapes.

    The results may differ by the sum of both error limits. A case cannot test the law if the
    implementation itself exceeds its error limit there, which agreement reports, or if the path
    does not take the case. A path may refuse a case without queries or keys by a declared
    exception.
    """
    tested = [_agrees(subject, name, arguments) for name in subject.implementation.paths]
    return any(tested)


for _name in OPERATIONS:
    law(
        _name,
        name=TWINS,
        exempts=partial(_no_twins, _name),
        watches=True,
        exact="where the twin is declared as `exactly` equal",
    )(check_twins)


def _agrees(subject: Subject, name: str, arguments: Arguments) -> bool:
    """Check the law for the code path of this name. Return False if the arguments cannot test it."""
    operation, implementation = OPERATIONS[subject.operation], subject.implementation
    twin = implementation.paths[name]
    if twin.resolved_arithmetic != implementation.resolved_arithmetic:
        arguments = for_both(operation, (implementation, twin), arguments)
    taken = subject.takes(*arguments) and twin.takes(operation, arguments)
    if operation.name not in twin.operations or not taken:
        return False
    try:
        own = subject.seen(arguments).results
        subject.judge(len(subject.calls) - 1)
    except (BrokenError, ValueError):  # the implementation is wrong itself, or there is no right answer
        return False
    subject.retell()
    caller = subject.beside(twin)
    try:
        with suppress(BrokenError):
            caller.watch(operation.name, another(operation, twin, arguments))
        others = caller.watch(operation.name, arguments).results
    except OutsideError:
        return False
    except BrokenError as broken:
        empty = 0 in (length for size, length in operation.sizes(arguments).items() if size in ("n_q", "n_k"))
        if empty and isinstance(broken, RaisedError) and isinstance(broken.__cause__, twin.refusals):
            return False
        raise BrokenError(f"The path {name!r} {broken}", broken.excess) from broken
    for mine, other in zip(own, others, strict=True):
        _compare(subject, name, mine, other)
    return True


def _compare(subject: Subject, name: str, mine: Any, other: Any) -> None:
    """Compare a result of the implementation with the same result of another code path."""
    exactly = subject.implementation.twins[name].exactly or isinstance(mine, np.ndarray)
    try:
        (subject.same if exactly else subject.agree)(other, mine)
    except BrokenError as broken:
        raise BrokenError(f"On the path {name!r} {broken}{_errors(mine, other)}", broken.excess) from None


def _errors(mine: Any, other: Any) -> str:
    """Return a sentence with the errors of both results against the exact value; "" for masks."""
    if not isinstance(mine, Result):
        return ""
    own, path = (float(result.budget.excess(result.value).max(initial=0.0)) for result in (mine, other))
    far = "∞" if path == np.inf else f"{path:.4g}"
    return f" By itself the path is up to {far} budgets from the exact value, and the implementation {own:.4g}."
