"""Masks as plain bool arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import arrays, formats
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.formats import Arithmetic
from oracles.judging import Method, require_method

LARGEST_MASK = 2**28


def causal_mask(
    n_q: Any,
    n_k: Any = None,
    *,
    arithmetic: Arithmetic | str | None = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> NDArray[np.bool_]:
    """The mask under which query i attends to the keys up to its own position; `n_k` is `n_q` unless given.

    mask[i, j] = (j ≤ i), or (j ≤ i + n_k − n_q) where `conventions.causal` is `bottom_right`; inverted where
    `conventions.mask_polarity` is `true_blocks`.

    Shapes: (n_q, n_k).  A mask is exact, so `arithmetic` and `method` don't matter; every oracle takes them.
    Edge cases: 0 rows or columns are legal; with `bottom_right` and n_q > n_k the first n_q − n_k rows are dead.
    Raises TypeError and ValueError for sizes that are no natural numbers, or more than 2²⁸ entries together.
    """
    formats.resolve(arithmetic)
    require_method(method)
    named = resolve_conventions(conventions)
    rows = arrays.natural(n_q, "n_q", most=LARGEST_MASK)
    columns = rows if n_k is None else arrays.natural(n_k, "n_k", most=LARGEST_MASK)
    if rows * columns > LARGEST_MASK:
        raise ValueError(f"n_q × n_k = {rows} × {columns}, but should be at most {LARGEST_MASK} entries.")
    shift = columns - rows if named.causal == "bottom_right" else 0
    allowed = np.arange(columns) <= np.arange(rows)[:, None] + shift
    return allowed if named.mask_polarity == "true_allows" else ~allowed
