"""Which keys each query reads, measured from outside.

With q = 0 all scores of a row are equal, so its weights say which keys are visible and nothing
else. `Probe.weights` measures the weight of each block of keys by values of 0 and 1. If the first
calls can measure every key, each block is one key. Otherwise a block has several keys at first. If
a row is wrong, and reads or should read only a part of a block, the block is cut into smaller ones.
At the end each wrong row reads, and should read, every block either completely or not at all. A row
is wrong if its error exceeds the error limit of the call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

import numpy as np

from properties.inspection.array import Array
from properties.inspection.probe import Probe, Reading, joined
from properties.inspection.shapes import Shape

__all__ = ["LEAST_SHARE", "STRANGE", "Reads", "reads"]

_CALLS_OF_THE_FIRST_ROUND = 8  # at most
_BLOCKS_OF_THE_FIRST_ROUND = 64  # at least, if as many calls allow them
_FEW_CALLS = 2
_WIDE = 64  # columns of v, if its own are too few
_PARTS = 8  # of a block that is cut

_MORE_QUERIES = 64  # of another call

STRANGE = ("unwritten", "unequal", "constant", "unlike")
"""How a row may differ from W·v: it holds what another call has written; an equal call after another
one gives another result; it does not change with v, or does not double with v.
"""

LEAST_SHARE = 0.02
"""The share of a row's largest weight of a key from which on a key counts as read."""


@dataclass(frozen=True)
class Reads:
    """The weights that each row of the output gives to the blocks of keys.

    reading    one row for each row of the output, one column for each block
    keys       the rows of v of each block, as indices into v's rows
    rows       the sizes of the output's axes but the last, one of them for each name of `axes`
    columns    the sizes of v's axes but the last
    lead       the names of the leading axes
    inputs     what the inputs are, in words
    strange    for each row of the output a key of `STRANGE`, or "" if it doubles when v is doubled
    settled    for each row of the output whether it is right, or both reads and should read each
               block either completely or not at all
    """

    reading: Reading
    keys: tuple[Array, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    lead: tuple[str, ...]
    inputs: str
    strange: Array
    settled: Array

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the output's axes but the last."""
        return (*self.lead, *["head"] * (len(self.rows) - len(self.lead) - 1), "query")

    @property
    def axes_of_columns(self) -> tuple[str, ...]:
        """The names of v's axes but the last."""
        return (*self.lead, *["key head"] * (len(self.columns) - len(self.lead) - 1), "key")


def reads(probe: Probe, shape: Shape, cuts: bool = True) -> Reads:
    """Measure which keys each query reads. With `cuts`, blocks that a wrong row reads in part are cut,
    which may take many calls. Raises as `Probe.results`.
    """
    shape = _wide_enough(probe, _with_plain_scores(shape))
    operation = probe.operation
    rows, columns = shape.rows(operation, "q"), shape.rows(operation, "v")
    total, width = int(np.prod(columns)), shape.sizes["value_dim"]
    most = min(_CALLS_OF_THE_FIRST_ROUND * width, max(_FEW_CALLS * width, _BLOCKS_OF_THE_FIRST_ROUND))
    blocks: Sequence[Array] = np.array_split(np.arange(total), min(total, most))
    (reading,), first = probe.weights(shape, blocks, {}), blocks[:width]
    while cuts and probe.calls > _CALLS_OF_THE_FIRST_ROUND and (cut := _cut(blocks, reading)):
        finer = [part for place in cut for part in np.array_split(blocks[place], min(len(blocks[place]), _PARTS))]
        kept = [place for place in range(len(blocks)) if place not in cut]
        (more,) = probe.weights(shape, finer, {})
        reading = joined([reading.changed(itemgetter((slice(None), kept))), more], partial(np.concatenate, axis=1))
        blocks = [*(blocks[place] for place in kept), *finer]
        order = np.argsort([keys[0] for keys in blocks])
        blocks = [blocks[place] for place in order]
        reading = reading.changed(itemgetter((slice(None), order)))
    return Reads(
        reading,
        tuple(blocks),
        rows,
        columns,
        shape.lead,
        f"q = 0{_sinks_in_words(shape)}",
        _strange(probe, shape, first, reading),
        np.asarray(~(_in_part(blocks, reading) & reading.wrong.any(1, keepdims=True)).any(1)),
    )


def _with_plain_scores(shape: Shape) -> Shape:
    """The shape with every finite bias 0, so that visible keys have equal weights, and every finite
    sink 1, so that a sink in another place shows.
    """
    options = dict(shape.arguments)
    for name, value in (("bias", 0.0), ("sink", 1.0)):
        if name in options:
            options[name] = np.where(np.isfinite(options[name]), value, options[name])
    return replace(shape, arguments=options)


def _sinks_in_words(shape: Shape) -> str:
    sink = shape.arguments.get("sink")
    return "" if sink is None else " and sinks of 1" if np.isfinite(sink).all() else " and sinks of 1 or −∞"


def _wide_enough(probe: Probe, shape: Shape) -> Shape:
    """The shape, with more columns of v if all keys need more than a few calls, and if the caller and
    the implementation allow it.
    """
    total = int(np.prod(shape.rows(probe.operation, "v")))
    columns = min(_WIDE, total)
    is_square = shape.sizes.get("head_dim") == shape.sizes["value_dim"]  # kernels choose their code by this
    sizes = {"value_dim": columns, **({"head_dim": columns} if is_square else {})}
    wider = shape.changed(probe.operation, None, **sizes)
    is_narrow = total > _FEW_CALLS * shape.sizes["value_dim"]
    return wider if is_narrow and not probe.caller.keeps_sizes and probe.takes(wider) else shape


def _in_part(blocks: Sequence[Array], reading: Reading) -> Array:
    """Return for each row and each block of several keys whether the row reads, or should read,
    only a part of the block.

    The visible keys of a row have equal weights, so a block that is read wholly weighs as much per
    key as the heaviest block of its row. This block itself may be read in part, if a row reads no
    single key: then its first block counts as read in part, unless the row is nearly right.
    """
    numbers = np.array([len(keys) for keys in blocks])
    least = LEAST_SHARE * np.abs(reading.expected).max(1, keepdims=True)
    is_unlike = (np.abs(reading.measured - reading.expected) > least).any(1, keepdims=True)

    def of(weights: Array) -> Array:
        each = np.abs(weights) / numbers
        with np.errstate(all="ignore"):
            share = each / each.max(1, keepdims=True)
        is_read = share > LEAST_SHARE
        no_single = ~(is_read & (numbers == 1)).any(1, keepdims=True)
        first = is_read & (np.cumsum(is_read, 1) == 1)
        return np.asarray((is_read & (share < 1 - LEAST_SHARE)) | (first & no_single & is_unlike))

    return (of(reading.measured) | of(reading.expected)) & (numbers > 1)


def _cut(blocks: Sequence[Array], reading: Reading) -> set[int]:
    """Return the blocks that some wrong row reads, or should read, only in part."""
    in_part = _in_part(blocks, reading) & reading.wrong.any(1, keepdims=True)
    return {int(place) for place in np.flatnonzero(in_part.any(0))}


def _strange(probe: Probe, shape: Shape, blocks: Sequence[Array], reading: Reading) -> Array:
    """For each row of the output how it differs from W·v, a key of `STRANGE`; "" if it doubles when v
    is doubled, as W·v does exactly: 2 is a power of two.
    """
    if not reading.wrong.any():
        return np.full(len(reading.wrong), "")
    width = shape.sizes["value_dim"]
    v = shape.zeros(probe.operation, "v")
    for column, keys in enumerate(blocks):
        v.reshape(-1, width)[keys, column] = 1.0

    def out(factor: float = 1.0) -> Array:
        return probe.results(shape, v=factor * v)["out"].measured.reshape(-1, width)

    once, twice = out(), out(2.0)
    with np.errstate(all="ignore"):
        doubles = (np.abs(twice - 2 * once) <= LEAST_SHARE * np.abs(once).max(1, keepdims=True)).all(1)
    found = np.where(doubles, "", np.where(_equal(once, twice), "constant", "unlike"))
    is_suspect = not doubles.all() or ((reading.measured == 0).all(1) & reading.wrong.any(1)).any()
    if is_suspect and not probe.caller.keeps_sizes:
        other = _written_by_another(probe, shape)
        again = out()
        repeated = _equal(again, once)
        if other.size >= again.size and not repeated.all():
            kept = _equal(again, other[: again.size].reshape(again.shape))
            found = np.where(kept, "unwritten", np.where(repeated, found, "unequal"))
    return found


def _equal(one: Array, other: Array) -> Array:
    """For each row whether all entries are equal; NaN equals NaN."""
    return np.asarray(((one == other) | (np.isnan(one) & np.isnan(other))).all(1))


def _written_by_another(probe: Probe, shape: Shape) -> Array:
    """What a call with more queries and wider values writes, in the order of memory; nothing if the
    implementation does not take it. Column c of v is c + 1 in all keys, so that the output of another
    width has other numbers at the same places of memory.
    """
    sizes = shape.sizes
    other = shape.changed(probe.operation, None, n_q=sizes["n_q"] + _MORE_QUERIES, value_dim=sizes["value_dim"] + 1)
    if not probe.takes(other):
        return np.zeros(0)
    v = shape.zeros(probe.operation, "v")[..., :1] + np.arange(1.0, other.sizes["value_dim"] + 1)
    return probe.results(other, v=v)["out"].measured.reshape(-1)
