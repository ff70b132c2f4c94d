"""Known bugs of attention over keys in pages."""

from functools import partial
from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs.bug import Memory, Register
from properties.bugs.quantised import scaled
from properties.bugs.reference_paged import (
    Paging,
    first_query_position,
    page_contents,
    paged_attention,
    paged_scales_of,
    pages_of,
    query_rows_of,
    sequence_keys,
    slot_scales_of,
)
from properties.bugs.reference_quantised import head_scales_of

_PAGED = "paged_attention"
bug = Register(seen=_PAGED)
in_key_count = partial(bug.in_step, "key_count")
in_pages_of = partial(bug.in_step, "pages_of")
_OPTIONS = ("scale", "causal", "window", "softcap", "sink", "alibi")
_AGREES = "attention over pages is within its error limit"
_ALONE = "sequences with pages are computed independently"
_ORDER = "the order of pages does not matter"
_SLOTS = "the content of unused slots does not matter"
_SHARED = "shared pages give the same as copies of them"
_SIZES = "another page size gives the same"
_DECODING = "decoding a query alone gives the same as in a chunk"
_ONE_KEY = "a query with one key returns its value"
_NUMBERS = "numbers of pages beyond 8 and 16 bits are right"
_TABLE = "a longer row of the table of pages changes nothing"


def _page_total(paging: Paging, sequence: int) -> int:
    """Return how many pages a sequence needs."""
    return -(-int(paging.lengths[sequence]) // paging.size)


# -- The length of a sequence ----------------------------------------------------------------------


@in_key_count(
    law=_SLOTS,
    effect="Without a causal mask, queries attend to the slots behind the last key: to old keys, or to zeros.",
    repair="Mask the keys at positions from the length on.",
    origin="the loop runs over whole pages, and the mask of the last page is forgotten; compare "
    "flashinfer-ai/flashinfer#941",
)
def paged_last_page_read_whole(paging: Paging, sequence: int) -> int:
    """The code reads all slots of the last page."""
    return _page_total(paging, sequence) * paging.size


@in_key_count(
    law=_SLOTS,
    effect="At every length that fills its last page, queries attend to one more page.",
    repair="Take ⌈length / page_size⌉ pages.",
    citations="pegainfer-project/pegainfer#291",
)
def paged_one_page_too_many_at_a_border(paging: Paging, sequence: int) -> int:
    """The table has one page more than a sequence needs where its last page is full, and the code
    reads this page as whole.
    """
    length = int(paging.lengths[sequence])
    return length + (paging.size if length and length % paging.size == 0 else 0)


@in_key_count(
    law=_SIZES,
    effect="At every length that fills its last page, queries miss this page.",
    repair="Take (length − 1) mod page_size + 1 as the number of keys in the last page.",
    origin="last_page_len = length mod page_size is 0 where the page is full; compare vllm-project/vllm#8132",
)
def paged_full_last_page_counts_as_empty(paging: Paging, sequence: int) -> int:
    """The code takes length mod page_size for the number of keys in the last page, which is 0 where
    the page is full.
    """
    length = int(paging.lengths[sequence])
    return max(_page_total(paging, sequence) - 1, 0) * paging.size + length % paging.size


@in_key_count(
    law=_SIZES,
    effect="Queries miss the newest keys until their page is full.",
    repair="Read ⌈length / page_size⌉ pages.",
    origin="a division that rounds down",
)
def paged_last_partial_page_is_lost(paging: Paging, sequence: int) -> int:
    """The code reads only the first length // page_size pages."""
    return int(paging.lengths[sequence]) // paging.size * paging.size


@in_key_count(
    law=_ONE_KEY,
    effect="A token does not attend to itself, and the tokens of a chunk not to each other.",
    repair="Pass the lengths after the new keys are written.",
    origin="flash_attn_with_kvcache counts the keys before the new ones, other calls count all; compare "
    "microsoft/onnxruntime-genai#2354",
)
def paged_length_without_the_new_keys(paging: Paging, sequence: int) -> int:
    """The code takes the length for the number of keys with the new ones, and removes the new ones."""
    return max(int(paging.lengths[sequence]) - len(query_rows_of(paging, sequence)), 0)


@in_key_count(
    law=_SLOTS,
    effect="Without a causal mask, short sequences attend to slots behind their keys, and to pages of others.",
    repair="Take the length of each sequence.",
    origin="one bound for all sequences of a batch; compare EricLBuehler/mistral.rs#1746",
)
def paged_longest_length_for_all_sequences(paging: Paging, sequence: int) -> int:
    """The code takes the longest length for all sequences."""
    return int(np.max(paging.lengths, initial=0))


@in_key_count(
    law=_AGREES,
    effect="Without a causal mask, an empty sequence gives the value of somebody else's key.",
    repair="Return zeros for a length of 0.",
    origin="a kernel that reads at least one page; compare flashinfer-ai/flashinfer#353",
)
def paged_empty_sequence_has_a_key(paging: Paging, sequence: int) -> int:
    """The code reads at least one key, also for a length of 0."""
    return max(int(paging.lengths[sequence]), 1)


@in_key_count(
    law=_ALONE,
    effect="Every sequence but the first attends to too many or too few keys.",
    repair="Read the length at the place of the sequence.",
    origin="an index of the batch that is lost where lengths become an argument of the launch",
)
def paged_length_of_sequence_0(paging: Paging, sequence: int) -> int:
    """The code reads the length of sequence 0 for all sequences."""
    return int(paging.lengths[0])


# -- The table of pages ----------------------------------------------------------------------------


@in_pages_of(
    law=_ALONE,
    effect="All sequences attend to the keys of the first one.",
    repair="Read the row of the sequence.",
    origin="an index of the batch that is lost; compare the review of quic/efficient-transformers#1209",
)
def paged_table_row_of_sequence_0(paging: Paging, sequence: int, entries: Any) -> Any:
    """The code reads the first row of the table for all sequences."""
    return pages_of(paging, 0, entries)


@in_pages_of(
    law=_TABLE,
    effect="All sequences but the first read pages of their neighbours, where the table has spare entries.",
    repair="Multiply the number of the sequence by the width of the table.",
    origin="the stride is computed from the longest length, and the table is wider",
)
def paged_table_stride_of_the_longest_length(paging: Paging, sequence: int, entries: Any) -> Any:
    """The code takes the number of pages that the longest sequence needs for the stride of the table."""
    stride = max(_page_total(paging, exchanged) for exchanged in range(len(paging.lengths)))
    return paging.table.reshape(-1)[np.minimum(sequence * stride + entries, paging.table.size - 1)]


@in_pages_of(
    law=_ORDER,
    effect="A sequence whose pages do not lie one behind the other reads pages of others.",
    repair="Read the table for each page.",
    citations="tanishqkumar/ssd#23; golang-design/accel#10",
)
def paged_table_is_not_read(paging: Paging, sequence: int, entries: Any) -> Any:
    """The code reads the pages of all sequences one behind the other, and ignores the table."""
    first_page = sum(_page_total(paging, exchanged) for exchanged in range(sequence))
    return first_page + entries


@in_pages_of(
    law=_ORDER,
    effect="A sequence whose pages do not lie one behind the other reads pages of others.",
    repair="Read the table for each page, also within a tile.",
    citations="hw-native-sys/pypto#470",
)
def paged_second_page_follows_the_first(paging: Paging, sequence: int, entries: Any) -> Any:
    """The code reads two pages at once, from the number of the first one."""
    return pages_of(paging, sequence, entries // 2 * 2) + entries % 2


@in_pages_of(
    law=_SIZES,
    effect="The newest keys are read from the page before, which holds older keys.",
    repair="Load the number of the page before its keys.",
    origin="a number of a page that is loaded one step early or late; compare the review of "
    "lightseekorg/tokenspeed#522",
)
def paged_page_of_the_step_before(paging: Paging, sequence: int, entries: Any) -> Any:
    """The loop loads the number of a page after the keys, so it uses the number of the step before."""
    return pages_of(paging, sequence, np.maximum(entries - 1, 0))


@in_pages_of(
    law=_NUMBERS,
    effect="With more than 65536 pages, sequences read pages of others.",
    repair="Keep numbers of pages in at least 32 bits.",
    citations="ROCm/ATOM#702",
)
def paged_page_numbers_in_16_bits(paging: Paging, sequence: int, entries: Any) -> Any:
    """The code keeps the numbers of pages in 16 bits."""
    return pages_of(paging, sequence, entries) % 2**16


@in_pages_of(
    law=_NUMBERS,
    effect="With more than 256 pages, sequences read pages of others.",
    repair="Keep numbers of pages in at least 32 bits.",
    origin="a table in 8 bits, enough for the pages of a test; compare ROCm/ATOM#702, where it is 16 bits",
)
def paged_page_numbers_in_8_bits(paging: Paging, sequence: int, entries: Any) -> Any:
    """The code keeps the numbers of pages in 8 bits."""
    return pages_of(paging, sequence, entries) % 2**8


@in_pages_of(
    law=_ORDER,
    effect="A page with the number 0 is not read: its first reader sees another page instead.",
    repair="Give no number of a page another meaning, or keep page 0 free.",
    origin="serving code keeps page 0 free as a place for padding, and a kernel relies on it",
)
def paged_page_0_is_padding(paging: Paging, sequence: int, entries: Any) -> Any:
    """The code takes the number 0 for an unused entry, and reads page 1 there."""
    return np.maximum(pages_of(paging, sequence, entries), 1)


# -- Pages and slots -------------------------------------------------------------------------------


@bug.in_step(
    "page_places",
    law=_SIZES,
    effect="Pages of 3, 24 or 96 slots give wrong keys.",
    repair="Divide by the page size, or refuse other sizes than powers of two.",
    origin="a shift and a mask instead of a division; compare microsoft/onnxruntime-genai#2568",
)
def paged_page_size_is_a_power_of_two(positions: Any, size: int) -> tuple[Any, Any]:
    """The code takes the entry and the slot of a key by a shift and a mask, which are right where the
    page size is a power of two.
    """
    return positions >> (max(size, 1).bit_length() - 1), positions & (size - 1)


@bug.in_step(
    "page_places",
    law=_SIZES,
    effect="Pages that are not as large as the tile of the kernel give wrong keys.",
    repair="Take the page size of the arguments.",
    origin="kernels are compiled for a page of 16; compare flashinfer-ai/flashinfer#4347",
)
def paged_pages_of_16_slots(positions: Any, size: int) -> tuple[Any, Any]:
    """The code is compiled for pages of 16 slots, and reads larger pages as such."""
    known = min(size, 16)
    return positions // known, positions % known


@bug.in_step(
    "page_contents",
    law=_ONE_KEY,
    effect="With several key heads, keys of other heads and other positions are read.",
    repair="Declare the layout of pages, and read it so.",
    origin="pages exist as (slots, heads) and as (heads, slots), of one size; compare flashinfer-ai/flashinfer#2799",
)
def paged_heads_and_slots_exchanged(pages: Array, numbers: Any, slots: Any) -> Array:
    """The code reads pages of (slots, heads) as pages of (heads, slots)."""
    size, heads = pages.shape[1:3]
    exchanged = pages.reshape(len(pages), heads, size, -1).swapaxes(1, 2)
    return page_contents(exchanged, numbers, slots)


@bug.in_operation(
    _PAGED,
    law=_ONE_KEY,
    effect="Values belong to other keys wherever the pages of a sequence are not in order.",
    repair="Read values from the pages of their keys.",
    origin="the loop over values takes the number of the loop over keys as that of a page",
)
def paged_values_without_the_table(
    q: Array, k_pages: Array, v_pages: Array, block_table: Any, lengths: Any, **options: Any
) -> Any:
    """The code reads values one page behind the other, and keys by the table."""
    size = k_pages.shape[1]
    page_counts = -(-lengths // max(size, 1))
    values = np.zeros(v_pages.shape)
    for table_row, start, count in zip(block_table, np.cumsum([0, *page_counts]), page_counts, strict=False):
        values[table_row[:count]] = v_pages[np.minimum(start + np.arange(count), len(v_pages) - 1)]
    return paged_attention(q, k_pages, values, block_table, lengths, **options)


@bug.in_step(
    "sequence_keys",
    law=_SHARED,
    effect="A shared prefix has twice its weight.",
    repair="Leave the pages of the prefix out of the second pass.",
    origin="cascade attention computes the prefix once for all sequences, and merges the rest; compare "
    "vllm-project/vllm#11635",
)
def paged_shared_prefix_counted_twice(pages: Array, paging: Paging, sequence: int) -> Array:
    """The code computes the first page, if a sequence shares it with the first one, in a separate
    pass, and again with the other pages.
    """
    sequence_values = sequence_keys(pages, paging, sequence)
    is_shared = (
        sequence > 0
        and paging.table[sequence, 0] == paging.table[0, 0]
        and min(paging.lengths[0], paging.lengths[sequence]) > 0
    )
    return np.concatenate([sequence_values[:, : paging.size], sequence_values], 1) if is_shared else sequence_values


@bug.in_step(
    "sequence_keys",
    law=_SIZES,
    effect="Long sequences miss the keys between the parts.",
    repair="Divide pages among the parts so that each page has one.",
    origin="a number of pages that does not divide by the number of splits; compare Dao-AILab/flash-attention#2550",
)
def paged_split_loses_its_remainder(pages: Array, paging: Paging, sequence: int) -> Array:
    """Two parts get ⌊pages / 2⌋ pages each, so an odd number of pages loses the last."""
    sequence_values, total = sequence_keys(pages, paging, sequence), _page_total(paging, sequence)
    return sequence_values[:, : total // 2 * 2 * paging.size] if total > 2 else sequence_values


# -- Queries ---------------------------------------------------------------------------------------


@bug.in_step(
    "first_query_position",
    law=_DECODING,
    effect="The queries of a chunk miss the newest keys before them.",
    repair="Place query i at length − n_q + i.",
    citations="gittensor-ai-lab/sparkinfer#3",
)
def paged_first_query_at_the_first_key(paging: Paging, sequence: int) -> int:
    """The code gives the first query the position of the first key."""
    return 0


@bug.in_step(
    "first_query_position",
    law=_DECODING,
    effect="Queries attend to later keys, by up to a page.",
    repair="Place queries by the length, not by the number of slots.",
    origin="the offset is taken from the keys in memory, which fill whole pages",
)
def paged_offset_from_whole_pages(paging: Paging, sequence: int) -> int:
    """The code takes the number of slots of the pages of a sequence for its length."""
    return _page_total(paging, sequence) * paging.size - len(query_rows_of(paging, sequence))


@bug.in_step(
    "first_query_position",
    law=_DECODING,
    effect="Sequences with fewer queries than the longest one miss keys, where queries are ragged.",
    repair="Take the number of queries of each sequence.",
    origin="max_seqlen_q instead of the number of queries of the sequence",
)
def paged_offset_from_the_most_queries(paging: Paging, sequence: int) -> int:
    """The code uses the largest number of queries for each sequence."""
    return int(paging.lengths[sequence]) - int(np.diff(paging.cu_q).max(initial=0))


@bug.in_step(
    "first_query_position",
    law=_DECODING,
    effect="Where a sequence has more queries than keys, its first queries attend to keys after them.",
    repair="Let positions be below 0: such queries see nothing.",
    origin="an unsigned or clamped difference of lengths",
)
def paged_position_below_0_is_0(paging: Paging, sequence: int) -> int:
    """The code gives a first query before the first key the position of the first key."""
    return max(first_query_position(paging, sequence), 0)


# -- Slots without keys ----------------------------------------------------------------------------


@bug.in_operation(
    _PAGED,
    law=_AGREES,
    promises={"conventions": Conventions(blocked_values="unread")},
    effect="The output is NaN where the last page holds memory that was never written.",
    repair="Load zeros for values behind the length, or fill new pages with zeros.",
    citations="flashinfer-ai/flashinfer#941; Dao-AILab/flash-attention#1745; Dao-AILab/flash-attention#2374",
)
def paged_weights_of_0_times_unused_values(
    q: Array, k_pages: Array, v_pages: Array, block_table: Any, lengths: Any, **options: Any
) -> Any:
    """The code multiplies the values in all slots of the last page by their weights. The weights of
    unused slots are 0, but 0 times NaN is NaN.
    """
    out, lse = paged_attention(q, k_pages, v_pages, block_table, lengths, **options)
    is_spoilt = np.array(
        [_of_last_page(v_pages, table_row, int(length)) for table_row, length in zip(block_table, lengths, strict=True)]
    )
    cu_q = options.get("cu_q")
    query_counts = np.full(len(lengths), q.shape[1]) if cu_q is None else np.diff(cu_q)
    in_order = np.repeat(is_spoilt, query_counts).reshape(out.shape[:-2] if cu_q is None else -1)
    spoilt_rows = np.zeros(out.shape[:-2], bool)
    spoilt_rows[: len(in_order)] = in_order
    return np.where(spoilt_rows[..., None, None], np.nan, out), lse


def _of_last_page(pages: Array, table_row: Any, length: int) -> bool:
    """Return whether the slots behind a length, in its last page, hold NaN."""
    size = pages.shape[1]
    return length % size > 0 and bool(np.isnan(pages[table_row[length // size], length % size :]).any())


# -- Scales of codes in pages ----------------------------------------------------------------------


@bug.in_step(
    "head_scales_of",
    **scaled("head", _ALONE),
    effect="All sequences but the first have wrong scores and outputs, as soon as scales differ.",
    repair="Read the scales at the place of the sequence.",
    citations="ROCm/rocm-libraries#10474; vllm-project/vllm#42580",
)
def paged_scale_of_sequence_0(scale: Array, sequence: int) -> Array:
    """The code reads the scales of sequence 0 for all sequences."""
    return head_scales_of(scale, 0)


@bug.in_step(
    "slot_scales_of",
    **scaled("token", _ORDER),
    effect="A sequence whose pages are not in order multiplies its codes by scales of other pages.",
    repair="Read scales at the number of the page, as codes.",
    origin="codes are read through the table, and an array of scales that was added later is not",
)
def paged_scale_by_place_in_the_table(scale: Array, paging: Paging, sequence: int) -> Array:
    """The code reads the scales of a page at its place in the table instead of its number."""
    places = np.broadcast_to(np.arange(paging.table.shape[1]), paging.table.shape)
    return slot_scales_of(scale, paging._replace(table=places), sequence)


@bug.in_step(
    "slot_scales_of",
    **scaled("token", _SIZES),
    effect="All keys of a page have the scale of its first key.",
    repair="Read a scale for each slot.",
    origin="a kernel with one scale for each page is called with one for each slot; compare "
    "ROCm/composable_kernel#3696",
)
def paged_scale_of_the_first_slot(scale: Array, paging: Paging, sequence: int) -> Array:
    """The code reads the scale of the first slot of a page for all its slots."""
    return slot_scales_of(np.broadcast_to(scale[:, :1], scale.shape), paging, sequence)


@bug.in_step(
    "slot_scales_of",
    **scaled("token", _SHARED),
    effect="Keys have the scales of another page, often of another sequence.",
    repair="Compute the address of scales from the strides of the cache.",
    citations="vllm-project/vllm#49716",
)
def paged_scale_of_the_page_before(scale: Array, paging: Paging, sequence: int) -> Array:
    """The code reads the scale in the right slot of the page before."""
    return slot_scales_of(np.roll(scale, 1, 0), paging, sequence)


@bug.in_step(
    "paged_scales_of",
    **scaled("token", "a call does not depend on earlier calls"),
    remembers=True,
    effect="The codes of a new sequence have the scales of the sequence whose page it reuses.",
    repair="Write scales with codes, also in a page that was used before.",
    origin="scales are kept by the number of the page, and a page that is free keeps them",
)
def paged_scale_of_a_reused_page(memory: Memory, paging: Paging, sequence: int, name: str, scale: Array) -> Array:
    """The code keeps the scales of the first call and reads them in later calls on as many pages."""
    return paged_scales_of(paging, sequence, name, memory.setdefault((name, scale.shape), scale.copy()))
