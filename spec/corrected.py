"""The corrected definitions that `spec.errata` refers to: attention and rotary encoding as the
pages of TorchLean intend them.

    weights     the largest visible score is subtracted, so that nothing overflows; a fully masked row is exactly 0
    scale       1/√d, and 1 where d = 0
    heads       contiguous blocks of columns, so that each head's row i is of token i
    odd lane    the unpaired lane of a rotary encoding passes through

Over ℝ attention equals the literal definition. Over floats it computes the value that the literal
text means. A function of a structure (`AttentionContext`, `MultiHeadAttention`) runs over the
structure's scalar; a function of tensors has `scalar` as its last parameter. They refuse the same
arguments as the literal definitions.

Lean: `NN/Spec/Layers/Attention.lean` at revision `spec.lean.REVISED`, and
`NN/Spec/Layers/PositionalEncoding.lean` in a public copy
"""

from functools import reduce

import numpy as np  # noqa: F401 - for the examples
from jaxtyping import Bool

from spec.activation import softmax_spec
from spec.attention import (
    QUERIES,
    AttentionContext,
    MultiHeadAttention,
    combine_heads_spec,
    softmax_backward_from_weights_spec,
)
from spec.context import Context, Scalar
from spec.lean import REVISED, LeanFile, definition
from spec.positional_encoding import rope_apply_spec
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, replicate, stack, tabulate
from spec.tensor_linalg import mat_mul_spec
from spec.tensor_ops import add_spec, div_spec, map2_spec, scale_spec
from spec.tensor_reduction_shape import (
    mat_mul_backward_spec,
    matrix_transpose_spec,
    reshape_spec,
    sum_spec,
    swap_first_two_spec,
)

__all__ = [
    "attention_scale_denom",
    "hard_masked_softmax",
    "hard_masked_softmax_vec",
    "multi_head_attention_backward",
    "multi_head_attention_forward",
    "multi_head_attention_jvp",
    "rope_apply",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_backward",
    "scaled_dot_product_attention_jvp",
    "split_heads",
]

lean = LeanFile("NN/Spec/Layers/Attention.lean", REVISED)


# -- Attention -------------------------------------------------------------------------------------


@lean()
def attention_scale_denom(d: int, scalar: Context | None = None) -> Scalar:
    """Return √d, the number that scores are divided by; 1 if d = 0.

    >>> from spec.context import REAL64
    >>> attention_scale_denom(4, REAL64), attention_scale_denom(0, REAL64)
    (np.float64(2.0), np.float64(1.0))

    Lean: `attentionScaleDenom`, corrected
    """
    return alpha.one if d == 0 else alpha.sqrt(alpha.of_nat(d))


@lean()
def hard_masked_softmax_vec(
    scores: Tensor[Array, "n"], mask: Bool[Array, "n"], scalar: Context | None = None
) -> Tensor[Array, "n"]:
    """Return exp(scoreⱼ − m) / Σₖ exp(scoreₖ − m) at the visible entries j, and exactly 0
    elsewhere. The sum runs over the visible entries, and m is the largest visible score.

    Edge cases: a fully masked row is 0 for every kind of scalar. A row with one visible
    entry is 1 at this entry. Nothing overflows.

    >>> from spec.context import FLOAT64
    >>> hard_masked_softmax_vec(np.array([-760.0, -760.0, 5.0]), np.array([True, True, False]), FLOAT64)
    array([0.5, 0.5, 0. ])

    Lean: `hardMaskedSoftmaxVecSpec`, corrected
    """
    if not mask.any():
        return replicate(alpha.zero, scores.shape)
    row_max = reduce(alpha.max, scores[mask])
    numerators = map2_spec(lambda score, allowed: alpha.exp(score - row_max) if allowed else alpha.zero, scores, mask)
    return div_spec(numerators, replicate(sum_spec(numerators), scores.shape))


@lean()
def hard_masked_softmax(
    scores: Tensor[Array, "nQ nK"], mask: Bool[Array, "nQ nK"], scalar: Context | None = None
) -> Tensor[Array, "nQ nK"]:
    """Return `hard_masked_softmax_vec` of each row.

    >>> hard_masked_softmax(np.array([[800.0, 800.0]]), np.array([[True, True]]))
    array([[0.5, 0.5]])

    Lean: `hardMaskedSoftmaxSpec`, corrected
    """
    return stack(scores.shape, lambda i: hard_masked_softmax_vec(scores[i], mask[i]))


def _scale_and_weights(ctx: AttentionContext) -> tuple[Scalar, Array]:
    """Return w = 1/√d, the number that multiplies scores, and the weights A = softmax(Q Kᵀ × w)
    along the visible keys.
    """
    scale = alpha.div(alpha.one, attention_scale_denom(ctx.Q.shape[1]))
    scaled_scores = scale_spec(mat_mul_spec(ctx.Q, matrix_transpose_spec(ctx.K)), scale)
    return scale, softmax_spec(scaled_scores) if ctx.mask is None else hard_masked_softmax(scaled_scores, ctx.mask)


@lean()
def scaled_dot_product_attention(ctx: AttentionContext) -> Tensor[Array, "nQ dModel"]:
    """Return A · V, where A is the softmax of Q Kᵀ / √d along the visible keys, computed without
    overflow. A fully masked row is 0.

    >>> ctx = AttentionContext(np.array([[710.0]]), np.array([[1.0]]), np.array([[3.0]]), np.array([[True]]))
    >>> scaled_dot_product_attention(ctx)
    array([[3.]])

    Lean: `scaledDotProductAttention`, corrected
    """
    _, weights = _scale_and_weights(ctx)
    return mat_mul_spec(weights, ctx.V)


@lean()
def scaled_dot_product_attention_backward(
    ctx: AttentionContext, dOut: Tensor[Array, "nQ dModel"]
) -> tuple[Tensor[Array, "nQ dModel"], Tensor[Array, "nK dModel"], Tensor[Array, "nK dModel"]]:
    """Return the cotangents (dQ, dK, dV) by the literal formulas, with the corrected weights and
    scale.

    Edge cases: a fully masked row gives dQ = 0 and adds nothing to dK and dV, for every
    type of scalar.

    >>> ctx = AttentionContext(np.array([[710.0]]), np.array([[1.0]]), np.array([[3.0]]), np.array([[True]]))
    >>> scaled_dot_product_attention_backward(ctx, np.array([[1.0]]))
    (array([[0.]]), array([[0.]]), array([[1.]]))

    Lean: `scaledDotProductAttentionBackward`, corrected
    """
    scale, weights = _scale_and_weights(ctx)
    d_weights = mat_mul_spec(dOut, matrix_transpose_spec(ctx.V))
    d_scores = scale_spec(softmax_backward_from_weights_spec(weights, d_weights), scale)
    dQ = mat_mul_spec(d_scores, ctx.K)
    dK = mat_mul_spec(matrix_transpose_spec(d_scores), ctx.Q)
    dV = mat_mul_spec(matrix_transpose_spec(weights), dOut)
    return dQ, dK, dV


@lean()
def scaled_dot_product_attention_jvp(
    ctx: AttentionContext,
    dQ: Tensor[Array, "nQ dModel"],
    dK: Tensor[Array, "nK dModel"],
    dV: Tensor[Array, "nK dModel"],
) -> Tensor[Array, "nQ dModel"]:
    """Return the tangent of the output by the literal formulas, with the corrected weights and
    scale.

    Edge cases: a fully masked row has tangent 0, for every type of scalar.

    >>> ctx = AttentionContext(np.array([[710.0]]), np.array([[1.0]]), np.array([[3.0]]), np.array([[True]]))
    >>> scaled_dot_product_attention_jvp(ctx, np.array([[1.0]]), np.array([[1.0]]), np.array([[2.0]]))
    array([[2.]])

    Lean: `scaledDotProductAttentionJvp`, corrected
    """
    scale, weights = _scale_and_weights(ctx)
    from_Q = mat_mul_spec(dQ, matrix_transpose_spec(ctx.K))
    from_K = mat_mul_spec(ctx.Q, matrix_transpose_spec(dK))
    d_scaled_scores = scale_spec(add_spec(from_Q, from_K), scale)
    d_weights = softmax_backward_from_weights_spec(weights, d_scaled_scores)
    return add_spec(mat_mul_spec(d_weights, ctx.V), mat_mul_spec(weights, dV))


# -- Several heads ---------------------------------------------------------------------------------


@lean()
def split_heads(
    x: Tensor[Array, "n {num_heads*head_dim}"], num_heads: int, head_dim: int, scalar: Context | None = None
) -> Tensor[Array, "numHeads n headDim"]:
    """Return the tensor whose entry (h, i, c) is x[i, h·headDim + c]: head h is the h-th block of
    columns.

    `combine_heads_spec` is its inverse and its adjoint. Raises ValueError if dModel ≠
    numHeads·headDim.

    >>> split_heads(np.array([[1.0, 2.0], [3.0, 4.0]]), 2, 1).tolist()
    [[[1.0], [3.0]], [[2.0], [4.0]]]

    Lean: `splitHeadsSpec`, corrected
    """
    return swap_first_two_spec(reshape_spec(x, (len(x), num_heads, head_dim)))


def _split(mha: MultiHeadAttention, t: Array) -> Array:
    return split_heads(t, mha.num_heads, mha.head_dim)


def _combine(mha: MultiHeadAttention, heads: list[Array], n: int) -> Array:
    return combine_heads_spec(stack((mha.num_heads, n, mha.head_dim), lambda h: heads[h]))


def _contexts(mha: MultiHeadAttention, x: Array, mask: Array | None) -> list[AttentionContext]:
    """Return the inputs of attention in each head: its columns of x Wq, x Wk and x Wv, and the
    common mask.
    """
    Q, K, V = (_split(mha, mat_mul_spec(x, W)) for W in (mha.Wq, mha.Wk, mha.Wv))
    return [AttentionContext(Q[h], K[h], V[h], mask) for h in range(mha.num_heads)]


@lean(nonzero={"n": QUERIES})
def multi_head_attention_forward(
    mha: MultiHeadAttention, x: Tensor[Array, "n dModel"], mask: Bool[Array, "n n"] | None = None
) -> Tensor[Array, "n dModel"]:
    """Return Σₕ Attention(x Wq[:, h], x Wk[:, h], x Wv[:, h]) · Wo[h]: the literal definition, with
    the corrected split and attention.

    Here [:, h] is the h-th block of headDim columns, and Wo[h] the h-th block of rows.

    Edge cases: without heads the output is 0.

    >>> one, two = np.array([[1.0, 1.0]]), np.array([[1.0], [1.0]])
    >>> multi_head_attention_forward(MultiHeadAttention(one, one, one, two, 2, 1), np.array([[3.0]]))
    array([[6.]])

    Lean: `MultiHeadAttention.forward`, corrected
    """
    heads = [scaled_dot_product_attention(ctx) for ctx in _contexts(mha, x, mask)]
    return mat_mul_spec(_combine(mha, heads, len(x)), mha.Wo)


@lean(nonzero={"n": QUERIES})
def multi_head_attention_backward(
    mha: MultiHeadAttention,
    x: Tensor[Array, "n dModel"],
    mask: Bool[Array, "n n"] | None,
    grad_output: Tensor[Array, "n dModel"],
) -> tuple[
    Tensor[Array, "n dModel"],
    Tensor[Array, "dModel width"],
    Tensor[Array, "dModel width"],
    Tensor[Array, "dModel width"],
    Tensor[Array, "width dModel"],
]:
    """Return the cotangents (dx, dWq, dWk, dWv, dWo). The cotangent passes backwards through Wo,
    the combined heads (by splitting), attention, the split (by combining), and x.

    >>> one, two = np.array([[1.0, 1.0]]), np.array([[1.0], [1.0]])
    >>> mha = MultiHeadAttention(one, one, one, two, 2, 1)
    >>> [g.tolist() for g in multi_head_attention_backward(mha, np.array([[3.0]]), None, np.array([[1.0]]))]
    [[[2.0]], [[0.0, 0.0]], [[0.0, 0.0]], [[3.0, 3.0]], [[3.0], [3.0]]]

    Lean: `MultiHeadAttentionBackward`, corrected
    """
    contexts = _contexts(mha, x, mask)
    concatenated = _combine(mha, [scaled_dot_product_attention(ctx) for ctx in contexts], len(x))
    grad_concat, grad_Wo = mat_mul_backward_spec(concatenated, mha.Wo, grad_output)
    grads = [
        scaled_dot_product_attention_backward(ctx, g) for ctx, g in zip(contexts, _split(mha, grad_concat), strict=True)
    ]
    grad_Q, grad_K, grad_V = (_combine(mha, [grad[part] for grad in grads], len(x)) for part in range(3))
    grad_x_Q, grad_Wq = mat_mul_backward_spec(x, mha.Wq, grad_Q)
    grad_x_K, grad_Wk = mat_mul_backward_spec(x, mha.Wk, grad_K)
    grad_x_V, grad_Wv = mat_mul_backward_spec(x, mha.Wv, grad_V)
    return add_spec(add_spec(grad_x_Q, grad_x_K), grad_x_V), grad_Wq, grad_Wk, grad_Wv, grad_Wo


@lean(nonzero={"n": QUERIES})
def multi_head_attention_jvp(
    mha: MultiHeadAttention,
    dmha: MultiHeadAttention,
    x: Tensor[Array, "n dModel"],
    dx: Tensor[Array, "n dModel"],
    mask: Bool[Array, "n n"] | None = None,
) -> Tensor[Array, "n dModel"]:
    """Return the derivative of the output in the direction (dmha, dx), where dmha changes the
    parameters and dx the input. It follows the steps of the forward.

    >>> one, two = np.array([[1.0, 1.0]]), np.array([[1.0], [1.0]])
    >>> mha = MultiHeadAttention(one, one, one, two, 2, 1)
    >>> dmha = MultiHeadAttention(0 * one, 0 * one, 0 * one, 0 * two, 2, 1)
    >>> multi_head_attention_jvp(mha, dmha, np.array([[3.0]]), np.array([[1.0]]))
    array([[2.]])

    Lean: `MultiHeadAttentionJvp`, corrected
    """
    contexts = _contexts(mha, x, mask)
    weights = ((mha.Wq, dmha.Wq), (mha.Wk, dmha.Wk), (mha.Wv, dmha.Wv))
    dQ, dK, dV = (_split(mha, add_spec(mat_mul_spec(dx, W), mat_mul_spec(x, dW))) for W, dW in weights)
    concatenated = _combine(mha, [scaled_dot_product_attention(ctx) for ctx in contexts], len(x))
    d_heads = [scaled_dot_product_attention_jvp(ctx, dQ[h], dK[h], dV[h]) for h, ctx in enumerate(contexts)]
    d_concatenated = _combine(mha, d_heads, len(x))
    return add_spec(mat_mul_spec(d_concatenated, mha.Wo), mat_mul_spec(concatenated, dmha.Wo))


# -- Rotary encoding -------------------------------------------------------------------------------


@definition()
def rope_apply(
    x: Tensor[Array, "seqLen headDim"], start_pos: int = 0, scalar: Context | None = None
) -> Tensor[Array, "seqLen headDim"]:
    """Return x with each adjacent pair rotated. The unpaired lane of an odd headDim passes through:
    there cos = 1 and sin = 0.

    >>> rope_apply(np.array([[7.0]]), start_pos=3)
    array([[7.]])

    Lean: `ropeApplySpec` with an odd headDim, corrected
    """
    _, head_dim = x.shape
    rotated = rope_apply_spec(x, start_pos)
    unpaired = head_dim - 1 if head_dim % 2 else None
    return tabulate(x.shape, lambda p, j: x[p, j] if j == unpaired else rotated[p, j])
