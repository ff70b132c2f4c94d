"""Slips in the backward of attention."""

import math

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import dead_rows, gradients_of, is_causal, masked, scores_shape, tiles, unguarded_softmax
from properties.reference import Mask, attention_weights, scaled_dot_product_attention_vjp, scores_of, softmax_backward, transposed

bug = Register()

Gradients = tuple[Array, ...]

ADJOINT = "vjp and jvp are adjoint"
KEYS = "key gradients sum to zero"
VALUES = "value gradients sum to the live cotangents"
BLOCKED = "blocked positions give and get no gradient"
DEAD = "a dead query has gradients by convention"


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dq and dk are wrong as soon as there are two keys; dv is right.",
    repair="dS = P ⊙ (dP − Σ P·dP).",
    citation="deeplearning4j/libnd4j#440; Apiquet/DeepLearningFrameworkFromScratchCpp#1",
    law=KEYS,
    public=True,
)
def vjp_softmax_diagonal_only(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """The softmax's backward has the diagonal of its Jacobian only, dS = P ⊙ (1 − P) ⊙ dP."""
    p = attention_weights(q, k, mask)
    return gradients_of(q, k, v, grad_out, p, p * (1 - p) * (grad_out @ transposed(v)))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dq and dk are wrong as soon as there are two keys; dv is right.",
    repair="Subtract Σ P·dP in each row.",
    citation="HomericIntelligence/Odyssey#2134",
    law=KEYS,
    public=True,
)
def vjp_missing_rowdot(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """dS = P ⊙ dP, without the term of the row."""
    p = attention_weights(q, k, mask)
    return gradients_of(q, k, v, grad_out, p, p * (grad_out @ transposed(v)))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="One query with no allowed key makes its dq and all of dk and dv NaN.",
    repair="Set the weights of such a row to 0 before they are used.",
    citation="pytorch/pytorch#41508; pytorch/pytorch#196170; Xilinx/brevitas#1591",
    law=DEAD,
    public=True,
)
def vjp_fully_masked_nan(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """The forward zeroes the NaN of a dead row after the softmax, the backward multiplies the NaN weights by 0."""
    return gradients_of(q, k, v, np.where(dead_rows(mask, scores_shape(q, k)), 0.0, grad_out), unguarded_softmax(scores_of(q, k), mask))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dq and dk are wrong for a cotangent that is a transposed or strided view; dv is right.",
    repair="Use the cotangent's own strides.",
    citation="Dao-AILab/flash-attention#355; ROCm/aiter#2808; flagos-ai/FlagAttention#1",
    law="a view equals its copy",
    requires=("strided views",),
    public=True,
)
def vjp_noncontiguous_dout(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Where Σ o·g is computed, g is read in the order in which it lies in memory."""
    p = attention_weights(q, k, mask)
    delta = ((p @ v) * grad_out.ravel(order="K").reshape(grad_out.shape)).sum(-1, keepdims=True)
    return gradients_of(q, k, v, grad_out, p, p * (grad_out @ transposed(v) - delta))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dk and dv miss the last queries, unless their number is a multiple of 64 or below it.",
    repair="Round the number of blocks of queries up.",
    citation="flagos-ai/FlagGems#898; flagos-ai/FlagGems#3607",
    law=VALUES,
    public=True,
)
def vjp_tail_rows_dropped(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Of more than 64 queries those beyond the last full block of 64 add nothing to dk and dv."""
    n = q.shape[-2] // 64 * 64 or q.shape[-2]
    p = attention_weights(q, k, mask)
    _, dk, dv = gradients_of(q[..., :n, :], k, v, grad_out[..., :n, :], p[..., :n, :])
    return gradients_of(q, k, v, grad_out, p)[0], dk, dv


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dk is √d times too large; dq and dv are right.",
    repair="Scale dk too, or the gradient of the scores once.",
    citation="none: the scale is applied where dq is stored, and forgotten where dk is",
    law=ADJOINT,
)
def vjp_keys_not_scaled(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """dk lacks the scale 1/√d."""
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    return dq, dk * math.sqrt(q.shape[-1]), dv


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dq and dk are wrong as soon as values are wider or narrower than keys.",
    repair="Scale by the width of queries and keys.",
    citation="none: of g's last axis, which is d_v, the backward knows more than of q's; compare lucidrains/flash-attention-jax#15",
    law=ADJOINT,
)
def vjp_scale_by_value_width(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """The backward scales by 1/√d_v."""
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    factor = math.sqrt(max(q.shape[-1], 1) / max(v.shape[-1], 1))
    return dq * factor, dk * factor, dv


@bug(
    "scaled_dot_product_attention_vjp",
    effect="For widths that are multiples of 8, dq is 1.44 times too large.",
    repair="Multiply dq by ln 2, or keep one scale for the exponent and one for the gradient.",
    citation="none: the scale of a kernel in base 2 holds log₂ e, which is no part of the derivative",
    law=ADJOINT,
)
def vjp_queries_scaled_in_base_two(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """On the path for widths that are multiples of 8, dq is scaled by log₂ e / √d."""
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    return dq * (1 / math.log(2) if q.shape[-1] % 8 == 0 else 1.0), dk, dv


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dk is wrong where there are as many queries as keys; rectangular calls are right.",
    repair="dk = dSᵀ q.",
    citation="none: without the transpose a rectangular call would not even run, so a special case is made for it",
    law="key gradients sum to zero",
)
def vjp_transpose_missing_when_square(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """With as many queries as keys, dk = dS q."""
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    if q.shape[-2] == k.shape[-2]:
        ds = softmax_backward(attention_weights(q, k, mask), grad_out @ transposed(v))
        dk = ds @ q / math.sqrt(max(q.shape[-1], 1))
    return dq, dk, dv


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dv is too large by the sum of exponentials; dq and dk are right.",
    repair="Divide the exponentials by their sum before they meet g.",
    citation="none: the maximum was saved where the log-sum-exp was meant",
    law=VALUES,
)
def vjp_values_not_normalized(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """dv is computed from exp(s − max) instead of the weights."""
    dq, dk, _ = scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    p = attention_weights(q, k, mask)
    largest = p.max(-1, keepdims=True)
    return dq, dk, transposed(p / np.where(largest == 0, 1.0, largest)) @ grad_out


@bug(
    "scaled_dot_product_attention_vjp",
    effect="dq and dk are wrong where there are as many queries as keys.",
    repair="Keep the axis of the sum, so that it is subtracted from its own row.",
    citation="none: a sum without keepdims broadcasts along the other axis of a square",
    law=KEYS,
)
def vjp_row_terms_subtracted_from_columns(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """With as many queries as keys, Σ P·dP of row i is subtracted from column i."""
    p, dp = attention_weights(q, k, mask), grad_out @ transposed(v)
    delta = (p * dp).sum(-1, keepdims=True)
    return gradients_of(q, k, v, grad_out, p, p * (dp - (transposed(delta) if q.shape[-2] == k.shape[-2] else delta)))


@bug(
    "scaled_dot_product_attention_vjp",
    effect="Blocked keys and values get gradients, and the gradients of others may overflow.",
    repair="Mask the recomputed scores as the forward did.",
    citation="hao-ai-lab/FastVideo#925; pytorch/pytorch#27461",
    law=BLOCKED,
)
def vjp_mask_forgotten(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Weights are recomputed from all scores and the log-sum-exp of the allowed ones; dead rows are skipped."""
    scores, dead = scores_of(q, k), dead_rows(mask, scores_shape(q, k))
    s = np.where(dead, 0.0, masked(scores, mask))
    largest = s.max(-1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.where(dead, 0.0, np.exp(scores - largest) / np.exp(s - largest).sum(-1, keepdims=True))
        return gradients_of(q, k, v, grad_out, p)


@bug(
    "scaled_dot_product_attention_vjp",
    effect="On the causal path each key gets a gradient from the query before it.",
    repair="Compare positions in the backward as in the forward.",
    citation="none: the backward's tiles are transposed, and <= becomes <= + 1",
    law="under a causal mask keys get nothing from earlier queries",
)
def vjp_causal_diagonal_off_by_one(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Under a causal mask the backward allows one key more for each query."""
    if is_causal(mask, scores_shape(q, k)):
        mask = np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None] + 1
    return scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)


@bug(
    "scaled_dot_product_attention_vjp",
    effect="From 33 keys on dq holds the last tile's part only.",
    repair="Add to dq instead of storing.",
    citation="none: = for += in the loop over tiles, right when there is one",
    law="gradients move with their keys",
)
def vjp_queries_overwritten(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Each tile of 32 keys overwrites what the tiles before gave to dq."""
    p = attention_weights(q, k, mask)
    ds = softmax_backward(p, grad_out @ transposed(v)) / math.sqrt(max(q.shape[-1], 1))
    keys = list(tiles(k.shape[-2], 32))[-1]
    return ds[..., keys] @ k[..., keys, :], transposed(ds) @ q, transposed(p) @ grad_out


@bug(
    "scaled_dot_product_attention_vjp",
    effect="The last keys and values get no gradient, unless their number is a multiple of 32 or below it.",
    repair="Round the number of tiles of keys up.",
    citation="none: the counterpart of tile-ai/tilelang#2010 in the backward",
    law=VALUES,
)
def vjp_tail_keys_dropped(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Of more than 32 keys those beyond the last full tile of 32 get no gradient."""
    dq, dk, dv = scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    n = k.shape[-2] // 32 * 32 or k.shape[-2]
    dk[..., n:, :] = dv[..., n:, :] = 0
    return dq, dk, dv
