"""keras-hub: `RotaryEmbedding`, `SinePositionEncoding` and `AlibiBias`, on each back end of Keras."""

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

    by_row = None if positions is None else np.broadcast_to(positions, x.shape[:-1])
    return _out(RotaryEmbedding()(x, start_index=start_pos, positions=by_row))


def _sines(seq_len: int, embed_dim: int, start_pos: int) -> Any:
    from keras_hub.layers import SinePositionEncoding

    return _out(SinePositionEncoding()(np.zeros((1, seq_len, embed_dim), np.float32), start_index=start_pos))[0]


def _alibi(num_heads: int, n_q: int, n_k: int, offset: Any = None) -> Any:
    """The bias, shifted so that key 0 has the bias 0: keras-hub counts from the last key."""
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


def _of(on: str) -> list[Implementation]:
    """The implementations on one back end."""
    half = Conventions(rope_pairing="half", odd_lane="reject")
    even, positive = {"head_dim": lambda d: d % 2 == 0}, "positive sizes"
    return [
        _implementation(on, "RotaryEmbedding", [positive, even], half, rope=_rope),
        _implementation(on, "SinePositionEncoding", [positive], Conventions(), sinusoidal_positional_encoding=_sines),
        _implementation(on, "AlibiBias", [positive], Conventions(alibi_reference="key"), alibi_bias=_alibi),
    ]


IMPLEMENTATIONS = [implementation for on in BACKENDS for implementation in _of(on)]
