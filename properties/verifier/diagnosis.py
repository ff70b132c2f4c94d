"""The causes of what is violated, each shown on the smallest input that is found."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.laws import find
from properties.laws.law import Law
from properties.verifier.examination import Observer
from properties.verifier.notes import failure, handed_over, notes, or_note
from properties.verifier.report import Cause, Diagnosis, TriedSizes, Violation
from properties.verifier.shrinking import smallest

__all__ = ["causes_of", "diagnosed"]


def causes_of(
    implementation: Implementation,
    violations: Sequence[Violation],
    shrinks: bool = True,
    observe: Observer | None = None,
    until: float = inf,
) -> tuple[Cause, ...]:
    """The causes of violations that nobody declared: what explains them, and, if `shrinks`, a small
    input that shows each; after `until`, of time.monotonic, none is looked for.

    Where attnspec itself fails in looking for them, each operation has one cause, with a note that
    says so. The input that shows a cause is that of the law by which an operation itself is
    compared with the oracle, if there is one, the first operation's of several, else of the one
    with the smallest input.
    """
    laws, order = [find(v.law_id)[0] for v in violations], list(OPERATIONS)
    try:
        groups, why = _explained(implementation, list(zip(laws, violations, strict=True))), ""
    except Exception as error:
        groups, why = _by_operation(violations), failure("it looked for the cause", error)
    found = []
    for places, diagnosis in groups:
        group = [(laws[place], replace(violations[place], diagnosis=diagnosis)) for place in places]
        law, example = min(
            group, key=lambda each: (not each[0].agreement, order.index(each[0].operation), each[1].size)
        )
        searched = bool(example.calls) and not why
        if searched and shrinks and time.monotonic() < until:
            example = _smaller(implementation, law, example, observe, until)
        worst = max((v for _, v in group), key=lambda v: v.excess)
        told = f"{worst.summary} ({worst.law})" if worst.excess > example.excess else ""
        example = or_note(example, "it described the call", partial(_with_calls, implementation))
        example = replace(example, notes=(*example.notes, why)) if why else example
        if searched and all(
            d.hint for d in diagnosis
        ):  # what explains the smallest input may be a part of what is unknown
            hints = {d.id: d for d in (*(replace(d, hint=True) for d in example.diagnosis[:1]), *diagnosis)}
            diagnosis = tuple(hints.values())
        example = replace(example, diagnosis=diagnosis).without_calls()
        found.append(Cause(implementation.name, tuple(each.id for each, _ in group), example, told, searched))
    return tuple(found)


def diagnosed(implementation: Implementation, law: Law, violation: Violation) -> Violation:
    """One violation by itself, with what explains it, on a small input."""

    def explained(v: Violation) -> Violation:
        ((_, diagnosis),) = _explained(implementation, [(law, v)])
        return _with_calls(implementation, _smaller(implementation, law, replace(v, diagnosis=diagnosis)))

    return or_note(violation, "it looked for the cause", explained)


def _by_operation(violations: Sequence[Violation]) -> Sequence[tuple[tuple[int, ...], tuple[Diagnosis, ...]]]:
    """The places of the violations of each operation, unexplained."""
    places: dict[str, list[int]] = {}
    for place, v in enumerate(violations):
        places.setdefault(v.operation, []).append(place)
    return [(tuple(members), ()) for members in places.values()]


def _explained(
    implementation: Implementation, violated: Sequence[tuple[Law, Violation]]
) -> Sequence[tuple[tuple[int, ...], tuple[Diagnosis, ...]]]:
    """The causes of some violations, by their places. The known bugs, which take a while, are
    loaded for the first one.
    """
    if not violated:
        return []
    from properties.verifier.causes import causes

    return causes(implementation, violated)


def _with_calls(implementation: Implementation, v: Violation) -> Violation:
    """The violation with what was handed over among its notes."""
    return replace(v, notes=(*handed_over(v.counterexample, v.operation, v.calls, implementation), *v.notes))


def _smaller(
    implementation: Implementation, law: Law, violation: Violation, observe: Observer | None = None, until: float = inf
) -> Violation:
    """The violation on a smaller input, where it has the same cause; else as it is."""

    def smaller(v: Violation) -> Violation:
        found = smallest(implementation, law, v, observe, until)
        ((_, diagnosis),) = _explained(implementation, [(law, found)])
        if v.likely and v.likely.id not in {d.id for d in diagnosis}:
            return v
        o = OPERATIONS[law.operation]
        seen = (
            (*v.seen, TriedSizes(o.sizes(tuple(found.counterexample[p] for p in o.parameters)), held=False))
            if law.agreement
            else ()
        )
        return replace(found, diagnosis=diagnosis, notes=notes(found.calls, implementation, seen))

    return or_note(violation, "it looked for a smaller input", smaller)
