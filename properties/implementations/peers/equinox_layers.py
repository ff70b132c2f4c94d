"""Equinox: `nn.MultiheadAttention`, and `nn.RotaryPositionalEmbedding`.

Both take one sequence, (sequence, width). The rotation begins at position 0, and keeps its tables in a dictionary of the module.
"""

from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.implementations.peers.flax_attention import heads_of
from properties.implementations.peers.jax_arrays import SHAPES, SIZES, arrays, vjp
from properties.implementations.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

EQUINOX = Library("equinox")


def _heads(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any = None) -> Any:
    import equinox
    import jax

    width = wq.shape[1] // num_heads
    module = equinox.nn.MultiheadAttention(num_heads, len(wq), qk_size=width, vo_size=width, key=jax.random.key(0))

    def places(module: Any) -> list[Any]:
        return [getattr(module, f"{name}_proj").weight for name in ("query", "key", "value", "output")]

    module = equinox.tree_at(places, module, [w.T for w in (wq, wk, wv, wo)])
    return module(x, x, x, mask=mask)


def _rope(theta: float, x: Any, start_pos: int = 0) -> Any:
    import equinox

    return equinox.nn.RotaryPositionalEmbedding(x.shape[-1], theta, x.dtype)(x)


def _rope_vjp(theta: float, x: Any, grad_out: Any, start_pos: int = 0) -> Any:
    return vjp(lambda x: _rope(theta, x), (x,), grad_out)[0]


def _rotation(theta: float, arithmetic: str, **promises: Any) -> Implementation:
    from functools import partial

    return Implementation(
        name=EQUINOX.called(f"rotary, theta {theta:g}, {arithmetic}"),
        operations={"rope": partial(_rope, theta), "rope_vjp": partial(_rope_vjp, theta)},
        arithmetic=arithmetic,
        conventions=Conventions(rope_pairing="half", odd_lane="reject", rope_base=theta),
        arrays=arrays,
        supports=[SHAPES, "no batch axes", "positive sizes", SIZES | {"start_pos": (0,), "head_dim": (2, 4, 6)}],
        unavailable=EQUINOX.unavailable,
        **promises,
    )


IMPLEMENTATIONS = [
    Implementation(
        name=EQUINOX.called("MultiheadAttention float32"),
        operations=heads_of(_heads),
        arithmetic="float32",
        conventions=Conventions(dead_rows="uniform"),
        arrays=arrays,
        supports=[SHAPES, "no batch axes", "full masks", "positive sizes", SIZES],
        refuses=(ValueError, TypeError, ZeroDivisionError),
        unavailable=EQUINOX.unavailable,
    ),
    _rotation(10000.0, "float32"),
    _rotation(500.0, "float32"),
    _rotation(10000.0, "bfloat16"),
]
