"""memory-efficient-attention-pytorch: its attention over chunks, its attention without chunks, and
its flash attention, written by hand with a backward.

A chunk has sixteen queries and twelve keys, so longer calls have several chunks. `attention` aligns
causality at the last key, `memory_efficient_attention` at the first. Causal flash attention runs
here with as many keys as queries; for other sizes see the findings. Its values are as wide as its
keys.
"""

from functools import partial
from importlib import import_module
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("memory-efficient-attention-pytorch", "memory_efficient_attention_pytorch")
_CHUNKS = {"q_bucket_size": 16, "k_bucket_size": 12}


def _chunked(name: str, q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False) -> Any:
    # An import statement would find the function of the same name.
    module = import_module("memory_efficient_attention_pytorch.memory_efficient_attention")
    one_head = (x[:, None] for x in (q, k, v))
    return getattr(module, name)(*one_head, mask=mask, causal=causal, **_CHUNKS)[:, 0]


def _flash(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False) -> Any:
    from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

    if v.shape[-1] != q.shape[-1] or (causal and k.shape[-2] != q.shape[-2]):
        raise ValueError(
            f"q has shape {q.shape}, k {k.shape} and v {v.shape}, but they should be equally wide, "
            "and equally long with causality."
        )
    full = None if mask is None else mask.expand(*q.shape[:-1], k.shape[-2])
    return FlashAttentionFunction.apply(q, k, v, full, causal, *_CHUNKS.values())


def _vjp(attend: Any, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> Any:
    import torch

    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    torch.autograd.backward(attend(*inputs, mask), grad_out)  # its checkpoints refuse torch.autograd.grad
    return tuple(x.grad for x in inputs)


def _all(attend: Any) -> dict[str, Any]:
    return {"scaled_dot_product_attention": attend, "scaled_dot_product_attention_vjp": partial(_vjp, attend)}


def _causal(attend: Any) -> dict[str, Any]:
    return {"causal_attention": partial(attend, causal=True)}


def _implementation(name: str, operations: dict[str, Any], *supports: Any, **promises: Any) -> Implementation:
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


_EQUAL = {"value_dim_minus_head_dim": [0]}
_NAMES = {"attention": "bottom_right", "memory_efficient_attention": "top_left"}

IMPLEMENTATIONS = [
    *(
        _implementation(
            name, _all(partial(_chunked, name)) | _causal(partial(_chunked, name)), "padding masks",
            batch_ranks=(1,), conventions=Conventions(dead_rows="uniform", causal=causal),  # type: ignore[arg-type]
            twins={} if name == "attention" else {"at once": _all(partial(_chunked, "attention"))},
        )
        for name, causal in _NAMES.items()
    ),
    _implementation("FlashAttentionFunction", _all(_flash), _EQUAL, batch_ranks=(2,)),
    _implementation(
        "FlashAttentionFunction, causal", _causal(_flash), _EQUAL | {"n_k_minus_n_q": [0]}, batch_ranks=(2,)
    ),
]  # fmt: skip
