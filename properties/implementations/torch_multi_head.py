"""`torch.nn.MultiheadAttention` without biases, on the paths that its flags select.

Its weights are stored transposed, the three input projections stacked; its boolean mask is True where a key is blocked.
"""

from functools import partial

import numpy as np
import torch

from oracles import FLOAT32, FLOAT64
from properties.implementation import Implementation
from spec.tensor_core import Array

__all__ = ["IMPLEMENTATIONS"]


def _forward(
    need_weights: bool, train: bool, x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Array | None = None
) -> Array:
    width = x.shape[1]
    module = torch.nn.MultiheadAttention(width, num_heads, bias=False, batch_first=True, dtype=torch.from_numpy(x).dtype).train(train)
    module.load_state_dict(
        {
            "in_proj_weight": torch.cat([torch.from_numpy(w).T for w in (wq, wk, wv)]),
            "out_proj.weight": torch.from_numpy(wo).T,
        }
    )
    tokens = torch.from_numpy(x)[None]
    blocked = None if mask is None else torch.from_numpy(~mask)
    with torch.no_grad():
        out, _ = module(tokens, tokens, tokens, attn_mask=blocked, need_weights=need_weights)
    return np.asarray(out[0])


_DEAD_ROWS = {
    "a token that may attend to no token contributes zero": (
        "With need_weights=True the weights are softmax(scores + mask) with −∞ in the mask, which is NaN on a row of −∞; with "
        "need_weights=False the same module calls scaled_dot_product_attention, whose row is 0. See pytorch/pytorch#41508."
    )
}

IMPLEMENTATIONS = [
    Implementation(
        name=f"torch MHA {'weights' if need_weights else 'no weights'} {'train' if train else 'eval'} {dtype}",
        dtype=dtype,
        arithmetic=FLOAT64 if dtype == "float64" else FLOAT32,
        operations={"multi_head_attention": partial(_forward, need_weights, train)},
        known_deviations=_DEAD_ROWS if need_weights else {},
    )
    for dtype in ("float64", "float32")
    for need_weights in (True, False)
    for train in (True, False)
]
