"""Slips in the kinds of rotary frequencies: bases, ramps, bands, lists, and attention factors."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference_frequencies as right
from properties.bugs.bug import Memory, Register
from properties.bugs.kernels import rounded_to
from properties.bugs.reference_frequencies import Given

bug = Register()
FREQUENCIES = "rotary_frequencies"

# -- YaRN ------------------------------------------------------------------------------------------


@bug.in_step(
    "yarn_multiplier",
    seen=FREQUENCIES,
    law="an attention factor that is given is returned",
    effect="Cosines and sines are too large by 0.1·ln s + 1, and scores by its square.",
    repair="Take the factor that is given, or compute one.",
    citations=("sgl-project/sglang#33558",),
)
def yarn_attention_factor_twice(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor that is given, the final one, is multiplied by the computed one."""
    computed = right.yarn_multiplier(factor, mscale, mscale_all_dim, None)
    return computed * (1.0 if attention_factor is None else attention_factor)


@bug.in_step(
    "yarn_multiplier",
    seen=FREQUENCIES,
    law="an attention factor that is given is returned",
    effect="Scores are off by a constant factor, but where the one that is given is the computed one.",
    repair="Take the factor that is given.",
    citations=("ml-explore/mlx-lm#1507",),
)
def yarn_attention_factor_ignored(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor is computed, though one is given."""
    return right.yarn_multiplier(factor, mscale, mscale_all_dim, None)


@bug.in_step(
    "yarn_multiplier",
    seen=FREQUENCIES,
    law="an attention factor is a quotient of two weights",
    effect="Where they differ, the temperature of the softmax is wrong.",
    repair="m(s, mscale) / m(s, mscale_all_dim).",
    citations=("NVIDIA/Megatron-LM#1429, in the scale of the softmax",),
)
def yarn_mscales_exchanged(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """mscale and mscale_all_dim change places."""
    return right.yarn_multiplier(factor, mscale_all_dim, mscale, attention_factor)


@bug.in_step(
    "yarn_multiplier",
    seen=FREQUENCIES,
    law="an attention factor is a quotient of two weights",
    effect="Models that scale their softmax by mscale_all_dim besides have it twice.",
    repair="Divide by m(s, mscale_all_dim), where both are given and not 0.",
    origin="configurations that have one of the two alone are read the same",
)
def yarn_second_mscale_ignored(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor is m(s, mscale), without mscale_all_dim."""
    return attention_factor if attention_factor is not None else right.sharpened(factor, mscale or 1.0)


@bug.in_step(
    "yarn_ends",
    seen=FREQUENCIES,
    law="a ramp is a straight line between its ends",
    effect="The pairs of the ramp turn a little too fast or too slowly, which shows far out.",
    repair="Round the ends outwards, but where `truncate` is off.",
    citations=("keras-team/keras-hub#2981",),
)
def yarn_ramp_not_rounded(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """The ends of the ramp are never rounded, as if `truncate` were off."""
    return right.yarn_ends(low, high, False, r)


@bug.in_step(
    "yarn_ends",
    seen=FREQUENCIES,
    law="a ramp is a straight line between its ends",
    effect="Models that turn it off, as GPT-OSS does, get other frequencies.",
    repair="Read `truncate`.",
    origin="most configurations leave it out",
)
def yarn_ramp_always_rounded(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """The ends of the ramp are rounded though `truncate` is off."""
    return right.yarn_ends(low, high, True, r)


@bug.in_step(
    "yarn_ends",
    seen=FREQUENCIES,
    law="a ramp is a straight line between its ends",
    effect="With a long original length slow pairs are interpolated too much.",
    repair="Cut it to r − 1.",
    citations=("keras-team/keras-hub#2981",),
)
def yarn_ramp_ends_at_the_last_pair(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """The ramp is cut to the number of the last pair, and not to that of the last channel."""
    low, high = right.yarn_ends(low, high, truncate, r)
    return low, min(high, r // 2 - 1)


@bug.in_step(
    "yarn_multiplier",
    seen=FREQUENCIES,
    law="an attention factor grows as the logarithm of the factor",
    effect="The softmax of long sequences is too flat.",
    repair="0.1·ln s + 1.",
    origin="code for linear scaling has no attention factor",
)
def yarn_attention_factor_forgotten(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor is 1 where none is given."""
    return 1.0 if attention_factor is None else attention_factor


@bug.in_step(
    "yarn_ramp",
    seen=FREQUENCIES,
    law="a ramp is a straight line between its ends",
    effect="Near tokens are told apart worse, and far ones not better.",
    repair="Interpolate where the ramp is 1.",
    origin="there is a ramp and its complement, both called mask",
)
def yarn_ramp_reversed(*arguments: Any, **given: Any) -> Array:
    """Fast pairs are interpolated, and slow ones kept."""
    return 1 - right.yarn_ramp(*arguments, **given)


@bug.in_step(
    "pair_of_turns",
    seen=FREQUENCIES,
    law="a ramp is a straight line between its ends",
    effect="Models of larger bases interpolate other pairs.",
    repair="Hand the base on.",
    origin="the base is a default argument of the helper that finds the ends",
)
def yarn_ramp_of_the_default_base(turns: float, r: int, base: float, original: int) -> float:
    """The ends of the ramp are those of the base 10000, whatever the base is."""
    return right.pair_of_turns(turns, r, 10000.0, original)


# -- llama3 ----------------------------------------------------------------------------------------


@bug.in_step(
    "llama3_gains",
    seen=FREQUENCIES,
    law="fast pairs are kept and slow ones divided",
    effect="Short prompts are fine, long ones degrade.",
    repair="Read `type` where files say so, and `rope_type`.",
    citations=("lablup/mlxcel#1355",),
)
def llama3_scaling_not_read(f: Array, **given: Any) -> Array:
    """The scaling is parsed and never read: frequencies are those of the default."""
    return np.ones(len(f))


@bug.in_step(
    "gains",
    seen=FREQUENCIES,
    law="fast pairs are kept and slow ones divided",
    effect="Gibberish beyond some length, on that path.",
    repair="Compute frequencies in one place.",
    citations=("unslothai/unsloth#6197",),
)
def llama3_scaling_dropped_on_a_path(kind: str, f: Array, base: float, seq_len: int | None, given: Given) -> Any:
    """On one of the paths, here where a base is given, the scaling is dropped."""
    return 1.0 if kind == "llama3" and base != 10000.0 else right.gains(kind, f, base, seq_len, given)


@bug.in_step(
    "llama3_line",
    seen=FREQUENCIES,
    law="wavelengths at the ends of a band are continuous",
    effect="At both ends of the band frequencies jump.",
    repair="(1 − z)/s + z with z from 0 at long waves to 1 at short ones.",
    origin="the smooth factor is multiplied to the wrong term",
)
def llama3_blend_exchanged(waves: Array, low: float, high: float) -> Array:
    """Within the band the two weights are exchanged; beyond it nothing changes."""
    z = right.llama3_line(waves, low, high)
    return np.where((z > 0) & (z < 1), 1 - z, z)


@bug.in_step(
    "llama3_line",
    seen=FREQUENCIES,
    law="wavelengths at the ends of a band are continuous",
    effect="Pairs of middle wavelengths rotate too slowly.",
    repair="Blend between the ends of the band.",
    origin="the first two branches of three are written",
)
def llama3_without_a_band(waves: Array, low: float, high: float) -> Array:
    """Pairs within the band are divided, as those beyond it."""
    z = right.llama3_line(waves, low, high)
    return np.where(z < 1, 0.0, z)


# -- longrope and dynamic --------------------------------------------------------------------------


@bug.in_step(
    "is_long",
    seen=FREQUENCIES,
    law="the length decides between the short and the long list",
    effect="One length is wrong.",
    repair="Short to the original length, and at it.",
    citations=("unslothai/unsloth#10681",),
)
def longrope_switched_below(seq_len: int | None, original: int) -> bool:
    """The long list is for lengths of at least the original one: < stands for ≤."""
    return seq_len is not None and seq_len >= original


@bug.in_step(
    "is_long",
    seen=FREQUENCIES,
    law="the length decides between the short and the long list",
    effect="Beyond the original length texts fall apart.",
    repair="Take the long list there.",
    origin="modules are built once, before a length is known",
)
def longrope_never_long(seq_len: int | None, original: int) -> bool:
    """The short list is for all lengths."""
    return False


@bug.in_step(
    "is_long",
    seen=FREQUENCIES,
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="What a prompt is answered depends on the prompts before it.",
    repair="Choose the list for each length.",
    origin="the buffer of a module is written over when a long sequence comes, and not restored",
)
def longrope_long_once_long(memory: Memory, seq_len: int | None, original: int) -> bool:
    """After a long sequence the long list is for short ones too."""
    memory["longest"] = max(memory.get("longest", 0), seq_len or 0)
    return bool(memory["longest"] > original)


@bug.in_step(
    "longrope_list",
    seen=FREQUENCIES,
    law="frequencies are those of the default divided",
    effect="Slow pairs rotate many times too fast.",
    repair="Divide by it.",
    origin="it is a list of factors",
)
def longrope_list_multiplies(seq_len: int | None, given: Given) -> Array:
    """Frequencies are multiplied by the list."""
    return 1 / np.asarray(right.longrope_list(seq_len, given))


@bug.in_step(
    "longrope_multiplier",
    seen=FREQUENCIES,
    law="an attention factor grows as the logarithm of the factor",
    effect="Scores are off by a constant factor.",
    repair="√(1 + ln s / ln M).",
    origin="one helper for both",
)
def longrope_attention_factor_of_yarn(factor: float, original: int, attention_factor: float | None) -> float:
    """The attention factor is that of YaRN, 0.1·ln s + 1."""
    return right.yarn_multiplier(factor, None, None, attention_factor)


@bug.in_step(
    "grown_base",
    seen=FREQUENCIES,
    law="a kind with a factor of one is the default",
    effect="Short inputs are scaled too.",
    repair="Take the length at hand, where it is beyond the original.",
    citations=("vllm-project/vllm#41236",),
)
def dynamic_base_of_the_configured_length(
    base: float, r: int, seq_len: int | None, factor: float, max_position_embeddings: int
) -> float:
    """The length is the original one times the factor, always."""
    return right.grown_base(base, r, int(factor * max_position_embeddings), factor, max_position_embeddings)


@bug.in_step(
    "grown_base",
    seen=FREQUENCIES,
    law="the slowest pair of a dynamic kind is divided by its growth",
    effect="Slow pairs rotate a little too fast.",
    repair="base · growth^(r/(r − 2)).",
    origin="for wide heads the power is nearly 1",
)
def dynamic_base_without_its_power(
    base: float, r: int, seq_len: int | None, factor: float, max_position_embeddings: int
) -> float:
    """The base is multiplied by the growth itself, without the power r/(r − 2)."""
    return float(base * (right.grown_base(base, r, seq_len, factor, max_position_embeddings) / base) ** ((r - 2) / r))


@bug.in_step(
    "grown_base",
    seen=FREQUENCIES,
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="What a short prompt is answered depends on the prompts before it.",
    repair="Compute it for each sequence, or restore it below the original length.",
    citations=("huggingface/transformers#25104, of keys that were rotated by the base of an earlier length",),
)
def dynamic_base_of_the_longest_so_far(memory: Memory, base: float, r: int, seq_len: int | None, **given: Any) -> float:
    """The base grows with the longest sequence that there has been, and never shrinks again."""
    memory["longest"] = max(memory.get("longest", 0), seq_len or 0)
    return right.grown_base(base, r, memory["longest"], **given)


# -- Widths, bases and formats ---------------------------------------------------------------------


@bug.in_step(
    "gains",
    seen=FREQUENCIES,
    law="frequencies are those of the default divided",
    effect="Positions run the factor squared too fast.",
    repair="Divide frequencies, or positions.",
    origin="some configurations say 0.25 where others say 4",
)
def linear_scaling_multiplies(kind: str, f: Array, base: float, seq_len: int | None, given: Given) -> Any:
    """Frequencies are multiplied by the factor."""
    return given["factor"] if kind == "linear" else right.gains(kind, f, base, seq_len, given)


@bug.in_step(
    "proportional_gains",
    seen=FREQUENCIES,
    law="frequencies are those of the default divided",
    effect="Channels rotate that should carry no position.",
    repair="All but the first pairs have frequency 0.",
    origin="a share of 1 is right",
)
def proportional_share_ignored(pairs: int, factor: float, partial_rotary_factor: float) -> Array:
    """All pairs rotate."""
    return np.full(pairs, 1 / factor)


@bug.in_step(
    "rotary_frequencies",
    law="channels that do not rotate do not count",
    effect="All pairs but the first rotate too fast.",
    repair="Divide by the number of channels that rotate.",
    origin="kinds that are proportional do so, others do not; compare apple/coreai-models#66",
)
def frequencies_of_the_whole_head(
    kind: str, head_dim: int, *, rotary_dim: int | None = None, **given: Any
) -> tuple[Array, Array]:
    """Exponents are over the width of the head, though fewer channels rotate."""
    found, factor = right.rotary_frequencies(kind, head_dim, rotary_dim=rotary_dim, **given)
    base, r = given.get("base") or 10000.0, right.rotating_width(head_dim, rotary_dim)
    return found * (right.powers(base, head_dim)[: r // 2] / right.powers(base, r)), factor


@bug.in_step(
    "base_of",
    seen=FREQUENCIES,
    law="frequencies are every second of twice the width",
    effect="Models of larger bases lose their long range.",
    repair="Read rope_theta.",
    origin="small tests leave the base out",
)
def frequencies_of_the_default_base(kind: str, base: float | None, r: int, seq_len: int | None, given: Given) -> float:
    """The base is 10000, whatever is given."""
    return right.base_of(kind, None, r, seq_len, given)


@bug.in_step(
    "powers",
    seen=FREQUENCIES,
    law="a call does not depend on earlier calls",
    remembers=True,
    effect="Of two models the second rotates by the first one's frequencies.",
    repair="Make the base part of the key, or keep nothing.",
    origin="layers of local and of global attention have other bases; compare ml-explore/mlx#561",
)
def frequencies_cached_without_their_base(memory: Memory, base: float, r: int) -> Any:
    """Frequencies are kept by the width alone: a second instance in the process gets those of the
    first one's base."""
    return memory.setdefault(r, right.powers(base, r)).copy()


@bug.in_step(
    "rotary_frequencies",
    law="frequencies fall by one ratio",
    effect="Far out positions are off by whole radians.",
    repair="Keep frequencies in float32, outside of what is converted.",
    citations=("huggingface/transformers#29285", "NVIDIA/Megatron-LM#744"),
)
def frequencies_converted_with_the_module(kind: str, head_dim: int, **given: Any) -> tuple[Array, Array]:
    """The module was converted to 16 bits after it was built, and the buffer of its frequencies
    with it."""
    found, factor = right.rotary_frequencies(kind, head_dim, **given)
    return rounded_to(8, found), factor
