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


_ALIGNED = {"causal_upper_left": Conventions(causal="top_left"), "causal_lower_right": Conventions(causal="bottom_right")}

IMPLEMENTATIONS = [
    Implementation(
        name=_LIBRARY.called(f"{name} float32"),
        operations={"causal_attention": partial(_biased, name)},
        arithmetic="float32",
        conventions=conventions,
        arrays="torch",
        batch_ranks=(2,),
        supports="positive sizes",
        refuses=(RuntimeError, ValueError),
        unavailable=_LIBRARY.unavailable,
    )
    for name, conventions in _ALIGNED.items()
]
