"""What one would write in NumPy without a second thought: float64, no radius, no blocks. What the oracles' speed is measured against."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["attention", "attention_jvp", "attention_vjp", "rope", "rotary_tables", "sinusoid"]

Array = NDArray[np.float64]


def _weights(q: Array, k: Array) -> Array:
    scores = q @ k.T / np.sqrt(q.shape[1])
    weights: Array = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def attention(q: Array, k: Array, v: Array) -> Array:
    """softmax(q·kᵀ/√d)·v."""
    return _weights(q, k) @ v


def attention_vjp(q: Array, k: Array, v: Array, g: Array) -> tuple[Array, Array, Array]:
    """(dq, dk, dv)."""
    weights = _weights(q, k)
    d_weights = g @ v.T
    d_scores = weights * (d_weights - (d_weights * weights).sum(axis=1, keepdims=True)) / np.sqrt(q.shape[1])
    return d_scores @ k, d_scores.T @ q, weights.T @ g


def attention_jvp(q: Array, k: Array, v: Array, dq: Array, dk: Array, dv: Array) -> Array:
    """The tangent of the output."""
    weights = _weights(q, k)
    d_scores = (dq @ k.T + q @ dk.T) / np.sqrt(q.shape[1])
    tangent: Array = weights * (d_scores - (weights * d_scores).sum(axis=1, keepdims=True)) @ v + weights @ dv
    return tangent


def _angles(seq_len: int, dim: int, start_pos: int) -> Array:
    angles: Array = np.arange(start_pos, start_pos + seq_len)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    return angles


def sinusoid(seq_len: int, dim: int, start_pos: int) -> Array:
    """The table of an even width."""
    angles = _angles(seq_len, dim, start_pos)
    table = np.empty((seq_len, dim))
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return table


def rotary_tables(positions: Any, inv_freq: Array) -> tuple[Array, Array]:
    """Cosines and sines of position × frequency, those of all pairs twice in a row: the half layout."""
    angles = positions[:, None] * inv_freq
    return np.tile(np.cos(angles), 2), np.tile(np.sin(angles), 2)


def rope(x: Array, start_pos: int) -> Array:
    """x of even width, each pair rotated."""
    seq_len, dim = x.shape
    angles = _angles(seq_len, dim, start_pos)
    cos, sin = np.cos(angles), np.sin(angles)
    out = np.empty(x.shape)
    out[:, 0::2] = x[:, 0::2] * cos - x[:, 1::2] * sin
    out[:, 1::2] = x[:, 1::2] * cos + x[:, 0::2] * sin
    return out
