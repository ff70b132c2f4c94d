"""Biases by relative position: T5's number for each bucket of distances, and the rows of Swin's table.

This module is not TorchLean's: see `spec.extended`.

Sources: Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer, 2020, section 2.1, and transformers, `modeling_t5.py`. Liu et al., Swin Transformer,
2021, section 3.2, and its repository's `models/swin_transformer.py`
"""

import numpy as np  # noqa: F401 - for the examples

from spec.context import Context
from spec.extended.arguments import integer
from spec.lean import definition
from spec.tensor_core import Array, Tensor, tabulate

__all__ = ["relative_bias", "relative_bucket", "relative_position_index"]


def relative_bucket(ahead: int, buckets: int, bidirectional: bool, max_distance: int) -> int:
    """Return the bucket of a key that is `ahead` = j − p positions after the query.

    With n the distance and m half of the buckets, distances below m have a bucket each. Larger ones
    share buckets whose borders rise geometrically: n has bucket m + k where k is the largest number with
    (n / m)^(buckets − m) ≥ (maxDistance / m)^k, and the last bucket if there is no such bucket.
    Bidirectional: keys after the query have the second half of the buckets, and the others the first
    half. Otherwise keys after the query have the distance 0.

    Raises ValueError for fewer than 2 buckets, or 4 bidirectional ones, for an odd number of
    bidirectional ones, and for a maxDistance that is not above m.

    >>> [relative_bucket(ahead, 32, True, 128) for ahead in (0, -1, -7, -8, -128, 1, 200)]
    [0, 1, 7, 8, 15, 17, 31]
    >>> [relative_bucket(ahead, 32, False, 128) for ahead in (3, 0, -15, -16, -500)]
    [0, 0, 15, 16, 31]
    """
    if buckets < (4 if bidirectional else 2) or (bidirectional and buckets % 2):
        raise ValueError(
            f"table has {buckets} buckets, but should have an even number from 4 on, or 2 in one direction."
        )
    count = buckets // 2 if bidirectional else buckets
    m, n = count // 2, abs(ahead) if bidirectional else max(-ahead, 0)
    if max_distance <= m:
        raise ValueError(f"max_distance={max_distance}, but should be more than {m}, half of the buckets.")
    first = count if bidirectional and ahead > 0 else 0
    if n < m:
        return first + n
    reached = [k for k in range(count - m) if n ** (count - m) * m**k >= max_distance**k * m ** (count - m)]
    return first + m + max(reached)


@definition()
def relative_bias(
    table: Tensor[Array, "buckets H"],
    n_q: int,
    n_k: int,
    bidirectional: bool,
    max_distance: int,
    offset: int,
    scalar: Context | None = None,
) -> Tensor[Array, "H nQ nK"]:
    """Return the bias table[bucket(j − p), h] of each head, query and key, with p = i + offset.

    Edge cases: no queries, keys or heads give the empty tensor.

    >>> relative_bias(np.array([[5.0], [6.0]]), 2, 2, False, 2, 0)  # two buckets: distances 0 and 1 or more
    array([[[5., 5.],
            [6., 5.]]])
    """
    first = integer(offset, "offset")
    of = {d: relative_bucket(d, len(table), bidirectional, max_distance) for d in range(-first - n_q, n_k - first + 1)}
    return tabulate((table.shape[1], n_q, n_k), lambda h, i, j: table[of[j - i - first], h])


def relative_position_index(height: int, width: int) -> list[list[int]]:
    """Return Swin's index: for query i and key j of a window, the row of the table with their bias.

    Token i is in row y = ⌊i / width⌋ and column x = i mod width. The offsets between two rows run from
    1 − height to height − 1, and those between two columns from 1 − width to width − 1. The table has a
    row for each pair of both: (yᵢ − yⱼ + height − 1)·(2·width − 1) + xᵢ − xⱼ + width − 1.

    Edge cases: a window without rows or columns has an empty index.

    >>> relative_position_index(1, 2)
    [[1, 0], [2, 1]]
    >>> relative_position_index(2, 2)[0]
    [4, 3, 1, 0]
    """
    places = [(y, x) for y in range(height) for x in range(width)]
    return [[(y - v + height - 1) * (2 * width - 1) + x - u + width - 1 for v, u in places] for y, x in places]
