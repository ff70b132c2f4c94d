"""Masks of sequences: against the definitions of `spec.extended`, and what they refuse."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from oracles import Conventions
from spec.extended import sequence_masks as defined

BLOCKS = Conventions(mask_polarity="true_blocks")
IDS = st.lists(st.integers(-2, 2), max_size=9)
PARENTS = st.integers(0, 9).flatmap(lambda n: st.tuples(*(st.integers(-1, node - 1) for node in range(n))))


def same(name: str, *arguments: Any) -> None:
    expected = getattr(defined, name)(*arguments)
    mask = getattr(oracles, name)(*arguments)
    assert mask.dtype == np.bool_
    assert np.array_equal(mask, expected)
    assert np.array_equal(getattr(oracles, name)(*arguments, conventions=BLOCKS), ~expected)


@given(IDS, IDS)
def test_documents(ids_q: list[int], ids_k: list[int]) -> None:
    same("document_mask", ids_q, ids_k)


@given(st.integers(0, 9), st.integers(0, 7))
def test_prefixes(prefix: int, n: int) -> None:
    same("prefix_mask", prefix, n)


@given(st.integers(0, 12), st.integers(1, 6), st.integers(-20, 20))
def test_chunks(n: int, chunk: int, start: int) -> None:
    same("chunked_mask", n, chunk, start)


@given(PARENTS)
def test_trees(parents: tuple[int, ...]) -> None:
    same("tree_mask", parents)


@given(st.lists(st.integers(0, 5), max_size=4), st.integers(5, 8))
def test_padding_before_the_tokens(lengths: list[int], n: int) -> None:
    same("left_padding_mask", lengths, n)


@given(st.integers(0, 3), st.integers(0, 8), st.integers(0, 2**24 - 1), st.sampled_from(["zero", "one"]))
def test_positions_of_padded_sequences(batch: int, n: int, bits: int, convention: Literal["zero", "one"]) -> None:
    mask = (bits >> np.arange(batch * n).reshape(batch, n)) & 1
    expected = [defined.position_ids(row, int(convention == "one")) for row in mask]
    for given_mask in (mask, mask.astype(bool), mask.astype(np.uint8), torch.tensor(mask)):
        found = oracles.position_ids(given_mask, conventions=Conventions(padding_position=convention))
        assert found.dtype == np.int64
        assert found.tolist() == expected


def test_positions_do_not_follow_the_polarity_of_masks() -> None:
    assert oracles.position_ids(np.array([False, True, True]), conventions=BLOCKS).tolist() == [0, 0, 1]


def test_a_document_sees_itself_across_a_gap() -> None:
    assert oracles.document_mask(np.array([7, 7]), torch.tensor([7, 8, 7])).tolist() == [[True, False, True]] * 2


def test_chunks_left_of_position_0_round_down() -> None:
    assert oracles.chunked_mask(4, 2, -3).astype(int).tolist() == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 0, 1],
    ]


def test_far_positions_are_exact() -> None:
    far = 2**53 - 4
    assert np.array_equal(oracles.chunked_mask(4, 2, far), oracles.chunked_mask(4, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: oracles.document_mask([[1]], [1]), "TypeError: ids_q[0] has type list, but should be an integer."),
        (lambda: oracles.document_mask([1], [1.0]), "TypeError: ids_k[0] has type float, but should be an integer."),
        (
            lambda: oracles.document_mask(np.zeros((1, 2), int), [1]),
            "ValueError: ids_q has shape (1, 2), but should have one axis.",
        ),
        (lambda: oracles.prefix_mask(-1, 2), "ValueError: prefix=-1, but should be at least 0."),
        (
            lambda: oracles.prefix_mask(1, 2**15),
            "ValueError: rows × columns = 32768 × 32768, but should be at most 268435456 entries.",
        ),
        (lambda: oracles.chunked_mask(2, 0), "ValueError: chunk=0, but should be at least 1."),
        (lambda: oracles.chunked_mask(2, 1, 0.5), "TypeError: start has type float, but should be an integer."),
        (lambda: oracles.tree_mask([0]), "ValueError: parents[0]=0, but should be less than 0, or -1 for a root."),
        (lambda: oracles.tree_mask([-1, -2]), "ValueError: parents[1]=-2, but should be at least -1."),
        (lambda: oracles.left_padding_mask([3], 2), "ValueError: lengths[0]=3, but should be at most 2."),
        (
            lambda: oracles.position_ids(np.array([[1, 2]])),
            "ValueError: attention_mask[0, 1]=2, but should be at most 1.",
        ),
        (
            lambda: oracles.position_ids(np.array([1.0])),
            "TypeError: attention_mask has element type float64, but should be an integer one.",
        ),
        (
            lambda: oracles.position_ids(np.array(1)),
            "ValueError: attention_mask has shape (), but should have an axis, and at most 268435456 entries.",
        ),
        (lambda: oracles.position_ids([0, 1]), "TypeError: attention_mask has type list, but should be an array."),
        (lambda: oracles.left_padding_mask(3, 2), "TypeError: lengths has type int, but should be an array."),
    ],
)
def test_bad_input_is_refused_with_a_sentence(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        call()
    assert f"{refused.type.__name__}: {refused.value}" == message
