"""Slips in rotary positional encodings: which position a row has."""

from collections.abc import Callable

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.positional import rows
from properties.bugs.turning import exponents, turned
from properties.reference import rope

bug = Register()


@bug(
    "rope",
    effect="Every token that is decoded one at a time is turned as if it came first; prefill is right.",
    repair="Add the number of cached tokens to the positions of each chunk, whatever its length.",
    citation="Blaizzy/mlx-vlm#1983; RobertCsordas/moeut#6",
    law="a chunk is the slice of the whole",
)
def rope_decodes_at_zero(x: Array, start_pos: int = 0) -> Array:
    """The start position is ignored where the sequence has one row."""
    return rope(x, start_pos if x.shape[-2] > 1 else 0)


@bug(
    "rope",
    effect="A decoded token is turned one position too far.",
    repair="Read the cache's length before the new key is appended.",
    citation="fla-org/flash-linear-attention#766",
    law="a chunk is the slice of the whole",
)
def rope_decodes_one_late(x: Array, start_pos: int = 0) -> Array:
    """Where the sequence has one row, the position is the cache's length with that row included."""
    return rope(x, start_pos + (x.shape[-2] == 1 and start_pos > 0))


@bug(
    "rope",
    effect="Tokens that are decoded several at a time all have the position of the first one.",
    repair="Add the row's index to the start position.",
    citation="jundot/omlx#2363; NVIDIA/TensorRT-LLM#2084",
    law="a chunk is the slice of the whole",
)
def rope_window_at_one_position(x: Array, start_pos: int = 0) -> Array:
    """With a start position other than 0, all rows are at the start position."""
    return turned(x, np.full(x.shape[-2], start_pos)) if start_pos else rope(x)


@bug(
    "rope",
    effect="Chunks are turned as if they began twice as far from the start.",
    repair="Slice a table that begins at 0, or build one that begins at the start position, not both.",
    citation="none: whoever builds the table and whoever reads it both add the offset",
    law="a chunk is the slice of the whole",
)
def rope_offset_twice(x: Array, start_pos: int = 0) -> Array:
    """The start position is added when the table is built and again when it is read."""
    return rope(x, 2 * start_pos)


@bug(
    "rope",
    effect="In sequences of more than 128 rows, the rows of an incomplete last block are not turned.",
    repair="Round the number of blocks up, and mask what is beyond the end.",
    citation="none: floor division in a launch grid",
    law="a chunk is the slice of the whole",
    requires=("large sizes",),
)
def rope_tail_left(x: Array, start_pos: int = 0) -> Array:
    """Of more than 128 rows, those beyond the last full block of 128 are left as they are."""
    n = x.shape[-2]
    full = n // 128 * 128 if n > 128 else n
    return np.concatenate([rope(x, start_pos)[..., :full, :], x[..., full:, :]], axis=-2)


@bug(
    "rope",
    effect="From position 4096 on all tokens have one position.",
    repair="Build the table for all positions that are admitted, and refuse the others.",
    citation="pegainfer-project/pegainfer#220; pegainfer-project/pegainfer#253",
    law="consecutive positions differ by one fixed rotation",
    requires=("long positions",),
)
def rope_table_ends_at_4096(x: Array, start_pos: int = 0) -> Array:
    """Positions beyond a table of 4096 rows read its last row."""
    return turned(x, np.minimum(rows(start_pos, x.shape[-2]), 4095))


@bug(
    "rope",
    effect="Beyond the table nothing is turned, and nothing is said.",
    repair="Raise an error for positions that the table does not hold.",
    citation="microsoft/onnxruntime#28205",
    law="consecutive positions differ by one fixed rotation",
    requires=("long positions",),
)
def rope_beyond_the_table_left(x: Array, start_pos: int = 0) -> Array:
    """Where any position is beyond a table of 32768 rows, x comes back as it is."""
    return rope(x, start_pos) if start_pos + x.shape[-2] <= 32768 else x.copy()


@bug(
    "rope",
    effect="Positions from 32768 on are negative.",
    repair="Hold positions in 32 bits or more.",
    citation="none: positions are kept in the smallest type that passes the tests",
    law="rotations compose",
    requires=("long positions",),
)
def rope_positions_in_sixteen_bits(x: Array, start_pos: int = 0) -> Array:
    """Positions are signed numbers of sixteen bits, and wrap around."""
    return turned(x, rows(start_pos, x.shape[-2]).astype(np.int16))


@bug(
    "rope",
    effect="Tokens of one sequence have the position of their head, and all tokens of a head the same one.",
    repair="Take the position from the axis of the sequence, the last but one.",
    citation="mlfoundations/open_lm#4; facebookresearch/xformers#841; vukrosic/leo-optimizer#2",
    law="batches are computed one by one",
)
def rope_along_heads(x: Array, start_pos: int = 0) -> Array:
    """Where there is an axis before that of the sequence, it is taken for the sequence."""
    return rope(x.swapaxes(-3, -2), start_pos).swapaxes(-3, -2) if x.ndim > 2 else rope(x, start_pos)


@bug(
    "rope",
    effect="The second sequence of a batch begins where the first one ends.",
    repair="Count rows within each sequence.",
    citation="turboderp/exllama#101",
    law="batches are computed one by one",
)
def rope_positions_run_through_the_batch(x: Array, start_pos: int = 0) -> Array:
    """Positions are counted through all rows of the batch."""
    return turned(x, rows(start_pos, int(np.prod(x.shape[:-1]))).reshape(x.shape[:-1]))


@bug(
    "rope",
    effect="Batched decoding turns the first sequence and gives zeros for the others.",
    repair="Launch over the batch on the path for a single row as well.",
    citation="ml-explore/mlx#3949",
    law="batches are computed one by one",
)
def rope_decodes_the_first_of_a_batch(x: Array, start_pos: int = 0) -> Array:
    """Where the sequence has one row, only the first element of the batch is written."""
    out = rope(x, start_pos)
    if x.ndim > 2 and x.shape[-2] == 1:
        out[1:] = 0.0
    return out


@bug(
    "rope",
    effect="A model with heads of two widths turns the narrow ones with frequencies of the wide ones.",
    repair="Make the width part of the cache's key.",
    citation="ml-explore/mlx#561",
    law="every second pair of twice the width is alike",
    requires=("two calls in a row",),
    stateful=True,
)
def rope_cache_ignores_width() -> Callable[..., Array]:
    """Frequencies are computed once for the widest head so far, and narrower ones take the first of them."""
    cache = [exponents(0)]

    def cached(x: Array, start_pos: int = 0) -> Array:
        pairs = (x.shape[-1] + 1) // 2
        if len(cache[0]) < pairs:
            cache[0] = exponents(x.shape[-1])
        return turned(x, rows(start_pos, x.shape[-2]), cache[0][:pairs])

    return cached
