"""Operating points of packed sequences: fixed lengths, as tables."""

from typing import Any

import numpy as np

from properties.strategies.operating_points import Point
from properties.strategies.plain_calls import Sizes

__all__ = ["MANY_ROWS"]

_PAIRS, _LONG, _SHORT = 17, 4096, 2


def _long_and_short(sizes: Sizes) -> dict[str, Any]:
    """Boundaries of sequences of many queries and few keys, and the other way round, by turns."""
    lengths = np.array([(_LONG + b % 2, _SHORT + b % 2) for b in range(_PAIRS)])
    turned = np.stack([lengths, lengths[:, ::-1]], 1).reshape(-1, 2)
    return {f"cu_{side}": np.concatenate([[0], turned[:, place].cumsum()]).astype(np.int32)
            for place, side in enumerate("qk")}  # fmt: skip


_TOTAL = int(_long_and_short({})["cu_q"][-1])
MANY_ROWS = (
    Point(
        f"{_TOTAL} rows",
        {"total_q": _TOTAL, "total_k": _TOTAL, "num_heads": 1, "kv_heads": 1, "head_dim": 1, "value_dim": 1},
        _long_and_short,
    ),
)
"""Where laws ask whether row numbers beyond 16 bits are right."""
