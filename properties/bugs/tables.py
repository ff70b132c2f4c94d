"""Slips in frequencies, angles and tables of rotary embeddings, and in the exchange of halves."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties import reference
from properties.bugs.bug import Register
from properties.bugs.positional import rows
from properties.bugs.turning import exponents, rounded_to

bug = Register()

SLICE = "a chunk is the slice of the whole"
ODD = "the odd lane follows its convention"
EMPTY = "without rows or lanes there is nothing to turn by"


def in_lanes(theta: Array, head_dim: int) -> tuple[Array, Array]:
    """The cosines and sines of the pairs' angles, each twice in a row."""
    lanes = np.repeat(theta, 2, axis=-1)[:, :head_dim]
    return np.cos(lanes), np.sin(lanes)


@bug(
    "inv_freq",
    effect="No pair turns by its position: the first one is already slower, and every position is a little too near to 0.",
    repair="The exponent of pair i is 2i / dim, with i from 0.",
    citation="none: loops over pairs that count from 1; compare bkitano/llama-from-scratch#8",
    law="the first frequency is the scale",
)
def inv_freq_counts_from_one(head_dim: int) -> Array:
    """Pairs count from 1, so that the first exponent is 2 / dim."""
    return np.asarray(10000.0 ** -(exponents(head_dim) + 2.0 / max(head_dim, 1)))


@bug(
    "inv_freq",
    effect="Frequencies fall half as fast as they should: the last pair has the square root of its frequency.",
    repair="Divide 2i by dim, or i by dim / 2.",
    citation="rasbt/LLMs-from-scratch#410; huggingface/transformers#35233",
    law="half of the pairs divide by the root of the base",
)
def inv_freq_exponent_not_doubled(head_dim: int) -> Array:
    """The exponent of pair i is i / dim."""
    return np.asarray(10000.0 ** -(exponents(head_dim) / 2))


@bug(
    "inv_freq",
    effect="All frequencies but the first are too low, and differently so for every width.",
    repair="Divide by dim / 2; dim / 2 - 1 belongs to tensor2tensor's sinusoid.",
    citation="none: the fence-post error of linspace, taken over from the sinusoid of tensor2tensor",
    law="every second pair of twice the width is alike",
)
def inv_freq_exponent_reaches_one(head_dim: int) -> Array:
    """The exponent of pair i is i / (dim / 2 - 1)."""
    return np.asarray(10000.0 ** -(np.arange((head_dim + 1) // 2) / max(head_dim / 2 - 1, 1)))


@bug(
    "inv_freq",
    effect="Angles at long positions are off by whole radians.",
    repair="Compute and keep frequencies in float32 or wider, whatever the model's type.",
    citation="sgl-project/sglang-jax#1472; Modalities/modalities#462; NVIDIA/Megatron-LM#744",
    law="neighbouring frequencies have one quotient",
)
def inv_freq_in_bfloat16(head_dim: int) -> Array:
    """The frequencies are rounded to bfloat16, the type of the model."""
    return rounded_to(8, reference.inv_freq(head_dim))


@bug(
    "inv_freq",
    effect="An odd width has no frequency for its last lane.",
    repair="There are (dim + 1) // 2 frequencies.",
    citation="none: dim // 2 is the number of pairs everywhere else",
    law=ODD,
)
def inv_freq_odd_width_short(head_dim: int) -> Array:
    """There are dim // 2 frequencies."""
    return reference.inv_freq(head_dim)[: head_dim // 2]


@bug(
    "inv_freq",
    effect="A width of 0 raises ZeroDivisionError.",
    repair="Divide only where there is a pair.",
    citation="none: the step of the exponents is computed before it is known to be needed",
    law=EMPTY,
)
def inv_freq_no_lanes_raises(head_dim: int) -> Array:
    """The step of the exponents is computed first, and divides by the width."""
    step = 2.0 / head_dim
    return np.asarray(10000.0 ** -(step * np.arange((head_dim + 1) // 2)))


@bug(
    "rope_angles",
    effect="Every position has the angles of the one after it; scores do not change, cached keys of another program do.",
    repair="Count positions from 0.",
    citation="none: position 0 is left to padding; compare PrimeIntellect-ai/prime-rl#1545",
    law="angles of position zero are zero",
)
def rope_angles_from_one(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    """Positions count from 1."""
    return reference.rope_angles(seq_len, head_dim, start_pos + 1)


@bug(
    "rope_angles",
    effect="Every pair turns 2π times too slowly, if a cosine of radians is taken.",
    repair="Angles are in radians; divide by 2π only for functions of turns.",
    citation="none: hardware has sines of turns, and tables for it are divided by 2π",
    law="the first angle is the position",
)
def rope_angles_in_turns(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    """Angles are in turns instead of radians."""
    return reference.rope_angles(seq_len, head_dim, start_pos) / (2 * np.pi)


@bug(
    "rope_angles",
    effect="From position 32768 on angles are negative, and turn the other way.",
    repair="Hold positions in a type that is wide enough for all of them.",
    citation="none: positions are kept in the smallest type that passes the tests",
    law="the first angle is the position",
    requires=("long positions",),
)
def rope_angles_of_sixteen_bit_positions(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    """Positions are signed numbers of sixteen bits, and wrap around."""
    positions = rows(start_pos, seq_len).astype(np.int16).astype(np.float64)
    return np.asarray(positions[:, None] * reference.inv_freq(head_dim))


@bug(
    "rope_angles",
    effect="Neighbouring positions beyond 2048 have equal angles.",
    repair="Multiply positions and frequencies in float32 or wider.",
    citation="EleutherAI/gpt-neox#1003",
    law="angles are positions times frequencies",
    requires=("long positions",),
)
def rope_angles_in_float16(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    """The product of position and frequency is rounded to the eleven bits of float16."""
    return rounded_to(11, reference.rope_angles(seq_len, head_dim, start_pos))


@bug(
    "rope_angles",
    effect="A chunk has the angles of the first positions, wherever it stands.",
    repair="Add the start position to the rows.",
    citation="Blaizzy/mlx-vlm#1983; RobertCsordas/moeut#6",
    law=SLICE,
)
def rope_angles_ignore_the_start(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    """The start position is not added."""
    return reference.rope_angles(seq_len, head_dim)


@bug(
    "rope_tables",
    effect="A chunk is turned as if it came first.",
    repair="Slice the tables from the start position on.",
    citation="Blaizzy/mlx-vlm#1983; RobertCsordas/moeut#6",
    law=SLICE,
)
def rope_tables_begin_at_zero(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, Array]:
    """The first rows are returned, whatever the start position."""
    return reference.rope_tables(seq_len, head_dim)


@bug(
    "rope_tables",
    effect="Adjacent lanes that are turned together have two angles: pairs do not keep their norm.",
    repair="Repeat each entry for adjacent pairs; concatenate the table with itself for halves.",
    citation="raiyanyahya/how-to-train-your-gpt#6; huggingface/transformers#47403",
    law="both lanes of a pair share their angle",
)
def rope_tables_of_halves(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, Array]:
    """The tables of the pairs are concatenated with themselves, though pairs are adjacent lanes."""
    theta = np.tile(reference.rope_angles(seq_len, head_dim, start_pos), 2)[:, :head_dim]
    return np.cos(theta), np.sin(theta)


@bug(
    "rope_tables",
    effect="Vectors are turned the wrong way: relative positions have the wrong sign.",
    repair="Use the angle, not its negative: the transpose of the rotation is for gradients.",
    citation="none: exp(−iθ) is how Fourier transforms are written",
    law="the first pair turns by its position",
)
def rope_tables_turn_backwards(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, Array]:
    """The sines are those of the negative angle."""
    cos, sin = reference.rope_tables(seq_len, head_dim, start_pos)
    return cos, -sin


@bug(
    "rope_tables",
    effect="At position 0 every pair is turned by a quarter.",
    repair="Return the cosines first.",
    citation="none: sin and cos is the order of the sinusoidal encoding's columns",
    law="tables of position zero are one and zero",
)
def rope_tables_sine_first(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, Array]:
    """The tables are returned in the order sine, cosine."""
    cos, sin = reference.rope_tables(seq_len, head_dim, start_pos)
    return sin, cos


@bug(
    "rope_tables",
    effect="The cosine and the sine of a lane are of two angles: turning changes norms.",
    repair="Take both of the same angles.",
    citation="none: two kernels, of which one is off by a pair; compare vllm-project/vllm-ascend#15688",
    law="cosines and sines lie on the circle",
)
def rope_tables_sines_of_the_next_pair(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, Array]:
    """The sines are read one pair later than the cosines, around the end of the row."""
    cos, sin = reference.rope_tables(seq_len, head_dim, start_pos)
    return cos, np.roll(sin, -2, axis=-1)


@bug(
    "rope_tables",
    effect="All positions from 2047 on are one.",
    repair="Compute rows that the table does not hold, or refuse them.",
    citation="none: a table of max_position_embeddings rows that is read by a lookup that clips; compare apache/mxnet#8940",
    law="tables of a shift turn tables",
    requires=("long positions",),
)
def rope_tables_end_at_2048(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, Array]:
    """Positions beyond a table of 2048 rows read its last row."""
    return in_lanes(np.minimum(rows(start_pos, seq_len), 2047)[:, None] * reference.inv_freq(head_dim), head_dim)


@bug(
    "rotate_half",
    effect="Nothing is turned: what comes out of a rotary embedding is a reflection, and does not keep norms.",
    repair="Negate the second half where it comes first.",
    citation="none: halves are exchanged and the sign is forgotten",
    law="two quarter turns negate",
)
def rotate_half_without_minus(x: Array) -> Array:
    """The halves are exchanged, and no sign changes."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([second, first], axis=-1)


@bug(
    "rotate_half",
    effect="Every pair turns the wrong way: positions count backwards.",
    repair="Negate the second half, not the first.",
    citation="none: the quarter turn to the right, which is as good a quarter turn",
    law="one hot rows read out the quarter turn",
)
def rotate_half_turns_backwards(x: Array) -> Array:
    """The first half is negated instead of the second."""
    return -reference.rotate_half(x)


@bug(
    "rotate_half",
    effect="Pairs are other lanes than the tables were made for.",
    repair="Split the lanes in the middle, or repeat each entry of the tables for adjacent lanes.",
    citation="keras-team/keras-hub#1416; raiyanyahya/how-to-train-your-gpt#6",
    law="pairs are turned by themselves",
)
def rotate_half_of_adjacent_lanes(x: Array) -> Array:
    """Lanes 2i and 2i + 1 are exchanged, instead of i and i + dim / 2."""
    return np.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)


@bug(
    "rotate_half",
    effect="The first half is lost, and the second is there twice.",
    repair="Concatenate the negated second half and the first.",
    citation="none: the second half is written to both places when the copy is made in place",
    law="pairs keep their norm",
)
def rotate_half_copies_the_second(x: Array) -> Array:
    """Both halves come out of the second: it is negated in place of the first, and then moved."""
    second = x[..., x.shape[-1] // 2 :]
    return np.concatenate([-second, second], axis=-1)


@bug(
    "rotate_half",
    effect="Rows without lanes raise ValueError.",
    repair="Name both sizes in the reshape: −1 has no answer where the others have the product 0.",
    citation="none: a reshape with −1, which is how lanes become pairs",
    law="without rows or lanes nothing is turned",
)
def rotate_half_no_lanes_raises(x: Array) -> Any:
    """The lanes are reshaped to (2, −1), which has no answer for none of them."""
    first, second = np.moveaxis(x.reshape(-1, 2, x.shape[-1] // 2), 1, 0)
    return np.concatenate([-second, first], axis=-1).reshape(x.shape)
