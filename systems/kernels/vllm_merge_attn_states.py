"""vLLM's merge of two parts of attention in Triton (vllm 0.33.0).

Found by `attnspec verify systems/kernels/vllm_merge_attn_states.py --interpret`: with one head, a part whose
tokens and heads are exchanged is read and written out of bounds. PyTorch calls it contiguous, but the stride of
its axis of size 1 is the size of the whole array, and the kernel computes the stride of a token from it.
"""

from typing import Any

import torch

from properties.contract.implementation import Implementation
from systems.kernels.vendors import vllm

__all__ = ["IMPLEMENTATIONS"]

_MERGE = vllm("v1/attention/ops/triton_merge_attn_states.py")


def _merge(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """out (heads, tokens, d_v), which the kernel takes with the tokens first, and lse (heads, tokens)."""
    first, second = (part.transpose(0, 1).contiguous() for part in (out_a, out_b))
    return _merged(first, lse_a, second, lse_b)


def _merge_copies(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The same in new arrays. Their strides follow from their shapes, also along axes of size 1."""
    first, second = (torch.cat([part.transpose(0, 1)[None]] * 2)[0] for part in (out_a, out_b))
    return _merged(first, lse_a, second, lse_b)


def _merged(first: Any, lse_a: Any, second: Any, lse_b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.empty(first.shape), torch.empty(lse_a.shape)
    _MERGE.module.merge_attn_states(out, first, lse_a, second, lse_b, lse)
    return out.transpose(0, 1), lse


def _merging(name: str, merge: Any, **sizes: Any) -> Implementation:
    return Implementation(
        f"vLLM merge_attn_states, {name}",
        {"merge_attention": merge},
        arithmetic="float32",
        arrays="torch",
        device="cuda",
        batch_ranks=(1,),
        supports=["positive sizes", sizes],
        unavailable=_MERGE.unavailable,
    )


IMPLEMENTATIONS = [_merging("new arrays", _merge_copies), _merging("one head, transposed", _merge, batch=(1,))]
