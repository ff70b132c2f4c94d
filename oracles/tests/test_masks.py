"""Causal masks by their alignment and polarity, padding masks, and what masks allow together."""

from typing import Any

import numpy as np
import pytest
import torch

import oracles
from oracles import Conventions


def picture(mask: Any) -> list[str]:
    return ["".join(".x"[allowed] for allowed in row) for row in mask.astype(int)]


def test_a_query_sees_the_keys_up_to_its_own_position() -> None:
    assert picture(oracles.causal_mask(3)) == ["x..", "xx.", "xxx"]
    assert picture(oracles.causal_mask(2, 4)) == ["x...", "xx.."]
    assert picture(oracles.causal_mask(4, 2)) == ["x.", "xx", "xx", "xx"]


def test_bottom_right_aligns_the_last_query_with_the_last_key() -> None:
    aligned = Conventions(causal="bottom_right")
    assert picture(oracles.causal_mask(3, conventions=aligned)) == ["x..", "xx.", "xxx"]
    assert picture(oracles.causal_mask(2, 4, conventions=aligned)) == ["xxx.", "xxxx"]
    assert picture(oracles.causal_mask(4, 2, conventions=aligned)) == ["..", "..", "x.", "xx"]


def test_the_polarity_inverts_it() -> None:
    assert picture(oracles.causal_mask(2, conventions=Conventions(mask_polarity="true_blocks"))) == [".x", ".."]


@pytest.mark.parametrize(("n_q", "n_k"), [(0, 0), (0, 3), (3, 0), (1, 1)])
def test_sizes_0_and_1_are_legal(n_q: int, n_k: int) -> None:
    mask = oracles.causal_mask(np.int64(n_q), n_k, arithmetic="float32", method="fast")
    assert mask.shape == (n_q, n_k)
    assert mask.dtype == np.bool_
    assert mask.all()


def test_a_mask_is_a_plain_writable_array() -> None:
    mask = oracles.causal_mask(2)
    mask[0, 1] = True
    assert picture(oracles.causal_mask(2)) == ["x.", "xx"]


BLOCKS = Conventions(mask_polarity="true_blocks")


def test_padding_begins_where_a_sequence_ends() -> None:
    assert picture(oracles.padding_mask([2, 3], 4)) == ["xx..", "xxx."]
    assert picture(oracles.padding_mask([2, 3], 4, conventions=BLOCKS)) == ["..xx", "...x"]
    assert picture(oracles.padding_mask([0, 4], 4)) == ["....", "xxxx"]


@pytest.mark.parametrize("lengths", [(2, 0), range(1, 3), np.array([1, 3], dtype=np.uint8), torch.tensor([3, 0])])
def test_lengths_are_any_integers(lengths: Any) -> None:
    mask = oracles.padding_mask(lengths, np.int64(3))
    assert mask.dtype == np.bool_
    assert mask.sum(axis=1).tolist() == [int(length) for length in lengths]


@pytest.mark.parametrize(("batch", "max_len"), [(0, 0), (0, 3), (2, 0)])
def test_paddings_of_size_0_are_legal(batch: int, max_len: int) -> None:
    assert oracles.padding_mask([0] * batch, max_len, arithmetic="float32", method="arb").shape == (batch, max_len)
    assert oracles.padding_mask(np.zeros(batch, dtype=int), max_len).shape == (batch, max_len)


def test_masks_together_allow_what_each_of_them_allows() -> None:
    causal, padding = oracles.causal_mask(3), oracles.padding_mask([2, 3], 3)[:, None, :]
    together = oracles.combine_masks(causal, padding)
    assert [picture(mask) for mask in together] == [["x..", "xx.", "xx."], ["x..", "xx.", "xxx"]]
    causal, padding = (
        oracles.causal_mask(3, conventions=BLOCKS),
        oracles.padding_mask([2, 3], 3, conventions=BLOCKS)[:, None, :],
    )
    assert np.array_equal(oracles.combine_masks(causal, padding, conventions=BLOCKS), ~together)


def test_polarities_are_duals_and_the_wrong_one_allows_too_much() -> None:
    """De Morgan: inverted masks combine to the inverse in the other polarity; `or` of what allows is another mask."""
    rng = np.random.default_rng(0)
    masks = [rng.random((4, 5)) < 0.5 for _ in range(3)]
    together = oracles.combine_masks(*masks)
    assert np.array_equal(together, masks[0] & masks[1] & masks[2])
    assert np.array_equal(oracles.combine_masks(*(~mask for mask in masks), conventions=BLOCKS), ~together)
    assert oracles.combine_masks(*masks, conventions=BLOCKS).sum() > together.sum()


def test_none_allows_everything_and_one_mask_is_itself() -> None:
    mask = oracles.causal_mask(2)
    for conventions in (Conventions(), BLOCKS):
        assert np.array_equal(oracles.combine_masks(None, mask, None, conventions=conventions), mask)
    copy = oracles.combine_masks(mask)
    copy[:] = True
    assert picture(mask) == ["x.", "xx"]


@pytest.mark.parametrize(
    ("shapes", "shape"),
    [([()], ()), ([(0, 3), (1, 1)], (0, 3)), ([(2, 1), (3,)], (2, 3)), ([(1, 1), (2, 4, 4)], (2, 4, 4))],
)
def test_masks_broadcast(shapes: list[tuple[int, ...]], shape: tuple[int, ...]) -> None:
    found = oracles.combine_masks(*(np.ones(one, dtype=bool) for one in shapes))
    assert isinstance(found, np.ndarray)
    assert found.shape == shape


def test_combined_masks_are_what_attention_reads() -> None:
    """A padded batch under a causal mask: each sequence attends as it does alone."""
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 1, 5, 4))
    padding = oracles.padding_mask([3, 5], 5)[:, None, None, :]
    batch = oracles.scaled_dot_product_attention(q, k, v, oracles.combine_masks(oracles.causal_mask(5), padding))
    alone = oracles.scaled_dot_product_attention(*(x[0, :, :3] for x in (q, k, v)), oracles.causal_mask(3))
    assert (np.abs(batch.mid[0, :, :3] - alone.mid) <= batch.rad[0, :, :3] + alone.rad).all()
