"""`scaled_dot_product_attention` with its options: boolean masks, masks of numbers, a scale,
causality, and grouped heads.

A mask of numbers is a bias, and its gradient is the gradient of the bias; a boolean mask beside it
is written into it as −∞. The function does not return the log-sum-exp. With a mask and `is_causal`
together, the math backend raises, and the flash kernel of the CPU applies both. The flash kernel
takes masks of two or four axes without a gradient. It masks for causality before it scales, and so
returns NaN for scales of 0 and below: with causality it gets no scale here. Tangents come from
`torch.func.jvp`, through the math backend only.

`varlen_attn`, for packed sequences, has kernels for CUDA only: the sequences of a batch lie one
after the other in a buffer, and the caller gives the position where each begins. Its window and its
causality are aligned at the last key.
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
from systems.attention_arguments import AttentionOptions
from systems.torch_attention import NO_CUDA, equal

__all__ = ["IMPLEMENTATIONS"]

Tensor = torch.Tensor


def _added(backend: SDPBackend, mask: Any, bias: Any) -> Any:
    """The mask argument that stands for a mask and a bias; for the flash kernel it has two or four
    axes.
    """
    both = bias if mask is None else mask if bias is None else torch.where(mask, bias, -torch.inf)
    return both[None] if both is not None and both.ndim % 2 and backend == SDPBackend.FLASH_ATTENTION else both


def _attend(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
    options = AttentionOptions(**given)
    mask = _added(backend, options.mask, options.bias)
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=options.scale, is_causal=options.causal, enable_gqa=True
        )


def _vjp(q: Tensor, k: Tensor, v: Tensor, grad_out: Tensor, *, bias: Any = None, **options: Any) -> tuple[Any, ...]:
    arrays = {"q": q, "k": k, "v": v} | ({} if bias is None else {"bias": bias})
    inputs = {name: x.requires_grad_() for name, x in arrays.items()}
    gradients = torch.autograd.grad(
        _attend(SDPBackend.MATH, **inputs, **options),
        list(inputs.values()),
        grad_out,
        allow_unused=True,
        materialize_grads=True,
    )
    return *gradients, *[None] * (5 - len(gradients))


def _jvp(q: Tensor, k: Tensor, v: Tensor, *tangents: Any, bias: Any = None, **options: Any) -> Tensor:
    dbias = options.pop("dbias", None)

    def attend(q: Tensor, k: Tensor, v: Tensor, *bias: Tensor) -> Tensor:
        return _attend(SDPBackend.MATH, q, k, v, bias=bias[0] if bias else None, **options)

    inputs: tuple[Any, ...] = q, k, v
    if bias is not None:
        inputs, tangents = (*inputs, bias), (*tangents, torch.zeros_like(bias) if dbias is None else dbias)
    out: Tensor = torch.func.jvp(attend, inputs, tangents)[1]
    return out


def _varlen(
    q: Tensor, k: Tensor, v: Tensor, *, scale: Any = None, causal: bool = False, window: Any = (None, None)
) -> tuple[Tensor, Tensor]:
    (batch, _, n_q, _), n_k = q.shape, k.shape[-2]
    left, right = (-1 if side is None else side for side in window)
    queries, keys, values = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    query_starts, key_starts = (torch.arange(batch + 1, dtype=torch.int32, device=q.device) * n for n in (n_q, n_k))
    out, lse = varlen_attn(
        queries,
        keys,
        values,
        query_starts,
        key_starts,
        n_q,
        n_k,
        scale=scale,
        window_size=(left, 0 if causal else right),
        enable_gqa=True,
        return_aux=AuxRequest(lse=True),
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
    """`varlen_attn` on tensor cores, in a type of 16 bits."""
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
    *(
        _sdpa("math, float masks", name, _MATH | _DERIVATIVES, ("mask", "bias", "scale"))
        for name in ("float64", "float32")
    ),
    _sdpa("math, causal", "float32", _MATH, ("mask", "causal"), conventions=Conventions(causal_with_mask="refuse")),
    _sdpa("flash, float masks", "float32", _FLASH, ("mask", "bias", "scale"), batch_ranks=(2,), supports=_EQUAL),
    _sdpa("flash, causal", "float32", _FLASH, ("mask", "bias", "causal"), batch_ranks=(2,), supports=_EQUAL),
    *(_varlen_in(preset) for preset in (FLOAT16_TENSOR_CORE, BFLOAT16_TENSOR_CORE)),
]
