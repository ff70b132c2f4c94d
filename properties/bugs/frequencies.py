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

# -- YaRN ------------------------------------------------------------------------------------------------------------------------------


@bug.slip("yarn_multiplier", seen=FREQUENCIES, law="an attention factor that is given is returned")
def yarn_attention_factor_twice(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor that is given, the final one, is multiplied by the computed one. Effect:
    Cosines and sines are too large by 0.1·ln s + 1, and scores by its square. Repair: Take the
    factor that is given, or compute one. Seen: sgl-project/sglang#33558"""
    computed = right.yarn_multiplier(factor, mscale, mscale_all_dim, None)
    return computed * (1.0 if attention_factor is None else attention_factor)


@bug.slip("yarn_multiplier", seen=FREQUENCIES, law="an attention factor that is given is returned")
def yarn_attention_factor_ignored(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor is computed, though one is given.
    Effect: Scores are off by a constant factor, but where the one that is given is the computed
    one. Repair: Take the factor that is given. Seen: ml-explore/mlx-lm#1507"""
    return right.yarn_multiplier(factor, mscale, mscale_all_dim, None)


@bug.slip("yarn_multiplier", seen=FREQUENCIES, law="an attention factor is a quotient of two weights")
def yarn_mscales_exchanged(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """mscale and mscale_all_dim change places.
    Effect: Where they differ, the temperature of the softmax is wrong. Repair: m(s, mscale) / m(s,
    mscale_all_dim). Seen: NVIDIA/Megatron-LM#1429, in the scale of the softmax"""
    return right.yarn_multiplier(factor, mscale_all_dim, mscale, attention_factor)


@bug.slip("yarn_multiplier", seen=FREQUENCIES, law="an attention factor is a quotient of two weights")
def yarn_second_mscale_ignored(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor is m(s, mscale), without mscale_all_dim.
    Effect: Models that scale their softmax by mscale_all_dim besides have it twice. Repair: Divide
    by m(s, mscale_all_dim), where both are given and not 0. Seen: none: configurations that have
    one of the two alone are read the same"""
    return attention_factor if attention_factor is not None else right.sharpened(factor, mscale or 1.0)


@bug.slip("yarn_ends", seen=FREQUENCIES, law="a ramp is a straight line between its ends")
def yarn_ramp_not_rounded(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """The ends of the ramp are never rounded, as if `truncate` were off.
    Effect: The pairs of the ramp turn a little too fast or too slowly, which shows far out. Repair:
    Round the ends outwards, but where `truncate` is off. Seen: keras-team/keras-hub#2981"""
    return right.yarn_ends(low, high, False, r)


@bug.slip("yarn_ends", seen=FREQUENCIES, law="a ramp is a straight line between its ends")
def yarn_ramp_always_rounded(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """The ends of the ramp are rounded though `truncate` is off.
    Effect: Models that turn it off, as GPT-OSS does, get other frequencies. Repair: Read
    `truncate`. Seen: none: most configurations leave it out"""
    return right.yarn_ends(low, high, True, r)


@bug.slip("yarn_ends", seen=FREQUENCIES, law="a ramp is a straight line between its ends")
def yarn_ramp_ends_at_the_last_pair(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """The ramp is cut to the number of the last pair, and not to that of the last channel. Effect:
    With a long original length slow pairs are interpolated too much. Repair: Cut it to r − 1. Seen:
    keras-team/keras-hub#2981"""
    low, high = right.yarn_ends(low, high, truncate, r)
    return low, min(high, r // 2 - 1)


@bug.slip("yarn_multiplier", seen=FREQUENCIES, law="an attention factor grows as the logarithm of the factor")
def yarn_attention_factor_forgotten(factor: float, mscale: Any, mscale_all_dim: Any, attention_factor: Any) -> float:
    """The attention factor is 1 where none is given.
    Effect: The softmax of long sequences is too flat. Repair: 0.1·ln s + 1. Seen: none: code for
    linear scaling has no attention factor"""
    return 1.0 if attention_factor is None else attention_factor


@bug.slip("yarn_ramp", seen=FREQUENCIES, law="a ramp is a straight line between its ends")
def yarn_ramp_reversed(*arguments: Any, **given: Any) -> Array:
    """Fast pairs are interpolated, and slow ones kept.
    Effect: Near tokens are told apart worse, and far ones not better. Repair: Interpolate where the
    ramp is 1. Seen: none: there is a ramp and its complement, both called mask"""
    return 1 - right.yarn_ramp(*arguments, **given)


@bug.slip("pair_of_turns", seen=FREQUENCIES, law="a ramp is a straight line between its ends")
def yarn_ramp_of_the_default_base(turns: float, r: int, base: float, original: int) -> float:
    """The ends of the ramp are those of the base 10000, whatever the base is.
    Effect: Models of larger bases interpolate other pairs. Repair: Hand the base on. Seen: none:
    the base is a default argument of the helper that finds the ends"""
    return right.pair_of_turns(turns, r, 10000.0, original)


# -- llama3 ----------------------------------------------------------------------------------------------------------------------------


@bug.slip("llama3_gains", seen=FREQUENCIES, law="fast pairs are kept and slow ones divided")
def llama3_scaling_not_read(f: Array, **given: Any) -> Array:
    """The scaling is parsed and never read: frequencies are those of the default.
    Effect: Short prompts are fine, long ones degrade. Repair: Read `type` where files say so, and
    `rope_type`. Seen: lablup/mlxcel#1355"""
    return np.ones(len(f))


@bug.slip("gains", seen=FREQUENCIES, law="fast pairs are kept and slow ones divided")
def llama3_scaling_dropped_on_a_path(kind: str, f: Array, base: float, seq_len: int | None, given: Given) -> Any:
    """On one of the paths, here where a base is given, the scaling is dropped.
    Effect: Gibberish beyond some length, on that path. Repair: Compute frequencies in one place.
    Seen: unslothai/unsloth#6197"""
    return 1.0 if kind == "llama3" and base != 10000.0 else right.gains(kind, f, base, seq_len, given)


@bug.slip("llama3_line", seen=FREQUENCIES, law="wavelengths at the ends of a band are continuous")
def llama3_blend_exchanged(waves: Array, low: float, high: float) -> Array:
    """Within the band the two weights are exchanged; beyond it nothing changes.
    Effect: At both ends of the band frequencies jump. Repair: (1 − z)/s + z with z from 0 at long
    waves to 1 at short ones. Seen: none: the smooth factor is multiplied to the wrong term"""
    z = right.llama3_line(waves, low, high)
    return np.where((z > 0) & (z < 1), 1 - z, z)


@bug.slip("llama3_line", seen=FREQUENCIES, law="wavelengths at the ends of a band are continuous")
def llama3_without_a_band(waves: Array, low: float, high: float) -> Array:
    """Pairs within the band are divided, as those beyond it.
    Effect: Pairs of middle wavelengths rotate too slowly. Repair: Blend between the ends of the
    band. Seen: none: the first two branches of three are written"""
    z = right.llama3_line(waves, low, high)
    return np.where(z < 1, 0.0, z)


# -- longrope and dynamic --------------------------------------------------------------------------------------------------------------


@bug.slip("is_long", seen=FREQUENCIES, law="the length decides between the short and the long list")
def longrope_switched_below(seq_len: int | None, original: int) -> bool:
    """The long list is for lengths of at least the original one: < stands for ≤.
    Effect: One length is wrong. Repair: Short to the original length, and at it. Seen:
    unslothai/unsloth#10681"""
    return seq_len is not None and seq_len >= original


@bug.slip("is_long", seen=FREQUENCIES, law="the length decides between the short and the long list")
def longrope_never_long(seq_len: int | None, original: int) -> bool:
    """The short list is for all lengths.
    Effect: Beyond the original length texts fall apart. Repair: Take the long list there. Seen:
    none: modules are built once, before a length is known"""
    return False


@bug.slip("is_long", seen=FREQUENCIES, law="a call does not depend on earlier calls", remembers=True)
def longrope_long_once_long(memory: Memory, seq_len: int | None, original: int) -> bool:
    """After a long sequence the long list is for short ones too.
    Effect: What a prompt is answered depends on the prompts before it. Repair: Choose the list for
    each length. Seen: none: the buffer of a module is written over when a long sequence comes, and
    not restored"""
    memory["longest"] = max(memory.get("longest", 0), seq_len or 0)
    return bool(memory["longest"] > original)


@bug.slip("longrope_list", seen=FREQUENCIES, law="frequencies are those of the default divided")
def longrope_list_multiplies(seq_len: int | None, given: Given) -> Array:
    """Frequencies are multiplied by the list.
    Effect: Slow pairs rotate many times too fast. Repair: Divide by it. Seen: none: it is a list of
    factors"""
    return 1 / np.asarray(right.longrope_list(seq_len, given))


@bug.slip("longrope_multiplier", seen=FREQUENCIES, law="an attention factor grows as the logarithm of the factor")
def longrope_attention_factor_of_yarn(factor: float, original: int, attention_factor: float | None) -> float:
    """The attention factor is that of YaRN, 0.1·ln s + 1.
    Effect: Scores are off by a constant factor. Repair: √(1 + ln s / ln M). Seen: none: one helper
    for both"""
    return right.yarn_multiplier(factor, None, None, attention_factor)


@bug.slip("grown_base", seen=FREQUENCIES, law="a kind with a factor of one is the default")
def dynamic_base_of_the_configured_length(
    base: float, r: int, seq_len: int | None, factor: float, max_position_embeddings: int
) -> float:
    """The length is the original one times the factor, always.
    Effect: Short inputs are scaled too. Repair: Take the length at hand, where it is beyond the
    original. Seen: vllm-project/vllm#41236"""
    return right.grown_base(base, r, int(factor * max_position_embeddings), factor, max_position_embeddings)


@bug.slip("grown_base", seen=FREQUENCIES, law="the slowest pair of a dynamic kind is divided by its growth")
def dynamic_base_without_its_power(
    base: float, r: int, seq_len: int | None, factor: float, max_position_embeddings: int
) -> float:
    """The base is multiplied by the growth itself, without the power r/(r − 2).
    Effect: Slow pairs rotate a little too fast. Repair: base · growth^(r/(r − 2)). Seen: none: for
    wide heads the power is nearly 1"""
    return float(base * (right.grown_base(base, r, seq_len, factor, max_position_embeddings) / base) ** ((r - 2) / r))


@bug.slip("grown_base", seen=FREQUENCIES, law="a call does not depend on earlier calls", remembers=True)
def dynamic_base_of_the_longest_so_far(memory: Memory, base: float, r: int, seq_len: int | None, **given: Any) -> float:
    """The base grows with the longest sequence that there has been, and never shrinks again.
    Effect: What a short prompt is answered depends on the prompts before it. Repair: Compute it for
    each sequence, or restore it below the original length. Seen: huggingface/transformers#25104, of
    keys that were rotated by the base of an earlier length"""
    memory["longest"] = max(memory.get("longest", 0), seq_len or 0)
    return right.grown_base(base, r, memory["longest"], **given)


# -- Widths, bases and formats ---------------------------------------------------------------------------------------------------------


@bug.slip("gains", seen=FREQUENCIES, law="frequencies are those of the default divided")
def linear_scaling_multiplies(kind: str, f: Array, base: float, seq_len: int | None, given: Given) -> Any:
    """Frequencies are multiplied by the factor.
    Effect: Positions run the factor squared too fast. Repair: Divide frequencies, or positions.
    Seen: none: some configurations say 0.25 where others say 4"""
    return given["factor"] if kind == "linear" else right.gains(kind, f, base, seq_len, given)


@bug.slip("proportional_gains", seen=FREQUENCIES, law="frequencies are those of the default divided")
def proportional_share_ignored(pairs: int, factor: float, partial_rotary_factor: float) -> Array:
    """All pairs rotate.
    Effect: Channels rotate that should carry no position. Repair: All but the first pairs have
    frequency 0. Seen: none: a share of 1 is right"""
    return np.full(pairs, 1 / factor)


@bug.slip("rotary_frequencies", law="channels that do not rotate do not count")
def frequencies_of_the_whole_head(
    kind: str, head_dim: int, *, rotary_dim: int | None = None, **given: Any
) -> tuple[Array, Array]:
    """Exponents are over the width of the head, though fewer channels rotate.
    Effect: All pairs but the first rotate too fast. Repair: Divide by the number of channels that
    rotate. Seen: none: kinds that are proportional do so, others do not; compare
    apple/coreai-models#66"""
    found, factor = right.rotary_frequencies(kind, head_dim, rotary_dim=rotary_dim, **given)
    base, r = given.get("base") or 10000.0, right.rotating_width(head_dim, rotary_dim)
    return found * (right.powers(base, head_dim)[: r // 2] / right.powers(base, r)), factor


@bug.slip("base_of", seen=FREQUENCIES, law="frequencies are every second of twice the width")
def frequencies_of_the_default_base(kind: str, base: float | None, r: int, seq_len: int | None, given: Given) -> float:
    """The base is 10000, whatever is given.
    Effect: Models of larger bases lose their long range. Repair: Read rope_theta. Seen: none: small
    tests leave the base out"""
    return right.base_of(kind, None, r, seq_len, given)


@bug.slip("powers", seen=FREQUENCIES, law="a call does not depend on earlier calls", remembers=True)
def frequencies_cached_without_their_base(memory: Memory, base: float, r: int) -> Any:
    """Frequencies are kept by the width alone: a second instance in the process gets those of the
    first one's base. Effect: Of two models the second rotates by the first one's frequencies.
    Repair: Make the base part of the key, or keep nothing. Seen: none: layers of local and of
    global attention have other bases; compare ml-explore/mlx#561"""
    return memory.setdefault(r, right.powers(base, r)).copy()


@bug.slip("rotary_frequencies", law="frequencies fall by one ratio")
def frequencies_converted_with_the_module(kind: str, head_dim: int, **given: Any) -> tuple[Array, Array]:
    """The module was converted to 16 bits after it was built, and the buffer of its frequencies
    with it. Effect: Far out positions are off by whole radians. Repair: Keep frequencies in
    float32, outside of what is converted. Seen: huggingface/transformers#29285;
    NVIDIA/Megatron-LM#744"""
    found, factor = right.rotary_frequencies(kind, head_dim, **given)
    return rounded_to(8, found), factor
