"""LightLLM's rotary embedding of Llama in Triton (lightllm 0.0.1): queries and keys in one launch, in place."""

from typing import Any

from systems.kernels.released import Released
from systems.kernels.rotating import rotating

__all__ = ["IMPLEMENTATIONS"]

_ROTARY = Released("lightllm", "lightllm/models/llama/triton_kernel/rotary_emb.py")


def _rotate(x: Any, cos: Any, sin: Any) -> Any:
    """The keys of a call that rotates as many queries too. The kernel takes tokens of all sequences in a row."""
    rows = x.flatten(0, 1)
    tables = (table.repeat(len(x), 1) for table in (cos, sin))
    _ROTARY.module.rotary_emb_fwd(rows.clone(), rows, *tables)
    return rows.unflatten(0, x.shape[:2])


IMPLEMENTATIONS = [rotating("LightLLM rotary", _ROTARY.unavailable, _rotate, head_dim=(16, 32, 64, 128))]
