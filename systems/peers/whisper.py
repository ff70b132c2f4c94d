"""Whisper, of OpenAI: `MultiHeadAttention` by both of its paths, and the `sinusoids` of its
encoder.

The path over PyTorch's kernel ignores the entries of a mask, and is causal if the caller gives one.
The written-out path adds the mask to the scores.
"""

from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.attention_arguments import Projections, with_projections
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("openai-whisper", "whisper")


def _module(n_state: int, n_head: int) -> Any:
    import torch
    from whisper.model import MultiHeadAttention

    with torch.device("meta"):
        return MultiHeadAttention(n_state, n_head)


def _causal(q: Any, k: Any, v: Any) -> Any:
    import torch

    mask = torch.full((q.shape[-2], q.shape[-2]), -torch.inf).triu_(1)
    return _module(q.shape[-1], 1).qkv_attention(q, k, v, mask)[0]


def _causal_written_out(q: Any, k: Any, v: Any) -> Any:
    from whisper.model import disable_sdpa

    with disable_sdpa():
        return _causal(q, k, v)


def _heads(x: Any, weights: Projections, num_heads: int, mask: Any = None) -> Any:
    """The output of the module by its written-out path, with biases of 0."""
    import torch
    from whisper.model import disable_sdpa

    module = _module(x.shape[-1], num_heads)
    for layer, weight in zip((module.query, module.key, module.value, module.out), weights, strict=True):
        layer.weight = torch.nn.Parameter(weight.T)
        layer.bias = None if layer.bias is None else torch.nn.Parameter(torch.zeros(weight.shape[1]))
    with disable_sdpa(), torch.no_grad():
        return module(x[None], mask=mask)[0][0]


def _table(seq_len: int, embed_dim: int, start_pos: int = 0) -> Any:
    from whisper.model import sinusoids

    if embed_dim == 2:
        raise ValueError("embed_dim=2, but should be 4 or more: one frequency has no even spacing.")
    return sinusoids(start_pos + seq_len, embed_dim)[start_pos:]


def _implementation(name: str, arithmetic: str, **promises: Any) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} {arithmetic}"),
        arithmetic=arithmetic,
        arrays="torch",
        refuses=(RuntimeError, ValueError, AssertionError, ZeroDivisionError),
        unavailable=_LIBRARY.unavailable,
        **promises,
    )


_ARITHMETIC = {"float32": "float32", "float16": "float16-eager"}
"""The arithmetic of PyTorch's kernel, and of the written-out path."""

IMPLEMENTATIONS = [
    *(
        _implementation(
            "qkv_attention", kernel, operations={"causal_attention": _causal}, batch_ranks=(1,),
            supports=["positive sizes", {"n_k_minus_n_q": [0], "value_dim_minus_head_dim": [0]}],
            twins={
                "written out": Twin({"causal_attention": _causal_written_out}, promises={"arithmetic": written_out})
            },
            known_deviations={
                "unsupported sizes are refused": "Several tokens behind a cache see the first keys alone"
            },
        )
        for kernel, written_out in _ARITHMETIC.items()
    ),
    _implementation(
        "MultiHeadAttention, written out", "float32", operations={"multi_head_attention": with_projections(_heads)},
        batch_ranks=(0,),
        conventions=Conventions(dead_rows="nan"),
        supports=["positive sizes", "full masks", "additive masks", {"model_dim_minus_heads_width": [0]}],
    ),
    _implementation(
        "sinusoids", "float32", operations={"sinusoidal_positional_encoding": _table},
        conventions=Conventions(sinusoid_layout="tensor2tensor"),
        supports=["positive sizes", {"embed_dim": lambda d: d % 2 == 0 and d > 2, "start_pos": lambda p: p <= 4096}],
    ),
]  # fmt: skip
