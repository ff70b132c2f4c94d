"""Latent attention: against einsum, and its two forms against each other."""

import numpy as np
import pytest

from spec import ARB, REAL64
from spec.extended.latent import latent_attention, latent_layer
from spec.tensor_core import tensor

RANDOM = np.random.default_rng(0)


def drawn(*shape):
    return RANDOM.integers(-16, 17, shape) / 8


def test_scores_read_all_channels_and_values_the_first_ones():
    q, latent = drawn(2, 3, 4, 5), drawn(2, 6, 5)
    scores = 0.25 * np.einsum("bhid,bjd->bhij", q, latent)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    out, lse = latent_attention(q, latent, 3, scale=0.25, scalar=REAL64)
    assert np.allclose(out, np.einsum("bhij,bjc->bhic", weights, latent[..., :3]), rtol=1e-13, atol=1e-13)
    assert np.allclose(lse, np.log(np.exp(scores).sum(-1)), rtol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_the_absorbed_form_encloses_the_expanded_one(causal):
    heads, n_q, n_k, c, nope, r, d_v = 2, 3, 4, 3, 2, 2, 5
    shapes = ((heads, n_q, nope + r), (n_k, c + r), (heads, c, nope), (heads, c, d_v))
    q, latent, w_uk, w_uv = (tensor(drawn(*shape), ARB) for shape in shapes)
    expanded = latent_layer(q, latent, w_uk, w_uv, scale=0.5, causal=causal, scalar=ARB)
    absorbing = np.concatenate([np.einsum("hid,hcd->hic", q[..., :nope], w_uk), q[..., nope:]], -1)
    absorbed, _ = latent_attention(absorbing, latent, c, scale=0.5, causal=causal, scalar=ARB)
    for one, other in zip(expanded.flat, np.einsum("hic,hcv->hiv", absorbed, w_uv).flat, strict=True):
        assert one.overlaps(other)
        assert one.rad() < 1e-12


def test_more_values_than_channels_are_refused():
    with pytest.raises(ValueError, match="value_dim=3, but should be at most 2, the width of latent"):
        latent_attention(np.ones((1, 1, 2)), np.ones((1, 2)), 3, scale=1.0)
