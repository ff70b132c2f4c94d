"""Slips in reading learned positional encodings, and in adding encodings."""

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.positional import rows
from properties.reference import add_positional_encoding, learned_positional_encoding

bug = Register()


@bug(
    "learned_positional_encoding",
    effect="Every position gets the row of the second one after it; the first two rows are never used.",
    repair="Index with the position; the offset by padding_idx + 1 belongs to checkpoints whose tables have two rows more.",
    citation="huggingface/transformers#20761; huggingface/transformers#22359; huggingface/transformers#5285",
    law="one hot tables read out positions",
    public=True,
)
def learned_pe_start_offset(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """Position p reads row p + 2; beyond the table's end, its last row."""
    return np.asarray(table.take(rows(start_pos, seq_len) + 2, axis=0, mode="clip"))


@bug(
    "learned_positional_encoding",
    effect="Position 0 has the table's last row, every other the row before its own.",
    repair="Count positions from 0.",
    citation="none: an index of -1 raises nothing in Python",
    law="one hot tables read out positions",
)
def learned_positions_from_one(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """Rows are looked up as if positions counted from 1, so that position 0 wraps around to the end."""
    return np.asarray(table[rows(start_pos, seq_len) - 1])


@bug(
    "learned_positional_encoding",
    effect="The chunk that ends with the table is one row early.",
    repair="The last start position that is legal is the number of rows minus the chunk's length, and beyond it an error is due.",
    citation="none: slices with a start that is clamped do not complain, so a bound that is off by one shows in the last chunk only",
    law="start positions shift rows",
)
def learned_last_chunk_early(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """The start position is clamped to the number of rows minus the chunk's length minus 1."""
    return learned_positional_encoding(table, seq_len, max(min(start_pos, len(table) - seq_len - 1), 0))


@bug(
    "learned_positional_encoding",
    effect="Position 0 has no encoding.",
    repair="A table of positions has no padding row.",
    citation="facebookresearch/fairseq#1187",
    law="one hot tables read out positions",
)
def learned_padding_row(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """Row 0 is taken for the padding row and read as zeros."""
    return np.where(rows(start_pos, seq_len)[:, None] == 0, 0.0, learned_positional_encoding(table, seq_len, start_pos))


@bug(
    "learned_positional_encoding",
    effect="Positions from 128 on read rows from the end of the table.",
    repair="Hold positions in a type that is wide enough for all of them.",
    citation="none: positions are kept in the smallest type that passes the tests, and negative indices raise nothing",
    law="start positions shift rows",
    requires=("large sizes",),
)
def learned_positions_in_eight_bits(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """Positions are signed numbers of eight bits: 128 becomes -128, which counts from the table's end."""
    return np.asarray(table[rows(start_pos, seq_len).astype(np.int8)])


@bug(
    "add_positional_encoding",
    effect="Tokens outweigh their positions by the root of the width.",
    repair="Scale embeddings where they are looked up, not where positions are added.",
    citation="khirotaka/SAnD#3",
    law="adding zero changes nothing",
)
def add_scales_by_root_of_width(x: Array, pos: Array) -> Array:
    """x is multiplied by √dim before the encoding is added."""
    return np.asarray(x * np.sqrt(x.shape[-1]) + pos)


@bug(
    "add_positional_encoding",
    effect="All tokens of a sequence have the same encoding, and every sequence of the batch another.",
    repair="Add the encoding along the axis of the sequence.",
    citation="songyangco/GETNext#2; tanjimin/C.Origami#42; KasperGroesLudvigsen/influenza_transformer#9",
    law="batches are computed one by one",
)
def add_along_batch_axis(x: Array, pos: Array) -> Array:
    """Row b of the encoding is added to the element b of the batch, where there are enough rows."""
    if pos.ndim == x.ndim or len(x) > len(pos):
        return add_positional_encoding(x, pos)
    return x + pos[: len(x)].reshape(len(x), *(1,) * (x.ndim - 2), pos.shape[-1])


@bug(
    "add_positional_encoding",
    effect="Sequences with their own encodings, as in packed batches, get those of the first one.",
    repair="Add each sequence's own encoding.",
    citation="none: one encoding for the whole batch is the usual case, and the only one that is tested",
    law="batches are computed one by one",
)
def add_first_encoding_to_all(x: Array, pos: Array) -> Array:
    """Of a batch of encodings the first is added to every element."""
    return x + (pos[:1] if pos.ndim > 2 else pos)
