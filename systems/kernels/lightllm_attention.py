"""LightLLM's attention of Llama in Triton (lightllm 0.0.1), with one entry of a table for each key: new tokens
over a prefix, and one query each for groups of heads.
"""

from typing import Any

import torch

from properties.contract.implementation import Implementation
from systems.kernels.paging import slots
from systems.kernels.released import Released

__all__ = ["IMPLEMENTATIONS"]

_FOLDER = "lightllm/models/llama/triton_kernel"
_CONTEXT = Released("lightllm", f"{_FOLDER}/context_flashattention_nopad.py")
_DECODE = Released("lightllm", f"{_FOLDER}/gqa_decode_flashattention_nopad.py")


def _table(block_table: Any, lengths: Any, page_size: int) -> torch.Tensor:
    """A row of slots for each sequence. Entries behind its keys name the first slot."""
    rows = slots(block_table, lengths, page_size)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).int()


def _extend(
    q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any, *, cu_q: Any, **options: Any
) -> torch.Tensor:
    """The output (total_q, heads, d) of q (total_q, heads, d)."""
    out, counts = torch.empty(q.shape, dtype=q.dtype), cu_q.diff()
    keys, values = (pages.flatten(0, 1).contiguous() for pages in (k_pages, v_pages))
    requests = torch.arange(len(lengths), dtype=torch.int32)
    _CONTEXT.module.context_attention_fwd(
        *(q.contiguous(), keys, values, out, requests, cu_q[:-1].int(), lengths.int(), (lengths - counts).int()),
        *(int(counts.max()), _table(block_table, lengths, k_pages.shape[1])),
    )
    return out


def _decode(q: Any, k_pages: Any, v_pages: Any, block_table: Any, lengths: Any) -> torch.Tensor:
    """The output (sequences, 1, heads, d) of q (sequences, 1, heads, d)."""
    out = torch.empty(q[:, 0].shape, dtype=q.dtype)
    keys, values = (pages.flatten(0, 1).contiguous() for pages in (k_pages, v_pages))
    requests = torch.arange(len(lengths), dtype=torch.int32)
    table = _table(block_table, lengths, k_pages.shape[1])
    _DECODE.module.gqa_decode_attention_fwd(q[:, 0].contiguous(), keys, values, out, table, requests, lengths.int())
    return out[:, None]


def _lightllm(name: str, attend: Any, unavailable: str, features: tuple[str, ...], *supports: Any) -> Implementation:
    return Implementation(
        f"LightLLM {name}",
        {"paged_attention": attend},
        arithmetic="bfloat16",
        arrays="torch",
        device="cuda",
        supports=[
            *("no log-sum-exp", "heads divide", "value_dim = head_dim", {"head_dim": (16, 32)}, *supports),
            {name: lambda n: n > 0 for name in ("sequences", "num_heads", "kv_heads", "n_k")},
        ],
        features=features,
        unavailable=unavailable,
    )


IMPLEMENTATIONS = [
    _lightllm(
        *("context_attention", _extend, _CONTEXT.unavailable, ("cu_q",), "ragged queries"),
        {"n_k_minus_n_q": lambda n: n >= 0, "total_q": lambda n: n > 0},
    ),
    _lightllm("gqa_decode_attention", _decode, _DECODE.unavailable, (), {"n_q": (1,)}),
]
