"""Slips in frequencies, and in the angles that they give."""

import math

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import SINUSOID, Memory, Register
from properties.bugs.kernels import rounded_to

bug = Register()


@bug.in_step(
    "exponents",
    seen="rope",
    law="the odd channel follows its convention",
    public=True,
    effect="Odd widths have other frequencies in all pairs but the first.",
    repair="Divide 2i by the width, not i by half the width rounded down.",
    citations=("rasbt/LLMs-from-scratch#410", "huggingface/transformers#35233"),
)
def rope_odd_dim_exponent(dim: int) -> Array:
    """The exponent is i / (d // 2), which is 2i/d for an even d only."""
    return np.arange((dim + 1) // 2) / max(dim // 2, 1)


@bug.in_step(
    "exponents",
    seen="rope",
    law="rope is within its budget",
    effect="Angles are a hundredth of what they should be: the first pair is too fast by 10000^(2/d).",
    repair="The paper counts pairs from 1; from 0, the exponent is 2i/d.",
    citations=("bkitano/llama-from-scratch#8", "stanford-cs336/assignment1-basics#22"),
)
def rope_exponent_counts_from_one(dim: int) -> Array:
    """The exponent is 2(i − 1)/d, as for pairs that are counted from 1."""
    return right.exponents(dim) - 2.0 / max(dim, 1)


@bug.in_step(
    "exponents",
    seen="inv_freq",
    law="twice the width has the same angles in every second pair",
    effect=(
        "No pair rotates by its position: the first one is already slower, and every position is a little too "
        "near to 0."
    ),
    repair="The exponent of pair i is 2i / dim, with i from 0.",
    origin="loops over pairs that count from 1; compare bkitano/llama-from-scratch#8",
)
def inv_freq_counts_from_one(dim: int) -> Array:
    """Pairs count from 1, so that the first exponent is 2 / dim."""
    return right.exponents(dim) + 2.0 / max(dim, 1)


@bug.in_step(
    "exponents",
    seen="rope",
    law="rope is within its budget",
    effect="The slowest pair rotates a hundred times faster than it should.",
    repair="Double the pair's index: arange(0, d, 2) / d.",
    citations=("rasbt/LLMs-from-scratch#410 (the change that is proposed there)", "huggingface/transformers#35233"),
)
def rope_exponent_not_doubled(dim: int) -> Array:
    """The exponent of pair i is i/d."""
    return right.exponents(dim) / 2


@bug.in_step(
    "exponents",
    seen="inv_freq",
    law="twice the width has the same angles in every second pair",
    effect="All frequencies but the first are too low, and differently so for every width.",
    repair="Divide by dim / 2; dim / 2 - 1 belongs to tensor2tensor's sinusoid.",
    origin="the fence-post error of linspace, taken over from the sinusoid of tensor2tensor",
)
def inv_freq_exponent_reaches_one(dim: int) -> Array:
    """The exponent of pair i is i / (dim / 2 - 1)."""
    return np.arange((dim + 1) // 2) / max(dim / 2 - 1, 1)


@bug.in_step(
    "exponents",
    seen="rope",
    law="a tenth of the frequency takes ten times the position",
    effect="Frequencies fall twice as fast as they should, to base⁻².",
    repair="The exponent is 2i/d.",
    origin="common in first versions",
)
def rope_exponent_over_half_the_width(dim: int) -> Array:
    """The exponent of pair i is 2i/(d/2)."""
    return 2 * right.exponents(dim)


@bug.in_step(
    "exponents",
    seen="rope",
    law="a tenth of the frequency takes ten times the position",
    effect="Later pairs rotate faster instead of slower.",
    repair="Give the exponent its minus.",
    origin="common in first versions",
)
def rope_frequencies_rise(dim: int) -> Array:
    """The frequency of pair i is base^(+2i/d)."""
    return -right.exponents(dim)


@bug.in_step(
    "exponents",
    seen=SINUSOID,
    law="the sinusoidal encoding is within its budget",
    effect="Every frequency is 1: rows that are 2π apart look nearly alike.",
    repair="Divide as real numbers.",
    citations=("Kyubyong/transformer#81",),
)
def sin_integer_exponent(dim: int) -> Array:
    """The exponent is divided as an integer, so it is 0 in every pair."""
    return right.exponents(dim) // 1


@bug.in_step(
    "inv_freq",
    seen=SINUSOID,
    law="the sinusoidal encoding is within its budget",
    effect="Frequencies fall by a factor e from pair to pair whatever the width: most columns are constant.",
    repair="Put the divisor into parentheses: -log(10000) / (dim // 2).",
    citations=("zju3dv/LoFTR#41", "GrumpyZhou/image-matching-toolbox#36"),
)
def sin_floor_division_comes_last(head_dim: int) -> Array:
    """The step of the logarithm is (-log(10000) / dim) // 2 instead of -log(10000) / (dim // 2)."""
    step = -math.log(10000.0) / max(head_dim, 1) // 2
    return np.asarray(np.exp(np.arange((head_dim + 1) // 2) * step))


@bug.in_step(
    "inv_freq",
    seen="rope",
    law="rope is within its budget",
    effect="Angles drift from pair to pair; at long positions the last pairs are off.",
    repair="Compute each frequency from its own exponent.",
    origin="one multiplication per pair is cheaper than a power",
)
def rope_frequencies_by_products(head_dim: int) -> Array:
    """The frequency of a pair is that of the pair before times a ratio, in float32."""
    ratios = np.full((head_dim + 1) // 2, 10000.0 ** (-2.0 / max(head_dim, 1)), np.float32)
    ratios[:1] = 1
    return np.cumprod(ratios).astype(np.float64)


@bug.in_step(
    "inv_freq",
    law="angles are positions times frequencies",
    effect="Angles at long positions are off by whole radians.",
    repair="Compute and keep frequencies in float32 or wider, whatever the model's type.",
    citations=("sgl-project/sglang-jax#1472", "Modalities/modalities#462", "NVIDIA/Megatron-LM#744"),
)
def inv_freq_in_bfloat16(head_dim: int) -> Array:
    """The frequencies are rounded to bfloat16, the type of the model."""
    return rounded_to(8, right.inv_freq(head_dim))


@bug.in_step(
    "inv_freq",
    law="empty arrays give empty results",
    effect="A width of 0 raises ZeroDivisionError.",
    repair="Divide where there are pairs.",
    origin="it is computed before it is needed",
)
def inv_freq_no_lanes_raises(head_dim: int) -> Array:
    """The step of the exponents is computed first, and divides by the width."""
    return np.asarray(10000.0 ** -(2.0 / head_dim * np.arange((head_dim + 1) // 2)))


@bug.in_step(
    "inv_freq",
    seen="rope",
    law="twice the width has the same angles in every second pair",
    remembers=True,
    effect="Narrow heads rotate by the frequencies of wide ones.",
    repair="Make the width part of the key.",
    citations=("ml-explore/mlx#561",),
)
def rope_cache_ignores_width(memory: Memory, head_dim: int) -> Array:
    """Frequencies are computed once for the widest head so far, and narrower ones take the first of
    them."""
    widest = memory["widest"] = max((*memory.values(), right.inv_freq(head_dim)), key=len)
    return np.array(widest[: (head_dim + 1) // 2])


@bug.in_operation(
    "inv_freq",
    law="twice the width has the same angles in every second pair",
    effect="The last channel of an odd width has none.",
    repair="There are (dim + 1) // 2 frequencies.",
    origin="elsewhere it is dim // 2",
)
def inv_freq_odd_width_short(head_dim: int) -> Array:
    """There are dim // 2 frequencies."""
    return right.inv_freq(head_dim)[: head_dim // 2]


@bug.in_step(
    "angles",
    seen="rope",
    law="a tenth of the frequency takes ten times the position",
    requires=("long positions",),
    public=True,
    effect="Angles are off by up to 0.4 % of themselves: far from the start, by whole turns.",
    repair="Keep inverse frequencies in float32 or better, whatever the type of the weights.",
    citations=(
        "sgl-project/sglang-jax#1472",
        "huggingface/transformers#29496",
        "huggingface/transformers#29285",
        "EleutherAI/gpt-neox#1003",
    ),
)
def rope_inv_freq_bf16(start_pos: int, seq_len: int, dim: int) -> Array:
    """From position 1024 on, inverse frequencies are rounded to bfloat16."""
    at, frequencies = right.positions(start_pos, seq_len)[:, None], right.inv_freq(dim)
    return np.asarray(at * np.where(at < 1024, frequencies, rounded_to(8, frequencies)))


@bug.in_step(
    "angles",
    seen="rope",
    law="it is the adjoint of its forward",
    requires=("long positions",),
    effect="At position 100000 angles are off by up to 4/1000, and neighbours no longer differ by one step.",
    repair="Multiply and reduce in float64, or reduce positions before they are multiplied.",
    citations=("kekzl/imp#1316", "kekzl/imp#1325"),
)
def rope_angle_in_float32(start_pos: int, seq_len: int, dim: int) -> Array:
    """From position 4096 on, the product of position and frequency is rounded to float32."""
    theta = right.angles(start_pos, seq_len, dim)
    return np.where(right.positions(start_pos, seq_len)[:, None] < 4096, theta, theta.astype(np.float32))


@bug.in_step(
    "angles",
    seen="rope_angles",
    law="angles are positions times frequencies",
    requires=("long positions",),
    effect="Neighbouring positions beyond 2048 have equal angles.",
    repair="Multiply in float32 or wider.",
    citations=("EleutherAI/gpt-neox#1003",),
)
def rope_angles_in_float16(start_pos: int, seq_len: int, dim: int) -> Array:
    """The product of position and frequency is rounded to the eleven bits of float16."""
    return rounded_to(11, right.angles(start_pos, seq_len, dim))


@bug.in_step(
    "angles",
    seen="rope",
    law="the first pair rotates by its position",
    effect="Everything rotates by a 57th of its angle.",
    repair="Leave the angle in radians.",
    origin="common in first versions",
)
def rope_angles_as_degrees(start_pos: int, seq_len: int, dim: int) -> Array:
    """The angle, which is in radians, is converted from degrees."""
    return np.deg2rad(right.angles(start_pos, seq_len, dim))


@bug.in_step(
    "angles",
    seen="rope_angles",
    law="the first pair rotates by its position",
    effect="Every pair rotates 2π times too slowly, if a cosine of radians is taken.",
    repair="Angles are in radians; divide by 2π only for functions of turns.",
    origin="hardware has sines of turns, and tables for it are divided by 2π",
)
def rope_angles_in_turns(start_pos: int, seq_len: int, dim: int) -> Array:
    """Angles are in turns instead of radians."""
    return right.angles(start_pos, seq_len, dim) / (2 * np.pi)
