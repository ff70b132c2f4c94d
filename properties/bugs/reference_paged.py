"""Attention over keys in pages in NumPy: a part of the reference.

`properties.bugs.reference` has the other operations and explains steps.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from oracles.ball import Array
from properties.bugs.declared import declared
from properties.bugs.reference_attention import attention
from properties.bugs.reference_quantised import sequence_scales

__all__ = [
    "Paging",
    "first_query_position",
    "key_count",
    "page_contents",
    "page_places",
    "paged_attention",
    "paged_scales_of",
    "pages_of",
    "query_rows_of",
    "rows_of_batch",
    "sequence_keys",
    "slot_scales_of",
    "slots_first",
]


class Paging(NamedTuple):
    """The lengths in a call of paged attention: the table of pages, the lengths of sequences, the
    number of slots of a page, and the boundaries of the queries in one axis of rows.
    """

    table: Any
    lengths: Any
    size: int
    cu_q: Any


def page_places(positions: Any, size: int) -> tuple[Any, Any]:
    """Return for each position of a sequence the entry of its row of the table, and the slot."""
    return positions // size, positions % size


def pages_of(paging: Paging, sequence: int, entries: Any) -> Any:
    """Return the numbers of pages at some entries of the row of a sequence."""
    return paging.table[sequence, np.minimum(entries, paging.table.shape[1] - 1)]


def key_count(paging: Paging, sequence: int) -> int:
    """Return the number of keys of a sequence."""
    return int(paging.lengths[sequence])


def slots_first(pages: Array) -> Array:
    """Return pages with the axis of slots before the axis of heads."""
    return pages.swapaxes(1, 2) if declared().page_layout == "heads_first" else pages


def page_contents(pages: Array, numbers: Any, slots: Any) -> Array:
    """Return the slots of some pages. As on a device, a number without a page does not raise: it
    is the first or the last page.
    """
    return np.asarray(pages[np.clip(numbers, 0, len(pages) - 1), slots])


def sequence_keys(pages: Array, paging: Paging, sequence: int) -> Array:
    """Return the keys or values of a sequence, with the axis of heads first."""
    entries, slots = page_places(np.arange(key_count(paging, sequence)), paging.size)
    return page_contents(pages, pages_of(paging, sequence, entries), slots).swapaxes(0, 1)


def slot_scales_of(scale: Array, paging: Paging, sequence: int) -> Array:
    """Return the scales of the keys or values of a sequence, with the axis of heads first."""
    return sequence_keys(scale, paging, sequence)


def paged_scales_of(paging: Paging, sequence: int, name: str, scale: Array) -> Array:
    """Return the scales of the queries, keys or values of a sequence, with the axis of heads first."""
    if name != "q_scale":
        return slot_scales_of(slots_first(scale), paging, sequence)
    return np.swapaxes(rows_of_batch(scale)[query_rows_of(paging, sequence)], 0, 1)


def rows_of_batch(q: Array) -> Array:
    """Return the queries of all sequences in one axis of rows."""
    return q if q.ndim == 3 else q.reshape(q.shape[0] * q.shape[1], *q.shape[2:])


def query_rows_of(paging: Paging, sequence: int) -> Any:
    """Return the rows of the queries of a sequence."""
    return np.arange(paging.cu_q[sequence], paging.cu_q[sequence + 1])


def first_query_position(paging: Paging, sequence: int) -> int:
    """Return the position of the first query of a sequence among its keys; it may be below 0."""
    return int(paging.lengths[sequence]) - len(query_rows_of(paging, sequence))


def paged_attention(
    q: Array, k_pages: Array, v_pages: Array, block_table: Any, lengths: Any, **options: Any
) -> tuple[Array, Array]:
    """Return the output and the log-sum-exp of the queries of all sequences."""
    cu_q, of_attention = options.pop("cu_q", None), {"causal": True, **options}
    query_rows, k_pages, v_pages = rows_of_batch(q), slots_first(k_pages), slots_first(v_pages)
    boundaries = q.shape[1] * np.arange(len(lengths) + 1) if cu_q is None else cu_q
    paging = Paging(block_table, lengths, k_pages.shape[1], boundaries)
    out, lse = np.zeros((*query_rows.shape[:2], v_pages.shape[-1])), np.zeros(query_rows.shape[:2])
    for sequence in range(len(lengths)):
        own_rows = query_rows_of(paging, sequence)
        queries = query_rows[own_rows].swapaxes(0, 1)
        k, v = sequence_keys(k_pages, paging, sequence), sequence_keys(v_pages, paging, sequence)
        sequence_output, sequence_lse = attention(
            queries,
            k,
            v,
            offset=first_query_position(paging, sequence),
            **sequence_scales(of_attention, sequence, partial(paged_scales_of, paging)),
        )
        out[own_rows], lse[own_rows] = sequence_output.swapaxes(0, 1), sequence_lse.swapaxes(0, 1)
    if cu_q is not None:
        return out, lse if declared().packed_lse == "rows_first" else np.ascontiguousarray(lse.T)
    out = out.reshape(*q.shape[:-1], v_pages.shape[-1])
    return out, np.ascontiguousarray(lse.reshape(q.shape[:-1]).swapaxes(1, 2))
