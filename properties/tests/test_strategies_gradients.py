"""Domains of derivatives and of heads reach what laws are about."""

import numpy as np
import pytest

from properties.bugs.reference import REFERENCE
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.strategies.cases import Cases
from properties.strategies.domains import DOMAINS

ANY = Implementation("reference", REFERENCE)
SDPA, HEADS = "scaled_dot_product_attention", "multi_head_attention"


def drawn(operation, domain, implementation=ANY, number=300):
    """Cases by the names of their entries."""
    o = OPERATIONS[operation]
    cases = Cases(o, DOMAINS[operation][domain], implementation)
    return [dict(zip(o.parameters, cases.draw(seed), strict=True)) for seed in range(number)]


@pytest.mark.parametrize("operation", [name for name in DOMAINS if "small" in DOMAINS[name]])
def test_small_cases_have_sizes_of_one_to_three(operation):
    sizes = [OPERATIONS[operation].sizes(tuple(case.values())) for case in drawn(operation, "small")]
    small = [
        size
        for found in sizes
        for name, size in found.items()
        if name in ("n_q", "n_k", "seq_len", "head_dim", "value_dim")
    ]
    assert set(small) == {1, 2, 3}


def test_extreme_scores_come_with_weights_that_are_not_one_hot():
    def spread(q, k):
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        return np.abs(scores).min() > 500 and ((scores > scores.max(-1, keepdims=True) - 2).sum(-1) > 1).any()

    assert any(spread(case["q"], case["k"]) for case in drawn(f"{SDPA}_vjp", "extreme scores"))


def test_padded_tokens_are_read_by_none_and_others_by_some():
    cases = drawn(f"{HEADS}_vjp", "padded masks")
    assert all(case["mask"].any(-1).all() for case in cases)
    assert any((~case["mask"].any(-2)).any() for case in cases)


def test_everyday_projections_make_everyday_scores():
    for case in drawn(HEADS, "everyday"):
        scores = (case["x"] @ case["wq"]) @ (case["x"] @ case["wk"]).swapaxes(-1, -2)
        assert np.abs(scores).max() < 1e4


def test_square_models_are_as_wide_as_their_heads():
    square = Implementation("square", REFERENCE, supports={"model_dim_minus_heads_width": lambda n: n == 0})
    assert all(case["wq"].shape[0] == case["wq"].shape[1] for case in drawn(HEADS, "everyday", square, 100))
    assert any(case["num_heads"] == 3 for case in drawn(HEADS, "everyday", square, 100))


def test_groups_are_ones_of_several_heads_of_keys():
    cases = drawn("grouped_query_attention", "padded masks")
    assert any(case["q"].shape[-3] == 6 and case["k"].shape[-3] == 2 for case in cases)
    assert any((case["mask"][..., 0, :, :] != case["mask"][..., -1, :, :]).any() for case in cases)
