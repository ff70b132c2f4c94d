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


def _biased(name: str, q: Any, k: Any, v: Any, written_out: bool = False) -> Any:
    """By the object, or by the mask of booleans that it stands for."""
    import torch
    from torch.nn.attention import bias
    from torch.nn.functional import scaled_dot_product_attention

    n_q, n_k = q.shape[-2], k.shape[-2]
    last = n_k - n_q if name == "causal_lower_right" else 0
    mask = torch.ones(n_q, n_k, dtype=torch.bool).tril(last) if written_out else getattr(bias, name)(n_q, n_k)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask)


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
        twins={"a mask of booleans": {"causal_attention": partial(_biased, name, written_out=True)}},
    )
    for name, conventions in _ALIGNED.items()
]
