"""torch_geometric: the rows of `PositionalEncoding`, which takes positions as its argument.

All sines come first, and the logarithms of the frequencies are evenly spaced, from frequency 1 to
frequency 1/10000. The documentation has the usual formula, with alternating sines and cosines.
"""

from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("torch-geometric", "torch_geometric")


def _table(seq_len: int, embed_dim: int, start_pos: int = 0) -> Any:
    import torch
    from torch_geometric.nn import PositionalEncoding

    if embed_dim == 2:
        raise ValueError("embed_dim=2, but should be 4 or more: one frequency has no even spacing.")
    return PositionalEncoding(embed_dim)(torch.arange(start_pos, start_pos + seq_len))


IMPLEMENTATIONS = [
    Implementation(
        name=_LIBRARY.called("PositionalEncoding float32"),
        operations={"sinusoidal_positional_encoding": _table},
        arithmetic="float32",
        conventions=Conventions(sinusoid_layout="tensor2tensor"),
        arrays="torch",
        supports=["positive sizes", {"embed_dim": lambda d: d % 2 == 0 and d > 2}],
        refuses=(ValueError, RuntimeError),
        unavailable=_LIBRARY.unavailable,
    )
]
