"""IBM's foundation-model-stack: its `RotaryEmbedding` by `adjusted_qk`. It pairs neighbours.

A table is as long as was asked for at first, and is not made longer: it is among the findings.
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
    """One for all lengths of a width, as in a model."""
    from fms.modules.positions import RotaryEmbedding

    return RotaryEmbedding(dim, max_seq_len=8192)


def _rope(x: Any, start_pos: int = 0) -> Any:
    """(batch, sequence, heads, width)."""
    import torch

    at = torch.arange(start_pos, start_pos + x.shape[-2])
    rows = x.reshape(-1, *x.shape[-2:])[:, :, None]
    return (
        _module(x.shape[-1])
        .adjusted_qk(rows, rows, at.expand(x.shape[:-1]).reshape(-1, x.shape[-2]))[0]
        .reshape(x.shape)
    )


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
