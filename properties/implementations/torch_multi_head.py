"""`torch.nn.MultiheadAttention`, on each of its paths: with and without weights, in training and evaluation, and its fast path.

Its weights are stored transposed, the three input projections stacked; its boolean mask is True where a key is blocked. The spec has no
biases. The fast path, one native kernel, is taken in evaluation where there are biases, an even number of heads and no gradients: there
the biases are zero.
"""

from dataclasses import dataclass

import numpy as np
import torch

from oracles import FLOAT32, FLOAT64, Conventions
from properties.implementation import Deviation, Dtype, Implementation
from spec.tensor_core import Array

__all__ = ["IMPLEMENTATIONS"]


@dataclass(frozen=True)
class _Path:
    """What selects a path of the module."""

    name: str
    need_weights: bool
    train: bool
    bias: bool = False

    def __call__(self, x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Array | None = None) -> Array:
        """Multi-head attention of one sequence."""
        module = torch.nn.MultiheadAttention(x.shape[1], num_heads, bias=self.bias, batch_first=True, dtype=torch.from_numpy(x).dtype)
        parameters = {
            "in_proj_weight": torch.cat([torch.from_numpy(w).T for w in (wq, wk, wv)]),
            "out_proj.weight": torch.from_numpy(wo).T,
        }
        module.load_state_dict(parameters, strict=False)  # biases, where there are any, begin as zeros
        tokens = torch.from_numpy(x)[None]
        blocked = None if mask is None else torch.from_numpy(~mask)
        with torch.no_grad():
            out, _ = module.train(self.train)(tokens, tokens, tokens, attn_mask=blocked, need_weights=self.need_weights)
        return np.asarray(out[0])


_PATHS = [
    _Path("weights train", need_weights=True, train=True),
    _Path("weights eval", need_weights=True, train=False),
    _Path("no weights train", need_weights=False, train=True),
    _Path("no weights eval", need_weights=False, train=False),
    _Path("fast path", need_weights=False, train=False, bias=True),
]

_NAN = {
    "a token that may attend to no token contributes zero": Deviation(
        "With need_weights=True, and on the fast path, the weights of a row that may attend to nothing are a softmax over −∞ alone: NaN. "
        "With need_weights=False otherwise, the module calls scaled_dot_product_attention, whose row is 0. See pytorch/pytorch#41508.",
        Conventions(dead_rows="nan"),
    )
}


def _implementation(path: _Path, dtype: Dtype) -> Implementation:
    return Implementation(
        name=f"torch MHA {path.name} {dtype}",
        dtype=dtype,
        arithmetic=FLOAT64 if dtype == "float64" else FLOAT32,
        operations={"multi_head_attention": path},
        known_deviations=_NAN if path.need_weights or path.bias else {},
        even_heads=path.bias,
    )


_DTYPES: tuple[Dtype, ...] = ("float64", "float32")
IMPLEMENTATIONS = [_implementation(path, dtype) for dtype in _DTYPES for path in _PATHS]
