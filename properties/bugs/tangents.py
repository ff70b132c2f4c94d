"""Slips in the forward derivative of attention."""

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import unguarded_softmax
from properties.reference import (
    Mask,
    attention_weights,
    scaled_dot_product_attention,
    scaled_dot_product_attention_jvp,
    scores_of,
    softmax_backward,
)

bug = Register()

ADJOINT = "vjp and jvp are adjoint"
LINEAR = "the jvp is linear"
VALUES = "a tangent of the values alone is attention of it"
CONSTANT = "constant values have no tangent from the scores"


def _tangent(q: Array, k: Array, v: Array, mask: Mask, ds: Array, dv: Array) -> Array:
    """The tangent of the output for the tangent ds of the scores."""
    p = attention_weights(q, k, mask)
    return softmax_backward(p, ds) @ v + p @ dv


@bug(
    "scaled_dot_product_attention_jvp",
    effect="What the values' tangent gives is missing.",
    repair="Add P dv.",
    citation="none: the class is known",
    law=VALUES,
    public=True,
)
def jvp_missing_value_tangent(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """dout = dP v, without P dv."""
    return scaled_dot_product_attention_jvp(q, k, v, mask, dq, dk, np.zeros(dv.shape))


@bug(
    "scaled_dot_product_attention_jvp",
    effect="The tangents of a row's weights do not sum to 0, so that even constant values get a tangent.",
    repair="dP = P ⊙ (dS − Σ P·dS).",
    citation="none: the class is known",
    law=CONSTANT,
    public=True,
)
def jvp_softmax_uncentred(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """dP = P ⊙ dS, without the mean of the row."""
    p = attention_weights(q, k, mask)
    return p * (scores_of(dq, k) + scores_of(q, dk)) @ v + p @ dv


@bug(
    "scaled_dot_product_attention_jvp",
    effect="What the keys' tangent gives is missing.",
    repair="dS = (dq kᵀ + q dkᵀ) / √d.",
    citation="none: keys from a cache are constants, until they are not",
    law=ADJOINT,
)
def jvp_key_tangent_ignored(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """dS = dq kᵀ / √d, without q dkᵀ."""
    return _tangent(q, k, v, mask, scores_of(dq, k), dv)


@bug(
    "scaled_dot_product_attention_jvp",
    effect="What the keys' tangent gives is √d times too large.",
    repair="Scale both terms.",
    citation="none: the queries are scaled beforehand in one term, and not in the other",
    law=ADJOINT,
)
def jvp_key_tangent_not_scaled(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """dS = dq kᵀ / √d + q dkᵀ."""
    return _tangent(q, k, v, mask, scores_of(dq, k) + scores_of(q, dk) * np.sqrt(max(q.shape[-1], 1)), dv)


@bug(
    "scaled_dot_product_attention_jvp",
    effect="Tangents are wrong in the second order: right for small ones, or for one tangent at a time.",
    repair="Leave out dq dkᵀ.",
    citation="none: the difference (q + dq)(k + dk)ᵀ − q kᵀ is taken for the derivative",
    law=LINEAR,
)
def jvp_product_of_tangents(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """dS contains dq dkᵀ."""
    return _tangent(q, k, v, mask, scores_of(dq, k) + scores_of(q + dq, dk), dv)


@bug(
    "scaled_dot_product_attention_jvp",
    effect="One digit is right, fewer for steep scores.",
    repair="Differentiate instead.",
    citation="none: a stand-in from before the derivative was written",
    law=LINEAR,
)
def jvp_by_finite_differences(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """The tangent is a quotient of differences with a step of 1/8: a smaller one would lose to rounding, and differ by processor."""
    step = 0.125
    moved = scaled_dot_product_attention(q + step * dq, k + step * dk, v + step * dv, mask)
    return np.asarray((moved - scaled_dot_product_attention(q, k, v, mask)) / step)


@bug(
    "scaled_dot_product_attention_jvp",
    effect="The tangents of a row's weights do not sum to 0 unless the weights are equal.",
    repair="Weight the mean by P.",
    citation="none: a plain mean also cancels what is common to all keys",
    law=CONSTANT,
)
def jvp_centred_by_the_plain_mean(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """dP = P ⊙ (dS − the plain mean of dS)."""
    p, ds = attention_weights(q, k, mask), scores_of(dq, k) + scores_of(q, dk)
    return np.asarray(p * (ds - ds.mean(-1, keepdims=True)) @ v + p @ dv)


@bug(
    "scaled_dot_product_attention_jvp",
    effect="Tangents of blocked keys leak into the mean of the row.",
    repair="Take the mean with the masked weights.",
    citation="none: the mask is applied to the product, and the mean was computed before",
    law=CONSTANT,
)
def jvp_mean_over_blocked_keys(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """The mean that centres dS has the weights of the unmasked softmax."""
    p, ds = attention_weights(q, k, mask), scores_of(dq, k) + scores_of(q, dk)
    return np.asarray(p * (ds - (attention_weights(q, k) * ds).sum(-1, keepdims=True)) @ v + p @ dv)


@bug(
    "scaled_dot_product_attention_jvp",
    effect="Tangents of blocked values reach the output.",
    repair="Use the masked weights in both terms.",
    citation="none: the second term recomputes the weights, without the mask",
    law=VALUES,
)
def jvp_blocked_value_tangents_leak(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """P dv is computed with the weights of the unmasked softmax."""
    return scaled_dot_product_attention_jvp(q, k, v, mask, dq, dk, np.zeros(dv.shape)) + attention_weights(q, k) @ dv


@bug(
    "scaled_dot_product_attention_jvp",
    effect="Tangents of the last values are lost, unless their number is a multiple of 32 or below it.",
    repair="Round the number of tiles up in each of the loops.",
    citation="none: the counterpart of tile-ai/tilelang#2010 in the loop over the values' tangents",
    law=VALUES,
)
def jvp_tail_value_tangents_dropped(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """Of more than 32 tangents of values those beyond the last full tile of 32 are left out."""
    kept = np.arange(k.shape[-2]) < (k.shape[-2] // 32 * 32 or k.shape[-2])
    return scaled_dot_product_attention_jvp(q, k, v, mask, dq, dk, dv * kept[:, None])


@bug(
    "scaled_dot_product_attention_jvp",
    effect="Tangents of queries and keys are exchanged in self-attention; where their shapes differ all is right.",
    repair="Pass tangents in the order of the inputs.",
    citation="none: two arrays of one shape can be exchanged without a complaint",
    law=ADJOINT,
)
def jvp_tangents_exchanged(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """dq and dk are exchanged where they have one shape."""
    dq, dk = (dk, dq) if dq.shape == dk.shape else (dq, dk)
    return scaled_dot_product_attention_jvp(q, k, v, mask, dq, dk, dv)


@bug(
    "scaled_dot_product_attention_jvp",
    effect="A query with no allowed key has a NaN tangent, though its output is 0.",
    repair="Set the weights of such a row to 0.",
    citation="none: the forward was mended, its derivative was not; compare pytorch/pytorch#41508",
    law="a dead query has tangent by convention",
)
def jvp_dead_rows_nan(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """In a row with no allowed key the weights are 0/0."""
    p = unguarded_softmax(scores_of(q, k), mask)
    return softmax_backward(p, scores_of(dq, k) + scores_of(q, dk)) @ v + p @ dv
