"""Scores that cancel: what underflows in float64 need not underflow exactly, and a quadrant needs its last bits.

Counterexamples are searched for, as the order in which a library sums decides which inputs are.
"""

from typing import Any

import numpy as np
import pytest

from oracles.attention import scaled_dot_product_attention, scaled_dot_product_attention_jvp, scaled_dot_product_attention_vjp
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.rotary import rope
from oracles.softmax import hard_masked_softmax

Array = Any
TRIALS = 60


def cancelling(rng: np.random.Generator, keys: int, size: float, target: float) -> tuple[Array, Array]:
    """A query and keys whose products are of `size` and cancel: the exact scores are 0 and, for the last key, about `target`."""
    q = np.append(rng.random(4) * np.sqrt(size), 1.0)
    k = np.zeros((keys, 5))
    k[-1, :4] = rng.uniform(-1, 1, 4) * np.sqrt(size)
    exact = sum((int(a) * int(b) for a, b in zip(np.rint(q[:4]), np.rint(k[-1, :4]), strict=True)), start=0)
    q[:4], k[-1, :4] = np.rint(q[:4]), np.rint(k[-1, :4])
    k[-1, 4] = float(-exact)
    missing = int(-exact) - int(k[-1, 4])
    return np.append(q, 1.0)[None], np.column_stack([k, np.append(np.zeros(keys - 1), missing + target)])


def contains(found: Enclosure, exact: Enclosure) -> bool:
    """Whether the exact value, known to `exact.rad`, is within."""
    return bool((np.abs(found.mid - exact.mid) <= found.rad + exact.rad).all())


def problems() -> list[tuple[Array, Array, Array]]:
    rng = np.random.default_rng(0)
    found = []
    for trial in range(TRIALS):
        size, target = 10.0 ** rng.uniform(17, 18.5), -rng.uniform(670, 692)
        q, k = cancelling(rng, 2, size, target)
        value = 1e299 if trial % 3 else np.exp(min(-target, 690.0) - rng.uniform(0, 20))
        found.append((q, k, np.array([[0.0, 1.0], [value, 1.0]])))
    return found


def test_some_weights_underflow_because_their_scores_are_off() -> None:
    """The search finds what it is for: float64's score is 0 to the last bit of e, and the exact weight is not negligible."""
    lost = 0
    for q, k, v in problems():
        e = float(np.exp(min((q @ k.T)[0, 1], 0.0)))
        exact = scaled_dot_product_attention(q, k, v, scale=1.0, method="arb").mid[0, 0]
        lost += e == 0 and exact > 1e-3
    assert lost >= 5


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
        for found, wanted in zip(scaled_dot_product_attention_vjp(q, k, v, None, g, scale=1.0, method=method), gradients, strict=True):
            assert contains(found, wanted)


def test_a_budget_accepts_an_exactly_computed_score() -> None:
    """A float64 kernel may compute its scores better than the oracle: in twice the precision, say."""
    for q, k, v in problems():
        exact = scaled_dot_product_attention(q, k, v, scale=1.0, method="arb")
        budget = scaled_dot_product_attention(q, k, v, scale=1.0, arithmetic="float64")
        assert budget.excess(exact.mid).max() <= 1


def test_maxima_that_rise_by_more_than_a_rescaling_can_hold_keep_their_errors() -> None:
    """Tiles of 512 keys, each a row maximum of 800 higher, so that exp(m_old − m_new) underflows, with scores that may be off by 700."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        q, k = cancelling(rng, 2, 10.0 ** rng.uniform(16, 18), -rng.uniform(600, 700))
        far = np.vstack([k[-1:], np.zeros((512, 6)), k[:1]])
        far[1:, 5] = -rng.uniform(700, 800)
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
