"""`torch.nn.attention.flex_attention`, not compiled: the path that its documentation gives for
debugging, which forms all scores.

A mask goes in as a block mask, by `create_block_mask` from a `mask_mod` that looks it up, and in
one implementation as a `score_mod` that makes masked scores −∞. Inputs are 4-D, and keys are at
least one channel wide: the scale divides by √d, and raises ZeroDivisionError. A row with no allowed
key is 0. On the CPU there is neither a reverse mode (pytorch/pytorch#169224, #148752) nor a forward
one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.attention import flex_attention as flex

from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS", "attend", "causal", "looked_up"]


def _traced(*inputs: Any, **options: Any) -> Any:
    """Not compiled. By default each shape is traced once more, and a warning asks to compile; the
    flag is the documented way not to.
    """
    with patch.object(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True):
        return flex.flex_attention(*inputs, **options)


def looked_up(table: torch.Tensor) -> Callable[..., torch.Tensor]:
    """table[b, h, i, j], by the operator that this is: mapping the brackets themselves over four
    axes takes most of a call.
    """
    return lambda b, h, i, j: torch.ops.aten.index(table, [b, h, i, j])


def attend(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    by_score: bool = False,
    enable_gqa: bool = False,
    kernel: Callable[..., Any] = _traced,
) -> torch.Tensor:
    """Attention under a mask (…, n_q, n_k) of at most four axes, as a block mask or by a modification of the scores."""
    options: dict[str, Any] = {"enable_gqa": enable_gqa}
    if mask is not None:
        (batch, heads, n_q, _), n_k = q.shape, k.shape[-2]
        allowed = looked_up(mask.expand(batch, heads, n_q, n_k))
        if by_score:
            options["score_mod"] = lambda score, b, h, i, j: torch.where(allowed(b, h, i, j), score, -torch.inf)
        else:
            options["block_mask"] = flex.create_block_mask(allowed, batch, heads, n_q, n_k, device=q.device.type)
    out: torch.Tensor = kernel(q, k, v, **options)
    return out


def causal(q: Any, k: Any, v: Any, **options: Any) -> torch.Tensor:
    """Aligned top left, as the documentation's `causal` mask_mod is."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    return attend(q, k, v, torch.ones(n_q, n_k, dtype=torch.bool, device=q.device).tril(), **options)


def _implementation(name: str, arithmetic: str, **operations: Any) -> Implementation:
    return Implementation(
        name=f"torch flex {name}",
        operations=operations,
        arithmetic=arithmetic,
        arrays="torch",
        batch_ranks=(2,),
        supports={"head_dim": lambda d: d > 0, "batch": lambda n: n > 0},
        refuses=(RuntimeError, ValueError, ZeroDivisionError, IndexError),
    )


IMPLEMENTATIONS = [
    _implementation(
        "float32",
        "float32",
        scaled_dot_product_attention=attend,
        causal_attention=causal,
        grouped_query_attention=partial(attend, enable_gqa=True),
    ),
    _implementation(
        "score_mod float64", "float64", grouped_query_attention=partial(attend, by_score=True, enable_gqa=True)
    ),
]
