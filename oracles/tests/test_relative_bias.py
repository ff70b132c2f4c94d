"""T5's bias: the definition's entries, conventions of positions, narrow formats, and what is refused."""

import re

import numpy as np
import pytest

import oracles
from spec.extended import relative_bias as defined

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (4, 3), (6, 9), (64, 300), (2, 7), (5, 11)])
@pytest.mark.parametrize("causal", ["top_left", "bottom_right"])
def test_the_entries_are_those_of_the_definition(buckets, max_distance, bidirectional, causal):
    if bidirectional and (buckets < 4 or buckets % 2):
        return
    table, n_q, n_k = RANDOM.normal(size=(buckets, 2)), 7, 350
    given = n_q, n_k, bidirectional, max_distance
    found = oracles.relative_bias(table, *given, conventions=oracles.Conventions(causal=causal))
    offset = n_k - n_q if causal == "bottom_right" else 0
    assert np.array_equal(found.mid, defined.relative_bias(table, *given, offset))
    assert not found.rad.any()


def test_a_table_in_bfloat16_is_returned_as_it_is():
    table = np.array([[1.0], [-2.5], [0.0], [np.inf]])
    found = oracles.relative_bias(table, 1, 4, False, 5, arithmetic="bfloat16")
    assert np.array_equal(found.mid, np.full((1, 1, 4), 1.0))


@pytest.mark.parametrize(("n_q", "n_k", "heads"), [(0, 3, 2), (3, 0, 2), (2, 2, 0)])
def test_empty_axes_are_legal(n_q, n_k, heads):
    assert oracles.relative_bias(np.ones((8, heads)), n_q, n_k, True, 20).mid.shape == (heads, n_q, n_k)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((np.ones((5, 1)), 1, 1, True, 9), "table has 5 buckets, but should have an even number from 4 on"),
        ((np.ones((8, 1)), 1, 1, False, 4), "max_distance=4, but should be more than 4, half of the buckets."),
        ((np.ones(8), 1, 1, True, 9), "table has shape (8,), but should have two axes: (buckets, num_heads)."),
        ((np.ones((8, 1)), 2**15, 2**15, True, 9), "num_heads × n_q × n_k = 1 × 32768 × 32768, but should be at most"),
        ((np.ones((8, 1)), 1, 1, 1, 9), "bidirectional"),
    ],
)
def test_what_is_refused(given, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        oracles.relative_bias(*given)


@pytest.mark.parametrize("height", [0, 1, 2, 5])
@pytest.mark.parametrize("width", [0, 1, 3, 4])
def test_the_index_of_a_window_is_that_of_the_definition(height, width):
    found = oracles.relative_position_index(height, width)
    assert found.shape == (height * width, height * width)
    assert found.tolist() == defined.relative_position_index(height, width)


def test_the_index_of_a_window_reads_each_row_of_the_table_and_gives_the_bias_of_the_offset():
    height, width = 3, 4
    index = oracles.relative_position_index(height, width)
    assert sorted(set(index.ravel())) == [*range((2 * height - 1) * (2 * width - 1))]
    offsets = RANDOM.normal(size=(2 * height - 1, 2 * width - 1, 2))
    found = oracles.table_lookup(offsets.reshape(-1, 2), index).mid
    for i, j in np.ndindex(index.shape):
        (y, x), (v, u) = divmod(i, width), divmod(j, width)
        assert np.array_equal(found[i, j], offsets[y - v + height - 1, x - u + width - 1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((-1, 2), "height=-1"),
        ((2, 1.5), "width"),
        ((128, 129), "(height × width)² = (128 × 129)², but should be at most 268435456 entries."),
    ],
)
def test_other_windows_are_refused(given, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        oracles.relative_position_index(*given)
