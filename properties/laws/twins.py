"""The law of twins: every path of an implementation returns what the others return."""

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import BrokenError, RaisedError, Result
from properties.contract.subject import Subject
from properties.contract.support import OutsideError
from properties.laws.conduct import another
from properties.laws.interleaving import for_both
from properties.laws.law import Laws
from properties.strategies.domains import DOMAINS

__all__ = ["TWINS", "law"]

TWINS = "twin paths agree"
"""The law's name."""

law = Laws(lambda operation: tuple(name for name in DOMAINS[operation] if name != "131072 keys"))


def _no_twins(operation: str, i: Implementation) -> str:
    return (
        ""
        if any(operation in twin.operations for twin in i.paths.values())
        else f"It names no other path of {operation}."
    )


def twin_paths_agree(subject: Subject, *arguments: Any) -> bool:
    """For every case, and each other path that the implementation names: it returns what the
    implementation returns, after another case of the same shapes.

    Within budget, the sum of both; exact where the twin is declared to be. It says nothing of a
    case on which the implementation itself is outside of its budget, which agreement tells, nor of
    one that the path does not take: one without queries or keys may be refused, by an exception
    that is declared.
    """
    told = [_agrees(subject, name, arguments) for name in subject.implementation.paths]
    return any(told)


for _name in OPERATIONS:
    law(_name, exempts=partial(_no_twins, _name), watches=True)(twin_paths_agree)


def _agrees(subject: Subject, name: str, arguments: tuple[Any, ...]) -> bool:
    """The law for one path, by its name; whether it says something of the case."""
    o, i = OPERATIONS[subject.operation], subject.implementation
    twin = i.paths[name]
    if twin.resolved_arithmetic != i.resolved_arithmetic:
        arguments = for_both(o, (i, twin), arguments)
    if o.name not in twin.operations or not (subject.takes(*arguments) and twin.takes(o, arguments)):
        return False
    try:
        own = subject.seen(arguments).results
        subject.judge(len(subject.calls) - 1)
    except (BrokenError, ValueError):  # what is wrong by itself, or has no right answer
        return False
    subject.retell()
    caller = subject.beside(twin)
    try:
        with suppress(BrokenError):
            caller.watch(o.name, another(o, twin, arguments))
        others = caller.watch(o.name, arguments).results
    except OutsideError:
        return False
    except BrokenError as broken:
        of_nothing = 0 in (n for size, n in o.sizes(arguments).items() if size in ("n_q", "n_k"))
        if of_nothing and isinstance(broken, RaisedError) and isinstance(broken.__cause__, twin.refuses):
            return False
        raise BrokenError(f"The path {name!r} {broken}", broken.excess) from broken
    for a, b in zip(own, others, strict=True):
        _compare(subject, name, a, b)
    return True


def _compare(subject: Subject, name: str, a: Any, b: Any) -> None:
    """A result of the implementation and that of a path."""
    exactly = subject.implementation.twins[name].exactly or isinstance(a, np.ndarray)
    try:
        (subject.same if exactly else subject.agree)(b, a)
    except BrokenError as broken:
        raise BrokenError(f"On the path {name!r} {broken}{_apart(a, b)}", broken.excess) from None


def _apart(a: Any, b: Any) -> str:
    """How far each of two results is from the exact one, as a sentence; "" for masks."""
    if not isinstance(a, Result):
        return ""
    own, other = (float(x.budget.excess(x.value).max(initial=0.0)) for x in (a, b))
    far = "∞" if other == np.inf else f"{other:.4g}"
    return f" By itself the path is up to {far} budgets from the exact value, and the implementation {own:.4g}."
