"""positional-encodings: the table of `PositionalEncoding1D`, and `Summer`, which adds it.

Angles are float32, the type of the inverse frequencies. For an odd width the library takes the
columns of the next even width without the last, and so different frequencies: the adapter refuses
an odd width.
"""

from functools import partial
from typing import Any

from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_SINES = "sinusoidal_positional_encoding"
_LIBRARY = Library("positional-encodings", "positional_encodings")


def _table(seq_len: int, embed_dim: int, start_pos: int = 0, *, before: tuple[str, ...] = ()) -> Any:
    """The table of a new object; the object first makes the tables in the types `before`."""
    import torch
    from positional_encodings.torch_encodings import PositionalEncoding1D

    if start_pos:
        raise ValueError(f"start_pos={start_pos}, but should be 0: the library counts positions from 0.")
    if embed_dim % 2:
        raise ValueError(
            f"embed_dim={embed_dim}, but should be even: the library uses the frequencies for {embed_dim + 1} columns."
        )
    module, shape = PositionalEncoding1D(embed_dim), (1, seq_len, embed_dim)
    for dtype in before:
        module(torch.zeros(shape, dtype=getattr(torch, dtype)))
    return module(torch.zeros(shape))[0]


IMPLEMENTATIONS = [
    Implementation(
        name=_LIBRARY.called("PositionalEncoding1D float32"),
        operations={_SINES: _table},
        arithmetic="float32",
        arrays="torch",
        supports=["positive sizes", {"embed_dim": lambda d: d % 2 == 0, "start_pos": [0]}],
        refuses=(ValueError, RuntimeError),
        unavailable=_LIBRARY.unavailable,
        twins={"after a call in bfloat16": {_SINES: partial(_table, before=("bfloat16",))}},
        known_deviations={
            f"all code paths of an implementation give the same result[{_SINES}]": "The table of an earlier call "
            "comes back in its type"
        },
    )
]
