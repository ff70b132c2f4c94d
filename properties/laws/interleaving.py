"""A law of what calls of other sizes, and of other implementations in the same process, leave behind."""

from typing import Any

import numpy as np

from oracles import Enclosure
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws.conduct import repeats
from properties.laws.law import Laws
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices, rounded
from properties.strategies.domains import DOMAINS, usual

__all__ = ["for_both", "law"]

law = Laws(usual)
_LENGTHS = ("n_q", "n_k", "seq_len", "max_len", "rows")


@law(*OPERATIONS, effort=0.2, interleaves=True)
def instances_and_sizes_share_no_state(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every case, and another of any sizes, or of twice the length: after it the case gives the
    same again. Where there are others in the same list, or twins, one of them is called on both
    before; then it does not return either what is right for that other alone.

    Within budget; exact for the case of an implementation that declares to be deterministic, else
    within budget.
    """
    o, i = OPERATIONS[subject.operation], subject.implementation
    try:
        subject.seen(arguments)
        subject.judge(0)
    except BrokenError:  # what is wrong by itself says nothing of what came before
        return False
    first, several = subject.watch(o.name, arguments), (*i.beside, *i.paths.values())
    others = [other for other in several if o.name in other.operations and not other.unavailable]
    other = choose.among(others) if others else i
    drawn = Cases(o, DOMAINS[o.name]["everyday"], i).arguments(choose)
    elsewhere = choose.among([_doubled(o, arguments), drawn]) if other is i else for_both(o, (i, other), drawn)
    if subject.takes(*elsewhere):
        _by_turns(subject, other, elsewhere)
    if other is not i:
        subject.call_another(other, arguments)
    repeats(subject, first.results, subject.watch(o.name, arguments).results)
    return True


def _doubled(o: Operation, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments twice one after the other: every length that is more than 1 is doubled."""
    if o.is_played:  # a program says how long its arrays are
        return arguments
    found = []
    for p, x in zip(o.parameters, arguments, strict=True):
        if isinstance(x, np.ndarray):
            for back, axis in enumerate(reversed(o.axes.get(p, ())), 1):
                if axis in _LENGTHS and x.ndim >= back and x.shape[-back] > 1:
                    x = np.concatenate([x, x], -back)
            found.append(x)
        else:
            found.append(2 * x if p in _LENGTHS and x is not None and x > 1 else x)
    return tuple(found)


def for_both(o: Operation, several: tuple[Implementation, ...], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments in numbers that several implementations have."""
    for i in sorted(several, key=lambda i: i.resolved_arithmetic.inputs.unit_roundoff):
        formats = {p: o.stored(p, i.resolved_arithmetic) for p in o.arrays}
        arguments = tuple(
            rounded(x, formats[p]) if p in formats and x is not None else x
            for p, x in zip(o.parameters, arguments, strict=True)
        )
    return arguments


def _by_turns(subject: Subject, other: Implementation, arguments: tuple[Any, ...]) -> None:
    """The implementation, called after another on the same, does not return what is right for that
    one and wrong for itself.
    """
    o, alone = OPERATIONS[subject.operation], other is subject.implementation
    if not alone:
        subject.call_another(other, arguments)
    try:
        subject.watch(o.name, arguments)
        if not alone:
            subject.judge(len(subject.calls) - 1)
    except BrokenError as broken:
        call = subject.calls[-1]
        theirs = (
            () if alone or call.error or not other.takes(o, arguments) else Caller(other, o.name).expected(o, arguments)
        )
        taken = theirs and all(map(_accepts, theirs, call.outputs))
        subject.require(
            not taken,
            f"{broken} That would be right for {other.name}, which had been called on the same numbers before.",
        )


def _accepts(right: Any, found: Any) -> bool:
    """Whether an oracle's answer, or a mask, allows a result."""
    return bool((right.excess(found) <= 1).all() if isinstance(right, Enclosure) else np.array_equal(right, found))
