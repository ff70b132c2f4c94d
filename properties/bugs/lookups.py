"""Slips in what is built and looked up by integers: padding masks, masks that are combined, and rows of tables."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties import reference
from properties.bugs.bug import Register

bug = Register()


@bug(
    "padding_mask",
    effect="The first position of padding is attended to.",
    repair="Position j is the sequence's own where j < length: positions count from 0.",
    citation="none: positions count from 0 and lengths from 1",
    law="a padding mask allows as many as the length",
)
def padding_one_too_many(lengths: Any, max_len: int) -> Any:
    """Position j is allowed up to the length, inclusively."""
    return np.arange(max_len) <= lengths[:, None]


@bug(
    "padding_mask",
    effect="The ends of sequences are masked, and their padding is attended to.",
    repair="Compare positions with lengths from the side on which the batch is padded: here the end.",
    citation="none: batches for generation are padded at the beginning, those for training at the end",
    law="after padding comes only padding",
)
def padding_at_the_beginning(lengths: Any, max_len: int) -> Any:
    """The last positions are allowed instead of the first."""
    return np.arange(max_len) >= max_len - lengths[:, None]


@bug(
    "padding_mask",
    effect="An empty sequence is attended to as a whole.",
    repair="Compare each position with the length: a length of 0 has no last position.",
    citation="none: an index of −1 raises nothing in Python",
    law="empty sequences are all padding and full ones have none",
)
def padding_empty_sequence_is_full(lengths: Any, max_len: int) -> Any:
    """The last own position is marked, and all before it: for a length of 0 that is the position −1, which is the last."""
    if max_len == 0:
        return reference.padding_mask(lengths, max_len)
    return np.arange(max_len) <= (lengths[:, None] - 1) % max_len


@bug(
    "padding_mask",
    effect="What is masked depends on the longest sequence of the batch.",
    repair="Compare with the lengths themselves, not with their share of the longest one.",
    citation="none: lengths are given as shares of the longest in some data loaders, and of max_len in others",
    law="more padding is only blocked positions",
)
def padding_relative_to_the_end(lengths: Any, max_len: int) -> Any:
    """Lengths are stretched, so that the longest sequence reaches max_len."""
    longest = max(int(lengths.max(initial=1)), 1)
    return np.arange(max_len) < lengths[:, None] * max_len // longest


@bug(
    "padding_mask",
    effect="Sequences have each other's masks, unless they come sorted.",
    repair="Bring the rows back to the order of the batch.",
    citation="none: batches are sorted by length for packing; compare allenai/allennlp#510",
    law="rows of a padding mask move with their sequences",
)
def padding_sorted_by_length(lengths: Any, max_len: int) -> Any:
    """The lengths are sorted, longest first, and the rows are not brought back."""
    return reference.padding_mask(np.sort(lengths)[::-1], max_len)


@bug(
    "padding_mask",
    effect="A batch without sequences raises ValueError.",
    repair="Compare up to max_len, or take a maximum that is defined for none.",
    citation="none: the maximum of nothing is an error in NumPy",
    law="a padding mask of nothing is empty",
)
def padding_of_nothing_raises(lengths: Any, max_len: int) -> Any:
    """Columns are compared up to the longest length, which there is not in a batch without sequences."""
    longest, out = lengths.max(), np.zeros((len(lengths), max_len), bool)
    out[:, :longest] = np.arange(longest) < lengths[:, None]
    return out


@bug(
    "combine_masks",
    effect="The future and padding are attended to, wherever one of the masks allows it.",
    repair="Masks whose true entries allow are combined by `and`, those whose true entries block by `or`.",
    citation="lucidrains/local-attention#5; NVIDIA/TransformerEngine#1271",
    law="a mask that allows all changes nothing",
)
def combined_by_or(first: Any, second: Any) -> Any:
    """The masks are combined by `or`, as those are whose true entries block."""
    return first | second


@bug(
    "combine_masks",
    effect="Padding alone is attended to.",
    repair="Bring both masks to one polarity before they are combined.",
    citation="InseeFrLab/torchTextClassifiers#92",
    law="the order of masks does not matter",
)
def combined_second_inverted(first: Any, second: Any) -> Any:
    """The second mask is taken for one whose true entries block, as padding masks often are."""
    return first & ~second


@bug(
    "combine_masks",
    effect="What both masks block is attended to.",
    repair="Multiply masks, or add what they block, and do not compare them.",
    citation="none: an exclusive or counts what is blocked by both as not blocked",
    law="a mask combined with itself is itself",
)
def combined_where_equal(first: Any, second: Any) -> Any:
    """An entry is allowed where the masks agree: blocked twice is not blocked."""
    return first == second


@bug(
    "combine_masks",
    effect="Queries that may attend to nothing attend to what the first mask allows.",
    repair="Leave dead rows dead: attention has a convention for them.",
    citation="none: a guard against NaN in softmax, one layer too early; compare pytorch/pytorch#103963",
    law="a mask that blocks all blocks all",
)
def combined_keeps_a_dead_row(first: Any, second: Any) -> Any:
    """A row in which nothing is left has what the first mask allows."""
    both = first & second
    return np.where(both.any(-1, keepdims=True), both, first)


@bug(
    "combine_masks",
    effect="Where there are as many sequences as queries, padding is masked along the queries.",
    repair="Give padding an axis for the queries, and leave axes of size 1 where they are.",
    citation="none: axes are squeezed and broadcast anew, from the right",
    law="masks are combined as if they were written out",
)
def combined_square_batch_along_queries(first: Any, second: Any) -> Any:
    """A row for all queries of each sequence is squeezed; with as many queries it is read as one row for each query."""
    if second.ndim == 3 and second.shape[1] == 1 and first.ndim > 1 and first.shape[-2] == second.shape[0]:
        return np.broadcast_to(first & second[:, 0], np.broadcast_shapes(first.shape, second.shape)).copy()
    return first & second


@bug(
    "combine_masks",
    effect="Masks without columns raise ValueError.",
    repair="Do not look for the first allowed key where there is none.",
    citation="none: the position of a maximum is not defined for nothing",
    law="masks without entries combine to none",
)
def combined_without_entries_raises(first: Any, second: Any) -> Any:
    """The first allowed key of each row is looked for, so that the keys before it can be left out."""
    both = first & second
    return both & (np.arange(both.shape[-1]) >= both.argmax(-1)[..., None])


@bug(
    "table_lookup",
    effect="The entry of index 0 is lost.",
    repair="A row is for padding only if one is declared.",
    citation="facebookresearch/fairseq#1187",
    law="one hot tables read out indices",
)
def lookup_padding_row(table: Array, indices: Any) -> Array:
    """Row 0 is taken for the padding row and read as zeros."""
    return np.where((indices == 0)[..., None], 0.0, table[indices])


@bug(
    "table_lookup",
    effect="Index 0 reads the last row, every other the row before its own.",
    repair="Count rows from 0, or shift the indices where a table of another language is read.",
    citation="mlverse/torch#220 (indices from 1, where an index of 0 raises instead)",
    law="one hot tables read out indices",
)
def lookup_counts_from_one(table: Array, indices: Any) -> Array:
    """Indices count from 1, so that 0 wraps around to the end."""
    return np.asarray(table[indices - 1])


@bug(
    "table_lookup",
    effect="Indices from 128 on read rows from the end of the table.",
    repair="Hold indices in a type that is wide enough for the table.",
    citation="none: indices are kept in the smallest type that passes the tests, and negative ones raise nothing",
    law="other rows of the table do not matter",
    requires=("large sizes",),
)
def lookup_in_eight_bits(table: Array, indices: Any) -> Array:
    """Indices are signed numbers of eight bits: 128 becomes −128, which counts from the table's end."""
    return np.asarray(table[indices.astype(np.int8)])


@bug(
    "table_lookup",
    effect="Rows come out in the order of the table.",
    repair="Bring the rows back to the order of their indices.",
    citation="none: sorted indices read memory in order",
    law="rows move with their indices",
)
def lookup_sorted(table: Array, indices: Any) -> Array:
    """Indices are sorted, so that memory is read in order, and the rows are not brought back."""
    return np.asarray(table[np.sort(indices, axis=None).reshape(indices.shape)])


@bug(
    "table_lookup",
    effect="A token that comes twice has its embedding at its last place only.",
    repair="Gather rows at each index, instead of scattering each row to its place.",
    citation="none: the inverse of an index is one place, where a token comes twice it has two",
    law="repeated indices read the same rows",
)
def lookup_each_row_once(table: Array, indices: Any) -> Array:
    """Each row of the table is written to the last place at which its index stands."""
    flat, out = indices.ravel(), np.zeros((indices.size, table.shape[-1]))
    last = np.zeros(len(table), np.int64)
    last[flat] = np.arange(flat.size)
    out[last[flat]] = table[flat]
    return out.reshape(*indices.shape, table.shape[-1])


@bug(
    "table_lookup",
    effect="As many sequences as positions have their tokens exchanged.",
    repair="Keep the order of the axes: the width comes last.",
    citation="none: batch-first and batch-last shapes can be told apart, but for squares",
    law="each index is looked up by itself",
)
def lookup_indices_transposed(table: Array, indices: Any) -> Array:
    """Square indices are read along their other axis."""
    square = indices.ndim == 2 and indices.shape[0] == indices.shape[1]
    return np.asarray(table[indices.T if square else indices])


@bug(
    "table_lookup",
    effect="A row depends on all the others.",
    repair="Return the table's rows as they are.",
    citation="none: embeddings are centred when they are trained, and a table that was is centred again",
    law="other rows of the table do not matter",
)
def lookup_subtracts_the_mean(table: Array, indices: Any) -> Array:
    """The mean of the table's rows is subtracted."""
    return np.asarray((table - table.mean(0))[indices])


@bug(
    "table_lookup",
    effect="A lookup of nothing raises ValueError.",
    repair="Check indices by a maximum that is defined for none.",
    citation="none: a check of bounds takes the maximum of the indices; compare PriorLabs/TabPFN#570",
    law="a lookup without indices or columns is empty",
)
def lookup_no_indices_raises(table: Array, indices: Any) -> Array:
    """The largest index is checked first, and there is none."""
    if indices.max() >= len(table):
        raise IndexError(f"There is no row {indices.max()}.")
    return reference.table_lookup(table, indices)
