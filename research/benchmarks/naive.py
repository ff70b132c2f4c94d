"""Straightforward NumPy: float64, no radius, no blocks. The speed of the oracles is measured
against it.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Features",
    "attention",
    "attention_jvp",
    "attention_vjp",
    "featured",
    "featured_vjp",
    "rope",
    "rotary_tables",
    "sinusoid",
]

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


class Features(NamedTuple):
    """The features of a row of logits: a mask that includes the window and causality, a bias, a
    softcap and a sink.
    """

    allowed: NDArray[np.bool_]
    bias: Array
    cap: float
    sink: float


def _featured_weights(q: Array, k: Array, features: Features) -> tuple[Array, Array, Array, Array]:
    """The weights, the weight of the sink, the log-sum-exp, and the hyperbolic tangents of capped
    scores.
    """
    turned = np.tanh(q @ k.T / np.sqrt(q.shape[1]) / features.cap)
    logits = np.where(features.allowed, features.cap * turned + features.bias, -np.inf)
    largest = np.maximum(logits.max(axis=1, keepdims=True), features.sink)
    weights = np.exp(logits - largest)
    total = weights.sum(axis=1, keepdims=True) + np.exp(features.sink - largest)
    weights /= total
    return weights, np.exp(features.sink - largest) / total, largest + np.log(total), turned


def featured(q: Array, k: Array, v: Array, features: Features) -> tuple[Array, Array]:
    """The output, and the log-sum-exp of each row."""
    weights, _, lse, _ = _featured_weights(q, k, features)
    return weights @ v, lse[:, 0]


def featured_vjp(
    q: Array, k: Array, v: Array, g: Array, lse_cotangent: Array, features: Features
) -> tuple[Array, Array, Array, Array, Array]:
    """(dq, dk, dv, dbias, dsink)."""
    weights, of_sink, _, turned = _featured_weights(q, k, features)
    d_weights = g @ v.T
    shift = (d_weights * weights).sum(axis=1, keepdims=True) - lse_cotangent[:, None]
    d_logits = weights * (d_weights - shift)
    d_scores = d_logits * (1 - turned * turned) / np.sqrt(q.shape[1])
    return d_scores @ k, d_scores.T @ q, weights.T @ g, d_logits, -(of_sink * shift).sum(axis=0)


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
    """Cosines and sines of position × frequency in the half layout: all pairs, twice in a row."""
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
