"""vLLM's attention of new tokens over a prefix in pages in Triton (vllm 0.33.0). The keys of the new tokens
are in the pages too, or they are given in a row.
"""

from typing import Any

import torch

from properties.contract.implementation import Implementation
from systems.kernels.paging import lasts, slots
from systems.kernels.vendors import vllm

__all__ = ["IMPLEMENTATIONS"]

_PREFIX = vllm("v1/attention/ops/prefix_prefill.py")
_PACKED = 8
"""Channels of a key that lie side by side in a page."""


def _attend(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, *, cu_q: Any, **options: Any
) -> torch.Tensor:
    """The output (total_q, heads, d), with all keys in pages."""
    return _called(q, k_pages, v_pages, block_table, lengths, cu_q, None, None, options)


def _attend_rows(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, *, cu_q: Any, **options: Any
) -> torch.Tensor:
    """The same, with the keys of the new tokens in a row."""
    new = torch.cat(lasts(cu_q, slots(block_table, lengths, k_pages.shape[1])))
    k, v = (pages.flatten(0, 1)[new].contiguous() for pages in (k_pages, v_pages))
    return _called(q, k_pages, v_pages, block_table, lengths, cu_q, k, v, options)


def _called(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, cu_q: Any, k: Any, v: Any, options: Any
) -> torch.Tensor:
    out, (left, _) = torch.empty(q.shape, dtype=q.dtype), options.get("window") or (None, None)
    one = torch.ones(1)
    keys = k_pages.unflatten(-1, (-1, _PACKED)).permute(0, 2, 3, 1, 4).contiguous()
    values = v_pages.permute(0, 2, 3, 1).contiguous()
    _PREFIX.module.context_attention_fwd(
        *(q.contiguous(), k, v, out, "auto", keys, values, block_table, cu_q.int(), lengths.int()),
        *(int(lengths.max()), int(cu_q.diff().max()), one, one, options.get("alibi")),
        sliding_window=None if left is None else left + 1,
        sm_scale=options.get("scale"),
        sinks=options.get("sink"),
        causal=options.get("causal") is not False,
    )
    return out


def _prefix(name: str, attend: Any, features: tuple[str, ...], *words: str) -> Implementation:
    return Implementation(
        f"vLLM prefix_prefill, {name}",
        {"paged_attention": attend},
        arithmetic="bfloat16",
        arrays="torch",
        device="cuda",
        supports=[
            *("ragged queries", "valid table entries", "no log-sum-exp", "heads divide", "value_dim = head_dim"),
            {name: lambda n: n > 0 for name in ("sequences", "total_q", "n_k", "num_heads", "kv_heads")},
            {"n_k_minus_n_q": lambda n: n >= 0, "page_size": (16, 32), "head_dim": (32, 40)},
            *words,
        ],
        features=("cu_q", "scale", *features),
        unavailable=_PREFIX.unavailable,
    )


IMPLEMENTATIONS = [
    _prefix("keys in pages", _attend, ("causal", "window", "sink"), "left windows", "causal windows"),
    _prefix("keys in a row", _attend_rows, ("causal", "window", "sink"), "left windows", "causal windows"),
    _prefix("ALiBi", _attend_rows, ("alibi",), "positive scale"),
]
