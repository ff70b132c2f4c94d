"""Latent attention: the definition lies within the radius, and what is refused."""

import re

import flint
import numpy as np
import pytest

import oracles
from spec import ARB
from spec.extended import latent as defined
from spec.tensor_core import tensor

RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize("method", ["fast", "arb"])
@pytest.mark.parametrize(
    "options", [{}, {"causal": True, "window": (2, None)}, {"softcap": 2.0, "sink": np.array([0.5, -1.0])}]
)
def test_the_definition_is_enclosed(options, method):
    q, latent = RANDOM.normal(size=(2, 3, 7)), RANDOM.normal(size=(5, 7))
    found = oracles.latent_attention(q, latent, 4, 0.3, **options, method=method)
    balls = {name: tensor(value, ARB) if name == "sink" else value for name, value in options.items()}
    with flint.ctx.workprec(200):
        expected = defined.latent_attention(tensor(q, ARB), tensor(latent, ARB), 4, ARB.lift(0.3), **balls)
    for enclosure, exact in zip(found, expected, strict=True):
        for mid, rad, ball in zip(enclosure.mid.flat, enclosure.rad.flat, exact.flat, strict=True):
            assert abs(ball - mid) <= rad
            assert rad < 1e-12


def test_the_budget_covers_numpy_in_float32():
    q, latent = (RANDOM.normal(size=shape).astype(np.float32) for shape in ((3, 4, 24), (50, 24)))
    scores = np.float32(0.2) * (q @ latent.T)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = (weights / weights.sum(-1, keepdims=True)) @ latent[:, :16]
    assert not (oracles.latent_attention(q, latent, 16, np.float32(0.2), arithmetic="float32")[0].excess(out) > 1).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((1, 2)), 1, 1.0), "q has shape"),
        ((np.ones((1, 1, 2)), 3, 1.0), "value_dim=3, but should be at most 2."),
        ((np.ones((1, 1, 2)), 1, None), "scale=None, but should be a number"),
        ((np.ones((1, 1, 2)), -1, 1.0), "value_dim=-1, but should be at least 0."),
    ],
)
def test_bad_input_is_refused_with_a_sentence(arguments, message):
    q, value_dim, scale = arguments
    with pytest.raises(ValueError, match=re.escape(message)):
        oracles.latent_attention(q, np.ones((3, 2)), value_dim, scale)
