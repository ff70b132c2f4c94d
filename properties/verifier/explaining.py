"""The causes of what is violated, each shown on the smallest input that is found."""

import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.wording import said
from properties.laws import find
from properties.laws.law import Law
from properties.verifier.examination import Observer
from properties.verifier.remarks import Seen, handed_over, notes
from properties.verifier.report import Cause, Diagnosis, Violation
from properties.verifier.shrinking import smallest

__all__ = ["causes_of", "diagnosed"]


def causes_of(
    implementation: Implementation,
    violations: Sequence[Violation],
    shrinks: bool = True,
    observe: Observer | None = None,
    until: float = inf,
) -> tuple[Cause, ...]:
    """The causes of violations that nobody declared: what explains them, and, if `shrinks`, a small input that shows each; after `until`,
    of time.monotonic, none is looked for.

    That is of the law by which an operation itself is compared with the oracle, if there is one, the first operation's of several, else of
    the one with the smallest input.
    """
    laws, order = [find(v.law_id)[0] for v in violations], list(OPERATIONS)
    found = []
    for places, diagnosis in _explained(implementation, list(zip(laws, violations, strict=True))):
        group = [(laws[place], replace(violations[place], diagnosis=diagnosis)) for place in places]
        law, example = min(group, key=lambda each: (not each[0].agreement, order.index(each[0].operation), each[1].size))
        searched = bool(example.calls)
        if searched and shrinks and time.monotonic() < until:
            example = _smaller(implementation, law, example, observe, until)
        worst = max((v for _, v in group), key=lambda v: v.excess)
        told = f"{worst.summary} ({worst.law})" if worst.excess > example.excess else ""
        example = _with_calls(implementation, example)
        if searched and all(d.hint for d in diagnosis):  # what explains the smallest input may be a part of what is unknown
            hints = {d.id: d for d in (*(replace(d, hint=True) for d in example.diagnosis[:1]), *diagnosis)}
            diagnosis = tuple(hints.values())
        example = replace(example, diagnosis=diagnosis).without_calls()
        found.append(Cause(implementation.name, tuple(each.id for each, _ in group), example, told, searched))
    return tuple(found)


def diagnosed(implementation: Implementation, law: Law, violation: Violation) -> Violation:
    """One violation by itself, with what explains it, on a small input."""
    ((_, diagnosis),) = _explained(implementation, [(law, violation)])
    return _with_calls(implementation, _smaller(implementation, law, replace(violation, diagnosis=diagnosis)))


def _explained(
    implementation: Implementation, violated: Sequence[tuple[Law, Violation]]
) -> Sequence[tuple[tuple[int, ...], tuple[Diagnosis, ...]]]:
    """The causes of some violations, by their places. The known bugs, which take a while, are loaded for the first one."""
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
    try:
        found = smallest(implementation, law, violation, observe, until)
        ((_, diagnosis),) = _explained(implementation, [(law, found)])
    except Exception as error:  # of the law, or of the oracle, on so small an input
        why = f"Looking for a smaller input ended with {type(error).__name__}: {said(error).rstrip('.')}."
        return replace(violation, notes=(*violation.notes, why))
    if violation.likely and violation.likely.id not in {d.id for d in diagnosis}:
        return violation
    o = OPERATIONS[law.operation]
    smaller = Seen(o.sizes(tuple(found.counterexample[p] for p in o.parameters)), held=False)
    return replace(
        found, diagnosis=diagnosis, notes=notes(found.calls, implementation, (*violation.seen, smaller) if law.agreement else ())
    )
