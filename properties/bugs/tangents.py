"""Slips in the forward derivative of attention."""

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import BACKWARD, SDPA_JVP, Register
from properties.bugs.records import Tangent

bug = Register()


@bug.in_step(
    SDPA_JVP,
    record=Tangent,
    law="vjp and jvp are adjoint",
    public=True,
    effect="What the values' tangent gives is missing.",
    repair="Add P dv.",
    origin="the class is known",
)
def jvp_missing_value_tangent(call: Tangent) -> Array:
    """dout = dP v, without P dv."""
    return right.scaled_dot_product_attention_jvp(*call._replace(dv=np.zeros(call.dv.shape)))


@bug.in_step(
    "row_term",
    seen=SDPA_JVP,
    without=BACKWARD,
    law="vjp and jvp are adjoint",
    public=True,
    effect="Tangents of weights do not sum to 0: constant values get one.",
    repair="dP = P ⊙ (dS − Σ P·dS).",
    origin="the class is known",
)
def jvp_softmax_uncentred(weights: Array, grad_weights: Array) -> Array:
    """dP = P ⊙ dS, without the mean of the row."""
    return np.zeros(())


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    law="vjp and jvp are adjoint",
    effect="What the keys' tangent gives is missing.",
    repair="dS = (dq kᵀ + q dkᵀ) / √d.",
    origin="cached keys seem constant",
)
def jvp_key_tangent_ignored(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """dS = dq kᵀ / √d, without q dkᵀ."""
    return right.scores_of(dq, k)


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    law="vjp and jvp are adjoint",
    effect="What the keys' tangent gives is √d times too large.",
    repair="Scale both terms.",
    origin="queries are scaled beforehand",
)
def jvp_key_tangent_not_scaled(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """dS = dq kᵀ / √d + q dkᵀ."""
    return right.scores_of(dq, k) + q @ right.transposed(dk)


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    law="vjp and jvp are adjoint",
    effect="What the queries' tangent gives is √d times too large.",
    repair="Scale both terms.",
    origin="queries are scaled beforehand, and their tangents are not",
)
def jvp_query_tangent_not_scaled(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """dS = dq kᵀ + q dkᵀ / √d."""
    return dq @ right.transposed(k) + right.scores_of(q, dk)


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    law="the derivative is linear",
    effect="Tangents are wrong in the second order: right for small ones, or for one tangent at a time.",
    repair="Leave out dq dkᵀ.",
    origin="the difference (q + dq)(k + dk)ᵀ − q kᵀ is taken for the derivative",
)
def jvp_product_of_tangents(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """dS contains dq dkᵀ."""
    return right.scores_of(dq, k) + right.scores_of(q + dq, dk)


@bug.in_step(
    SDPA_JVP,
    record=Tangent,
    law="the derivative is linear",
    effect="One digit is right, fewer for steep scores.",
    repair="Differentiate instead.",
    origin="a stand-in of a first version",
)
def jvp_by_finite_differences(call: Tangent) -> Array:
    """The tangent is a quotient of differences with a step of 1/8: a smaller one would lose to
    rounding, and differ by processor."""
    q, k, v, mask, dq, dk, dv = call
    step = 0.125
    moved = right.scaled_dot_product_attention(q + step * dq, k + step * dk, v + step * dv, mask)
    return np.asarray((moved - right.scaled_dot_product_attention(q, k, v, mask)) / step)


@bug.in_step(
    SDPA_JVP,
    record=Tangent,
    law="vjp and jvp are adjoint",
    effect="Tangents of masked keys leak into it.",
    repair="Take it with the masked weights.",
    origin="it is computed before the mask",
)
def jvp_mean_over_blocked_keys(call: Tangent) -> Array:
    """The mean that centres dS has the weights of the unmasked softmax."""
    q, k, v, mask, dq, dk, dv = call
    p, ds = right.attention_weights(q, k, mask), right.scores_of(dq, k) + right.scores_of(q, dk)
    return np.asarray(p * (ds - (right.attention_weights(q, k) * ds).sum(-1, keepdims=True)) @ v + p @ dv)


@bug.in_step(
    SDPA_JVP,
    record=Tangent,
    law="vjp and jvp are adjoint",
    effect="Tangents of masked values reach the output.",
    repair="Use the masked weights in both terms.",
    origin="one recomputes them",
)
def jvp_blocked_value_tangents_leak(call: Tangent) -> Array:
    """P dv is computed with the weights of the unmasked softmax."""
    without_values = right.scaled_dot_product_attention_jvp(*call._replace(dv=np.zeros(call.dv.shape)))
    return np.asarray(without_values + right.attention_weights(call.q, call.k) @ call.dv)


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    law="vjp and jvp are adjoint",
    effect="Tangents of queries and keys are exchanged in self-attention; where their shapes differ all is right.",
    repair="Pass tangents in the order of the inputs.",
    origin="two arrays of one shape can be exchanged without a complaint",
)
def jvp_tangents_exchanged(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """dq and dk are exchanged where they have one shape."""
    return right.scores_tangent(q, k, dk, dq) if dq.shape == dk.shape else right.scores_tangent(q, k, dq, dk)


@bug.in_operation(
    SDPA_JVP,
    record=Tangent,
    law="vjp and jvp are adjoint",
    effect="Tangents of the last values are lost, unless their number is a multiple of 32 or below it.",
    repair="Round the number of tiles up in each of the loops.",
    origin="the counterpart of tile-ai/tilelang#2010 in the loop over the values' tangents",
)
def jvp_tail_value_tangents_dropped(call: Tangent) -> Array:
    """Of more than 32 tangents of values those beyond the last full tile of 32 are left out."""
    n_k = call.k.shape[-2]
    kept = np.arange(n_k) < (n_k // 32 * 32 or n_k)
    return right.scaled_dot_product_attention_jvp(*call._replace(dv=call.dv * kept[:, None]))
