"""IBM's foundation-model-stack: its `RotaryEmbedding` by `adjusted_qk`, which pairs adjacent
channels.

The first call sets the length of a table, and later calls do not extend it: see the findings.
"""

from functools import cache
from typing import Any

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.peers.library import Library

__all__ = ["IMPLEMENTATIONS"]

_LIBRARY = Library("ibm-fms", "fms")


@cache
def _module(dim: int) -> Any:
    """The rotation of a width, one module for all lengths, as in a model."""
    from fms.modules.positions import RotaryEmbedding

    return RotaryEmbedding(dim, max_seq_len=8192)


def _rope(x: Any, start_pos: int = 0) -> Any:
    """x rotated; the module takes (batch, sequence, heads, width)."""
    import torch

    rows = x.reshape(-1, *x.shape[-2:])[:, :, None]
    positions = torch.arange(start_pos, start_pos + x.shape[-2]).expand(rows.shape[:2])
    return _module(x.shape[-1]).adjusted_qk(rows, rows, positions)[0].reshape(x.shape)


IMPLEMENTATIONS = [
    Implementation(
        name=_LIBRARY.called("RotaryEmbedding float32"),
        operations={"rope": _rope},
        arithmetic="float32",
        arrays="torch",
        conventions=Conventions(odd_lane="reject"),
        supports=["positive sizes", {"head_dim": lambda d: d > 0 and d % 2 == 0, "start_pos": lambda p: p <= 4096}],
        refuses=(RuntimeError, ValueError, IndexError, AssertionError),
        unavailable=_LIBRARY.unavailable,
    )
]
