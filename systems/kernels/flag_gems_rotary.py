"""FlagGems' rotary embedding in Triton (flag-gems 5.0.2): queries and keys in one launch."""

from functools import partial
from typing import Any

from systems.kernels.released import Released
from systems.kernels.rotating import rotating

__all__ = ["IMPLEMENTATIONS"]


def _values() -> dict[str, Any]:
    """What FlagGems' own modules would give the file."""
    import torch
    import triton.language as tl

    return {
        "flag_gems.runtime.torch_device_fn": torch.cuda,
        "flag_gems.utils.libentry()": lambda kernel: kernel,
        "flag_gems.utils.triton_lang_extension": tl,
    }


_ROTARY = Released(
    "flag-gems", "flag_gems/fused/rotary_embedding.py", ("flag_gems.runtime", "flag_gems.utils"), _values
)


def _rotate(x: Any, cos: Any, sin: Any, is_adjacent: bool) -> Any:
    """The keys of a call that rotates one head of queries too. The kernel takes contiguous arrays."""
    q, k = x[:, :, :1].contiguous(), x.contiguous()
    return _ROTARY.module.apply_rotary_pos_emb(q, k, cos, sin, rotary_interleaved=is_adjacent)[1]


IMPLEMENTATIONS = [
    rotating(
        f"FlagGems rotary, {pairing} pairs",
        _ROTARY.unavailable,
        partial(_rotate, is_adjacent=pairing == "adjacent"),
        pairing=pairing,
    )
    for pairing in ("half", "adjacent")
]
