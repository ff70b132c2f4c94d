"""Draws how sequences are packed: their lengths, the rows that they do not use, and the numbers in
such rows. Also finds cases with fewer and shorter sequences.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from properties.contract.implementation import Implementation, combined
from properties.contract.operations import Operation
from properties.contract.packing import AXES, padding, rows_of
from properties.strategies.choices import Choices
from properties.strategies.sizes import UnsupportedError

__all__ = ["chosen", "fewer", "poison"]

_LENGTHS = (3, 2, 1, 0, 4, 5, 7, 8, 9, 15, 16, 17, 33)
_KINDS = ("ragged", "ragged", "ragged", "equal", "without queries", "without keys", "empty", "empty")
"""Sequences of any lengths, of equal lengths, or with one or two empty sequences among them."""
_UNUSED = (0, 1, 2, 5)
_BEHIND = (0, 0, 1, 3)
_SLACK = (0, 1, 7, 64)
_POISON = 64.0

Case = dict[str, Any]
Lengths = Mapping[str, Sequence[int]]


def chosen(
    implementation: Implementation,
    sizes: dict[str, int],
    lengths: Lengths,
    options: frozenset[str],
    choose: Choices,
) -> Case:
    """Return the boundaries of the sequences of a case (test input), and its options about lengths.
    `sizes` gets the numbers of rows; if it has them, the sequences share these rows.

    `lengths` are the numbers of queries and of keys (n_q, n_k) to choose from.
    """
    count, may_pad = sizes["sequences"], "no padding rows" not in implementation.support.options
    drawn = zip(*_drawn(implementation, count, lengths, choose), strict=True) if "total_q" not in sizes else ((), ())
    case: Case = {}
    for (side, axis), used in zip(AXES.items(), map(np.array, drawn), strict=True):
        is_used_in_part = f"seqused_{side}" in options and may_pad
        unused = np.array([choose.among(_UNUSED) if is_used_in_part else 0 for _ in range(count)], int)
        if axis in sizes:
            owned = _shares(sizes[axis], count, choose)
            used = np.maximum(owned - unused, 0)
        else:
            owned = used + unused
            sizes[axis] = int(owned.sum()) + (choose.among(_BEHIND) if may_pad else 0)
        case[f"cu_{side}"] = np.cumsum([0, *owned]).astype(np.int32)
        if f"seqused_{side}" in options:
            case[f"seqused_{side}"] = used.astype(np.int32)
        if f"max_seqlen_{side}" in options:
            slack = choose.among(_SLACK) if implementation.resolved_conventions.max_seqlen == "bound" else 0
            case[f"max_seqlen_{side}"] = int(owned.max(initial=0)) + slack
    return case


def _shares(total: int, count: int, choose: Choices) -> Any:
    """Return lengths of a number of sequences that share all rows, some of them empty."""
    cuts = np.sort(choose.integers(0, total, max(count - 1, 0)))
    return np.diff([0, *cuts, total])[:count]


def _drawn(implementation: Implementation, count: int, lengths: Lengths, choose: Choices) -> list[tuple[int, int]]:
    """Return the numbers of queries and of keys of each sequence, among those that are supported."""

    def is_taken(n_q: int, n_k: int) -> bool:
        return implementation.allows(**combined({"n_q": n_q, "n_k": n_k}))

    queries, keys = (lengths.get(name, _LENGTHS) for name in ("n_q", "n_k"))
    pairs = [(n_q, n_k) for n_q in queries for n_k in keys if is_taken(n_q, n_k)]
    pairs = pairs or [(n, n) for n in queries if is_taken(n, n)]
    if not pairs:
        raise UnsupportedError(f"{implementation.name} supports no lengths of sequences among {[*queries]}.")
    drawn, kind = [choose.among(pairs) for _ in range(count)], choose.among(_KINDS)
    if kind == "equal":
        return drawn[:1] * count
    if kind != "ragged" and count:
        emptied = {choose.among((0, count - 1, count // 2)), choose.among((0, count - 1, count // 2))}
        for number in emptied:
            n_q, n_k = drawn[number]
            empty = (0 if kind != "without keys" else n_q, 0 if kind != "without queries" else n_k)
            drawn[number] = empty if is_taken(*empty) else drawn[number]
    return drawn


def poison(operation: Operation, implementation: Implementation, case: Case, choose: Choices) -> None:
    """Fill the rows that no sequence uses: with NaN if the adapter declares that masked values are not
    read, else with a large number, its negative, or zeros.
    """
    is_unread = implementation.resolved_conventions.blocked_values == "unread"
    numbers = [np.nan] if is_unread else [_POISON, -_POISON, 0.0]
    unused = padding(case)
    for name in operation.arrays:
        rows = [axis for axis in operation.axes[name] if axis in unused]
        if rows and case[name] is not None:
            case[name][(slice(None),) * operation.axes[name].index(rows[0]) + (unused[rows[0]],)] = choose.among(
                numbers
            )


@dataclass(frozen=True)
class _Kept:
    """What a smaller case keeps of a sequence: how many used and how many unused rows on each side."""

    number: int
    used: Mapping[str, int]
    unused: Mapping[str, int]


def fewer(operation: Operation, case: Case) -> Iterator[Case]:
    """Yield cases (test inputs) with fewer sequences, with shorter ones, and without rows that no
    sequence uses; the largest cuts come first.
    """
    rows = {side: rows_of(case, side) for side in AXES}
    ends = {side: case[f"cu_{side}"][1:] for side in AXES}
    all_kept = [
        _Kept(
            number,
            {side: len(rows[side][number]) for side in AXES},
            {side: int(ends[side][number]) - rows[side][number].stop for side in AXES},
        )
        for number in range(len(ends["q"]))
    ]
    behind = {side: len(case[side]) - int(case[f"cu_{side}"][-1]) for side in AXES}
    length = len(all_kept)
    while length > 1:
        length = -(-length // 2)
        for start in range(0, len(all_kept), length):
            yield _of_sequences(operation, case, all_kept[:start] + all_kept[start + length :], behind)
    for side in AXES:
        if behind[side]:
            yield _of_sequences(operation, case, all_kept, {**behind, side: 0})
        for place, kept_sequence in enumerate(all_kept):
            for kept_part in ("unused", "used"):
                row_count = getattr(kept_sequence, kept_part)[side]
                for fewer_rows in dict.fromkeys(n for n in (0, row_count // 2, row_count - 1) if 0 <= n < row_count):
                    changed = _Kept(
                        **{**vars(kept_sequence), kept_part: {**getattr(kept_sequence, kept_part), side: fewer_rows}}
                    )
                    yield _of_sequences(operation, case, [*all_kept[:place], changed, *all_kept[place + 1 :]], behind)


def _of_sequences(operation: Operation, case: Case, sequences: Sequence[_Kept], behind: Mapping[str, int]) -> Case:
    """Return the case (test input) with these sequences alone, and some rows behind them."""
    changed = dict(case)
    for side, axis in AXES.items():
        starts = rows_of(case, side)
        index: list[int] = []
        for kept_sequence in sequences:
            owned_rows = starts[kept_sequence.number]
            index += range(owned_rows.start, owned_rows.start + kept_sequence.used[side])
            index += range(owned_rows.stop, owned_rows.stop + kept_sequence.unused[side])
        last = int(case[f"cu_{side}"][-1])
        index += range(last, last + behind[side])
        owned = [kept_sequence.used[side] + kept_sequence.unused[side] for kept_sequence in sequences]
        changed[f"cu_{side}"] = np.cumsum([0, *owned]).astype(case[f"cu_{side}"].dtype)
        if case.get(f"seqused_{side}") is not None or any(kept_sequence.unused[side] for kept_sequence in sequences):
            changed[f"seqused_{side}"] = np.array([kept_sequence.used[side] for kept_sequence in sequences], np.int32)
        if case.get(f"max_seqlen_{side}") is not None:
            slack = case[f"max_seqlen_{side}"] - max(map(int, np.diff(case[f"cu_{side}"])), default=0)
            changed[f"max_seqlen_{side}"] = max(owned, default=0) + slack
        for name in operation.arrays:
            if axis in operation.axes[name] and case[name] is not None:
                changed[name] = np.take(case[name], index, operation.axes[name].index(axis))
    return changed
