"""Known bugs of positions: their values, and the type that stores them."""

import math
from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import SINUSOID, Memory, Register
from properties.bugs.kernels import rounded_to

bug = Register(seen="rope")
in_positions = partial(bug.in_step, "positions")


@in_positions(
    law="position 0 rotates by angle 0",
    effect="The code rotates position 0 too. Scores are correct; absolute values and caches of other code are not.",
    repair="Count positions from 0.",
    citations="PrimeIntellect-ai/prime-rl#1545",
)
def rope_positions_from_one(start_pos: int, seq_len: int) -> Any:
    """The code counts positions from 1."""
    return right.positions(start_pos + 1, seq_len)


@in_positions(
    seen=SINUSOID,
    law="a chunk of positions equals the slice of the whole",
    effect="Chunks of more than one row have positions far behind their own.",
    repair="Use the start position as a number of rows.",
    origin="both the number of a chunk and its first row are called an offset",
)
def sin_start_counts_chunks(start_pos: int, seq_len: int) -> Any:
    """The code multiplies the start position by the length of the chunk."""
    return right.positions(start_pos * seq_len, seq_len)


@in_positions(
    seen=SINUSOID,
    law="a chunk of positions equals the slice of the whole",
    requires=("large sizes",),
    effect="Row 128 of a long chunk has the position of row 0.",
    repair="Add the first row of the block to the row within the block.",
    origin="a kernel has the index within a block in a register",
)
def sin_rows_count_within_blocks(start_pos: int, seq_len: int) -> Any:
    """The code counts rows from 0 in each block of 128."""
    return start_pos + np.arange(seq_len) % 128


@in_positions(
    seen=SINUSOID,
    law="at position p the first pair rotates by p radians",
    requires=("long positions",),
    effect="Positions from 256 on start again at 0.",
    repair="Store positions in a wider type.",
    origin="the smallest type passes the tests",
)
def sin_positions_in_eight_bits(start_pos: int, seq_len: int) -> Any:
    """The code stores positions as unsigned 8-bit numbers, which wrap around."""
    return right.positions(start_pos, seq_len).astype(np.uint8)


@in_positions(
    law="at position p the first pair rotates by p radians",
    requires=("long positions",),
    effect="Positions from 32768 on are negative.",
    repair="Use 32 bits or more.",
    origin="the smallest type passes the tests",
)
def rope_positions_in_sixteen_bits(start_pos: int, seq_len: int) -> Any:
    """The code stores positions as signed 16-bit numbers, which wrap around."""
    return right.positions(start_pos, seq_len).astype(np.int16)


@in_positions(
    law="ten times the position at a tenth of the frequency has the same angle",
    requires=("long positions",),
    public=True,
    effect="From position 256 on, neighbours get the same angle; far positions share it with dozens.",
    repair="Compute angles from integers or float32, then round cosines and sines.",
    citations="huggingface/candle#3520; NVIDIA/Megatron-LM#535; nkalyanv99/UNI-D2#6; openvinotoolkit/openvino#33214",
)
def rope_positions_bf16(start_pos: int, seq_len: int) -> Any:
    """The code rounds positions to bfloat16, which has 8 significant bits, before it multiplies
    them by frequencies."""
    return rounded_to(8, right.positions(start_pos, seq_len))


@in_positions(
    law="ten times the position at a tenth of the frequency has the same angle",
    requires=("long positions",),
    effect="From position 4096 on, all tokens have the same position.",
    repair="Build the table for all supported positions, and refuse others.",
    citations="pegainfer-project/pegainfer#220; pegainfer-project/pegainfer#253; apache/mxnet#8940 (lookups that clip)",
)
def rope_table_ends_at_4096(start_pos: int, seq_len: int) -> Any:
    """Positions beyond a table of 4096 rows use its last row."""
    return np.minimum(right.positions(start_pos, seq_len), 4095)


@in_positions(
    seen="rope_tables",
    law="a chunk of positions equals the slice of the whole",
    effect="The code rotates every chunk like the first chunk.",
    repair="Slice the tables from the start position.",
    citations="Blaizzy/mlx-vlm#1983; RobertCsordas/moeut#6",
)
def rope_tables_begin_at_zero(start_pos: int, seq_len: int) -> Any:
    """The code returns the first rows for every start position."""
    return right.positions(0, seq_len)


@in_positions(
    law="a chunk of positions equals the slice of the whole",
    effect="Chunks are rotated as if they began twice as far from the start.",
    repair="Slice a table that begins at 0, or build one that begins at the start position.",
    origin="both the code that builds the table and the code that reads it add the offset",
)
def rope_offset_twice(start_pos: int, seq_len: int) -> Any:
    """The code adds the start position when it builds the table and again when it reads it."""
    return right.positions(2 * start_pos, seq_len)


@in_positions(
    law="a chunk of positions equals the slice of the whole",
    effect="Each token that is decoded alone is rotated like the first token; prefill is correct.",
    repair="Add the number of cached tokens to the positions of each chunk.",
    citations="Blaizzy/mlx-vlm#1983; RobertCsordas/moeut#6",
)
def rope_decodes_at_zero(start_pos: int, seq_len: int) -> Any:
    """With a sequence of one row, the code ignores the start position."""
    return right.positions(start_pos if seq_len > 1 else 0, seq_len)


@in_positions(
    law="a chunk of positions equals the slice of the whole",
    effect="The code rotates a decoded token by one position too many.",
    repair="Read the length of the cache before the new key is appended.",
    citations="fla-org/flash-linear-attention#766",
)
def rope_decodes_one_late(start_pos: int, seq_len: int) -> Any:
    """With a sequence of one row, the position is the length of the cache after the row is
    appended."""
    return right.positions(start_pos + (seq_len == 1 and start_pos > 0), seq_len)


@in_positions(
    law="a chunk of positions equals the slice of the whole",
    effect="Tokens that are decoded together all have the position of the first one.",
    repair="Add the index of the row to the start position.",
    citations="jundot/omlx#2363; NVIDIA/TensorRT-LLM#2084",
)
def rope_window_at_one_position(start_pos: int, seq_len: int) -> Any:
    """If the start position is not 0, all rows have the start position."""
    return np.full(seq_len, start_pos) if start_pos else right.positions(0, seq_len)


@in_positions(
    law="rope is within its error limit",
    effect="Relative positions have the wrong sign for all code that rotates forwards.",
    repair="Subtract the sine in the first channel, and add it in the second.",
    citations="trymirai/lalamo#268; karpathy/nanochat#489",
)
def rope_turns_backwards(start_pos: int, seq_len: int) -> Any:
    """The code rotates each pair by minus its angle."""
    return -right.positions(start_pos, seq_len)


@bug.in_step(
    "tables_of",
    law="a batch gives the same as its elements one by one",
    effect="All tokens of a head have the same position, which is the index of the head.",
    repair="Take the position from the axis of the sequence, the last but one.",
    citations="mlfoundations/open_lm#4; facebookresearch/xformers#841; vukrosic/leo-optimizer#2",
)
def rope_along_heads(x: Array, start_pos: int) -> tuple[Array, ...]:
    """The code takes an axis before the sequence for the sequence."""
    if x.ndim == 2:
        return right.tables_of(x, start_pos)
    return tuple(table[:, None] for table in right.chunk_tables(start_pos, x.shape[-3], x.shape[-1]))


@bug.in_step(
    "tables_of",
    law="a batch gives the same as its elements one by one",
    effect="The second sequence starts at the position where the first ends.",
    repair="Count rows within each sequence.",
    citations="turboderp/exllama#101",
)
def rope_positions_run_through_the_batch(x: Array, start_pos: int) -> tuple[Array, ...]:
    """The code counts positions through all rows of the batch."""
    return tuple(
        table.reshape(x.shape) for table in right.chunk_tables(start_pos, math.prod(x.shape[:-1]), x.shape[-1])
    )


@bug.in_step(
    "chunk_tables",
    law="a call does not depend on earlier calls",
    remembers=True,
    public=True,
    effect="Chunks of one length are all rotated like the first of them, so decoding stays at the first position.",
    repair="Add the start position to the key of the cache.",
    citations="lucidrains/rotary-embedding-torch#11",
)
def rope_cache_ignores_offset(memory: Memory, start_pos: int, seq_len: int, dim: int) -> Any:
    """The code caches cosines and sines by length and width, without the start position."""
    return memory.setdefault((seq_len, dim), right.chunk_tables(start_pos, seq_len, dim))


@bug.in_operation(
    SINUSOID,
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="After a chunk near the start, a far chunk has too few rows.",
    repair="Compare the length of the table with the last position of the call.",
    origin="the table was as long as the sequence before offsets were added",
)
def sin_cache_grows_by_length(memory: Memory, seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The code rebuilds a cached table only if it has fewer rows than the sequence, for every start
    position."""
    if memory.get(embed_dim, -1) < seq_len:
        memory[embed_dim] = start_pos + seq_len  # its rows, which are computed where they are read
    return right.sinusoidal_positional_encoding(
        max(0, min(seq_len, memory[embed_dim] - start_pos)), embed_dim, start_pos
    )


@bug.in_operation(
    "rope",
    law="a chunk of positions equals the slice of the whole",
    requires=("large sizes",),
    effect="The rows of an incomplete last block keep their values.",
    repair="Round the number of blocks up, and mask the rows beyond the end.",
    origin="the launch grid uses floor division",
)
def rope_tail_left(x: Array, start_pos: int = 0) -> Array:
    """With more than 128 rows, the code does not rotate the rows after the last full block of 128."""
    full = x.shape[-2] // 128 * 128 or x.shape[-2]
    return np.concatenate([right.rope(x, start_pos)[..., :full, :], x[..., full:, :]], axis=-2)


@bug.in_operation(
    "rope",
    law="ten times the position at a tenth of the frequency has the same angle",
    requires=("long positions",),
    effect="Beyond the table the code does not rotate, and raises no error.",
    repair="Raise an error beyond the table.",
    citations="microsoft/onnxruntime#28205",
)
def rope_beyond_the_table_left(x: Array, start_pos: int = 0) -> Array:
    """If any position is beyond a table of 32768 rows, the code returns x unchanged."""
    return right.rope(x, start_pos) if start_pos + x.shape[-2] <= 32768 else x.copy()


@bug.in_operation(
    "rope",
    law="a chunk of positions equals the slice of the whole",
    effect="Batched decoding rotates the first sequence, and returns zeros for the others.",
    repair="Launch over the batch on the path for a single row too.",
    citations="ml-explore/mlx#3949",
)
def rope_decodes_the_first_of_a_batch(x: Array, start_pos: int = 0) -> Array:
    """With a sequence of one row, the code writes only the first batch element."""
    output = right.rope(x, start_pos)
    if x.ndim > 2 and x.shape[-2] == 1:
        output[1:] = 0.0
    return output
