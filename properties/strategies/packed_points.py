"""Operating points of packed sequences: fixed lengths, as tables."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from properties.strategies.operating_points import Point
from properties.strategies.plain_calls import Sizes

__all__ = ["MANY_ROWS"]

_LENGTHS = np.array([(65600, 2), (1, 65600), (3, 2), (2, 3)])
"""The numbers of queries and of keys of each sequence: few scores, and row numbers beyond 65536."""


def _boundaries(sizes: Sizes) -> Mapping[str, Any]:
    """The boundaries of the sequences."""
    ends = np.concatenate([[[0, 0]], _LENGTHS.cumsum(0)]).astype(np.int32)
    return {"cu_q": ends[:, 0].copy(), "cu_k": ends[:, 1].copy()}


_TOTAL: dict[str, int] = dict(zip(("total_q", "total_k"), _LENGTHS.sum(0).tolist(), strict=True))
MANY_ROWS = (
    Point("65606 rows", {**_TOTAL, "num_heads": 1, "kv_heads": 1, "head_dim": 1, "value_dim": 1}, _boundaries),
)
"""Where laws ask whether row numbers beyond 16 bits are right."""
