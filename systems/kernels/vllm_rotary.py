"""flash-attention's rotary embedding in Triton, as vLLM has it (vllm 0.33.0), for halves and adjacent pairs."""

from functools import partial
from typing import Any

from systems.kernels.rotating import rotating
from systems.kernels.vendors import vllm

__all__ = ["IMPLEMENTATIONS"]

_ROTARY = vllm("vllm_flash_attn/ops/triton/rotary.py")


def _rotate(x: Any, cos: Any, sin: Any, **options: Any) -> Any:
    return _ROTARY.module.apply_rotary(x, cos, sin, **options)


IMPLEMENTATIONS = [
    rotating(
        f"flash-attention rotary, {pairing} pairs",
        _ROTARY.unavailable,
        partial(_rotate, interleaved=pairing == "adjacent"),
        partial(_rotate, interleaved=pairing == "adjacent", conjugate=True),
        pairing,
        head_dim=lambda d: d % 2 == 0 and d <= 256,
    )
    for pairing in ("half", "adjacent")
]
