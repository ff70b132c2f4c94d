"""ESM, of Facebook: the rotation and the attention of its protein models, and the sinusoids of the
first ones.

Rows are rotated from position 0. Attention calls PyTorch's function; if the caller wants the
weights of each head, it is written out. Both paths take a mask that is −∞ at masked keys.
"""

from functools import cache, partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.attention_arguments import Projections, with_projections
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("fair-esm", "esm")


@cache
def _module(dim: int) -> Any:
    """The rotation of a width, one module for all lengths, as in a model."""
    from esm.rotary_embedding import RotaryEmbedding

    return RotaryEmbedding(dim)


def _rope(x: Any, start_pos: int = 0) -> Any:
    _even(x)
    if start_pos:
        raise ValueError(f"start_pos={start_pos}, but rows should start at 0.")
    rows = x.reshape(-1, *x.shape[-2:])
    return _module(x.shape[-1])(rows, rows)[0].reshape(x.shape)


def _apply(x: Any, cos: Any, sin: Any) -> Any:
    from esm.rotary_embedding import apply_rotary_pos_emb

    _even(x)
    return apply_rotary_pos_emb(x.reshape(-1, *x.shape[-2:]), cos[None], sin[None]).reshape(x.shape)


def _rotate_half(x: Any) -> Any:
    from esm.rotary_embedding import rotate_half

    _even(x)
    return rotate_half(x)


def _even(x: Any) -> None:
    """Refuse an odd width, which has no two equal halves."""
    if x.shape[-1] % 2:
        raise ValueError(f"x has {x.shape[-1]} channels, but should have an even number of them.")


def _heads(with_weights: bool, x: Any, weights: Projections, num_heads: int, mask: Any = None) -> Any:
    """The output of the module with these weights, and biases of 0."""
    import torch
    from esm.multihead_attention import MultiheadAttention

    width = weights.wq.shape[1]
    if 0 in x.shape or width != x.shape[-1]:
        raise ValueError(
            f"x has shape {x.shape} and the heads together have {width} channels, "
            "but x should be equally wide, and every size positive."
        )
    with torch.device("meta"):
        module = MultiheadAttention(x.shape[-1], num_heads).eval()
    layers = module.q_proj, module.k_proj, module.v_proj, module.out_proj
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight = torch.nn.Parameter(weight.T)
        layer.bias = torch.nn.Parameter(weight.new_zeros(weight.shape[1]))
    rows = x[:, None]
    with torch.no_grad():
        return module(rows, rows, rows, attn_mask=mask, need_head_weights=with_weights)[0][:, 0]


def _table(seq_len: int, embed_dim: int, start_pos: int = 0) -> Any:
    from esm.modules import SinusoidalPositionalEmbedding

    if embed_dim % 2:
        raise ValueError(f"embed_dim={embed_dim}, but should be even, as a column of 0 is added.")
    return SinusoidalPositionalEmbedding(embed_dim, padding_idx=None).get_embedding(start_pos + seq_len)[start_pos:]


def _implementation(name: str, arithmetic: Any, operations: Any, *supports: Any, **promises: Any) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} {arithmetic}"),
        operations=operations,
        arithmetic=arithmetic,
        arrays="torch",
        supports=["positive sizes", *supports],
        refuses=(RuntimeError, ValueError, AssertionError, ZeroDivisionError),
        unavailable=_LIBRARY.unavailable,
        **promises,
    )


_MODULE, _WITH_WEIGHTS = (with_projections(partial(_heads, each)) for each in (False, True))

IMPLEMENTATIONS = [
    _implementation(
        "RotaryEmbedding", "float32", {"rope": _rope, "apply_rotary": _apply, "rotate_half": _rotate_half},
        {"head_dim": lambda d: d % 2 == 0, "start_pos": [0]},
        conventions=Conventions(rope_pairing="half", odd_lane="reject"),
    ),
    *(
        _implementation(
            "MultiheadAttention", arithmetic, {"multi_head_attention": _MODULE},
            "full masks", "additive masks", {"model_dim_minus_heads_width": [0]},
            conventions=Conventions(dead_rows="nan"), batch_ranks=(0,),
            twins={"need_head_weights": {"multi_head_attention": _WITH_WEIGHTS}},
        )
        for arithmetic in ("float32", "float16-eager")
    ),
    _implementation(
        "SinusoidalPositionalEmbedding", "float32", {"sinusoidal_positional_encoding": _table},
        {"embed_dim": lambda d: d % 2 == 0 and d > 2, "start_pos": lambda p: p <= 4096},
        conventions=Conventions(sinusoid_layout="tensor2tensor"),
    ),
]  # fmt: skip
