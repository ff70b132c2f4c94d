"""tinygrad's `scaled_dot_product_attention` on the CPU, where it compiles each shape with clang, or
in its emulator if clang is missing.

tinygrad never masks the only key of a query (see the findings), so the adapter refuses one key.
"""

from shutil import which
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.peers.jax_arrays import SIZES
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

TINYGRAD = Library("tinygrad")
_DEVICE = "CPU" if which("clang") else "PYTHON"


def _attend(q: Any, k: Any, v: Any, mask: Any = None, **options: Any) -> Any:
    from tinygrad import Context, Tensor

    if k.shape[-2] == 1:
        raise ValueError("There is one key, but there should be more.")
    with Context(DEV=_DEVICE):
        visible = None if mask is None else Tensor(mask)
        return Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), attn_mask=visible, **options).numpy()


def _causal(q: Any, k: Any, v: Any) -> Any:
    return _attend(q, k, v, is_causal=True)


def _grouped(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return _attend(q, k, v, mask, enable_gqa=True)


IMPLEMENTATIONS = [
    Implementation(
        name=TINYGRAD.called(f"attention on {_DEVICE} float32"),
        operations={
            "scaled_dot_product_attention": _attend,
            "causal_attention": _causal,
            "grouped_query_attention": _grouped,
        },
        arithmetic="float32",
        conventions=Conventions(dead_rows="nan"),
        batch_ranks=(2,),
        supports=["positive sizes", "at most 8 shapes", SIZES | {"n_k": (2, 3, 17)}],
        refuses=(Exception,),
        unavailable=TINYGRAD.unavailable,
    )
]
