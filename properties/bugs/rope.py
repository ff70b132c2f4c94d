"""Slips in rotary positional encodings: the angles, and which lanes they turn."""

from collections.abc import Callable

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.positional import rows
from properties.bugs.turning import exponents, rounded_to, turned
from properties.reference import angles, apply_rotary, rope, rotary_tables

bug = Register()


@bug(
    "rope",
    effect="Lanes that belong to one pair are turned with lanes of other pairs: weights trained with adjacent pairs give other scores.",
    repair="Turn the lanes (2i, 2i + 1) by the angle of pair i.",
    citation="EleutherAI/gpt-neox#834; vllm-project/vllm-ascend#12820; jzhang38/TinyLlama#24",
    law="rope turns each pair by itself",
    public=True,
)
def rope_half_split_pairs(x: Array, start_pos: int = 0) -> Array:
    """The lanes (j, j + d/2) are turned instead of (2i, 2i + 1); an odd width, which has no halves, is turned as it should be."""
    n, d = x.shape[-2:]
    if d % 2:
        return rope(x, start_pos)
    theta = np.tile(angles(start_pos, n, d), 2)
    other = np.concatenate([-x[..., d // 2 :], x[..., : d // 2]], axis=-1)
    return np.asarray(x * np.cos(theta) + other * np.sin(theta))


@bug(
    "rope",
    effect="Beyond position 256 neighbours get the same angle, far out dozens of them.",
    repair="Form the angle from positions in float32 or integers, and round cosines and sines at the end.",
    citation="huggingface/candle#3520; NVIDIA/Megatron-LM#535; nkalyanv99/UNI-D2#6; openvinotoolkit/openvino#33214",
    law="consecutive positions differ by one fixed rotation",
    requires=("long positions",),
    public=True,
)
def rope_positions_bf16(x: Array, start_pos: int = 0) -> Array:
    """Positions are rounded to bfloat16, which has 8 significant bits, before the angle is formed."""
    return turned(x, rounded_to(8, rows(start_pos, x.shape[-2])))


@bug(
    "rope",
    effect="Angles are off by up to 0.4 % of themselves: far from the start, by whole turns.",
    repair="Keep inverse frequencies in float32 or better, whatever the type of the weights.",
    citation="sgl-project/sglang-jax#1472; huggingface/transformers#29496; huggingface/transformers#29285; EleutherAI/gpt-neox#1003",
    law="rope is within its budget at long positions",
    requires=("long positions",),
    public=True,
)
def rope_inv_freq_bf16(x: Array, start_pos: int = 0) -> Array:
    """From position 1024 on, inverse frequencies are rounded to bfloat16."""
    positions, frequencies = rows(start_pos, x.shape[-2])[:, None], 10000.0 ** -exponents(x.shape[-1])
    return turned(x, theta=positions * np.where(positions < 1024, frequencies, rounded_to(8, frequencies)))


@bug(
    "rope",
    effect="Chunks of one length are all turned like the first of them: decoding stays at the first token's position.",
    repair="Make the start position part of the cache's key.",
    citation="lucidrains/rotary-embedding-torch#11",
    law="a call does not depend on earlier calls",
    requires=("two calls in a row",),
    stateful=True,
    public=True,
)
def rope_cache_ignores_offset() -> Callable[..., Array]:
    """Cosines and sines are cached by the length of the sequence (and the width), not by its start position."""
    cache: dict[tuple[int, ...], tuple[Array, Array]] = {}

    def cached(x: Array, start_pos: int = 0) -> Array:
        return apply_rotary(x, *cache.setdefault(x.shape[-2:], rotary_tables(start_pos, *x.shape[-2:])))

    return cached


@bug(
    "rope",
    effect="Odd widths have other frequencies in all pairs but the first.",
    repair="Divide 2i by the width, not i by half the width rounded down.",
    citation="rasbt/LLMs-from-scratch#410; huggingface/transformers#35233",
    law="the odd lane follows its convention",
    public=True,
)
def rope_odd_dim_exponent(x: Array, start_pos: int = 0) -> Array:
    """The exponent is i / (d // 2), which is 2i/d for an even d only."""
    pairs = np.arange((x.shape[-1] + 1) // 2)
    return turned(x, rows(start_pos, x.shape[-2]), pairs / max(x.shape[-1] // 2, 1))


@bug(
    "rope",
    effect="Angles are a hundredth of what they should be: the first pair turns by 10000^(2/d) per position.",
    repair="The formula of the paper counts pairs from 1; counted from 0, the exponent is 2i/d.",
    citation="bkitano/llama-from-scratch#8; stanford-cs336/assignment1-basics#22",
    law="rope is within its budget",
)
def rope_exponent_counts_from_one(x: Array, start_pos: int = 0) -> Array:
    """The exponent is 2(i − 1)/d, as for pairs that are counted from 1."""
    return turned(x, rows(start_pos, x.shape[-2]), exponents(x.shape[-1]) - 2.0 / max(x.shape[-1], 1))


@bug(
    "rope",
    effect="The slowest pair turns a hundred times faster than it should.",
    repair="Double the pair's index: arange(0, d, 2) / d.",
    citation="rasbt/LLMs-from-scratch#410 (the change that is proposed there)",
    law="rope is within its budget",
)
def rope_exponent_not_doubled(x: Array, start_pos: int = 0) -> Array:
    """The exponent of pair i is i/d."""
    return turned(x, rows(start_pos, x.shape[-2]), exponents(x.shape[-1]) / 2)


@bug(
    "rope",
    effect="All pairs but the first turn too slowly; widths of 2 do not show it.",
    repair="Divide by the width.",
    citation="none: the fence-post error of linspace, taken over from the sinusoid of tensor2tensor",
    law="rope is within its budget",
)
def rope_exponent_reaches_one(x: Array, start_pos: int = 0) -> Array:
    """The exponent is 2i/(d − 2), so that the last pair has the frequency 1/10000."""
    d = x.shape[-1]
    return turned(x, rows(start_pos, x.shape[-2]), exponents(d) * d / max(d - 2, 1))


@bug(
    "rope",
    effect="Angles drift from pair to pair; at long positions the last pairs are off.",
    repair="Compute each frequency from its own exponent.",
    citation="none: one multiplication per pair is cheaper than a power",
    law="rope is within its budget",
)
def rope_frequencies_by_products(x: Array, start_pos: int = 0) -> Array:
    """The frequency of a pair is that of the pair before times a ratio, in float32."""
    d = x.shape[-1]
    ratios = np.full((d + 1) // 2, 10000.0 ** (-2.0 / max(d, 1)), np.float32)
    ratios[:1] = 1
    return turned(x, theta=rows(start_pos, x.shape[-2])[:, None] * np.cumprod(ratios).astype(np.float64))


@bug(
    "rope",
    effect="At position 100000 angles are off by up to 4/1000, and neighbours no longer differ by one step.",
    repair="Multiply and reduce in float64, or reduce positions before they are multiplied.",
    citation="kekzl/imp#1316; kekzl/imp#1325",
    law="consecutive positions differ by one fixed rotation",
    requires=("long positions",),
)
def rope_angle_in_float32(x: Array, start_pos: int = 0) -> Array:
    """From position 4096 on, the product of position and frequency is rounded to float32."""
    theta = angles(start_pos, *x.shape[-2:])
    return turned(x, theta=np.where(rows(start_pos, x.shape[-2])[:, None] < 4096, theta, theta.astype(np.float32)))


@bug(
    "rope",
    effect="Pairs are turned the wrong way: relative positions have the wrong sign for everyone who turns the other way.",
    repair="Subtract the sine in the first lane, add it in the second.",
    citation="trymirai/lalamo#268; karpathy/nanochat#489",
    law="rope is within its budget",
)
def rope_turns_backwards(x: Array, start_pos: int = 0) -> Array:
    """Each pair is turned by minus its angle."""
    return turned(x, -rows(start_pos, x.shape[-2]))


@bug(
    "rope",
    effect="The lanes of a pair get angles of two pairs: lengths change, and scores depend on absolute positions.",
    repair="Repeat each angle twice in a row; tiling belongs to the layout in halves.",
    citation="facebookresearch/vjepa2#15; Tongjilibo/bert4torch#1; xiangking/ark-nlp#47",
    law="pairs keep their norm",
)
def rope_tables_tiled(x: Array, start_pos: int = 0) -> Array:
    """The angles of the lanes are θ₀, θ₁, …, θ₀, θ₁, … instead of θ₀, θ₀, θ₁, θ₁, …."""
    theta = np.tile(angles(start_pos, *x.shape[-2:]), 2)[:, : x.shape[-1]]
    return apply_rotary(x, np.cos(theta), np.sin(theta))


@bug(
    "rope",
    effect="Widths such as 6, 12 or 96 are turned with sines of other pairs, or of other rows.",
    repair="The sines begin at half the width, not at half the padded width.",
    citation="vllm-project/vllm-ascend#15688",
    law="pairs keep their norm",
)
def rope_sines_at_padded_offset(x: Array, start_pos: int = 0) -> Array:
    """Rows of a table [cosines | sines] are read as if their width were padded to a power of two."""
    n, d = x.shape[-2:]
    theta = angles(start_pos, n, d)
    padded = 1 << (d - 1).bit_length() if d % 2 == 0 and d else d
    flat = np.concatenate([np.cos(theta), np.sin(theta)], axis=1).ravel()
    index = np.arange(n)[:, None] * 2 * theta.shape[1] + np.arange(theta.shape[1]) + theta.shape[1] + (padded - d) // 2
    sin = flat.take(np.minimum(index, flat.size - 1)) if flat.size else np.sin(theta)
    cos, sin = (np.repeat(t, 2, axis=-1)[:, :d] for t in (np.cos(theta), sin))
    return apply_rotary(x, cos, sin)


@bug(
    "rope",
    effect="The second lane of a pair is wrong wherever the angle is not 0.",
    repair="Keep the first lane until the second one is computed.",
    citation="none: what happens to a loop over pairs when it is made to work in place",
    law="pairs keep their norm",
)
def rope_first_lane_overwritten(x: Array, start_pos: int = 0) -> Array:
    """The second lane of each pair is computed from the first lane's new value."""
    out, pairs = rope(x, start_pos), x.shape[-1] // 2 * 2
    cos, sin = (t[:, 1:pairs:2] for t in rotary_tables(start_pos, *x.shape[-2:]))
    out[..., 1:pairs:2] = x[..., 1:pairs:2] * cos + out[..., 0:pairs:2] * sin
    return out


@bug(
    "rope",
    effect="Wide heads lose the positions of their slow pairs.",
    repair="Turn all lanes, in as many blocks as it takes.",
    citation="none: a kernel made for heads of 64 lanes, or a partial rotary encoding left switched on",
    law="rope is within its budget",
    requires=("large sizes",),
)
def rope_lanes_beyond_64_left(x: Array, start_pos: int = 0) -> Array:
    """Lanes beyond the first 64 are left as they are."""
    return np.concatenate([rope(x, start_pos)[..., :64], x[..., 64:]], axis=-1)


@bug(
    "rope",
    effect="With an odd width the last lane is multiplied by its cosine only.",
    repair="Turn the lane with itself, as TorchLean's text does, or declare that it passes through.",
    citation="none: padding to an even width is the first remedy for the error that odd widths raise",
    law="the odd lane follows its convention",
)
def rope_odd_width_padded(x: Array, start_pos: int = 0) -> Array:
    """An odd width is padded with a lane of zeros, which is cut off again after turning."""
    cos, sin = rotary_tables(start_pos, *x.shape[-2:])
    pairs = x.shape[-1] // 2 * 2
    return apply_rotary(x, cos, np.where(np.arange(x.shape[-1]) < pairs, sin, 0.0))


@bug(
    "rope",
    effect="An odd width cannot be used.",
    repair="Slice the lanes instead of reshaping them.",
    citation="lucidrains/rotary-embedding-torch#45; Jamie-Stirling/RetNet#31",
    law="the odd lane follows its convention",
)
def rope_odd_width_raises(x: Array, start_pos: int = 0) -> Array:
    """Lanes are reshaped into pairs, which an odd width does not allow."""
    return rope(x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2).reshape(x.shape), start_pos)
