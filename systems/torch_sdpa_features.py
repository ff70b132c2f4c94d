"""`scaled_dot_product_attention` with what it takes: masks of booleans and of numbers, a scale,
causality, and grouped heads.

A mask of numbers is a bias, and its gradient is that of the bias; a mask of booleans beside it is
written into it as −∞. The log-sum-exp is not returned. Given a mask and `is_causal` both, the math
backend refuses, and the flash kernel of the CPU lets both hold. The flash kernel takes masks of two
or four axes, and none that needs a gradient; it is causal before it scales, which makes NaN of
scales of 0 and below: where it is causal, it is given no scale. Tangents go by `torch.func.jvp`,
through the math backend alone.

`varlen_attn`, for packed sequences, has kernels for CUDA alone: one sequence of the batch after the
other lies in a buffer, and where it begins is told. Its window and its causality are aligned at the
last key.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import AuxRequest, varlen_attn
from torch.nn.functional import scaled_dot_product_attention

from oracles import BFLOAT16_TENSOR_CORE, FLOAT16_TENSOR_CORE, Arithmetic, Conventions
from properties.contract.implementation import Implementation
from systems.torch_attention import NO_CUDA, equal

__all__ = ["IMPLEMENTATIONS"]

Tensor = torch.Tensor


def _written(backend: SDPBackend, mask: Any, bias: Any) -> Any:
    """A mask and a bias as the one that attention takes; for the flash kernel, of two or four axes."""
    both = bias if mask is None else mask if bias is None else torch.where(mask, bias, -torch.inf)
    return both[None] if both is not None and both.ndim % 2 and backend == SDPBackend.FLASH_ATTENTION else both


def _attend(
    backend: SDPBackend,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: Any = None,
    causal: bool = False,
) -> Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(
            q, k, v, attn_mask=_written(backend, mask, bias), scale=scale, is_causal=causal, enable_gqa=True
        )


def _vjp(q: Tensor, k: Tensor, v: Tensor, grad_out: Tensor, *, bias: Any = None, **options: Any) -> tuple[Any, ...]:
    given = {p: x.requires_grad_() for p, x in {"q": q, "k": k, "v": v, "bias": bias}.items() if x is not None}
    found = torch.autograd.grad(
        _attend(SDPBackend.MATH, **given, **options),
        list(given.values()),
        grad_out,
        allow_unused=True,
        materialize_grads=True,
    )
    return *found, *[None] * (5 - len(found))


def _jvp(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    *,
    bias: Any = None,
    dbias: Any = None,
    **options: Any,
) -> Tensor:
    def attend(q: Tensor, k: Tensor, v: Tensor, *bias: Tensor) -> Tensor:
        return _attend(SDPBackend.MATH, q, k, v, bias=bias[0] if bias else None, **options)

    given = (q, k, v) if bias is None else (q, k, v, bias)
    moved = (dq, dk, dv, torch.zeros_like(bias) if dbias is None and bias is not None else dbias)
    out: Tensor = torch.func.jvp(attend, given, moved[: len(given)])[1]
    return out


def _varlen(
    q: Tensor, k: Tensor, v: Tensor, *, scale: Any = None, causal: bool = False, window: Any = (None, None)
) -> tuple[Tensor, Tensor]:
    (batch, _, n_q, _), n_k = q.shape, k.shape[-2]
    left, right = (-1 if side is None else side for side in window)
    tokens = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    of_q, of_k = (torch.arange(batch + 1, dtype=torch.int32, device=q.device) * n for n in (n_q, n_k))
    sides, aux = (left, 0 if causal else right), AuxRequest(lse=True)
    out, lse = varlen_attn(
        tokens[0],
        tokens[1],
        tokens[2],
        of_q,
        of_k,
        n_q,
        n_k,
        scale=scale,
        window_size=sides,
        enable_gqa=True,
        return_aux=aux,
    )
    return out.unflatten(0, (batch, n_q)).transpose(1, 2), lse.mT.reshape(batch, n_q, -1).mT


def _sdpa(
    name: str, arithmetic: str, operations: Mapping[str, Callable[..., Any]], features: tuple[str, ...], **promises: Any
) -> Any:
    return Implementation(
        name=f"torch SDPA {name} {arithmetic}",
        operations=operations,
        arithmetic=arithmetic,
        arrays="torch",
        features=features,
        **{"supports": "no log-sum-exp", "refuses": (RuntimeError,), **promises},
    )


def _varlen_in(arithmetic: Arithmetic) -> Implementation:
    """Packed sequences on tensor cores, in a type of 16 bits."""
    widths = {name: lambda n: 0 < n <= 128 and n % 8 == 0 for name in ("head_dim", "value_dim")}
    return Implementation(
        name=f"torch CUDA varlen {arithmetic.name.partition('-')[0]}",
        operations={"attention": _varlen},
        arithmetic=arithmetic,
        conventions=Conventions(causal="bottom_right"),
        arrays="torch",
        device="cuda",
        batch_ranks=(2,),
        supports=widths | {"value_dim_minus_head_dim": equal},
        features=("scale", "causal", "window"),
        refuses=(RuntimeError,),
        deterministic=False,
        unavailable=NO_CUDA,
    )


_MATH: dict[str, Callable[..., Any]] = {"attention": partial(_attend, SDPBackend.MATH)}
_DERIVATIVES: dict[str, Callable[..., Any]] = {"attention_vjp": _vjp, "attention_jvp": _jvp}
_FLASH = {"attention": partial(_attend, SDPBackend.FLASH_ATTENTION)}
_EQUAL = ["no log-sum-exp", {"value_dim_minus_head_dim": equal}]

IMPLEMENTATIONS = [
    *(_sdpa("math, float masks", name, _MATH | _DERIVATIVES, ("mask", "bias", "scale")) for name in ("float64", "float32")),
    _sdpa("math, causal", "float32", _MATH, ("mask", "causal"), conventions=Conventions(causal_with_mask="refuse")),
    _sdpa("flash, float masks", "float32", _FLASH, ("mask", "bias", "scale"), batch_ranks=(2,), supports=_EQUAL),
    _sdpa("flash, causal", "float32", _FLASH, ("mask", "bias", "causal"), batch_ranks=(2,), supports=_EQUAL),
    *(_varlen_in(preset) for preset in (FLOAT16_TENSOR_CORE, BFLOAT16_TENSOR_CORE)),
]  # fmt: skip
