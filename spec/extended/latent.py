"""Multi-head latent attention: all heads share one row of numbers for each key, and the values are
the first channels of these rows.

This module is not TorchLean's: see `spec.extended`. A latent row has c compressed channels and r
rotated ones, so q and the latent rows have c + r channels, and the values c. The scale is the
model's, 1/√(dNope + r), and never 1/√(c + r): there is no default.

Sources: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1, equations (9)–(19); FlashMLA
"""

from typing import Any

import numpy as np

from spec.context import Scalar
from spec.extended.attention import attention
from spec.lean import definition
from spec.tensor_core import Array, Tensor, stack
from spec.tensor_linalg import mat_mul_spec

__all__ = ["latent_attention", "latent_layer"]


@definition()
def latent_attention(
    q: Tensor[Array, "*batch H nQ d"],
    latent: Tensor[Array, "*batch nK d"],
    value_dim: int,
    scale: Scalar,
    **options: Any,
) -> tuple[Tensor[Array, "*batch H nQ dV"], Tensor[Array, "*batch H nQ"]]:
    """Return (out, lse) of attention with one key head, whose keys are the latent rows and whose
    values are their first `value_dim` channels.

    The options are those of `spec.extended.attention` except the bias.

    Edge cases: value_dim = 0 gives outputs without channels; value_dim = d makes keys and values
    equal.
    Raises ValueError if value_dim is larger than d.

    >>> q, latent = np.array([[[2.0, 0.0, 1.0]]]), np.array([[0.0, 5.0, 0.0], [0.0, 7.0, np.log(3.0)]])
    >>> out, lse = latent_attention(q, latent, 2, scale=1.0)  # the third channel is in scores only
    >>> out.round(6).tolist(), np.exp(lse).round(6).tolist()
    ([[[0.0, 6.5]]], [[4.0]])
    """
    if value_dim > latent.shape[-1]:
        raise ValueError(f"value_dim={value_dim}, but should be at most {latent.shape[-1]}, the width of latent.")
    keys = latent[..., None, :, :]
    return attention(q, keys, keys[..., :value_dim], scale=scale, **options)


@definition()
def latent_layer(
    q: Tensor[Array, "H nQ dQ"],
    latent: Tensor[Array, "nK d"],
    w_uk: Tensor[Array, "H c dNope"],
    w_uv: Tensor[Array, "H c dV"],
    scale: Scalar,
    **options: Any,
) -> Tensor[Array, "H nQ dV"]:
    """Return the output of a latent layer in its expanded form: each head has keys and values of its
    own, made from the first c channels of the latent rows. The other r channels are rotated ones.

        k_h = [latent[:, :c] · w_uk_h, latent[:, c:]]    v_h = latent[:, :c] · w_uv_h
        out_h = attention(q_h, k_h, v_h)

    The absorbed form gives the same, and reads each latent row as it is stored:
    latent_attention([q_h[:, :dNope] · w_uk_hᵀ, q_h[:, dNope:]], latent, c) · w_uv_h. A head of q has
    dQ = dNope + r channels, and a latent row c + r.

    Edge cases: no keys, no heads, and no channels of either kind are legal.
    Raises ValueError if q and latent differ in their numbers of rotated channels.

    >>> q, latent, one = np.ones((1, 1, 2)), np.array([[1.0, 0.0], [3.0, 0.0]]), np.ones((1, 1, 1))
    >>> latent_layer(q, latent, one, 2 * one, scale=0.0).tolist()
    [[[4.0]]]
    """
    heads, c, _ = w_uk.shape
    compressed, rotated = latent[:, :c], np.broadcast_to(latent[:, c:], (heads, *latent[:, c:].shape))

    def expanded(w: Array) -> Array:
        return stack((heads, len(latent), w.shape[-1]), lambda h: mat_mul_spec(compressed, w[h]))

    return attention(q, np.concatenate([expanded(w_uk), rotated], -1), expanded(w_uv), scale=scale, **options)[0]
