"""keras-hub: `RotaryEmbedding`, `SinePositionEncoding` and `AlibiBias`, on each of Keras' back ends."""

from typing import Any

import numpy as np

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.peers.jax_arrays import SHAPES, SIZES
from systems.peers.keras_attention import BACKENDS, unavailable
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

HUB = Library("keras-hub", "keras_hub")


def _out(x: Any) -> Any:
    from keras import ops

    return ops.convert_to_numpy(x)


def _rope(x: Any, start_pos: int = 0, *, positions: Any = None) -> Any:
    from keras_hub.layers import RotaryEmbedding

    at = None if positions is None else np.broadcast_to(positions, x.shape[:-1])
    return _out(RotaryEmbedding()(x, start_index=start_pos, positions=at))


def _sines(seq_len: int, embed_dim: int, start_pos: int) -> Any:
    from keras_hub.layers import SinePositionEncoding

    return _out(SinePositionEncoding()(np.zeros((1, seq_len, embed_dim), np.float32), start_index=start_pos))[0]


def _alibi(num_heads: int, n_q: int, n_k: int, offset: Any = None) -> Any:
    """The bias of keys counts from the last one; moved so that key 0 has none."""
    from keras_hub.layers import AlibiBias

    bias = _out(AlibiBias()(np.zeros((1, num_heads, n_q, n_k), np.float32)))[0]
    return bias - bias[..., :1]


def _implementation(on: str, name: str, supports: Any, conventions: Conventions, **operations: Any) -> Implementation:
    return Implementation(
        name=HUB.called(f"{on}: {name} float32"),
        operations=operations,
        arithmetic="float32",
        conventions=conventions,
        batch_ranks=(1,),
        supports=[*supports, *((SHAPES, SIZES) if on == "jax" else ())],
        features=("positions",) if "rope" in operations else (),
        refuses=(Exception,),
        unavailable=unavailable(HUB, on),
    )


IMPLEMENTATIONS = [
    one
    for on in BACKENDS
    for one in (
        _implementation(
            on, "RotaryEmbedding", ["positive sizes", {"head_dim": lambda d: d % 2 == 0}],
            Conventions(rope_pairing="half", odd_lane="reject"), rope=_rope,
        ),
        _implementation(on, "SinePositionEncoding", ["positive sizes"], Conventions(), sinusoidal_positional_encoding=_sines),
        _implementation(on, "AlibiBias", ["positive sizes"], Conventions(alibi_reference="key"), alibi_bias=_alibi),
    )
]  # fmt: skip
