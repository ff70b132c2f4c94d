"""Operating points of keys in pages: tables with page numbers beyond 8 and 16 bits."""

from typing import Any

import numpy as np

from properties.strategies.operating_points import Point
from properties.strategies.plain_calls import Sizes

__all__ = ["MANY_PAGES"]

_BORDERS = (2**7, 2**8, 2**15, 2**16)


def _far_pages(sizes: Sizes) -> dict[str, Any]:
    """Two sequences whose pages lie on both sides of each power of two, in falling order, and at both
    ends.
    """
    last = sizes["num_pages"] - 1
    near = [page for border in _BORDERS for page in (border - 1, border, border + 1)]
    pages = np.array(sorted({0, last, *(page for page in near if page <= last)}, reverse=True), np.int32)
    table = np.stack([pages, np.roll(pages, 1)])
    slots = len(pages) * sizes["page_size"]
    return {"block_table": table, "lengths": np.array([slots, slots - 1], np.int32)}


_NARROW = {"batch": 2, "n_q": 1, "page_size": 1, "num_heads": 1, "kv_heads": 1, "head_dim": 1, "value_dim": 1}
MANY_PAGES = tuple(
    Point(f"{pages} pages", {**_NARROW, "num_pages": pages}, _far_pages, is_exact)
    for pages, is_exact in ((2**8 + 2, False), (2**16 + 2, True))
)
"""Where laws ask whether numbers of pages beyond 8 and 16 bits are right. With many pages only narrow
heads fit into memory.
"""
