"""Attention and positional encodings in mpmath with 50 digits, rounded once.

They follow the papers' formulas, not the spec, and so are a second witness that the spec is right.
"""

from typing import Any

import mpmath
import numpy as np

from properties.contract.implementation import Implementation
from spec.tensor_core import Array

__all__ = ["ATTENTION", "POSITIONAL"]

_DIGITS = 50
_LARGEST = 9  # rows and columns: larger sizes take too long


def _few(n: int) -> bool:
    return n <= _LARGEST


def _require_few(*sizes: int) -> None:
    if not all(map(_few, sizes)):
        raise ValueError(f"The sizes are {sizes}, but should be at most {_LARGEST}.")


def _attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    nQ, (nK, d) = len(q), k.shape
    _require_few(nQ, nK, d, v.shape[1])
    visible = np.broadcast_to(True if mask is None else mask, (nQ, nK))
    with mpmath.workdps(_DIGITS):
        out = np.empty((nQ, v.shape[1]))
        for i in range(nQ):
            keys = np.flatnonzero(visible[i]).tolist()
            scores = [
                mpmath.fdot(map(float, q[i]), map(float, k[j])) / mpmath.sqrt(d) if d else mpmath.mpf(0) for j in keys
            ]
            weights = [mpmath.exp(s - max(scores)) for s in scores]
            for c in range(v.shape[1]):
                total = mpmath.fdot(weights, [float(v[j, c]) for j in keys])
                out[i, c] = total / mpmath.fsum(weights) if keys else mpmath.mpf(0)
        return out


def _angle(pos: int, j: int, d: int) -> Any:
    return pos * mpmath.power(10000, -mpmath.mpf(2 * (j // 2)) / d)


def _sinusoid(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    _require_few(seq_len, embed_dim)
    with mpmath.workdps(_DIGITS):
        table = np.empty((seq_len, embed_dim))
        for p, j in np.ndindex(seq_len, embed_dim):
            theta = _angle(start_pos + p, j, embed_dim)
            table[p, j] = mpmath.cos(theta) if j % 2 else mpmath.sin(theta)
        return table


def _rope(x: Array, start_pos: int = 0) -> Array:
    """x with each pair, as a complex number, multiplied by exp(iθ).

    The unpaired channel of an odd width is multiplied by cos θ + sin θ, like in the literal spec.
    """
    seq_len, d = x.shape
    _require_few(seq_len, d)
    with mpmath.workdps(_DIGITS):
        out = np.empty(x.shape)
        for p, j in np.ndindex(seq_len, (d + 1) // 2):
            theta = _angle(start_pos + p, 2 * j, d)
            if 2 * j + 1 < d:
                rotated = mpmath.mpc(float(x[p, 2 * j]), float(x[p, 2 * j + 1])) * mpmath.expj(theta)
                out[p, 2 * j], out[p, 2 * j + 1] = rotated.real, rotated.imag
            else:
                out[p, 2 * j] = float(x[p, 2 * j]) * (mpmath.cos(theta) + mpmath.sin(theta))
        return out


ATTENTION = Implementation(
    name=f"mpmath attention, {_DIGITS} digits",
    operations={"scaled_dot_product_attention": _attention},
    batch_ranks=(0,),
    supports=dict.fromkeys(("n_q", "n_k", "head_dim", "value_dim"), _few),
)
POSITIONAL = Implementation(
    name=f"mpmath encodings, {_DIGITS} digits",
    operations={"sinusoidal_positional_encoding": _sinusoid, "rope": _rope},
    batch_ranks=(0,),
    supports=dict.fromkeys(("seq_len", "head_dim", "embed_dim"), _few),
)
