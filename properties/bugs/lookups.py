"""Slips in what is built and looked up by integers, and in adding encodings: masks of padding,
masks combined, rows of tables.
"""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import Register
from properties.bugs.reference import padding_mask

bug = Register()


@bug.in_operation(
    "padding_mask",
    law="each row allows as many positions as its sequence has",
    effect="The first position of padding is attended to.",
    repair="Position j is the sequence's own where j < length: positions count from 0.",
    origin="positions count from 0 and lengths from 1",
)
def padding_one_too_many(lengths: Any, max_len: int) -> Any:
    """Position j is allowed up to the length, inclusively."""
    return np.arange(max_len) <= lengths[:, None]


@bug.in_operation(
    "padding_mask",
    law="each row allows as many positions as its sequence has",
    effect="The ends of sequences are masked, and their padding is attended to.",
    repair="Compare positions with lengths from the side on which the batch is padded: here the end.",
    origin="batches to generate from are padded at the beginning, others at the end",
)
def padding_at_the_beginning(lengths: Any, max_len: int) -> Any:
    """The last positions are allowed instead of the first."""
    return np.arange(max_len) >= max_len - lengths[:, None]


@bug.in_operation(
    "padding_mask",
    law="each row allows as many positions as its sequence has",
    effect="An empty sequence is attended to as a whole.",
    repair="Compare each position with the length: a length of 0 has no last position.",
    origin="an index of −1 raises nothing in Python",
)
def padding_empty_sequence_is_full(lengths: Any, max_len: int) -> Any:
    """The last own position is marked, and all before it: for a length of 0 that is the position
    −1, which is the last."""
    return np.arange(max_len) <= (lengths[:, None] - 1) % max(max_len, 1)


@bug.in_operation(
    "padding_mask",
    law="each row allows as many positions as its sequence has",
    effect="What is masked depends on the longest sequence of the batch.",
    repair="Compare with the lengths themselves, not with their share of the longest one.",
    origin="lengths are given as shares of the longest in some data loaders, and of max_len in others",
)
def padding_relative_to_the_end(lengths: Any, max_len: int) -> Any:
    """Lengths are stretched, so that the longest sequence reaches max_len."""
    return np.arange(max_len) < lengths[:, None] * max_len // lengths.max(initial=1)


@bug.in_operation(
    "padding_mask",
    law="each row allows as many positions as its sequence has",
    effect="Sequences have each other's masks, unless they come sorted.",
    repair="Bring the rows back to the order of the batch.",
    origin="batches are sorted by length for packing; compare allenai/allennlp#510",
)
def padding_sorted_by_length(lengths: Any, max_len: int) -> Any:
    """The lengths are sorted, longest first, and the rows are not brought back."""
    return padding_mask(np.sort(lengths)[::-1], max_len)


@bug.in_operation(
    "padding_mask",
    law="empty arrays give empty results",
    effect="A batch without sequences raises ValueError.",
    repair="Compare up to max_len.",
    origin="NumPy has no maximum of nothing",
)
def padding_of_nothing_raises(lengths: Any, max_len: int) -> Any:
    """Columns are compared up to the longest length, which there is not in a batch without
    sequences."""
    longest, out = lengths.max(), np.zeros((len(lengths), max_len), bool)
    out[:, :longest] = np.arange(longest) < lengths[:, None]
    return out


@bug.in_operation(
    "combine_masks",
    law="causal and padding masks allow the first keys",
    effect="The future and padding are attended to, wherever one of the masks allows it.",
    repair="Masks whose true entries allow are combined by `and`, those whose true entries block by `or`.",
    citations=("lucidrains/local-attention#5", "NVIDIA/TransformerEngine#1271"),
)
def combined_by_or(first: Any, second: Any) -> Any:
    """The masks are combined by `or`, as those are whose true entries block."""
    return first | second


@bug.in_operation(
    "combine_masks",
    law="masks that allow all or nothing decide",
    effect="Padding alone is attended to.",
    repair="Bring both masks to one polarity.",
    citations=("InseeFrLab/torchTextClassifiers#92",),
)
def combined_second_inverted(first: Any, second: Any) -> Any:
    """The second mask is taken for one whose true entries block, as padding masks often are."""
    return first & ~second


@bug.in_operation(
    "combine_masks",
    law="masks that allow all or nothing decide",
    effect="What both masks block is attended to.",
    repair="Combine masks by `and`.",
    origin="it is an exclusive or of what they mask",
)
def combined_where_equal(first: Any, second: Any) -> Any:
    """An entry is allowed where the masks agree: masked twice is not masked."""
    return first == second


@bug.in_operation(
    "combine_masks",
    law="causal and padding masks allow the first keys",
    effect="Queries that may attend to nothing attend to what the first mask allows.",
    repair="Leave dead rows dead: attention has a convention for them.",
    origin="a guard against NaN in softmax, one layer too early; compare pytorch/pytorch#103963",
)
def combined_keeps_a_dead_row(first: Any, second: Any) -> Any:
    """A row in which nothing is left has what the first mask allows."""
    both = first & second
    return np.where(both.any(-1, keepdims=True), both, first)


@bug.in_operation(
    "combine_masks",
    law="a mask can be written out",
    effect="Where there are as many sequences as queries, padding is masked along the queries.",
    repair="Give padding an axis for the queries, and leave axes of size 1 where they are.",
    origin="axes are squeezed and broadcast anew, from the right",
)
def combined_square_batch_along_queries(first: Any, second: Any) -> Any:
    """A row for all queries of each sequence is squeezed; with as many queries it is read as one
    row for each query."""
    if second.ndim == 3 and second.shape[1] == 1 and first.ndim > 1 and first.shape[-2] == second.shape[0]:
        return np.broadcast_to(first & second[:, 0], np.broadcast_shapes(first.shape, second.shape)).copy()
    return first & second


@bug.in_operation(
    "combine_masks",
    law="empty arrays give empty results",
    effect="Masks without columns raise ValueError.",
    repair="Return those as they are.",
    origin="the maximum of nothing has no position",
)
def combined_without_entries_raises(first: Any, second: Any) -> Any:
    """The first allowed key of each row is looked for, so that the keys before it can be left out."""
    both = first & second
    return both & (np.arange(both.shape[-1]) >= both.argmax(-1)[..., None])


@bug.in_step(
    "table_lookup",
    law="tables of row numbers read out the rows",
    effect="The entry of index 0 is lost.",
    repair="A row is for padding only if one is declared.",
    citations=("facebookresearch/fairseq#1187",),
)
def lookup_padding_row(table: Array, indices: Any) -> Array:
    """Row 0 is taken for the padding row and read as zeros."""
    return np.where((indices == 0)[..., None], 0.0, table[indices])


@bug.in_step(
    "table_lookup",
    law="tables of row numbers read out the rows",
    effect="Index 0 reads the last row, every other the row before its own.",
    repair="Count rows from 0, or shift the indices where a table of another language is read.",
    citations=("mlverse/torch#220 (indices from 1, where an index of 0 raises instead)",),
)
def lookup_counts_from_one(table: Array, indices: Any) -> Array:
    """Indices count from 1, so that 0 wraps around to the end."""
    return np.asarray(table[indices - 1])


@bug.in_step(
    "table_lookup",
    law="tables of row numbers read out the rows",
    requires=("large sizes",),
    effect="Indices from 128 on read rows from the end of the table.",
    repair="Hold indices in a type that is wide enough for the table.",
    origin="indices are kept in the smallest type that passes the tests, and negative ones raise nothing",
)
def lookup_in_eight_bits(table: Array, indices: Any) -> Array:
    """Indices are signed numbers of eight bits: 128 becomes −128, which counts from the table's
    end."""
    return np.asarray(table[indices.astype(np.int8)])


@bug.in_operation(
    "table_lookup",
    law="the order of indices does not matter",
    effect="Rows come out in the order of the table.",
    repair="Bring the rows back to their order.",
    origin="it reads memory in order",
)
def lookup_sorted(table: Array, indices: Any) -> Array:
    """Indices are sorted, so that memory is read in order, and the rows are not brought back."""
    return np.asarray(table[np.sort(indices, axis=None).reshape(indices.shape)])


@bug.in_operation(
    "table_lookup",
    law="the order of indices does not matter",
    effect="A token that comes twice has its embedding at its last place only.",
    repair="Gather rows at each index, instead of scattering each row to its place.",
    origin="the inverse of an index is one place, where a token comes twice it has two",
)
def lookup_each_row_once(table: Array, indices: Any) -> Array:
    """Each row of the table is written to the last place at which its index stands."""
    flat, out = indices.ravel(), np.zeros((indices.size, table.shape[-1]))
    last = np.zeros(len(table), np.int64)
    last[flat] = np.arange(flat.size)
    out[last[flat]] = table[flat]
    return out.reshape(*indices.shape, table.shape[-1])


@bug.in_operation(
    "table_lookup",
    law="the order of indices does not matter",
    effect="As many sequences as positions have their tokens exchanged.",
    repair="Keep the order of the axes: the width comes last.",
    origin="batch-first and batch-last shapes can be told apart, but for squares",
)
def lookup_indices_transposed(table: Array, indices: Any) -> Array:
    """Square indices are read along their other axis."""
    return np.asarray(table[indices.T if indices.ndim == 2 and indices.shape[0] == indices.shape[1] else indices])


@bug.in_step(
    "table_lookup",
    law="rows that are not read do not matter",
    effect="A row depends on all the others.",
    repair="Return the table's rows as they are.",
    origin="embeddings are centred in training",
)
def lookup_subtracts_the_mean(table: Array, indices: Any) -> Array:
    """The mean of the table's rows is subtracted."""
    return np.asarray((table - table.mean(0))[indices])


@bug.in_step(
    "table_lookup",
    law="empty arrays give empty results",
    effect="A lookup of nothing raises ValueError.",
    repair="Check indices by a maximum that is defined for none.",
    origin="a check of bounds takes the maximum of the indices; compare PriorLabs/TabPFN#570",
)
def lookup_no_indices_raises(table: Array, indices: Any) -> Array:
    """The largest index is checked first, and there is none."""
    if indices.max() >= len(table):
        raise IndexError(f"There is no row {indices.max()}.")
    return right.table_lookup(table, indices)


@bug.in_operation(
    "learned_positional_encoding",
    law="rows that are not read do not matter",
    public=True,
    effect="Every position gets the row of the second one after it; the first two rows are never used.",
    repair=(
        "Index with the position; the offset by padding_idx + 1 belongs to checkpoints whose tables have two rows more."
    ),
    citations=("huggingface/transformers#20761", "huggingface/transformers#22359", "huggingface/transformers#5285"),
)
def learned_pe_start_offset(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """Position p reads row p + 2; beyond the table's end, its last row."""
    return np.asarray(table.take(right.positions(start_pos, seq_len) + 2, axis=0, mode="clip"))


@bug.in_operation(
    "learned_positional_encoding",
    law="a chunk is the slice of the whole",
    effect="The chunk that ends with the table is one row early.",
    repair="Clamp to the number of rows minus the chunk's length, or raise an error beyond it.",
    origin="slices with a start that is clamped do not complain, so a bound off by one shows in the last chunk only",
)
def learned_last_chunk_early(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """The start position is clamped to the number of rows minus the chunk's length minus 1."""
    return right.learned_positional_encoding(table, seq_len, max(min(start_pos, len(table) - seq_len - 1), 0))


@bug.in_operation(
    "add_positional_encoding",
    law="adding zero changes nothing",
    effect="Tokens outweigh their positions by the root of the width.",
    repair="Scale embeddings at their lookup.",
    citations=("khirotaka/SAnD#3",),
)
def add_scales_by_root_of_width(x: Array, pos: Array) -> Array:
    """x is multiplied by √dim before the encoding is added."""
    return np.asarray(x * np.sqrt(x.shape[-1]) + pos)


@bug.in_operation(
    "add_positional_encoding",
    law="batches are computed one by one",
    effect="All tokens of a sequence have the same encoding, and every sequence of the batch another.",
    repair="Add the encoding along the axis of the sequence.",
    citations=("songyangco/GETNext#2", "tanjimin/C.Origami#42", "KasperGroesLudvigsen/influenza_transformer#9"),
)
def add_along_batch_axis(x: Array, pos: Array) -> Array:
    """Row b of the encoding is added to the element b of the batch, where there are enough rows."""
    if pos.ndim == x.ndim or len(x) > len(pos):
        return right.add_positional_encoding(x, pos)
    return x + pos[: len(x)].reshape(len(x), *(1,) * (x.ndim - 2), pos.shape[-1])


@bug.in_operation(
    "add_positional_encoding",
    law="batches are computed one by one",
    effect="Sequences with their own encodings, as in packed batches, get those of the first one.",
    repair="Add each sequence's own encoding.",
    origin="one encoding for the whole batch is the usual case, and the only one that is tested",
)
def add_first_encoding_to_all(x: Array, pos: Array) -> Array:
    """Of a batch of encodings the first is added to every element."""
    return x + (pos[:1] if pos.ndim > 2 else pos)
