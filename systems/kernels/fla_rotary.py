"""flash-linear-attention's rotary embedding in Triton (fla-core 0.6.0), for halves and adjacent pairs."""

from functools import partial
from typing import Any

import torch

from systems.kernels.released import Released
from systems.kernels.rotating import rotating

__all__ = ["IMPLEMENTATIONS"]

_ROTARY = Released("fla-core", "fla/modules/rotary/ops.py", whole=True)


def _rotate(x: Any, cos: Any, sin: Any, is_adjacent: bool) -> Any:
    return _ROTARY.module.rotary_embedding(x, cos, sin, is_adjacent)


def _rotate_back(grad_out: Any, cos: Any, sin: Any, is_adjacent: bool) -> Any:
    x = torch.zeros_like(grad_out).requires_grad_()
    _rotate(x, cos, sin, is_adjacent).backward(grad_out)
    return x.grad


IMPLEMENTATIONS = [
    rotating(
        f"fla rotary, {pairing} pairs",
        _ROTARY.unavailable,
        partial(_rotate, is_adjacent=pairing == "adjacent"),
        partial(_rotate_back, is_adjacent=pairing == "adjacent"),
        pairing,
        head_dim=lambda d: d % 2 == 0 and d <= 256,
    )
    for pairing in ("half", "adjacent")
]
