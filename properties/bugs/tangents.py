"""Known bugs of the forward derivative of attention."""

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import BACKWARD, SDPA_JVP, Register
from properties.bugs.records import Tangent

bug = Register(law="VJP and JVP are adjoint")


@bug.in_step(
    SDPA_JVP,
    record=Tangent,
    public=True,
    effect="The tangent of the values has no effect.",
    repair="Add P dv.",
    origin="bugs of this class are known",
)
def jvp_missing_value_tangent(call: Tangent) -> Array:
    """The code computes dout = dP v, without P dv."""
    return right.scaled_dot_product_attention_jvp(*call._replace(dv=np.zeros(call.dv.shape)))


@bug.in_step(
    "row_term",
    seen=SDPA_JVP,
    without=BACKWARD,
    public=True,
    effect="Tangents of the weights do not sum to 0, so constant values get a tangent.",
    repair="Use dP = P ⊙ (dS − Σ P·dS).",
    origin="bugs of this class are known",
)
def jvp_softmax_uncentred(weights: Array, grad_weights: Array) -> Array:
    """The code computes dP = P ⊙ dS, without subtracting the mean of the row."""
    return np.zeros(())


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    effect="The tangent of the keys has no effect.",
    repair="Use dS = (dq kᵀ + q dkᵀ) / √d.",
    origin="cached keys seem constant",
)
def jvp_key_tangent_ignored(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """The code computes dS = dq kᵀ / √d, without q dkᵀ."""
    return right.scores_of(dq, k)


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    effect="The part from the tangent of the keys is √d times too large.",
    repair="Scale both terms.",
    origin="the code scales queries beforehand",
)
def jvp_key_tangent_not_scaled(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """The code computes dS = dq kᵀ / √d + q dkᵀ."""
    return right.scores_of(dq, k) + q @ dk.mT


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    effect="The part from the tangent of the queries is √d times too large.",
    repair="Scale both terms.",
    origin="the code scales queries beforehand, but not their tangents",
)
def jvp_query_tangent_not_scaled(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """The code computes dS = dq kᵀ + q dkᵀ / √d."""
    return dq @ k.mT + right.scores_of(q, dk)


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    law="the derivative is linear",
    effect="Tangents have a wrong second-order term; small tangents, or a single one, are correct.",
    repair="Drop dq dkᵀ.",
    origin="the code takes the difference (q + dq)(k + dk)ᵀ − q kᵀ for the derivative",
)
def jvp_product_of_tangents(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """The code adds dq dkᵀ to dS."""
    return right.scores_of(dq, k) + right.scores_of(q + dq, dk)


@bug.in_step(
    SDPA_JVP,
    record=Tangent,
    law="the derivative is linear",
    effect="One digit is correct, and fewer for steep scores.",
    repair="Compute the derivative.",
    origin="a placeholder of a first version",
)
def jvp_by_finite_differences(call: Tangent) -> Array:
    """The code approximates the derivative by a difference of two results."""
    q, k, v, mask, dq, dk, dv = call
    step = 0.125  # a smaller step would lose digits to rounding, and results would differ between processors
    moved_output = right.scaled_dot_product_attention(q + step * dq, k + step * dk, v + step * dv, mask)
    return (moved_output - right.scaled_dot_product_attention(q, k, v, mask)) / step


@bug.in_step(
    SDPA_JVP,
    record=Tangent,
    effect="Tangents of masked keys change the mean.",
    repair="Take the mean with the masked weights.",
    origin="the code computes the mean before the mask",
)
def jvp_mean_over_blocked_keys(call: Tangent) -> Array:
    """The code centres dS by a mean with the weights of the unmasked softmax."""
    q, k, v, mask, dq, dk, dv = call
    p, ds = right.attention_weights(q, k, mask), right.scores_of(dq, k) + right.scores_of(q, dk)
    return np.asarray(p * (ds - (right.attention_weights(q, k) * ds).sum(-1, keepdims=True)) @ v + p @ dv)


@bug.in_step(
    SDPA_JVP,
    record=Tangent,
    effect="Tangents of masked values reach the output.",
    repair="Use the masked weights in both terms.",
    origin="the code recomputes the weights for one term",
)
def jvp_blocked_value_tangents_leak(call: Tangent) -> Array:
    """The code computes P dv with the weights of the unmasked softmax."""
    without_values = right.scaled_dot_product_attention_jvp(*call._replace(dv=np.zeros(call.dv.shape)))
    return without_values + right.attention_weights(call.q, call.k) @ call.dv


@bug.in_step(
    "scores_tangent",
    seen=SDPA_JVP,
    effect="In self-attention, tangents of queries and keys are exchanged; with different shapes, results are correct.",
    repair="Pass tangents in the order of the inputs.",
    origin="arrays of the same shape can be exchanged without an error",
)
def jvp_tangents_exchanged(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """If dq and dk have the same shape, the code exchanges them."""
    return right.scores_tangent(q, k, dk, dq) if dq.shape == dk.shape else right.scores_tangent(q, k, dq, dk)


@bug.in_operation(
    SDPA_JVP,
    record=Tangent,
    effect="Tangents of the last values have no effect, unless their number is at most 32 or a multiple of 32.",
    repair="Round the number of tiles up in each loop.",
    origin="the counterpart of tile-ai/tilelang#2010 in the loop over the tangents of the values",
)
def jvp_tail_value_tangents_dropped(call: Tangent) -> Array:
    """With more than 32 values, the code drops the tangents after the last full tile of 32."""
    n_k = call.k.shape[-2]
    kept = np.arange(n_k) < (n_k // 32 * 32 or n_k)
    return right.scaled_dot_product_attention_jvp(*call._replace(dv=call.dv * kept[:, None]))
