"""vLLM's attention over keys in pages in Triton (vllm 0.33.0): ragged queries, prefill and decode in one
kernel.

Found by `attnspec verify systems/kernels/vllm_unified_attention.py --interpret`: without causality and with
a window, later queries of a block of queries do not read all keys ahead of them in their window.
"""

from enum import IntEnum
from typing import Any

import torch

from properties.contract.implementation import Implementation
from systems.kernels.vendors import vllm

__all__ = ["IMPLEMENTATIONS"]


class _KVQuantMode(IntEnum):
    """The kinds of quantised keys that the kernel knows; the recipe uses none of them."""

    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    INT4_PER_TOKEN_HEAD = 4


_UNIFIED = vllm(
    "v1/attention/ops/triton_unified_attention.py", {"vllm.v1.kv_cache_interface.KVQuantMode": _KVQuantMode}
)


def _attend(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, *, cu_q: Any, **options: Any
) -> torch.Tensor:
    """The output (total_q, heads, d) of q (total_q, heads, d)."""
    out, sides = torch.empty_like(q), options.get("window") or (None, None)
    _UNIFIED.module.unified_attention(
        *(q.contiguous(), k_pages.contiguous(), v_pages.contiguous(), out),
        *(cu_q.int(), int(cu_q.diff().max()), lengths.int(), int(lengths.max())),
        softmax_scale=q.shape[-1] ** -0.5 if options.get("scale") is None else options["scale"],
        causal=options.get("causal") is not False,
        window_size=tuple(-1 if side is None else side for side in sides),
        block_table=block_table.int(),
        softcap=options.get("softcap") or 0.0,
        **dict.fromkeys(("q_descale", "k_descale", "v_descale")),
    )
    return out


def _unified(name: str, *windows: str) -> Implementation:
    return Implementation(
        f"vLLM unified_attention, {name}",
        {"paged_attention": _attend},
        arithmetic="bfloat16",
        arrays="torch",
        device="cuda",
        supports=[
            *("ragged queries", "valid table entries", "no log-sum-exp", "heads divide", "value_dim = head_dim"),
            *windows,
            {name: lambda n: n > 0 for name in ("sequences", "total_q", "n_k", "num_heads", "kv_heads")},
            {"n_k_minus_n_q": lambda n: n >= 0, "page_size": (16, 32), "head_dim": (32, 64)},
        ],
        features=("cu_q", "scale", "causal", "window", "softcap"),
        unavailable=_UNIFIED.unavailable,
    )


IMPLEMENTATIONS = [
    _unified("causal windows", "left windows", "causal windows"),
    _unified("equal windows", "equal windows"),
]
"""The meaning of window_size is (left, 0) with causality, and without it the left side on both sides."""
