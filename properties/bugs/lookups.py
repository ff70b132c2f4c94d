"""Known bugs of padding masks, combined masks, table lookups, and adding encodings."""

from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import Register
from properties.bugs.reference import padding_mask

bug = Register()
in_padding_mask = partial(bug.in_operation, "padding_mask")
in_combine_masks = partial(bug.in_operation, "combine_masks")
in_table_lookup = partial(bug.in_step, "table_lookup")


@in_padding_mask(
    law="a padding mask makes exactly the positions of each sequence visible",
    effect="Queries attend to the first position of padding.",
    repair="Make position j visible if j < length.",
    origin="positions count from 0 and lengths from 1",
)
def padding_one_too_many(lengths: Any, max_len: int) -> Any:
    """Position j is visible up to the length, including it."""
    return np.arange(max_len) <= lengths[:, None]


@in_padding_mask(
    law="a padding mask makes exactly the positions of each sequence visible",
    effect="The mask covers the ends of sequences, and queries attend to padding.",
    repair="Compare positions with lengths from the padded side, here the end.",
    origin="batches for generation are padded at the beginning, others at the end",
)
def padding_at_the_beginning(lengths: Any, max_len: int) -> Any:
    """The last positions are visible instead of the first."""
    return np.arange(max_len) >= max_len - lengths[:, None]


@in_padding_mask(
    law="a padding mask makes exactly the positions of each sequence visible",
    effect="All positions of an empty sequence are visible.",
    repair="Compare each position with the length.",
    origin="in Python an index of −1 raises no error",
)
def padding_empty_sequence_is_full(lengths: Any, max_len: int) -> Any:
    """The code marks the last position of a sequence and all before it, and for a length of 0 that
    is position −1."""
    return np.arange(max_len) <= (lengths[:, None] - 1) % max(max_len, 1)


@in_padding_mask(
    law="a padding mask makes exactly the positions of each sequence visible",
    effect="The mask depends on the longest sequence of the batch.",
    repair="Compare with the lengths themselves.",
    origin="some data loaders give lengths relative to the longest sequence, others relative to max_len",
)
def padding_relative_to_the_end(lengths: Any, max_len: int) -> Any:
    """The code scales the lengths so that the longest sequence reaches max_len."""
    return np.arange(max_len) < lengths[:, None] * max_len // lengths.max(initial=1)


@in_padding_mask(
    law="a padding mask makes exactly the positions of each sequence visible",
    effect="Sequences have the masks of other sequences, unless the batch is sorted.",
    repair="Restore the order of the batch.",
    origin="code sorts batches by length for packing; compare allenai/allennlp#510",
)
def padding_sorted_by_length(lengths: Any, max_len: int) -> Any:
    """The code sorts the lengths and does not restore the order of the rows."""
    return padding_mask(np.sort(lengths)[::-1], max_len)


@in_padding_mask(
    law="empty arrays give empty results",
    effect="An empty batch raises ValueError.",
    repair="Compare up to max_len.",
    origin="NumPy has no maximum of an empty array",
)
def padding_of_nothing_raises(lengths: Any, max_len: int) -> Any:
    """The code compares columns up to the longest length, which an empty batch does not have."""
    longest, output = lengths.max(), np.zeros((len(lengths), max_len), bool)
    output[:, :longest] = np.arange(longest) < lengths[:, None]
    return output


@in_combine_masks(
    law="causal and padding masks combine by a logical and",
    effect="Queries attend to the future and to padding if one of the masks shows them.",
    repair="Combine masks of visible entries by `and`, and masks of masked entries by `or`.",
    citations="lucidrains/local-attention#5; NVIDIA/TransformerEngine#1271",
)
def combined_by_or(first: Any, second: Any) -> Any:
    """The code combines the masks by `or`, which is correct for masks whose true entries are
    masked."""
    return first | second


@in_combine_masks(
    law="all-true masks change nothing, all-false masks mask everything",
    effect="Queries attend to padding only.",
    repair="Convert both masks to one polarity.",
    citations="InseeFrLab/torchTextClassifiers#92",
)
def combined_second_inverted(first: Any, second: Any) -> Any:
    """The code treats true entries of the second mask as masked, as in many padding masks."""
    return first & ~second


@in_combine_masks(
    law="all-true masks change nothing, all-false masks mask everything",
    effect="Queries attend to keys that are masked in both masks.",
    repair="Combine masks by `and`.",
    origin="the code uses an exclusive or of the masked entries",
)
def combined_where_equal(first: Any, second: Any) -> Any:
    """An entry is visible if the masks are equal."""
    return first == second


@in_combine_masks(
    law="causal and padding masks combine by a logical and",
    effect="Queries with a fully masked row attend to the keys of the first mask.",
    repair="Keep fully masked rows; attention has a convention for them.",
    origin="a guard against NaN in the softmax, in the wrong function; compare pytorch/pytorch#103963",
)
def combined_keeps_a_dead_row(first: Any, second: Any) -> Any:
    """A fully masked row of the result is replaced by the row of the first mask."""
    combined = first & second
    return np.where(combined.any(-1, keepdims=True), combined, first)


@in_combine_masks(
    law="a broadcast mask gives the same as the full mask",
    effect="With as many sequences as queries, padding is masked along the queries.",
    repair="Give padding an axis for the queries, and keep axes of size 1.",
    origin="code squeezes axes and broadcasts again from the right",
)
def combined_square_batch_along_queries(first: Any, second: Any) -> Any:
    """The code squeezes a mask of one row for each sequence, and with as many queries reads it as a
    row for each query."""
    if second.ndim == 3 and second.shape[1] == 1 and first.ndim > 1 and first.shape[-2] == second.shape[0]:
        return np.broadcast_to(first & second[:, 0], np.broadcast_shapes(first.shape, second.shape)).copy()
    return first & second


@in_combine_masks(
    law="empty arrays give empty results",
    effect="Masks without columns raise ValueError.",
    repair="Return masks without columns unchanged.",
    origin="the maximum of an empty row has no position",
)
def combined_without_entries_raises(first: Any, second: Any) -> Any:
    """The code searches the first visible key of each row, to skip the keys before it."""
    combined = first & second
    return combined & (np.arange(combined.shape[-1]) >= combined.argmax(-1)[..., None])


@in_table_lookup(
    law="a lookup in a table of row numbers returns the requested numbers",
    effect="The entry of index 0 is lost.",
    repair="Treat a row as padding only if it is declared.",
    citations="facebookresearch/fairseq#1187",
)
def lookup_padding_row(table: Array, indices: Any) -> Array:
    """The code treats row 0 as the padding row and returns zeros for it."""
    return np.where((indices == 0)[..., None], 0.0, table[indices])


@in_table_lookup(
    law="a lookup in a table of row numbers returns the requested numbers",
    effect="Index 0 gives the last row, and every other index gives the previous row.",
    repair="Count rows from 0, or shift the indices of a table from another language.",
    citations="mlverse/torch#220 (indices from 1, where an index of 0 raises instead)",
)
def lookup_counts_from_one(table: Array, indices: Any) -> Array:
    """Indices count from 1, so 0 wraps around to the end."""
    return np.asarray(table[indices - 1])


@in_table_lookup(
    law="a lookup in a table of row numbers returns the requested numbers",
    requires=("large sizes",),
    effect="Indices from 128 on read rows from the end of the table.",
    repair="Store indices in a type that is wide enough for the table.",
    origin="the smallest type passes the tests, and negative indices raise no error",
)
def lookup_in_eight_bits(table: Array, indices: Any) -> Array:
    """The code stores indices as signed 8-bit numbers, in which 128 becomes −128."""
    return np.asarray(table[indices.astype(np.int8)])


@bug.in_operation(
    "table_lookup",
    law="reordering indices reorders their results in the same way",
    effect="The rows have the order of the table.",
    repair="Restore the order of the rows.",
    origin="sorted indices read memory in order",
)
def lookup_sorted(table: Array, indices: Any) -> Array:
    """The code sorts the indices to read memory in order, and does not restore the order of the
    rows."""
    return table[np.sort(indices, axis=None).reshape(indices.shape)]


@bug.in_operation(
    "table_lookup",
    law="reordering indices reorders their results in the same way",
    effect="A repeated token has its embedding only at its last place.",
    repair="Gather a row for each index instead of scattering each row.",
    origin="code inverts the indices, and a repeated token has two places",
)
def lookup_each_row_once(table: Array, indices: Any) -> Array:
    """The code writes each row of the table only to the last place of its index."""
    flat, output = indices.ravel(), np.zeros((indices.size, table.shape[-1]))
    last_place = np.zeros(len(table), np.int64)
    last_place[flat] = np.arange(flat.size)
    output[last_place[flat]] = table[flat]
    return output.reshape(*indices.shape, table.shape[-1])


@bug.in_operation(
    "table_lookup",
    law="reordering indices reorders their results in the same way",
    effect="With as many sequences as positions, tokens are exchanged.",
    repair="Keep the order of the axes; the width comes last.",
    origin="shapes distinguish batch-first from batch-last unless they are square",
)
def lookup_indices_transposed(table: Array, indices: Any) -> Array:
    """The code transposes square indices."""
    return np.asarray(table[indices.T if indices.ndim == 2 and indices.shape[0] == indices.shape[1] else indices])


@in_table_lookup(
    law="unrequested table rows do not matter",
    effect="Each row depends on all other rows.",
    repair="Return the rows of the table unchanged.",
    origin="training code centres embeddings",
)
def lookup_subtracts_the_mean(table: Array, indices: Any) -> Array:
    """The code subtracts the mean of the rows from the table."""
    return np.asarray((table - table.mean(0))[indices])


@in_table_lookup(
    law="empty arrays give empty results",
    effect="A lookup without indices raises ValueError.",
    repair="Use a maximum with an initial value.",
    origin="a check of bounds takes the maximum of the indices; compare PriorLabs/TabPFN#570",
)
def lookup_no_indices_raises(table: Array, indices: Any) -> Array:
    """The code first checks the largest index, which an empty array does not have."""
    if indices.max() >= len(table):
        raise IndexError(f"There is no row {indices.max()}.")
    return right.table_lookup(table, indices)


@bug.in_operation(
    "learned_positional_encoding",
    law="unrequested table rows do not matter",
    public=True,
    effect="Every position gets the row two places later; the first two rows are never used.",
    repair=(
        "Index with the position; an offset of padding_idx + 1 belongs to checkpoints whose tables have two more rows."
    ),
    citations="huggingface/transformers#20761; huggingface/transformers#22359; huggingface/transformers#5285",
)
def learned_pe_start_offset(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """Position p reads row p + 2, limited to the last row of the table."""
    return np.asarray(table.take(right.positions(start_pos, seq_len) + 2, axis=0, mode="clip"))


@bug.in_operation(
    "learned_positional_encoding",
    law="a chunk of positions equals the slice of the whole",
    effect="The last chunk of the table is one row too early.",
    repair="Limit it to the number of rows minus the length of the chunk, or raise an error beyond it.",
    origin="a slice with a limited start raises no error, so the bound shows only in the last chunk",
)
def learned_last_chunk_early(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """The code limits the start position to the number of rows minus the length of the chunk minus
    1."""
    return right.learned_positional_encoding(table, seq_len, max(min(start_pos, len(table) - seq_len - 1), 0))


@bug.in_operation(
    "add_positional_encoding",
    law="adding an encoding of zeros changes nothing",
    effect="Tokens have √dim times more weight than positions.",
    repair="Scale embeddings where they are looked up.",
    citations="khirotaka/SAnD#3",
)
def add_scales_by_root_of_width(x: Array, pos: Array) -> Array:
    """The code multiplies x by √dim before it adds the encoding."""
    return np.asarray(x * np.sqrt(x.shape[-1]) + pos)


@bug.in_operation(
    "add_positional_encoding",
    law="a batch gives the same as its elements one by one",
    effect="All tokens of a sequence have the same encoding, which differs between sequences.",
    repair="Add the encoding along the axis of the sequence.",
    citations="songyangco/GETNext#2; tanjimin/C.Origami#42; KasperGroesLudvigsen/influenza_transformer#9",
)
def add_along_batch_axis(x: Array, pos: Array) -> Array:
    """If there are enough rows, the code adds row b of the encoding to batch element b."""
    if pos.ndim == x.ndim or len(x) > len(pos):
        return right.add_positional_encoding(x, pos)
    return x + pos[: len(x)].reshape(len(x), *(1,) * (x.ndim - 2), pos.shape[-1])


@bug.in_operation(
    "add_positional_encoding",
    law="a batch gives the same as its elements one by one",
    effect="Sequences with separate encodings, as in packed batches, get the encoding of the first.",
    repair="Add the encoding of each sequence.",
    origin="tests have one encoding for the whole batch",
)
def add_first_encoding_to_all(x: Array, pos: Array) -> Array:
    """The code adds the first encoding of a batch to every element."""
    return x + (pos[:1] if pos.ndim > 2 else pos)


# -- Biases by relative position -------------------------------------------------------------------

_RELATIVE = "relative_bias"
_ENTRIES_OF = "a bias by relative position equals the entries of its table"


@bug.in_step(
    "far_steps",
    seen=_RELATIVE,
    law=_ENTRIES_OF,
    effect="Distances from half of the buckets on get entries of other distances.",
    repair="Take logarithms of distances.",
    citations="huggingface/candle#727",
)
def relative_buckets_of_equal_width(distance: Any, half: int, max_distance: int) -> Any:
    """Buckets beyond the first half have the same width, not the same ratio of borders."""
    return np.maximum(distance - half, 0) / (max_distance - half)


@bug.in_step(
    "distance_buckets",
    seen=_RELATIVE,
    law=_ENTRIES_OF,
    effect="Far keys get the entries of the other direction, or the lookup raises IndexError.",
    repair="Limit the bucket to the last one of its direction.",
    citations="huggingface/candle#1312",
)
def relative_buckets_without_a_last_one(distance: Any, buckets: int, max_distance: int) -> Any:
    """The code does not limit the bucket of distances beyond the largest one that matters."""
    half = buckets // 2
    far = right.far_steps(distance, half, max_distance) * (buckets - half)
    return np.where(distance < half, distance, half + far.astype(int))


@bug.in_step(
    "relative_buckets",
    seen=_RELATIVE,
    law=_ENTRIES_OF,
    effect="A decoder uses half of its table for the keys before a query, and distances share buckets too early.",
    repair="Pass what the layer is: encoders have both directions, decoders one.",
    citations="huggingface/transformers#8518",
)
def relative_buckets_both_ways(ahead: Any, buckets: int, bidirectional: bool, max_distance: int) -> Any:
    """The code has buckets for both directions, also where only one is asked for."""
    return right.relative_buckets(ahead, buckets, True, max_distance)


@bug.in_step(
    "relative_buckets",
    seen=_RELATIVE,
    law=_ENTRIES_OF,
    effect="Keys before and after a query swap their biases, and in one direction all keys before it share a bucket.",
    repair="Subtract the query's position from the key's position.",
    origin="T5 negates the difference before it takes its sign",
)
def relative_positions_negated(ahead: Any, buckets: int, bidirectional: bool, max_distance: int) -> Any:
    """The code subtracts the key's position from the query's position."""
    return right.relative_buckets(-ahead, buckets, bidirectional, max_distance)


_INDEX = "relative_position_index"
_of_window = partial(bug.in_step, seen=_INDEX, law="an index by relative position equals its definition")


@_of_window(
    "window_places",
    effect="In a window that is not square, pairs of tokens have the biases of other offsets.",
    repair="Count the columns of a row before the next row: meshgrid with indexing='ij'.",
    citations="leondgarse/keras_cv_attention_models#26",
)
def window_column_by_column(height: int, width: int) -> Any:
    """The code takes the tokens of a window column by column."""
    return np.indices((height, width)).transpose(0, 2, 1).reshape(2, -1)


@_of_window(
    "offset_rows",
    effect="Different offsets share a row of the table, and other rows are never read.",
    repair="Multiply the offset between rows by the number of offsets between columns, 2·width − 1.",
    citations="282857341/nnFormer#46; LitingLin/SwinTrack#25",
)
def window_offsets_that_share_a_row(down: Any, across: Any, height: int, width: int) -> Any:
    """The code multiplies the offset between rows by too small a number."""
    return (down + height - 1) * (2 * width - 2) + across + width - 1


@_of_window(
    "offset_rows",
    effect="A table that was trained elsewhere has the biases of the opposite offsets.",
    repair="Subtract the key's place from the query's place.",
    origin="a table learns either order, and Swin's checkpoints have this one",
)
def window_offsets_negated(down: Any, across: Any, height: int, width: int) -> Any:
    """The code subtracts the query's place from the key's place."""
    return right.offset_rows(-down, -across, height, width)
