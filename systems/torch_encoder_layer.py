"""The self-attention block of `torch.nn.TransformerEncoderLayer`, with zero biases and without
dropout.

A layer adds to its attention a residual, two normalisations and a feed-forward network. No weights
make a normalisation the identity for every input, so the whole layer is no path to the output of
attention alone, and neither is its native kernel, which computes the layer at once. What can be put
under the laws is the block `_sa_block` that the layer's forward calls, with the mask as that hands
it on: additive. In evaluation, without a mask, on a batch, with an even number of heads, the block
takes the fast path of `torch.nn.MultiheadAttention`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.func import functional_call

from properties.contract.implementation import Implementation
from systems.torch_multi_head import parameters

__all__ = ["IMPLEMENTATIONS"]


class _Block(torch.nn.Module):
    """A layer of which only the attention is called; its parameters are made without numbers of their own."""

    def __init__(self, embed_dim: int, num_heads: int, dtype: torch.dtype) -> None:
        super().__init__()
        options: dict[str, Any] = {"device": "meta", "dtype": dtype}
        self.layer = torch.nn.TransformerEncoderLayer(
            embed_dim, num_heads, dim_feedforward=1, dropout=0.0, batch_first=True, **options
        )

    def forward(self, x: Any, mask: Any) -> torch.Tensor:
        """The attention of the layer."""
        return self.layer._sa_block(x, mask, None)


@dataclass(frozen=True)
class _Mode:
    """The block in training or in evaluation."""

    train: bool

    def __call__(self, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any = None) -> torch.Tensor:
        """Multi-head attention of a sequence, or of a batch of them; one mask for all, or one for each."""
        if mask is not None:
            mask = mask.expand(*x.shape[: mask.ndim - 2], x.shape[-2], x.shape[-2])
            mask = mask if mask.ndim == 2 else mask.repeat_interleave(num_heads, dim=0)
        weights = {f"layer.self_attn.{name}": w for name, w in parameters((wq, wk, wv, wo), bias=True).items()}
        block = _Block(x.shape[-1], num_heads, x.dtype).train(self.train)
        with torch.no_grad():
            out: torch.Tensor = functional_call(block, weights, (x, mask))
        return out


def _implementation(name: str, mode: _Mode) -> Implementation:
    return Implementation(
        name=f"torch encoder layer {name} float64",
        operations={"multi_head_attention": mode},
        arrays="torch",
        batch_ranks=(0, 1),
        supports=["additive masks", {"model_dim_minus_heads_width": [0], "batch": lambda n: n > 0}],
        refuses=(RuntimeError, AssertionError, ValueError),
    )


IMPLEMENTATIONS = [_implementation("train", _Mode(train=True)), _implementation("eval", _Mode(train=False))]
