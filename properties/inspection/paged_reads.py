"""Which slots of which pages each query reads, measured from outside.

All queries are 0, so all visible keys have equal weights. Each slot of each page and key head has its
own column of v_pages, so a column says its page and slot. The error limit of each weight says what
is wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from properties.contract import paging
from properties.inspection.packed_reads import PackedReads, up_to_wrong_keys
from properties.inspection.places import spanned
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape

__all__ = ["PagedReads", "paged_reads"]

_MOST_SLOTS = 40  # of the call, in all key heads
_UNUSED = -1
_TABLES: tuple[tuple[int, Sequence[tuple[int, int]], Sequence[Sequence[int]]], ...] = (
    (1, ((2, 1), (1, 0), (0, 1)), ((4, 0, 3, _UNUSED), (1, _UNUSED, _UNUSED, _UNUSED), (2, _UNUSED, _UNUSED, _UNUSED))),
    (2, ((1, 1), (2, 0)), ((3, 1), (3, 0))),
    (3, ((0, 2), (0, 0), (1, 1)), ((2, _UNUSED), (_UNUSED, _UNUSED), (0, 3))),
    (1, ((3, -1), (2, 0)), ((1, 5, 2), (6, 3, _UNUSED))),
)
"""The tables that are measured after that of the call: the number of queries of each sequence; the
length of each as a number of whole pages and of further keys; and the pages of each. An unused entry
names a page of another sequence.
"""


@dataclass(frozen=True)
class PagedReads(PackedReads):
    """The weight that each query and head gives to each slot and key head.

    rows     the rows of the queries of each sequence
    lengths  the numbers of queries and of keys of each sequence, or None for those of the call
    slots    the slots of each sequence, in the order of its keys; page n has the slots from
             page_size·n on
    pages    the pages of each sequence
    size     the number of slots of a page
    """

    slots: Sequence[Sequence[int]] = ()
    pages: Sequence[Sequence[int]] = ()
    size: int = 1

    def in_words(self, keys: Sequence[int], own: int, of_own: str = "") -> str:
        """Slots in words: keys of the sequence itself, slots of its pages beyond its length, and slots
        of other pages by page.
        """
        own_slots = [*self.slots[own]]
        places = [own_slots.index(slot) for slot in keys if slot in own_slots]
        found = [f"{of_own}{spanned(sorted(places), 'key')}"] if places else []
        other_slots: dict[int, list[int]] = {}
        for slot in keys:
            if slot not in own_slots:
                other_slots.setdefault(slot // self.size, []).append(slot % self.size)
        return " and ".join(found + [self._of_page(page, slots, own) for page, slots in other_slots.items()])

    def _of_page(self, page: int, slots: Sequence[int], own: int) -> str:
        """Slots of a page that the sequence should not read, in words."""
        if page in self.pages[own]:
            place = "its last page" if page == self.pages[own][-1] else f"its page {page}"
            return f"{spanned(slots, 'slot')} of {place} (beyond its length)"
        slot_numbers = {page * self.size + slot for slot in slots}
        owners = [b for b, used in enumerate(self.slots) if slot_numbers <= {*used}]
        owner = f"of sequence {owners[0]}" if owners else "of no sequence"
        return f"page {page}, {spanned(slots, 'slot')} ({owner})"


def paged_reads(probe: Probe, shape: Shape) -> tuple[PagedReads, ...]:
    """Measure what the queries read at the table of a shape, if it is small, and at other tables, up to
    one whose wrong weights tell more than that no key is read. Raises as `up_to_wrong_keys`.
    """
    return up_to_wrong_keys(_measured(probe, shape))


def _measured(probe: Probe, shape: Shape) -> Iterator[PagedReads]:
    """Measure the tables of a shape, one after the other."""
    for lengths, paged in _shapes(probe, shape):
        given = probe.operation.named(paged.call(probe.operation))
        heads, size = (paged.sizes["num_heads"], paged.sizes["kv_heads"]), paged.sizes["page_size"]
        blocks = [np.array([row]) for row in range(paged.sizes["num_pages"] * size * heads[1])]
        (reading,) = probe.weights(paged, blocks, {})
        slots = [each.tolist() for each in paging.slots_of(given)]
        pages = [[*dict.fromkeys(slot // size for slot in each)] for each in slots]
        yield PagedReads(lengths, {"q": _query_rows(given)}, reading, heads, slots, pages, size)


def _query_rows(given: dict[str, Any]) -> list[range]:
    """The rows of the queries of each sequence, all of them in one axis."""
    batch, cu_q = len(given["lengths"]), given["cu_q"]
    boundaries = given["q"].shape[1] * np.arange(batch + 1) if cu_q is None else cu_q
    return [range(int(boundaries[b]), int(boundaries[b + 1])) for b in range(batch)]


def _shapes(probe: Probe, shape: Shape) -> Iterator[tuple[Sequence[tuple[int, int]] | None, Shape]]:
    """The shapes that are measured: with the table of the call, and with other tables."""
    if shape.sizes["num_pages"] * shape.sizes["page_size"] * shape.sizes["kv_heads"] <= _MOST_SLOTS:
        yield None, _wide(probe, shape)
    for size in dict.fromkeys((3, shape.sizes["page_size"])):
        for queries, lengths, pages in _TABLES:
            other_shape = _with_table(shape, size, queries, lengths, pages)
            if probe.takes(other_shape):
                n_k = other_shape.arguments["lengths"].tolist()
                yield [(queries, length) for length in n_k], _wide(probe, other_shape)


def _with_table(
    shape: Shape, size: int, queries: int, lengths: Sequence[tuple[int, int]], pages: Sequence[Sequence[int]]
) -> Shape:
    """The shape with another table, and a number of queries for each sequence."""
    batch, is_ragged = len(pages), "cu_q" in shape.arguments
    block_table = np.array(pages, np.int32)
    first_page = int(block_table[0, 0])
    arguments = {
        **shape.arguments,
        "block_table": np.where(block_table == _UNUSED, first_page, block_table),
        "lengths": np.array([size * whole + more for whole, more in lengths], np.int32),
        **({"cu_q": queries * np.arange(batch + 1, dtype=np.int32)} if is_ragged else {}),
    }
    sizes = {"page_size": size, "num_pages": int(block_table.max()) + 1, "n_q": queries * (batch if is_ragged else 1)}
    return replace(shape, sizes={**shape.sizes, **sizes}, batch=() if is_ragged else (batch,), arguments=arguments)


def _wide(probe: Probe, shape: Shape) -> Shape:
    """The shape with a column of v_pages for each slot and key head, if that is taken, and sinks of 1."""
    slots = shape.sizes["num_pages"] * shape.sizes["page_size"] * shape.sizes["kv_heads"]
    options = {name: np.ones_like(value) if name == "sink" else value for name, value in shape.arguments.items()}
    shape = replace(shape, arguments=options)
    wider = replace(shape, sizes={**shape.sizes, "value_dim": max(slots, shape.sizes["value_dim"])})
    return wider if probe.takes(wider) else shape
