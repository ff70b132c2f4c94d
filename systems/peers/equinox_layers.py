"""Equinox: `nn.MultiheadAttention`, and `nn.RotaryPositionalEmbedding`.

Both take one sequence, (sequence, width). The rotation begins at position 0, and its module keeps
the tables in a dictionary.
"""

from functools import partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.attention_arguments import Projections
from systems.peers.flax_attention import heads_of
from systems.peers.jax_arrays import SHAPES, SIZES, arrays, vjp
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

EQUINOX = Library("equinox")


def _heads(x: Any, weights: Projections, num_heads: int, mask: Any = None, **options: Any) -> Any:
    import equinox
    import jax

    model_dim, width = weights.wq.shape[0], weights.wq.shape[1] // num_heads
    module = equinox.nn.MultiheadAttention(
        num_heads, model_dim, qk_size=width, vo_size=width, key=jax.random.key(0), **options
    )

    def places(module: Any) -> list[Any]:
        return [getattr(module, f"{name}_proj").weight for name in ("query", "key", "value", "output")]

    module = equinox.tree_at(places, module, [weight.T for weight in weights])
    return module(x, x, x, mask=mask)


def _rope(theta: float, x: Any, start_pos: int = 0) -> Any:
    import equinox

    if start_pos:
        raise ValueError(f"The first position is {start_pos}, but should be 0.")
    return equinox.nn.RotaryPositionalEmbedding(x.shape[-1], theta, x.dtype)(x)


def _second(x: Any, start_pos: int = 0) -> Any:
    """The rotation of a layer with theta 500, after a layer with the usual theta 10000."""
    _rope(10000.0, x, start_pos)
    return _rope(500.0, x, start_pos)


def _rope_vjp(x: Any, grad_out: Any, start_pos: int = 0) -> Any:
    return vjp(lambda x: _rope(10000.0, x, start_pos), (x,), grad_out)[0]


def _rotation(name: str, theta: float, arithmetic: str, operations: dict[str, Any], **promises: Any) -> Implementation:
    return Implementation(
        name=EQUINOX.called(f"{name} {arithmetic}"),
        operations=operations,
        arithmetic=arithmetic,
        conventions=Conventions(rope_pairing="half", odd_lane="reject", rope_base=theta),
        arrays=arrays,
        supports=[SHAPES, "no batch axes", "positive sizes", SIZES | {"start_pos": (0,), "head_dim": (4, 6)}],
        unavailable=EQUINOX.unavailable,
        **promises,
    )


_ROPE: dict[str, Any] = {"rope": partial(_rope, 10000.0), "rope_vjp": _rope_vjp}
_CACHED = dict.fromkeys(
    (
        "rope is within its error limit",
        "unsupported sizes are refused",
        "calls of other sizes or implementations do not change later results",
    ),
    "Two rotations of one width share the tables of whichever is called first",
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
        twins={"inference, with dropout_p": heads_of(partial(_heads, dropout_p=0.5, inference=True))},
    ),
    _rotation("rotary", 10000.0, "float32", _ROPE),
    _rotation("rotary", 10000.0, "bfloat16-elementwise", _ROPE),
    _rotation("rotary beside another", 500.0, "float32", {"rope": _second}, known_deviations=_CACHED),
]
