"""Slips in positions: which one a row has, and in which type it is held."""

import math
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import SINUSOID, Memory, Register, named
from properties.bugs.kernels import rounded_to

bug = Register()


@bug.slip("positions", seen="rope", law="position zero is the identity")
def rope_positions_from_one(start_pos: int, seq_len: int) -> Any:
    """Positions are counted from 1.
    Effect: Position 0 is rotated too. Scores are right, absolute values and caches filled by other
    code are not. Repair: Count positions from 0. Seen: PrimeIntellect-ai/prime-rl#1545"""
    return right.positions(start_pos + 1, seq_len)


@bug.slip("positions", seen=SINUSOID, law="a chunk is the slice of the whole")
def sin_start_counts_chunks(start_pos: int, seq_len: int) -> Any:
    """The start position is taken for the number of the chunk and multiplied by the chunk's length.
    Effect: Chunks of more than one row are encoded at positions far behind their own. Repair: Add
    the start position as it is, in rows. Seen: none: a chunk's number and its first row are both
    called an offset"""
    return right.positions(start_pos * seq_len, seq_len)


@bug.slip("positions", seen=SINUSOID, law="a chunk is the slice of the whole", requires=("large sizes",))
def sin_rows_count_within_blocks(start_pos: int, seq_len: int) -> Any:
    """Rows are counted from 0 in each block of 128.
    Effect: Row 128 of a long chunk has the position of row 0. Repair: Add the block's first row to
    the row within the block. Seen: none: the index within a block is what a kernel has at hand"""
    return start_pos + np.arange(seq_len) % 128


@bug.slip("positions", seen=SINUSOID, law="the first pair rotates by its position", requires=("long positions",))
def sin_positions_in_eight_bits(start_pos: int, seq_len: int) -> Any:
    """Positions are unsigned numbers of eight bits, and wrap around.
    Effect: Positions beyond 255 begin again at 0. Repair: Hold positions in a wider type. Seen:
    none: the smallest type passes the tests"""
    return right.positions(start_pos, seq_len).astype(np.uint8)


@bug.slip("positions", seen="rope", law="the first pair rotates by its position", requires=("long positions",))
def rope_positions_in_sixteen_bits(start_pos: int, seq_len: int) -> Any:
    """Positions are signed numbers of sixteen bits, and wrap around.
    Effect: Positions from 32768 on are negative. Repair: Use 32 bits or more. Seen: none: the
    smallest type passes the tests"""
    return right.positions(start_pos, seq_len).astype(np.int16)


@bug.slip(
    "positions",
    seen="rope",
    law="a tenth of the frequency takes ten times the position",
    requires=("long positions",),
    public=True,
)
def rope_positions_bf16(start_pos: int, seq_len: int) -> Any:
    """Positions are rounded to bfloat16, which has 8 significant bits, before the angle is formed.
    Effect: Beyond position 256 neighbours get the same angle, far out dozens of them. Repair: Form
    angles from integers or float32, and round cosines and sines. Seen: huggingface/candle#3520;
    NVIDIA/Megatron-LM#535; nkalyanv99/UNI-D2#6; openvinotoolkit/openvino#33214"""
    return rounded_to(8, right.positions(start_pos, seq_len))


@bug.slip(
    "positions", seen="rope", law="a tenth of the frequency takes ten times the position", requires=("long positions",)
)
def rope_table_ends_at_4096(start_pos: int, seq_len: int) -> Any:
    """Positions beyond a table of 4096 rows read its last row.
    Effect: From position 4096 on all tokens have one position. Repair: Build the table for all
    positions that are admitted, and refuse the others. Seen: pegainfer-project/pegainfer#220;
    pegainfer-project/pegainfer#253; apache/mxnet#8940 (lookups that clip)"""
    return np.minimum(right.positions(start_pos, seq_len), 4095)


@bug.slip("positions", seen="rope_tables", law="a chunk is the slice of the whole")
def rope_tables_begin_at_zero(start_pos: int, seq_len: int) -> Any:
    """The first rows are returned, whatever the start position.
    Effect: A chunk is rotated as if it came first, wherever it stands. Repair: Slice the tables
    from the start position on. Seen: Blaizzy/mlx-vlm#1983; RobertCsordas/moeut#6"""
    return right.positions(0, seq_len)


for _name, _positions, _told in (
    ("rope_offset_twice", lambda start, n: right.positions(2 * start, n), """The start position is added when the table is built and again
     when it is read. Effect: Chunks are rotated as if they began twice as far from the start. Repair: Slice a table that begins at 0, or
     build one that begins at the start position, not both. Seen: none: who builds the table and who reads it both add the offset"""),
    ("rope_decodes_at_zero", lambda start, n: right.positions(start if n > 1 else 0, n), """The start position is ignored where the sequence
     has one row. Effect: Every token that is decoded one at a time is rotated as if it came first; prefill is right. Repair: Add the number
     of cached tokens to the positions of each chunk, whatever its length. Seen: Blaizzy/mlx-vlm#1983; RobertCsordas/moeut#6"""),
    ("rope_decodes_one_late", lambda start, n: right.positions(start + (n == 1 and start > 0), n), """Where the sequence has one row, the
     position is the cache's length with that row included. Effect: A decoded token is rotated one position too far. Repair: Read the
     cache's length before the new key is appended. Seen: fla-org/flash-linear-attention#766"""),
    ("rope_window_at_one_position", lambda start, n: np.full(n, start) if start else right.positions(0, n), """With a start position other
     than 0, all rows are at the start position. Effect: Tokens that are decoded several at a time all have the position of the first one.
     Repair: Add the row's index to the start position. Seen: jundot/omlx#2363; NVIDIA/TensorRT-LLM#2084"""),
):  # fmt: skip
    bug.slip("positions", seen="rope", law="a chunk is the slice of the whole")(named(_positions, _name, _told))


@bug.slip("positions", seen="rope", law="rope is within its budget")
def rope_turns_backwards(start_pos: int, seq_len: int) -> Any:
    """Each pair is rotated by minus its angle.
    Effect: Pairs are rotated the wrong way: relative positions have the wrong sign for everyone who
    rotates the other way. Repair: Subtract the sine in the first channel, add it in the second.
    Seen: trymirai/lalamo#268; karpathy/nanochat#489"""
    return -right.positions(start_pos, seq_len)


@bug.slip("tables_of", seen="rope", law="batches are computed one by one")
def rope_along_heads(x: Array, start_pos: int) -> tuple[Array, ...]:
    """Where there is an axis before that of the sequence, it is taken for the sequence.
    Effect: Tokens of one sequence have the position of their head, and all tokens of a head the
    same one. Repair: Take the position from the axis of the sequence, the last but one. Seen:
    mlfoundations/open_lm#4; facebookresearch/xformers#841; vukrosic/leo-optimizer#2"""
    if x.ndim == 2:
        return right.tables_of(x, start_pos)
    return tuple(t[:, None] for t in right.chunk_tables(start_pos, x.shape[-3], x.shape[-1]))


@bug.slip("tables_of", seen="rope", law="batches are computed one by one")
def rope_positions_run_through_the_batch(x: Array, start_pos: int) -> tuple[Array, ...]:
    """Positions are counted through all rows of the batch.
    Effect: The second sequence begins where the first ends. Repair: Count rows within each
    sequence. Seen: turboderp/exllama#101"""
    return tuple(t.reshape(x.shape) for t in right.chunk_tables(start_pos, math.prod(x.shape[:-1]), x.shape[-1]))


@bug.slip("chunk_tables", seen="rope", law="a call does not depend on earlier calls", remembers=True, public=True)
def rope_cache_ignores_offset(memory: Memory, start_pos: int, seq_len: int, dim: int) -> Any:
    """Cosines and sines are cached by the length of the sequence (and the width), not by its start
    position. Effect: Chunks of one length are all rotated like the first of them: decoding stays at
    the first token's position. Repair: Make the start position part of the cache's key. Seen:
    lucidrains/rotary-embedding-torch#11"""
    return memory.setdefault((seq_len, dim), right.chunk_tables(start_pos, seq_len, dim))


@bug(SINUSOID, law="a call does not depend on earlier calls", remembers=True)
def sin_cache_grows_by_length(memory: Memory, seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """A kept table is built anew only if it has fewer rows than the sequence, wherever the sequence
    begins. Effect: A chunk far from the start has too few rows, or none, after a chunk near the
    start. Repair: Compare the table's length with the last position that is needed. Seen: none:
    offsets were added to code whose table only had to be as long as the sequence"""
    if memory.get(embed_dim, -1) < seq_len:
        memory[embed_dim] = start_pos + seq_len  # its rows, which are computed where they are read
    return right.sinusoidal_positional_encoding(
        max(0, min(seq_len, memory[embed_dim] - start_pos)), embed_dim, start_pos
    )


@bug("rope", law="a chunk is the slice of the whole", requires=("large sizes",))
def rope_tail_left(x: Array, start_pos: int = 0) -> Array:
    """Of more than 128 rows, those beyond the last full block of 128 are left as they are. Effect:
    In sequences of more than 128 rows, the rows of an incomplete last block are not rotated.
    Repair: Round the number of blocks up, and mask what is beyond the end. Seen: none: floor
    division in a launch grid"""
    full = x.shape[-2] // 128 * 128 or x.shape[-2]
    return np.concatenate([right.rope(x, start_pos)[..., :full, :], x[..., full:, :]], axis=-2)


@bug("rope", law="a tenth of the frequency takes ten times the position", requires=("long positions",))
def rope_beyond_the_table_left(x: Array, start_pos: int = 0) -> Array:
    """Where any position is beyond a table of 32768 rows, x comes back as it is.
    Effect: Beyond the table nothing rotates, and nothing is said. Repair: Raise an error there.
    Seen: microsoft/onnxruntime#28205"""
    return right.rope(x, start_pos) if start_pos + x.shape[-2] <= 32768 else x.copy()


@bug("rope", law="a chunk is the slice of the whole")
def rope_decodes_the_first_of_a_batch(x: Array, start_pos: int = 0) -> Array:
    """Where the sequence has one row, only the first element of the batch is written.
    Effect: Batched decoding rotates the first sequence and gives zeros for the others. Repair:
    Launch over the batch on the path for a single row as well. Seen: ml-explore/mlx#3949"""
    out = right.rope(x, start_pos)
    if x.ndim > 2 and x.shape[-2] == 1:
        out[1:] = 0.0
    return out
