"""A smaller input on which a law does not hold either: axes are cut, numbers made simple, while it still does not."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from properties.contract.features import ROTATION
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws.law import Law
from properties.strategies import drawn_frequencies, drawn_programs, drawn_rotations
from properties.strategies.axes import Case, along, leaves_a_query_nothing, movable, one_of_lead
from properties.verifier.examination import Observer
from properties.verifier.report import Violation

__all__ = ["simpler", "smallest"]

_MOST = 300  # cases that are tried

_PLACES = 8  # places of a leading axis that are tried by themselves

Stage = Callable[[Operation, Case, Implementation], Iterator[Case]]


def smallest(
    implementation: Implementation, law: Law, violation: Violation, observe: Observer | None = None, until: float = inf
) -> Violation:
    """The violation of a law on the smallest input that is found from the one it was found on;
    never on a larger one. After `until`, of time.monotonic, no other is tried.

    Where every query may read a key it stays so: what becomes of others is a law of its own.
    """
    dead = leaves_a_query_nothing(violation.counterexample)
    operation, subject = OPERATIONS[law.operation], Subject(implementation, law.operation, observe)
    best, left = violation, _MOST
    changed = True
    while changed:
        changed = False
        for smaller in _STAGES:
            cases = smaller(operation, best.counterexample, implementation)
            while (case := next(cases, None)) is not None:
                if left == 0 or time.monotonic() >= until:
                    return replace(best, shrunk=True)
                arguments = tuple(case[p] for p in operation.parameters)
                if not implementation.takes(operation, arguments) or (leaves_a_query_nothing(case) and not dead):
                    continue
                left -= 1
                subject.begin()
                with suppress(ValueError, IndexError):  # a law may choose something that so small a case does not have
                    try:
                        law.hold(subject, case)
                    except BrokenError as broken:
                        best = replace(
                            best,
                            summary=str(broken),
                            counterexample=case,
                            excess=broken.excess,
                            calls=tuple(subject.calls),
                        )
                        changed, cases = True, smaller(operation, case, implementation)
    return replace(best, shrunk=True)


def _rotates(o: Operation, case: Case) -> bool:
    """Whether a case has options of rotations, which are cut together."""
    return "inv_freq" in o.parameters and any(case[p] is not None for p in ROTATION if p in o.parameters)


def _cut(o: Operation, case: Case, i: Implementation) -> Iterator[Case]:
    """Cases of which a part is taken away, those with most taken away first."""
    if "kind" in o.parameters:
        yield from drawn_frequencies.smaller(case, i)
        return
    if o.is_played:
        yield from drawn_programs.shorter(i, case)
    rotates = _rotates(o, case)
    if rotates:
        yield from drawn_rotations.smaller(o, case, i)
    yield from _fewer(o, case, fixed=("head_dim", "pairs") if rotates else ("pairs",))


def _plainer(o: Operation, case: Case, i: Implementation) -> Iterator[Case]:
    """Cases without a mask or an option, and nearer to the first position."""
    if "kind" in o.parameters or o.is_played:
        return
    for p in o.parameters:
        x = case[p]
        if o.is_mask(p) and o.name != "combine_masks" and x is not None:
            yield case | {p: None}
        elif p in o.options and x is not None and not _rotates(o, case):
            yield case | {p: None} | ({f"d{p}": None} if f"d{p}" in case and p in ("bias", "sink") else {})
            if p == "offset" and isinstance(x, int):
                yield from (case | {p: n} for n in (0, int(x / 2)) if n != x)
        elif isinstance(x, int) and p == "start_pos":
            yield from (case | {p: n} for n in (0, x // 2, x - 1) if 0 <= n < x)


def _in_arrays(simpler: Callable[[Any], Iterator[Any]]) -> Stage:
    """Cases in which the numbers of one array are simpler."""

    def stage(o: Operation, case: Case, i: Implementation) -> Iterator[Case]:
        for p in o.arrays if "kind" not in o.parameters else ():
            if case[p] is not None:
                yield from (case | {p: y} for y in simpler(case[p]))

    return stage


def _fewer(o: Operation, case: Case, fixed: tuple[str, ...]) -> Iterator[Case]:
    """A part of an axis: half of it, or all but one; no leading axis; and fewer of what is counted."""
    lead = o.lead(tuple(case[p] for p in o.parameters))
    if lead:
        yield from (one_of_lead(o, case, 0, place, gone=True) for place in (0, lead[0] - 1) if lead[0])
        for axis, n in enumerate(lead):
            yield from (
                one_of_lead(o, case, axis, place, gone=False) for place in range(min(n, _PLACES) if n > 1 else 0)
            )
    sizes = o.sizes(tuple(case[p] for p in o.parameters))
    for name, n in movable(o, case, fixed).items():
        least = 1 + (
            name == "head_dim" and ("n_q" not in sizes or bool(case.get("rotates")))
        )  # channels of pairs, by pairs
        for part in (
            range(n // 2 // least * least),
            range(n // 2 // least * least, n),
            range(n - least),
            range(least, n),
        ):
            if 0 < len(part) < n:
                yield along(o, case, name, part)


def _rounder(x: Any) -> Iterator[Any]:
    """Simpler numbers: zeros, without a sign, whole numbers."""
    if np.signbit(x[x == 0]).any():
        yield x + 0.0
    if x.any():
        yield from (
            y for y in (np.zeros(x.shape), np.sign(x), np.rint(x), np.rint(x * 4) / 4) if not np.array_equal(x, y)
        )


def _emptier(x: Any) -> Iterator[Any]:
    """Fewer numbers that are not 0."""
    places = np.flatnonzero(x)
    step = len(places)
    while step > 1 and len(places) <= _MOST:
        step = -(-step // 2)
        for start in range(0, len(places), step):
            y = x.copy().reshape(-1)
            y[places[start : start + step]] = 0
            yield y.reshape(x.shape)
        if step == 1:
            return


def simpler(o: Operation, case: Case, i: Implementation) -> Iterator[Case]:
    """Cases that are simpler than one and supported, those with most taken away first; where all
    queries have a key they keep one.
    """
    dead = leaves_a_query_nothing(case)
    for stage in _STAGES:
        found = (each for each in stage(o, case, i) if i.takes(o, tuple(each[p] for p in o.parameters)))
        yield from (each for each in found if dead or not leaves_a_query_nothing(each))


_STAGES: tuple[Stage, ...] = (_cut, _plainer, _in_arrays(_rounder), _in_arrays(_emptier))
"""What is tried, in this order, each until it finds nothing smaller, and all again while one of
them does: all arrays are rounded before entries are taken away, of which there are many."""
