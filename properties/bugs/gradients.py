"""Known bugs of the backward of attention and of its softmax."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import MHA_JVP, MHA_VJP, SDPA_JVP, SDPA_VJP, SOFTMAX_VJP, Gradients, Mutant, Register
from properties.bugs.kernels import dead_rows, gradients_of, is_causal, masked, scores_shape, tiles
from properties.bugs.reference import Mask

bug = Register()
in_backward = partial(bug.in_step, SDPA_VJP)
in_row_term = partial(bug.in_step, "row_term")


@bug.in_step(
    "softmax_backward",
    seen=SDPA_VJP,
    law="key gradients sum to zero",
    public=True,
    effect="With two or more keys, dq and dk are wrong; dv is correct.",
    repair="Use dS = P ⊙ (dP − Σ P·dP).",
    citations="deeplearning4j/libnd4j#440; Apiquet/DeepLearningFrameworkFromScratchCpp#1",
)
def vjp_softmax_diagonal_only(weights: Array, grad_weights: Array) -> Array:
    """The backward of the softmax uses only the diagonal of its Jacobian: dS = P ⊙ (1 − P) ⊙ dP."""
    return weights * (1 - weights) * grad_weights


@in_row_term(
    seen=SDPA_VJP,
    without=(SDPA_JVP, MHA_JVP),
    law="key gradients sum to zero",
    public=True,
    effect="With two or more keys, dq and dk are wrong; dv is correct.",
    repair="Subtract Σ P·dP in each row.",
    citations="HomericIntelligence/Odyssey#2134",
)
def vjp_missing_rowdot(weights: Array, grad_weights: Array) -> Array:
    """The backward computes dS = P ⊙ dP, without the term of the row."""
    return np.zeros(())


@in_row_term(
    seen=SDPA_VJP,
    without=(SDPA_JVP, MHA_JVP),
    law="key gradients sum to zero",
    effect="dq and dk are wrong; dv is correct.",
    repair="Multiply dP by the weights before the row is summed: Σ P·dP.",
    origin="a reduction is written for dP before the weights are loaded",
)
def vjp_row_term_without_weights(weights: Array, grad_weights: Array) -> Array:
    """The backward subtracts Σ dP in each row instead of Σ P·dP."""
    return np.asarray(grad_weights.sum(-1, keepdims=True))


@in_row_term(
    seen=SOFTMAX_VJP,
    law="a batch gives the same as its elements one by one",
    effect="Batched gradients are wrong.",
    repair="Sum over the last axis.",
    origin="axis 1 is the last axis of a matrix; compare torch/nn#548",
)
def softmax_vjp_sums_over_axis_one(weights: Array, grad_weights: Array) -> Array:
    """The code sums w·g over axis 1 for every number of axes."""
    return np.asarray((weights * grad_weights).sum(min(1, weights.ndim - 1), keepdims=True))


@bug.in_step(
    "softmax_backward",
    seen=SOFTMAX_VJP,
    law="masked scores do not matter",
    effect="Gradients belong to the logarithm of the weights.",
    repair="Multiply by the weights.",
    origin="the two formulas look similar; compare mlpack/mlpack#2360",
)
def softmax_vjp_of_the_logarithm(weights: Array, grad_weights: Array) -> Array:
    """The code computes g − w·Σ g, the gradient of a log-softmax."""
    return np.asarray(grad_weights - weights * grad_weights.sum(-1, keepdims=True))


@in_row_term(
    seen=SOFTMAX_VJP,
    law="score gradients sum to zero",
    effect="Gradients of a row do not sum to 0.",
    repair="Subtract the sum of w·g.",
    origin="Σ w·g is a mean of g with weights w",
)
def softmax_vjp_subtracts_a_mean(weights: Array, grad_weights: Array) -> Array:
    """The code divides Σ w·g by the number of entries."""
    return np.asarray((weights * grad_weights).mean(-1, keepdims=True))


@in_row_term(
    seen=SDPA_JVP,
    law="VJP and JVP are adjoint",
    effect="Tangents of the weights do not sum to 0 if weights are unequal.",
    repair="Weight the mean by P.",
    origin="the plain mean also cancels a constant that is added to all keys",
)
def jvp_centred_by_the_plain_mean(weights: Array, grad_weights: Array) -> Array:
    """The code computes dP = P ⊙ (dS − the plain mean of dS)."""
    return np.asarray(grad_weights.mean(-1, keepdims=True))


@in_row_term(
    seen=SOFTMAX_VJP,
    law="reordering scores reorders their results in the same way",
    effect="Rows that are not whole groups of four have wrong gradients, unless their last entries are masked.",
    repair="Add the entries of the tail to the sum.",
    origin="an unrolled loop ends with the last whole group; compare sdpa-tail-keys-dropped",
)
def softmax_vjp_tail_not_in_the_sum(weights: Array, grad_weights: Array) -> Array:
    """In rows of more than four entries, the code sums w·g over whole groups of four entries only."""
    whole_groups = weights.shape[-1] // 4 * 4 or weights.shape[-1]
    return right.row_term(weights[..., :whole_groups], grad_weights[..., :whole_groups])


@in_row_term(
    seen=SDPA_VJP,
    law="key gradients sum to zero",
    effect="With as many queries as keys, dq and dk are wrong.",
    repair="Keep the axis of the sum (keepdims), so that each row subtracts its sum.",
    origin="a sum without keepdims broadcasts along the other axis of a square",
)
def vjp_row_terms_subtracted_from_columns(weights: Array, grad_weights: Array) -> Array:
    """With as many queries as keys, the code subtracts Σ P·dP of row i from column i."""
    term = right.row_term(weights, grad_weights)
    return term.mT if weights.shape[-2] == weights.shape[-1] else term


@in_row_term(
    seen=SDPA_VJP,
    law="queries are computed independently",
    effect="After 16 queries, dq and dk are wrong.",
    repair="Advance the pointer to Σ o·g too.",
    origin="one pointer does not advance",
)
def vjp_row_terms_of_the_first_tile(weights: Array, grad_weights: Array) -> Array:
    """Every tile of 16 queries subtracts the Σ o·g of the first tile."""
    return right.row_term(weights, grad_weights)[..., np.arange(weights.shape[-2]) % 16, :]


@bug.in_operation(
    SDPA_VJP,
    law="a view gives the same result as its contiguous copy",
    requires=("strided views",),
    public=True,
    effect="If the cotangent is a transposed or strided view, dq and dk are wrong; dv is correct.",
    repair="Use the strides of the cotangent.",
    citations="Dao-AILab/flash-attention#355; ROCm/aiter#2808; flagos-ai/FlagAttention#1",
)
def vjp_noncontiguous_dout(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """For Σ o·g, the code reads g in memory order."""
    p = right.attention_weights(q, k, mask)
    return gradients_of(
        (q, k, v), mask, grad_out, p, right.row_term(p @ v, grad_out.ravel(order="K").reshape(grad_out.shape))
    )


@bug.in_operation(
    SDPA_VJP,
    law="reordering queries reorders their results in the same way",
    public=True,
    effect="dk and dv miss the last queries, unless their number is at most 64 or a multiple of 64.",
    repair="Round the number of blocks of queries up.",
    citations="flagos-ai/FlagGems#898; flagos-ai/FlagGems#3607",
)
def vjp_tail_rows_dropped(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """With more than 64 queries, the queries after the last full block of 64 add nothing to dk and
    dv."""
    kept = q.shape[-2] // 64 * 64 or q.shape[-2]
    p, visible = right.attention_weights(q, k, mask), right.visible_entries(mask, scores_shape(q, k))
    _, dk, dv = gradients_of(
        (q[..., :kept, :], k, v), visible[..., :kept, :], grad_out[..., :kept, :], p[..., :kept, :]
    )
    return gradients_of((q, k, v), mask, grad_out, p)[0], dk, dv


@bug.in_operation(
    SDPA_VJP,
    law="the order of keys does not matter",
    effect="With more than 32 keys, dq is the part of the last tile.",
    repair="Add to dq instead of storing.",
    origin="the loop over tiles has = instead of +=",
)
def vjp_queries_overwritten(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Each tile of 32 keys overwrites the part of dq from earlier tiles."""
    p = right.attention_weights(q, k, mask)
    live = right.responding(p, right.visible_entries(mask, p.shape))
    ds = right.softmax_backward(live, grad_out @ v.mT) / math.sqrt(max(q.shape[-1], 1))
    keys = list(tiles(k.shape[-2], 32))[-1]
    return ds[..., keys] @ k[..., keys, :], ds.mT @ q, p.mT @ grad_out


@bug.in_operation(
    SDPA_VJP,
    law="the order of keys does not matter",
    effect="The last keys and values get no gradient, unless their number is at most 32 or a multiple of 32.",
    repair="Round the number of tiles of keys up.",
    origin="the counterpart of tile-ai/tilelang#2010 in the backward",
)
def vjp_tail_keys_dropped(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """With more than 32 keys, the keys after the last full tile of 32 get no gradient."""
    dq, dk, dv = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    kept = k.shape[-2] // 32 * 32 or k.shape[-2]
    dk[..., kept:, :] = dv[..., kept:, :] = 0
    return dq, dk, dv


@in_backward(
    without=(MHA_VJP,),
    law="columns of values are computed independently",
    effect="If values are wider than keys, dq is wrong, while dk and dv are correct.",
    repair="Take the width of values and cotangents from their own last axis.",
    citations="XunhaoLai/native-sparse-attention-triton#27",
)
def vjp_queries_from_the_first_channels(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """For dq, the code reads the first d channels of v and of the cotangent, where d is the width of
    the keys."""
    d, p = q.shape[-1], right.attention_weights(q, k, mask)
    term = right.row_term(p, grad_out @ v.mT)
    _, dk, dv = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    return gradients_of((q, k, v[..., :d]), mask, grad_out[..., :d], p, term)[0], dk, dv


def _with_factors(factors: Callable[[Array, Array, float], tuple[float, float]]) -> Mutant:
    """Return a backward that multiplies dq and dk by two factors. `factors` computes them from the
    queries, the values and √d.
    """

    def backward(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
        dq, dk, dv = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
        query_factor, key_factor = factors(q, v, math.sqrt(max(q.shape[-1], 1)))
        return dq * query_factor, dk * key_factor, dv

    return backward


@in_backward(
    making=True,
    law="VJP and JVP are adjoint",
    effect="dq and dk are √d times too large; dv is correct.",
    repair="Scale the gradient of the scores.",
    origin="the forward scales its queries before the product, and the backward gets unscaled queries",
)
def vjp_not_scaled() -> Mutant:
    """dq and dk lack the scale 1/√d."""
    return _with_factors(lambda q, v, root: (root, root))


@in_backward(
    making=True,
    law="VJP and JVP are adjoint",
    effect="dq is √d times too large; dk and dv are correct.",
    repair="Scale dq too, or the gradient of the scores once.",
    origin="dk = dSᵀ·(q/√d) contains the scale of stored queries, and dq = dS·k does not",
)
def vjp_queries_not_scaled() -> Mutant:
    """dq lacks the scale 1/√d."""
    return _with_factors(lambda q, v, root: (root, 1.0))


@in_backward(
    making=True,
    law="VJP and JVP are adjoint",
    effect="dk is √d times too large; dq and dv are correct.",
    repair="Multiply dk by the scale, as dq.",
    origin="the code scales dq when it stores it, but not dk",
)
def vjp_keys_not_scaled() -> Mutant:
    """dk lacks the scale 1/√d."""
    return _with_factors(lambda q, v, root: (1.0, root))


@in_backward(
    making=True,
    law="VJP and JVP are adjoint",
    effect="For such widths, dq is 1.44 times too large.",
    repair="Multiply dq by ln 2, or keep separate scales for the exponent and the gradient.",
    origin="the scale of a kernel in base 2 contains log₂ e, which does not belong to the derivative",
)
def vjp_queries_scaled_in_base_two() -> Mutant:
    """For widths that are multiples of 8, the code scales dq by log₂ e / √d."""
    return _with_factors(lambda q, v, root: (1 if q.shape[-1] % 8 else 1 / math.log(2), 1.0))


@in_backward(
    making=True,
    law="VJP and JVP are adjoint",
    without=(MHA_VJP,),
    effect="dq and dk are wrong if values are wider or narrower than keys.",
    repair="Scale by the width of the keys.",
    origin=(
        "the backward takes the width from the last axis of g, which is d_v; compare lucidrains/flash-attention-jax#15"
    ),
)
def vjp_scale_by_value_width() -> Mutant:
    """The backward scales by 1/√d_v."""
    return _with_factors(lambda q, v, root: 2 * (root / math.sqrt(max(v.shape[-1], 1)),))


@in_backward(
    making=True,
    law="queries are computed independently",
    without=(MHA_VJP,),
    effect="With one query, as in decoding, dk is scaled twice.",
    repair="Scale the gradient of the scores once.",
    origin="for one query the product is an outer product, written by hand with a scaled query",
)
def vjp_one_query_scaled_twice() -> Mutant:
    """With one query, dk contains the scale of the scores and the scale of the query."""
    return _with_factors(lambda q, v, root: (1.0, 1.0 if q.shape[-2] > 1 else 1 / root))


@in_backward(
    law="key gradients sum to zero",
    effect="dk is wrong with as many queries as keys; rectangular calls are correct.",
    repair="Use dk = dSᵀ q.",
    origin="a rectangular call fails without the transpose, so the code handles it separately",
)
def vjp_transpose_missing_when_square(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """With as many queries as keys, the code computes dk = dS q instead of dSᵀ q."""
    dq, dk, dv = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    if q.shape[-2] == k.shape[-2]:
        live = right.responding(right.attention_weights(q, k, mask), right.visible_entries(mask, scores_shape(q, k)))
        ds = right.softmax_backward(live, grad_out @ v.mT)
        dk = ds @ q / math.sqrt(max(q.shape[-1], 1))
    return dq, dk, dv


@in_backward(
    law="repeating every key and value changes nothing",
    effect="dv is too large by the sum of exponentials; dq and dk are correct.",
    repair="Divide the exponentials by their sum before the product with g.",
    origin="the code saves the maximum instead of the log-sum-exp",
)
def vjp_values_not_normalized(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """The code computes dv from exp(s − max) instead of the weights."""
    dq, dk, _ = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    p = right.attention_weights(q, k, mask)
    largest = p.max(-1, keepdims=True)
    return dq, dk, (p / np.where(largest == 0, 1.0, largest)).mT @ grad_out


@in_backward(
    law="the content of keys masked for all queries does not matter",
    effect="Masked keys and values get gradients, and other gradients may overflow.",
    repair="Mask the recomputed scores like the forward.",
    citations="hao-ai-lab/FastVideo#925; pytorch/pytorch#27461",
)
def vjp_mask_forgotten(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """The backward recomputes weights from unmasked scores and the masked log-sum-exp; it skips
    fully masked rows."""
    scores, fully_masked = right.scores_of(q, k), dead_rows(mask, scores_shape(q, k))
    s = np.where(fully_masked, 0.0, masked(scores, mask))
    largest = s.max(-1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.exp(scores - largest) / np.exp(s - largest).sum(-1, keepdims=True)
        p = np.where(fully_masked, right.dead_weight(k.shape[-2]), p)
        return gradients_of((q, k, v), mask, grad_out, p)


@in_backward(
    law="derivatives do not pass through masked entries",
    effect="On the causal path, each key gets a gradient from the query before it.",
    repair="Compare positions in the backward like in the forward.",
    origin="the tiles of the backward are transposed, and <= becomes <= + 1",
)
def vjp_causal_diagonal_off_by_one(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """Under a causal mask, the backward shows one key too many to each query."""
    if is_causal(mask, scores_shape(q, k)):
        mask = np.arange(k.shape[-2]) <= right.last_keys(q.shape[-2], k.shape[-2]) + 1
    return right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)


@in_backward(
    law="a fully masked row follows its convention",
    effect="A fully masked query gives gradients to all values, and to queries and keys.",
    repair="Set its weights to 0 in the backward too.",
    origin=(
        "only the forward was corrected, and the backward masks with the lowest finite number; compare NVIDIA/apex#1390"
    ),
)
def vjp_dead_rows_uniform(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """In the backward, a fully masked row has equal weights."""
    fully_masked = dead_rows(mask, scores_shape(q, k))
    return gradients_of(
        (q, k, v), mask, grad_out, np.where(fully_masked, 1 / k.shape[-2], right.attention_weights(q, k, mask))
    )


@in_backward(
    law="a batch gives the same as its elements one by one",
    effect="Gradients shrink with the size of the batch.",
    repair="Leave the mean to the loss.",
    origin="the loss already takes the mean",
)
def vjp_divided_by_the_batch(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """The code divides all gradients by the length of the first batch axis."""
    batch = max(q.shape[0], 1) if q.ndim > 2 else 1
    return tuple(g / batch for g in right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out))


@in_backward(
    law="VJP and JVP are adjoint",
    effect="For an odd width, the last channel of dq is 0.",
    repair="Store the last channel too.",
    origin="the code stores two channels at once",
)
def vjp_odd_lane_dropped(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """The code stores dq in pairs of channels, without the last channel of an odd width above 1."""
    dq, dk, dv = right.scaled_dot_product_attention_vjp(q, k, v, mask, grad_out)
    if q.shape[-1] > 1 and q.shape[-1] % 2:
        dq[..., -1] = 0
    return dq, dk, dv


@in_backward(
    law="key gradients sum to zero",
    effect="dq and dk have seven correct digits instead of sixteen, and fewer if the values have a common offset.",
    repair="Save the output in the precision of the gradient, or sum P·dP.",
    origin="the saved output is the rounded one of the caller",
)
def vjp_row_terms_in_single_precision(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> Gradients:
    """The code computes Σ o·g from an output that it saved in float32."""
    p = right.attention_weights(q, k, mask)
    return gradients_of(
        (q, k, v), mask, grad_out, p, right.row_term((p @ v).astype(np.float32).astype(float), grad_out)
    )
