"""Operating points of packed sequences: fixed lengths, as tables."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from properties.strategies.operating_points import Point
from properties.strategies.plain_calls import Sizes

__all__ = ["MANY_ROWS", "PROBES", "READS"]

_LENGTHS = np.array([(65600, 2), (1, 65600), (3, 2), (2, 3)])
"""The numbers of queries and of keys of each sequence: few scores, and row numbers beyond 65536."""


_FEW_LENGTHS = np.array([(33, 70), (1, 40), (0, 3), (36, 40)])


def _point(name: str, lengths: Any, sizes: Sizes) -> Point:
    """A point with sequences of these numbers of queries and of keys."""
    ends = np.concatenate([[[0, 0]], lengths.cumsum(0)]).astype(np.int32)
    total: dict[str, int] = dict(zip(("total_q", "total_k"), ends[-1].tolist(), strict=True))

    def boundaries(sizes: Sizes) -> Mapping[str, Any]:
        return {"cu_q": ends[:, 0].copy(), "cu_k": ends[:, 1].copy()}

    return Point(name, {**total, **sizes}, boundaries)


MANY_ROWS = (_point("65606 rows", _LENGTHS, {"num_heads": 1, "kv_heads": 1, "head_dim": 1, "value_dim": 1}),)
"""Where laws ask whether row numbers beyond 16 bits are right."""

_FEW: Sizes = {"n_q": 5, "n_k": 9, "num_heads": 4, "kv_heads": 2}


def _ends(most: int, *ends: int) -> Any:
    """Boundaries that end at the last row, or before it."""
    return np.minimum(ends, most).astype(np.int32)


def _behind(sizes: Sizes) -> Mapping[str, Any]:
    return {"cu_q": _ends(sizes["n_q"], 0, 1, 4), "cu_k": _ends(sizes["n_k"], 0, 3, 7)}


def _used(sizes: Sizes) -> Mapping[str, Any]:
    cu_k = _ends(sizes["n_k"], 0, 5, 9)
    used = np.minimum((3, 4), np.diff(cu_k)).astype(np.int32)
    return {"cu_q": _ends(sizes["n_q"], 0, 2, 5), "cu_k": cu_k, "seqused_k": used}


READS = (
    Point("two sequences", _FEW),
    Point("causal", _FEW, lambda sizes: {"causal": True}),
    Point("a window", _FEW, lambda sizes: {"window": (1, 1)}),
    Point("sinks", _FEW, lambda sizes: {"sink": np.zeros(sizes["num_heads"])}),
    Point("rows behind", _FEW, _behind),
    Point("used keys", _FEW, _used),
    Point("causal, used keys", _FEW, lambda sizes: {**_used(sizes), "causal": True}),
)  # fmt: skip
"""Where laws ask what packed sequences read. The instrument has its own lengths besides."""

_OF_MODELS = {"num_heads": 4, "kv_heads": 2, "head_dim": 64, "value_dim": 64}
PROBES = (_point("4 sequences", _FEW_LENGTHS, _OF_MODELS),)
"""Where laws ask whether results of 16 bits are the only ones that rounding allows."""
