"""Which keys each query of packed sequences reads, measured from outside.

All queries are 0, so all visible keys have equal weights. Each row of each key head has its own
column of v, so a row says its sequence and its place there, or that no sequence uses it. The error
limit of each weight says what is wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from properties.contract import packing
from properties.contract.features import PACKED
from properties.contract.results import BrokenError
from properties.contract.support import OutsideError
from properties.inspection.array import Array
from properties.inspection.places import spanned
from properties.inspection.probe import Probe, Reading, SpentError
from properties.inspection.reads import LEAST_SHARE
from properties.inspection.shapes import Shape

__all__ = ["PackedReads", "packed_reads", "sentences_of_packed_reads", "up_to_wrong_keys"]

Reads = TypeVar("Reads", bound="PackedReads")

_LENGTHS = (
    ((3, 4), (2, 3), (4, 2)),
    ((2, 3), (0, 2), (3, 0), (2, 2)),
    ((1, 5), (0, 1), (1, 2), (1, 3)),
    ((2, 20), (2, 9)),
)
"""The numbers of queries and of keys of sequences that are measured after those of the call."""

_MOST_KEYS = 40  # of the call, in all key heads
_MOST_SENTENCES = 3
_NEAR = 0.01  # relative to the largest weight: errors like roundings
_READS, _MISSES, _ARE = ("reads", "read"), ("misses", "miss"), ("is", "are")


@dataclass(frozen=True)
class PackedReads:
    """The weight that each query row and head gives to each key row and key head.

    lengths   the numbers of queries and of keys of each sequence, or None for those of the call
    rows      the rows of each sequence, of queries and of keys
    reading   one row for each query row and head, one column for each key row and key head
    heads     the numbers of heads and of key heads
    """

    lengths: Sequence[tuple[int, int]] | None
    rows: dict[str, list[range]]
    reading: Reading
    heads: tuple[int, int]

    @property
    def shows_keys(self) -> bool:
        """Whether a weight is wrong in a row that reads some key."""
        return bool((self.reading.wrong.any(1) & (self.reading.measured != 0).any(1)).any())

    @property
    def beginning(self) -> str:
        """The lengths in words, or ""."""
        parts = (
            f"{name} {', '.join(map(str, each))}"
            for name, each in zip(("n_q", "n_k"), np.transpose(self.lengths or [(0, 0)]), strict=True)
        )
        return f"with {' and '.join(parts)}: " if self.lengths else ""

    def owner(self, row: int, side: str = "q") -> tuple[int, int]:
        """The sequence that uses a row, and the place of the row there; −1 and the row for none."""
        owners = ((sequence, row - rows.start) for sequence, rows in enumerate(self.rows[side]) if row in rows)
        return next(owners, (-1, row))

    def in_words(self, keys: Sequence[int], own: int, of_own: str = "") -> str:
        """Rows of keys in words, by the sequence that uses them. `of_own` says what keys of the query's
        own sequence are.
        """
        places: dict[int, list[int]] = {}
        for row in keys:
            sequence, place = self.owner(row, "k")
            places.setdefault(sequence, []).append(place)
        return " and ".join(
            f"{of_own}{spanned(each, 'key')}"
            if sequence == own
            else f"{spanned(each, 'row')} of k, which no sequence uses"
            if sequence < 0
            else f"{spanned(each, 'key')} of sequence {sequence}"
            for sequence, each in places.items()
        )


def packed_reads(probe: Probe, shape: Shape) -> tuple[PackedReads, ...]:
    """Measure what the queries read in the packing of a shape, if it is small, and in other packings,
    up to one whose wrong weights tell more than that no key is read. Raises as `up_to_wrong_keys`.
    """
    return up_to_wrong_keys(_measured(probe, shape))


def up_to_wrong_keys(readings: Iterator[Reads]) -> tuple[Reads, ...]:
    """Return readings up to the first one that shows wrong keys. Raises as `Probe.results`, unless an
    earlier reading has a wrong weight.
    """
    found: list[Reads] = []
    try:
        for one in readings:
            found.append(one)
            if one.shows_keys:
                break
    except (BrokenError, OutsideError, SpentError):
        if not any(one.reading.wrong.any() for one in found):
            raise
    return tuple(found)


def _measured(probe: Probe, shape: Shape) -> Iterator[PackedReads]:
    """Measure the packings of a shape, one after the other."""
    for lengths, packed in _shapes(probe, shape):
        given = {**packed.arguments, **{side: packed.zeros(probe.operation, side) for side in packing.AXES}}
        heads = packed.sizes["num_heads"], packed.sizes["kv_heads"]
        blocks = [np.array([row]) for row in range(packed.sizes["total_k"] * heads[1])]
        (reading,) = probe.weights(packed, blocks, {})
        rows = {side: packing.rows_of(given, side) for side in packing.AXES}
        yield PackedReads(lengths, rows, reading, heads)


def _shapes(probe: Probe, shape: Shape) -> Iterator[tuple[Sequence[tuple[int, int]] | None, Shape]]:
    """The shapes of the packings that are measured, and their lengths."""
    if shape.sizes["total_k"] * shape.sizes["kv_heads"] <= _MOST_KEYS:
        yield None, _wide(probe, shape)
    remaining = {
        option: value for option, value in shape.arguments.items() if option not in PACKED and option[:3] != "cu_"
    }
    for lengths in _LENGTHS:
        boundaries = np.concatenate([[(0, 0)], np.cumsum(lengths, 0)]).astype(np.int32).T
        options = dict(zip(("cu_q", "cu_k"), boundaries, strict=True))
        total = dict(zip(packing.AXES.values(), boundaries[:, -1].tolist(), strict=True))
        other = replace(shape, sizes={**shape.sizes, **total}, arguments={**remaining, **options})
        call = packing.with_longest(probe.operation, probe.caller.implementation.features, other.call(probe.operation))
        longest = {name: value for name, value in probe.operation.named(call).items() if name[:3] == "max" and value}
        other = _wide(probe, replace(other, arguments={**other.arguments, **longest}))
        if probe.takes(other):
            yield lengths, other


def _wide(probe: Probe, shape: Shape) -> Shape:
    """The shape with a column of v for each key row and key head, if that is taken, and sinks of 1."""
    wanted = max(shape.sizes["total_k"] * shape.sizes["kv_heads"], shape.sizes["value_dim"])
    options = {option: np.ones_like(value) if option == "sink" else value for option, value in shape.arguments.items()}
    shape = replace(shape, arguments=options)
    wider = replace(shape, sizes={**shape.sizes, "value_dim": wanted})
    return wider if probe.takes(wider) else shape


def sentences_of_packed_reads(found: Sequence[PackedReads]) -> tuple[str, ...]:
    """What the queries of a packing with a wrong weight read otherwise than they should, in sentences; ()
    if no query does, or nearly. A packing in which such a query reads a key comes first.
    """
    order = sorted(found, key=lambda one: not one.shows_keys)
    return tuple(next(filter(None, map(_sentences, order)), [])[:_MOST_SENTENCES])


def _sentences(packed: PackedReads) -> list[str]:
    """The sentences about a packing: one for the queries of a sequence with the same mistake."""
    same_mistakes: dict[tuple[int, Any], list[tuple[int, int]]] = {}
    for index in np.flatnonzero(packed.reading.wrong.any(1)).tolist():
        row, head = divmod(index, packed.heads[0])
        sequence, query = packed.owner(row)
        if mistakes := _difference(packed, index, sequence):
            same_mistakes.setdefault((sequence, mistakes), []).append((query, head))
    sentences = []
    for (sequence, mistakes), places in same_mistakes.items():
        queries, heads = (sorted(set(each)) for each in zip(*places, strict=True))
        words = f"{spanned(queries, 'query')} of sequence {sequence}"
        words += f" in {spanned(heads, 'head', packed.heads[0])}" if len(heads) < packed.heads[0] else ""
        sentences.append(f"{words} {' and '.join(f'{verbs[len(queries) > 1]} {rest}' for verbs, rest in mistakes)}.")
    if sentences:
        sentences[0] = packed.beginning + sentences[0]
    return [f"{sentence[0].upper()}{sentence[1:]}" for sentence in sentences]


def _difference(packed: PackedReads, index: int, own: int) -> tuple[tuple[tuple[str, str], str], ...]:
    """What a query reads otherwise than it should: verbs, each with what follows; () for errors like
    roundings.
    """
    measured, expected = (side[index] for side in packed.reading[:2])
    if not np.isfinite(measured).all():
        return ((_ARE, "NaN or infinite"),)
    if np.allclose(measured, expected, rtol=0, atol=_NEAR * expected.max(initial=0.0)):
        return ()
    read, due = (np.flatnonzero(np.abs(each) > LEAST_SHARE * np.abs(each).max()) for each in (measured, expected))
    if not read.size:
        return ((_READS, "no key"),)
    (read_rows, read_heads), (due_rows, due_heads) = (np.divmod(each, packed.heads[1]) for each in (read, due))
    if np.array_equal(read_rows, due_rows):
        if np.array_equal(read_heads, due_heads):
            return ((_READS, f"the right keys, with {_weights(measured[read], expected[read])}"),)
        heads = (spanned(sorted(set(each.tolist())), "key head") for each in (read_heads, due_heads))
        return ((_READS, ", should read ".join(heads)),)
    surplus, missing = np.setdiff1d(read_rows, due_rows).tolist(), np.setdiff1d(due_rows, read_rows).tolist()
    found = [(_READS, packed.in_words(surplus, own, "masked "))] if surplus else []
    return tuple(found + ([(_MISSES, packed.in_words(missing, own))] if missing else []))


def _weights(measured: Array, expected: Array) -> str:
    """Wrong weights in words: by their sums, or if these are equal by the smallest and the largest."""
    if abs(measured.sum() - expected.sum()) > _NEAR:
        return f"weights that add up to {measured.sum():.4g}, should be {expected.sum():.4g}"
    ends = (f"from {each.min():.4g} to {each.max():.4g}" for each in (measured, expected))
    return f"weights {', should be '.join(ends)}"
