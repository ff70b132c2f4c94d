"""Operating points of packed sequences: fixed lengths, as tables."""

from collections.abc import Callable
from typing import Any

import numpy as np

from properties.strategies.operating_points import Point
from properties.strategies.plain_calls import Options, Sizes, zero_sinks

__all__ = ["MANY_ROWS", "PROBES", "READS"]

_LENGTHS = np.array([(65600, 2), (1, 65600), (3, 2), (2, 3)])
"""The numbers of queries and of keys of each sequence: few scores, and row numbers beyond 65536."""


_FEW_LENGTHS = np.array([(33, 70), (1, 40), (0, 3), (36, 40)])


def _point(name: str, lengths: Any, sizes: Sizes) -> Point:
    """A point with sequences of these numbers of queries and of keys."""
    ends = np.concatenate([[[0, 0]], lengths.cumsum(0)]).astype(np.int32)
    total: dict[str, int] = dict(zip(("total_q", "total_k"), ends[-1].tolist(), strict=True))
    return Point(name, {**total, **sizes}, {"cu_q": ends[:, 0].copy(), "cu_k": ends[:, 1].copy()})


MANY_ROWS = (_point("65606 rows", _LENGTHS, {"num_heads": 1, "kv_heads": 1, "head_dim": 1, "value_dim": 1}),)
"""Where laws ask whether row numbers beyond 16 bits are right."""

_FEW: Sizes = {"n_q": 5, "n_k": 9, "num_heads": 4, "kv_heads": 2}


def _ends(rows: str, *ends: int) -> Callable[[Sizes], Any]:
    """Boundaries that end at the last row, or before it."""
    return lambda sizes: np.minimum(ends, sizes[rows]).astype(np.int32)


_used_keys = _ends("n_k", 0, 5, 9)


def _used(sizes: Sizes) -> Any:
    """How many keys each sequence uses."""
    return np.minimum((3, 4), np.diff(_used_keys(sizes))).astype(np.int32)


_BEHIND: Options = {"cu_q": _ends("n_q", 0, 1, 4), "cu_k": _ends("n_k", 0, 3, 7)}
_USED: Options = {"cu_q": _ends("n_q", 0, 2, 5), "cu_k": _used_keys, "seqused_k": _used}


READS = (
    Point("two sequences", _FEW),
    Point("causal", _FEW, {"causal": True}),
    Point("a window", _FEW, {"window": (1, 1)}),
    Point("sinks", _FEW, {"sink": zero_sinks}),
    Point("rows behind", _FEW, _BEHIND),
    Point("used keys", _FEW, _USED),
    Point("causal, used keys", _FEW, {**_USED, "causal": True}),
)  # fmt: skip
"""Where laws ask what packed sequences read. The instrument has its own lengths besides."""

_OF_MODELS = {"num_heads": 4, "kv_heads": 2, "head_dim": 64, "value_dim": 64}
PROBES = (_point("4 sequences", _FEW_LENGTHS, _OF_MODELS),)
"""Where laws ask whether results of 16 bits are the only ones that rounding allows."""
