"""Slips in sinusoidal positional encodings."""

import math
from typing import Any

import numpy as np

from oracles.ball import Array
from properties import reference
from properties.bugs.bug import Register

bug = Register()


def angles_at(positions: Any, dim: int) -> Array:
    """position · 10000^(−2i/dim) for each pair i, at any positions."""
    return np.asarray(positions[..., None] * 10000.0 ** (-2.0 * np.arange((dim + 1) // 2) / max(dim, 1)))


def sinusoid(theta: Array, dim: int) -> Array:
    """The sines of the angles in the even columns, their cosines in the odd ones."""
    out = np.empty((len(theta), dim))
    out[:, 0::2], out[:, 1::2] = np.sin(theta), np.cos(theta[:, : dim // 2])
    return out


def rows(start_pos: int, seq_len: int) -> Any:
    """The positions of a chunk."""
    return np.arange(start_pos, start_pos + seq_len)


@bug(
    "sinusoidal_positional_encoding",
    effect="Columns are permuted: weights trained with interleaved columns read the wrong frequencies.",
    repair="Put the sine of pair i into column 2i and its cosine into column 2i + 1.",
    citation="facebookresearch/fairseq#4648; tensorflow/tensor2tensor#1925; allenai/allennlp#2993",
    law="position zero is zero and one",
    public=True,
)
def sin_concatenated_layout(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """All sines come first, then all cosines."""
    table = reference.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos)
    return np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)


@bug(
    "sinusoidal_positional_encoding",
    effect="The two columns of a pair have different frequencies, and frequencies fall twice as fast.",
    repair="Divide the column's index by 2, rounding down, before doubling it.",
    citation="jadore801120/attention-is-all-you-need-pytorch#32; shenweichen/DeepCTR#379; SamLynnEvans/Transformer#25; "
    "DongjunLee/transformer-tensorflow#6",
    law="pairs of sine and cosine have norm one",
    public=True,
)
def sin_doubled_exponent(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The exponent is 2j/dim with j the column instead of the pair."""
    columns = np.arange(embed_dim)
    theta = rows(start_pos, seq_len)[:, None] * 10000.0 ** (-2.0 * columns / max(embed_dim, 1))
    return np.asarray(np.where(columns % 2, np.cos(theta), np.sin(theta)))


@bug(
    "sinusoidal_positional_encoding",
    effect="A cosine has a lower frequency than the sine beside it: the two are no point on a circle.",
    repair="Use the exponent of the sine, (j − 1)/dim, in the cosine's column j.",
    citation="maxjcohen/transformer#62",
    law="pairs of sine and cosine have norm one",
    public=True,
)
def sin_cos_next_exponent(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The cosine in column j has the exponent j/dim instead of (j − 1)/dim."""
    columns = np.arange(embed_dim)
    theta = rows(start_pos, seq_len)[:, None] * 10000.0 ** (-columns / max(embed_dim, 1))
    return np.asarray(np.where(columns % 2, np.cos(theta), np.sin(theta)))


@bug(
    "sinusoidal_positional_encoding",
    effect="Every frequency is 1: rows that are 2π apart look nearly alike.",
    repair="Divide as real numbers.",
    citation="Kyubyong/transformer#81",
    law="the sinusoidal encoding is within its budget",
)
def sin_integer_exponent(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The exponent is divided as an integer, so it is 0 in every pair."""
    pairs = np.arange((embed_dim + 1) // 2)
    return sinusoid(rows(start_pos, seq_len)[:, None] * 10000.0 ** -(2 * pairs // max(embed_dim, 1)), embed_dim)


@bug(
    "sinusoidal_positional_encoding",
    effect="Frequencies fall by a factor e from pair to pair whatever the width: most columns are constant.",
    repair="Put the divisor into parentheses: -log(10000) / (dim // 2).",
    citation="zju3dv/LoFTR#41; GrumpyZhou/image-matching-toolbox#36",
    law="the sinusoidal encoding is within its budget",
)
def sin_floor_division_comes_last(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The step of the logarithm is (-log(10000) / dim) // 2 instead of -log(10000) / (dim // 2)."""
    step = -math.log(10000.0) / max(embed_dim, 1) // 2
    return sinusoid(rows(start_pos, seq_len)[:, None] * np.exp(np.arange((embed_dim + 1) // 2) * step), embed_dim)


@bug(
    "sinusoidal_positional_encoding",
    effect="The last pair turns 10000 times slower than the first instead of a little less: all frequencies but the first are off.",
    repair="Divide by dim / 2; dim / 2 - 1 belongs to the concatenated layout of tensor2tensor.",
    citation="none: the two formulas circulate, and a port takes the layout of one and the exponents of the other",
    law="the sinusoidal encoding is within its budget",
)
def sin_exponent_reaches_one(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The exponent of pair i is i / (dim / 2 - 1)."""
    exponents = np.arange((embed_dim + 1) // 2) / max(embed_dim / 2 - 1, 1)
    return sinusoid(rows(start_pos, seq_len)[:, None] * 10000.0**-exponents, embed_dim)


@bug(
    "sinusoidal_positional_encoding",
    effect="Every position gets the encoding of the one after it: the chunks agree with each other, not with trained weights.",
    repair="Count positions from 0.",
    citation="PrimeIntellect-ai/prime-rl#1545",
    law="position zero is zero and one",
)
def sin_one_based_positions(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """Positions count from 1."""
    return reference.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos + 1)


@bug(
    "sinusoidal_positional_encoding",
    effect="Chunks of more than one row are encoded at positions far behind their own.",
    repair="Add the start position as it is, in rows.",
    citation="none: a chunk's number and its first row are both called an offset",
    law="a chunk is the slice of the whole",
)
def sin_start_counts_chunks(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The start position is taken for the number of the chunk and multiplied by the chunk's length."""
    return reference.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos * seq_len)


@bug(
    "sinusoidal_positional_encoding",
    effect="Row 256 of a long encoding equals row 0.",
    repair="Add the block's first row to the row within the block.",
    citation="none: the index within a block is what a kernel has at hand",
    law="a chunk is the slice of the whole",
    requires=("large sizes",),
)
def sin_rows_count_within_blocks(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """Rows are counted from 0 in each block of 256."""
    return sinusoid(angles_at(start_pos + np.arange(seq_len) % 256, embed_dim), embed_dim)


@bug(
    "sinusoidal_positional_encoding",
    effect="Positions beyond 255 begin again at 0.",
    repair="Hold positions in a type that is wide enough for all of them.",
    citation="none: positions are kept in the smallest type that passes the tests",
    law="shifting is a rotation",
    requires=("long positions",),
)
def sin_positions_in_eight_bits(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """Positions are unsigned numbers of eight bits, and wrap around."""
    return sinusoid(angles_at(rows(start_pos, seq_len).astype(np.uint8), embed_dim), embed_dim)


@bug(
    "sinusoidal_positional_encoding",
    effect="All positions from 4999 on have one encoding.",
    repair="Compute positions that the table does not hold, or refuse them.",
    citation="none: a table of 5000 rows is what tutorials build, and clipping is how some libraries read beyond a table's end",
    law="shifting is a rotation",
    requires=("long positions",),
)
def sin_table_ends_at_5000(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """Positions beyond a table of 5000 rows read its last row."""
    return sinusoid(angles_at(np.minimum(rows(start_pos, seq_len), 4999), embed_dim), embed_dim)


@bug(
    "sinusoidal_positional_encoding",
    effect="Rows leave the circle, farther with every row.",
    repair="Compute each row from its own angle.",
    citation="none: one rotation per row is cheaper than a sine",
    law="pairs of sine and cosine have norm one",
)
def sin_rows_by_recurrence(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """Each row is the row before it turned by one step, whose cosine and sine are held in float32."""
    step = np.exp(1j * angles_at(np.ones(1), embed_dim)).astype(np.complex64).astype(np.complex128)
    turned = np.exp(1j * angles_at(np.array([start_pos]), embed_dim)) * step ** np.arange(seq_len)[:, None]
    return np.stack([turned.imag, turned.real], axis=-1).reshape(seq_len, 2 * turned.shape[1])[:, :embed_dim]


@bug(
    "sinusoidal_positional_encoding",
    effect="Nearly all entries are 0.",
    repair="Give the encoding a floating-point type of its own, not that of the positions.",
    citation="huggingface/transformers#47674; huggingface/transformers#47985",
    law="pairs of sine and cosine have norm one",
)
def sin_cast_to_integers(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The encoding is cast to the integer type of the positions."""
    return np.trunc(reference.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos))


@bug(
    "sinusoidal_positional_encoding",
    effect="At position 0 there are ones in the even columns.",
    repair="Sine first.",
    citation="none: exp(iθ) is cos θ + i sin θ, in this order",
    law="position zero is zero and one",
)
def sin_cosine_first(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """Cosines are in the even columns, sines in the odd ones."""
    theta = np.repeat(angles_at(rows(start_pos, seq_len), embed_dim), 2, axis=1)[:, :embed_dim]
    return np.where(np.arange(embed_dim) % 2, np.sin(theta), np.cos(theta))


@bug(
    "sinusoidal_positional_encoding",
    effect="An odd width cannot be used.",
    repair="Leave the last cosine out: cos(theta[:, : dim // 2]).",
    citation="codertimo/BERT-pytorch#78; gc-os-ai/pyaptamer#526; gc-os-ai/pyaptamer#607",
    law="an odd width ends with a sine",
)
def sin_odd_width_raises(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """As many cosines as sines are computed, and do not fit into the columns of an odd width."""
    theta, out = reference.angles(start_pos, seq_len, embed_dim), np.empty((seq_len, embed_dim))
    out[:, 0::2], out[:, 1::2] = np.sin(theta), np.cos(theta)
    return out


@bug(
    "sinusoidal_positional_encoding",
    effect="The last column of an odd width tells nothing.",
    repair="An odd width has (dim + 1) // 2 sines.",
    citation="none: how the error of odd widths is silenced",
    law="an odd width ends with a sine",
)
def sin_odd_width_padded(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """Only whole pairs are computed, and an odd width's last column is filled with zeros."""
    table = reference.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos)
    table[:, embed_dim // 2 * 2 :] = 0.0
    return table


@bug(
    "sinusoidal_positional_encoding",
    effect="An encoding without columns raises ZeroDivisionError.",
    repair="Divide only where there is a pair.",
    citation="none: the ratio of neighbouring frequencies is computed before it is known to be needed",
    law="an encoding without rows or columns is empty",
)
def sin_no_columns_raises(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """The ratio of neighbouring frequencies is computed first, and a width of 0 divides by zero."""
    ratio = 10000.0 ** (-2.0 / embed_dim)
    return sinusoid(rows(start_pos, seq_len)[:, None] * ratio ** np.arange((embed_dim + 1) // 2), embed_dim)
