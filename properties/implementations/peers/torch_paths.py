"""PyTorch once more: `causal_upper_left` and `causal_lower_right` as objects, made of the sizes of each call.

`properties.implementations` has its kernels, its module on all paths, and attention written by hand and compiled.
"""

from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.implementations.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("torch")


def _biased(name: str, q: Any, k: Any, v: Any) -> Any:
    from torch.nn.attention import bias
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(q, k, v, attn_mask=getattr(bias, name)(q.shape[-2], k.shape[-2]))


def _implementation(name: str, operation: str, function: Any, **promises: Any) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} float32"),
        operations={operation: function},
        arithmetic="float32",
        arrays="torch",
        batch_ranks=(2,),
        refuses=(RuntimeError, ValueError),
        unavailable=_LIBRARY.unavailable,
        **promises,
    )


IMPLEMENTATIONS = [
    _implementation(name, "causal_attention", partial(_biased, name), conventions=Conventions(causal=alignment), supports="positive sizes")
    for name, alignment in (("causal_upper_left", "top_left"), ("causal_lower_right", "bottom_right"))
]
