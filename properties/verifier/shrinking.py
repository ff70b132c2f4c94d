"""A smaller input on which a law does not hold either: axes are cut, numbers made simple, while it still does not."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from properties.contract.features import ROTATION
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, OPERATIONS, Operation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws.law import Law
from properties.strategies import kinds, programs, rotations
from properties.verifier.examination import Observer
from properties.verifier.report import Violation

__all__ = ["smallest"]

_MOST = 300  # cases that are tried

_PLACES = 8  # places of a leading axis that are tried by themselves

Case = dict[str, Any]


def smallest(
    implementation: Implementation, law: Law, violation: Violation, observe: Observer | None = None, until: float = inf
) -> Violation:
    """The violation of a law on the smallest input that is found from the one it was found on; never on a larger one. After `until`, of
    time.monotonic, no other is tried.

    Where every query may read a key it stays so: what becomes of others is a law of its own.
    """
    dead = _leaves_a_query_nothing(violation.counterexample)
    operation, subject = OPERATIONS[law.operation], Subject(implementation, law.operation, observe)
    best, left = violation, _MOST
    again = True
    while again:
        again = False
        for case in _smaller(operation, best.counterexample, implementation):
            if left == 0 or time.monotonic() >= until:
                return replace(best, shrunk=True)
            arguments = tuple(case[p] for p in operation.parameters)
            if not implementation.takes(operation, arguments) or (_leaves_a_query_nothing(case) and not dead):
                continue
            left -= 1
            subject.begin()
            with suppress(ValueError, IndexError):  # a law may choose something that so small a case does not have
                try:
                    law.hold(subject, case)
                except BrokenError as broken:
                    best = replace(best, summary=str(broken), counterexample=case, excess=broken.excess, calls=tuple(subject.calls))
                    again = True
                    break
    return replace(best, shrunk=True)


def _leaves_a_query_nothing(case: Case) -> bool:
    mask = case.get("mask")
    return mask is not None and not mask.any(-1).all()


def _smaller(o: Operation, case: Case, i: Implementation) -> Iterator[Case]:
    """Simpler cases, those with most taken away first."""
    if "kind" in o.parameters:
        yield from kinds.smaller(case, i)
        return
    if o.is_played:
        yield from programs.shorter(i, case)
    rotates = "inv_freq" in o.parameters and any(case[p] is not None for p in ROTATION if p in o.parameters)
    if rotates:
        yield from rotations.smaller(o, case, i)
    yield from _fewer(o, case, fixed=("head_dim", "pairs") if rotates else ("pairs",))
    for p in () if o.is_played else o.parameters:
        x = case[p]
        if o.is_mask(p) and o.name != "combine_masks" and x is not None:
            yield case | {p: None}
        elif p in o.options and x is not None and not rotates:
            yield case | {p: None} | ({f"d{p}": None} if f"d{p}" in case and p in ("bias", "sink") else {})
            if p == "offset" and isinstance(x, int):
                yield from (case | {p: n} for n in (0, int(x / 2)) if n != x)
        elif isinstance(x, int) and p == "start_pos":
            yield from (case | {p: n} for n in (0, x // 2, x - 1) if 0 <= n < x)
    for p in o.arrays:
        if case[p] is None:
            continue
        yield from (case | {p: y} for y in _simpler(case[p]))


def _fewer(o: Operation, case: Case, fixed: tuple[str, ...]) -> Iterator[Case]:
    """A part of an axis: half of it, or all but one; no leading axis; and fewer of what is counted."""
    lead = o.lead(tuple(case[p] for p in o.parameters))
    if lead:
        yield from (_lead(o, case, 0, place, gone=True) for place in (0, lead[0] - 1) if lead[0])
        for axis, n in enumerate(lead):
            yield from (_lead(o, case, axis, place, gone=False) for place in range(min(n, _PLACES) if n > 1 else 0))
    sizes = o.sizes(tuple(case[p] for p in o.parameters))
    fixed = (*_FIXED, *fixed, *(_ROWS if o.is_played else ()))
    for name in dict.fromkeys(a for p in o.parameters for a in o.axes.get(p, (p,)) if a in sizes and a not in fixed):
        n, least = sizes[name], 1 + (name == "head_dim" and ("n_q" not in sizes or bool(case.get("rotates"))))  # lanes of pairs, by pairs
        for part in (range(n // 2 // least * least), range(n // 2 // least * least, n), range(n - least), range(least, n)):
            if 0 < len(part) < n:
                yield _along(o, case, name, part)


_FIXED = ("heads_width", "num_heads", "kv_heads", "rows", "start_pos", "batch")
"""What cannot be cut by itself."""

_ROWS = ("n_q", "n_k")
"""What the steps of a program decide."""


def _along(o: Operation, case: Case, axis: str, part: range) -> Case:
    """A part of an axis, in all arrays that have it."""
    found = dict(case)
    for p in o.parameters:
        if p == axis:
            found[p] = len(part)
        for place, name in enumerate(axes := o.axes.get(p, ())):
            back = place - len(axes)
            if name == axis and isinstance(found[p], np.ndarray) and found[p].ndim >= -back and found[p].shape[back] > 1:
                found[p] = found[p].take(part, back)
    return found


def _lead(o: Operation, case: Case, axis: int, place: int, gone: bool) -> Case:
    """One place of a leading axis, in all arrays that have it; the axis stays, or is gone."""
    found, arguments = dict(case), tuple(case[p] for p in o.parameters)
    rank = len(o.lead(arguments))
    for p, axes in o.axes.items():
        x = found.get(p)
        if isinstance(x, np.ndarray) and axes[0] == BATCH:
            own = x.ndim - len(axes) + 1 - rank + axis
            if own >= o.ahead(p, arguments):
                part = x.take([place if x.shape[own] > 1 else 0], own)
                found[p] = part.squeeze(own) if gone else part
    return found


def _simpler(x: Any) -> Iterator[Any]:
    """Simpler numbers: zeros, without a sign, whole numbers, fewer of them."""
    if np.signbit(x[x == 0]).any():
        yield x + 0.0
    if not x.any():
        return
    for y in (np.zeros(x.shape), np.sign(x), np.rint(x), np.rint(x * 4) / 4):
        if not np.array_equal(x, y):
            yield y
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
