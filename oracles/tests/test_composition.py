"""Attention composed of the primitives of `oracles.ball`, one by one, against the fused evaluation:
two derivations, one value.
"""

import numpy as np
import pytest

import oracles
from oracles import ball
from oracles.ball import Ball, exact


def _textbook(q, k, v, mask):
    """softmax(q·kᵀ/√d)·v, an operation at a time: blocked scores are −∞, so their weights are exactly 0."""
    d = q.shape[-1]
    scores = ball.divide(ball.matmul(exact(q), exact(k.T)), ball.sqrt(exact(np.full((1, 1), float(d)))))
    rows = []
    for i in range(len(q)):
        allowed = np.flatnonzero(mask[i])
        weights = ball.exp(ball.max_shift(Ball(scores.mid[i : i + 1, allowed], scores.rad[i : i + 1, allowed])))
        total = ball.total(weights)
        rows.append(ball.divide(ball.matmul(weights, exact(v[allowed])), Ball(total.mid[:, None], total.rad[:, None])))
    return Ball(np.concatenate([r.mid for r in rows]), np.concatenate([r.rad for r in rows]))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3])
def test_attention_composed_of_the_primitives_meets_the_fused_evaluation(seed, scale):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((n, 5)) for n in (4, 9, 9))
    mask = rng.random((4, 9)) < 0.6
    mask[:, 0] = True
    composed, fused = _textbook(scale * q, k, v, mask), oracles.scaled_dot_product_attention(scale * q, k, v, mask)
    assert (np.abs(composed.mid - fused.mid) <= composed.rad + fused.rad).all()
    assert (composed.rad <= 1e-9 * np.abs(v).max()).all()  # so that meeting means something


@pytest.mark.parametrize("position", [0, 1, 257, 2**20])
def test_a_rotation_composed_of_the_primitives_meets_the_oracle(position):
    x = np.random.default_rng(position).standard_normal((1, 2))  # pair 0: the angle is the position exactly
    cos, sin = ball.cos(exact([[float(position)]])), ball.sin(exact([[float(position)]]))
    a, b = exact(x[:, :1]), exact(x[:, 1:])
    parts = (a * cos - b * sin, b * cos + a * sin)
    composed = Ball(np.hstack([p.mid for p in parts]), np.hstack([p.rad for p in parts]))
    rotated = oracles.rope(x, start_pos=position)
    assert (np.abs(composed.mid - rotated.mid) <= composed.rad + rotated.rad).all()
