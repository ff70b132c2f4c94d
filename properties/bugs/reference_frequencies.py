"""A part of the reference, in NumPy: rotary frequencies of every kind.

A kind multiplies the powers f of its base by gains g. The letters in this module: s is the scaling
factor, L the sequence length, M the original context length, r the number of channels that rotate.
The module `properties.bugs.reference` has the other operations and explains steps.
"""

from collections.abc import Mapping
from math import ceil, floor, log, pi
from typing import Any

import numpy as np

from oracles.ball import Array

__all__ = ["rotary_frequencies"]

Given = Mapping[str, Any]
_DEFAULT = 10000.0


def rotating_width(head_dim: int, rotary_dim: int | None) -> int:
    """Return r, the number of channels that rotate."""
    return head_dim if rotary_dim is None else rotary_dim


def base_of(kind: str, base: float | None, r: int, seq_len: int | None, given: Given) -> float:
    """Return the base. For the dynamic kind it grows with the length."""
    base = _DEFAULT if base is None else base
    return grown_base(base, r, seq_len, **given) if kind == "dynamic" else base


def grown_base(base: float, r: int, seq_len: int | None, factor: float, max_position_embeddings: int) -> float:
    """Return the grown base: base · (s·L'/M − (s − 1))^(r/(r − 2)), with the factor s, the original
    length M, and L' = max(L, M) for the sequence length L.
    """
    longest = max(seq_len or 0, max_position_embeddings)
    return float(base * (factor * longest / max_position_embeddings - (factor - 1)) ** (r / (r - 2)))


def powers(base: float, r: int) -> Array:
    """Return the powers base^(−2i/r)."""
    return base ** -(np.arange(0, r, 2) / max(r, 1))


# -- Gains -----------------------------------------------------------------------------------------


def gains(kind: str, f: Array, base: float, seq_len: int | None, given: Given) -> Any:
    """Return the gain of each power, by which the kind multiplies it."""
    if kind == "linear":
        return 1 / given["factor"]
    if kind == "yarn":
        return blend(1 - yarn_ramp(len(f), base, **yarn_only(given)), given["factor"])
    if kind == "llama3":
        return llama3_gains(f, **given)
    if kind == "longrope":
        return 1 / np.asarray(longrope_list(seq_len, given))
    if kind == "proportional":
        return proportional_gains(len(f), **given)
    return 1.0


def blend(keep: Array, factor: float) -> Array:
    """Return the gain of each pair for the factor s: 1 if the pair is kept, 1/s if it is not kept,
    and a mean in between.
    """
    return keep + (1 - keep) / factor


def yarn_only(given: Given) -> dict[str, Any]:
    """Return the given parameters that belong to YaRN's ramp."""
    return {
        p: x
        for p, x in given.items()
        if p in ("original_max_position_embeddings", "beta_fast", "beta_slow", "truncate")
    }


def pair_of_turns(turns: float, r: int, base: float, original: int) -> float:
    """Return the pair, as a real number, that makes `turns` full rotations within the original
    length.
    """
    return r * log(original / (2 * pi * turns)) / (2 * log(base))


def yarn_ends(low: float, high: float, truncate: bool, r: int) -> tuple[float, float]:
    """Return the pairs at which the ramp begins and ends. They are rounded outwards if `truncate`
    is true, and kept within the range of pairs.
    """
    if truncate:
        low, high = floor(low), ceil(high)
    return max(low, 0), min(high, r - 1)


def yarn_ramp(
    pairs: int,
    base: float,
    original_max_position_embeddings: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Array:
    """Return YaRN's ramp: from 0 at the pair with many rotations to 1 at the pair with few."""
    r = 2 * pairs
    low, high = (pair_of_turns(turns, r, base, original_max_position_embeddings) for turns in (beta_fast, beta_slow))
    low, high = yarn_ends(low, high, truncate, r)
    return np.clip((np.arange(pairs) - low) / (high - low if high > low else 0.001), 0, 1)


def llama3_gains(
    f: Array, factor: float, original_max_position_embeddings: int, low_freq_factor: float, high_freq_factor: float
) -> Array:
    """Return the gains of the llama3 kind for the factor s: 1 for short waves, 1/s for long ones,
    and a mean in between. The number of waves in the original length decides.
    """
    waves = original_max_position_embeddings * f / (2 * pi)
    return blend(np.clip(llama3_line(waves, low_freq_factor, high_freq_factor), 0, 1), factor)


def llama3_line(waves: Array, low: float, high: float) -> Array:
    """Return the line that is 0 at `low` waves and 1 at `high` waves."""
    return (waves - low) / (high - low)


def longrope_list(seq_len: int | None, given: Given) -> Any:
    """Return the list of factors for a sequence length."""
    return (
        given["long_factor"] if is_long(seq_len, given["original_max_position_embeddings"]) else given["short_factor"]
    )


def is_long(seq_len: int | None, original: int) -> bool:
    """Return whether a sequence length is beyond the original one."""
    return seq_len is not None and seq_len > original


def proportional_gains(pairs: int, factor: float, partial_rotary_factor: float) -> Array:
    """Return the gains of the proportional kind for the factor s: 1/s for the first pairs, 0 for
    the others.
    """
    return (np.arange(pairs) < floor(partial_rotary_factor * pairs)) / factor


# -- The attention factor --------------------------------------------------------------------------


def multiplier(kind: str, given: Given) -> float:
    """Return the attention factor, which multiplies cosines and sines."""
    if kind == "yarn":
        return yarn_multiplier(
            given["factor"], *(given.get(p) for p in ("mscale", "mscale_all_dim", "attention_factor"))
        )
    if kind == "longrope":
        return longrope_multiplier(
            given["factor"], given["original_max_position_embeddings"], given.get("attention_factor")
        )
    return 1.0


def sharpened(factor: float, weight: float) -> float:
    """Return m(s, x) = 0.1·x·ln s + 1 for a factor s > 1 and a weight x, else 1."""
    return 0.1 * weight * log(factor) + 1 if factor > 1 else 1.0


def yarn_multiplier(
    factor: float, mscale: float | None, mscale_all_dim: float | None, attention_factor: float | None
) -> float:
    """Return YaRN's attention factor. This is the given one; or the quotient of two weights, if
    both are given and not 0; or m(s, 1) for the factor s, as `sharpened` computes it.
    """
    if attention_factor is not None:
        return attention_factor
    if mscale and mscale_all_dim:
        return sharpened(factor, mscale) / sharpened(factor, mscale_all_dim)
    return sharpened(factor, 1.0)


def longrope_multiplier(factor: float, original: int, attention_factor: float | None) -> float:
    """Return longrope's attention factor: the given one, or √(1 + ln s / ln M) for a factor s > 1
    and the original length M.
    """
    if attention_factor is not None:
        return attention_factor
    return float(np.sqrt(1 + log(factor) / log(original))) if factor > 1 else 1.0


def rotary_frequencies(
    kind: str,
    head_dim: int,
    *,
    base: float | None = None,
    rotary_dim: int | None = None,
    seq_len: int | None = None,
    **given: Any,
) -> tuple[Array, Array]:
    """Return the frequency of each pair in radians per position, and the factor of cosines and
    sines.
    """
    r = rotating_width(head_dim, rotary_dim)
    base = base_of(kind, base, r, seq_len, given)
    f = powers(base, r)
    return np.asarray(f * gains(kind, f, base, seq_len, given)), np.array(multiplier(kind, given))
