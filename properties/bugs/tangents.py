"""Slips in the forward derivative of attention."""

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import BACKWARD, SDPA_JVP, Register, named
from properties.bugs.reference import Mask

bug = Register()


@bug.slip(SDPA_JVP, law="vjp and jvp are adjoint", public=True)
def jvp_missing_value_tangent(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """dout = dP v, without P dv.
    Effect: What the values' tangent gives is missing. Repair: Add P dv. Seen: none: the class is
    known"""
    return right.scaled_dot_product_attention_jvp(q, k, v, mask, dq, dk, np.zeros(dv.shape))


@bug.slip("row_term", seen=SDPA_JVP, without=BACKWARD, law="vjp and jvp are adjoint", public=True)
def jvp_softmax_uncentred(weights: Array, grad_weights: Array) -> Array:
    """dP = P ⊙ dS, without the mean of the row.
    Effect: Tangents of weights do not sum to 0: constant values get one. Repair: dP = P ⊙ (dS − Σ
    P·dS). Seen: none: the class is known"""
    return np.zeros(())


for _name, _tangent, _told in (
    ("jvp_key_tangent_ignored", lambda q, k, dq, dk: right.scores_of(dq, k), """dS = dq kᵀ / √d, without q dkᵀ. Effect: What the keys'
     tangent gives is missing. Repair: dS = (dq kᵀ + q dkᵀ) / √d. Seen: none: cached keys seem constant"""),
    ("jvp_key_tangent_not_scaled", lambda q, k, dq, dk: right.scores_of(dq, k) + q @ right.transposed(dk), """dS = dq kᵀ / √d + q dkᵀ.
     Effect: What the keys' tangent gives is √d times too large. Repair: Scale both terms. Seen: none: queries are scaled beforehand"""),
    ("jvp_query_tangent_not_scaled", lambda q, k, dq, dk: dq @ right.transposed(k) + right.scores_of(q, dk), """dS = dq kᵀ + q dkᵀ / √d.
     Effect: What the queries' tangent gives is √d times too large. Repair: Scale both terms. Seen: none: queries are scaled beforehand, and
     their tangents are not"""),
):  # fmt: skip
    bug.slip("scores_tangent", seen=SDPA_JVP, law="vjp and jvp are adjoint")(named(_tangent, _name, _told))


@bug.slip("scores_tangent", seen=SDPA_JVP, law="the derivative is linear")
def jvp_product_of_tangents(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """dS contains dq dkᵀ.
    Effect: Tangents are wrong in the second order: right for small ones, or for one tangent at a
    time. Repair: Leave out dq dkᵀ. Seen: none: the difference (q + dq)(k + dk)ᵀ − q kᵀ is taken for
    the derivative"""
    return right.scores_of(dq, k) + right.scores_of(q + dq, dk)


@bug.slip(SDPA_JVP, law="the derivative is linear")
def jvp_by_finite_differences(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """The tangent is a quotient of differences with a step of 1/8: a smaller one would lose to
    rounding, and differ by processor. Effect: One digit is right, fewer for steep scores. Repair:
    Differentiate instead. Seen: none: a stand-in of a first version"""
    step = 0.125
    moved = right.scaled_dot_product_attention(q + step * dq, k + step * dk, v + step * dv, mask)
    return np.asarray((moved - right.scaled_dot_product_attention(q, k, v, mask)) / step)


@bug.slip(SDPA_JVP, law="vjp and jvp are adjoint")
def jvp_mean_over_blocked_keys(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """The mean that centres dS has the weights of the unmasked softmax.
    Effect: Tangents of masked keys leak into it. Repair: Take it with the masked weights. Seen:
    none: it is computed before the mask"""
    p, ds = right.attention_weights(q, k, mask), right.scores_of(dq, k) + right.scores_of(q, dk)
    return np.asarray(p * (ds - (right.attention_weights(q, k) * ds).sum(-1, keepdims=True)) @ v + p @ dv)


@bug.slip(SDPA_JVP, law="vjp and jvp are adjoint")
def jvp_blocked_value_tangents_leak(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """P dv is computed with the weights of the unmasked softmax.
    Effect: Tangents of masked values reach the output. Repair: Use the masked weights in both
    terms. Seen: none: one recomputes them"""
    return (
        right.scaled_dot_product_attention_jvp(q, k, v, mask, dq, dk, np.zeros(dv.shape))
        + right.attention_weights(q, k) @ dv
    )


@bug.slip("scores_tangent", seen=SDPA_JVP, law="vjp and jvp are adjoint")
def jvp_tangents_exchanged(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """dq and dk are exchanged where they have one shape.
    Effect: Tangents of queries and keys are exchanged in self-attention; where their shapes differ
    all is right. Repair: Pass tangents in the order of the inputs. Seen: none: two arrays of one
    shape can be exchanged without a complaint"""
    return right.scores_tangent(q, k, dk, dq) if dq.shape == dk.shape else right.scores_tangent(q, k, dq, dk)


@bug(SDPA_JVP, law="vjp and jvp are adjoint")
def jvp_tail_value_tangents_dropped(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """Of more than 32 tangents of values those beyond the last full tile of 32 are left out.
    Effect: Tangents of the last values are lost, unless their number is a multiple of 32 or below
    it. Repair: Round the number of tiles up in each of the loops. Seen: none: the counterpart of
    tile-ai/tilelang#2010 in the loop over the values' tangents"""
    kept = np.arange(k.shape[-2]) < (k.shape[-2] // 32 * 32 or k.shape[-2])
    return right.scaled_dot_product_attention_jvp(q, k, v, mask, dq, dk, dv * kept[:, None])
