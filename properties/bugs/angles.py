"""Known bugs of frequencies and angles."""

import math
from functools import partial

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_positions as right
from properties.bugs.bug import SINUSOID, Memory, Register
from properties.bugs.kernels import rounded_to

bug = Register(seen="rope")
in_exponents = partial(bug.in_step, "exponents")
in_inv_freq = partial(bug.in_step, "inv_freq")
in_angles = partial(bug.in_step, "angles")


@in_exponents(
    law="the last channel of an odd width follows its convention",
    public=True,
    effect="With an odd width, all pairs except the first have other frequencies.",
    repair="Divide 2i by the width, not i by half of the width rounded down.",
    citations="rasbt/LLMs-from-scratch#410; huggingface/transformers#35233",
)
def rope_odd_dim_exponent(dim: int) -> Array:
    """The exponent is i / (d // 2), which equals 2i/d for an even d only."""
    return np.arange((dim + 1) // 2) / max(dim // 2, 1)


@in_exponents(
    law="rope is within its error limit",
    effect="Every frequency is 10000^(2/d) times too large.",
    repair="Count pairs from 0 and use 2i/d; the paper counts pairs from 1.",
    citations="bkitano/llama-from-scratch#8; stanford-cs336/assignment1-basics#22",
)
def rope_exponent_counts_from_one(dim: int) -> Array:
    """The exponent is 2(i − 1)/d, a formula for pairs that count from 1."""
    return right.exponents(dim) - 2.0 / max(dim, 1)


@in_exponents(
    seen="inv_freq",
    law="pair 2i at width 2d has the same angle as pair i at width d",
    effect="No pair rotates by its position: every frequency is too low.",
    repair="Use the exponent 2i / dim for pair i, with i from 0.",
    origin="loops over pairs count from 1; compare bkitano/llama-from-scratch#8",
)
def inv_freq_counts_from_one(dim: int) -> Array:
    """Pairs count from 1, so the first exponent is 2 / dim."""
    return right.exponents(dim) + 2.0 / max(dim, 1)


@in_exponents(
    law="rope is within its error limit",
    effect="The slowest pair rotates a hundred times too fast.",
    repair="Double the index of the pair: arange(0, d, 2) / d.",
    citations="rasbt/LLMs-from-scratch#410 (the change that is proposed there); huggingface/transformers#35233",
)
def rope_exponent_not_doubled(dim: int) -> Array:
    """The exponent of pair i is i/d instead of 2i/d."""
    return right.exponents(dim) / 2


@in_exponents(
    seen="inv_freq",
    law="pair 2i at width 2d has the same angle as pair i at width d",
    effect="All frequencies except the first are too low, by an amount that depends on the width.",
    repair="Divide by dim / 2; dim / 2 - 1 belongs to the sinusoid of tensor2tensor.",
    origin="the formula comes from the sinusoid of tensor2tensor, as an off-by-one error of linspace",
)
def inv_freq_exponent_reaches_one(dim: int) -> Array:
    """The exponent of pair i is i / (dim / 2 - 1) instead of i / (dim / 2)."""
    return np.arange((dim + 1) // 2) / max(dim / 2 - 1, 1)


@in_exponents(
    law="ten times the position at a tenth of the frequency has the same angle",
    effect="Frequencies fall twice as fast, to base⁻².",
    repair="Use the exponent 2i/d.",
    origin="first versions often have this exponent",
)
def rope_exponent_over_half_the_width(dim: int) -> Array:
    """The exponent of pair i is 2i/(d/2) instead of 2i/d."""
    return 2 * right.exponents(dim)


@in_exponents(
    law="ten times the position at a tenth of the frequency has the same angle",
    effect="Later pairs rotate faster instead of slower.",
    repair="Negate the exponent.",
    origin="first versions often forget the minus",
)
def rope_frequencies_rise(dim: int) -> Array:
    """The frequency of pair i is base^(+2i/d) instead of base^(−2i/d)."""
    return -right.exponents(dim)


@in_exponents(
    seen=SINUSOID,
    law="the sinusoidal encoding is within its error limit",
    effect="Every frequency is 1, so rows that are 2π apart look nearly the same.",
    repair="Divide in floating point.",
    citations="Kyubyong/transformer#81",
)
def sin_integer_exponent(dim: int) -> Array:
    """The code divides the exponent as an integer, which gives 0 for every pair."""
    return right.exponents(dim) // 1


@in_inv_freq(
    seen=SINUSOID,
    law="the sinusoidal encoding is within its error limit",
    effect="Frequencies fall by a factor e from pair to pair for every width, so most columns are constant.",
    repair="Put the divisor into parentheses: -log(10000) / (dim // 2).",
    citations="zju3dv/LoFTR#41; GrumpyZhou/image-matching-toolbox#36",
)
def sin_floor_division_comes_last(head_dim: int) -> Array:
    """The step of the logarithm is (-log(10000) / dim) // 2 instead of -log(10000) / (dim // 2)."""
    step = -math.log(10000.0) / max(head_dim, 1) // 2
    return np.asarray(np.exp(np.arange((head_dim + 1) // 2) * step))


@in_inv_freq(
    law="rope is within its error limit",
    effect="Angles drift from pair to pair, and at long positions the last pairs are wrong.",
    repair="Compute each frequency from its own exponent.",
    origin="a multiplication is cheaper than a power",
)
def rope_frequencies_by_products(head_dim: int) -> Array:
    """The code computes each frequency as the previous one times a ratio, in float32."""
    ratios = np.full((head_dim + 1) // 2, 10000.0 ** (-2.0 / max(head_dim, 1)), np.float32)
    ratios[:1] = 1
    return np.cumprod(ratios).astype(np.float64)


@in_inv_freq(
    seen="inv_freq",
    law="angles equal positions times frequencies",
    effect="Angles at long positions are wrong by whole radians.",
    repair="Compute and store frequencies in float32 or wider.",
    citations="sgl-project/sglang-jax#1472; Modalities/modalities#462; NVIDIA/Megatron-LM#744",
)
def inv_freq_in_bfloat16(head_dim: int) -> Array:
    """The code rounds the frequencies to bfloat16, the type of the model."""
    return rounded_to(8, right.inv_freq(head_dim))


@in_inv_freq(
    seen="inv_freq",
    law="empty arrays give empty results",
    effect="A width of 0 raises ZeroDivisionError.",
    repair="Divide only if there are pairs.",
    origin="the code computes the step before it needs it",
)
def inv_freq_no_lanes_raises(head_dim: int) -> Array:
    """The code first computes the step of the exponents, which divides by the width."""
    return np.asarray(10000.0 ** -(2.0 / head_dim * np.arange((head_dim + 1) // 2)))


@in_inv_freq(
    law="pair 2i at width 2d has the same angle as pair i at width d",
    remembers=True,
    effect="Narrow heads rotate by the frequencies of wide heads.",
    repair="Add the width to the key of the cache.",
    citations="ml-explore/mlx#561",
)
def rope_cache_ignores_width(memory: Memory, head_dim: int) -> Array:
    """The code computes frequencies for the widest head so far, and narrower heads use the first of
    them."""
    widest = memory["widest"] = max((*memory.values(), right.inv_freq(head_dim)), key=len)
    return np.array(widest[: (head_dim + 1) // 2])


@bug.in_operation(
    "inv_freq",
    law="pair 2i at width 2d has the same angle as pair i at width d",
    effect="The last channel of an odd width has no frequency.",
    repair="Return (dim + 1) // 2 frequencies.",
    origin="other libraries return dim // 2",
)
def inv_freq_odd_width_short(head_dim: int) -> Array:
    """The code returns dim // 2 frequencies."""
    return right.inv_freq(head_dim)[: head_dim // 2]


@in_angles(
    law="ten times the position at a tenth of the frequency has the same angle",
    requires=("long positions",),
    public=True,
    effect="Angles have a relative error of up to 0.4 %, which far from the start is whole rotations.",
    repair="Store inverse frequencies in float32 or wider for every type of the weights.",
    citations=(
        "sgl-project/sglang-jax#1472; huggingface/transformers#29496; huggingface/transformers#29285; "
        "EleutherAI/gpt-neox#1003"
    ),
)
def rope_inv_freq_bf16(start_pos: int, seq_len: int, dim: int) -> Array:
    """From position 1024 on, the code rounds inverse frequencies to bfloat16."""
    positions, frequencies = right.positions(start_pos, seq_len)[:, None], right.inv_freq(dim)
    return np.asarray(positions * np.where(positions < 1024, frequencies, rounded_to(8, frequencies)))


@in_angles(
    law="the VJP is the adjoint of the forward",
    requires=("long positions",),
    effect="At position 100000 angles are wrong by up to 4/1000, and neighbours differ by more or less than one step.",
    repair="Multiply and reduce in float64, or reduce positions before the product.",
    citations="kekzl/imp#1316; kekzl/imp#1325",
)
def rope_angle_in_float32(start_pos: int, seq_len: int, dim: int) -> Array:
    """From position 4096 on, the code rounds the product of position and frequency to float32."""
    theta = right.angles(start_pos, seq_len, dim)
    return np.where(right.positions(start_pos, seq_len)[:, None] < 4096, theta, theta.astype(np.float32))


@in_angles(
    seen="rope_angles",
    law="angles equal positions times frequencies",
    requires=("long positions",),
    effect="Neighbouring positions from 2048 on have equal angles.",
    repair="Multiply in float32 or wider.",
    citations="EleutherAI/gpt-neox#1003",
)
def rope_angles_in_float16(start_pos: int, seq_len: int, dim: int) -> Array:
    """The code rounds the product of position and frequency to the eleven bits of float16."""
    return rounded_to(11, right.angles(start_pos, seq_len, dim))


@in_angles(
    law="at position p the first pair rotates by p radians",
    effect="Every pair rotates by 1/57 of its angle.",
    repair="Leave the angle in radians.",
    origin="first versions often convert it",
)
def rope_angles_as_degrees(start_pos: int, seq_len: int, dim: int) -> Array:
    """The code converts an angle from degrees that is already in radians."""
    return np.deg2rad(right.angles(start_pos, seq_len, dim))


@in_angles(
    seen="rope_angles",
    law="at position p the first pair rotates by p radians",
    effect="Every pair rotates 2π times too slowly with a cosine of radians.",
    repair="Return radians; divide by 2π only for functions of full rotations.",
    origin="some hardware computes sines of full rotations, and tables for it are divided by 2π",
)
def rope_angles_in_turns(start_pos: int, seq_len: int, dim: int) -> Array:
    """The code returns angles in full rotations instead of radians."""
    return right.angles(start_pos, seq_len, dim) / (2 * np.pi)
