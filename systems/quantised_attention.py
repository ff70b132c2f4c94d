"""Quantised attention in PyTorch: with FP8 weights behind the signature of FlashAttention-3, and with an
INT8 cache that is read as bfloat16.

FlashAttention-3 runs on CUDA only. `flash_attn_func` has its arguments and its meaning: rows come before
heads, the last query stands at the last key, and each descale belongs to a key head. Products are added
up in float32, not in the 14 bits of its tensor cores.
"""

from typing import Any

import torch

from oracles import Conventions
from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS", "flash_attn_func"]

Tensor = torch.Tensor
_FACTOR = 2.0**8
"""Weights are multiplied by it before they are rounded to E4M3."""


def _softmax(s: Tensor, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The exponentials, their sums, and the log-sum-exps; a row without keys has sums of 0."""
    if causal:
        n_q, n_k = s.shape[-2:]
        s = s.masked_fill(~torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q), -torch.inf)
    largest = s.amax(-1, keepdim=True) if s.shape[-1] else torch.full((*s.shape[:-1], 1), -torch.inf)
    largest = torch.where(largest == -torch.inf, 0.0, largest)
    e = (s - largest).exp()
    total = e.sum(-1, keepdim=True)
    return e, total, (largest + total.log())[..., 0]


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The output in bfloat16 and the log-sum-exp of FP8 arrays (batch, n, heads, d)."""
    q, k, v = (x.to(torch.float32).transpose(1, 2) for x in (q, k, v))
    group, factor = q.shape[1] // k.shape[1], options["softmax_scale"]
    factor = max(q.shape[-1], 1) ** -0.5 if factor is None else factor

    def descale(name: str) -> Any:
        given = options[name]
        return 1.0 if given is None else given.repeat_interleave(group, 1)[..., None, None]

    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = (q @ k.transpose(-1, -2)) * (descale("q_descale") * descale("k_descale") * factor)
    e, total, lse = _softmax(scores, options["causal"])
    kept = (e * _FACTOR).to(torch.float8_e4m3fn).to(torch.float32)
    out = kept @ v / torch.where(total == 0, 1.0, total) * (descale("v_descale") / _FACTOR)
    return out.to(torch.bfloat16).transpose(1, 2), lse


def _fp8(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    descales: dict[str, Any] = {f"{name}_descale": options.get(f"{name}_scale") for name in "qkv"}
    descales |= {"softmax_scale": options.get("scale"), "causal": options.get("causal", False)}
    out, lse = flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **descales)
    return out.transpose(1, 2).contiguous(), lse


def _of_cache(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Attention of a cache of INT8 with a scale for each token, whose numbers are stored in bfloat16."""
    group, scale = q.shape[-3] // k.shape[-3], options.get("scale")
    scaled = ((k, options.get("k_scale")), (v, options.get("v_scale")))
    k, v = (
        (x.to(torch.float32) * (1.0 if each is None else each[..., None])).to(torch.bfloat16).to(torch.float32)
        for x, each in scaled
    )
    k, v = (x.repeat_interleave(group, -3) for x in (k, v))
    scores = q.to(torch.float32) @ k.transpose(-1, -2) * (max(q.shape[-1], 1) ** -0.5 if scale is None else scale)
    e, total, lse = _softmax(scores, options.get("causal", False))
    out = e.to(torch.bfloat16).to(torch.float32) @ v / torch.where(total == 0, 1.0, total)
    return out.to(torch.bfloat16), lse


IMPLEMENTATIONS = [
    Implementation(
        "FP8, as in FlashAttention-3",
        {"attention": _fp8},
        "bfloat16-e4m3-e4m3-weights-by-256",
        Conventions(causal="bottom_right", scale_shape="head"),
        arrays="torch",
        batch_ranks=(2,),
        features=("scale", "causal", "q_scale", "k_scale", "v_scale"),
        supports=(),
    ),
    Implementation(
        "INT8 cache",
        {"attention": _of_cache},
        "bfloat16-int8-cache-by-bfloat16",
        Conventions(causal="bottom_right", scale_shape="token"),
        arrays="torch",
        features=("scale", "causal", "k_scale", "v_scale"),
        supports=(),
    ),
]
"""Both run on CPUs."""
