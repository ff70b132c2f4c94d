"""SGLang's attention over packed sequences without a cache in Triton (sglang 0.5.23)."""

from typing import Any

import torch

from properties.contract.implementation import Implementation
from systems.kernels.vendors import sglang

__all__ = ["IMPLEMENTATIONS"]

_PREFILL = sglang("prefill_attention.py")


def _attend(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, **options: Any) -> torch.Tensor:
    """The output (total, heads, d)."""
    out, lengths = torch.empty(q.shape, dtype=q.dtype), cu_q.diff().int()
    _PREFILL.module.context_attention_fwd(
        *(q.contiguous(), k.contiguous(), v.contiguous(), out, cu_q[:-1].int(), lengths, int(lengths.max())),
        is_causal=bool(options.get("causal")),
        sm_scale=options.get("scale"),
    )
    return out


IMPLEMENTATIONS = [
    Implementation(
        "SGLang prefill_attention",
        {"packed_attention": _attend},
        arithmetic="bfloat16",
        arrays="torch",
        device="cuda",
        supports=[
            *("self attention", "no padding rows", "heads divide", "value_dim = head_dim", "no log-sum-exp"),
            {name: lambda n: n > 0 for name in ("sequences", "total_q", "num_heads", "kv_heads", "head_dim")},
        ],
        features=("scale", "causal"),
        unavailable=_PREFILL.unavailable,
    )
]
