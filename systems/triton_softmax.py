"""A masked softmax of rows in Triton, and its gradient, written for this repository.

Each program computes one row, and holds it in one block. The weight of a key is exp(s − m) / Σ exp(s − m)
over the visible keys, with the largest visible score m; a masked key has the weight 0. The gradient of
the scores is w·(g − Σ w·g).
"""

from functools import cache
from typing import Any

import torch

from oracles import FLOAT32
from properties.contract.implementation import Implementation
from properties.interpreters import is_interpreting
from systems.torch_attention import NO_CUDA
from systems.torch_cuda import flushing
from systems.triton_attention import NO_TRITON, power_of_two

__all__ = ["IMPLEMENTATIONS"]


@cache
def _kernels() -> tuple[Any, Any]:
    """The kernel of the weights, and the kernel of their gradient; both are compiled at their first call."""
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def forward(scores, mask, weights, n_k, scores_row, width: tl.constexpr):  # type: ignore[no-untyped-def]
        row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, width)
        exists = columns < n_k
        visible = tl.load(mask + row * n_k + columns, mask=exists, other=0) != 0
        given = tl.load(scores + row * scores_row + columns, mask=exists, other=0.0)
        numbers = tl.where(visible, given, float("-inf"))
        highest = tl.max(numbers, 0)
        powers = tl.exp(numbers - tl.where(highest == float("-inf"), 0.0, highest))
        total = tl.sum(powers, 0)
        tl.store(weights + row * n_k + columns, powers / tl.where(total == 0, 1.0, total), mask=exists)

    @triton.jit  # type: ignore[untyped-decorator]
    def backward(weights, gradient, out, n_k, width: tl.constexpr):  # type: ignore[no-untyped-def]
        row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, width)
        exists = columns < n_k
        w = tl.load(weights + row * n_k + columns, mask=exists, other=0.0)
        g = tl.load(gradient + row * n_k + columns, mask=exists, other=0.0)
        tl.store(out + row * n_k + columns, w * (g - tl.sum(w * g, 0)), mask=exists)

    return forward, backward


def _softmax(scores: Any, mask: Any = None) -> torch.Tensor:
    """The weights of scores (…, n_q, n_k) where the mask (…, n_q, n_k) is true."""
    n_k = scores.shape[-1]
    rows = scores.flatten(end_dim=-2)
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    mask = torch.ones_like(scores, dtype=torch.int8) if mask is None else mask.expand(scores.shape).to(torch.int8)
    weights = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)
    _kernels()[0][(len(rows),)](rows, mask.contiguous(), weights, n_k, rows.stride(0), power_of_two(n_k))
    return weights


def _gradient(scores: Any, mask: Any, grad_weights: Any) -> torch.Tensor:
    weights, gradient, n_k = _softmax(scores, mask), grad_weights.contiguous(), scores.shape[-1]
    out = torch.empty_like(weights)
    _kernels()[1][(weights.numel() // n_k,)](weights, gradient, out, n_k, power_of_two(n_k))
    return out


IMPLEMENTATIONS = [
    Implementation(
        "Triton CUDA softmax float32",
        {"hard_masked_softmax": _softmax, "hard_masked_softmax_vjp": _gradient},
        arithmetic=flushing(FLOAT32),
        arrays="torch",
        device="cuda",
        batch_ranks=(0, 1, 2),
        supports=["positive sizes"],
        unavailable=NO_TRITON if is_interpreting() else NO_CUDA or NO_TRITON,
    )
]
