"""Operating points of keys in pages: small tables, and tables with page numbers beyond 8 and 16 bits."""

from typing import Any

import numpy as np

from properties.strategies.operating_points import Point
from properties.strategies.plain_calls import Options, Sizes, zero_sinks

__all__ = ["MANY_PAGES", "READS"]

_BORDERS = (2**7, 2**8, 2**15, 2**16)


def _far_pages(sizes: Sizes) -> Any:
    """The pages of two sequences: they lie on both sides of each power of two, in falling order, and
    at both ends.
    """
    last = sizes["num_pages"] - 1
    near = [page for border in _BORDERS for page in (border - 1, border, border + 1)]
    pages = np.array(sorted({0, last, *(page for page in near if page <= last)}, reverse=True), np.int32)
    return np.stack([pages, np.roll(pages, 1)])


def _all_slots(sizes: Sizes) -> Any:
    """Lengths with which the first sequence uses all slots of these pages, and the second all but one."""
    slots = _far_pages(sizes).shape[-1] * sizes["page_size"]
    return np.array([slots, slots - 1], np.int32)


_FAR_PAGES: Options = {"block_table": _far_pages, "lengths": _all_slots}
_NARROW = {"batch": 2, "n_q": 1, "page_size": 1, "num_heads": 1, "kv_heads": 1, "head_dim": 1, "value_dim": 1}
MANY_PAGES = tuple(
    Point(f"{pages} pages", {**_NARROW, "num_pages": pages}, _FAR_PAGES, is_exact)
    for pages, is_exact in ((2**8 + 2, False), (2**16 + 2, True))
)
"""Where laws ask whether numbers of pages beyond 8 and 16 bits are right. With many pages only narrow
heads fit into memory.
"""

_FEW: Sizes = {"batch": 2, "n_q": 2, "n_k": 5, "page_size": 2, "num_heads": 4, "kv_heads": 2}
READS = (
    Point("two sequences", _FEW),
    Point("not causal", _FEW, {"causal": False}),
    Point("a window", _FEW, {"window": (1, None)}),
    Point("sinks", _FEW, {"sink": zero_sinks}),
    Point("ragged queries", _FEW, {"cu_q": lambda sizes: np.array([0, 1, 2 * sizes["n_q"]], np.int32)}),
)
"""Where laws ask what queries read from pages. The instrument has its own tables besides."""
