"""Which outputs change when one entry of an input changes, measured from outside.

A random call is made twice, or once if the probe stacks calls. Then each further call changes one
entry, and a last one is the first one again. The oracle's values say which outputs should change:
in a right kernel no batch entry changes another one, no masked key changes a query, and no call
changes a later one. The last bits of other outputs may change, so a change counts as a mistake only
where a result is outside its error limit, before the change or after it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from properties.contract.operations import BATCH
from properties.inspection.array import Array
from properties.inspection.places import placed, spanned
from properties.inspection.probe import Probe, Reading
from properties.inspection.shapes import CHOSEN, Shape

__all__ = ["Influence", "influence", "sentences_of_influence"]

_AXES = {
    **{BATCH: "batch", "num_heads": "head", "kv_heads": "key head", "n_q": "query", "n_k": "key"},
    **{"seq_len": "row", "head_dim": "channel", "value_dim": "channel"},
}
"""The names of axes in the singular."""

_VALUES = 8  # of random numbers: whole eighths, which all formats hold


@dataclass(frozen=True)
class Influence:
    """What one change of the inputs does to one result.

    change    the entry that changes, in words: "key 3, channel 0 of k"; "" for an equal call
    result    the name of the result
    axes      the names of its axes
    changes   which of its entries change, in some bit
    due       which of them should change
    wrong     which of them are outside their error limit, before or after
    """

    change: str
    result: str
    axes: tuple[str, ...]
    changes: Array
    due: Array
    wrong: Array


def influence(probe: Probe, shape: Shape) -> tuple[Influence, ...]:
    """Measure what equal calls and changes of single entries change: of each input the last entry,
    and one in the middle. Raises as `Probe.results`.
    """
    operation, random = probe.operation, np.random.default_rng(0)
    zeros = {name: shape.zeros(operation, name) for name in CHOSEN if name in operation.parameters}
    arrays = {name: random.integers(-_VALUES, _VALUES + 1, zero.shape) / _VALUES for name, zero in zeros.items()}
    first = probe.results(shape, **arrays)
    found = [] if probe.stacks else list(_compared(probe, shape, "", first, probe.results(shape, **arrays)))
    changes: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        axes = _names(shape, operation.axes[name])
        for index in dict.fromkeys((tuple(size - 1 for size in array.shape), tuple(size // 2 for size in array.shape))):
            changed = array.copy()
            changed[index] += 2.0
            place = ", ".join(spanned([at], axis) for axis, at in zip(axes, index, strict=True))
            changes[f"{place} of {name}"] = {**arrays, name: changed}
    for change, after in zip(changes, probe.together(shape, [*changes.values()]), strict=True):
        found += _compared(probe, shape, change, first, after)
    return (*found, *_compared(probe, shape, "", first, probe.results(shape, **arrays)))


def _names(shape: Shape, axes: Sequence[str]) -> tuple[str, ...]:
    """The names of the axes of an array."""
    return tuple(_AXES[axis] for axis in axes for _ in (shape.batch if axis == BATCH else (0,)))


def _compared(
    probe: Probe, shape: Shape, change: str, before: dict[str, Reading], after: dict[str, Reading]
) -> Iterator[Influence]:
    """What differs between two calls, for each of their results."""
    for name, new in after.items():
        old = before[name]
        changes, due = (~((x == y) | (np.isnan(x) & np.isnan(y))) for x, y in zip(old[:2], new[:2], strict=True))
        yield Influence(change, name, _names(shape, probe.operation.axes[name]), changes, due, old.wrong | new.wrong)


def sentences_of_influence(found: Sequence[Influence]) -> tuple[str, ...]:
    """What changes and should not, or the other way round, in sentences; () if no such entry is
    outside its error limit.

    If equal calls differ, the only sentence says so.
    """
    equal = [_surplus(each, "The same call, made again, gives another") for each in found if not each.change]
    if said := next(filter(None, equal), ""):
        return (said,)
    told: dict[str, str] = {}
    for each in found:
        surplus = _surplus(each, f"Changing {each.change} changes")
        told[each.result] = told.get(each.result) or surplus
    for each in found:
        missing = each.due & ~each.changes & each.wrong
        if missing.any() and not told[each.result]:
            told[each.result] = placed(f"Changing {each.change} does not change {each.result}", missing, each.axes)
    return tuple(filter(None, told.values()))


def _surplus(each: Influence, verb: str) -> str:
    """The sentence about entries that change and should not; "" without such entries."""
    strange = each.changes & ~each.due & each.wrong
    return placed(f"{verb} {each.result}", strange, each.axes) if strange.any() else ""
