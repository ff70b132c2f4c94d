"""Causal masks, by their alignment and polarity."""

from typing import Any

import numpy as np
import pytest

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
