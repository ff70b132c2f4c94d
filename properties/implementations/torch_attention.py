"""`torch.nn.functional.scaled_dot_product_attention` on the CPU, each backend by itself."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from oracles.formats import BFLOAT16, BFLOAT16_STORED_GRADIENTS, FLOAT16, FLOAT16_STORED_GRADIENTS, FLOAT32, FLOAT64, Arithmetic
from properties.implementation import Dtype, Implementation
from spec.tensor_core import Array

__all__ = ["IMPLEMENTATIONS"]


def _batched(x: Array | None, dtype: str) -> Any:
    """The kernels take (batch, heads, …): two axes of size 1 before, strides kept. Masks stay boolean; bfloat16 comes as float32."""
    if x is None:
        return None
    t = torch.from_numpy(x)[None, None]
    return t if t.dtype == torch.bool else t.to(getattr(torch, dtype))


def _array(x: torch.Tensor) -> Array:
    """The one problem of a batch, as NumPy; bfloat16 as float32."""
    x = x.detach()[0, 0]
    return np.asarray(x.float() if x.dtype == torch.bfloat16 else x)


def _attend(backend: SDPBackend, inputs: Iterable[Any], mask: Any = None, is_causal: bool = False) -> torch.Tensor:
    q, k, v = inputs
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)


def _forward(backend: SDPBackend, dtype: str, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    return _array(_attend(backend, (_batched(x, dtype) for x in (q, k, v)), _batched(mask, dtype)))


def _causal(backend: SDPBackend, dtype: str, q: Array, k: Array, v: Array) -> Array:
    return _array(_attend(backend, (_batched(x, dtype) for x in (q, k, v)), is_causal=True))


def _vjp(backend: SDPBackend, dtype: str, q: Array, k: Array, v: Array, mask: Array | None, grad_out: Array) -> tuple[Array, ...]:
    inputs = [_batched(x, dtype).requires_grad_() for x in (q, k, v)]
    out = _attend(backend, inputs, _batched(mask, dtype))
    return tuple(map(_array, torch.autograd.grad(out, inputs, _batched(grad_out, dtype))))


def _jvp(backend: SDPBackend, dtype: str, q: Array, k: Array, v: Array, mask: Array | None, dq: Array, dk: Array, dv: Array) -> Array:
    def attend(*inputs: Any) -> torch.Tensor:
        return _attend(backend, inputs, _batched(mask, dtype))

    primals, tangents = (tuple(_batched(x, dtype) for x in xs) for xs in ((q, k, v), (dq, dk, dv)))
    return _array(torch.func.jvp(attend, primals, tangents)[1])


# What each backend is held to, by the type of its numbers. In 16 bits the flash backward adds dk and dv up in the narrow type.
_ARITHMETIC: dict[str, dict[Dtype, Arithmetic]] = {
    "math": {"float64": FLOAT64, "float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16},
    "flash": {"float64": FLOAT64, "float32": FLOAT32, "float16": FLOAT16_STORED_GRADIENTS, "bfloat16": BFLOAT16_STORED_GRADIENTS},
}


def _implementation(name: str, dtype: Dtype) -> Implementation:
    """The flash kernel takes only unit last strides, and has no forward-mode derivative: it offers no JVP."""
    backend = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}[name]
    operations: dict[str, Callable[..., Any]] = {
        "scaled_dot_product_attention": partial(_forward, backend, dtype),
        "causal_attention": partial(_causal, backend, dtype),
        "scaled_dot_product_attention_vjp": partial(_vjp, backend, dtype),
    }
    if name == "math":
        operations["scaled_dot_product_attention_jvp"] = partial(_jvp, backend, dtype)
    return Implementation(
        name=f"torch {name} {dtype}",
        dtype=dtype,
        arithmetic=_ARITHMETIC[name][dtype],
        operations=operations,
        unit_last_stride=name == "flash",
    )


IMPLEMENTATIONS = [_implementation(name, dtype) for name, dtypes in _ARITHMETIC.items() for dtype in dtypes]
