"""vLLM's attention over packed sequences without a cache in Triton (vllm 0.33.0): as many queries as keys,
with windows and sinks.

Found by `attnspec verify systems/kernels/vllm_prefill_attention.py --interpret`: a sink in bfloat16 is
multiplied by 1 / ln 2 in bfloat16, and a window that shows one side no key is taken for an open side.
"""

from typing import Any

import torch

from properties.contract.implementation import Implementation
from systems.kernels.vendors import vllm

__all__ = ["IMPLEMENTATIONS"]

_PREFILL = vllm("v1/attention/ops/triton_prefill_attention.py")


def _attend(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, *, sink: Any = None, **options: Any) -> torch.Tensor:
    return _attend_narrow(q, k, v, cu_q, cu_k, sink=None if sink is None else sink.float(), **options)


def _attend_narrow(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, **options: Any) -> torch.Tensor:
    """The output (total, heads, d). The kernel has a window of 0 for none."""
    out, lengths = torch.empty_like(q, memory_format=torch.contiguous_format), cu_q.diff().int()
    left, right = options.get("window") or (None, None)
    _PREFILL.module.context_attention_fwd(
        *(q.contiguous(), k.contiguous(), v.contiguous(), out, cu_q[:-1].int(), lengths, int(lengths.max())),
        is_causal=bool(options.get("causal")),
        softmax_scale=options.get("scale"),
        sliding_window_q=left,
        sliding_window_k=right,
        sinks=options.get("sink"),
    )
    return out


def _prefill(name: str, attend: Any, feature: str) -> Implementation:
    return Implementation(
        f"vLLM prefill_attention, {name}",
        {"packed_attention": attend},
        arithmetic="bfloat16",
        arrays="torch",
        device="cuda",
        supports=[
            *("self attention", "no padding rows", "heads divide", "value_dim = head_dim", "no log-sum-exp"),
            {name: lambda n: n > 0 for name in ("sequences", "total_q", "num_heads", "kv_heads", "head_dim")},
        ],
        features=("scale", "causal", feature),
        unavailable=_PREFILL.unavailable,
    )


IMPLEMENTATIONS = [
    _prefill("sinks in float32", _attend, "sink"),
    _prefill("sinks in bfloat16", _attend_narrow, "sink"),
    _prefill("windows", _attend, "window"),
]
