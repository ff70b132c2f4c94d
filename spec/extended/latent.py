"""Multi-head latent attention: all heads share one row of numbers for each key, and the values are
the first channels of these rows.

This module is not TorchLean's: see `spec.extended`. A latent row has c compressed channels and r
rotated ones, so q and the latent rows have c + r channels, and the values c. The scale is the
model's, 1/√(dNope + r), and never 1/√(c + r): there is no default.

Sources: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1, equations (9)–(19); FlashMLA
"""

from typing import Any

import numpy as np

from spec.context import Context, Scalar
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
    q_nope: Tensor[Array, "H nQ dNope"],
    q_rope: Tensor[Array, "H nQ r"],
    compressed: Tensor[Array, "nK c"],
    k_rope: Tensor[Array, "nK r"],
    w_uk: Tensor[Array, "H c dNope"],
    w_uv: Tensor[Array, "H c dV"],
    scale: Scalar,
    causal: bool = False,
    scalar: Context | None = None,
) -> Tensor[Array, "H nQ dV"]:
    """Return the output of a latent layer in its expanded form: each head has keys and values of its
    own, made from the compressed rows.

        k_h = [compressed · w_uk_h, k_rope]    v_h = compressed · w_uv_h
        out_h = attention([q_nope_h, q_rope_h], k_h, v_h)

    The absorbed form gives the same: latent_attention([q_nope_h · w_uk_hᵀ, q_rope_h], [compressed,
    k_rope], c) · w_uv_h. There each key row is read as it is stored.

    Edge cases: no keys, no channels of either kind, and no heads are legal.

    >>> one = np.ones((1, 1, 1))
    >>> latent_layer(one, one, np.array([[1.0], [3.0]]), np.zeros((2, 1)), one, 2 * one, scale=0.0).tolist()
    [[[4.0]]]
    """
    heads = len(q_nope)
    q = np.concatenate([q_nope, q_rope], -1)

    def expanded(w: Array) -> Array:
        return stack((heads, len(compressed), w.shape[-1]), lambda h: mat_mul_spec(compressed, w[h]))

    rotated = np.broadcast_to(k_rope, (heads, *k_rope.shape))
    k, v = np.concatenate([expanded(w_uk), rotated], -1), expanded(w_uv)
    return attention(q, k, v, scale=scale, causal=causal)[0]
