"""ESM, of Facebook: the rotation and the attention of its protein models, and the sinusoids of the
first ones.

Rows are rotated from position 0. Attention goes to PyTorch's function, or, where the weights of
each head are asked for, is written out; a mask of either is −∞ where it masks.
"""

from functools import cache, partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("fair-esm", "esm")


@cache
def _module(dim: int) -> Any:
    """One for all lengths of a width, as in a model."""
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
    """Refuses an odd width, whose halves are not alike."""
    if x.shape[-1] % 2:
        raise ValueError(f"x has {x.shape[-1]} channels, but should have an even number of them.")


def _heads(each: bool, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any = None) -> Any:
    """The module with biases of 0, its weights those given."""
    import torch
    from esm.multihead_attention import MultiheadAttention

    if 0 in x.shape or wq.shape[1] != x.shape[-1]:
        raise ValueError(
            f"x has shape {x.shape} and the heads are {wq.shape[1]} channels wide, but they should be as wide, and no size 0."
        )
    with torch.device("meta"):
        module = MultiheadAttention(x.shape[-1], num_heads).eval()
    for layer, w in zip((module.q_proj, module.k_proj, module.v_proj, module.out_proj), (wq, wk, wv, wo), strict=True):
        layer.weight, layer.bias = torch.nn.Parameter(w.T), torch.nn.Parameter(w.new_zeros(w.shape[1]))
    rows = x[:, None]
    with torch.no_grad():
        return module(rows, rows, rows, attn_mask=mask, need_head_weights=each)[0][:, 0]


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


IMPLEMENTATIONS = [
    _implementation(
        "RotaryEmbedding", "float32", {"rope": _rope, "apply_rotary": _apply, "rotate_half": _rotate_half},
        {"head_dim": lambda d: d % 2 == 0, "start_pos": [0]}, conventions=Conventions(rope_pairing="half", odd_lane="reject"),
    ),
    *(
        _implementation(
            "MultiheadAttention", arithmetic, {"multi_head_attention": partial(_heads, False)},
            "full masks", "additive masks", {"model_dim_minus_heads_width": [0]},
            conventions=Conventions(dead_rows="nan"), batch_ranks=(0,),
            twins={"need_head_weights": {"multi_head_attention": partial(_heads, True)}},
        )
        for arithmetic in ("float32", "float16-eager")
    ),
    _implementation(
        "SinusoidalPositionalEmbedding", "float32", {"sinusoidal_positional_encoding": _table},
        {"embed_dim": lambda d: d % 2 == 0 and d > 2, "start_pos": lambda p: p <= 4096},
        conventions=Conventions(sinusoid_layout="tensor2tensor"),
    ),
]  # fmt: skip
