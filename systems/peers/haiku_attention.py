"""Haiku's `MultiHeadAttention`, whose masked scores are −10³⁰."""

from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.peers.flax_attention import heads_of
from systems.peers.jax_arrays import SHAPES, SIZES, arrays
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

HAIKU = Library("dm-haiku", "haiku")


def _heads(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any = None) -> Any:
    import haiku

    def forward(x: Any, mask: Any) -> Any:
        module = haiku.MultiHeadAttention(
            num_heads,
            wq.shape[1] // num_heads,
            w_init=haiku.initializers.Constant(0),
            with_bias=False,
            model_size=wo.shape[1],
            name="mha",
        )
        return module(x, x, x, mask)

    params = {
        f"mha/{name}": {"w": w} for name, w in zip(("query", "key", "value", "linear"), (wq, wk, wv, wo), strict=True)
    }
    given = mask if mask is None else mask.reshape((1,) * (x.ndim - mask.ndim) + mask.shape)[..., None, :, :]
    return haiku.transform(forward).apply(params, None, x, given)


IMPLEMENTATIONS = [
    Implementation(
        name=HAIKU.called("MultiHeadAttention float32"),
        operations=heads_of(_heads),
        arithmetic="float32",
        conventions=Conventions(dead_rows="uniform"),
        arrays=arrays,
        batch_ranks=(0, 1),
        supports=[SHAPES, "positive sizes", SIZES],
        refuses=(ValueError, TypeError, ZeroDivisionError),
        unavailable=HAIKU.unavailable,
    )
]
