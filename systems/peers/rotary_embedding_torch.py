"""rotary-embedding-torch: `rotate_queries_or_keys`, by a new object for each call and by one object
for all calls of a width, and at given positions.

An object keeps the angles of its first positions for later calls. Frequencies are a parameter, and
the caller may give them. The library cannot build a width of 2. For an odd width it does not rotate
the last channel, or refuses a call that would keep angles.
"""

from functools import cache, partial
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from properties.contract.twins import Twin
from systems.peers.library import Library
from systems.peers.narrow import ROTATION

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("rotary-embedding-torch", "rotary_embedding_torch")


def _module(dim: int, inv_freq: Any = None) -> Any:
    from rotary_embedding_torch import RotaryEmbedding

    return RotaryEmbedding(dim, custom_freqs=inv_freq)


def _rope(make: Any, x: Any, start_pos: int = 0) -> Any:
    return make(x.shape[-1]).rotate_queries_or_keys(x, offset=start_pos)


def _after_bfloat16(x: Any, start_pos: int = 0) -> Any:
    """x rotated by an object that has already rotated 1024 rows in bfloat16."""
    import torch

    module = _module(x.shape[-1])
    module.rotate_queries_or_keys(torch.zeros(1024, x.shape[-1], dtype=torch.bfloat16))
    return module.rotate_queries_or_keys(x, offset=start_pos)


def _at(x: Any, start_pos: int = 0, *, positions: Any = None, inv_freq: Any = None) -> Any:
    """x rotated at any positions, by `forward` and `apply_rotary_emb`.

    The rows get an axis of heads, because rows of three axes share one sequence of angles.
    """
    import torch
    from rotary_embedding_torch import apply_rotary_emb

    if positions is None:
        positions = torch.arange(start_pos, start_pos + x.shape[-2])
    by_row = torch.as_tensor(positions).expand(x.shape[:-1]).reshape(-1, x.shape[-2])
    angles = _module(x.shape[-1], inv_freq)(by_row)[:, None]
    return apply_rotary_emb(angles, x.reshape(-1, 1, *x.shape[-2:])).reshape(x.shape)


def _vjp(rope: Any, x: Any, grad_out: Any, start_pos: int = 0, **options: Any) -> Any:
    import torch

    inputs = x.requires_grad_()
    return torch.autograd.grad(rope(inputs, start_pos, **options), inputs, grad_out)[0]


def _both(rope: Any) -> dict[str, Any]:
    return {"rope": rope, "rope_vjp": partial(_vjp, rope)}


def _implementation(
    name: str,
    arithmetic: str,
    operations: dict[str, Any],
    features: tuple[str, ...] = (),
    sizes: dict[str, Any] | None = None,
    **promises: Any,
) -> Implementation:
    return Implementation(
        name=_LIBRARY.called(f"{name} {arithmetic}"),
        operations=operations,
        arithmetic=ROTATION.get(arithmetic, arithmetic),
        arrays="torch",
        conventions=Conventions(odd_lane="passthrough"),
        supports=["positive sizes", {"head_dim": lambda d: d > 2 and d % 2 == 0, **(sizes or {})}],
        refuses=(RuntimeError, ZeroDivisionError, AssertionError, ValueError),
        features=features,
        unavailable=_LIBRARY.unavailable,
        **promises,
    )


_EXACT = {"start_pos": lambda p: p <= 64, "seq_len": lambda n: n <= 128}  # positions to 256 are exact in bfloat16
_COUNTED = {
    "unsupported sizes are refused": "Positions are counted in the type of the queries: in bfloat16, 257 is 256"
}
_ONE = {"one object": Twin({"rope": partial(_rope, cache(_module))}, exactly=True)}
_AFTER = {"after a call in bfloat16": {"rope": _after_bfloat16}}
_SPOILED = {
    "all code paths of an implementation give the same result[rope]": "A call in bfloat16 spoils the table "
    "for later calls in float32"
}

IMPLEMENTATIONS = [
    _implementation("rotate_queries_or_keys", "float32", _both(partial(_rope, _module)), twins=_ONE),
    _implementation(
        "rotate_queries_or_keys, one object",
        "float32",
        _both(partial(_rope, cache(_module))),
        twins=_AFTER,
        known_deviations=_SPOILED,
    ),
    _implementation("apply_rotary_emb", "float32", _both(_at), ("positions", "inv_freq")),
    _implementation("apply_rotary_emb", "bfloat16", {"rope": _at}, ("positions",)),
    _implementation(
        "rotate_queries_or_keys", "bfloat16", {"rope": partial(_rope, _module)}, sizes=_EXACT, known_deviations=_COUNTED
    ),
]
