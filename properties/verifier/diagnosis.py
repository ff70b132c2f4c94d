"""Finds the causes of violations (failed laws), and shows each cause on the smallest input that
attnspec finds. Measures the kernel where no cause is recognised.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf

from properties.contract.caller import Observer
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.inspection.measurements import measured
from properties.laws import find
from properties.laws.law import Law
from properties.verifier.arithmetics import AS_IF
from properties.verifier.first_look import looked_at
from properties.verifier.notes import failure, handed_over, notes, or_note
from properties.verifier.report import Cause, Diagnosis, TriedSizes, Violation
from properties.verifier.shrinking import smallest

__all__ = ["causes_of", "diagnosed"]

_TOO_LARGE = "attnspec did not search for a cause, because the input has more than four million numbers."

_Group = tuple[tuple[int, ...], tuple[Diagnosis, ...]]
"""The places of some violations in a list, and what explains them."""


def causes_of(
    implementation: Implementation,
    violations: Sequence[Violation],
    shrinks: bool = True,
    observe: Observer | None = None,
    until: float = inf,
) -> tuple[Cause, ...]:
    """Return the causes of undeclared violations (failed laws), each with the diagnoses that
    explain it.

    With `shrinks`, each cause also gets a small input that shows it. A cause that is not recognised,
    or is an arithmetic, gets measurements of the kernel at this input. After `until`, a reading of
    time.monotonic, attnspec tries no smaller input, and measures nothing.

    The input that shows a cause comes from a law that compares an operation with the oracle. Among
    several operations, the first one is taken. If none of these laws fails, the smallest input is
    taken.

    A violation with a large input gets no search for its cause, because each possible cause would be
    called on it. If attnspec itself fails in the search, each operation gets one cause, with a note of the
    failure.
    """
    if shrinks and any(violation.calls for violation in violations):  # otherwise no call is made
        implementation = looked_at(implementation, violations[0].operation, observe).implementation
    laws = [find(violation.law_id)[0] for violation in violations]
    groups: Sequence[tuple[tuple[int, ...], tuple[Diagnosis, ...]]]
    try:
        groups, defect = _grouped(implementation, laws, violations), ""
    except Exception as error:
        groups, defect = _by_operation(violations), failure("it looked for the cause", error)
    causes = []
    for places, diagnosis in groups:
        group = [(laws[place], replace(violations[place], diagnosis=diagnosis)) for place in places]
        law, example = min(group, key=_order_of_examples)
        searched = bool(example.calls) and not defect and not example.is_large
        if searched and shrinks and time.monotonic() < until:
            example = _smaller(implementation, law, example, observe, until)
        worst = max((violation for _, violation in group), key=lambda violation: violation.excess)
        sentence = _located(worst) if worst.excess > example.excess else ""
        example = or_note(example, "it described the call", partial(_with_calls, implementation))
        if note := defect or (_TOO_LARGE if example.is_large else ""):
            example = replace(example, notes=(*example.notes, note))
        if searched and all(each.partial for each in diagnosis):
            diagnosis = _with_hint(example, diagnosis)
        if searched and shrinks and _needs_measurements(diagnosis):
            example = _with_measurements(implementation, example, observe, until)
        example = replace(example, diagnosis=diagnosis).without_calls()
        ids = tuple(violation.law_id for _, violation in group)
        causes.append(Cause(implementation.name, ids, example, searched, sentence))
    return tuple(causes)


def _located(violation: Violation) -> str:
    """Return the summary of a violation with the sizes of its input and its law."""
    called = OPERATIONS[violation.operation]
    case = violation.counterexample
    sizes = called.sizes(tuple(case[name] for name in called.parameters)) if case.keys() >= {*called.parameters} else {}
    shown = ", ".join(f"{name} {size}" for name, size in sizes.items())
    where = f"With {shown}: " if shown else ""
    return f"{where}{violation.summary} (check «{violation.law}»)"


def _order_of_examples(violated: tuple[Law, Violation]) -> tuple[bool, int, int]:
    """Return the sort key by which the example of a cause is chosen among its violations: agreement
    with the oracle first, then the operation, then the size of the input.
    """
    law, violation = violated
    return not law.agreement, list(OPERATIONS).index(law.operation), violation.size


def _with_hint(example: Violation, diagnosis: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """Return the hints of a cause that is not recognised. The first hint is the diagnosis of its
    smallest input, which may be a part of the cause.
    """
    hints = [replace(each, partial=True) for each in example.diagnosis[:1]]
    return tuple({each.id: each for each in (*hints, *diagnosis)}.values())


def _needs_measurements(diagnosis: tuple[Diagnosis, ...]) -> bool:
    """Return whether no known explanation explains the whole cause, or only an arithmetic does."""
    likely = next((each for each in diagnosis if not each.partial), None)
    return likely is None or likely.mechanism.startswith(AS_IF)


def diagnosed(implementation: Implementation, law: Law, violation: Violation) -> Violation:
    """Return a violation (failed law) on a smaller input, with the possible causes that explain it."""

    implementation = looked_at(implementation, law.operation).implementation

    def explained(one: Violation) -> Violation:
        if one.is_large:
            return replace(one, notes=(*one.notes, _TOO_LARGE))
        ((_, diagnosis),) = _explained(implementation, [(law, one)])
        found = _with_calls(implementation, _smaller(implementation, law, replace(one, diagnosis=diagnosis)))
        return _with_measurements(implementation, found) if _needs_measurements(found.diagnosis) else found

    return or_note(violation, "it looked for the cause", explained)


def _by_operation(violations: Sequence[Violation]) -> Sequence[_Group]:
    """Return the violations in groups, one for each operation, without an explanation."""
    places: dict[str, list[int]] = {}
    for place, violation in enumerate(violations):
        places.setdefault(violation.operation, []).append(place)
    return [(tuple(members), ()) for members in places.values()]


def _explained(implementation: Implementation, violated: Sequence[tuple[Law, Violation]]) -> Sequence[_Group]:
    """Return the violations grouped by cause. The known bugs take a while to load, so they are
    loaded only if there is a violation.
    """
    if not violated or all(violation.is_large for _, violation in violated):
        return _by_operation([violation for _, violation in violated])
    from properties.verifier.causes import causes

    return causes(implementation, violated)


def _grouped(implementation: Implementation, laws: Sequence[Law], violations: Sequence[Violation]) -> Sequence[_Group]:
    """Return the violations grouped by cause. Those with large inputs are not searched for."""
    groups = list[_Group]()
    for is_large in (False, True):
        places = [place for place, violation in enumerate(violations) if violation.is_large == is_large]
        found = _explained(implementation, [(laws[place], violations[place]) for place in places]) if places else []
        groups += [(tuple(places[member] for member in members), diagnosis) for members, diagnosis in found]
    return groups


def _with_measurements(
    implementation: Implementation, violation: Violation, observe: Observer | None = None, until: float = inf
) -> Violation:
    """Return the violation with measurements of the kernel at its input."""

    def work(one: Violation) -> Violation:
        arguments = tuple(one.counterexample[name] for name in OPERATIONS[one.operation].parameters)
        return replace(one, measured=measured(implementation, one.operation, arguments, observe, until))

    return or_note(violation, "it measured the kernel", work)


def _with_calls(implementation: Implementation, violation: Violation) -> Violation:
    """Return the violation with a note about the arguments of its call."""
    calls = handed_over(violation.counterexample, violation.operation, violation.calls, implementation)
    return replace(violation, notes=(*calls, *violation.notes))


def _smaller(
    implementation: Implementation, law: Law, violation: Violation, observe: Observer | None = None, until: float = inf
) -> Violation:
    """Return the violation on a smaller input that has the same cause. If none is found, return the
    violation unchanged.
    """

    def smaller(one: Violation) -> Violation:
        found = smallest(implementation, law, one, observe, until)
        ((_, diagnosis),) = _explained(implementation, [(law, found)])
        if one.likely and one.likely.id not in {each.id for each in diagnosis}:
            return one
        operation = OPERATIONS[law.operation]
        sizes = operation.sizes(tuple(found.counterexample[name] for name in operation.parameters))
        seen = (*one.seen, TriedSizes(sizes, passed=False)) if law.agreement else ()
        return replace(found, diagnosis=diagnosis, notes=notes(found.calls, implementation, seen))

    return or_note(violation, "it looked for a smaller input", smaller)
