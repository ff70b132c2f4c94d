"""Rotary frequencies as models use them. A frequency is the angle, in radians, by which a pair of
channels rotates from one position to the next.

This module is not TorchLean's: see `spec.extended`. With r the number of channels that rotate, base
the rotary base and i = 0 … r/2 − 1,

    fᵢ = base^(−2i/r),    λᵢ = 2π/fᵢ

are the frequency of pair i, in radians per position, and its wavelength, in positions. Each kind
below changes the frequencies, so that a model that was trained on M positions can read more. s is
its factor, L the length of the current sequence:

    default         f
    linear          f / s
    dynamic         f of another base, base · (s · L'/M − (s − 1))^(r/(r − 2)) with L' = max(L, M)
    yarn            f · ((1 − ramp) + ramp/s): the ramp is 0 for fast pairs and rises to 1 for slow pairs
    llama3          f where λ < M/high, f/s where λ > M/low, and between them a mean
    longrope        f / shortᵢ where L ≤ M, f / longᵢ where L > M
    proportional    base^(−2i/headDim) / s for the first pairs, 0 for the others

The attention factor is 1 except for `yarn` and `longrope`, where it is given or computed. It
multiplies cosines and sines (`spec.extended.rotary`), and so a score by its square. Parameters have
the names of transformers' configurations. Parameters are never rounded when they are read: over
float32 a parameter should be a float32 number.

Over balls, a comparison that decides a branch is proved, or it is refused. If the parameters are
rational, some precision decides it, because λ is a multiple of π and YaRN's `corr` contains the
logarithm of a rational multiple of 1/π. Over series the derivative belongs to the branch.

Sources: Su et al., RoFormer, 2021; Chen et al., Extending Context Window of Large Language Models
via Positional Interpolation, 2023 (linear); bloc97 and emozilla, NTK-aware scaled RoPE, 2023
(dynamic); Peng et al., YaRN, 2024; Meta, Llama 3.1, 2024; Ding et al., LongRoPE, 2024; Google,
Gemma 4 (proportional); transformers, `modeling_rope_utils.py`, whose parameters these are. The
numbers of models come from the file that is named beside each; a model's `config.json` is the
one published with its weights, as public code quotes it.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np  # noqa: F401 - for the examples

from spec.context import Context, Scalar
from spec.extended.frequency_bands import llama3_frequencies, yarn_frequencies
from spec.extended.frequency_kinds import (
    Frequencies,
    default_frequencies,
    dynamic_frequencies,
    linear_frequencies,
    longrope_frequencies,
    proportional_frequencies,
)

__all__ = ["rotary_frequencies"]

KINDS: dict[str, Callable[..., Frequencies]] = {
    "default": default_frequencies,
    "linear": linear_frequencies,
    "dynamic": dynamic_frequencies,
    "yarn": yarn_frequencies,
    "llama3": llama3_frequencies,
    "longrope": longrope_frequencies,
    "proportional": proportional_frequencies,
}
"""The definition of each kind, by its name."""


def rotary_frequencies(
    kind: str,
    head_dim: int,
    *,
    base: Scalar = 10000.0,
    rotary_dim: int | None = None,
    seq_len: int | None = None,
    scalar: Context | None = None,
    **parameters: Any,
) -> Frequencies:
    """Return (inv_freq, attention_factor) of a kind: the frequency of each pair, and the factor
    that multiplies cosines and sines.

    rotary_dim is r, headDim by default. Configurations call r / headDim `partial_rotary_factor`;
    only for `proportional`, which always covers headDim, it is a parameter. seq_len is L, and is
    used by the kinds that depend on it. Raises ValueError for an unknown kind, for a parameter that
    the kind does not have, and for one that it misses.

    >>> from spec import REAL64
    >>> inv_freq, factor = rotary_frequencies("linear", 4, factor=4.0, scalar=REAL64)
    >>> inv_freq.tolist(), float(factor)
    ([0.25, 0.0025], 1.0)
    >>> rotary_frequencies("linear", 4, beta_fast=32, scalar=REAL64)
    Traceback (most recent call last):
    ValueError: beta_fast is no parameter of 'linear', which takes factor.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}, but should be one of {', '.join(map(repr, KINDS))}.")
    family = KINDS[kind]
    takes = inspect.signature(family).parameters
    own = [name for name in takes if name not in {"rotary_dim", "head_dim", "base", "seq_len", "scalar"}]
    for name in parameters:
        if name not in own:
            raise ValueError(f"{name} is no parameter of {kind!r}, which takes {', '.join(own) or 'none'}.")
    for name in own:
        if name not in parameters and takes[name].default is inspect.Parameter.empty:
            raise ValueError(f"{name} is missing, but is a parameter of {kind!r} without a default.")
    if kind == "proportional" and rotary_dim not in (None, head_dim):
        raise ValueError(
            f"rotary_dim={rotary_dim}, but should be head_dim={head_dim}: "
            "the pairs of 'proportional' are those of the head."
        )
    length = {"seq_len": seq_len} if "seq_len" in takes else {}
    return family(head_dim if rotary_dim is None else rotary_dim, base=base, scalar=scalar, **length, **parameters)
