"""`torch.nn.MultiheadAttention`, on each of its paths: with and without weights, in training and evaluation, and its fast path.

Its weights are stored transposed, the three input projections stacked; its boolean mask is True where a key is blocked. The spec has no
biases. The fast path, one native kernel, is taken in evaluation where there are biases, an even number of heads and no gradients: there
the biases are zero.
"""

from dataclasses import dataclass
from typing import Any

import torch

from oracles import Conventions
from properties.implementation import Implementation

__all__ = ["IMPLEMENTATIONS"]


@dataclass(frozen=True)
class _Path:
    """What selects a path of the module."""

    name: str
    need_weights: bool
    train: bool
    bias: bool = False

    def __call__(self, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any = None) -> torch.Tensor:
        """Multi-head attention of a sequence, or of a batch of them; one mask for all, or one for each."""
        module = torch.nn.MultiheadAttention(x.shape[-1], num_heads, bias=self.bias, batch_first=True, dtype=x.dtype)
        parameters = {"in_proj_weight": torch.cat([w.T for w in (wq, wk, wv)]), "out_proj.weight": wo.T}
        module.load_state_dict(parameters, strict=False)  # biases, where there are any, begin as zeros
        if mask is not None and mask.ndim == 3:
            mask = mask.repeat_interleave(num_heads, dim=0)
        with torch.no_grad():
            out: torch.Tensor = module.train(self.train)(x, x, x, attn_mask=mask, need_weights=self.need_weights)[0]
        return out


_PATHS = [
    _Path("weights train", need_weights=True, train=True),
    _Path("weights eval", need_weights=True, train=False),
    _Path("no weights train", need_weights=False, train=True),
    _Path("no weights eval", need_weights=False, train=False),
    _Path("fast path", need_weights=False, train=False, bias=True),
]

_DEAD = "a token with nothing to attend to follows its convention"
_FAST = {
    _DEAD: "With an even number of heads and one mask for all, the native kernel takes a softmax over −∞ alone on a row that may attend to "
    "nothing: NaN. Otherwise the module calls scaled_dot_product_attention, whose row is 0. See pytorch/pytorch#41508."
}


def _implementation(path: _Path, dtype: str) -> Implementation:
    """With need_weights=True a row that may attend to nothing is NaN; with need_weights=False it is 0; on the fast path it depends."""
    return Implementation(
        name=f"torch MHA {path.name} {dtype}",
        operations={"multi_head_attention": path},
        arithmetic=dtype,
        conventions=Conventions(mask_polarity="true_blocks", dead_rows="nan" if path.need_weights else "zero"),
        arrays="torch",
        batch_ranks=(0, 1),
        supports={"model_dim_minus_heads_width": lambda difference: difference == 0},
        refuses=(RuntimeError, AssertionError),
        known_deviations=_FAST if path.bias else {},
    )


IMPLEMENTATIONS = [_implementation(path, dtype) for dtype in ("float64", "float32") for path in _PATHS]
