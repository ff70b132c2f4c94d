"""Buckets of distances: as T5's code computes them, and what is refused."""

import math

import numpy as np
import pytest

from spec.extended.relative_bias import relative_bias, relative_bucket, relative_position_index


def bucket_by_logarithm(ahead: int, buckets: int, bidirectional: bool, max_distance: int) -> int:
    """The formula of `_relative_position_bucket` in transformers, in Python's numbers."""
    first = 0
    if bidirectional:
        buckets //= 2
        first, n = buckets * (ahead > 0), abs(ahead)
    else:
        n = max(-ahead, 0)
    half = buckets // 2
    if n < half:
        return first + n
    far = half + int(math.log(n / half) / math.log(max_distance / half) * (buckets - half))
    return first + min(far, buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 40), (16, 64), (64, 256)])
def test_buckets_are_those_of_the_formula_with_logarithms(buckets, max_distance, bidirectional):
    for ahead in range(-2 * max_distance, 2 * max_distance + 1):
        given = ahead, buckets, bidirectional, max_distance
        assert relative_bucket(*given) == bucket_by_logarithm(*given)


def test_an_offset_moves_the_queries_along_the_keys():
    table = np.arange(64.0).reshape(32, 2)
    assert np.array_equal(relative_bias(table, 2, 9, True, 128, 5), relative_bias(table, 7, 9, True, 128, 0)[:, 5:])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0, 5, True, 9), "table has 5 buckets, but should have an even number from 4 on, or 2 in one direction."),
        ((0, 1, False, 9), "table has 1 buckets, but should have an even number from 4 on, or 2 in one direction."),
        ((0, 8, False, 4), "max_distance=4, but should be more than 4, half of the buckets."),
    ],
)
def test_bad_input_is_refused_with_a_sentence(given, message):
    with pytest.raises(ValueError, match="should") as refused:
        relative_bucket(*given)
    assert str(refused.value) == message


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 3), (7, 7), (0, 3), (4, 1)])
def test_the_index_of_a_window_is_that_of_swin_s_code(height, width):
    """Coordinates, their differences, shifted to 0, and one number of both: the steps of Swin's code."""
    places = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij")).reshape(2, -1)
    offsets = (places[:, :, None] - places[:, None, :]).transpose(1, 2, 0)
    offsets = (offsets + np.array([height - 1, width - 1])) * [2 * width - 1, 1]
    assert relative_position_index(height, width) == offsets.sum(-1).tolist()
