"""Verifying implementations: which laws are planned, what becomes of them, and the causes of what is violated."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from hypothesis import settings

from oracles import Arithmetic, Conventions
from properties.contract.implementation import Implementation, implementation_of
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.contract.wording import shown
from properties.laws import LAWS, LONG, find
from properties.laws.law import Law
from properties.laws.quick import QUICK
from properties.verifier.causes import HALF, causes
from properties.verifier.examination import Examination, Observer
from properties.verifier.remarks import Seen, handed_over, notes
from properties.verifier.report import Cause, Outcome, Report, Violation, with_causes
from properties.verifier.script import script
from properties.verifier.shrinking import smallest
from properties.verifier.timing import Time

__all__ = [
    "QUICKLY",
    "Observer",
    "call",
    "causes_of",
    "check",
    "examine",
    "grouped",
    "plan",
    "replay",
    "require_planned",
    "verify",
    "without",
]

QUICKLY = 50
"""Cases of an operation in the quick plan, at most, but at least one of each domain."""


def examine(
    laws: Sequence[Law],
    implementation: Implementation,
    max_examples: int | None = 100,
    random_seed: int | None = 0,
    observe: Observer | None = None,
    seconds_per_call: float = 60.0,
    began: Callable[[str], None] = lambda law: None,
    until: float = inf,
) -> list[Outcome]:
    """What becomes of some laws about one operation, in their order, on so many cases, none of whose calls may take longer.

    The same seed draws the same cases; None, as seed or number, takes what the caller's Hypothesis profile says. `observe` is told of every
    call before it is made, and `began` of the law that is put to the case. After `until`, of time.monotonic, no case is drawn. Violations
    are as they were found, and not diagnosed, which `causes_of` does for all laws together.
    """
    examination = Examination(implementation, laws[0].operation, laws, observe, seconds_per_call, began, until)
    examination.run(max_examples or (settings.default or settings()).max_examples, random_seed)
    return list(examination.outcomes())


def check(
    law: Law,
    implementation: Implementation,
    max_examples: int | None = 100,
    random_seed: int | None = 0,
    observe: Observer | None = None,
    seconds_per_call: float = 60.0,
) -> Outcome:
    """What becomes of one law, as `examine` says; a violation that nobody declared is shown on a small input, with what explains it."""
    (found,) = examine([law], implementation, max_examples, random_seed, observe, seconds_per_call)
    if found.status != "violated" or found.violation is None or not found.violation.calls:
        return found
    ((_, diagnosis),) = causes(implementation, [(law, found.violation)])
    small = _smaller(implementation, law, replace(found.violation, diagnosis=diagnosis))
    return replace(found, violation=_with_calls(implementation, small))


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
    for places, diagnosis in causes(implementation, list(zip(laws, violations, strict=True))):
        group = [(laws[place], replace(violations[place], diagnosis=diagnosis)) for place in places]
        law, example = min(group, key=lambda each: (not each[0].agreement, order.index(each[0].operation), each[1].size))
        searched = bool(example.calls)
        if searched and shrinks and time.monotonic() < until:
            example = _smaller(implementation, law, example, observe, until)
        worst = max((v for _, v in group), key=lambda v: v.excess)
        told = f"{worst.summary} ({worst.law})" if worst.excess > example.excess else ""
        example = _with_calls(implementation, example)
        kept = replace(example, diagnosis=diagnosis, calls=(), evidence=(), fresh=(), seen=())
        found.append(Cause(implementation.name, tuple(each.id for each, _ in group), diagnosis, kept, told, searched))
    return tuple(found)


def _with_calls(implementation: Implementation, v: Violation) -> Violation:
    """The violation with what was handed over among its notes."""
    return replace(v, notes=(*handed_over(v.counterexample, v.operation, v.calls, implementation), *v.notes))


def _smaller(
    implementation: Implementation, law: Law, violation: Violation, observe: Observer | None = None, until: float = inf
) -> Violation:
    """The violation on a smaller input, where it has the same cause; else as it is."""
    try:
        found = smallest(implementation, law, violation, observe, until)
        ((_, diagnosis),) = causes(implementation, [(law, found)])
    except Exception as error:  # of the law, or of the oracle, on so small an input
        why = f"Looking for a smaller input ended with {type(error).__name__}: {error}."
        return replace(violation, notes=(*violation.notes, why))
    if violation.diagnosis and violation.diagnosis[0].explains >= HALF and violation.diagnosis[0].id not in {d.id for d in diagnosis}:
        return violation
    o = OPERATIONS[law.operation]
    smaller = Seen(o.sizes(tuple(found.counterexample[p] for p in o.parameters)), held=False)
    return replace(found, diagnosis=diagnosis, notes=notes(found.calls, implementation, (*violation.seen, smaller)))


def grouped(laws: Iterable[Law]) -> list[list[Law]]:
    """The laws about one operation together, as they are examined."""
    groups: dict[str, list[Law]] = {}
    for law in laws:
        groups.setdefault(law.operation, []).append(law)
    return list(groups.values())


def _require_names(laws: Any) -> None:
    if isinstance(laws, str | np.ndarray) or not isinstance(laws, Iterable | None):
        raise TypeError(f"laws={shown(laws)}, but should be a collection of names.")


def require_planned(laws: Iterable[str] | None, planned: Iterable[Law]) -> None:
    """Raise ValueError for the name of a law that is planned for none of what is verified: it would not be looked at, without a word."""
    _require_names(laws)
    ids = {law.id for law in planned}
    if missing := [name for name in laws or () if ids.isdisjoint(law.id for law in find(name))]:
        raise ValueError(f"{missing[0]!r} is a law about an operation that is not offered; `attnspec explain` says which.")


def plan(implementation: Implementation, laws: Iterable[str] | None = None, long: bool = False, quick: bool = False) -> list[Law]:
    """The laws to check: all, with those of the long plan where it is asked for, those of the quick one, or those named, of operations that
    are offered. The quick plan has what is declared to be broken, too; laws that are named are in every plan.

    Raises ValueError for a name that no law has, and for a declared deviation from a law that does not apply.
    """
    _require_names(laws)
    chosen = [*LAWS, *(LONG if long else ())] if laws is None else list(dict.fromkeys(law for name in laws for law in find(name)))
    applicable = [law for law in (*LAWS, *LONG) if not law.not_applicable(implementation)]
    names = {name for law in applicable for name in (law.name, law.id)}
    if unmatched := sorted(set(implementation.known_deviations) - names):
        raise ValueError(f"{implementation.name} declares to deviate from {unmatched}, but no such law applies to it.")
    declared = implementation.known_deviations.keys()
    if quick and laws is None:
        chosen = [law for law in chosen if law.agreement or law.watches or law.id in QUICK or not declared.isdisjoint((law.name, law.id))]
    return [law for law in chosen if law.operation in implementation.operations]


def without(planned: Iterable[Law], exclude: Iterable[str]) -> list[Law]:
    """The laws but those that some names mean. Raises ValueError for a name that no law has."""
    if isinstance(exclude, str):
        raise TypeError(f"exclude={exclude!r}, but should be a collection of names.")
    excluded = {law for name in exclude for law in find(name)}
    return [law for law in planned if law not in excluded]


def verify(
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    laws: Iterable[str] | None = None,
    max_examples: int = 100,
    seed: int = 0,
    known_deviations: Mapping[str, str] | None = None,
    *,
    exclude: Iterable[str] = (),
    long: bool = False,
    quick: bool = False,
    strict: bool = False,
    fail_fast: bool = False,
    budget: float | None = None,
    progress: Callable[[Outcome], None] | None = None,
) -> Report:
    """Check every law that applies to an implementation, and find the causes of what fails.

    `target` is a mapping, module or object with functions of the operations' names, or an `Implementation`, whose arithmetic (float64
    otherwise), conventions and deviations the arguments replace. `laws` names some laws, "law" or "law[operation]", and `exclude` some to
    leave out; part of a name is enough, if no other law has it. `long` adds the laws of the long plan, with 131072 keys, and `quick` takes
    few laws and few cases. About `max_examples` cases of each operation are drawn, of each domain its share, and two laws by turns are put
    to each; the same seed draws the same cases. `known_deviations` maps laws that are known to be broken to the reason; a declaration that
    matches no law, or a law that holds, is an error. `progress` is told each outcome as it is known. With `strict` the report is not ok
    either where an error is within its budget and beyond the statistical line, which is suspicious and no proof. With `fail_fast` no
    operation is begun after the first violation. A `budget` of seconds ends drawing in time: laws that it cuts short are not run, and the
    report is not ok.

    Interrupting it returns what is known so far. It runs in the caller's process, which a crash or a hang of the implementation takes down:
    the command `attnspec verify` runs it in a process of its own. Raises ValueError and TypeError for arguments that are none of these.
    """
    if isinstance(max_examples, bool) or not isinstance(max_examples, int) or max_examples < 1:
        raise ValueError(f"max_examples={shown(max_examples)}, but should be a whole number from 1.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed has type {type(seed).__name__}, but should be an int.")
    if budget is not None and (isinstance(budget, bool) or not (isinstance(budget, int | float) and 0 < budget < inf)):
        raise ValueError(f"budget={shown(budget)}, but should be a positive number of seconds.")
    time_left = Time(budget or inf)
    for option, flag in (("long", long), ("quick", quick), ("strict", strict), ("fail_fast", fail_fast)):
        if not isinstance(flag, bool):
            raise TypeError(f"{option} has type {type(flag).__name__}, but should be a bool.")
    max_examples = min(max_examples, QUICKLY) if quick else max_examples
    implementation = implementation_of(target, arithmetic, conventions, known_deviations)
    laws = tuple(laws) if isinstance(laws, Iterator) else laws
    exclude = tuple(exclude) if isinstance(exclude, Iterator) else exclude
    planned = plan(implementation, laws, long, quick)
    require_planned(laws, planned)
    groups = grouped(without(planned, exclude))
    chosen = [law for group in groups for law in group]
    outcomes: list[Outcome] = []
    found: tuple[Cause, ...] = ()
    interrupted = False
    try:
        for group in groups:
            until = time_left.share(len(group), len(chosen) - len(outcomes))
            known = examine(group, implementation, max_examples, seed, until=until)
            outcomes += known
            if progress is not None:
                for outcome in known:
                    progress(outcome)
            if fail_fast and any(outcome.status == "violated" for outcome in outcomes):
                why = "After the first violation no operation is begun (fail_fast)."
                left = chosen[len(outcomes) :]
                outcomes += [Outcome(w.name, w.operation, implementation.name, "not run", reason=why) for w in left]
                break
        violations = [o.violation for o in outcomes if o.status == "violated" and o.violation is not None]
        found = causes_of(implementation, violations, until=time_left.end)
    except KeyboardInterrupt:
        interrupted = True
        done = {(o.law, o.operation) for o in outcomes}
        outcomes += [Outcome(w.name, w.operation, implementation.name, "not run") for w in chosen if (w.name, w.operation) not in done]
    name = implementation.resolved_arithmetic.name if arithmetic else None
    read = implementation.resolved_conventions if conventions is not None else None
    told, found = with_causes(outcomes, found, lambda violation: script(violation, arithmetic=name, conventions=read))
    numbers = {"max_examples": max_examples, "seed": seed, "budget": budget}
    settings_ = numbers | {"arithmetic": implementation.resolved_arithmetic.name, "exclude": [*exclude]}
    return Report(told, settings_, interrupted, strict, found)


def replay(
    law: str,
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    beside: Sequence[Any] = (),
    **case: Any,
) -> None:
    """A law, "law[operation]", on one case, by the names of its entries; raises BrokenError, an AssertionError, where it does not hold.

    `beside` are others between whose calls a law may call the implementation.

    Raises ValueError for a law that there is not, or is one of several operations.
    """
    found = find(law)
    if len(found) != 1:
        raise ValueError(f"{law!r} is a law of {len(found)} operations, but should name one, as in {found[0].id!r}.")
    implementation = implementation_of(target, arithmetic, conventions)
    others = tuple(implementation_of(other, arithmetic, conventions) for other in beside)
    subject = Subject(replace(implementation, beside=others or implementation.beside), found[0].operation)
    found[0].hold(subject, {name: case[name] for name in found[0].parameters})


def call(
    operation: str,
    target: Any,
    arithmetic: Arithmetic | str | None = None,
    layout: str = "contiguous",
    conventions: Conventions | None = None,
    **arguments: Any,
) -> Any:
    """What an operation returns, called as laws call it, with arrays in a layout: Results, or for a mask an array of booleans.

    Raises BrokenError, an AssertionError, where it raises or returns something else, and ValueError for an operation that there is not.
    """
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise ValueError(f"There is no operation {shown(operation)}, but there are {', '.join(OPERATIONS)}.")
    subject = Subject(implementation_of(target, arithmetic, conventions), operation)
    return subject(*(arguments[name] for name in OPERATIONS[operation].parameters), layout=layout)
