"""Haiku's `MultiHeadAttention`, which sets masked scores to −10³⁰."""

from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.attention_arguments import Projections
from systems.peers.flax_attention import heads_of
from systems.peers.jax_arrays import SHAPES, SIZES, arrays
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

HAIKU = Library("dm-haiku", "haiku")


def _heads(x: Any, weights: Projections, num_heads: int, mask: Any = None) -> Any:
    import haiku

    def forward(x: Any, mask: Any) -> Any:
        module = haiku.MultiHeadAttention(
            num_heads,
            weights.wq.shape[1] // num_heads,
            w_init=haiku.initializers.Constant(0),
            with_bias=False,
            model_size=weights.wo.shape[1],
            name="mha",
        )
        return module(x, x, x, mask)

    params = {
        f"mha/{name}": {"w": weight} for name, weight in zip(("query", "key", "value", "linear"), weights, strict=True)
    }
    by_head = mask if mask is None else mask.reshape((1,) * (x.ndim - mask.ndim) + mask.shape)[..., None, :, :]
    return haiku.transform(forward).apply(params, None, x, by_head)


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
