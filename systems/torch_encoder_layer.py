"""The self-attention block of `torch.nn.TransformerEncoderLayer`, with zero biases and without
dropout.

A layer adds a residual, two normalisations and a feed-forward network to its attention. No weights
make a normalisation the identity for every input. So neither the whole layer nor its native kernel,
which computes the layer at once, can return the output of attention alone. The laws test the block
`_sa_block`, which the layer's forward calls with an additive mask. In evaluation, without a mask,
on a batch, with an even number of heads, the block takes the fast path of
`torch.nn.MultiheadAttention`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.func import functional_call

from properties.contract.implementation import Implementation
from systems.attention_arguments import Projections, with_projections
from systems.torch_multi_head import parameters

__all__ = ["IMPLEMENTATIONS"]


class _Block(torch.nn.Module):
    """A layer that runs its attention only, on the device "meta", so that it draws no random
    parameters.
    """

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

    def __call__(self, x: Any, weights: Projections, num_heads: int, mask: Any = None) -> torch.Tensor:
        """Multi-head attention of a sequence, or of a batch of sequences with one mask for all or
        one for each.
        """
        if mask is not None:
            mask = mask.expand(*x.shape[: mask.ndim - 2], x.shape[-2], x.shape[-2])
            mask = mask if mask.ndim == 2 else mask.repeat_interleave(num_heads, dim=0)
        named = {f"layer.self_attn.{name}": weight for name, weight in parameters(weights, bias=True).items()}
        block = _Block(x.shape[-1], num_heads, x.dtype).train(self.train)
        with torch.no_grad():
            out: torch.Tensor = functional_call(block, named, (x, mask))
        return out


def _implementation(name: str, mode: _Mode) -> Implementation:
    return Implementation(
        name=f"torch encoder layer {name} float64",
        operations={"multi_head_attention": with_projections(mode)},
        arrays="torch",
        batch_ranks=(0, 1),
        supports=["additive masks", {"model_dim_minus_heads_width": [0], "batch": lambda n: n > 0}],
        refuses=(RuntimeError, AssertionError, ValueError),
    )


IMPLEMENTATIONS = [_implementation("train", _Mode(train=True)), _implementation("eval", _Mode(train=False))]
