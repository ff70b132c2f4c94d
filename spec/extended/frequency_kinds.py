"""The kinds of rotary frequencies that change all pairs in the same way, each pair by its own
factor from a list, or only a share of the pairs.

This module is not TorchLean's: see `spec.extended`. The letters, the table of all kinds and the
sources are in `spec.extended.rotary_frequencies`.
"""

from fractions import Fraction
from typing import Any

import numpy as np  # noqa: F401 - for the examples

from spec.context import Context, Scalar
from spec.extended.arguments import finite, length_of, pairs_of, positive
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, nat, tabulate

__all__ = [
    "default_frequencies",
    "dynamic_frequencies",
    "linear_frequencies",
    "longrope_frequencies",
    "proportional_frequencies",
]

Frequencies = tuple[Tensor[Array, "pairs"], Scalar]


# -- Without a change of lengths, and with one for all pairs ---------------------------------------


@definition()
def default_frequencies(rotary_dim: int, *, base: Scalar = 10000.0, scalar: Context | None = None) -> Frequencies:
    """Return the frequencies fᵢ = base^(−2i/r) and the attention factor 1.

    Edge cases: r = 0 has no pair. Pair 0 rotates by one radian from each position to the next, for
    every base.

    Llama 2 7B (`rope_theta` 10000, heads of 128 channels; torchtune, `models/llama2`): the slowest
    pair takes 54,410 positions for a turn.

    >>> from spec import REAL64
    >>> inv_freq, _ = default_frequencies(128, base=10000.0, scalar=REAL64)
    >>> inv_freq[0], inv_freq[32].round(12), (2 * np.pi / inv_freq[63]).round()
    (np.float64(1.0), np.float64(0.01), np.float64(54410.0))
    """
    pairs, b = pairs_of(rotary_dim), positive(base, "base")
    exponent = [alpha.div(alpha.of_nat(2 * i), alpha.of_nat(rotary_dim)) for i in range(pairs)]
    return tabulate((pairs,), lambda i: alpha.power(b, -exponent[i])), alpha.one


@definition()
def linear_frequencies(
    rotary_dim: int, *, factor: Scalar, base: Scalar = 10000.0, scalar: Context | None = None
) -> Frequencies:
    """Return the frequencies fᵢ / s and the attention factor 1: positions are divided by the factor
    s.

    Edge cases: s = 1 is `default_frequencies`.

    Vicuna 7B v1.5 16k (Llama 2 7B with `factor` 16384/4096 = 4; lm-sys/FastChat,
    `docs/vicuna_weights_version.md` and `fastchat/train/train.py`): position 16384 has the angles
    that 4096 had in Llama 2.

    >>> from spec import REAL64
    >>> inv_freq, _ = linear_frequencies(128, factor=4.0, scalar=REAL64)
    >>> inv_freq[0] * 16384
    np.float64(4096.0)
    """
    f, one = default_frequencies(rotary_dim, base=base)
    s = positive(factor, "factor")
    return tabulate(f.shape, lambda i: alpha.div(f[i], s)), one


@definition()
def dynamic_frequencies(
    rotary_dim: int,
    *,
    factor: Scalar,
    max_position_embeddings: int,
    seq_len: int | None = None,
    base: Scalar = 10000.0,
    scalar: Context | None = None,
) -> Frequencies:
    """Return the frequencies and the attention factor 1. The frequencies are the default ones of a
    base that grows with the length: base · (s · L'/M − (s − 1))^(r/(r − 2)) with L' = max(L, M).

    M is `max_position_embeddings`, and L the length of the whole sequence, the cache included. Pair
    0 keeps its frequency, and if L' = M all pairs do. The last pair has f / (s · L'/M − (s − 1)).

    Edge cases
    - L ≤ M, or L not given: `default_frequencies`.
    - r = 2 is refused, because the exponent r/(r − 2) has no value.

    InternLM2 1.8B (`factor` 2, `max_position_embeddings` 32768, `rope_theta` 1000000, 2048/16 = 128
    channels in a head; its `config.json`) at 65536 positions: the last pair is 2 · 2 − 1 = 3 times
    as slow.

    >>> from spec import REAL64
    >>> model = dict(factor=2.0, max_position_embeddings=32768, base=1000000.0, scalar=REAL64)
    >>> short, _ = dynamic_frequencies(128, seq_len=32768, **model)
    >>> long, _ = dynamic_frequencies(128, seq_len=65536, **model)
    >>> long[0], (short[63] / long[63]).round(12)
    (np.float64(1.0), np.float64(3.0))
    """
    if rotary_dim == 2:
        raise ValueError("rotary_dim=2, but should not be 2: the exponent r/(r − 2) of the base has no value there.")
    M, L = (
        length_of(max_position_embeddings, "max_position_embeddings"),
        0 if seq_len is None else nat(seq_len, "seq_len"),
    )
    s, b = positive(factor, "factor"), positive(base, "base")
    growth = alpha.div(s * alpha.of_nat(max(M, L)), alpha.of_nat(M)) - (s - alpha.one)
    exponent = alpha.div(
        alpha.of_nat(rotary_dim), alpha.of_nat(abs(rotary_dim - 2))
    )  # r = 0 has no pair, whatever its base
    return default_frequencies(rotary_dim, base=b * alpha.power(growth, exponent))


# -- With a change of lengths that was searched for, pair by pair ----------------------------------


@definition()
def longrope_frequencies(
    rotary_dim: int,
    *,
    short_factor: Any,
    long_factor: Any,
    original_max_position_embeddings: int,
    factor: Scalar | None = None,
    attention_factor: Scalar | None = None,
    seq_len: int | None = None,
    base: Scalar = 10000.0,
    scalar: Context | None = None,
) -> Frequencies:
    """Return the frequencies and the attention factor. The frequencies are fᵢ / shortᵢ where L ≤ M
    or L is not given, else fᵢ / longᵢ. The attention factor is the given one, or else √(1 + ln s /
    ln M) for s > 1, and 1 for other s.

    Each list of factors has r/2 numbers. M is `original_max_position_embeddings`, L the length of
    the whole sequence.

    Edge cases
    - L = M takes the short factors.
    - Without an attention factor, `factor` is needed. M = 1 is refused, because the formula divides
      by ln 1 = 0.

    Phi-3-vision 128k (`original_max_position_embeddings` 4096, and s = 131072 / 4096 = 32; its
    `config.json`): the attention factor is √(1 + ln 32 / ln 4096) = √(17/12). Here are the first
    two of its 48 factors of each list.

    >>> from spec import REAL64
    >>> lists = dict(short_factor=[1.05, 1.05], long_factor=[1.0299999713897705, 1.0499999523162842])
    >>> model = dict(original_max_position_embeddings=4096, factor=32.0, **lists, scalar=REAL64)
    >>> inv_freq, attention_factor = longrope_frequencies(4, seq_len=4096, **model)
    >>> (1 / inv_freq[0]).round(6), attention_factor.round(6), np.sqrt(17 / 12).round(6)
    (np.float64(1.05), np.float64(1.190238), np.float64(1.190238))
    >>> (1 / longrope_frequencies(4, seq_len=4097, **model)[0][0]).round(6)
    np.float64(1.03)
    """
    f, one = default_frequencies(rotary_dim, base=base)
    M = length_of(original_max_position_embeddings, "original_max_position_embeddings")
    if M == 1:
        raise ValueError("original_max_position_embeddings=1, but should be above 1: ln 1 = 0 divides.")
    for name, factors in (("short_factor", short_factor), ("long_factor", long_factor)):
        if len(factors) != len(f):
            raise ValueError(
                f"{name} has {len(factors)} numbers, "
                f"but should have {len(f)}, one for each pair of rotary_dim={rotary_dim}."
            )
    short = seq_len is None or nat(seq_len, "seq_len") <= M
    chosen, name = (short_factor, "short_factor") if short else (long_factor, "long_factor")
    return tabulate(f.shape, lambda i: alpha.div(f[i], positive(chosen[i], f"{name}[{i}]"))), _longrope_scale(
        factor, attention_factor, M, one
    )


def _longrope_scale(factor: Scalar | None, attention_factor: Scalar | None, M: int, one: Scalar) -> Scalar:
    """Return the given attention factor. Without one, return √(1 + ln s / ln M) for s > 1, else 1."""
    if attention_factor is not None:
        return finite(attention_factor, "attention_factor")
    if factor is None:
        raise ValueError("factor is missing, but is needed where attention_factor is not given.")
    s = positive(factor, "factor")
    return alpha.sqrt(one + alpha.div(alpha.log(s), alpha.log(alpha.of_nat(M)))) if alpha.greater(s, one) else one


# -- For a part of the pairs -----------------------------------------------------------------------


@definition()
def proportional_frequencies(
    head_dim: int,
    *,
    partial_rotary_factor: float | Fraction = 1.0,
    factor: Scalar = 1.0,
    base: Scalar = 10000.0,
    scalar: Context | None = None,
) -> Frequencies:
    """Return the frequencies and the attention factor 1. The first ⌊share · headDim / 2⌋
    frequencies are base^(−2i/headDim) / s, and the others, up to headDim/2 in all, are 0.

    share is `partial_rotary_factor`, and s is `factor`. The pairs cover the whole head, and a pair
    with frequency 0 does not rotate. rotary_dim = share · headDim would be different: it changes
    the exponents and, in the half layout, which channels form a pair.

    Edge cases
    - share = 1 is `linear_frequencies`, share = 0 rotates nothing. Beyond [0, 1] it is refused.
    - The product with a share that is a float is rounded to binary64, as libraries round the
      product with a number of a model's configuration: 0.3, which is below 3/10, gives 3 of 10
      pairs. The product with a `Fraction` is exact.

    Gemma 4 (in layers of full attention `partial_rotary_factor` 0.25, `rope_theta` 1000000, heads
    of 512 channels; transformers 5.23, `Gemma4TextConfig`): 64 of 256 pairs.

    >>> from spec import REAL64
    >>> inv_freq, _ = proportional_frequencies(512, partial_rotary_factor=0.25, base=1000000.0, scalar=REAL64)
    >>> len(inv_freq), np.flatnonzero(inv_freq).max()  # the last that rotates is pair 63
    (256, np.int64(63))
    """
    share = partial_rotary_factor if isinstance(partial_rotary_factor, Fraction) else float(partial_rotary_factor)
    if not 0 <= share <= 1:
        raise ValueError(f"partial_rotary_factor={partial_rotary_factor}, but should be from 0 to 1.")
    f, one = linear_frequencies(head_dim, factor=factor, base=base)
    rotating = int(share * pairs_of(head_dim, "head_dim"))
    return tabulate(f.shape, lambda i: f[i] if i < rotating else alpha.zero), one
