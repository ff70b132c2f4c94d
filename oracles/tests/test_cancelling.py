"""Scores that cancel: what underflows in float64 need not underflow exactly, and a quadrant needs
its last bits.

Counterexamples are searched for, as the order in which a library sums decides which inputs are.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from oracles.conventions import Conventions
from oracles.dot_product import (
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scaled_dot_product_attention_vjp,
)
from oracles.enclosure import Enclosure
from oracles.rotary.embeddings import rope
from oracles.softmax import hard_masked_softmax

Array = Any
TRIALS = 10000


def cancelling(rng: np.random.Generator, keys: int, size: float, target: float) -> tuple[Array, Array]:
    """A query and keys with R of about `size`: four products cancel, and a fifth makes the exact
    score of the last key `target`.
    """
    q = np.append(rng.uniform(0.3, 1, 4) * np.sqrt(size) / 1.3, 1.0)
    k = np.zeros((keys, 5))
    k[-1, :2], k[-1, 2] = rng.uniform(0.3, 1, 2) * np.sqrt(size) / 1.3, -rng.uniform(0.3, 1) * np.sqrt(size) / 1.3
    k[-1, 3] = -(q[:3] @ k[-1, :3]) / q[3]
    k[-1, 4] = float(Fraction(target) - sum(Fraction(a) * Fraction(b) for a, b in zip(q[:4], k[-1, :4], strict=True)))
    return q[None], k


def contains(found: Enclosure, exact: Enclosure) -> bool:
    """Whether the exact value, known to `exact.rad`, is within."""
    return bool((np.abs(found.mid - exact.mid) <= found.rad + exact.rad).all())


def problems() -> list[tuple[Array, Array, Array]]:
    """Problems whose weight is lost in float64, as this machine's library sums, and is not
    negligible: about e⁻⁶⁹⁰ of 10²⁹⁹.
    """
    rng = np.random.default_rng(0)
    found = []
    for _ in range(TRIALS):
        q, k = cancelling(rng, 2, rng.uniform(3.5e17, 7e17), -rng.uniform(692, 694))
        if -1000 < (q @ k.T)[0, 1] < -746:
            found.append((q, k, np.array([[0.0, 1.0], [1e299, 1.0]])))
    return found


def test_some_weights_underflow_because_their_scores_are_off() -> None:
    """The search finds what it is for: a weight is 0 in float64, and the exact one is not negligible."""
    assert len(problems()) >= 5
    for q, k, v in problems():
        assert np.exp((q @ k.T)[0, 1]) == 0
        assert scaled_dot_product_attention(q, k, v, scale=1.0, method="arb").mid[0, 0] > 1e-4


@pytest.mark.parametrize("method", ["fast", "auto"])
def test_a_weight_that_underflows_because_its_score_is_off_is_within_the_radius(method: Any) -> None:
    for q, k, v in problems():
        none, dv = (np.zeros_like(q), np.zeros_like(k)), np.array([[0.0, 0.0], [1.0, 0.0]])
        exact = scaled_dot_product_attention(q, k, v, scale=1.0, method="arb")
        assert contains(scaled_dot_product_attention(q, k, v, scale=1.0, method=method), exact)
        tangent = scaled_dot_product_attention_jvp(q, k, dv, None, *none, v, scale=1.0, method="arb")
        assert contains(scaled_dot_product_attention_jvp(q, k, dv, None, *none, v, scale=1.0, method=method), tangent)
        g = np.array([[1.0, 0.0]])
        gradients = scaled_dot_product_attention_vjp(q, k, v, None, g, scale=1.0, method="arb")
        for found, wanted in zip(
            scaled_dot_product_attention_vjp(q, k, v, None, g, scale=1.0, method=method), gradients, strict=True
        ):
            assert contains(found, wanted)


def test_a_budget_accepts_an_exactly_computed_score() -> None:
    """A float64 kernel may compute its scores better than the oracle: in twice the precision, say."""
    for q, k, v in problems():
        exact = scaled_dot_product_attention(q, k, v, scale=1.0, method="arb")
        budget = scaled_dot_product_attention(q, k, v, scale=1.0, arithmetic="float64")
        assert budget.excess(exact.mid).max() <= 1


def test_maxima_that_rise_by_more_than_a_rescaling_can_hold_keep_their_errors() -> None:
    """Tiles of 512 keys, each a row maximum of 800 higher, so that exp(m_old − m_new) underflows,
    with scores that may be off by 700.
    """
    rng = np.random.default_rng(1)
    for _ in range(20):
        q, k = cancelling(rng, 2, 10.0 ** rng.uniform(16, 18), -rng.uniform(600, 700))
        far = np.vstack([k[-1:], np.zeros((512, 5)), k[:1]])
        far[1:-1, 4] = -rng.uniform(700, 800)
        v = np.ones((len(far), 2))
        v[0, 0] = 1e299
        exact = scaled_dot_product_attention(q, far, v, scale=1.0, method="arb")
        assert contains(scaled_dot_product_attention(q, far, v, scale=1.0, method="fast"), exact)


def test_a_softmax_of_scores_that_underflow_is_within_the_radius() -> None:
    s = np.array([[0.0, -744.0], [0.0, -746.0], [1e12, 1e12 - 745.0], [-1e15, -1e15 - 740.0]])
    assert contains(hard_masked_softmax(s, method="fast"), hard_masked_softmax(s, method="arb"))


def test_quadrants_beyond_two_to_the_53rd_keep_their_last_bits() -> None:
    rng = np.random.default_rng(0)
    x = np.array([[1.0, 0.0]])
    for _ in range(200):
        start = int(rng.integers(2**50, 2**53 - 1))
        read = Conventions(rope_scale=float(rng.uniform(0.1, 3.2)))
        assert contains(rope(x, start, conventions=read, method="fast"), rope(x, start, conventions=read, method="arb"))
