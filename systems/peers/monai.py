"""MONAI: `SABlock` by its written-out path, and `get_timestep_embedding` of its diffusion models,
which puts cosines first.

A mask is a mask of keys, for each element of the batch. A fully masked row is NaN.
"""

from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.attention_arguments import Projections, with_projections
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("monai")


def _heads(x: Any, weights: Projections, num_heads: int, mask: Any = None, **options: Any) -> Any:
    """The output of the block with one matrix for queries, keys and values, and biases of 0."""
    import torch
    from monai.networks.blocks import SABlock

    *inputs, wo = weights
    width = weights.wq.shape[1]
    if 0 in x.shape or width != x.shape[-1]:
        raise ValueError(
            f"x has shape {x.shape} and the heads together have {width} channels, "
            "but x should be equally wide, and every size positive."
        )
    with torch.device("meta"):
        block = SABlock(x.shape[-1], num_heads, **options).eval()
    block.qkv.weight = torch.nn.Parameter(torch.cat(inputs, dim=1).T)
    block.out_proj.weight, block.out_proj.bias = torch.nn.Parameter(wo.T), torch.nn.Parameter(wo.new_zeros(wo.shape[1]))
    with torch.no_grad():
        return block(x, attn_mask=mask)


def _table(seq_len: int, embed_dim: int, start_pos: int = 0) -> Any:
    import torch
    from monai.networks.nets.diffusion_model_unet import get_timestep_embedding

    if embed_dim % 2 or not embed_dim:
        raise ValueError(f"embed_dim={embed_dim}, but should be even, as a column of 0 is added, and positive.")
    cos, sin = get_timestep_embedding(torch.arange(start_pos, start_pos + seq_len), embed_dim).chunk(2, dim=-1)
    return torch.cat([sin, cos], dim=-1)


def _implementation(name: str, operations: Any, *supports: Any, **promises: Any) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} float32"),
        operations=operations,
        arithmetic="float32",
        arrays="torch",
        supports=["positive sizes", *supports],
        refuses=(RuntimeError, ValueError, ZeroDivisionError),
        unavailable=_LIBRARY.unavailable,
        **promises,
    )


_SQUARE = {"model_dim_minus_heads_width": [0]}
_TWINS = {
    "save_attn": Twin({"multi_head_attention": with_projections(partial(_heads, save_attn=True))}, exactly=True),
    "use_flash_attention, without masks": Twin(
        {"multi_head_attention": with_projections(partial(_heads, use_flash_attention=True))},
        promises={"supports": ["positive sizes", "no masks", _SQUARE]},
    ),
}

IMPLEMENTATIONS = [
    _implementation(
        "SABlock", {"multi_head_attention": with_projections(_heads)}, "padding masks", _SQUARE,
        conventions=Conventions(dead_rows="nan"), batch_ranks=(1,), twins=_TWINS,
    ),
    _implementation(
        "get_timestep_embedding", {"sinusoidal_positional_encoding": _table},
        {"embed_dim": lambda d: d > 0 and d % 2 == 0},
        conventions=Conventions(sinusoid_layout="concatenated"),
    ),
]  # fmt: skip
