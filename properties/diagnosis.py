"""What a violation looks like: the conventions and the known bugs that reproduce what an implementation returned, and what else is known.

A candidate is an implementation itself: the oracle in another convention, or the reference with a bug in it. The law is put to it on the
same case, so that it is called as the implementation was, in the same order and layouts. It is named if it breaks the law there too, which
means that it differs from the oracle by more than the budget, and returned the same as the implementation within the budget of each call.

Other arithmetics are tried besides, as `properties.arithmetics` says: one that explains every call is named before all that reproduce only
some of them.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, get_args

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.arithmetics import explained
from properties.bugs import CATALOGUE, Bug
from properties.implementation import Implementation
from properties.law import Law
from properties.operations import OPERATIONS, Operation
from properties.reference import OPERATIONS as REFERENCE
from properties.report import Diagnosis, Violation
from properties.strategies.arrays import rounded
from properties.subject import BrokenError, Call, Subject

__all__ = ["Seen", "diagnosed"]

_NUMBERS = {"rope_base": (100.0, 1000.0, 500_000.0, 1_000_000.0), "rope_scale": (0.125, 0.25, 0.5, 2.0)}
_SHOWN = 5  # candidates named at most
_FEW = 8  # calls of the cases seen that other arithmetics are put to, besides those drawn afresh
_ARITHMETIC = 3  # their rank


@dataclass(frozen=True)
class Seen:
    """The sizes of a case that was tried, and whether the law held on it."""

    sizes: dict[str, int]
    held: bool


@dataclass(frozen=True)
class _Candidate:
    """An explanation to try: its name, what it would mean, and fresh instances of the operations that it changes."""

    id: str
    citation: str
    repair: str
    rank: int  # among equals: documented bugs first, then conventions, then other bugs
    fresh: Callable[[], dict[str, Callable[..., Any]]]
    remembers: bool = False  # what it returns depends on earlier calls


def diagnosed(violation: Violation, law: Law, implementation: Implementation, seen: list[Seen]) -> Violation:
    """The violation with the explanations that reproduce it, best first, and with notes on what is known."""
    if not violation.calls:
        return violation
    called = [OPERATIONS[name] for name in dict.fromkeys(call.operation for call in violation.calls)]
    found = [d for c in _candidates(called, implementation) if (d := _tried(c, violation, law, implementation))]
    found += [(d, False, _ARITHMETIC) for d in _arithmetics(violation, law, implementation)]
    found.sort(key=lambda d: (-d[0].explains, not d[1], d[2] != _ARITHMETIC, d[2], d[2] != _ARITHMETIC and d[0].excess))
    notes = (*_where(violation.calls, implementation), *_from_which_size_on(seen))
    return replace(violation, diagnosis=tuple(d for d, _, _ in found[:_SHOWN]), notes=notes)


def _arithmetics(violation: Violation, law: Law, implementation: Implementation) -> Iterator[Diagnosis]:
    """The narrowest arithmetic that explains every call that is known, and the narrowest preset that does."""
    seen = violation.calls, violation.fresh, violation.evidence[:_FEW]
    found = explained(law, implementation, *seen, violation.counterexample.values())
    presets = [each for each in found if each[0].preset]
    for c, excess in (*[each for each in found if not each[0].preset][:1], *presets[:1]):
        meaning = f"an arithmetic: within budget as if {c.sentence}"
        repair = "Round to more bits there, or declare an arithmetic of which this is so, if it is what is meant."
        yield Diagnosis(c.id, excess, meaning, repair, 1.0)


def _candidates(called: list[Operation], implementation: Implementation) -> Iterator[_Candidate]:
    """Every other value of every convention that matters to the operations called, and every known bug of one of them."""
    for field in fields(Conventions):
        concerned = [o for o in called if field.name in o.conventions]
        actual = getattr(implementation.reading, field.name)
        for value in _NUMBERS.get(field.name, get_args(field.type)) if concerned else ():
            if value == actual:
                continue
            answers: dict[str, Callable[..., Any]] = {o.name: partial(_answer, o, implementation, field.name, value) for o in concerned}
            name = f"{field.name}={value:g}" if isinstance(value, float) else f"{field.name}={value}"
            meaning = f"a convention: {field.name} was taken to be {actual!r}"
            repair = f"Declare Conventions({field.name}={value!r}), if that is what is meant."
            yield _Candidate(name, meaning, repair, 1, answers.copy)
    names = [o.name for o in called]
    for bug in CATALOGUE.values():
        if bug.operation in names:
            rank, remembers = 0 if bug.public else 2, "two calls in a row" in bug.requires
            yield _Candidate(bug.id, bug.citation, bug.repair, rank, partial(_instance, bug), remembers)


def _instance(bug: Bug) -> dict[str, Callable[..., Any]]:
    return {bug.operation: bug.fresh()}


def _answer(operation: Operation, implementation: Implementation, field: str, value: Any, *arguments: Any) -> Any:
    """The oracle's own values where one field of the conventions has another value."""
    inverted = field == "mask_polarity"
    changed = {"mask_polarity": "true_allows"} | ({} if inverted else {field: value})
    given = tuple(
        ~x if inverted and x is not None and operation.is_mask(p) else x for p, x in zip(operation.parameters, arguments, strict=False)
    )
    found = operation.expected(given, implementation.rounding, replace(implementation.reading, **changed))
    values = tuple((~x if inverted else x.copy()) if isinstance(x, np.ndarray) else x.mid.copy() for x in found)
    return values[0] if len(values) == 1 else values


def _tried(c: _Candidate, violation: Violation, law: Law, implementation: Implementation) -> tuple[Diagnosis, bool, int] | None:
    """The candidate as a diagnosis, whether it reproduces every fresh call too, and its rank, if it reproduces the violation.

    Where it remembers calls it is tried after the others seen.
    """
    subject = _stand_in(c, law, implementation)
    for call in violation.evidence if c.remembers else ():
        _repeats(call, subject)
    subject.begin()
    try:
        law.body(subject, *violation.counterexample.values())
        return None
    except BrokenError:
        pass
    calls = list(zip(violation.calls, subject.calls, strict=False))
    if len(subject.calls) != len(violation.calls):
        return None
    excess = max((_difference(a, b, subject) for a, b in calls), default=np.inf)
    if excess > 1:
        return None
    again = _stand_in(c, law, implementation)
    agree = [_repeats(call, again) for call in violation.evidence]
    share = (1 + sum(agree)) / (1 + len(agree))
    throughout = share == 1 and (c.remembers or all(_repeats(call, again) for call in violation.fresh))
    return Diagnosis(c.id, excess, c.citation, c.repair, share), throughout, c.rank


def _stand_in(c: _Candidate, law: Law, implementation: Implementation) -> Subject:
    """The candidate in place of the implementation, by float64 arrays, with the reference's other operations and the same promises."""
    operations: dict[str, Callable[..., Any]] = {**REFERENCE, **c.fresh()}
    promises = replace(
        implementation,
        operations={name: partial(_stored, OPERATIONS[name], operations[name], implementation) for name in (law.operation, *law.needs)},
        conventions=replace(implementation.reading, mask_polarity="true_allows"),
        arrays="numpy",
        dtype="float64",
        layouts=None,
        known_deviations={},
    )
    return Subject(promises, law.operation)


def _stored(operation: Operation, function: Callable[..., Any], implementation: Implementation, *arguments: Any) -> Any:
    """What a function returns, float64 results as numbers of the implementation's format: they may be given to another operation."""
    found, a = function(*arguments), implementation.rounding
    several = found if isinstance(found, tuple) and len(found) == len(operation.outputs) else (found,)
    kept = tuple(
        rounded(x, a.angle.table if operation.is_table(name) else a.output) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x
        for name, x in zip(operation.outputs, several, strict=False)
    )
    return kept if several is found else kept[0]


def _repeats(call: Call, subject: Subject) -> bool:
    """Whether a candidate returns what the implementation returned in a call."""
    with suppress(BrokenError):
        subject.call(call.operation, call.arguments, call.layout)
    return _difference(call, subject.calls[-1], subject) <= 1


def _difference(a: Call, b: Call, subject: Subject) -> float:
    """How far two calls' outputs are apart, in the largest budget of the call: where the right value has a small one, the candidate's may
    be larger. An output rounding of the candidate's value is added.

    Errors are the same if they begin the same, up to a colon.
    """
    if a.operation != b.operation or bool(a.error) != bool(b.error) or len(a.outputs) != len(b.outputs):
        return np.inf
    if a.error:
        return 0.0 if a.error.split(":")[0] == b.error.split(":")[0] else np.inf
    operation = OPERATIONS[a.operation]
    if operation.returns_booleans:
        return 0.0 if np.array_equal(a.outputs[0], b.outputs[0]) else np.inf
    budgets = subject.expected(operation, a.arguments)
    roundoff = subject.implementation.rounding.output.unit_roundoff
    return max(_apart(x, y, e.rad, roundoff) for x, y, e in zip(a.outputs, b.outputs, budgets, strict=True))


def _apart(x: Array, y: Array, rad: Array, roundoff: float) -> float:
    with np.errstate(all="ignore"):
        allowed = np.max(rad, where=np.isfinite(rad), initial=0.0) + roundoff * np.abs(y)
        apart = np.abs(x - y) / allowed
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return float(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)).max(initial=0.0))


def _where(calls: tuple[Call, ...], implementation: Implementation) -> Iterator[str]:
    """Which entries of the results are outside their budgets, axis by axis, for the first call that has some."""
    subject = Subject(implementation, calls[0].operation)
    for call in calls:
        operation = OPERATIONS[call.operation]
        if operation.returns_booleans or call.error:
            continue
        for name, x, budget in zip(operation.outputs, call.outputs, subject.expected(operation, call.arguments), strict=True):
            wrong = budget.excess(x) > 1
            if wrong.any():
                yield f"{name}, of shape {x.shape}, is wrong in {_described(wrong)}."
                return


def _described(wrong: Any) -> str:
    """The wrong entries of a result, by rows and lanes where they do not fill it."""
    if wrong.all():
        return "every entry"
    count = f"{int(wrong.sum())} of {wrong.size} entries"
    names = (*[f"axis {a}" for a in range(wrong.ndim - 2)], "row", "lane")[-wrong.ndim :]
    parts = []
    for axis, name in enumerate(names):
        at = np.flatnonzero(wrong.any(tuple(a for a in range(wrong.ndim) if a != axis)))
        if len(at) < wrong.shape[axis]:
            parts.append(f"{name} {_ranges(at)}")
    return ", ".join((count, *parts))


def _ranges(at: Any) -> str:
    """Indices in words: one, a range, a step, or some of many."""
    if len(at) == 1:
        return str(at[0])
    steps = set(np.diff(at).tolist())
    if len(steps) == 1:
        step = steps.pop()
        return f"{at[0]} to {at[-1]}" + (f" in steps of {step}" if step > 1 else "")
    return ", ".join(map(str, at[:6])) + (" …" if len(at) > 6 else "")


def _from_which_size_on(seen: list[Seen]) -> Iterator[str]:
    """For each size the least at which the law was seen to fail, where smaller ones held."""
    failed = [s.sizes for s in seen if not s.held]
    for name in failed[0] if failed else ():
        least = min(sizes.get(name, 0) for sizes in failed)
        smaller = sum(s.held and s.sizes.get(name, least) < least for s in seen)
        if smaller > 2:
            yield f"It was seen to fail from {name} = {least} on, and held on {smaller} cases with less."
