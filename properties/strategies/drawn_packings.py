"""Draws how sequences are packed: their lengths, the rows that they do not use, and the numbers in
such rows. Also finds cases with fewer and shorter sequences.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation, combined
from properties.contract.operations import Operation
from properties.contract.packing import AXES, lengths, padding
from properties.contract.quantising import of_sequences
from properties.strategies import drawn_codes
from properties.strategies.choices import Choices
from properties.strategies.sizes import UnsupportedError

__all__ = ["chosen", "fewer", "poison"]

_LENGTHS = (3, 2, 1, 0, 4, 5, 7, 8, 9, 15, 16, 17, 33)
_KINDS = ("ragged", "ragged", "ragged", "equal", "without queries", "without keys", "empty", "empty")
"""Sequences of any lengths, of equal lengths, or with one or two empty sequences among them."""
_UNUSED = (0, 1, 2, 5)
_BEHIND = (0, 0, 1, 3)
_SLACK = (0, 1, 7, 64)

Case = dict[str, Any]
Lengths = Mapping[str, Sequence[int]]


def chosen(
    implementation: Implementation,
    sizes: dict[str, int],
    offered: Lengths,
    options: frozenset[str],
    choose: Choices,
) -> Case:
    """Return the boundaries of the sequences of a case (test input), and its options about lengths.
    `sizes` gets the numbers of rows; if it has them, the sequences share these rows.

    `offered` are the numbers of queries and of keys (n_q, n_k) to choose from.
    """
    count, may_pad = sizes["sequences"], "no padding rows" not in implementation.support.options
    drawn_lengths = (
        zip(*_drawn(implementation, count, offered, choose), strict=True) if "total_q" not in sizes else ((), ())
    )
    case: Case = {}
    for (side, axis), used_rows in zip(AXES.items(), map(np.array, drawn_lengths), strict=True):
        is_used_in_part = f"seqused_{side}" in options and may_pad
        unused_rows = np.array([choose.among(_UNUSED) if is_used_in_part else 0 for _ in range(count)], int)
        if axis in sizes:
            owned_rows = _shares(sizes[axis], count, choose)
            used_rows = np.maximum(owned_rows - unused_rows, 0)
        else:
            owned_rows = used_rows + unused_rows
            sizes[axis] = int(owned_rows.sum()) + (choose.among(_BEHIND) if may_pad else 0)
        case[f"cu_{side}"] = np.cumsum([0, *owned_rows]).astype(np.int32)
        if f"seqused_{side}" in options:
            case[f"seqused_{side}"] = used_rows.astype(np.int32)
        if f"max_seqlen_{side}" in options:
            slack = choose.among(_SLACK) if implementation.resolved_conventions.max_seqlen == "bound" else 0
            case[f"max_seqlen_{side}"] = int(owned_rows.max(initial=0)) + slack
    return case


def _shares(total: int, count: int, choose: Choices) -> Any:
    """Return lengths of a number of sequences that share all rows, some of them empty."""
    boundaries = np.sort(choose.integers(0, total, max(count - 1, 0)))
    return np.diff([0, *boundaries, total])[:count]


def _drawn(implementation: Implementation, count: int, offered: Lengths, choose: Choices) -> list[tuple[int, int]]:
    """Return the numbers of queries and of keys of each sequence, among those that are supported."""

    def is_taken(n_q: int, n_k: int) -> bool:
        return implementation.allows(**combined({"n_q": n_q, "n_k": n_k}))

    queries, keys = (offered.get(name, _LENGTHS) for name in ("n_q", "n_k"))
    pairs = [(n_q, n_k) for n_q in queries for n_k in keys if is_taken(n_q, n_k)]
    pairs = pairs or [(n, n) for n in queries if is_taken(n, n)]
    if not pairs:
        raise UnsupportedError(f"{implementation.name} supports no lengths of sequences among {[*queries]}.")
    drawn_lengths, kind = [choose.among(pairs) for _ in range(count)], choose.among(_KINDS)
    if kind == "equal":
        return drawn_lengths[:1] * count
    if kind != "ragged" and count:
        emptied = {choose.among((0, count - 1, count // 2)), choose.among((0, count - 1, count // 2))}
        for number in emptied:
            n_q, n_k = drawn_lengths[number]
            empty = (0 if kind != "without keys" else n_q, 0 if kind != "without queries" else n_k)
            drawn_lengths[number] = empty if is_taken(*empty) else drawn_lengths[number]
    return drawn_lengths


def poison(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Fill the rows that no sequence uses with what a correct kernel does not read, or masks."""
    unused_rows = padding(case)
    for name, axis, place in _with_rows(operation, case):
        rows = np.moveaxis(case[name], place, 0)
        rows[unused_rows[axis]] = drawn_codes.unread(name, implementation, choose)


def _with_rows(operation: Operation, case: Case) -> list[tuple[str, str, int]]:
    """Return the arrays of a case with an axis of rows, the axis, and its place."""
    return [
        (name, axis, place)
        for name, axes in operation.axes.items()
        for place, axis in enumerate(axes)
        if axis in AXES.values() and getattr(case.get(name), "ndim", 0) == len(axes)
    ]


def fewer(operation: Operation, case: Case) -> Iterator[Case]:
    """Yield cases (test inputs) with fewer sequences, without rows that no sequence uses, and with
    shorter sequences; the largest cuts come first.
    """
    counts, rows_behind = _counts(case)
    total = length = counts.shape[-1]
    while length > 1:
        length = -(-length // 2)
        for start in range(0, total, length):
            remaining = np.delete(np.arange(total), np.s_[start : start + length])
            yield _packed_again(operation, case, remaining, counts[..., remaining], rows_behind)
    for place in zip(*np.nonzero(rows_behind), strict=True):
        yield _packed_again(operation, case, np.arange(total), counts, _with(rows_behind, place, 0))
    for place in zip(*np.nonzero(counts), strict=True):
        number = int(counts[place])
        for smaller in dict.fromkeys((0, number // 2, number - 1)):
            yield _packed_again(operation, case, np.arange(total), _with(counts, place, smaller), rows_behind)


def _counts(case: Case) -> tuple[Any, Any]:
    """Return how many rows are unused and used, by side, kind and sequence; and how many rows come
    behind the last sequence, by side.
    """
    used_rows = np.transpose(lengths(case)).reshape(2, -1)
    owned_rows = np.array([np.diff(case[f"cu_{side}"]) for side in AXES])
    rows_behind = np.array([len(case[side]) - case[f"cu_{side}"][-1] for side in AXES])
    return np.stack([owned_rows - used_rows, used_rows], 1), rows_behind


def _with(counts: Any, place: tuple[Any, ...], number: int) -> Any:
    changed = counts.copy()
    changed[place] = number
    return changed


def _packed_again(operation: Operation, case: Case, numbers: Any, counts: Any, rows_behind: Any) -> Case:
    """Return the case (test input) with the first rows of some sequences, as `_counts` gives them."""
    changed, kept = case | of_sequences(case, numbers), dict[str, Any]()
    for (side, axis), (unused_rows, used_rows), more_rows in zip(AXES.items(), counts, rows_behind, strict=True):
        boundaries, owned_rows = case[f"cu_{side}"], used_rows + unused_rows
        starts, number_of_rows = [*boundaries[numbers], boundaries[-1]], [*owned_rows, more_rows]
        kept[axis] = [start + np.arange(number) for start, number in zip(starts, number_of_rows, strict=True)]
        changed[f"cu_{side}"] = np.cumsum([0, *owned_rows]).astype(np.int32)
        if case[f"seqused_{side}"] is not None:
            changed[f"seqused_{side}"] = used_rows.astype(np.int32)
        if case[f"max_seqlen_{side}"] is not None:
            longest = np.diff(boundaries).max(initial=0) - owned_rows.max(initial=0)
            changed[f"max_seqlen_{side}"] = case[f"max_seqlen_{side}"] - int(longest)
    for name, axis, place in _with_rows(operation, case):
        changed[name] = np.take(case[name], np.concatenate(kept[axis]), place)
    return changed
