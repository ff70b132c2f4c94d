"""Liger's rotary embedding in Triton (liger-kernel 0.8.5): queries and keys in one launch, in place.

Found by `attnspec verify systems/kernels/liger_rope.py --interpret`: with sequences of length 1, and more
than one of both batch elements and heads, all rows but the first are wrong. `rope_forward` transposes
(batch, heads, 1, d) to (batch, 1, heads, d). PyTorch calls this contiguous, so `contiguous()` copies
nothing, but the stride of the axis of size 1 is d, and `q.stride(1)` is passed as the stride of a row.
"""

from typing import Any

import torch

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.kernels.released import Released

__all__ = ["IMPLEMENTATIONS"]

_ROPE = Released("liger-kernel", "liger_kernel/ops/rope.py")


def _rotate(x: Any, cos: Any, sin: Any) -> Any:
    """x (batch, heads, n, d) rotated by tables (n, d / 2), which Liger takes twice as wide."""
    whole = (torch.cat([table, table], -1)[None] for table in (cos, sin))
    rotated, _, _, _ = _ROPE.module.rope_forward(x.clone(), x[:, :1].clone(), *whole)
    return rotated


def _rotate_vjp(x: Any, cos: Any, sin: Any, grad_out: Any) -> Any:
    whole = (torch.cat([table, table], -1)[None] for table in (cos, sin))
    gradient, _ = _ROPE.module.rope_backward(grad_out.clone(), grad_out[:, :1].clone(), *whole)
    return gradient


IMPLEMENTATIONS = [
    Implementation(
        "Liger rope",
        {"apply_rotary": _rotate, "apply_rotary_vjp": _rotate_vjp},
        arithmetic="float32",
        arrays="torch",
        device="cuda",
        conventions=Conventions(rope_pairing="half"),
        batch_ranks=(2,),
        supports=["half tables", "positive sizes", {"head_dim": lambda d: d % 2 == 0}],
        unavailable=_ROPE.unavailable,
    )
]
