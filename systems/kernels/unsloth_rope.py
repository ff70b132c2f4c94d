"""unsloth's rotary embedding in Triton (unsloth 2026.10.9): queries and keys in one launch, in place where the
memory allows it.
"""

from typing import Any

import torch

from systems.kernels.released import Released
from systems.kernels.rotating import rotating

__all__ = ["IMPLEMENTATIONS"]

_STUBS = ("unsloth.device_type", "unsloth.kernels.utils", "unsloth.kernels.rms_layernorm")


def _values() -> dict[str, Any]:
    """What unsloth's own modules would give the file."""
    from contextlib import nullcontext

    import triton

    utils = "unsloth.kernels.utils"
    return {
        "unsloth.device_type.DEVICE_COUNT": 1,
        "unsloth.device_type.DEVICE_TYPE_TORCH": "cuda",
        "unsloth.kernels.rms_layernorm._TRACEABLE": False,
        "unsloth.kernels.rms_layernorm._eager_kernel": lambda kernel: kernel,
        f"{utils}.next_power_of_2": triton.next_power_of_2,
        f"{utils}.long_indexing": lambda *tensors, block: False,
        f"{utils}.torch_gpu_device": lambda device: nullcontext(),
    }


_ROPE = Released("unsloth", "unsloth/kernels/rope_embedding.py", _STUBS, _values)


def _wide(*tables: Any) -> list[Any]:
    """Tables as wide as a head. The kernel reads their first half."""
    return [torch.cat([table, table], -1) for table in tables]


def _rotate(x: Any, cos: Any, sin: Any) -> Any:
    return _ROPE.module.Fast_RoPE_Embedding.apply(x, *_wide(cos, sin))


def _rotate_back(grad_out: Any, cos: Any, sin: Any) -> Any:
    x = torch.zeros_like(grad_out).requires_grad_()
    _ROPE.module.Fast_RoPE_Embedding.apply(x * 1, *_wide(cos, sin)).backward(grad_out)
    return x.grad


def _rotate_both(x: Any, cos: Any, sin: Any) -> Any:
    """The keys of a call that rotates queries too."""
    q, k = x[:, :, :1].transpose(1, 2), x.transpose(1, 2)
    return _ROPE.module.Fast_RoPE_Embedding_QK_Positions.apply(q.clone(), k, *_wide(cos, sin))[1].transpose(1, 2)


IMPLEMENTATIONS = [
    rotating("unsloth rope", _ROPE.unavailable, _rotate, _rotate_back),
    rotating("unsloth rope, queries and keys", _ROPE.unavailable, _rotate_both),
]
