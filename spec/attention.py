"""Scaled dot-product attention, its derivatives, and multi-head attention, at TorchLean's seed
revision.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d) V

A definition takes one sequence: Q is (nQ, d), K and V are (nK, d). A batch needs a loop around it.
Scores have the layout (query, key), and softmax runs along the keys. A mask is True where a query
may attend to a key. Derivatives are written out as definitions of their own: a backward definition
(VJP) maps the cotangent of the output to cotangents of the inputs; a JVP maps tangents of the
inputs to the tangent of the output.

The text follows Lean's seed revision to the letter (`spec.lean`, which also says what `alpha` is
and how shapes are kept). Where the text breaks a law that its own page states, the docstring names
the entry of `spec.errata`. That entry shows the breach by a smallest example and gives the
corrected definition.

Source: Vaswani et al., Attention Is All You Need, 2017, section 3.2

Lean: `NN/Spec/Layers/Attention.lean`, at the seed revision
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np  # noqa: F401 - for the examples
from jaxtyping import Bool

from spec.activation import softmax_spec
from spec.context import Context
from spec.lean import LeanFile
from spec.scope import alpha
from spec.signature import conform
from spec.tensor_core import Array, BroadcastTo, Tensor, replicate, stack, tabulate
from spec.tensor_linalg import mat_mul_spec
from spec.tensor_ops import add_spec, div_spec, map2_spec, mul_spec, scale_spec, sub_spec
from spec.tensor_reduction_shape import (
    concat_spec,
    mat_mul_backward_spec,
    matrix_transpose_spec,
    reshape_spec,
    sum_spec,
    swap_first_two_spec,
)

__all__ = [
    "AttentionContext",
    "MultiHeadAttention",
    "all_false_mask",
    "all_true_mask",
    "build_bc_proof",
    "causal_mask",
    "combine_heads_spec",
    "concat_heads_spec",
    "cross_attention",
    "future_mask",
    "hard_masked_scaled_dot_product_attention",
    "hard_masked_softmax_spec",
    "hard_masked_softmax_vec_spec",
    "multi_head_attention_backward",
    "multi_head_attention_jvp",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_backward",
    "scaled_dot_product_attention_jvp",
    "self_attention",
    "softmax_backward_from_weights_spec",
    "sparse_attention",
    "split_heads_spec",
]

lean = LeanFile("NN/Spec/Layers/Attention.lean")
QUERIES, KEYS = (
    "attention needs at least one query",
    "attention needs at least one key",
)  # why Lean's hypotheses h1 and h2 are needed


# -- Masks: True where the query may attend to the key ---------------------------------------------


@lean(line=90)
def all_true_mask(nQ: int, nK: int) -> Bool[Array, "nQ nK"]:
    """Return the mask (nQ, nK) under which every key is visible to every query.

    Edge cases: nQ = 0 or nK = 0 gives the empty mask of that shape.

    >>> all_true_mask(1, 2)
    array([[ True,  True]])

    Lean: `allTrueMask`
    """
    return tabulate((nQ, nK), lambda i, j: True, bool)


@lean(line=94)
def all_false_mask(nQ: int, nK: int) -> Bool[Array, "nQ nK"]:
    """Return the mask (nQ, nK) under which no key is visible to any query.

    Edge cases: nQ = 0 or nK = 0 gives the empty mask of that shape.

    >>> all_false_mask(1, 2)
    array([[False, False]])

    Lean: `allFalseMask`
    """
    return tabulate((nQ, nK), lambda i, j: False, bool)


@lean(line=101)
def causal_mask(n: int) -> Bool[Array, "n n"]:
    """Return the mask under which key j is visible to query i where j ≤ i: each position attends to
    itself and to earlier positions.

    Edge cases: n = 0 gives the empty mask; with n = 1 the one key is visible. Every row has a
    visible key.

    >>> causal_mask(3)
    array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]])

    Lean: `causalMask`
    """
    return tabulate((n, n), lambda i, j: j <= i, bool)


@lean(line=110)
def future_mask(n: int) -> Bool[Array, "n n"]:
    """Return the mask under which key j is visible to query i where i < j: the complement of
    `causal_mask`.

    Edge cases: n = 0 gives the empty mask. The last row has no visible key.

    >>> future_mask(2)
    array([[False,  True],
           [False, False]])

    Lean: `futureMask`
    """
    return tabulate((n, n), lambda i, j: i < j, bool)


# -- The inputs of attention -----------------------------------------------------------------------


@lean(line=116)
@dataclass(frozen=True, eq=False)
class AttentionContext:
    """The inputs of attention: nQ queries, and nK keys and values, all of width dModel, with an
    optional mask.

    `bc_sum_to_target` is a witness that the shape (nQ) broadcasts to (nQ, nK). By default the
    constructor makes it, as Lean's instance search finds it.

    Raises ValueError if shapes disagree, or if nQ or nK is 0 (Lean's hypotheses h1 and h2). Raises
    TypeError if the mask is not boolean or the tensors are over different scalars.

    Edge cases: dModel = 0 is allowed.

    >>> AttentionContext(np.ones((0, 2)), np.ones((1, 2)), np.ones((1, 2)))
    Traceback (most recent call last):
    ValueError: Q has shape (0, 2), but nQ should not be 0: attention needs at least one query.

    Lean: `AttentionContext`
    """

    Q: Tensor[Array, "nQ dModel"]
    K: Tensor[Array, "nK dModel"]
    V: Tensor[Array, "nK dModel"]
    mask: Bool[Array, "nQ nK"] | None = None
    bc_sum_to_target: BroadcastTo | None = field(kw_only=True, default=None)
    scalar: Context = field(kw_only=True, default=None)  # type: ignore[assignment]  # set in __post_init__

    def __post_init__(self) -> None:
        conform(self, nonzero={"nQ": QUERIES, "nK": KEYS})
        witness = BroadcastTo(self.Q.shape[:1], (len(self.Q), len(self.K)))
        if self.bc_sum_to_target not in (None, witness):
            raise ValueError(f"bc_sum_to_target={self.bc_sum_to_target}, but should be {witness}.")
        object.__setattr__(self, "bc_sum_to_target", witness)


# -- Softmax under a mask --------------------------------------------------------------------------


@lean(line=150)
def hard_masked_softmax_vec_spec(
    scores: Tensor[Array, "n"], mask: Bool[Array, "n"], scalar: Context | None = None
) -> Tensor[Array, "n"]:
    """Return the softmax of the scores where the mask is True, and exactly 0 elsewhere. No maximum
    is subtracted.

        numeratorⱼ = exp(scoreⱼ) if maskⱼ else 0,    result = numerator / Σ numerator

    Edge cases
    - No True entry in the mask: 0 / 0, which is 0 over ℝ and NaN over Float (`spec.errata`,
      `dead-row`).
    - Over floats a score above 709.78 overflows, and a row of scores below −745.13 underflows to 0
      / 0. The sum can overflow before any term does (`spec.errata`, `masked-overflow`,
      `masked-underflow`, `masked-sum-overflow`). Over ℝ this does not happen.
    - n = 0: empty. n = 1: [1] if the mask is True.

    >>> hard_masked_softmax_vec_spec(np.array([0.0, 0.0, 9.0]), np.array([True, True, False]))
    array([0.5, 0.5, 0. ])
    >>> from spec import FLOAT64, REAL64
    >>> nothing = np.array([False, False])
    >>> [hard_masked_softmax_vec_spec(np.zeros(2), nothing, scalar) for scalar in (REAL64, FLOAT64)]
    [array([0., 0.]), array([nan, nan])]

    Lean: `hardMaskedSoftmaxVecSpec`
    """
    numerators = map2_spec(lambda score, allowed: alpha.exp(score) if allowed else alpha.zero, scores, mask)
    denom = sum_spec(numerators)
    return div_spec(numerators, replicate(denom, scores.shape))


@lean(line=160)
def hard_masked_softmax_spec(
    scores: Tensor[Array, "nQ nK"], mask: Bool[Array, "nQ nK"], scalar: Context | None = None
) -> Tensor[Array, "nQ nK"]:
    """Return `hard_masked_softmax_vec_spec` of each row.

    Edge cases: nQ = 0 or nK = 0 gives the empty tensor of that shape.

    >>> hard_masked_softmax_spec(np.zeros((2, 2)), causal_mask(2))
    array([[1. , 0. ],
           [0.5, 0.5]])

    Lean: `hardMaskedSoftmaxSpec`
    """
    return stack(scores.shape, lambda i: hard_masked_softmax_vec_spec(scores[i], mask[i]))


@lean(line=175)
def softmax_backward_from_weights_spec(
    weights: Tensor[Array, "*s"], dWeights: Tensor[Array, "*s"], scalar: Context | None = None
) -> Tensor[Array, "*s"]:
    """Return the cotangent of the scores, given their softmax weights w: w ⊙ (dW − Σⱼ dWⱼ wⱼ), row
    by row along the last axis.

    The Jacobian diag(w) − w wᵀ is symmetric, so the same formula gives the tangent of the weights
    from a tangent of the scores.

    Edge cases: a weight of 0 gives 0, so a masked key gets no gradient. A single number gives 0.

    >>> softmax_backward_from_weights_spec(np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0, 7.0]))
    array([ 0.25, -0.25,  0.  ])

    Lean: `softmaxBackwardFromWeightsSpec`
    """
    if weights.ndim == 0:
        return replicate(alpha.zero, ())
    if weights.ndim == 1:
        row_dot = sum_spec(mul_spec(dWeights, weights))
        return mul_spec(weights, sub_spec(dWeights, replicate(row_dot, weights.shape)))
    return stack(weights.shape, lambda i: softmax_backward_from_weights_spec(weights[i], dWeights[i]))


# -- Attention -------------------------------------------------------------------------------------


@lean(line=206)
def scaled_dot_product_attention(ctx: AttentionContext, scalar: Context | None = None) -> Tensor[Array, "nQ dModel"]:
    """Return A · V, where the weights A are the softmax of the scores Q Kᵀ × (1/√d), row by row.
    With a mask, masked keys have the weight 0.

    Edge cases
    - A row without a visible key: the output row is 0 over ℝ, NaN over Float (`spec.errata`,
      `dead-row`).
    - Without a mask the maximum of each row is subtracted; with a mask it is not. Over ℝ an
      all-true mask changes nothing, but over floats a score above 709.78 overflows (`spec.errata`,
      `masked-overflow`).
    - nK = 1: the output is V's one row for every query that may attend to it.
    - dModel = 0: the output has no columns. The scale 1/√0 is 0 over ℝ and ∞ over Float
      (`spec.errata`, `zero-width-scale`).

    >>> Q, K, V = np.array([[0.0]]), np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]])
    >>> scaled_dot_product_attention(AttentionContext(Q, K, V))
    array([[15.]])
    >>> scaled_dot_product_attention(AttentionContext(Q, K, V, np.array([[False, True]])))
    array([[20.]])
    >>> from spec import FLOAT64, REAL64
    >>> dead = AttentionContext(Q, K, V, all_false_mask(1, 2))
    >>> scaled_dot_product_attention(dead, REAL64), scaled_dot_product_attention(dead, FLOAT64)
    (array([[0.]]), array([[nan]]))

    Lean: `scaledDotProductAttention`
    """
    _, dModel = ctx.Q.shape
    scale = alpha.sqrt(alpha.of_nat(dModel))
    scores = mat_mul_spec(ctx.Q, matrix_transpose_spec(ctx.K))
    scaled_scores = scale_spec(scores, alpha.div(alpha.one, scale))
    attention_weights = (
        softmax_spec(scaled_scores) if ctx.mask is None else hard_masked_softmax_spec(scaled_scores, ctx.mask)
    )
    return mat_mul_spec(attention_weights, ctx.V)


@lean(line=220)
def hard_masked_scaled_dot_product_attention(
    ctx: AttentionContext, scalar: Context | None = None
) -> Tensor[Array, "nQ dModel"]:
    """Return `scaled_dot_product_attention`, where a mask already gives weights of exactly 0. This
    is a second name for it.

    Lean: `hardMaskedScaledDotProductAttention`
    """
    return scaled_dot_product_attention(ctx)


@lean(line=236)
def scaled_dot_product_attention_backward(
    ctx: AttentionContext, dOut: Tensor[Array, "nQ dModel"], scalar: Context | None = None
) -> tuple[Tensor[Array, "nQ dModel"], Tensor[Array, "nK dModel"], Tensor[Array, "nK dModel"]]:
    """Return (dQ, dK, dV), the cotangents of the inputs when the output has cotangent dOut. With A
    the weights and w = 1/√d,

        dA = dOut Vᵀ,  dV = Aᵀ dOut,  dS = (A ⊙ (dA − rowsum(dA ⊙ A))) × w,  dQ = dS K,  dK = dSᵀ Q.

    The lines for scale, scores and weights repeat the forward, because Lean computes them again.

    Edge cases
    - A masked key gets no gradient, because its weight is 0. A row without a visible key has dQ = 0
      and adds nothing to dK and dV (over ℝ).
    - nK = 1: the weight is constant, so dQ = dK = 0 and dV is the sum of dOut over the rows that
      attend.

    >>> ctx = AttentionContext(np.array([[0.0]]), np.array([[1.0], [3.0]]), np.array([[10.0], [20.0]]))
    >>> scaled_dot_product_attention_backward(ctx, np.array([[1.0]]))  # A = (½, ½), dA = (10, 20), dS = (−2½, 2½)
    (array([[5.]]), array([[0.],
           [0.]]), array([[0.5],
           [0.5]]))

    Lean: `scaledDotProductAttentionBackward`
    """
    _, dModel = ctx.Q.shape
    scale = alpha.sqrt(alpha.of_nat(dModel))
    scores = mat_mul_spec(ctx.Q, matrix_transpose_spec(ctx.K))
    scaled_scores = scale_spec(scores, alpha.div(alpha.one, scale))
    attention_weights = (
        softmax_spec(scaled_scores) if ctx.mask is None else hard_masked_softmax_spec(scaled_scores, ctx.mask)
    )

    d_attention_weights = mat_mul_spec(dOut, matrix_transpose_spec(ctx.V))
    dV = mat_mul_spec(matrix_transpose_spec(attention_weights), dOut)
    d_scaled_scores = softmax_backward_from_weights_spec(attention_weights, d_attention_weights)
    d_scores = scale_spec(d_scaled_scores, alpha.div(alpha.one, scale))
    dQ = mat_mul_spec(d_scores, ctx.K)
    dK = mat_mul_spec(matrix_transpose_spec(d_scores), ctx.Q)
    return dQ, dK, dV


@lean(line=280)
def scaled_dot_product_attention_jvp(
    ctx: AttentionContext,
    dQ: Tensor[Array, "nQ dModel"],
    dK: Tensor[Array, "nK dModel"],
    dV: Tensor[Array, "nK dModel"],
    scalar: Context | None = None,
) -> Tensor[Array, "nQ dModel"]:
    """Return the derivative of the output in the direction (dQ, dK, dV) of the inputs. With A the
    weights and w = 1/√d,

        dS = (dQ Kᵀ + Q dKᵀ) × w,  dA = A ⊙ (dS − rowsum(dS ⊙ A)),  dOut = dA V + A dV.

    The lines for scale, scores and weights repeat the forward, because Lean computes them again.

    Edge cases
    - A row without a visible key has derivative 0 over ℝ.
    - nK = 1: the weight is constant, so the derivative is dV's one row for every query that may
      attend to it.

    >>> ctx = AttentionContext(np.array([[0.0]]), np.array([[1.0], [3.0]]), np.array([[10.0], [20.0]]))
    >>> # the adjoint of dQ = 5 above
    >>> scaled_dot_product_attention_jvp(ctx, np.array([[1.0]]), np.zeros((2, 1)), np.zeros((2, 1)))
    array([[5.]])

    Lean: `scaledDotProductAttentionJvp`
    """
    _, dModel = ctx.Q.shape
    scale = alpha.sqrt(alpha.of_nat(dModel))
    scores = mat_mul_spec(ctx.Q, matrix_transpose_spec(ctx.K))
    d_scores = add_spec(mat_mul_spec(dQ, matrix_transpose_spec(ctx.K)), mat_mul_spec(ctx.Q, matrix_transpose_spec(dK)))
    scaled_scores = scale_spec(scores, alpha.div(alpha.one, scale))
    d_scaled_scores = scale_spec(d_scores, alpha.div(alpha.one, scale))
    attention_weights = (
        softmax_spec(scaled_scores) if ctx.mask is None else hard_masked_softmax_spec(scaled_scores, ctx.mask)
    )
    d_attention_weights = softmax_backward_from_weights_spec(attention_weights, d_scaled_scores)
    return add_spec(mat_mul_spec(d_attention_weights, ctx.V), mat_mul_spec(attention_weights, dV))


# -- Several heads ---------------------------------------------------------------------------------


@lean(line=317)
@dataclass(frozen=True, eq=False)
class MultiHeadAttention:
    """The parameters of multi-head attention: three projections into numHeads heads of width
    headDim, and one projection back. They have no biases.

    Wq, Wk and Wv are (dModel, numHeads·headDim), Wo is (numHeads·headDim, dModel). In this revision
    the heads are not blocks of columns: see `split_heads_spec`.

    Raises ValueError if shapes disagree, and TypeError if the tensors are over different scalars.

    Edge cases: dModel, numHeads and headDim may be 0.

    Lean: `MultiHeadAttention`
    """

    Wq: Tensor[Array, "dModel {num_heads*head_dim}"]
    Wk: Tensor[Array, "dModel {num_heads*head_dim}"]
    Wv: Tensor[Array, "dModel {num_heads*head_dim}"]
    Wo: Tensor[Array, "{num_heads*head_dim} dModel"]
    num_heads: int
    head_dim: int
    scalar: Context = field(kw_only=True, default=None)  # type: ignore[assignment]  # set in __post_init__

    def __post_init__(self) -> None:
        conform(self)

    @lean(line=417, nonzero={"n": QUERIES})
    def forward(
        self, x: Tensor[Array, "n dModel"], mask: Bool[Array, "n n"] | None = None, scalar: Context | None = None
    ) -> Tensor[Array, "n dModel"]:
        """Return multi-head attention of x: project x to Q, K and V, split each into heads, apply
        attention in each head with the same mask, combine the heads, and project by Wo.

        Edge cases
        - n = 0 is refused, because attention needs a query (Lean's hypothesis h1).
        - numHeads = 0 or headDim = 0: the combined heads have no columns and the output is 0.
        - numHeads > 1 and n > 1: heads mix tokens, and a causal mask is not causal (`spec.errata`,
          `head-split-causality`).

        >>> one = np.array([[1.0]])
        >>> MultiHeadAttention(one, one, one, one, num_heads=1, head_dim=1).forward(np.array([[2.0]]))
        array([[2.]])

        Lean: `MultiHeadAttention.forward`
        """
        Q, K, V = mat_mul_spec(x, self.Wq), mat_mul_spec(x, self.Wk), mat_mul_spec(x, self.Wv)
        Q_heads = split_heads_spec(Q, self.num_heads, self.head_dim)
        K_heads = split_heads_spec(K, self.num_heads, self.head_dim)
        V_heads = split_heads_spec(V, self.num_heads, self.head_dim)

        def ctx(h: int) -> AttentionContext:
            return AttentionContext(Q_heads[h], K_heads[h], V_heads[h], mask, bc_sum_to_target=build_bc_proof(len(x)))

        attention_heads = stack(Q_heads.shape, lambda h: scaled_dot_product_attention(ctx(h)))
        concatenated = combine_heads_spec(attention_heads)
        return mat_mul_spec(concatenated, self.Wo)


@lean(line=341)
def split_heads_spec(
    x: Tensor[Array, "n {num_heads*head_dim}"], num_heads: int, head_dim: int, scalar: Context | None = None
) -> Tensor[Array, "numHeads n headDim"]:
    """Return the entries of x, (n, numHeads·headDim), in row-major order, reshaped to (numHeads, n,
    headDim).

    This is the seed revision's text. It is not the inverse of `combine_heads_spec`: with numHeads >
    1 and n > 1 the rows of head h come from several tokens (`spec.errata`, `head-split-inverse`).
    The corrected split is in `spec.corrected`.

    Raises ValueError if dModel ≠ numHeads·headDim.

    Edge cases: n, numHeads or headDim = 0 gives the empty tensor of that shape; for numHeads = 1 or
    n = 1 head h is the h-th block of columns, as expected.

    >>> split_heads_spec(np.array([[1.0, 2.0], [3.0, 4.0]]), 2, 1).tolist()  # head 0 holds both entries of token 0
    [[[1.0], [2.0]], [[3.0], [4.0]]]

    Lean: `splitHeadsSpec`
    """
    return reshape_spec(x, (num_heads, len(x), head_dim))


@lean(line=362)
def concat_heads_spec(
    heads: Sequence[Tensor[Array, "n headDim"]], shape: tuple[int, int] | None = None, scalar: Context | None = None
) -> Tensor[Array, "n width"]:
    """Return the heads side by side, (n, numHeads·headDim): row i of the result is row i of each
    head in turn.

    `shape` = (n, headDim) is needed only for an empty list of heads, whose shape Lean reads from
    the type.

    >>> concat_heads_spec([np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]])])
    array([[1., 3.],
           [2., 4.]])

    Lean: `concatHeadsSpec`
    """
    return concat_spec(heads, shape)


@lean(line=383)
def combine_heads_spec(
    heads: Tensor[Array, "numHeads n headDim"], scalar: Context | None = None
) -> Tensor[Array, "n width"]:
    """Return the heads of one tensor side by side: entry (i, h·headDim + c) is heads[h, i, c].

    Edge cases: numHeads or headDim = 0 gives (n, 0); n = 0 gives (0, numHeads·headDim).

    >>> combine_heads_spec(np.array([[[1.0], [2.0]], [[3.0], [4.0]]]))
    array([[1., 3.],
           [2., 4.]])

    Lean: `combineHeadsSpec`
    """
    num_heads, n, head_dim = heads.shape
    swapped = swap_first_two_spec(heads)
    return reshape_spec(swapped, (n, num_heads * head_dim))


@lean(line=402)
def build_bc_proof(n: int) -> BroadcastTo:
    """Return the witness that a tensor of shape (n) broadcasts to shape (n, n).

    Edge cases: n = 0 holds too.

    >>> build_bc_proof(3)
    BroadcastTo(source=(3,), target=(3, 3))

    Lean: `buildBcProof`
    """
    return BroadcastTo((n,), (n, n))


@lean(line=463, nonzero={"n": QUERIES})
def multi_head_attention_backward(
    mha: MultiHeadAttention,
    x: Tensor[Array, "n dModel"],
    mask: Bool[Array, "n n"] | None,
    grad_output: Tensor[Array, "n dModel"],
    scalar: Context | None = None,
) -> tuple[
    Tensor[Array, "n dModel"],
    Tensor[Array, "dModel width"],
    Tensor[Array, "dModel width"],
    Tensor[Array, "dModel width"],
    Tensor[Array, "width dModel"],
]:
    """Return (dx, dWq, dWk, dWv, dWo), the cotangents of x and the parameters when the output has
    cotangent grad_output.

    The forward is computed again. Then the cotangent passes backwards through Wo, the combined
    heads, attention in each head, the split, and the projections. `split_heads_spec` splits the
    cotangent of the combined heads, and `combine_heads_spec` combines the cotangents of the heads.
    In this revision these are not the adjoints of the forward's steps (`spec.errata`,
    `multi-head-adjoint`).

    Edge cases: numHeads = 0 or headDim = 0 gives dx = 0 and empty cotangents of the parameters.

    >>> one = np.array([[1.0]])
    >>> mha = MultiHeadAttention(one, one, one, one, num_heads=1, head_dim=1)
    >>> [g.item() for g in multi_head_attention_backward(mha, np.array([[2.0]]), None, np.array([[1.0]]))]
    [1.0, 0.0, 0.0, 2.0, 2.0]

    Lean: `MultiHeadAttentionBackward`
    """
    Q, K, V = mat_mul_spec(x, mha.Wq), mat_mul_spec(x, mha.Wk), mat_mul_spec(x, mha.Wv)
    Q_heads = split_heads_spec(Q, mha.num_heads, mha.head_dim)
    K_heads = split_heads_spec(K, mha.num_heads, mha.head_dim)
    V_heads = split_heads_spec(V, mha.num_heads, mha.head_dim)

    def ctx(h: int) -> AttentionContext:
        return AttentionContext(Q_heads[h], K_heads[h], V_heads[h], mask, bc_sum_to_target=build_bc_proof(len(x)))

    attention_heads = stack(Q_heads.shape, lambda h: scaled_dot_product_attention(ctx(h)))
    concatenated = combine_heads_spec(attention_heads)

    grad_concat, grad_Wo = mat_mul_backward_spec(concatenated, mha.Wo, grad_output)
    grad_attention_heads = split_heads_spec(grad_concat, mha.num_heads, mha.head_dim)
    # Lean writes this call three times, once for each part of its result.
    grads = [scaled_dot_product_attention_backward(ctx(h), grad_attention_heads[h]) for h in range(mha.num_heads)]
    grad_Q = combine_heads_spec(stack(Q_heads.shape, lambda h: grads[h][0]))
    grad_K = combine_heads_spec(stack(K_heads.shape, lambda h: grads[h][1]))
    grad_V = combine_heads_spec(stack(V_heads.shape, lambda h: grads[h][2]))

    grad_x_Q, grad_Wq = mat_mul_backward_spec(x, mha.Wq, grad_Q)
    grad_x_K, grad_Wk = mat_mul_backward_spec(x, mha.Wk, grad_K)
    grad_x_V, grad_Wv = mat_mul_backward_spec(x, mha.Wv, grad_V)
    grad_x = add_spec(add_spec(grad_x_Q, grad_x_K), grad_x_V)
    return grad_x, grad_Wq, grad_Wk, grad_Wv, grad_Wo


@lean(line=575, nonzero={"n": QUERIES})
def multi_head_attention_jvp(
    mha: MultiHeadAttention,
    dmha: MultiHeadAttention,
    x: Tensor[Array, "n dModel"],
    dx: Tensor[Array, "n dModel"],
    mask: Bool[Array, "n n"] | None = None,
    scalar: Context | None = None,
) -> Tensor[Array, "n dModel"]:
    """Return the derivative of the output in the direction (dmha, dx), where dmha changes the
    parameters and dx the input. It follows the steps of `forward`.

    First dQ = dx Wq + x dWq, and dK and dV likewise; then the attention JVP in each head; then
    dConcat Wo + concat dWo.

    Edge cases: numHeads = 0 or headDim = 0 gives 0.

    >>> one, zero = np.array([[1.0]]), np.array([[0.0]])
    >>> mha = MultiHeadAttention(one, one, one, one, num_heads=1, head_dim=1)
    >>> dmha = MultiHeadAttention(zero, zero, zero, zero, num_heads=1, head_dim=1)
    >>> multi_head_attention_jvp(mha, dmha, np.array([[2.0]]), np.array([[1.0]]))
    array([[1.]])

    Lean: `MultiHeadAttentionJvp`
    """
    Q, K, V = mat_mul_spec(x, mha.Wq), mat_mul_spec(x, mha.Wk), mat_mul_spec(x, mha.Wv)
    dQ = add_spec(mat_mul_spec(dx, mha.Wq), mat_mul_spec(x, dmha.Wq))
    dK = add_spec(mat_mul_spec(dx, mha.Wk), mat_mul_spec(x, dmha.Wk))
    dV = add_spec(mat_mul_spec(dx, mha.Wv), mat_mul_spec(x, dmha.Wv))
    Q_heads = split_heads_spec(Q, mha.num_heads, mha.head_dim)
    K_heads = split_heads_spec(K, mha.num_heads, mha.head_dim)
    V_heads = split_heads_spec(V, mha.num_heads, mha.head_dim)
    dQ_heads = split_heads_spec(dQ, mha.num_heads, mha.head_dim)
    dK_heads = split_heads_spec(dK, mha.num_heads, mha.head_dim)
    dV_heads = split_heads_spec(dV, mha.num_heads, mha.head_dim)

    def ctx(h: int) -> AttentionContext:
        return AttentionContext(Q_heads[h], K_heads[h], V_heads[h], mask, bc_sum_to_target=build_bc_proof(len(x)))

    attention_heads = stack(Q_heads.shape, lambda h: scaled_dot_product_attention(ctx(h)))
    d_attention_heads = stack(
        Q_heads.shape, lambda h: scaled_dot_product_attention_jvp(ctx(h), dQ_heads[h], dK_heads[h], dV_heads[h])
    )
    concatenated = combine_heads_spec(attention_heads)
    d_concatenated = combine_heads_spec(d_attention_heads)
    return add_spec(mat_mul_spec(d_concatenated, mha.Wo), mat_mul_spec(concatenated, dmha.Wo))


# -- Attention with projections --------------------------------------------------------------------


@lean(line=639, nonzero={"n": QUERIES})
def self_attention(
    x: Tensor[Array, "n dModel"],
    Wq: Tensor[Array, "dModel projDim"],
    Wk: Tensor[Array, "dModel projDim"],
    Wv: Tensor[Array, "dModel projDim"],
    Wo: Tensor[Array, "projDim dModel"],
    scalar: Context | None = None,
) -> Tensor[Array, "n dModel"]:
    """Return Attention(x Wq, x Wk, x Wv) · Wo: one head of width projDim, without a mask.

    Edge cases: n = 0 is refused; n = 1 gives x Wv Wo; projDim = 0 gives 0.

    >>> one = np.array([[1.0]])
    >>> self_attention(np.array([[2.0]]), one, one, one, one)
    array([[2.]])

    Lean: `selfAttention`
    """
    Q, K, V = mat_mul_spec(x, Wq), mat_mul_spec(x, Wk), mat_mul_spec(x, Wv)
    ctx = AttentionContext(Q, K, V)
    return mat_mul_spec(scaled_dot_product_attention(ctx), Wo)


@lean(line=666, nonzero={"n1": QUERIES, "n2": KEYS})
def cross_attention(
    query: Tensor[Array, "n1 dModel"],
    key: Tensor[Array, "n2 dModel"],
    value: Tensor[Array, "n2 dModel"],
    Wq: Tensor[Array, "dModel projDim"],
    Wk: Tensor[Array, "dModel projDim"],
    Wv: Tensor[Array, "dModel projDim"],
    Wo: Tensor[Array, "projDim dModel"],
    scalar: Context | None = None,
) -> Tensor[Array, "n1 dModel"]:
    """Return Attention(query Wq, key Wk, value Wv) · Wo: one head of width projDim, without a mask.
    The two lengths may differ.

    Edge cases: n1 = 0 or n2 = 0 is refused; n2 = 1 gives value Wv Wo in every row.

    >>> one = np.array([[1.0]])
    >>> cross_attention(np.array([[0.0]]), np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]]), one, one, one, one)
    array([[15.]])

    Lean: `crossAttention`
    """
    Q, K, V = mat_mul_spec(query, Wq), mat_mul_spec(key, Wk), mat_mul_spec(value, Wv)
    ctx = AttentionContext(Q, K, V)
    attention = scaled_dot_product_attention(ctx)
    return mat_mul_spec(attention, Wo)


@lean(line=691, nonzero={"n": QUERIES})
def sparse_attention(
    x: Tensor[Array, "n dModel"],
    sparsity_pattern: Bool[Array, "n n"],
    Wq: Tensor[Array, "dModel projDim"],
    Wk: Tensor[Array, "dModel projDim"],
    Wv: Tensor[Array, "dModel projDim"],
    Wo: Tensor[Array, "projDim dModel"],
    scalar: Context | None = None,
) -> Tensor[Array, "n dModel"]:
    """Return `self_attention` with the pattern as its mask: query i attends to key j where the
    pattern is True.

    Edge cases: as for the mask of `scaled_dot_product_attention`.

    >>> one = np.array([[1.0]])
    >>> sparse_attention(np.array([[2.0], [4.0]]), np.array([[False, True], [True, False]]), one, one, one, one)
    array([[4.],
           [2.]])

    Lean: `sparseAttention`
    """
    Q, K, V = mat_mul_spec(x, Wq), mat_mul_spec(x, Wk), mat_mul_spec(x, Wv)
    ctx = AttentionContext(Q, K, V, mask=sparsity_pattern)
    attention = scaled_dot_product_attention(ctx)
    return mat_mul_spec(attention, Wo)
