"""A case with one thing changed: numbers, a size, a mask, or an option. Climbs go from case to case
by these changes.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from properties.contract.features import ROTATION
from properties.contract.implementation import Implementation
from properties.contract.operations import BATCH, Operation
from properties.strategies.axes import Case, along, leaves_a_query_nothing, movable, one_of_lead
from properties.strategies.cases import Cases
from properties.strategies.choices import Choices, rounded
from properties.strategies.climb import mutated

__all__ = ["another", "changed"]

_LONGEST, _MOST = 256, 2**15
"""The longest axis, and the most numbers in all arrays, to which a case may grow that was smaller."""

_TRIES = 8  # changes of which the first is taken that leaves a case which is supported
_SEEDS = 2**24

Change = Callable[[Cases, Case, Generator], Case]


def another(cases: Cases, rng: Generator) -> Case:
    """Another case of the domain."""
    return cases.operation.named(cases.draw(int(rng.integers(1, _SEEDS))))


def changed(cases: Cases, case: Case, rng: Generator) -> Case:
    """The case with one thing changed, such that the implementation supports it; another case of
    the domain, where no change is found.

    So it is of kinds of rotary frequencies, the parameters of which hang together.
    """
    for _ in range(_TRIES if "kind" not in cases.operation.parameters else 0):
        found = _CHANGES[int(rng.integers(len(_CHANGES)))](cases, case, rng)
        if found is not case and _is_taken(cases.operation, found, cases.implementation, case):
            return found
    return another(cases, rng)


def _is_taken(o: Operation, found: Case, i: Implementation, before: Case) -> bool:
    """Whether a changed case is supported, leaves no query without a key that had one, and has not grown too large."""
    most = max(_MOST, _numbers(before))
    alive = leaves_a_query_nothing(before) or not leaves_a_query_nothing(found)
    return alive and _numbers(found) <= most and i.takes(o, tuple(found.values()))


def _numbers(case: Case) -> int:
    return sum(x.size for x in case.values() if isinstance(x, np.ndarray))


def _of_numbers(cases: Cases, case: Case, rng: Generator) -> Case:
    """Something of one array: an entry, a row, or the scale of all."""
    o = cases.operation
    names = [p for p in o.arrays if case[p] is not None and case[p].size and p not in ROTATION]
    if not names:
        return case
    p = names[int(rng.integers(len(names)))]
    x = case[p]
    y = mutated(x.reshape(-1, x.shape[-1]), rng).reshape(x.shape)
    return case | {p: rounded(y, o.stored(p, cases.implementation.resolved_arithmetic))}


def _of_sizes(cases: Cases, case: Case, rng: Generator) -> Case:
    """An axis shorter or longer: a half, one place less, one place twice, or all of them twice.
    Even widths stay even.
    """
    o = cases.operation
    rotates = any(case.get(p) is not None for p in ROTATION)
    sizes = movable(o, case, ("head_dim", "pairs") if rotates else ("pairs",))
    if not sizes:
        return case
    axis, n = list(sizes.items())[int(rng.integers(len(sizes)))]
    step = 2 if axis.endswith("_dim") and n % 2 == 0 else 1
    half, at = n // 2 // step * step, int(rng.integers(max(n - step + 1, 1)))
    places = (
        [*range(half)],
        [*range(half, n)],
        [*range(at), *range(at + step, n)],
        [*range(n), *range(at, at + step)],
        [*range(n)] * 2,
    )
    found = places[int(rng.integers(len(places)))]
    return along(o, case, axis, found) if 0 < len(found) <= max(_LONGEST, n) and n else case


def _of_lead(cases: Cases, case: Case, rng: Generator) -> Case:
    """One place of a leading axis: one element of a batch."""
    lead = cases.operation.lead(tuple(case.values()))
    several = [axis for axis, n in enumerate(lead) if n > 1]
    if not several:
        return case
    axis = several[int(rng.integers(len(several)))]
    return one_of_lead(cases.operation, case, axis, int(rng.integers(lead[axis])), gone=False)


def _of_masks(cases: Cases, case: Case, rng: Generator) -> Case:
    """A mask: one entry or one key of it the other way round, or a fresh one, which may be none."""
    o, i = cases.operation, cases.implementation
    names = [p for p in o.parameters if o.is_mask(p)]
    if not names:
        return case
    p = names[int(rng.integers(len(names)))]
    mask, kind = case[p], int(rng.integers(3))
    if mask is None or kind == 0 or not mask.size:
        sizes, lead = o.sizes(tuple(case.values())), o.lead(tuple(case.values()))
        shape = tuple(n for axis in o.axes[p] for n in (lead if axis == BATCH else (sizes[axis],)))
        choose = Choices(int(rng.integers(1, _SEEDS)))
        return case | {p: i.support.drawn(o, cases.domain.mask(choose, i.support.mask_shape(o, p, shape)))}
    found = mask.copy()
    at = np.unravel_index(int(rng.integers(mask.size)), mask.shape)
    if kind == 1:
        found[at] ^= True
    else:
        found[..., at[-1]] ^= True
    return case | {p: found}


def _of_options(cases: Cases, case: Case, rng: Generator) -> Case:
    """An option or a position as in another case of the domain; or a bias or sinks away, with their tangents."""
    o = cases.operation
    if o.is_played or any(case.get(p) is not None for p in ROTATION):
        return case
    names = [
        p
        for p in o.parameters
        if (o.is_setting(p) or p == "start_pos" or (p in o.options and p in o.arrays)) and p not in ROTATION
    ]
    if not names:
        return case
    p = names[int(rng.integers(len(names)))]
    if p in o.arrays:
        return case | {name: None for name in (p, f"d{p}") if name in case}
    other = another(cases, rng)[p]
    return case if isinstance(other, np.ndarray) and np.shape(case[p]) != other.shape else case | {p: other}


_CHANGES: tuple[Change, ...] = (*[_of_numbers] * 4, *[_of_sizes] * 2, _of_lead, _of_masks, _of_options)
"""Numbers more often than all else, of which there is less; sizes often enough that a case becomes
small, where each number counts.
"""
