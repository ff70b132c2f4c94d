"""diffusers: `Attention` by its processors, `get_timestep_embedding`, sine tables, and
`get_1d_rotary_pos_embed` with `apply_rotary_emb`.

A mask is a number that is added to the scores, for all heads of a batch. For a fully masked row the
processor over PyTorch's kernel returns 0, and the others NaN.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.attention_arguments import Projections, with_projections
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("diffusers")


def _heads(processor: str, x: Any, weights: Projections, num_heads: int, mask: Any = None) -> Any:
    """The output of the module with these weights and no biases, by the processor of this name.

    Its mask is 0 or −∞, for each element of the batch.
    """
    import torch
    from diffusers.models import attention_processor as module

    width, d = weights.wq.shape[1], x.shape[-1]
    with torch.device("meta"):
        attention = module.Attention(d, heads=num_heads, dim_head=width // num_heads, out_bias=False).eval()
    layers = attention.to_q, attention.to_k, attention.to_v, attention.to_out[0]
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight = torch.nn.Parameter(weight.T)
    attention.set_processor(getattr(module, processor)(*(1,) if processor.startswith("Sliced") else ()))
    rows, added = x.reshape(-1, *x.shape[-2:]), None
    if mask is not None:
        full = mask.expand(*x.shape[:-1], x.shape[-2]).reshape(len(rows), *2 * x.shape[-2:-1])
        added = torch.zeros(full.shape, dtype=x.dtype).masked_fill_(~full, -torch.inf)
    with torch.no_grad():
        return attention(rows, attention_mask=added).reshape(x.shape)


def _timesteps(shift: float, seq_len: int, embed_dim: int, start_pos: int = 0) -> Any:
    import torch
    from diffusers.models.embeddings import get_timestep_embedding

    if not shift and embed_dim % 2:
        raise ValueError(f"embed_dim={embed_dim}, but should be even: a column of 0 is added.")
    return get_timestep_embedding(torch.arange(start_pos, start_pos + seq_len), embed_dim, downscale_freq_shift=shift)


def _grid(seq_len: int, embed_dim: int, start_pos: int = 0) -> Any:
    import torch
    from diffusers.models.embeddings import get_1d_sincos_pos_embed_from_grid

    return get_1d_sincos_pos_embed_from_grid(embed_dim, torch.arange(start_pos, start_pos + seq_len))


def _tables(interleaved: bool, seq_len: int, head_dim: int, start_pos: int = 0) -> Any:
    import torch
    from diffusers.models.embeddings import get_1d_rotary_pos_embed

    positions = torch.arange(start_pos, start_pos + seq_len)
    return get_1d_rotary_pos_embed(head_dim, positions, use_real=True, repeat_interleave_real=interleaved)


def _apply(interleaved: bool, x: Any, cos: Any, sin: Any) -> Any:
    from diffusers.models.embeddings import apply_rotary_emb

    rows = x.reshape(-1, 1, *x.shape[-2:])
    return apply_rotary_emb(rows, (cos, sin), use_real_unbind_dim=-1 if interleaved else -2).reshape(x.shape)


def _rope(interleaved: bool, x: Any, start_pos: int = 0) -> Any:
    return _apply(interleaved, x, *_tables(interleaved, x.shape[-2], x.shape[-1], start_pos))


def _implementation(
    name: str, arithmetic: str, operations: dict[str, Callable[..., Any]], **promises: Any
) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} {arithmetic}"),
        operations=operations,
        arithmetic=arithmetic,
        arrays="torch",
        unavailable=_LIBRARY.unavailable,
        **{"refuses": (RuntimeError, ValueError, AssertionError, ZeroDivisionError), **promises},
    )


def _by(processor: str) -> Callable[..., Any]:
    return with_projections(partial(_heads, processor))


def _processor(name: str, dead_rows: Any, arithmetic: str = "float32") -> Implementation:
    return _implementation(
        name, arithmetic, {"multi_head_attention": _by(name)}, conventions=Conventions(dead_rows=dead_rows),
        supports=_TAKES, twins=_TWINS.get(name, {}),
    )  # fmt: skip


def _table(
    name: str, arithmetic: str, layout: Any, table: Callable[..., Any], least: int = 1, **promises: Any
) -> Implementation:
    return _implementation(
        name, arithmetic, {"sinusoidal_positional_encoding": table}, conventions=Conventions(sinusoid_layout=layout),
        supports=["positive sizes", {"embed_dim": lambda d: d > least and d % 2 == 0}], **promises,
    )  # fmt: skip


def _rotary(name: str, interleaved: bool) -> Implementation:
    functions: dict[str, Callable[..., Any]] = {"rope": _rope, "rope_tables": _tables, "apply_rotary": _apply}
    return _implementation(
        f"get_1d_rotary_pos_embed, {name}", "float32", {o: partial(f, interleaved) for o, f in functions.items()},
        conventions=Conventions(rope_pairing="adjacent" if interleaved else "half", odd_lane="reject"),
        supports=["positive sizes", {"head_dim": lambda d: d > 0 and d % 2 == 0}],
    )  # fmt: skip


_TAKES = ["positive sizes", {"model_dim_minus_heads_width": [0]}]
_TWINS = {
    "AttnProcessor": {
        "SlicedAttnProcessor": {"multi_head_attention": _by("SlicedAttnProcessor")},
        "AttnProcessor2_0, without masks": Twin(
            {"multi_head_attention": _by("AttnProcessor2_0")}, promises={"supports": [*_TAKES, "no masks"]}
        ),
    }
}

_NAN = {"unsupported sizes are refused": "A timestep embedding of width 2 or 3 is NaN"}

IMPLEMENTATIONS = [
    _processor("AttnProcessor", "nan"),
    _processor("AttnProcessor2_0", "zero"),
    _processor("SlicedAttnProcessor", "nan"),
    _processor("AttnProcessor", "nan", "float16-eager"),
    _processor("AttnProcessor2_0", "zero", "float16"),
    _table(
        "get_timestep_embedding, shift 1",
        "float32",
        "tensor2tensor",
        partial(_timesteps, 1.0),
        2,
        known_deviations=_NAN,
    ),
    _table("get_timestep_embedding, shift 0", "float32", "concatenated", partial(_timesteps, 0.0)),
    _table("get_1d_sincos_pos_embed_from_grid", "float64", "concatenated", _grid),
    _rotary("pairs in turn", True),
    _rotary("halves", False),
]
