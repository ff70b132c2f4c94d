"""`torch.nn.attention.flex_attention` without a compiler: the path that its documentation describes
for debugging, which computes all scores.

The mask becomes a block mask, by `create_block_mask` from a `mask_mod` that looks it up. In one
implementation it becomes a `score_mod` that sets masked scores to −∞. Inputs are 4-D. Keys have at
least one channel, because the scale divides by √d and raises ZeroDivisionError for 0. A fully
masked row is 0. The CPU has no reverse mode (pytorch/pytorch#169224, #148752) and no forward mode.
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
    """The result of flex_attention without tracing.

    By default PyTorch traces each shape once more, and warns that the call should be compiled. The
    flag is the documented way to avoid this.
    """
    with patch.object(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True):
        return flex.flex_attention(*inputs, **options)


def looked_up(table: torch.Tensor) -> Callable[..., torch.Tensor]:
    """A function of (b, h, i, j) that returns table[b, h, i, j].

    It calls the operator of this expression: mapping the expression itself over four axes takes
    most of the time of a call.
    """
    return lambda b, h, i, j: torch.ops.aten.index(table, [b, h, i, j])


def attend(q: Any, k: Any, v: Any, mask: Any = None, *, by_score: bool = False, **options: Any) -> torch.Tensor:
    """Attention under a mask (…, n_q, n_k) of at most four axes.

    The mask becomes a modification of the scores with `by_score`, otherwise a block mask. `kernel`
    is flex_attention without a compiler by default, and gets all other options.
    """
    kernel = options.pop("kernel", _traced)
    if mask is not None:
        (batch, heads, n_q, _), n_k = q.shape, k.shape[-2]
        visible = looked_up(mask.expand(batch, heads, n_q, n_k))
        if by_score:
            options["score_mod"] = lambda score, b, h, i, j: torch.where(visible(b, h, i, j), score, -torch.inf)
        else:
            options["block_mask"] = flex.create_block_mask(visible, batch, heads, n_q, n_k, device=q.device.type)
    out: torch.Tensor = kernel(q, k, v, **options)
    return out


def causal(q: Any, k: Any, v: Any, **options: Any) -> torch.Tensor:
    """Causal attention, aligned top left like the `causal` mask_mod of the documentation."""
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
