"""Rows of tables and exchanged halves: what is moved comes out as it was."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import oracles
from oracles import FLOAT32, Conventions

TABLE = np.arange(12.0).reshape(4, 3)
METHODS: Any = pytest.mark.parametrize("method", ["auto", "fast", "arb"])


def exactly(found: oracles.Enclosure, expected: Any) -> bool:
    return np.array_equal(found.mid, expected) and not found.rad.any()


@METHODS
def test_positions_begin_after_the_rows_that_are_not_theirs(method: Any) -> None:
    assert exactly(oracles.learned_positional_encoding(TABLE, 3, offset=1, method=method), TABLE[1:])
    assert exactly(
        oracles.learned_positional_encoding(TABLE, 1, 1, offset=2, arithmetic="bfloat16", method=method), TABLE[3:]
    )
    assert exactly(oracles.learned_positional_encoding(TABLE, 0, 0, offset=4, method=method), TABLE[4:])
    assert exactly(oracles.learned_positional_encoding(TABLE, 2, 1, max_len=3, method=method), TABLE[1:3])


@METHODS
def test_a_lookup_reads_the_row_of_every_index(method: Any) -> None:
    for indices in (
        [3, 0, 3],
        (3, 0, 3),
        range(3),
        np.array([[1, 2], [0, 0]]),
        np.array(2, dtype=np.uint8),
        torch.tensor([[1]]),
    ):
        expected = TABLE[np.asarray(indices)]
        assert exactly(oracles.table_lookup(TABLE, indices, method=method), expected)
        assert exactly(oracles.table_lookup(TABLE, indices, arithmetic="float16", method=method), expected)


def test_padding_reads_zeros_whatever_its_row_holds() -> None:
    """As torch's embedding with a padding index, whose row is zeros; a NaN there is not read."""
    table = TABLE.copy()
    table[1] = np.nan
    indices = np.array([[2, 3, 1], [2, 1, 1]])
    padded = oracles.table_lookup(table, indices, padding_row=1)
    layer = torch.nn.Embedding(4, 3, padding_idx=1)
    with torch.no_grad():
        layer.weight[[0, 2, 3]] = torch.from_numpy(TABLE[[0, 2, 3]]).float()
    assert exactly(padded, layer(torch.from_numpy(indices)).detach().numpy())
    assert (
        np.isnan(oracles.table_lookup(table, indices).mid).tolist()
        == (indices == 1)[..., None].repeat(3, axis=-1).tolist()
    )


def test_a_padded_batch_is_looked_up_by_its_lengths() -> None:
    """Row 0 is for padding and position p reads row p + 1: each sequence is what it is alone, then zeros."""
    lengths = [2, 0, 3]
    own = oracles.padding_mask(lengths, 3)
    found = oracles.table_lookup(TABLE, np.where(own, np.arange(3) + 1, 0), padding_row=0)
    for b, length in enumerate(lengths):
        assert np.array_equal(found.mid[b, :length], oracles.learned_positional_encoding(TABLE, length, offset=1).mid)
        assert not found.mid[b, length:].any()


@METHODS
def test_the_second_half_comes_first_and_is_negated(method: Any) -> None:
    x = np.arange(1.0, 13.0).reshape(2, 6)
    assert exactly(oracles.rotate_half(x, method=method), [[-4, -5, -6, 1, 2, 3], [-10, -11, -12, 7, 8, 9]])
    assert exactly(oracles.rotate_half(x, axis=0, method=method), [[-7, -8, -9, -10, -11, -12], [1, 2, 3, 4, 5, 6]])
    assert exactly(oracles.rotate_half(np.array([1.0, 2.0]), arithmetic="bfloat16", method=method), [-2, 1])


@settings(max_examples=60)
@given(st.lists(st.sampled_from([0, 1, 2, 4]), min_size=1, max_size=4), st.data())
def test_four_quarter_turns_along_any_axis_are_none(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] *= 2
    x = np.random.default_rng(0).normal(size=shape)
    turned = x
    for _ in range(2):
        found = oracles.rotate_half(turned, axis=axis)
        assert exactly(found, np.moveaxis(oracles.rotate_half(np.moveaxis(turned, axis, -1)).mid, -1, axis))
        turned = found.mid
    assert np.array_equal(turned, -x)


def test_with_tables_of_halves_it_is_rope() -> None:
    half = Conventions(rope_pairing="half", rope_scale=0.25)
    x = np.random.default_rng(0).normal(size=(3, 8))
    cos, sin = oracles.rope_tables(3, 8, 7, conventions=half)
    by_hand = x * cos.mid + oracles.rotate_half(x).mid * sin.mid
    assert np.allclose(by_hand, oracles.rope(x, 7, conventions=half).mid, rtol=0, atol=1e-14)
    applied = oracles.apply_rotary(x, cos.mid, sin.mid, arithmetic="float64", conventions=half)
    assert applied.contains(by_hand).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_a_single_entry(poison: float) -> None:
    x = np.ones((2, 4))
    x[1, 3] = poison
    for found, entry in ((oracles.rotate_half(x), [1, 1]), (oracles.table_lookup(x, [1, 0]), [0, 3])):
        assert np.argwhere(np.isnan(found.mid)).tolist() == np.argwhere(np.isinf(found.rad)).tolist() == [entry]


def test_results_share_no_memory_with_inputs() -> None:
    x = np.ones((2, 2))
    for found in (
        oracles.learned_positional_encoding(x, 1, offset=1),
        oracles.table_lookup(x, [0, 1]),
        oracles.table_lookup(x, [0, 1], padding_row=0),
        oracles.rotate_half(x),
    ):
        assert not np.shares_memory(found.mid, x)
        found.mid[:] = 7.0
    assert (x == 1).all()


def test_an_output_of_fewer_bits_is_rounded_and_one_of_more_is_not() -> None:
    x = np.array([[1.0, 1 + 2.0**-20]], dtype=np.float32)
    narrow = replace(FLOAT32, output=oracles.BINARY16)
    for call in (lambda a: oracles.rotate_half(x, arithmetic=a), lambda a: oracles.table_lookup(x, [0], arithmetic=a)):
        rounded = call(FLOAT32).mid.astype(np.float16)
        assert call(narrow).contains(rounded).all()
        assert not call(FLOAT32).contains(rounded).all()
        assert not call(replace(FLOAT32, output=oracles.BINARY64)).rad.any()


def test_what_is_tiny_may_be_flushed_only_where_that_is_said() -> None:
    x = np.array([[2.0**-130, 1.0]], dtype=np.float32)
    for flushes in (False, True):
        model = replace(FLOAT32, flush_to_zero=flushes)
        assert oracles.rotate_half(x, arithmetic=model).contains(np.array([[-1.0, 0.0]]))[0, 1] == flushes
        assert oracles.table_lookup(x, [0], arithmetic=model).contains(np.array([[0.0, 1.0]]))[0, 0] == flushes
