"""Checks the arguments of the extended definitions, and refuses wrong ones with a sentence."""

from itertools import pairwise
from typing import Any

import numpy as np

from spec.context import Scalar
from spec.scope import alpha
from spec.tensor_core import Array, expect_type, nat

__all__ = [
    *("broadcast", "finite", "integer", "integers", "length_of", "offsets", "packed_rows", "page_numbers"),
    *("pairs_of", "positive", "sides"),
]


def finite(x: Scalar, name: str, or_else: str = "a finite number") -> Scalar:
    """Return x over α. Raises ValueError if x is NaN or infinite."""
    number = alpha.lift(x)
    if not alpha.is_finite(number):
        raise ValueError(f"{name}={x}, but should be {or_else}.")
    return number


def positive(x: Scalar, name: str) -> Scalar:
    """Return x over α. Raises ValueError unless x is a finite number above 0."""
    number = finite(x, name, "a finite number above 0")
    if not alpha.greater(number, alpha.zero):
        raise ValueError(f"{name}={x}, but should be a finite number above 0.")
    return number


def broadcast(t: Array, name: str, shape: tuple[int, ...]) -> Array:
    """Return t, repeated to `shape` as NumPy broadcasts. Raises ValueError if t does not broadcast
    to it.
    """
    try:
        return np.broadcast_to(t, shape)
    except ValueError:
        raise ValueError(f"{name} has shape {t.shape}, but should broadcast to {shape}.") from None


def integer(x: Any, name: str) -> int:
    """Return an integer of any sign. Raises TypeError for anything else."""
    if isinstance(x, bool | np.bool_) or not isinstance(x, int | np.integer):
        raise TypeError(f"{name}={x!r}, but should be an integer.")
    return int(x)


def integers(xs: Any, name: str) -> list[int]:
    """Return a sequence of integers as a list. Raises TypeError for other entries, and ValueError
    for an array whose number of axes is not 1.
    """
    if np.ndim(xs) != 1:
        raise ValueError(f"{name} has shape {np.shape(xs)}, but should have one axis.")
    return [integer(x, f"{name}[{i}]") for i, x in enumerate(xs)]


def offsets(offset: Any, batch: tuple[int, ...]) -> Array:
    """Return the offset of each sequence of the batch, as ints: one for all, or an array of offsets
    over the batch axes; None is 0.
    """
    offset_array = np.asarray(0 if offset is None else offset)
    if offset_array.dtype.kind not in "iu":
        raise TypeError(f"offset={offset!r}, but should be an integer, or integers over the batch axes {batch}.")
    return broadcast(offset_array, "offset", batch).astype(object)


def sides(window: tuple[int | None, int | None], causal: bool) -> tuple[int | None, int | None]:
    """Return (left, right): how far before and after its own position a query sees keys. None means
    up to the first or the last key. With causal, right is 0.
    """
    expect_type(causal, "causal", bool)
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"window={window!r}, but should be a pair (left, right), each a natural number or None.")
    left, right = (None if side is None else nat(side, f"window[{end}]") for end, side in enumerate(window))
    return left, 0 if causal else right


def packed_rows(boundaries: Any, used: Any, total: int, side: str) -> list[slice]:
    """Return the rows that each packed sequence uses, given the boundaries cu_q or cu_k of the
    sequences (`side` is q or k), and how many rows each sequence uses (None: all). Raises
    ValueError for boundaries that do not begin at 0, fall, or end beyond the last row, and for a
    sequence that uses more rows than it owns.
    """
    cu = [nat(n, f"cu_{side}[{b}]") for b, n in enumerate(np.ravel(boundaries).tolist())]
    if not cu or cu[0] or sorted(cu) != cu or cu[-1] > total:
        raise ValueError(f"cu_{side}={cu}, but should begin at 0, never fall, and end at {total} rows at most.")
    owned = [end - start for start, end in pairwise(cu)]
    lengths = owned if used is None else [nat(n, f"seqused_{side}[{b}]") for b, n in enumerate(np.ravel(used).tolist())]
    if len(lengths) != len(owned) or any(n > most for n, most in zip(lengths, owned, strict=True)):
        raise ValueError(f"seqused_{side}={lengths}, but should be at most {owned}, the rows that sequences own.")
    return [slice(start, start + n) for start, n in zip(cu, lengths, strict=False)]


def page_numbers(table: Any, lengths: Any, pages: int, size: int) -> list[list[int]]:
    """Return the numbers of the pages that each sequence uses. Raises ValueError for a table with
    another number of rows than `lengths`, for a row that is too short for the length, and for a
    number within the length that is not that of a page.
    """
    used = [nat(n, f"lengths[{b}]") for b, n in enumerate(np.ravel(lengths).tolist())]
    if np.ndim(table) != 2 or len(table) != len(used):
        raise ValueError(f"block_table has shape {np.shape(table)}, but should have {len(used)} rows, as lengths has.")
    found = []
    for b, (row, length) in enumerate(zip(table, used, strict=True)):
        count = -(-length // size) if size else length
        if len(row) < count or (length and not size):
            raise ValueError(f"block_table[{b}] has {len(row)} pages of {size} slots, but lengths[{b}]={length}.")
        numbers = integers(row[:count], f"block_table[{b}]")
        if any(not 0 <= number < pages for number in numbers):
            raise ValueError(f"block_table[{b}]={numbers}, but should name pages from 0 to {pages - 1}.")
        found.append(numbers)
    return found


def pairs_of(rotary_dim: int, name: str = "rotary_dim") -> int:
    """Return the number of pairs of r channels. Raises ValueError if r is odd."""
    if rotary_dim % 2:
        raise ValueError(f"{name}={rotary_dim}, but should be even: channels rotate in pairs.")
    return rotary_dim // 2


def length_of(n: int, name: str) -> int:
    """Return a number of positions. Raises ValueError if it is 0."""
    if n == 0:
        raise ValueError(f"{name}=0, but should be at least 1.")
    return n
