"""Latent attention: in PyTorch, behind the signature of FlashMLA, and by PyTorch's own kernel.

FlashMLA runs on CUDA only. `flash_mla_with_kvcache` has its arguments and its meaning, apart from
pages: the last query stands at the last key, and the values are the first channels of the cache.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from oracles import Conventions
from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS", "flash_mla_with_kvcache"]

Tensor = torch.Tensor


def flash_mla_with_kvcache(
    q: Tensor, k_cache: Tensor, head_dim_v: int, *, softmax_scale: float, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """The output (b, s_q, h_q, head_dim_v) and the log-sum-exp (b, h_q, s_q), of q (b, s_q, h_q, d) and a
    cache (b, s_k, 1, d) with one key head.
    """
    keys = k_cache.squeeze(2)
    scores = softmax_scale * torch.einsum("bqhd,bkd->bhqk", q.float(), keys.float())
    n_q, n_k = scores.shape[-2:]
    if causal:
        allowed = torch.arange(n_k) <= torch.arange(n_q)[:, None] + (n_k - n_q)
        scores = scores.masked_fill(~allowed, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - torch.where(lse.isinf(), 0, lse)[..., None])
    out = torch.einsum("bhqk,bkd->bqhd", weights, keys[..., :head_dim_v].float())
    return out.to(q.dtype), lse


def _flash_mla(q: Tensor, latent: Tensor, value_dim: int, scale: float, causal: bool = False) -> tuple[Tensor, Tensor]:
    out, lse = flash_mla_with_kvcache(
        q.transpose(1, 2), latent.unsqueeze(2), value_dim, softmax_scale=scale, causal=causal
    )
    return out.transpose(1, 2), lse


def _fused(q: Tensor, latent: Tensor, value_dim: int, scale: float, mask: Any = None) -> Tensor:
    keys = latent.unsqueeze(-3).expand(*q.shape[:-2], *latent.shape[-2:])
    return scaled_dot_product_attention(q, keys, keys[..., :value_dim], attn_mask=mask, scale=scale)


IMPLEMENTATIONS = [
    Implementation(
        "FlashMLA's signature, in PyTorch",
        {"latent_attention": _flash_mla},
        "float32",
        Conventions(causal="bottom_right"),
        arrays="torch",
        batch_ranks=(2,),
        features=["causal"],
        supports=(),
    ),
    Implementation(
        "PyTorch's attention of latent rows",
        {"latent_attention": _fused},
        "float32",
        Conventions(dead_rows="zero"),
        arrays="torch",
        batch_ranks=(2,),
        features=["mask"],
        supports="no log-sum-exp",
    ),
]
"""Latent attention under test."""
