"""Finds a smaller input on which a law also fails: it cuts axes and simplifies numbers as long as
the law still fails.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from properties.contract.caller import Observer
from properties.contract.features import ROTATION
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws.law import Law
from properties.strategies import drawn_frequencies, drawn_packings, drawn_pages, drawn_programs, drawn_rotations
from properties.strategies.axes import Case, along, leaves_a_query_nothing, movable, one_of_lead
from properties.verifier.report import Violation

__all__ = ["simpler", "smallest"]

_MAX_TRIED, _MOST_SECONDS = 300, 60.0  # cases and seconds of one search
_MAX_PLACES = 8  # of a leading axis, each of which is tried alone

Stage = Callable[[Operation, Case, Implementation], Iterator[Case]]


def smallest(
    implementation: Implementation, law: Law, violation: Violation, observe: Observer | None = None, until: float = inf
) -> Violation:
    """Return the violation of a law on the smallest input that is found, starting from its own
    input, with the larger inputs on which the law failed. After `_MOST_SECONDS`, or after `until`, a
    reading of time.monotonic, no further input is tried.

    If every query has a visible key, this stays so: other laws are about fully masked rows.
    """
    dead = leaves_a_query_nothing(violation.counterexample)
    operation, subject = OPERATIONS[law.operation], Subject(implementation, law.operation, observe)
    best, left, larger = violation, _MAX_TRIED, list[Case]()
    until = min(until, time.monotonic() + _MOST_SECONDS)
    changed = True
    while changed:
        changed = False
        for smaller in _STAGES:
            cases = smaller(operation, best.counterexample, implementation)
            while (case := next(cases, None)) is not None:
                if left == 0 or time.monotonic() >= until:
                    return replace(best, shrunk=True, larger=tuple(larger))
                arguments = tuple(case[name] for name in operation.parameters)
                if not implementation.takes(operation, arguments) or (leaves_a_query_nothing(case) and not dead):
                    continue
                left -= 1
                if found := _violated(subject, law, best, case):
                    larger.append(best.counterexample)
                    best, changed, cases = found, True, smaller(operation, case, implementation)
    return replace(best, shrunk=True, larger=tuple(larger))


def _violated(subject: Subject, law: Law, best: Violation, case: Case) -> Violation | None:
    """Return the violation on a smaller case (set of arguments). Return None if the law passes on
    it, or cannot be checked on so small a case.
    """
    subject.begin()
    with suppress(ValueError, IndexError):  # a law may choose something that so small a case lacks
        try:
            law.hold(subject, case)
        except BrokenError as broken:
            return replace(
                best, summary=str(broken), counterexample=case, excess=broken.excess, calls=tuple(subject.calls)
            )
    return None


def _rotates(operation: Operation, case: Case) -> bool:
    """Return whether a case (set of arguments) has options of rotations. These options are cut
    together.
    """
    options = [name for name in ROTATION if name in operation.parameters]
    return "inv_freq" in operation.parameters and any(case[name] is not None for name in options)


def _cut(operation: Operation, case: Case, implementation: Implementation) -> Iterator[Case]:
    """Yield cases that lack a part of this case (set of arguments). Cases without the largest parts
    come first.
    """
    if "kind" in operation.parameters:
        yield from drawn_frequencies.smaller(case, implementation)
        return
    if operation.is_played:
        yield from drawn_programs.shorter(operation, implementation, case)
    if operation.is_packed:
        yield from drawn_packings.fewer(operation, case)
    if operation.is_paged:
        yield from drawn_pages.fewer(case)
    rotates = _rotates(operation, case)
    if rotates:
        yield from drawn_rotations.smaller(operation, case, implementation)
    yield from _fewer(operation, case, fixed=("head_dim", "pairs") if rotates else ("pairs",))


def _plainer(operation: Operation, case: Case, implementation: Implementation) -> Iterator[Case]:
    """Yield simpler cases: without a mask, without an option, or nearer to the first position. A
    case is a set of arguments.
    """
    if "kind" in operation.parameters or operation.is_played:
        return
    for name in operation.parameters:
        value = case[name]
        if operation.is_mask(name) and operation.name != "combine_masks" and value is not None:
            yield case | {name: None}
        elif operation.is_length(name):
            if name.startswith("seqused") and value is not None and (value == np.diff(case[f"cu_{name[-1]}"])).all():
                yield case | {name: None}
        elif name in operation.options and value is not None and not _rotates(operation, case):
            tangent = {f"d{name}": None} if f"d{name}" in case and name in ("bias", "sink") else {}
            yield case | {name: None} | tangent
            if name == "offset" and isinstance(value, int):
                yield from (case | {name: smaller} for smaller in (0, int(value / 2)) if smaller != value)
        elif isinstance(value, int) and name == "start_pos":
            yield from (case | {name: smaller} for smaller in (0, value // 2, value - 1) if 0 <= smaller < value)


def _in_arrays(simpler: Callable[[Any], Iterator[Any]]) -> Stage:
    """Return a stage of the search whose cases have simpler numbers in one array. `simpler` yields
    the simpler arrays.
    """

    def stage(operation: Operation, case: Case, implementation: Implementation) -> Iterator[Case]:
        for name in operation.arrays if "kind" not in operation.parameters else ():
            if case[name] is not None:
                yield from (case | {name: array} for array in simpler(case[name]))

    return stage


def _fewer(operation: Operation, case: Case, fixed: tuple[str, ...]) -> Iterator[Case]:
    """Yield cases (sets of arguments) without a leading axis, with one index of it, and with a part
    of another axis: either half, or all but the first or the last index.
    """
    lead = operation.lead(tuple(case[name] for name in operation.parameters))
    if lead and not operation.is_paged:
        yield from (one_of_lead(operation, case, 0, place, gone=True) for place in (0, lead[0] - 1) if lead[0])
        for axis, size in enumerate(lead):
            places = range(min(size, _MAX_PLACES) if size > 1 else 0)
            yield from (one_of_lead(operation, case, axis, place, gone=False) for place in places)
    sizes = operation.sizes(tuple(case[name] for name in operation.parameters))
    for name, size in movable(operation, case, fixed).items():
        is_in_pairs = name == "head_dim" and ("n_q" not in sizes or bool(case.get("rotates")))
        least = 2 if is_in_pairs else 1
        half = size // 2 // least * least
        for part in (range(half), range(half, size), range(size - least), range(least, size)):
            if 0 < len(part) < size:
                yield along(operation, case, name, part)


def _rounder(array: Any) -> Iterator[Any]:
    """Yield arrays of simpler numbers: without negative zeros, then all zeros, signs, whole
    numbers, and multiples of 1/4.
    """
    if np.signbit(array[array == 0]).any():
        yield array + 0.0
    if array.any():
        simpler = (np.zeros(array.shape), np.sign(array), np.rint(array), np.rint(array * 4) / 4)
        yield from (each for each in simpler if not np.array_equal(array, each, equal_nan=True))


def _emptier(array: Any) -> Iterator[Any]:
    """Yield arrays in which more entries are 0."""
    places = np.flatnonzero(array)
    step = len(places)
    while step > 1 and len(places) <= _MAX_TRIED:
        step = -(-step // 2)
        for start in range(0, len(places), step):
            emptier = array.copy().reshape(-1)
            emptier[places[start : start + step]] = 0
            yield emptier.reshape(array.shape)
        if step == 1:
            return


def simpler(operation: Operation, case: Case, implementation: Implementation) -> Iterator[Case]:
    """Yield the cases that are simpler than a case (set of arguments) and that the implementation
    supports. Cases without the largest parts come first. If every query has a visible key, every
    yielded case has this too.
    """
    dead = leaves_a_query_nothing(case)
    for stage in _STAGES:
        for smaller in stage(operation, case, implementation):
            arguments = tuple(smaller[name] for name in operation.parameters)
            if implementation.takes(operation, arguments) and (dead or not leaves_a_query_nothing(smaller)):
                yield smaller


_STAGES: tuple[Stage, ...] = (_cut, _plainer, _in_arrays(_rounder), _in_arrays(_emptier))
"""The stages of the search, in this order. Each stage runs until it finds nothing smaller. If some
stage found something, all stages run again. Numbers are rounded before entries are set to 0, because
there may be many entries.
"""
