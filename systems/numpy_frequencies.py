"""Rotary frequencies of every kind, and rope as models use it, written out in NumPy.

An adjacent pair is a complex number. Position axes interleave. A power is the exponential of a
product, and a factor multiplies by its inverse instead of dividing.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.taken_features import TAKEN

__all__ = ["IMPLEMENTATIONS"]

Floats = NDArray[Any]


def _even(r: int) -> int:
    if r % 2:
        raise ValueError(f"{r} channels rotate, but should be an even number.")
    return r


def _exponentials(base: Any, r: int, dtype: type[Any]) -> Floats:
    i = np.arange(r // 2, dtype=dtype)
    return np.asarray(np.exp(-np.log(dtype(base)) * (2 * i / dtype(max(r, 1)))), dtype)


def _share(kind: str, f: Floats, base: float, p: dict[str, Any]) -> Floats:
    """The share of each pair's frequency that stays unscaled, from 1 to 0."""
    dtype = f.dtype.type
    most = dtype(p["original_max_position_embeddings"])
    if kind == "llama3":
        low, high = dtype(p["low_freq_factor"]), dtype(p["high_freq_factor"])
        return np.asarray(np.clip((most * f / dtype(2 * np.pi) - low) / (high - low), 0, 1))
    r = 2 * len(f)
    turns = np.array([p.get("beta_fast", 32.0), p.get("beta_slow", 1.0)], dtype)
    low, high = r * np.log(most / (dtype(2 * np.pi) * turns)) / (2 * np.log(dtype(base)))
    if p.get("truncate", True):
        low, high = np.floor(low), np.ceil(high)
    low, high = np.maximum(low, 0), np.minimum(high, r - 1)
    width = high - low if high > low else dtype(0.001)
    return np.asarray(1 - np.clip((np.arange(r // 2, dtype=dtype) - low) / width, 0, 1))


def _factor(kind: str, p: dict[str, Any], dtype: type[Any]) -> Any:
    s = dtype(max(p.get("factor", 1.0), 1.0))
    if p.get("attention_factor") is not None:
        return dtype(p["attention_factor"])
    if kind == "longrope":
        return np.sqrt(dtype(1) + np.log(s) / np.log(dtype(p["original_max_position_embeddings"])))
    weight, other = p.get("mscale") or 0.0, p.get("mscale_all_dim") or 0.0
    above, below = (weight, other) if weight * other else (1.0, 0.0)
    return (dtype(0.1 * above) * np.log(s) + dtype(1)) / (dtype(0.1 * below) * np.log(s) + dtype(1))


def _frequencies(dtype: type[Any], kind: str, head_dim: int, *, base: float = 1e4, **p: Any) -> tuple[Floats, Any]:
    """The inverse frequencies and the attention factor of a kind; p has its parameters and the
    lengths.
    """
    r, s, seq_len = _even(p.get("rotary_dim", head_dim)), dtype(p.get("factor", 1.0)), p.get("seq_len")
    if kind == "dynamic":
        longer = max((seq_len or 0) - p["max_position_embeddings"], 0) / p["max_position_embeddings"]
        base = base * (float(s) * longer + 1) ** (r / (r - 2))
    f = _exponentials(base, r, dtype)
    if kind in ("yarn", "llama3"):
        keep = _share(kind, f, base, p)
        f = f * (keep + (1 - keep) * (1 / s))
    elif kind == "longrope":
        long = seq_len is not None and seq_len > p["original_max_position_embeddings"]
        f = f * (1 / np.array(p["long_factor"] if long else p["short_factor"], dtype))
    elif kind != "dynamic":
        f = f * (1 / s)
    if kind == "proportional":
        f[int(p["partial_rotary_factor"] * (r // 2)) :] = 0
    return f.astype(dtype), _factor(kind, p, dtype) if kind in ("yarn", "longrope") else 1.0


def _turns(positions: Any, inv_freq: Floats, *, attention_factor: float = 1.0, sections: Any = None) -> Floats:
    """exp(iθ) for each pair, times the attention factor."""
    theta = positions.astype(inv_freq.dtype)[..., None] * inv_freq
    if sections is not None:
        by_axis, theta = theta, theta[0].copy()
        for axis in (1, 2):
            own = slice(axis, 3 * sections[axis], 3)
            theta[..., own] = by_axis[axis][..., own]
    factor = inv_freq.dtype.type(attention_factor)
    turns = factor * np.cos(theta) + 1j * (factor * np.sin(theta))
    return np.asarray(turns, np.result_type(inv_freq.dtype, np.complex64))


def _tables(positions: Any, inv_freq: Floats, **options: Any) -> tuple[Floats, Floats]:
    turns = np.repeat(_turns(positions, inv_freq, **options), 2, -1)
    return turns.real.copy(), turns.imag.copy()


def _rotated(x: Floats, start_pos: int, sign: int, **options: Any) -> Floats:
    """x rotated by the angles of its positions for the sign 1, and rotated back for −1."""
    r, n = _even(options.pop("rotary_dim", x.shape[-1])), x.shape[-2]
    positions, inv_freq = options.pop("positions", None), options.pop("inv_freq", None)
    if positions is None:
        positions = np.arange(start_pos, start_pos + n)
        if options.get("sections") is not None:
            positions = np.broadcast_to(positions, (3, n))
    if inv_freq is None:
        inv_freq = _exponentials(1e4, r, x.dtype.type)
    turns = _turns(positions, inv_freq, **options)
    pairs = x[..., :r:2] + 1j * x[..., 1:r:2]
    rotated = (pairs * (turns if sign == 1 else turns.conj())).astype(turns.dtype)
    out = x.copy()
    out[..., :r:2], out[..., 1:r:2] = rotated.real, rotated.imag
    return out


def _rope(x: Floats, start_pos: int = 0, **options: Any) -> Floats:
    return _rotated(x, start_pos, 1, **options)


def _vjp(x: Floats, grad_out: Floats, start_pos: int = 0, **options: Any) -> Floats:
    return _rotated(grad_out, start_pos, -1, **options)


IMPLEMENTATIONS = [
    Implementation(
        name=f"NumPy rotations {name}",
        operations={
            "rotary_frequencies": partial(_frequencies, dtype),
            "rope": _rope,
            "rope_vjp": _vjp,
            "rotary_tables": _tables,
        },
        arithmetic=name,
        conventions=Conventions(mrope="interleaved", odd_lane="reject"),
        supports={"head_dim": lambda d: d % 2 == 0},
        features=TAKEN,
    )
    for name, dtype in (("float64", np.float64), ("float32", np.float32))
]
