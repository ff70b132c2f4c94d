"""More slips in the backward of attention: dead rows, precision, extreme scores, one path only."""

import math

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.gradients import ADJOINT, DEAD, KEYS, Gradients
from properties.bugs.kernels import dead_rows, gradients_of, masked, normalized, scores_shape
from properties.reference import Mask, attention_weights, scaled_dot_product_attention_vjp, scores_of, transposed

bug = Register()


@bug(
    "scaled_dot_product_attention_vjp",
    effect="A query with no allowed key gives gradients to all values, and to queries and keys.",
    repair="Set the weights of such a row to 0 in the backward as well.",
    citation="none: the forward was mended to give zeros, the backward recomputes from the lowest finite number; compare NVIDIA/apex#1390",
    law=DEAD,
)
def vjp_dead_rows_uniform(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """In the backward, a row with no allowed key has equal weights."""
    dead = dead_rows(mask, scores_shape(q, k))
    return gradients_of(q, k, v, grad_out, np.where(dead, 1 / k.shape[-2], attention_weights(q, k, mask)))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="Gradients shrink with the size of the batch.",
    repair="Leave the mean to the loss.",
    citation="none: the mean over the batch is taken once by the loss and again here",
    law="batches are computed one by one",
)
def vjp_divided_by_the_batch(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """All gradients are divided by the length of the first batch axis."""
    batch = max(q.shape[0], 1) if q.ndim > 2 else 1
    return tuple(g / batch for g in scaled_dot_product_attention_vjp(q, k, v, mask, grad_out))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="Gradients are NaN for scores above 709, and 0 for rows below −745; the forward is right.",
    repair="Save the log-sum-exp, and subtract it before the exponential.",
    citation="none: the backward recomputes the weights by a formula of its own",
    law="the vjp is within its budget at extreme logits",
)
def vjp_recomputed_without_maximum(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Weights are recomputed as exp(s) / Σ exp(s)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return gradients_of(q, k, v, grad_out, normalized(np.exp(masked(scores_of(q, k), mask))))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="For an odd width the last lane of dq is 0.",
    repair="Store the lane that is left over.",
    citation="none: two lanes are stored at once",
    law=ADJOINT,
)
def vjp_odd_lane_dropped(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """dq is stored in pairs of lanes, and the last lane of an odd width above 1 is not stored."""
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    if q.shape[-1] > 1 and q.shape[-1] % 2:
        dq[..., -1] = 0
    return dq, dk, dv


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dq and dk of queries after the 16th are wrong.",
    repair="Move the pointer to Σ o·g with the pointer to the queries.",
    citation="none: one of the pointers of a tile is not advanced",
    law="queries give separate gradients",
)
def vjp_row_terms_of_the_first_tile(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Every tile of 16 queries subtracts the Σ o·g of the first."""
    p = attention_weights(q, k, mask)
    delta = ((p @ v) * grad_out).sum(-1, keepdims=True)[..., np.arange(q.shape[-2]) % 16, :]
    return gradients_of(q, k, v, grad_out, p, p * (grad_out @ transposed(v) - delta))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dq and dk have seven digits instead of sixteen, fewer for values with a common offset.",
    repair="Save the output in the precision of the gradient, or sum P·dP.",
    citation="none: the saved output is the one that was rounded for the caller",
    law=KEYS,
)
def vjp_row_terms_in_single_precision(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Σ o·g is computed from an output that was saved in float32."""
    p = attention_weights(q, k, mask)
    delta = ((p @ v).astype(np.float32).astype(float) * grad_out).sum(-1, keepdims=True)
    return gradients_of(q, k, v, grad_out, p, p * (grad_out @ transposed(v) - delta))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="With one query, as in decoding, dk is scaled twice.",
    repair="Scale the gradient of the scores once.",
    citation="none: for one query the product is an outer one, written by hand from a scaled query",
    law="queries give separate gradients",
)
def vjp_one_query_scaled_twice(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """With one query, dk has the scale of the scores and that of the query."""
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    return dq, dk / math.sqrt(max(q.shape[-1], 1)) if q.shape[-2] == 1 else dk, dv
