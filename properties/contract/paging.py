"""Finds the keys of sequences in pages in the arguments of a call, and puts keys into other pages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array
from oracles.paged import page_numbers, page_rows
from properties.contract.quantising import of_sequences

__all__ = [
    *("Gathered", "flat", "gathered", "in_order", "page_arrays", "page_count", "pages_are_shared"),
    *("queries_of", "query_arrays", "slots_of", "unused_entries", "unused_slots", "with_sequences"),
]

Case = dict[str, Any]
Gathered = list[tuple[Array, ...]]
"""The keys and the values of each sequence, and their scales if these belong to slots."""


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


def page_arrays(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the arrays with an entry for each slot: keys, values, and scales of slots."""
    names = ("k_pages", "v_pages", "k_scale", "v_scale")
    return tuple(name for name in names if given.get(name) is not None and given[name].ndim == 4)


def query_arrays(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the arrays with an entry for each query: queries, and their scale if it belongs
    to rows.
    """
    scale = given.get("q_scale")
    return ("q",) if scale is None or scale.ndim < given["q"].ndim else ("q", "q_scale")


def gathered(given: Mapping[str, Any]) -> Gathered:
    """Return the keys and the values of each sequence, in the order of their positions, with their
    scales if these belong to slots.
    """
    arrays = [flat(given[name]) for name in page_arrays(given)]
    return [tuple(x[slots] for x in arrays) for slots in slots_of(given)]


def in_order(given: Mapping[str, Any], sequence_keys: Gathered, page_size: int) -> Case:
    """Return the case with these keys in pages of a size: the pages of a sequence are its own, one
    behind the other, and the table has no more entries than the longest sequence needs. Unused
    slots are 0, and so are unused entries of the table.
    """
    page_counts = [page_count(len(of_sequence[0]), page_size) for of_sequence in sequence_keys]
    starts, total = np.cumsum([0, *page_counts]), sum(page_counts)
    block_table = np.zeros((len(sequence_keys), max([1, *page_counts])), np.int32)
    names = page_arrays(given)
    pages = [np.zeros((max(total, 1), page_size, *given[name].shape[2:])) for name in names]
    for sequence, of_sequence in enumerate(sequence_keys):
        block_table[sequence, : page_counts[sequence]] = starts[sequence] + np.arange(page_counts[sequence])
        for all_pages, keys_or_values in zip(pages, of_sequence, strict=True):
            slots = flat(all_pages)[starts[sequence] * page_size :]
            slots[: len(keys_or_values)] = keys_or_values
    lengths = np.array([len(of_sequence[0]) for of_sequence in sequence_keys], np.int32)
    return {**given} | dict(zip(names, pages, strict=True)) | {"block_table": block_table, "lengths": lengths}


def queries_of(given: Mapping[str, Any], sequence: int, name: str = "q") -> Array:
    """Return the queries of a sequence: (n_q, num_heads, head_dim), or their scale."""
    cu_q = given["cu_q"]
    return np.asarray(given[name][sequence] if cu_q is None else given[name][cu_q[sequence] : cu_q[sequence + 1]])


def with_sequences(given: Mapping[str, Any], order: Sequence[int], queries: Sequence[slice] | None = None) -> Case:
    """Return the case with these sequences in this order. `queries` says which queries of each sequence
    are left; all by default. Rows of queries that no sequence uses are left out.
    """
    kept = [slice(None)] * len(order) if queries is None else queries
    changed_case = {**given, **of_sequences(given, order)}
    changed_case |= {name: given[name][[*order]] for name in ("block_table", "lengths")}
    for name in query_arrays(given):
        rows = [queries_of(given, b, name)[part] for b, part in zip(order, kept, strict=True)]
        if given["cu_q"] is None:
            changed_case[name] = np.stack(rows) if rows else given[name][:0]
        else:
            changed_case[name] = np.concatenate([given[name][:0], *rows])
            changed_case["cu_q"] = np.cumsum([0, *map(len, rows)]).astype(given["cu_q"].dtype)
    return changed_case
