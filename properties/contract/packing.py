"""Finds the rows of sequences in the arguments of a call of packed or paged attention: the lengths of
sequences, and the rows that no sequence uses.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.packed import sequence_rows, unused_rows
from properties.contract.features import QUANTISED
from properties.contract.operation import Arguments, Operation
from properties.contract.paging import flat, queries_of, slots_of
from properties.contract.quantising import CODES, of_heads, of_query_heads

__all__ = [
    "AXES",
    "has_padding",
    "lengths",
    "names_pages",
    "of_sequence",
    "padding",
    "rows_of",
    "settled",
    "with_longest",
]

AXES = {"q": "total_q", "k": "total_k"}
"""The axis of rows on each side, queries and keys."""


def rows_of(given: Mapping[str, Any], side: str) -> list[range]:
    """Return the rows that each sequence uses of the queries ("q") or the keys ("k"), from the
    arguments of a call by name.
    """
    return sequence_rows(given[f"cu_{side}"], given.get(f"seqused_{side}"), len(given[side]), side)


def lengths(given: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the numbers of queries and of keys that each sequence uses."""
    if "block_table" in given:
        batch, cu_q = len(given["lengths"]), given["cu_q"]
        queries = [given["q"].shape[1]] * batch if cu_q is None else np.diff(cu_q).tolist()
        return list(zip(queries, given["lengths"].tolist(), strict=True))
    return list(zip(*(map(len, rows_of(given, side)) for side in AXES), strict=True))


def of_sequence(given: Mapping[str, Any], sequence: int, conventions: Conventions) -> dict[str, Any]:
    """Return the queries, the keys and the values of a sequence, and the scales that it has, as
    attention takes them without batch axes: (heads, n, width).
    """
    found = dict[str, Any]()
    for name in (*CODES, *QUANTISED):
        if (x := given.get(name)) is None:
            continue
        side = "q" if name[0] == "q" else "k"
        if x.ndim < 3:  # of heads, or of all codes
            own = np.broadcast_to(x, of_heads(given) or ())[sequence]
            own = own if side == "k" else of_query_heads(own, given["q"].shape[-2], conventions)
            own = own[None, :, None]
        elif "cu_k" in given:
            rows = rows_of(given, side)[sequence]
            own = x[rows.start : rows.stop]
        else:
            own = queries_of(given, sequence, name) if side == "q" else flat(x)[slots_of(given)[sequence]]
        found[name.removesuffix("_pages")] = own.swapaxes(0, 1)
    return found


def padding(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for each axis of rows, True for the rows that no sequence uses."""
    if "block_table" in given:
        is_batch = given["cu_q"] is None
        return {} if is_batch else {"n_q": unused_rows(rows_of(given, "q"), len(given["q"]))}
    return {axis: unused_rows(rows_of(given, side), len(given[side])) for side, axis in AXES.items()}


def with_longest(operation: Operation, features: Collection[str], arguments: Arguments) -> Arguments:
    """Return the arguments of a call with the longest lengths, max_seqlen_q and max_seqlen_k, if the
    operation takes packed sequences and the adapter declares these features.
    """
    if not operation.is_packed:
        return arguments
    given = operation.named(arguments)
    longest = {f"max_seqlen_{side}": int(np.diff(given[f"cu_{side}"]).max(initial=0)) for side in AXES}
    return tuple(longest[name] if name in longest and name in features else value for name, value in given.items())


def names_pages(given: Mapping[str, Any]) -> bool:
    """Return whether all entries of the table of pages name pages, also those beyond the lengths."""
    table = given["block_table"]
    return bool(((table >= 0) & (table < len(given["k_pages"]))).all())


def has_padding(given: Mapping[str, Any]) -> bool:
    """Return whether there are rows that no sequence uses."""
    return any(unused.any() for unused in padding(given).values())


def settled(
    given: Mapping[str, Any], axes: Mapping[str, tuple[str, ...]], names: Sequence[str], values: Sequence[Any]
) -> Arguments:
    """Return results, or arguments, with 0 in the rows that no sequence uses. `axes` has the axes of
    each by name.
    """
    unused, found = padding(given), []
    for name, value in zip(names, values, strict=True):
        rows = next((axis for axis in axes.get(name, ()) if axis in unused), "")
        if rows:
            value = value.copy()
            from_the_end = axes[name].index(rows) - len(axes[name])
            np.moveaxis(value, from_the_end, 0)[unused[rows]] = 0.0
        found.append(value)
    return tuple(found)
