"""Queries and keys rotated by a kind: the definition is enclosed, a kernel of float32 that computes its
frequencies is within the error limit, and what is refused.
"""

import re
from typing import Any

import numpy as np
import pytest

import oracles
from oracles.arb_matrix import working_precision
from oracles.ball import Array
from spec import ARB
from spec.extended import rotary as defined
from spec.tensor_core import tensor

F = np.float32
RANDOM = np.random.default_rng(0)
LLAMA = {"base": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("default", {}),
    ("linear", {"factor": 4.0, "freq_factors": np.array([1.0, 2.5, 8.0, 32.0])}),
    ("llama3", LLAMA | {"original_max_position_embeddings": 8192}),
    ("yarn", {"factor": 4.0, "original_max_position_embeddings": 64, "freq_factors": np.full(4, 3.0)}),
]


@pytest.mark.parametrize(("kind", "given"), CALLS, ids=[kind for kind, _ in CALLS])
def test_the_definition_is_enclosed(kind: str, given: dict[str, Any]) -> None:
    q, k, positions = RANDOM.normal(size=(2, 3, 8)), RANDOM.normal(size=(1, 3, 8)), np.array([0, 7, 4096])
    found = oracles.rotary_embedding(q, k, positions, kind, **given)
    balls = {name: tensor(x, ARB) if isinstance(x, np.ndarray) else x for name, x in given.items()}
    with working_precision(200):
        expected = defined.rotary_embedding(tensor(q, ARB), tensor(k, ARB), positions, kind, **balls, scalar=ARB)
    for enclosure, exact in zip(found, expected, strict=True):
        for mid, rad, ball in zip(enclosure.mid.flat, enclosure.rad.flat, exact.flat, strict=True):
            assert abs(ball - float(mid)) <= float(rad)
            assert rad < 1e-10


def kernel(x: Array, positions: Array, divisors: Array) -> Array:
    """Adjacent pairs rotated in float32, by frequencies of base 10⁴ over divisors."""
    pair = np.arange(x.shape[-1] // 2, dtype=F)
    theta = positions.astype(F)[:, None] * (F(10000) ** (-2 * pair / F(x.shape[-1])) / divisors)
    a, b, c, s = x[..., ::2], x[..., 1::2], np.cos(theta), np.sin(theta)
    return np.stack([a * c - b * s, b * c + a * s], -1).reshape(x.shape)


def test_a_kernel_in_float32_is_within_the_error_limit_and_one_without_divisors_is_not() -> None:
    q, k = (RANDOM.normal(size=(heads, 5, 16)).astype(F) for heads in (4, 2))
    divisors, positions = np.linspace(1, 8, 8, dtype=F), np.arange(5) + 3000
    given: dict[str, Any] = {"freq_factors": divisors, "arithmetic": "float32"}
    budgets = oracles.rotary_embedding(q, k, positions, "default", **given)
    for budget, x in zip(budgets, (q, k), strict=True):
        assert budget.excess(kernel(x, positions, divisors)).max() <= 1
        assert budget.excess(kernel(x, positions, np.ones(8, F))).max() > 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"k": np.ones((1, 2, 6))}, "k ends with the axes (2, 6), but should end with (2, 4) like q: (seq, head_dim)."),
        ({"freq_factors": np.ones(3)}, "freq_factors has shape (3,), but should be (2,)."),
        (
            {"freq_factors": np.array([1.0, 0.0])},
            "freq_factors has an entry that is not a finite number above 0.",
        ),
        ({"kind": "linear"}, "factor is missing, but is a parameter of 'linear' without a default."),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(changed: dict[str, Any], message: str) -> None:
    right = {"q": np.ones((1, 2, 4)), "k": np.ones((1, 2, 4)), "positions": np.arange(2), "kind": "default"}
    with pytest.raises(ValueError, match=re.escape(message)):
        oracles.rotary_embedding(**right | changed)
