"""SGLang's merge of two parts of attention in Triton (sglang 0.5.23), for rows (tokens, heads).

Found by `attnspec verify systems/kernels/sglang_merge_state.py --interpret`: where both parts are empty,
output and log-sum-exp are NaN. The kernel subtracts the larger log-sum-exp, and −∞ − (−∞) is NaN.
"""

from typing import Any

import torch

from properties.contract.implementation import Implementation
from systems.kernels.vendors import sglang

__all__ = ["IMPLEMENTATIONS"]

_MERGE = sglang("merge_state.py")


def _merge(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """out (heads, tokens, d_v) and lse (heads, tokens); the kernel takes the tokens first."""
    parts = (part.transpose(0, 1).contiguous() for part in (out_a, lse_a, out_b, lse_b))
    out, lse = _MERGE.module.merge_state_triton(*parts)
    return out.transpose(0, 1), lse.transpose(0, 1)


IMPLEMENTATIONS = [
    Implementation(
        "SGLang merge_state",
        {"merge_attention": _merge},
        arithmetic="float32",
        arrays="torch",
        device="cuda",
        batch_ranks=(1,),
        supports="positive sizes",
        unavailable=_MERGE.unavailable,
    )
]
