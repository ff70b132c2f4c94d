"""Calls of one operation, each judged by the oracle, up to a number of calls and a time.

`Probe.together` makes one call of several, with a further axis of the batch.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from properties.contract.caller import Caller
from properties.contract.conversion import UngivenError
from properties.contract.operations import BATCH, OPERATIONS, Arguments
from properties.contract.results import BrokenError, Call
from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.shapes import Shape

__all__ = ["Probe", "Reading", "SpentError", "joined"]

_MOST_NUMBERS = 2**22  # in an array of a stacked call

_Record = TypeVar("_Record")


class SpentError(Exception):
    """No call is left, or the time is up."""


class Reading(NamedTuple):
    """A measured array, what it should be, and where it is outside its error limit."""

    measured: Array
    expected: Array
    wrong: Array

    def changed(self, change: Callable[[Array], Array]) -> "Reading":
        """The reading with the same change of all three arrays."""
        return Reading(*map(change, self))


def joined(readings: Sequence[Reading], join: Callable[[Sequence[Array]], Array]) -> Reading:
    """Several readings as one: `join` makes one array of several."""
    return Reading(*map(join, zip(*readings, strict=True)))


class Probe:
    """The caller's own operation, for at most `calls` calls that take at most `seconds` together, until a
    reading of time.monotonic.

    `worst` is the largest error so far divided by its error limit, and `wrong` the first call with
    a result outside its limit. `tells` says whether some limit could have shown a mistake. `records`
    are the records that instruments made, each with the shape of its calls. `made` are the calls
    that were compared with the oracle. If it `stacks` calls, `together` makes one call of several.
    """

    def __init__(
        self, caller: Caller, calls: int, until: float = inf, *, seconds: float = inf, stacks: bool = False
    ) -> None:
        self.caller, self.calls, self.until, self.seconds, self.stacks = caller, calls, until, seconds, stacks
        self.operation = OPERATIONS[caller.operation]
        self.worst, self.wrong, self.tells = 0.0, tuple[Call, ...](), False
        self.records: list[tuple[Shape, Any]] = []
        self.made: list[Call] = []

    def kept(self, shape: Shape, record: _Record) -> _Record:
        """Add the record of an instrument to `records`, and return it."""
        self.records.append((shape, record))
        return record

    def plain(self, shape: Shape, *options: str) -> Shape:
        """The shape without options, except for these and those that every call has."""
        always = ("causal",) if "causal only" in self.caller.implementation.support.options else ()
        return shape.only(*options, *always)

    def takes(self, shape: Shape) -> bool:
        """Whether the implementation supports the sizes and the options of a call."""
        return self.caller.takes(*shape.call(self.operation))

    def scale(self, shape: Shape) -> float:
        """The factor of q·k that a call of a shape should have."""
        given = shape.arguments.get("scale")
        if given is not None:
            return float(given)
        return 1.0 if self.caller.conventions.scale_default == "one" else float(shape.sizes["head_dim"] ** -0.5)

    def results(self, shape: Shape, **arrays: Any) -> dict[str, Reading]:
        """The results of one call by name. The arrays that are not given are zeros.

        Raises BrokenError where the implementation raises or returns something else, OutsideError
        where it does not take the call, and SpentError where no call is left.
        """
        return self.values(shape.call(self.operation, **arrays))

    def values(self, arguments: Arguments) -> dict[str, Reading]:
        """The results of one call with given arguments by name. Raises as `results`."""
        results = self._results(arguments)
        self.made += self.caller.calls
        if self.operation.is_exact:
            return self._exact(arguments, results[0])
        self.tells = self.tells or any(
            one.excess.size and one.budget.judged and not one.budget.vacuous for one in results
        )
        self.worst = max([self.worst, *(float(one.excess.max(initial=0.0)) for one in results)])
        if self.worst > 1 and not self.wrong:
            self.wrong = (self.caller.calls[-1],)
        return {one.name: Reading(one.value, one.budget.mid, one.excess > 1) for one in results}

    def together(self, shape: Shape, calls: Sequence[Mapping[str, Array]]) -> list[dict[str, Reading]]:
        """The results of several calls of one shape, each with its arrays. Raises as `results`.

        If the probe stacks calls, one call is made first, in which each of them is an element of a
        further axis of the batch. Results that are right are returned, without those that sum over
        the batch. Otherwise the calls are made one by one, so that no reading mixes them.
        """
        if self.stacks and len(calls) > 1 and (arguments := self._stacked(shape, calls)):
            with suppress(BrokenError, OutsideError, UngivenError):
                found = self._split(self.values(arguments), arguments, shape.batch, len(calls))
                if not any(reading.wrong.any() for results in found for reading in results.values()):
                    return found
        return [self.results(shape, **arrays) for arrays in calls]

    def _stacked(self, shape: Shape, calls: Sequence[Mapping[str, Array]]) -> tuple[Any, ...]:
        """The arguments of one call that stands for several, with a further axis before the batch, or
        with a longer first axis of the batch; () if the implementation takes neither.
        """
        operation, number, known = self.operation, len(calls), len(shape.batch)
        arrays = {name: np.stack([each[name] for each in calls]) for name in calls[0]}
        single = {name: array[0] for name, array in arrays.items() if BATCH not in operation.axes[name]}
        if any((arrays[name] != array).any() for name, array in single.items()):
            return ()
        if max(array.size for array in arrays.values()) > _MOST_NUMBERS:
            return ()
        longer = [(number * shape.batch[0], *shape.batch[1:])] if known else []
        for batch in ((number, *shape.batch), *longer):
            whole = {
                name: array.reshape(*batch, *array.shape[1 + known :])
                for name, array in arrays.items()
                if name not in single
            }
            arguments = shape.changed(operation, batch).call(operation, **whole, **single)
            if self.caller.takes(*arguments):
                return arguments
        return ()

    def _split(
        self, results: Mapping[str, Reading], arguments: Arguments, batch: tuple[int, ...], number: int
    ) -> list[dict[str, Reading]]:
        """The results of each of the calls for which one call stands."""
        axes = len(self.operation.lead(arguments))
        parts = {
            name: reading.changed(lambda side: side.reshape(number, *batch, *side.shape[axes:]))
            for name, reading in results.items()
            if BATCH in self.operation.axes[name] and name[1:] not in self.operation.options
        }
        return [{name: part.changed(itemgetter(place)) for name, part in parts.items()} for place in range(number)]

    def returned(self, shape: Shape, **arrays: Any) -> dict[str, Array]:
        """What one call returns by name, of a call that the oracle may refuse. Raises as `results`."""
        return {one.name: one.value for one in self._results(shape.call(self.operation, **arrays))}

    def _results(self, arguments: Arguments) -> Sequence[Any]:
        if not self.calls or time.monotonic() >= self.until or self.caller.seconds >= self.seconds:
            raise SpentError
        if self.caller.arithmetic.is_quantised and not self.caller.takes(*arguments):
            raise OutsideError("The grid of its codes lacks some of these numbers.")
        self.calls -= 1
        self.caller.begin()
        return self.caller.watch(self.operation.name, arguments).results

    def _exact(self, arguments: Arguments, value: Array) -> dict[str, Reading]:
        """The integers that a call returned, or its mask: 1 where a key is visible."""
        (expected,) = self.caller.expected(self.operation, arguments)
        wrong, self.tells = value != expected, True
        if wrong.any():
            self.worst, self.wrong = inf, self.wrong or (self.caller.calls[-1],)
        return {self.operation.outputs[0]: Reading(value.astype(float), expected.astype(float), wrong)}

    def weights(self, shape: Shape, blocks: Sequence[Array], *calls: Mapping[str, Array]) -> list[Reading]:
        """The weight that each row of the output gives to each block, a set of rows of v, in each of some
        calls with their arrays. Raises as `results`.
        """
        return [results["out"] for results in self.weighed(shape, blocks, *calls)]

    def weighed(self, shape: Shape, blocks: Sequence[Array], *calls: Mapping[str, Array]) -> list[dict[str, Reading]]:
        """The results of some calls with their arrays, each with the weights of `weights` as "out".

        Column c of v is 1 in the rows of one block and 0 elsewhere:

            out[row, c] = Σ_j W[row, j]·[block(j) = c]                                         (1)

        One call measures as many blocks as v has columns.
        """
        name = "v_pages" if self.operation.is_paged else "v"
        width, values = shape.sizes["value_dim"], []
        for start in range(0, len(blocks), width):
            v = shape.zeros(self.operation, name)
            for column, rows in enumerate(blocks[start : start + width]):
                v.reshape(-1, width)[rows, column] = 1.0
            values.append(v)
        results = self.together(shape, [{**arrays, name: v} for arrays in calls for v in values])
        outs = [one["out"].changed(lambda array: array.reshape(-1, width)) for one in results]
        firsts = range(0, len(outs), len(values))
        wholes = [joined(outs[first : first + len(values)], lambda parts: np.concatenate(parts, 1)) for first in firsts]
        # The columns of the last call that have no block are left out.
        kept = [whole.changed(lambda array: array[:, : len(blocks)]) for whole in wholes]
        return [{**results[first], "out": weights} for first, weights in zip(firsts, kept, strict=True)]
