"""Slips in the backward of attention and of its softmax."""

import math
from collections.abc import Callable

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import MHA_JVP, MHA_VJP, SDPA_JVP, SDPA_VJP, SOFTMAX_VJP, Gradients, Mutant, Register
from properties.bugs.kernels import dead_rows, gradients_of, is_causal, masked, scores_shape, tiles
from properties.bugs.reference import Mask

bug = Register()


@bug.in_step(
    "softmax_backward",
    seen=SDPA_VJP,
    law="key gradients sum to zero",
    public=True,
    effect="dq and dk are wrong as soon as there are two keys; dv is right.",
    repair="dS = P ⊙ (dP − Σ P·dP).",
    citations=("deeplearning4j/libnd4j#440", "Apiquet/DeepLearningFrameworkFromScratchCpp#1"),
)
def vjp_softmax_diagonal_only(weights: Array, grad_weights: Array) -> Array:
    """The softmax's backward has the diagonal of its Jacobian only, dS = P ⊙ (1 − P) ⊙ dP."""
    return weights * (1 - weights) * grad_weights


@bug.in_step(
    "row_term",
    seen=SDPA_VJP,
    without=(SDPA_JVP, MHA_JVP),
    law="key gradients sum to zero",
    public=True,
    effect="dq and dk are wrong from two keys on, dv not.",
    repair="Subtract Σ P·dP in each row.",
    citations=("HomericIntelligence/Odyssey#2134",),
)
def vjp_missing_rowdot(weights: Array, grad_weights: Array) -> Array:
    """dS = P ⊙ dP, without the term of the row."""
    return np.zeros(())


@bug.in_step(
    "row_term",
    seen=SOFTMAX_VJP,
    law="batches are computed one by one",
    effect="Batched gradients are wrong.",
    repair="Sum over the last axis.",
    origin="it is axis 1 of a matrix; compare torch/nn#548",
)
def softmax_vjp_sums_over_axis_one(weights: Array, grad_weights: Array) -> Array:
    """Σ w·g is taken over axis 1, whatever the number of axes."""
    return np.asarray((weights * grad_weights).sum(min(1, weights.ndim - 1), keepdims=True))


@bug.in_step(
    "softmax_backward",
    seen=SOFTMAX_VJP,
    law="masked scores do not matter",
    effect="Gradients are those of the logarithm of the weights.",
    repair="Multiply by the weights.",
    origin="the two backward formulas look alike; compare mlpack/mlpack#2360",
)
def softmax_vjp_of_the_logarithm(weights: Array, grad_weights: Array) -> Array:
    """g − w·Σ g, the gradient of a log-softmax."""
    return np.asarray(grad_weights - weights * grad_weights.sum(-1, keepdims=True))


@bug.in_step(
    "row_term",
    seen=SOFTMAX_VJP,
    law="score gradients sum to zero",
    effect="Gradients of a row do not sum to 0.",
    repair="Subtract the sum of w·g.",
    origin="Σ w·g is a mean of g under w",
)
def softmax_vjp_subtracts_a_mean(weights: Array, grad_weights: Array) -> Array:
    """Σ w·g is divided by the number of entries."""
    return np.asarray((weights * grad_weights).mean(-1, keepdims=True))


@bug.in_step(
    "row_term",
    seen=SDPA_JVP,
    law="vjp and jvp are adjoint",
    effect="Tangents of unequal weights do not sum to 0.",
    repair="Weight the mean by P.",
    origin="it also cancels what keys share",
)
def jvp_centred_by_the_plain_mean(weights: Array, grad_weights: Array) -> Array:
    """dP = P ⊙ (dS − the plain mean of dS)."""
    return np.asarray(grad_weights.mean(-1, keepdims=True))


@bug.in_step(
    "row_term",
    seen=SOFTMAX_VJP,
    law="the order of scores does not matter",
    effect="Rows that are not whole groups of four have wrong gradients, unless their last entries are masked.",
    repair="Add the entries of the tail to the sum.",
    origin="an unrolled loop ends with the last whole group; compare sdpa-tail-keys-dropped",
)
def softmax_vjp_tail_not_in_the_sum(weights: Array, grad_weights: Array) -> Array:
    """Σ w·g is taken over whole groups of four entries, unless there is none."""
    whole = weights.shape[-1] // 4 * 4 or weights.shape[-1]
    return right.row_term(weights[..., :whole], grad_weights[..., :whole])


@bug.in_step(
    "row_term",
    seen=SDPA_VJP,
    law="key gradients sum to zero",
    effect="dq and dk are wrong where there are as many queries as keys.",
    repair="Keep the axis of the sum, so that it is subtracted from its own row.",
    origin="a sum without keepdims broadcasts along the other axis of a square",
)
def vjp_row_terms_subtracted_from_columns(weights: Array, grad_weights: Array) -> Array:
    """With as many queries as keys, Σ P·dP of row i is subtracted from column i."""
    term = right.row_term(weights, grad_weights)
    return right.transposed(term) if weights.shape[-2] == weights.shape[-1] else term


@bug.in_step(
    "row_term",
    seen=SDPA_VJP,
    law="queries are computed independently",
    effect="dq and dk are wrong after 16 queries.",
    repair="Advance the pointer to Σ o·g too.",
    origin="one pointer is not advanced",
)
def vjp_row_terms_of_the_first_tile(weights: Array, grad_weights: Array) -> Array:
    """Every tile of 16 queries subtracts the Σ o·g of the first."""
    return right.row_term(weights, grad_weights)[..., np.arange(weights.shape[-2]) % 16, :]


@bug.in_operation(
    SDPA_VJP,
    law="a view equals its copy",
    requires=("strided views",),
    public=True,
    effect="dq and dk are wrong for a cotangent that is a transposed or strided view; dv is right.",
    repair="Use the cotangent's own strides.",
    citations=("Dao-AILab/flash-attention#355", "ROCm/aiter#2808", "flagos-ai/FlagAttention#1"),
)
def vjp_noncontiguous_dout(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Where Σ o·g is computed, g is read in the order in which it lies in memory."""
    p = right.attention_weights(q, k, mask)
    return gradients_of(q, k, v, grad_out, p, right.row_term(p @ v, grad_out.ravel(order="K").reshape(grad_out.shape)))


@bug.in_operation(
    SDPA_VJP,
    law="the order of queries does not matter",
    public=True,
    effect="dk and dv miss the last queries, unless their number is a multiple of 64 or below it.",
    repair="Round the number of blocks of queries up.",
    citations=("flagos-ai/FlagGems#898", "flagos-ai/FlagGems#3607"),
)
def vjp_tail_rows_dropped(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Of more than 64 queries those beyond the last full block of 64 add nothing to dk and dv."""
    n = q.shape[-2] // 64 * 64 or q.shape[-2]
    p = right.attention_weights(q, k, mask)
    _, dk, dv = gradients_of(q[..., :n, :], k, v, grad_out[..., :n, :], p[..., :n, :])
    return gradients_of(q, k, v, grad_out, p)[0], dk, dv


@bug.in_operation(
    SDPA_VJP,
    law="the order of keys does not matter",
    effect="From 33 keys on dq is the last tile's part.",
    repair="Add to dq instead of storing.",
    origin="= for += in the loop over tiles",
)
def vjp_queries_overwritten(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Each tile of 32 keys overwrites what the tiles before gave to dq."""
    p = right.attention_weights(q, k, mask)
    ds = right.softmax_backward(p, grad_out @ right.transposed(v)) / math.sqrt(max(q.shape[-1], 1))
    keys = list(tiles(k.shape[-2], 32))[-1]
    return ds[..., keys] @ k[..., keys, :], right.transposed(ds) @ q, right.transposed(p) @ grad_out


@bug.in_operation(
    SDPA_VJP,
    law="the order of keys does not matter",
    effect="The last keys and values get no gradient, unless their number is a multiple of 32 or below it.",
    repair="Round the number of tiles of keys up.",
    origin="the counterpart of tile-ai/tilelang#2010 in the backward",
)
def vjp_tail_keys_dropped(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Of more than 32 keys those beyond the last full tile of 32 get no gradient."""
    dq, dk, dv = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    n = k.shape[-2] // 32 * 32 or k.shape[-2]
    dk[..., n:, :] = dv[..., n:, :] = 0
    return dq, dk, dv


def _with_factors(factors: Callable[[Array, Array, float], tuple[float, float]]) -> Mutant:
    """The backward, with dq and dk multiplied by factors of the queries, the values and √d."""

    def backward(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
        dq, dk, dv = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
        of_queries, of_keys = factors(q, v, math.sqrt(max(q.shape[-1], 1)))
        return dq * of_queries, dk * of_keys, dv

    return backward


@bug.in_step(
    SDPA_VJP,
    making=True,
    law="vjp and jvp are adjoint",
    effect="Both are √d times too large; dv is right.",
    repair="Scale the gradient of the scores.",
    origin="the forward scales its queries before the product, and the backward is given them unscaled",
)
def vjp_not_scaled() -> Mutant:
    """dq and dk lack the scale 1/√d."""
    return _with_factors(lambda q, v, root: (root, root))


@bug.in_step(
    SDPA_VJP,
    making=True,
    law="vjp and jvp are adjoint",
    effect="dq is √d times too large; dk and dv are right.",
    repair="Scale dq too, or the gradient of the scores once.",
    origin="dk = dSᵀ·(q/√d) has the scale of stored queries, and dq = dS·k has none",
)
def vjp_queries_not_scaled() -> Mutant:
    """dq lacks the scale 1/√d."""
    return _with_factors(lambda q, v, root: (root, 1.0))


@bug.in_step(
    SDPA_VJP,
    making=True,
    law="vjp and jvp are adjoint",
    effect="dk is √d times too large; dq and dv are right.",
    repair="Scale dk too, or the gradient of the scores once.",
    origin="the scale is applied where dq is stored, and forgotten where dk is",
)
def vjp_keys_not_scaled() -> Mutant:
    """dk lacks the scale 1/√d."""
    return _with_factors(lambda q, v, root: (1.0, root))


@bug.in_step(
    SDPA_VJP,
    making=True,
    law="vjp and jvp are adjoint",
    effect="For widths that are multiples of 8, dq is 1.44 times too large.",
    repair="Multiply dq by ln 2, or keep one scale for the exponent and one for the gradient.",
    origin="the scale of a kernel in base 2 holds log₂ e, which is no part of the derivative",
)
def vjp_queries_scaled_in_base_two() -> Mutant:
    """On the path for widths that are multiples of 8, dq is scaled by log₂ e / √d."""
    return _with_factors(lambda q, v, root: (1 if q.shape[-1] % 8 else 1 / math.log(2), 1.0))


@bug.in_step(
    SDPA_VJP,
    making=True,
    law="vjp and jvp are adjoint",
    without=(MHA_VJP,),
    effect="dq and dk are wrong as soon as values are wider or narrower than keys.",
    repair="Scale by the width of keys.",
    origin=(
        "of g's last axis, which is d_v, the backward knows more than of q's; compare lucidrains/flash-attention-jax#15"
    ),
)
def vjp_scale_by_value_width() -> Mutant:
    """The backward scales by 1/√d_v."""
    return _with_factors(lambda q, v, root: 2 * (root / math.sqrt(max(v.shape[-1], 1)),))


@bug.in_step(
    SDPA_VJP,
    making=True,
    law="queries are computed independently",
    without=(MHA_VJP,),
    effect="With one query, as in decoding, dk is scaled twice.",
    repair="Scale the gradient of the scores once.",
    origin="for one query the product is an outer one, written by hand from a scaled query",
)
def vjp_one_query_scaled_twice() -> Mutant:
    """With one query, dk has the scale of the scores and that of the query."""
    return _with_factors(lambda q, v, root: (1.0, 1.0 if q.shape[-2] > 1 else 1 / root))


@bug.in_step(
    SDPA_VJP,
    law="key gradients sum to zero",
    effect="dk is wrong where there are as many queries as keys; rectangular calls are right.",
    repair="dk = dSᵀ q.",
    origin="without the transpose a rectangular call would not even run, so a special case is made for it",
)
def vjp_transpose_missing_when_square(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """With as many queries as keys, dk = dS q."""
    dq, dk, dv = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    if q.shape[-2] == k.shape[-2]:
        ds = right.softmax_backward(right.attention_weights(q, k, mask), grad_out @ right.transposed(v))
        dk = ds @ q / math.sqrt(max(q.shape[-1], 1))
    return dq, dk, dv


@bug.in_step(
    SDPA_VJP,
    law="repeating every key changes nothing",
    effect="dv is too large by the sum of exponentials; dq and dk are right.",
    repair="Divide the exponentials by their sum before they meet g.",
    origin="the maximum was saved where the log-sum-exp was meant",
)
def vjp_values_not_normalized(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """dv is computed from exp(s − max) instead of the weights."""
    dq, dk, _ = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    p = right.attention_weights(q, k, mask)
    largest = p.max(-1, keepdims=True)
    return dq, dk, right.transposed(p / np.where(largest == 0, 1.0, largest)) @ grad_out


@bug.in_step(
    SDPA_VJP,
    law="keys masked for all queries do not matter",
    effect="Masked keys and values get gradients, and the gradients of others may overflow.",
    repair="Mask the recomputed scores as the forward did.",
    citations=("hao-ai-lab/FastVideo#925", "pytorch/pytorch#27461"),
)
def vjp_mask_forgotten(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Weights are recomputed from all scores and the log-sum-exp of the allowed ones; dead rows are
    skipped."""
    scores, dead = right.scores_of(q, k), dead_rows(mask, scores_shape(q, k))
    s = np.where(dead, 0.0, masked(scores, mask))
    largest = s.max(-1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.where(dead, 0.0, np.exp(scores - largest) / np.exp(s - largest).sum(-1, keepdims=True))
        return gradients_of(q, k, v, grad_out, p)


@bug.in_step(
    SDPA_VJP,
    law="no derivative passes the mask",
    effect="On the causal path each key gets a gradient from the query before it.",
    repair="Compare positions in the backward as in the forward.",
    origin="the backward's tiles are transposed, and <= becomes <= + 1",
)
def vjp_causal_diagonal_off_by_one(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Under a causal mask the backward allows one key more for each query."""
    if is_causal(mask, scores_shape(q, k)):
        mask = np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None] + 1
    return right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)


@bug.in_step(
    SDPA_VJP,
    law="a query with no allowed key follows its convention",
    effect="A query with no allowed key gives gradients to all values, and to queries and keys.",
    repair="Set its weights to 0 there too.",
    origin="the forward was mended, the backward recomputes from the lowest finite number; compare NVIDIA/apex#1390",
)
def vjp_dead_rows_uniform(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """In the backward, a row with no allowed key has equal weights."""
    dead = dead_rows(mask, scores_shape(q, k))
    return gradients_of(q, k, v, grad_out, np.where(dead, 1 / k.shape[-2], right.attention_weights(q, k, mask)))


@bug.in_step(
    SDPA_VJP,
    law="batches are computed one by one",
    effect="Gradients shrink with the size of the batch.",
    repair="Leave the mean to the loss.",
    origin="the loss takes the mean already",
)
def vjp_divided_by_the_batch(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """All gradients are divided by the length of the first batch axis."""
    batch = max(q.shape[0], 1) if q.ndim > 2 else 1
    return tuple(g / batch for g in right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out))


@bug.in_step(
    SDPA_VJP,
    law="vjp and jvp are adjoint",
    effect="For an odd width the last channel of dq is 0.",
    repair="Store it.",
    origin="two channels are stored at once",
)
def vjp_odd_lane_dropped(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """dq is stored in pairs of channels, and the last channel of an odd width above 1 is not
    stored."""
    dq, dk, dv = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    if q.shape[-1] > 1 and q.shape[-1] % 2:
        dq[..., -1] = 0
    return dq, dk, dv


@bug.in_step(
    SDPA_VJP,
    law="key gradients sum to zero",
    effect="dq and dk have seven digits instead of sixteen, fewer for values with a common offset.",
    repair="Save the output in the precision of the gradient, or sum P·dP.",
    origin="the saved output is the one that was rounded for the caller",
)
def vjp_row_terms_in_single_precision(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Σ o·g is computed from an output that was saved in float32."""
    p = right.attention_weights(q, k, mask)
    return gradients_of(q, k, v, grad_out, p, right.row_term((p @ v).astype(np.float32).astype(float), grad_out))
