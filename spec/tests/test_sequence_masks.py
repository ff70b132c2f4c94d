"""The masks of sequences: written differently, and what they refuse."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec.extended.sequence_masks import (
    chunked_mask,
    document_mask,
    left_padding_mask,
    position_ids,
    prefix_mask,
    tree_mask,
)


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_documents_are_the_product_of_their_indicators(ids_q, ids_k):
    of_q, of_k = (np.eye(4, dtype=int)[np.array(ids, int)] for ids in (ids_q, ids_k))
    assert np.array_equal(document_mask(ids_q, ids_k), of_q @ of_k.T == 1)


@given(st.integers(0, 9), st.integers(0, 9))
def test_a_prefix_mask_is_a_triangle_beside_a_block(prefix, n):
    mask = np.tril(np.ones((n, n), bool))
    mask[:, :prefix] = True
    assert np.array_equal(prefix_mask(prefix, n), mask)


@given(st.integers(0, 12), st.integers(1, 5), st.integers(-9, 9))
def test_a_chunked_mask_is_made_of_triangles(n, chunk, start):
    mask = np.zeros((n, n), bool)
    borders = [0, *(i for i in range(1, n) if (start + i) % chunk == 0), n]
    for begin, end in itertools.pairwise(borders):
        mask[begin:end, begin:end] = np.tri(end - begin)
    assert np.array_equal(chunked_mask(n, chunk, start), mask)


@given(st.integers(0, 8).flatmap(lambda n: st.tuples(*(st.integers(-1, node - 1) for node in range(n)))))
def test_a_tree_mask_is_the_closure_of_its_edges(parents):
    n = len(parents)
    edges = np.array([[int(parents[i] == j) for j in range(n)] for i in range(n)], int).reshape(n, n)
    reachable = sum((np.linalg.matrix_power(edges, power) for power in range(1, n)), np.eye(n, dtype=int))
    assert np.array_equal(tree_mask(parents), reachable > 0)


@given(st.lists(st.integers(0, 4), max_size=4))
def test_padding_before_the_tokens_is_padding_after_them_reversed(lengths):
    after = np.arange(4) < np.array(lengths, int)[:, None]
    assert np.array_equal(left_padding_mask(lengths, 4), after[:, ::-1])


@given(st.lists(st.integers(0, 1), max_size=9), st.integers(0, 1))
def test_positions_are_those_of_the_running_sum(mask, padding):
    assert position_ids(mask, padding) == np.where(mask, np.cumsum(mask) - 1, padding).tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chunked_mask(2, 0), "chunk=0, but should be at least 1."),
        (lambda: chunked_mask(2, 1, 0.5), "start=0.5, but should be an integer."),
        (lambda: tree_mask([-1, 1]), "parents[1]=1, but should be at least -1 and less than 1."),
        (lambda: left_padding_mask([3], 2), "lengths[0]=3, but should be at least 0 and at most 2."),
        (lambda: document_mask(1, [1]), "ids_q has shape (), but should have one axis."),
        (lambda: position_ids([1, 2]), "attention_mask[1]=2, but should be 0 or 1."),
    ],
)
def test_bad_input_is_refused_with_a_sentence(call, message):
    with pytest.raises((TypeError, ValueError)) as refused:
        call()
    assert str(refused.value) == message
