"""What the slips in rotary encodings are made of: turning by given positions, exponents or angles, and rounding."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.reference import apply_rotary

__all__ = ["exponents", "rounded_to", "turned"]


def exponents(dim: int) -> Array:
    """2i/dim for each pair i; an odd dim's last lane begins a pair too."""
    return np.asarray(2.0 * np.arange((dim + 1) // 2) / max(dim, 1))


def turned(x: Array, positions: Any = None, powers: Array | None = None, *, theta: Array | None = None) -> Array:
    """x with each pair turned by position · 10000^(−power), or by θ: positions are (…, n), θ is (…, n, pairs)."""
    if theta is None:
        frequencies = 10000.0 ** -(exponents(x.shape[-1]) if powers is None else powers)
        theta = np.asarray(positions)[..., None] * frequencies
    lanes = np.repeat(theta, 2, axis=-1)[..., : x.shape[-1]]
    return apply_rotary(x, np.cos(lanes), np.sin(lanes))


def rounded_to(bits: int, x: Any) -> Array:
    """x rounded to so many significant bits, ties to even: 8 for bfloat16, 11 for float16."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits))
