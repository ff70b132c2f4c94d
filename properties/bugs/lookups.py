"""Slips in what is built and looked up by integers, and in adding encodings: masks of padding,
masks combined, rows of tables.
"""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import Register, named
from properties.bugs.reference import padding_mask

bug = Register()


for _name, _allows, _told in (
    ("padding_one_too_many", lambda lengths, max_len: np.arange(max_len) <= lengths[:, None], """Position j is allowed up to the length,
     inclusively. Effect: The first position of padding is attended to. Repair: Position j is the sequence's own where j < length: positions
     count from 0. Seen: none: positions count from 0 and lengths from 1"""),
    ("padding_at_the_beginning", lambda lengths, max_len: np.arange(max_len) >= max_len - lengths[:, None], """The last positions are
     allowed instead of the first. Effect: The ends of sequences are masked, and their padding is attended to. Repair: Compare positions
     with lengths from the side on which the batch is padded: here the end. Seen: none: batches to generate from are padded at the
     beginning, others at the end"""),
    ("padding_empty_sequence_is_full", lambda lengths, max_len: np.arange(max_len) <= (lengths[:, None] - 1) % max(max_len, 1), """The last
     own position is marked, and all before it: for a length of 0 that is the position −1, which is the last. Effect: An empty sequence is
     attended to as a whole. Repair: Compare each position with the length: a length of 0 has no last position. Seen: none: an index of −1
     raises nothing in Python"""),
    ("padding_relative_to_the_end", lambda lengths, max_len: np.arange(max_len) < lengths[:, None] * max_len // lengths.max(initial=1),
     """Lengths are stretched, so that the longest sequence reaches max_len. Effect: What is masked depends on the longest sequence of the
     batch. Repair: Compare with the lengths themselves, not with their share of the longest one. Seen: none: lengths are given as shares of
     the longest in some data loaders, and of max_len in others"""),
    ("padding_sorted_by_length", lambda lengths, max_len: padding_mask(np.sort(lengths)[::-1], max_len), """The lengths are sorted, longest
     first, and the rows are not brought back. Effect: Sequences have each other's masks, unless they come sorted. Repair: Bring the rows
     back to the order of the batch. Seen: none: batches are sorted by length for packing; compare allenai/allennlp#510"""),
):  # fmt: skip
    bug("padding_mask", law="each row allows as many positions as its sequence has")(named(_allows, _name, _told))


@bug("padding_mask", law="empty arrays give empty results")
def padding_of_nothing_raises(lengths: Any, max_len: int) -> Any:
    """Columns are compared up to the longest length, which there is not in a batch without
    sequences. Effect: A batch without sequences raises ValueError. Repair: Compare up to max_len.
    Seen: none: NumPy has no maximum of nothing"""
    longest, out = lengths.max(), np.zeros((len(lengths), max_len), bool)
    out[:, :longest] = np.arange(longest) < lengths[:, None]
    return out


for _name, _combine, _law, _told in (
    ("combined_by_or", lambda first, second: first | second, "causal and padding masks allow the first keys", """The masks are combined by
     `or`, as those are whose true entries block. Effect: The future and padding are attended to, wherever one of the masks allows it.
     Repair: Masks whose true entries allow are combined by `and`, those whose true entries block by `or`. Seen:
     lucidrains/local-attention#5; NVIDIA/TransformerEngine#1271"""),
    ("combined_second_inverted", lambda first, second: first & ~second, "masks that allow all or nothing decide", """The second mask is
     taken for one whose true entries block, as padding masks often are. Effect: Padding alone is attended to. Repair: Bring both masks to
     one polarity. Seen: InseeFrLab/torchTextClassifiers#92"""),
    ("combined_where_equal", lambda first, second: first == second, "masks that allow all or nothing decide", """An entry is allowed where
     the masks agree: masked twice is not masked. Effect: What both masks block is attended to. Repair: Combine masks by `and`. Seen: none:
     it is an exclusive or of what they mask"""),
):  # fmt: skip
    bug("combine_masks", law=_law)(named(_combine, _name, _told))


@bug("combine_masks", law="causal and padding masks allow the first keys")
def combined_keeps_a_dead_row(first: Any, second: Any) -> Any:
    """A row in which nothing is left has what the first mask allows.
    Effect: Queries that may attend to nothing attend to what the first mask allows. Repair: Leave
    dead rows dead: attention has a convention for them. Seen: none: a guard against NaN in softmax,
    one layer too early; compare pytorch/pytorch#103963"""
    both = first & second
    return np.where(both.any(-1, keepdims=True), both, first)


@bug("combine_masks", law="a mask can be written out")
def combined_square_batch_along_queries(first: Any, second: Any) -> Any:
    """A row for all queries of each sequence is squeezed; with as many queries it is read as one
    row for each query. Effect: Where there are as many sequences as queries, padding is masked
    along the queries. Repair: Give padding an axis for the queries, and leave axes of size 1 where
    they are. Seen: none: axes are squeezed and broadcast anew, from the right"""
    if second.ndim == 3 and second.shape[1] == 1 and first.ndim > 1 and first.shape[-2] == second.shape[0]:
        return np.broadcast_to(first & second[:, 0], np.broadcast_shapes(first.shape, second.shape)).copy()
    return first & second


@bug("combine_masks", law="empty arrays give empty results")
def combined_without_entries_raises(first: Any, second: Any) -> Any:
    """The first allowed key of each row is looked for, so that the keys before it can be left out.
    Effect: Masks without columns raise ValueError. Repair: Return those as they are. Seen: none:
    the maximum of nothing has no position"""
    both = first & second
    return both & (np.arange(both.shape[-1]) >= both.argmax(-1)[..., None])


@bug.slip("table_lookup", law="tables of row numbers read out the rows")
def lookup_padding_row(table: Array, indices: Any) -> Array:
    """Row 0 is taken for the padding row and read as zeros.
    Effect: The entry of index 0 is lost. Repair: A row is for padding only if one is declared.
    Seen: facebookresearch/fairseq#1187"""
    return np.where((indices == 0)[..., None], 0.0, table[indices])


@bug.slip("table_lookup", law="tables of row numbers read out the rows")
def lookup_counts_from_one(table: Array, indices: Any) -> Array:
    """Indices count from 1, so that 0 wraps around to the end.
    Effect: Index 0 reads the last row, every other the row before its own. Repair: Count rows from
    0, or shift the indices where a table of another language is read. Seen: mlverse/torch#220
    (indices from 1, where an index of 0 raises instead)"""
    return np.asarray(table[indices - 1])


@bug.slip("table_lookup", law="tables of row numbers read out the rows", requires=("large sizes",))
def lookup_in_eight_bits(table: Array, indices: Any) -> Array:
    """Indices are signed numbers of eight bits: 128 becomes −128, which counts from the table's
    end. Effect: Indices from 128 on read rows from the end of the table. Repair: Hold indices in a
    type that is wide enough for the table. Seen: none: indices are kept in the smallest type that
    passes the tests, and negative ones raise nothing"""
    return np.asarray(table[indices.astype(np.int8)])


@bug("table_lookup", law="the order of indices does not matter")
def lookup_sorted(table: Array, indices: Any) -> Array:
    """Indices are sorted, so that memory is read in order, and the rows are not brought back.
    Effect: Rows come out in the order of the table. Repair: Bring the rows back to their order.
    Seen: none: it reads memory in order"""
    return np.asarray(table[np.sort(indices, axis=None).reshape(indices.shape)])


@bug("table_lookup", law="the order of indices does not matter")
def lookup_each_row_once(table: Array, indices: Any) -> Array:
    """Each row of the table is written to the last place at which its index stands.
    Effect: A token that comes twice has its embedding at its last place only. Repair: Gather rows
    at each index, instead of scattering each row to its place. Seen: none: the inverse of an index
    is one place, where a token comes twice it has two"""
    flat, out = indices.ravel(), np.zeros((indices.size, table.shape[-1]))
    last = np.zeros(len(table), np.int64)
    last[flat] = np.arange(flat.size)
    out[last[flat]] = table[flat]
    return out.reshape(*indices.shape, table.shape[-1])


@bug("table_lookup", law="the order of indices does not matter")
def lookup_indices_transposed(table: Array, indices: Any) -> Array:
    """Square indices are read along their other axis.
    Effect: As many sequences as positions have their tokens exchanged. Repair: Keep the order of
    the axes: the width comes last. Seen: none: batch-first and batch-last shapes can be told apart,
    but for squares"""
    return np.asarray(table[indices.T if indices.ndim == 2 and indices.shape[0] == indices.shape[1] else indices])


@bug.slip("table_lookup", law="rows that are not read do not matter")
def lookup_subtracts_the_mean(table: Array, indices: Any) -> Array:
    """The mean of the table's rows is subtracted.
    Effect: A row depends on all the others. Repair: Return the table's rows as they are. Seen:
    none: embeddings are centred in training"""
    return np.asarray((table - table.mean(0))[indices])


@bug.slip("table_lookup", law="empty arrays give empty results")
def lookup_no_indices_raises(table: Array, indices: Any) -> Array:
    """The largest index is checked first, and there is none.
    Effect: A lookup of nothing raises ValueError. Repair: Check indices by a maximum that is
    defined for none. Seen: none: a check of bounds takes the maximum of the indices; compare
    PriorLabs/TabPFN#570"""
    if indices.max() >= len(table):
        raise IndexError(f"There is no row {indices.max()}.")
    return right.table_lookup(table, indices)


@bug("learned_positional_encoding", law="rows that are not read do not matter", public=True)
def learned_pe_start_offset(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """Position p reads row p + 2; beyond the table's end, its last row.
    Effect: Every position gets the row of the second one after it; the first two rows are never
    used. Repair: Index with the position; the offset by padding_idx + 1 belongs to checkpoints
    whose tables have two rows more. Seen: huggingface/transformers#20761;
    huggingface/transformers#22359; huggingface/transformers#5285"""
    return np.asarray(table.take(right.positions(start_pos, seq_len) + 2, axis=0, mode="clip"))


@bug("learned_positional_encoding", law="a chunk is the slice of the whole")
def learned_last_chunk_early(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """The start position is clamped to the number of rows minus the chunk's length minus 1. Effect:
    The chunk that ends with the table is one row early. Repair: Clamp to the number of rows minus
    the chunk's length, or raise an error beyond it. Seen: none: slices with a start that is clamped
    do not complain, so a bound off by one shows in the last chunk only"""
    return right.learned_positional_encoding(table, seq_len, max(min(start_pos, len(table) - seq_len - 1), 0))


@bug("add_positional_encoding", law="adding zero changes nothing")
def add_scales_by_root_of_width(x: Array, pos: Array) -> Array:
    """x is multiplied by √dim before the encoding is added.
    Effect: Tokens outweigh their positions by the root of the width. Repair: Scale embeddings at
    their lookup. Seen: khirotaka/SAnD#3"""
    return np.asarray(x * np.sqrt(x.shape[-1]) + pos)


@bug("add_positional_encoding", law="batches are computed one by one")
def add_along_batch_axis(x: Array, pos: Array) -> Array:
    """Row b of the encoding is added to the element b of the batch, where there are enough rows.
    Effect: All tokens of a sequence have the same encoding, and every sequence of the batch
    another. Repair: Add the encoding along the axis of the sequence. Seen: songyangco/GETNext#2;
    tanjimin/C.Origami#42; KasperGroesLudvigsen/influenza_transformer#9"""
    if pos.ndim == x.ndim or len(x) > len(pos):
        return right.add_positional_encoding(x, pos)
    return x + pos[: len(x)].reshape(len(x), *(1,) * (x.ndim - 2), pos.shape[-1])


@bug("add_positional_encoding", law="batches are computed one by one")
def add_first_encoding_to_all(x: Array, pos: Array) -> Array:
    """Of a batch of encodings the first is added to every element.
    Effect: Sequences with their own encodings, as in packed batches, get those of the first one.
    Repair: Add each sequence's own encoding. Seen: none: one encoding for the whole batch is the
    usual case, and the only one that is tested"""
    return x + (pos[:1] if pos.ndim > 2 else pos)
