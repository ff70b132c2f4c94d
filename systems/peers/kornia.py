"""kornia: the `FullAttention` of LoFTR, and the attention and the rotation of LightGlue.

`FullAttention` takes a mask of queries together with a mask of keys. LightGlue's rotation pairs
adjacent channels, and takes learned angles.
"""

from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("kornia")


def _full(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Attention of one head, which the layer takes as (batch, sequence, 1, width)."""
    from kornia.feature.loftr.loftr_module.linear_attention import FullAttention

    masks = () if mask is None else (mask.new_ones(q.shape[:2]), mask)
    return FullAttention()(q[:, :, None], k[:, :, None], v[:, :, None], *masks)[:, :, 0]


def _light(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    from kornia.feature.lightglue import Attention

    return Attention(allow_flash=False)(q, k, v, mask)


def _apply(x: Any, cos: Any, sin: Any) -> Any:
    import torch
    from kornia.feature.lightglue import apply_cached_rotary_emb

    return apply_cached_rotary_emb(torch.stack([cos, sin]), x)


def _implementation(name: str, arithmetic: str, **promises: Any) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} {arithmetic}"),
        arithmetic=arithmetic,
        arrays="torch",
        unavailable=_LIBRARY.unavailable,
        **{"refuses": (RuntimeError, ValueError, ZeroDivisionError), **promises},
    )


IMPLEMENTATIONS = [
    *(
        _implementation(
            "LoFTR's FullAttention", arithmetic, operations={"scaled_dot_product_attention": _full}, batch_ranks=(1,),
            conventions=Conventions(dead_rows="nan"), supports=["positive sizes", "padding masks"],
        )
        for arithmetic in ("float32", "float64")
    ),
    _implementation(
        "LightGlue's Attention", "float32", operations={"scaled_dot_product_attention": _light}, batch_ranks=(2,),
        supports="positive sizes",
    ),
    _implementation(
        "LightGlue's apply_cached_rotary_emb", "float32", operations={"apply_rotary": _apply},
        supports=["positive sizes", {"head_dim": lambda d: d % 2 == 0}], conventions=Conventions(odd_lane="reject"),
    ),
]  # fmt: skip
