"""The kinds of rotary frequencies that keep fast pairs and interpolate slow ones: YaRN by
numbers of turns, llama3 by wavelengths.

This module is not TorchLean's: see `spec.extended`. The letters, the table of all kinds and the
sources are in `spec.extended.rotary_frequencies`.
"""

import numpy as np  # noqa: F401 - for the examples

from spec.context import Context, Scalar
from spec.extended.arguments import finite, length_of, pairs_of, positive
from spec.extended.frequency_kinds import Frequencies, default_frequencies
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, expect_type, nat, tabulate

__all__ = ["llama3_frequencies", "yarn_frequencies", "yarn_mscale", "yarn_ramp"]


@definition()
def yarn_ramp(
    rotary_dim: int,
    *,
    original_max_position_embeddings: int,
    base: Scalar = 10000.0,
    beta_fast: Scalar = 32,
    beta_slow: Scalar = 1,
    truncate: bool = True,
    upper: int | None = None,
    scalar: Context | None = None,
) -> Tensor[Array, "pairs"]:
    """Return for each pair how far it is interpolated, from 0 to 1. It is 0 for a pair that makes
    at least β_fast turns in M positions, and 1 for a pair that makes at most β_slow turns.

        rampᵢ = (i − low) / (high − low), cut to [0, 1],  low = corr(β_fast), high = corr(β_slow),
        corr(ρ) = r · ln(M/(2πρ)) / (2 ln base)

    corr(ρ) is the pair number, a real number, at which a pair makes ρ turns in M positions. If
    `truncate` is true, low is rounded down and high up. Then low is cut to at least 0 and high to
    at most `upper`. The default of `upper` is r − 1, and not r/2 − 1, the last pair.

    Edge cases: if low and high are equal, high is 0.001 more. high < low is refused. A base of 1 or
    less is refused.

    gpt-oss (`original_max_position_embeddings` 4096, `rope_theta` 150000, heads of 64 channels,
    `truncate` false; openai/gpt-oss, `gpt_oss/torch/model.py`): the ramp runs from pair 8.09 to
    pair 17.40.

    >>> from spec import REAL64
    >>> ramp = yarn_ramp(64, original_max_position_embeddings=4096, base=150000.0, truncate=False, scalar=REAL64)
    >>> ramp[[8, 9, 17, 18]].round(4).tolist()
    [0.0, 0.0975, 0.9572, 1.0]
    """
    pairs = pairs_of(rotary_dim)
    M = alpha.of_nat(length_of(original_max_position_embeddings, "original_max_position_embeddings"))
    b = positive(base, "base")
    expect_type(truncate, "truncate", bool)
    if not alpha.greater(b, alpha.one):
        raise ValueError(f"base={base}, but should be above 1: a pair's wavelength should grow with its number.")

    def corr(turns: Scalar) -> Scalar:
        fewer = alpha.log(alpha.div(M, alpha.two * alpha.pi() * turns))
        return alpha.div(alpha.of_nat(rotary_dim) * fewer, alpha.two * alpha.log(b))

    low, high = corr(positive(beta_fast, "beta_fast")), corr(positive(beta_slow, "beta_slow"))
    last = max(rotary_dim - 1, 0) if upper is None else nat(upper, "upper")
    if truncate:
        low, high = alpha.floor(low), alpha.ceil(high)
    low, high = alpha.max(low, alpha.zero), alpha.min(high, alpha.of_nat(last))
    if alpha.greater(low, high):
        raise ValueError(
            f"The ramp runs from low={low} to high={high}, but should rise: "
            f"see beta_fast={beta_fast} and beta_slow={beta_slow}."
        )
    width = high - low if alpha.greater(high, low) else alpha.div(alpha.one, alpha.of_nat(1000))
    return tabulate(
        (pairs,), lambda i: alpha.max(alpha.zero, alpha.min(alpha.one, alpha.div(alpha.of_nat(i) - low, width)))
    )


@definition()
def yarn_mscale(factor: Scalar, weight: Scalar = 1, scalar: Context | None = None) -> Scalar:
    """Return m(s, x) = 0.1 · x · ln s + 1 for s > 1, else 1. This is the factor by which YaRN
    sharpens attention, where x is a weight.

    >>> from spec import REAL64
    >>> yarn_mscale(40.0, scalar=REAL64).round(6), yarn_mscale(0.5, scalar=REAL64)  # 0.1 · ln 40 + 1
    (np.float64(1.368888), np.float64(1.0))
    """
    s = positive(factor, "factor")
    if not alpha.greater(s, alpha.one):
        return alpha.one
    return alpha.div(finite(weight, "weight") * alpha.log(s), alpha.of_nat(10)) + alpha.one


@definition()
def yarn_frequencies(
    rotary_dim: int,
    *,
    factor: Scalar,
    original_max_position_embeddings: int,
    base: Scalar = 10000.0,
    beta_fast: Scalar = 32,
    beta_slow: Scalar = 1,
    truncate: bool = True,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    attention_factor: Scalar | None = None,
    scalar: Context | None = None,
) -> Frequencies:
    """Return the frequencies fᵢ · ((1 − rampᵢ) + rampᵢ/s), with the ramp of `yarn_ramp`, and the
    attention factor: fast pairs are kept, and slow pairs are divided by s. The attention factor is

        the given one, or m(s, mscale) / m(s, mscale_all_dim) where both are given and not 0, or
        m(s, 1),

    with m as in `yarn_mscale`. DeepSeek also multiplies the scale of its softmax by m(s,
    mscale_all_dim)²; that is not done here.

    Edge cases
    - s = 1 without a given attention factor is `default_frequencies`.
    - mscale = mscale_all_dim: the attention factor is 1.

    DeepSeek-V3 (`factor` 40, `original_max_position_embeddings` 4096, 64 channels that rotate;
    deepseek-ai/DeepSeek-V3, `inference/model.py`; `mscale` = `mscale_all_dim` = 1; its
    `config.json`): from pair 10 to pair 23.

    >>> from spec import REAL64
    >>> deepseek = dict(factor=40.0, original_max_position_embeddings=4096, scalar=REAL64)
    >>> inv_freq, attention_factor = yarn_frequencies(64, mscale=1.0, mscale_all_dim=1.0, **deepseek)
    >>> f, _ = default_frequencies(64, scalar=REAL64)
    >>> (f / inv_freq)[[10, 11, 22, 23]].round(4), attention_factor  # 1 / (1 − 39/40 · (i − 10)/13)
    (array([ 1.    ,  1.0811, 10.    , 40.    ]), np.float64(1.0))
    >>> yarn_frequencies(64, **deepseek)[1].round(6)  # 0.1 · ln 40 + 1
    np.float64(1.368888)
    """
    band = {"beta_fast": beta_fast, "beta_slow": beta_slow, "truncate": truncate}
    s, (f, _) = positive(factor, "factor"), default_frequencies(rotary_dim, base=base)
    ramp = yarn_ramp(rotary_dim, original_max_position_embeddings=original_max_position_embeddings, base=base, **band)
    if attention_factor is not None:
        m = finite(attention_factor, "attention_factor")
    elif mscale and mscale_all_dim:
        m = alpha.div(yarn_mscale(s, mscale), yarn_mscale(s, mscale_all_dim))
    else:
        m = yarn_mscale(s)
    return tabulate(f.shape, lambda i: f[i] * ((alpha.one - ramp[i]) + alpha.div(ramp[i], s))), m


@definition()
def llama3_frequencies(
    rotary_dim: int,
    *,
    factor: Scalar,
    low_freq_factor: Scalar,
    high_freq_factor: Scalar,
    original_max_position_embeddings: int,
    base: Scalar = 10000.0,
    scalar: Context | None = None,
) -> Frequencies:
    """Return the frequencies and the attention factor 1. A frequency is kept where its wavelength
    is short compared with M, and divided by s where its wavelength is long. Between, it is a mean
    of both:

        f where λ < M/high,    f/s where λ > M/low,    ((1 − z)/s + z) · f between,  z = (M/λ − low) / (high − low)

    Edge cases
    - At both ends of the band the mean equals its neighbour. s = 1 is `default_frequencies`.
    - high ≤ low is refused: the band would be empty or of width 0.

    Llama 3.1 8B (`factor` 8, `low_freq_factor` 1, `high_freq_factor` 4,
    `original_max_position_embeddings` 8192, `rope_theta` 500000, heads of 128 channels; torchtune,
    `models/llama3_1`): pairs up to 28 are kept, and pairs from 35 on are divided by 8.

    >>> from spec import REAL64
    >>> model = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
    >>> inv_freq, _ = llama3_frequencies(128, base=500000.0, **model, scalar=REAL64)
    >>> f, _ = default_frequencies(128, base=500000.0, scalar=REAL64)
    >>> (f / inv_freq)[[28, 29, 34, 35]].round(4).tolist()
    [1.0, 1.2075, 5.2573, 8.0]
    """
    f, one = default_frequencies(rotary_dim, base=base)
    M = alpha.of_nat(length_of(original_max_position_embeddings, "original_max_position_embeddings"))
    s, low, high = (
        positive(factor, "factor"),
        positive(low_freq_factor, "low_freq_factor"),
        positive(high_freq_factor, "high_freq_factor"),
    )
    if not alpha.greater(high, low):
        raise ValueError(f"high_freq_factor={high_freq_factor}, but should be above low_freq_factor={low_freq_factor}.")

    def entry(i: int) -> Scalar:
        wavelength = alpha.div(alpha.two * alpha.pi(), f[i])
        if alpha.greater(alpha.div(M, high), wavelength):
            return f[i]
        if alpha.greater(wavelength, alpha.div(M, low)):
            return alpha.div(f[i], s)
        z = alpha.div(alpha.div(M, wavelength) - low, high - low)
        return (alpha.div(alpha.one - z, s) + z) * f[i]

    return tabulate(f.shape, entry), one
