"""positional-encodings: the table of `PositionalEncoding1D`, and `Summer`, which adds it.

Angles are of float32, the type of the inverse frequencies. An odd width gets the columns of the
next even one, without the last, and so other frequencies than its own: it is refused here.
"""

from functools import partial
from typing import Any

from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_SINES = "sinusoidal_positional_encoding"
_LIBRARY = Library("positional-encodings", "positional_encodings")


def _table(seq_len: int, embed_dim: int, start_pos: int = 0, *, before: tuple[str, ...] = ()) -> Any:
    """By a new object, which has made the table in other types before."""
    import torch
    from positional_encodings.torch_encodings import PositionalEncoding1D

    if start_pos:
        raise ValueError(f"start_pos={start_pos}, but should be 0: positions are counted from it.")
    if embed_dim % 2:
        raise ValueError(
            f"embed_dim={embed_dim}, but should be even: the frequencies are those of {embed_dim + 1} columns."
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
            f"twin paths give the same result[{_SINES}]": "The table of an earlier call comes back in its type"
        },
    )
]
