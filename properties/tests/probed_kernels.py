"""Kernels in float16 with a small mistake, one for each operation that has exact probes."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from properties import Implementation

__all__ = ["MISTAKES", "Mistake", "implementation"]

SDPA = "scaled_dot_product_attention"


class Mistake(NamedTuple):
    """Relative errors of one kernel.

    scale, total, out   of the scale, of the sum of the weights, and of the output
    lse                 an absolute error of the log-sum-exp
    tile                the factor of the weights of keys 64 to 127
    dq, dk, dv          of a gradient
    angle, pair         absolute errors of all angles, and of the angles of the last pair
    one_angle           of one angle
    product             of one of the two products of a rotation
    """

    scale: float = 0.0
    total: float = 0.0
    out: float = 0.0
    lse: float = 0.0
    tile: float = 1.0
    dq: float = 0.0
    dk: float = 0.0
    dv: float = 0.0
    angle: float = 0.0
    pair: float = 0.0
    one_angle: float = 0.0
    product: float = 0.0


def _wide(*arrays: Any) -> list[Any]:
    return [np.asarray(x).astype(np.float32) for x in arrays]


def _half(x: Any) -> Any:
    return np.asarray(x).astype(np.float16)


def _weights(s: Any, m: Mistake) -> tuple[Any, Any]:
    """The weights of a row and its log-sum-exp."""
    highest = s.max(-1, keepdims=True)
    e = np.exp(s - highest)
    e[..., 64:128] *= np.float32(m.tile)
    total = e.sum(-1, keepdims=True) * np.float32(1 + m.total)
    return e / total, (highest + np.log(total))[..., 0] + np.float32(m.lse)


def _attended(m: Mistake, q: Any, k: Any, v: Any, mask: Any = None) -> tuple[Any, Any]:
    q, k, v = _wide(q, k, v)
    s = q @ np.swapaxes(k, -1, -2) * np.float32((1 + m.scale) * q.shape[-1] ** -0.5)
    p, lse = _weights(s if mask is None else np.where(mask, s, -np.inf), m)
    return _half(p @ v * np.float32(1 + m.out)), lse


def _repeated(q: Any, *arrays: Any) -> list[Any]:
    return [np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in arrays]


def _triangle(q: Any, k: Any) -> Any:
    return np.tri(q.shape[-2], k.shape[-2], dtype=bool)


def _vjp(m: Mistake, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, ...]:
    q, k, v, g = _wide(q, k, v, g)
    scale = np.float32(q.shape[-1] ** -0.5)
    p, _ = _weights(q @ np.swapaxes(k, -1, -2) * scale, m)
    dp = g @ np.swapaxes(v, -1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    transposed = [np.swapaxes(x, -1, -2) for x in (ds, p)]
    exact = ds @ k, transposed[0] @ q, transposed[1] @ g
    return tuple(x * np.float32(1 + error) for x, error in zip(exact, (m.dq, m.dk, m.dv), strict=True))


def _decode(m: Mistake, q: Any, k: Any, v: Any, steps: str, **_: Any) -> tuple[Any, Any]:
    """The results of a program that appends all keys before the queries come."""
    return _attended(m, q, k, v, np.tri(len(q), len(k), len(k) - len(q), dtype=bool))


def _packed(m: Mistake, q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any) -> Any:
    """The results of each sequence, with the rows before the heads."""
    parts = []
    for rows in zip(pairwise(cu_q), pairwise(cu_k), strict=True):
        queries, keys = (slice(*ends) for ends in rows)
        heads = [np.swapaxes(x, 0, 1) for x in (q[queries], k[keys], v[keys])]
        parts.append(_attended(m, heads[0], *_repeated(heads[0], *heads[1:])))
    out, lse = zip(*parts, strict=True)
    return np.swapaxes(np.concatenate(out, 1), 0, 1), np.concatenate(lse, 1)


def _packed_vjp(m: Mistake, q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, g: Any) -> Any:
    """The gradients of each sequence, with the rows before the heads."""
    parts = []
    for rows in zip(pairwise(cu_q), pairwise(cu_k), strict=True):
        queries, keys = (slice(*ends) for ends in rows)
        parts.append(_grouped_vjp(m, *(np.swapaxes(x, 0, 1) for x in (q[queries], k[keys], v[keys], g[queries])))[:3])
    return (*(np.swapaxes(np.concatenate(x, 1), 0, 1) for x in zip(*parts, strict=True)), None)


def _grouped_vjp(m: Mistake, q: Any, k: Any, v: Any, g: Any) -> tuple[Any, ...]:
    dq, *of_keys = _vjp(m, q, *_repeated(q, k, v), g)
    shared = [x.reshape(*k.shape[:-2], -1, *x.shape[-2:]).sum(-3) for x in of_keys]
    return (*map(_half, (dq, *shared)), None, None)


def _angles(m: Mistake, length: int, width: int, start: int) -> Any:
    positions = np.arange(start, start + length)[:, None]
    angles = positions * 10000.0 ** (-np.arange(0, width, 2) / width) + m.angle
    angles[:, -1:] += m.pair
    angles[-1, :1] += m.one_angle
    return angles


def _rotated(m: Mistake, x: Any, cos: Any, sin: Any) -> Any:
    x, cos, sin = _wide(x, cos, sin)
    partner = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    return _half(x * cos + partner * sin * np.float32(1 + m.product))


def _both(m: Mistake, length: int, width: int, start: int) -> tuple[Any, Any]:
    """The tables of cosines and sines, with the angle of a pair in both of its channels."""
    angles = np.repeat(_angles(m, length, width, start), 2, -1)[:, :width]
    return np.cos(angles), np.sin(angles)


def _merged(m: Mistake, out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> Any:
    out_a, lse_a, out_b, lse_b = _wide(out_a, lse_a, out_b, lse_b)
    lse = np.logaddexp(lse_a, lse_b)
    a, b = (np.exp(x - lse)[..., None] for x in (lse_a, lse_b))
    return _half((a * out_a + b * out_b) * np.float32(1 + m.out)), lse + np.float32(m.lse)


def _rope(m: Mistake, x: Any, start: int, sign: int = 1) -> Any:
    cos, sin = _both(m, x.shape[-2], x.shape[-1], start)
    return _rotated(m, x, cos, sign * sin)


def _sinusoids(m: Mistake, length: int, width: int, start: int) -> Any:
    angles = _angles(m, length, width, start)
    return _half(np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, width))


def _tables(m: Mistake, length: int, width: int, start: int) -> Any:
    return tuple(map(_half, _both(m, length, width, start)))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    SDPA: lambda m, q, k, v, mask=None: _attended(m, q, k, v, mask)[0],
    "causal_attention": lambda m, q, k, v: _attended(m, q, k, v, _triangle(q, k))[0],
    "grouped_query_attention": lambda m, q, k, v, mask=None: _attended(m, q, *_repeated(q, k, v), mask)[0],
    "attention": lambda m, q, k, v, mask=None, **_: _attended(m, q, *_repeated(q, k, v), mask),
    "packed_attention": lambda m, q, k, v, cu_q, cu_k, **_: _packed(m, q, k, v, cu_q, cu_k),
    "packed_attention_vjp": lambda m, q, k, v, cu_q, cu_k, grad_out, **_: _packed_vjp(m, q, k, v, cu_q, cu_k, grad_out),
    "decode": _decode,
    f"{SDPA}_vjp": lambda m, q, k, v, mask, g: tuple(map(_half, _vjp(m, q, k, v, g))),
    "attention_vjp": lambda m, q, k, v, grad_out, **_: _grouped_vjp(m, q, k, v, grad_out),
    "hard_masked_softmax": lambda m, scores, mask=None: _half(_weights(*_wide(scores), m)[0]),
    "rope": lambda m, x, start_pos, **_: _rope(m, x, start_pos),
    "rope_vjp": lambda m, x, grad_out, start_pos, **_: _rope(m, grad_out, start_pos, -1),
    "apply_rotary": _rotated,
    "merge_attention": _merged,
    "rope_tables": _tables,
    "sinusoidal_positional_encoding": _sinusoids,
}

_RIGHT = Mistake()
_OF_SUMS = (Mistake(total=2e-4), Mistake(out=-2e-4), Mistake(tile=0.0), Mistake(tile=1.001))
_OF_ATTENTION = (*_OF_SUMS, Mistake(scale=1e-4), Mistake(scale=-1e-4))
_OF_GRADIENTS = (Mistake(dq=2e-4), Mistake(dk=-2e-4), Mistake(dv=2e-4))
_OF_ANGLES = (Mistake(angle=1e-4), Mistake(pair=1e-4), Mistake(one_angle=2e-3))
MISTAKES: Mapping[str, tuple[Mistake, ...]] = {
    SDPA: _OF_ATTENTION,
    "causal_attention": _OF_ATTENTION,
    "grouped_query_attention": _OF_ATTENTION,
    "attention": (*_OF_ATTENTION, Mistake(lse=2e-4)),
    "packed_attention": (*_OF_ATTENTION, Mistake(lse=2e-4)),
    "packed_attention_vjp": _OF_GRADIENTS,
    "decode": (*_OF_ATTENTION, Mistake(lse=2e-4)),
    f"{SDPA}_vjp": _OF_GRADIENTS,
    "attention_vjp": _OF_GRADIENTS,
    "hard_masked_softmax": (Mistake(total=2e-4), Mistake(total=-2e-4), Mistake(tile=0.0)),
    "rope": _OF_ANGLES,
    "rope_vjp": _OF_ANGLES,
    "apply_rotary": (Mistake(product=1e-4), Mistake(product=-1e-4)),
    "merge_attention": (Mistake(out=2e-4), Mistake(lse=1e-4)),
    "rope_tables": _OF_ANGLES,
    "sinusoidal_positional_encoding": _OF_ANGLES,
}
"""Small mistakes of each operation."""


def implementation(operation: str, mistake: Mistake = _RIGHT) -> Implementation:
    """A kernel in float16 of an operation, with a mistake."""
    return Implementation("mine", {operation: partial(_FUNCTIONS[operation], mistake)}, arithmetic="float16")
