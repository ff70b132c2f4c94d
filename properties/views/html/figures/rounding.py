"""Computes attention, sines and cosines in NumPy, with the roundings of a kernel in a number
format.
"""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array

__all__ = ["FORMATS", "angle_tables", "attention", "rope", "stored"]

FORMATS: dict[str, tuple[Any, Any]] = {
    "float64": (np.float64, np.float64),
    "float32": (np.float32, np.float32),
    "float16": (np.float32, np.float16),
    "bfloat16": (np.float32, ml_dtypes.bfloat16),
}
"""The dtypes in which each preset of `oracles` computes, and in which it stores. 16-bit kernels sum in
32 bits.
"""


def stored(x: Any, name: str) -> Array:
    """Return numbers rounded to a stored format, as float64."""
    return np.asarray(np.asarray(x).astype(FORMATS[name][1]), dtype=np.float64)


def attention(q: Array, k: Array, v: Array, name: str) -> Array:
    """Return attention whose weights and output are stored in a format."""
    wide = FORMATS[name][0]
    q, k, v = (x.astype(wide) for x in (q, k, v))
    scores = q @ k.T / np.sqrt(wide(q.shape[1]))
    e = np.exp(scores - scores.max(-1, keepdims=True))
    weights = stored(e / e.sum(-1, keepdims=True), name).astype(wide)
    return stored(weights @ v, name)


def angle_tables(positions: NDArray[Any], head_dim: int, name: str) -> tuple[Array, Array]:
    """Return the cosine and the sine of position·10000^(−2i/head_dim). They are computed in the
    wide format and stored in the format `name`.
    """
    wide = FORMATS[name][0]
    frequency = np.power(wide(10000.0), -np.arange(0, head_dim, 2).astype(wide) / wide(head_dim))
    angle = positions.astype(wide)[:, None] * frequency
    return stored(np.cos(angle), name), stored(np.sin(angle), name)


def rope(x: Array, start_pos: int, name: str) -> Array:
    """Return x with adjacent pairs of channels rotated by tables that are stored in a format."""
    wide = FORMATS[name][0]
    cos, sin = (table.astype(wide) for table in angle_tables(start_pos + np.arange(len(x)), x.shape[1], name))
    a, b = x[:, 0::2].astype(wide), x[:, 1::2].astype(wide)
    return stored(np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape), name)
