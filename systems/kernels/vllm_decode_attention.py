"""vLLM's attention of one query each over keys in pages in Triton (vllm 0.33.0). The keys are read in four
splits, whose results a second kernel merges: one kernel for a query head for each key head, one for groups,
and the same for latent rows.

Found by `attnspec verify systems/kernels/vllm_decode_attention.py --interpret`: with one query head for each
key head, products of queries and keys are rounded to bfloat16 before their sum.
"""

from typing import Any

import torch

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.kernels.vendors import vllm

__all__ = ["IMPLEMENTATIONS"]

_DECODE = vllm("v1/attention/ops/triton_decode_attention.py")
_SPLITS = 4


def _decode(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, scale: float, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output (sequences, heads, d_v) and the log-sum-exp (sequences, heads) of q (sequences, heads, d)."""
    batch, heads, _ = q.shape
    width = v_pages.shape[-1]
    out, lse = q.new_empty(batch, heads, width), torch.empty(batch, heads)
    parts = torch.empty(batch, heads, _SPLITS, width + 1)
    table, page_size = block_table.int(), k_pages.shape[1]
    _DECODE.module.decode_attention_fwd(
        *(q.contiguous(), k_pages.contiguous(), v_pages.contiguous(), out, lse, table, lengths.int(), parts),
        *(_SPLITS, scale, page_size),
        **options,
    )
    return out, lse


def _paged(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    scale = q.shape[-1] ** -0.5 if options.get("scale") is None else options["scale"]
    softcap = options.get("softcap") or 0.0
    out, lse = _decode(q[:, 0], k_pages, v_pages, block_table, lengths, scale, logit_cap=softcap)
    return out[:, None], lse[..., None]


def _latent(q: Any, latent: Any, value_dim: int, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """q (batch, heads, 1, d) over latent rows (batch, n, d): each sequence is one page."""
    batch, keys, _ = latent.shape
    pages = latent[:, :, None].contiguous()
    table, lengths = torch.arange(batch)[:, None], torch.full((batch,), keys)
    out, lse = _decode(q[:, :, 0], pages, pages[..., :value_dim], table, lengths, scale, is_mla=True)
    return out[:, :, None], lse[..., None]


_SHARED: dict[str, Any] = {
    "arithmetic": "bfloat16",
    "arrays": "torch",
    "device": "cuda",
    "unavailable": _DECODE.unavailable,
}


def _decoding(name: str, **sizes: Any) -> Implementation:
    return Implementation(
        f"vLLM decode_attention, {name}",
        {"paged_attention": _paged},
        conventions=Conventions(dead_rows="nan"),
        supports=[
            "heads divide",
            {name: lambda n: n > 0 for name in ("sequences", "num_heads", "kv_heads", "head_dim", "value_dim")},
            {"n_q": (1,), **sizes},
        ],
        features=("scale", "softcap"),
        **_SHARED,
    )


IMPLEMENTATIONS = [
    _decoding("one query head for each key head", num_heads_minus_kv_heads=(0,)),
    _decoding("groups of query heads", num_heads_minus_kv_heads=lambda n: n > 0),
    Implementation(
        "vLLM decode_attention, latent rows",
        {"latent_attention": _latent},
        batch_ranks=(2,),
        supports=[
            "positive sizes",
            "no masks",
            {"n_q": (1,), "value_dim": (16, 64), "head_dim": (72, 80), "num_heads": lambda n: n > 1},
        ],
        **_SHARED,
    ),
]
