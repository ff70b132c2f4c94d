"""`torch.nn.functional.scaled_dot_product_attention` on the CPU, each backend by itself."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from properties.bounds import FLOAT32, FLOAT64
from properties.implementation import Implementation
from spec.tensor import Array

__all__ = ["IMPLEMENTATIONS"]


def _batched(x: Array | None) -> Any:
    """The kernels take (batch, heads, …): a view with two axes of size 1, strides kept."""
    return None if x is None else torch.from_numpy(x)[None, None]


def _attend(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any, is_causal: bool = False) -> torch.Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)


def _array(x: torch.Tensor) -> Array:
    """The one problem of a batch, as NumPy."""
    return np.asarray(x.detach()[0, 0])


def _forward(backend: SDPBackend, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    return _array(_attend(backend, _batched(q), _batched(k), _batched(v), _batched(mask)))


def _causal(backend: SDPBackend, q: Array, k: Array, v: Array) -> Array:
    return _array(_attend(backend, _batched(q), _batched(k), _batched(v), None, is_causal=True))


def _vjp(backend: SDPBackend, q: Array, k: Array, v: Array, mask: Array | None, grad_out: Array) -> tuple[Array, ...]:
    inputs = [_batched(x).requires_grad_() for x in (q, k, v)]
    out = _attend(backend, inputs[0], inputs[1], inputs[2], _batched(mask))
    return tuple(map(_array, torch.autograd.grad(out, inputs, _batched(grad_out))))


def _jvp(backend: SDPBackend, q: Array, k: Array, v: Array, mask: Array | None, dq: Array, dk: Array, dv: Array) -> Array:
    def attend(q: Any, k: Any, v: Any) -> torch.Tensor:
        return _attend(backend, q, k, v, _batched(mask))

    primals, tangents = tuple(map(_batched, (q, k, v))), tuple(map(_batched, (dq, dk, dv)))
    return _array(torch.func.jvp(attend, primals, tangents)[1])


def _implementation(backend: SDPBackend, dtype: str) -> Implementation:
    """The flash kernel takes only unit last strides, and has no forward-mode derivative: it offers no JVP."""
    flash = backend == SDPBackend.FLASH_ATTENTION
    operations: dict[str, Callable[..., Any]] = {
        "scaled_dot_product_attention": partial(_forward, backend),
        "causal_attention": partial(_causal, backend),
        "scaled_dot_product_attention_vjp": partial(_vjp, backend),
    }
    if not flash:
        operations["scaled_dot_product_attention_jvp"] = partial(_jvp, backend)
    return Implementation(
        name=f"torch {'flash' if flash else 'math'} {dtype}",
        dtype=dtype,
        arithmetic=FLOAT64 if dtype == "float64" else FLOAT32,
        operations=operations,
        unit_last_stride=flash,
    )


IMPLEMENTATIONS = [
    _implementation(backend, dtype) for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION) for dtype in ("float64", "float32")
]
