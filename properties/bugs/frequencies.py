"""Known bugs of the kinds of rotary frequencies: bases, ramps, bands, lists, and attention factors."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_frequencies as right
from properties.bugs.bug import Memory, Register
from properties.bugs.kernels import rounded_to
from properties.bugs.reference_frequencies import Given

bug = Register(seen="rotary_frequencies")

# -- YaRN ------------------------------------------------------------------------------------------


@bug.in_step(
    "yarn_multiplier",
    law="a given attention factor is returned unchanged",
    effect="Cosines and sines are too large by 0.1·ln s + 1, and scores by the square of that.",
    repair="Use the given factor, or compute one.",
    citations="sgl-project/sglang#33558",
)
def yarn_attention_factor_twice(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The code multiplies the given attention factor by the computed one."""
    computed = right.yarn_multiplier(factor, mscale, mscale_all_dim, None)
    return computed * (1.0 if attention_factor is None else attention_factor)


@bug.in_step(
    "yarn_multiplier",
    law="a given attention factor is returned unchanged",
    effect="Scores are wrong by a constant factor, unless the given factor equals the computed one.",
    repair="Use the given factor.",
    citations="ml-explore/mlx-lm#1507",
)
def yarn_attention_factor_ignored(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The code computes the attention factor although one is given."""
    return right.yarn_multiplier(factor, mscale, mscale_all_dim, None)


@bug.in_step(
    "yarn_multiplier",
    without=("rotary_embedding",),  # few of its cases have both weights
    law="the attention factor is m(s, mscale) / m(s, mscale_all_dim)",
    effect="If they differ, the temperature of the softmax is wrong.",
    repair="Compute m(s, mscale) / m(s, mscale_all_dim).",
    citations="NVIDIA/Megatron-LM#1429, in the scale of the softmax",
)
def yarn_mscales_exchanged(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The code exchanges mscale and mscale_all_dim."""
    return right.yarn_multiplier(factor, mscale_all_dim, mscale, attention_factor)


@bug.in_step(
    "yarn_multiplier",
    law="the attention factor is m(s, mscale) / m(s, mscale_all_dim)",
    effect="Models that also scale their softmax by mscale_all_dim apply it twice.",
    repair="Divide by m(s, mscale_all_dim) if both are given and not 0.",
    origin="configurations with only one of the two give the same result",
)
def yarn_second_mscale_ignored(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor is m(s, mscale), without mscale_all_dim."""
    return attention_factor if attention_factor is not None else right.sharpened(factor, mscale or 1.0)


@bug.in_step(
    "yarn_ends",
    law="the YaRN ramp is a straight line between its ends",
    effect="The pairs of the ramp rotate slightly too fast or too slowly, which shows at far positions.",
    repair="Round the ends outwards unless `truncate` is off.",
    citations="keras-team/keras-hub#2981",
)
def yarn_ramp_not_rounded(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """The code never rounds the ends of the ramp, as if `truncate` were off."""
    return right.yarn_ends(low, high, False, r)


@bug.in_step(
    "yarn_ends",
    law="the YaRN ramp is a straight line between its ends",
    effect="Models that turn `truncate` off, such as GPT-OSS, get other frequencies.",
    repair="Read `truncate`.",
    origin="most configurations omit `truncate`",
)
def yarn_ramp_always_rounded(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """The code rounds the ends of the ramp even if `truncate` is off."""
    return right.yarn_ends(low, high, True, r)


@bug.in_step(
    "yarn_ends",
    law="the YaRN ramp is a straight line between its ends",
    effect="With a long original length, slow pairs are interpolated too much.",
    repair="Limit the ramp to r − 1.",
    citations="keras-team/keras-hub#2981",
)
def yarn_ramp_ends_at_the_last_pair(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """The code limits the ramp to the number of the last pair instead of the last channel."""
    low, high = right.yarn_ends(low, high, truncate, r)
    return low, min(high, r // 2 - 1)


@bug.in_step(
    "yarn_multiplier",
    law="the attention factor grows with the logarithm of the scaling factor",
    effect="The softmax of long sequences is too flat.",
    repair="Use 0.1·ln s + 1.",
    origin="code for linear scaling has no attention factor",
)
def yarn_attention_factor_forgotten(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor is 1 if none is given."""
    return 1.0 if attention_factor is None else attention_factor


@bug.in_step(
    "yarn_ramp",
    law="the YaRN ramp is a straight line between its ends",
    effect="The model separates near tokens worse, and far tokens no better.",
    repair="Interpolate where the ramp is 1.",
    origin="both the ramp and its complement are called a mask",
)
def yarn_ramp_reversed(*arguments: Any, **given: Any) -> Array:
    """The code interpolates fast pairs and keeps slow ones."""
    return 1 - right.yarn_ramp(*arguments, **given)


@bug.in_step(
    "pair_of_turns",
    law="the YaRN ramp is a straight line between its ends",
    effect="Models with larger bases interpolate other pairs.",
    repair="Pass the base to the function that finds the ends.",
    origin="the base is a default argument of that function",
)
def yarn_ramp_of_the_default_base(turns: float, r: int, base: float, original: int) -> float:
    """The ends of the ramp use the base 10000 for every base."""
    return right.pair_of_turns(turns, r, 10000.0, original)


# -- llama3 ----------------------------------------------------------------------------------------


@bug.in_step(
    "llama3_gains",
    law="llama3 keeps fast frequencies and divides slow ones",
    effect="Short prompts are correct, and long prompts degrade.",
    repair="Read both `rope_type` and `type`, which older files use.",
    citations="lablup/mlxcel#1355",
)
def llama3_scaling_not_read(f: Array, **given: Any) -> Array:
    """The code parses the scaling and never uses it, so frequencies are the default ones."""
    return np.ones(len(f))


@bug.in_step(
    "gains",
    law="llama3 keeps fast frequencies and divides slow ones",
    effect="On that path, the output is nonsense beyond some length.",
    repair="Compute frequencies in one place.",
    citations="unslothai/unsloth#6197",
)
def llama3_scaling_dropped_on_a_path(kind: str, f: Array, base: float, seq_len: int | None, given: Given) -> Any:
    """One path ignores the scaling, here the path of a given base."""
    return 1.0 if kind == "llama3" and base != 10000.0 else right.gains(kind, f, base, seq_len, given)


@bug.in_step(
    "llama3_line",
    law="frequencies are continuous at the ends of the llama3 band",
    effect="Frequencies jump at both ends of the band.",
    repair="Use (1 − z)/s + z, where z goes from 0 at long waves to 1 at short ones.",
    origin="the smooth factor multiplies the wrong term",
)
def llama3_blend_exchanged(waves: Array, low: float, high: float) -> Array:
    """The code exchanges the two weights within the band."""
    z = right.llama3_line(waves, low, high)
    return np.where((z > 0) & (z < 1), 1 - z, z)


@bug.in_step(
    "llama3_line",
    law="frequencies are continuous at the ends of the llama3 band",
    effect="Pairs of middle wavelengths rotate too slowly.",
    repair="Blend between the ends of the band.",
    origin="the code has the first two branches of three",
)
def llama3_without_a_band(waves: Array, low: float, high: float) -> Array:
    """The code divides the pairs within the band like the pairs beyond it."""
    z = right.llama3_line(waves, low, high)
    return np.where(z < 1, 0.0, z)


# -- longrope and dynamic --------------------------------------------------------------------------


@bug.in_step(
    "is_long",
    law="the sequence length selects the short or the long factors",
    effect="The result for that one length is wrong.",
    repair="Use the short list up to the original length, including it.",
    citations="unslothai/unsloth#10681",
)
def longrope_switched_below(seq_len: int | None, original: int) -> bool:
    """The code uses the long list at the original length too: it compares with ≥ instead of >."""
    return seq_len is not None and seq_len >= original


@bug.in_step(
    "is_long",
    law="the sequence length selects the short or the long factors",
    effect="Beyond the original length, generated text is nonsense.",
    repair="Use the long list beyond the original length.",
    origin="code builds modules once, before it knows a length",
)
def longrope_never_long(seq_len: int | None, original: int) -> bool:
    """The code uses the short list for all lengths."""
    return False


@bug.in_step(
    "is_long",
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="The answer to a prompt depends on earlier prompts.",
    repair="Choose the list for each length.",
    origin="a long sequence overwrites the buffer of a module, and the code does not restore it",
)
def longrope_long_once_long(memory: Memory, seq_len: int | None, original: int) -> bool:
    """After a long sequence, the code uses the long list for short sequences too."""
    memory["longest"] = max(memory.get("longest", 0), seq_len or 0)
    return bool(memory["longest"] > original)


@bug.in_step(
    "longrope_list",
    law="frequencies times the factor equal the default frequencies",
    effect="Slow pairs rotate many times too fast.",
    repair="Divide by the list.",
    origin="the list is called a list of factors",
)
def longrope_list_multiplies(seq_len: int | None, given: Given) -> Array:
    """The code multiplies frequencies by the list."""
    return 1 / np.asarray(right.longrope_list(seq_len, given))


@bug.in_step(
    "longrope_multiplier",
    law="the attention factor grows with the logarithm of the scaling factor",
    effect="Scores are wrong by a constant factor.",
    repair="Use √(1 + ln s / ln M).",
    origin="one helper serves both kinds",
)
def longrope_attention_factor_of_yarn(factor: float, original: int, attention_factor: float | None) -> float:
    """The attention factor is the one of YaRN, 0.1·ln s + 1."""
    return right.yarn_multiplier(factor, None, None, attention_factor)


@bug.in_step(
    "grown_base",
    law="every kind of rotary scaling with factor 1 equals the default",
    effect="The code scales short inputs too.",
    repair="Use the length of the input if it is beyond the original length.",
    citations="vllm-project/vllm#41236",
)
def dynamic_base_of_the_configured_length(
    base: float, r: int, seq_len: int | None, factor: float, max_position_embeddings: int
) -> float:
    """The code always uses the original length times the factor as the length."""
    return right.grown_base(base, r, int(factor * max_position_embeddings), factor, max_position_embeddings)


@bug.in_step(
    "grown_base",
    law="dynamic scaling divides the slowest frequency by the growth in length",
    effect="Slow pairs rotate slightly too fast.",
    repair="Use base · growth^(r/(r − 2)).",
    origin="for wide heads the power is nearly 1",
)
def dynamic_base_without_its_power(
    base: float, r: int, seq_len: int | None, factor: float, max_position_embeddings: int
) -> float:
    """The code multiplies the base by the growth without the power r/(r − 2)."""
    return float(base * (right.grown_base(base, r, seq_len, factor, max_position_embeddings) / base) ** ((r - 2) / r))


@bug.in_step(
    "grown_base",
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="The answer to a short prompt depends on earlier prompts.",
    repair="Compute the base for each sequence, or restore it below the original length.",
    citations="huggingface/transformers#25104, of keys that were rotated by the base of an earlier length",
)
def dynamic_base_of_the_longest_so_far(memory: Memory, base: float, r: int, seq_len: int | None, **given: Any) -> float:
    """The base grows with the longest sequence so far and never shrinks."""
    memory["longest"] = max(memory.get("longest", 0), seq_len or 0)
    return right.grown_base(base, r, memory["longest"], **given)


# -- Widths, bases and formats ---------------------------------------------------------------------


@bug.in_step(
    "gains",
    law="frequencies times the factor equal the default frequencies",
    effect="Positions advance too fast by the square of the factor.",
    repair="Divide the frequencies or the positions by the factor.",
    origin="some configurations write 0.25 where others write 4",
)
def linear_scaling_multiplies(kind: str, f: Array, base: float, seq_len: int | None, given: Given) -> Any:
    """The code multiplies frequencies by the factor."""
    return given["factor"] if kind == "linear" else right.gains(kind, f, base, seq_len, given)


@bug.in_step(
    "proportional_gains",
    law="frequencies times the factor equal the default frequencies",
    effect="Channels rotate that should carry no position.",
    repair="Set the frequencies of all pairs after the share to 0.",
    origin="a share of 1 gives correct results",
)
def proportional_share_ignored(pairs: int, factor: float, partial_rotary_factor: float) -> Array:
    """The code rotates all pairs."""
    return np.full(pairs, 1 / factor)


@bug.in_step(
    "rotary_frequencies",
    seen="rotary_frequencies",
    law="channels that do not rotate do not change the frequencies",
    effect="All pairs except the first rotate too fast.",
    repair="Divide by the number of channels that rotate.",
    origin="the proportional kind uses the width of the head, the other kinds do not; compare apple/coreai-models#66",
)
def frequencies_of_the_whole_head(
    kind: str, head_dim: int, *, rotary_dim: int | None = None, **given: Any
) -> tuple[Array, Array]:
    """The exponents use the width of the head although fewer channels rotate."""
    result, factor = right.rotary_frequencies(kind, head_dim, rotary_dim=rotary_dim, **given)
    base, r = given.get("base") or 10000.0, right.rotating_width(head_dim, rotary_dim)
    return result * (right.powers(base, head_dim)[: r // 2] / right.powers(base, r)), factor


@bug.in_step(
    "base_of",
    law="frequency 2i at width 2d equals frequency i at width d",
    effect="Models with larger bases lose their long range.",
    repair="Read rope_theta.",
    origin="small tests omit the base",
)
def frequencies_of_the_default_base(kind: str, base: float | None, r: int, seq_len: int | None, given: Given) -> float:
    """The code uses the base 10000 for every given base."""
    return right.base_of(kind, None, r, seq_len, given)


@bug.in_step(
    "powers",
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="The second of two models rotates by the frequencies of the first.",
    repair="Add the base to the key, or cache nothing.",
    origin="layers of local and of global attention have different bases; compare ml-explore/mlx#561",
)
def frequencies_cached_without_their_base(memory: Memory, base: float, r: int) -> Any:
    """The code caches frequencies by width only, for all instances in a process."""
    return memory.setdefault(r, right.powers(base, r)).copy()


@bug.in_step(
    "rotary_frequencies",
    seen="rotary_frequencies",
    law="frequencies form a geometric sequence",
    effect="Far positions are wrong by whole radians.",
    repair="Keep frequencies in float32, outside of the converted parameters.",
    citations="huggingface/transformers#29285; NVIDIA/Megatron-LM#744",
)
def frequencies_converted_with_the_module(kind: str, head_dim: int, **given: Any) -> tuple[Array, Array]:
    """A conversion of the module to 16 bits also converts the buffer of its frequencies."""
    result, factor = right.rotary_frequencies(kind, head_dim, **given)
    return rounded_to(8, result), factor
