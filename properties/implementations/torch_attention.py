"""`torch.nn.functional.scaled_dot_product_attention` on the CPU, each backend by itself, with its derivatives."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from properties.implementation import Implementation

__all__ = ["IMPLEMENTATIONS"]


def _attend(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any = None, /, **options: Any) -> torch.Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)


def _causal(backend: SDPBackend, q: Any, k: Any, v: Any) -> torch.Tensor:
    return _attend(backend, q, k, v, is_causal=True)


def _grouped(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any = None) -> torch.Tensor:
    return _attend(backend, q, k, v, mask, enable_gqa=True)


def _vjp(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> Sequence[torch.Tensor]:
    inputs = q, k, v = [x.requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(_attend(backend, q, k, v, mask), inputs, grad_out)


def _jvp(backend: SDPBackend, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any) -> torch.Tensor:
    def attend(q: Any, k: Any, v: Any) -> torch.Tensor:
        return _attend(backend, q, k, v, mask)

    out: torch.Tensor = torch.func.jvp(attend, (q, k, v), (dq, dk, dv))[1]
    return out


# What each backend is held to, by the type of its numbers. In 16 bits the flash backward adds dk and dv up in the narrow type.
_ARITHMETIC = {
    "math": {"float64": "float64", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16"},
    "flash": {
        "float64": "float64",
        "float32": "float32",
        "float16": "float16-stored-gradients",
        "bfloat16": "bfloat16-stored-gradients",
    },
}


def _implementation(name: str, dtype: str) -> Implementation:
    """The flash kernel takes 4-D inputs only, of one width, with unit last strides, and has no forward-mode derivative."""
    backend = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}[name]
    functions: dict[str, Callable[..., Any]] = {
        "scaled_dot_product_attention": _attend,
        "causal_attention": _causal,
        "grouped_query_attention": _grouped,
        "scaled_dot_product_attention_vjp": _vjp,
    }
    if name == "math":
        functions["scaled_dot_product_attention_jvp"] = _jvp
    return Implementation(
        name=f"torch {name} {dtype}",
        operations={operation: partial(function, backend) for operation, function in functions.items()},
        arithmetic=_ARITHMETIC[name][dtype],
        arrays="torch",
        batch_ranks=(2,) if name == "flash" else (0, 1, 2),
        supports={"value_dim_minus_head_dim": lambda difference: difference == 0} if name == "flash" else {},
        refuses=(RuntimeError,),
    )


IMPLEMENTATIONS = [_implementation(name, dtype) for name, dtypes in _ARITHMETIC.items() for dtype in dtypes]
