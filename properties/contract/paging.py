"""Finds the keys of sequences in pages in the arguments of a call, and puts keys into other pages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array
from oracles.paged import page_numbers, page_rows

__all__ = [
    *("Gathered", "flat", "gathered", "in_order", "page_count", "pages_are_shared", "queries_of", "slots_of"),
    *("unused_entries", "unused_slots", "with_sequences"),
]

Case = dict[str, Any]
Gathered = list[tuple[Array, Array]]
"""The keys and the values of each sequence."""


def page_count(length: int, page_size: int) -> int:
    """Return how many pages of a size hold a number of keys."""
    return -(-length // max(page_size, 1))


def slots_of(given: Mapping[str, Any]) -> list[NDArray[np.int64]]:
    """Return the slots of the keys of each sequence; page n has the slots from page_size·n on."""
    pages, lengths = given["k_pages"], given["lengths"].astype(np.int64)
    numbers = page_numbers(given["block_table"], lengths, *pages.shape[:2])
    return np.split(page_rows(numbers, lengths, pages.shape[1]), lengths.cumsum()[:-1]) if len(lengths) else []


def unused_slots(given: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return True for each page and slot (num_pages, page_size) that no sequence reads."""
    unused = np.ones(given["k_pages"].shape[:2], bool)
    for slots in slots_of(given):
        unused.reshape(-1)[slots] = False
    return unused


def unused_entries(given: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return True for each entry of the table of pages that is beyond the length of its sequence."""
    counts = np.array([page_count(length, given["k_pages"].shape[1]) for length in given["lengths"].tolist()], int)
    return np.arange(given["block_table"].shape[1]) >= counts[:, None]


def pages_are_shared(given: Mapping[str, Any]) -> bool:
    """Return whether a page is read at several entries of the table."""
    used = given["block_table"][~unused_entries(given)]
    return len(np.unique(used)) < len(used)


def flat(x: Array) -> Array:
    """Return an array with its first two axes as one: the slots of all pages, or the rows of a batch."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def gathered(given: Mapping[str, Any]) -> Gathered:
    """Return the keys and the values of each sequence, in the order of their positions."""
    k, v = (flat(given[name]) for name in ("k_pages", "v_pages"))
    return [(k[slots], v[slots]) for slots in slots_of(given)]


def in_order(given: Mapping[str, Any], sequence_keys: Gathered, page_size: int) -> Case:
    """Return the case with these keys in pages of a size: the pages of a sequence are its own, one
    behind the other, and the table has no more entries than the longest sequence needs. Unused
    slots are 0, and so are unused entries of the table.
    """
    page_counts = [page_count(len(k), page_size) for k, _ in sequence_keys]
    starts, total = np.cumsum([0, *page_counts]), sum(page_counts)
    block_table = np.zeros((len(sequence_keys), max([1, *page_counts])), np.int32)
    pages = [np.zeros((max(total, 1), page_size, *given[name].shape[2:])) for name in ("k_pages", "v_pages")]
    for sequence, of_sequence in enumerate(sequence_keys):
        block_table[sequence, : page_counts[sequence]] = starts[sequence] + np.arange(page_counts[sequence])
        for all_pages, keys_or_values in zip(pages, of_sequence, strict=True):
            slots = flat(all_pages)[starts[sequence] * page_size :]
            slots[: len(keys_or_values)] = keys_or_values
    lengths = np.array([len(k) for k, _ in sequence_keys], np.int32)
    return {**given} | {"k_pages": pages[0], "v_pages": pages[1], "block_table": block_table, "lengths": lengths}


def queries_of(given: Mapping[str, Any], sequence: int) -> Array:
    """Return the queries of a sequence: (n_q, num_heads, head_dim)."""
    cu_q = given["cu_q"]
    return np.asarray(given["q"][sequence] if cu_q is None else given["q"][cu_q[sequence] : cu_q[sequence + 1]])


def with_sequences(given: Mapping[str, Any], order: Sequence[int], queries: Sequence[Array] | None = None) -> Case:
    """Return the case with these sequences in this order. `queries` replace the queries of the sequences.
    Rows of queries that no sequence uses are left out.
    """
    query_rows = [queries_of(given, sequence) for sequence in order] if queries is None else [*queries]
    changed_case = {**given} | {name: given[name][[*order]] for name in ("block_table", "lengths")}
    if given["cu_q"] is None:
        return changed_case | {"q": np.stack(query_rows) if query_rows else given["q"][:0]}
    cu_q = np.cumsum([0, *map(len, query_rows)]).astype(given["cu_q"].dtype)
    return changed_case | {"q": np.concatenate([given["q"][:0], *query_rows]), "cu_q": cu_q}
