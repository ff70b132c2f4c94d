"""Masks as bool arrays: `conventions.mask_polarity` says what a true entry means.

A mask is exact, so `arithmetic` and `method` do not matter here.
"""

from math import prod
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from oracles import arrays
from oracles.options import AnswerOptions, answer, takes

LARGEST_MASK = 2**28


@takes(AnswerOptions)
def causal_mask(
    n_q: Any,
    n_k: Any = None,
    **options: Unpack[AnswerOptions],
) -> NDArray[np.bool_]:
    """Return the mask under which query i attends to the keys up to its own position. `n_k`
    defaults to `n_q`.

    mask[i, j] = (j ≤ i), or (j ≤ i + n_k − n_q) where `conventions.causal` is `bottom_right`. The
    mask is inverted where `conventions.mask_polarity` is `true_blocks`.

    Shapes: (n_q, n_k).
    Edge cases: 0 rows or columns are legal. With `bottom_right` and n_q > n_k the first n_q − n_k
    rows are fully masked.
    Raises TypeError and ValueError unless sizes are natural numbers and give at most 2²⁸ entries.
    """
    _, conventions, _ = answer(options)
    rows = arrays.natural(n_q, "n_q", most=LARGEST_MASK)
    columns = rows if n_k is None else arrays.natural(n_k, "n_k", most=LARGEST_MASK)
    require_entries(n_q=rows, n_k=columns)
    shift = columns - rows if conventions.causal == "bottom_right" else 0
    return answered(np.arange(columns) <= np.arange(rows)[:, None] + shift, **options)


@takes(AnswerOptions)
def padding_mask(
    lengths: Any,
    max_len: Any,
    **options: Unpack[AnswerOptions],
) -> NDArray[np.bool_]:
    """Return the mask of sequences that are padded at their end: true at the positions that are not
    padding.

    mask[b, j] = (j < lengths[b]). Where `conventions.mask_polarity` is `true_blocks`, the mask is
    inverted: true at padding.

    Shapes: lengths is (batch,), an array of integers or a sequence of them; the mask is (batch,
    max_len).  To mask the keys of attention, insert axes for heads and queries: mask[:, None, None,
    :].  Without these axes it would broadcast along the queries if batch and n_q are equal.
    Edge cases: a sequence of length 0 is all padding, so every row over its keys is fully masked.
    Sizes may be 0.
    Raises TypeError and ValueError unless lengths are natural numbers up to max_len and the mask
    has at most 2²⁸ entries.
    """
    columns = arrays.natural(max_len, "max_len", most=LARGEST_MASK)
    checked_lengths = row_of_integers(lengths, "lengths", 0, columns)
    require_entries(batch=checked_lengths.size, max_len=columns)
    return answered(np.arange(columns) < checked_lengths[:, None], **options)


@takes(AnswerOptions)
def combine_masks(
    *masks: Any,
    **options: Unpack[AnswerOptions],
) -> NDArray[np.bool_]:
    """Return the mask under which an entry is visible if every given mask makes it visible.

    All masks must have the polarity `conventions.mask_polarity`: invert a mask of the other
    polarity with ~ first. Masks with `true_allows` are combined by `and`, masks with `true_blocks`
    by `or`.

    Shapes: the masks broadcast to one shape, as in NumPy; the result has it.
    Edge cases: a mask of None masks nothing, as in every operation. Axes of size 0 and 1 are legal.
    Raises TypeError for a mask that is not boolean. Raises ValueError if every mask is None, for
    shapes that do not broadcast, and for more than 2²⁸ entries.
    """
    _, conventions, _ = answer(options)
    given_masks = [arrays.booleans(mask, f"masks[{i}]") for i, mask in enumerate(masks) if mask is not None]
    if not given_masks:
        raise ValueError(f"masks={masks}, but should have at least one array.")
    try:
        shape = np.broadcast_shapes(*(mask.shape for mask in given_masks))
    except ValueError as error:
        shapes = ", ".join(str(mask.shape) for mask in given_masks)
        raise ValueError(f"masks have shapes {shapes}, but should broadcast to one.") from error
    if prod(shape) > LARGEST_MASK:
        raise ValueError(f"masks broadcast to {shape}, but should have at most {LARGEST_MASK} entries.")
    allows = conventions.mask_polarity == "true_allows"
    combined = np.full(shape, allows)
    for mask in given_masks:
        (np.logical_and if allows else np.logical_or)(combined, mask, out=combined)
    return combined


def row_of_integers(values: Any, name: str, least: int, most: int) -> NDArray[np.int64]:
    """Return integers along one axis as int64. Raises TypeError for other entries, and ValueError
    for entries out of bounds or another number of axes.
    """
    row = arrays.integers(values, name, least, most)
    if row.ndim != 1:
        raise ValueError(f"{name} has shape {row.shape}, but should have one axis.")
    return row


def require_entries(**sizes: int) -> None:
    """Raise ValueError where a mask with these sizes has more than 2²⁸ entries."""
    if prod(sizes.values()) > LARGEST_MASK:
        names, lengths = " × ".join(sizes), " × ".join(map(str, sizes.values()))
        raise ValueError(f"{names} = {lengths}, but should be at most {LARGEST_MASK} entries.")


def answered(allowed: NDArray[np.bool_], **options: Unpack[AnswerOptions]) -> NDArray[np.bool_]:
    """Return a mask, which is true where a key is visible, in the polarity of the conventions."""
    _, conventions, _ = answer(options)
    return allowed if conventions.mask_polarity == "true_allows" else ~allowed
