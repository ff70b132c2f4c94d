"""Errata: where a literal definition breaks a law that its own page states, shown by a smallest witness, with a corrected definition.

The literal definitions of `spec` stay as the seed revision has them; the corrected ones stand here, beside the law that they satisfy
and the literal ones break. A law takes a definition and evaluates it on the witness, so the same law judges both:

>>> erratum = ERRATA["head-split-inverse"]
>>> erratum.law(erratum.literal).holds, erratum.law(erratum.corrected).holds
(False, True)

`python -m spec.errata` prints all of them, with the numbers computed as it runs.

Sources: TorchLean's revision 0f84531, which corrects most of them, and a later one (the rotary lane).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool

from spec import attention as literal
from spec import positional_encoding
from spec.activation import softmax_spec
from spec.attention import AttentionContext, MultiHeadAttention
from spec.context import FLOAT64, REAL64, Context, Scalar
from spec.tensor_core import Array, Tensor, nat, over, replicate, shape_of, stack, tabulate
from spec.tensor_linalg import mat_mul_spec
from spec.tensor_ops import add_spec, div_spec, map2_spec, scale_spec
from spec.tensor_reduction_shape import (
    concat_spec,
    matrix_transpose_spec,
    reshape_spec,
    sum_spec,
    swap_first_two_spec,
)

__all__ = [
    "ERRATA",
    "Erratum",
    "Finding",
    "attention_scale_denom",
    "hard_masked_softmax",
    "hard_masked_softmax_vec",
    "multi_head_attention_backward",
    "multi_head_attention_forward",
    "multi_head_attention_jvp",
    "rope_apply",
    "scaled_dot_product_attention",
    "split_heads",
]


# -- Corrected definitions: attention ------------------------------------------------------------------------------------------


def attention_scale_denom(d: int, scalar: Context | None = None) -> Scalar:
    """√d, and 1 where d = 0: the number that scores are divided by.

    >>> attention_scale_denom(4, REAL64), attention_scale_denom(0, REAL64)
    (np.float64(2.0), np.float64(1.0))

    Lean: `attentionScaleDenom` (revised)
    """
    (alpha,) = over(scalar)
    return alpha.one if nat(d, "d") == 0 else alpha.sqrt(alpha.of_nat(d))


def hard_masked_softmax_vec(scores: Tensor[Array, "n"], mask: Bool[Array, "n"], scalar: Context | None = None) -> Tensor[Array, "n"]:
    """exp(scoreⱼ − m) / Σₖ exp(scoreₖ − m) over the allowed entries, with m the largest allowed score, and exactly 0 elsewhere.

    Edge cases: a row with no allowed entry is 0 over every scalar. A row with one is 1 there. Nothing overflows.

    >>> hard_masked_softmax_vec(np.array([-760.0, -760.0, 5.0]), np.array([True, True, False]), FLOAT64)
    array([0.5, 0.5, 0. ])

    Lean: `hardMaskedSoftmaxVecSpec` (revised)
    """
    alpha, scores = over(scalar, scores=scores)
    (n,) = shape_of(scores, "scores", "n")
    if not mask.any():
        return replicate(alpha.zero, (n,), alpha)
    allowed_scores = scores[mask]
    row_max = allowed_scores[0]
    for score in allowed_scores[1:]:
        row_max = alpha.max(row_max, score)
    numerators = map2_spec(lambda score, allowed: alpha.exp(score - row_max) if allowed else alpha.zero, scores, mask, alpha)
    return div_spec(numerators, replicate(sum_spec(numerators, alpha), (n,), alpha), alpha)


def hard_masked_softmax(
    scores: Tensor[Array, "nQ nK"], mask: Bool[Array, "nQ nK"], scalar: Context | None = None
) -> Tensor[Array, "nQ nK"]:
    """`hard_masked_softmax_vec` of each row.

    >>> hard_masked_softmax(np.array([[800.0, 800.0]]), np.array([[True, True]]))
    array([[0.5, 0.5]])

    Lean: `hardMaskedSoftmaxSpec` (revised)
    """
    alpha, scores = over(scalar, scores=scores)
    return stack(scores.shape, lambda i: hard_masked_softmax_vec(scores[i], mask[i], alpha), alpha)


def scaled_dot_product_attention(ctx: AttentionContext) -> Tensor[Array, "nQ dModel"]:
    """A · V with A the softmax of Q Kᵀ / √d along the allowed keys, computed without overflow; a row with no allowed key is 0.

    Over ℝ this is the literal definition. Over floats it is what the literal one means.

    >>> ctx = AttentionContext(np.array([[710.0]]), np.array([[1.0]]), np.array([[3.0]]), np.array([[True]]))
    >>> scaled_dot_product_attention(ctx)
    array([[3.]])

    Lean: `scaledDotProductAttention` (revised)
    """
    alpha, Q, K, V = ctx.scalar, ctx.Q, ctx.K, ctx.V
    scale = attention_scale_denom(Q.shape[1], alpha)
    scaled_scores = scale_spec(mat_mul_spec(Q, matrix_transpose_spec(K, alpha), alpha), alpha.div(alpha.one, scale), alpha)
    weights = softmax_spec(scaled_scores, alpha) if ctx.mask is None else hard_masked_softmax(scaled_scores, ctx.mask, alpha)
    return mat_mul_spec(weights, V, alpha)


# -- Corrected definitions: several heads --------------------------------------------------------------------------------------


def split_heads(
    x: Tensor[Array, "n dModel"], num_heads: int, head_dim: int, scalar: Context | None = None
) -> Tensor[Array, "numHeads n headDim"]:
    """The tensor whose entry (h, i, c) is x[i, h·headDim + c]: head h is the h-th block of columns.

    >>> split_heads(np.array([[1.0, 2.0], [3.0, 4.0]]), 2, 1).tolist()
    [[[1.0], [3.0]], [[2.0], [4.0]]]

    Lean: `splitHeadsSpec` (revised)
    """
    alpha, x = over(scalar, x=x)
    n, _ = shape_of(x, "x", "n dModel")
    return swap_first_two_spec(reshape_spec(x, (n, num_heads, head_dim), alpha), alpha)


def _heads(mha: MultiHeadAttention) -> list[MultiHeadAttention]:
    """The heads of mha, each with its block of columns and rows, and each a multi-head attention of one head.

    For one head the literal split is the right one, so the literal definitions are right for each of these.
    """
    d = mha.head_dim
    blocks = [slice(h * d, (h + 1) * d) for h in range(mha.num_heads)]
    return [MultiHeadAttention(mha.Wq[:, b], mha.Wk[:, b], mha.Wv[:, b], mha.Wo[b], 1, d, scalar=mha.scalar) for b in blocks]


def _sum(terms: list[Array], shape: tuple[int, ...], alpha: Context) -> Array:
    total = replicate(alpha.zero, shape, alpha)
    for term in terms:
        total = add_spec(total, term, alpha)
    return total


def multi_head_attention_forward(
    mha: MultiHeadAttention, x: Tensor[Array, "n dModel"], mask: Bool[Array, "n n"] | None = None
) -> Tensor[Array, "n dModel"]:
    """The sum over heads h of Attention(x Wq[:, h], x Wk[:, h], x Wv[:, h]) · Wo[h], with heads as contiguous blocks of columns.

    Edge cases: no heads give 0.

    >>> one, two = np.array([[1.0, 1.0]]), np.array([[1.0], [1.0]])
    >>> multi_head_attention_forward(MultiHeadAttention(one, one, one, two, 2, 1), np.array([[3.0]]))
    array([[6.]])

    Lean: `MultiHeadAttention.forward` (revised)
    """
    return _sum([head.forward(x, mask) for head in _heads(mha)], x.shape, mha.scalar)


def multi_head_attention_backward(
    mha: MultiHeadAttention,
    x: Tensor[Array, "n dModel"],
    mask: Bool[Array, "n n"] | None,
    grad_output: Tensor[Array, "n dModel"],
) -> tuple[Array, Array, Array, Array, Array]:
    """(dx, dWq, dWk, dWv, dWo): dx is the sum over heads, and each parameter's cotangent is its heads' cotangents side by side.

    >>> one, two = np.array([[1.0, 1.0]]), np.array([[1.0], [1.0]])
    >>> mha = MultiHeadAttention(one, one, one, two, 2, 1)
    >>> [g.tolist() for g in multi_head_attention_backward(mha, np.array([[3.0]]), None, np.array([[1.0]]))]
    [[[2.0]], [[0.0, 0.0]], [[0.0, 0.0]], [[3.0, 3.0]], [[3.0], [3.0]]]

    Lean: `MultiHeadAttentionBackward` (revised)
    """
    alpha, d = mha.scalar, mha.head_dim
    grads = [literal.multi_head_attention_backward(head, x, mask, grad_output) for head in _heads(mha)]
    dx = _sum([grad[0] for grad in grads], x.shape, alpha)
    dWq, dWk, dWv = (concat_spec([grad[part] for grad in grads], (x.shape[1], d), alpha) for part in (1, 2, 3))
    dWo = tabulate(mha.Wo.shape, lambda row, j: grads[row // d][4][row % d, j], alpha)
    return dx, dWq, dWk, dWv, dWo


def multi_head_attention_jvp(
    mha: MultiHeadAttention,
    dmha: MultiHeadAttention,
    x: Tensor[Array, "n dModel"],
    dx: Tensor[Array, "n dModel"],
    mask: Bool[Array, "n n"] | None = None,
) -> Tensor[Array, "n dModel"]:
    """The sum over heads of each head's tangent.

    >>> one, two = np.array([[1.0, 1.0]]), np.array([[1.0], [1.0]])
    >>> mha = MultiHeadAttention(one, one, one, two, 2, 1)
    >>> dmha = MultiHeadAttention(0 * one, 0 * one, 0 * one, 0 * two, 2, 1)
    >>> multi_head_attention_jvp(mha, dmha, np.array([[3.0]]), np.array([[1.0]]))
    array([[2.]])

    Lean: `MultiHeadAttentionJvp` (revised)
    """
    pairs = zip(_heads(mha), _heads(dmha), strict=True)
    return _sum([literal.multi_head_attention_jvp(head, dhead, x, dx, mask) for head, dhead in pairs], x.shape, mha.scalar)


# -- Corrected definitions: rotary encoding ------------------------------------------------------------------------------------


def rope_apply(x: Tensor[Array, "seqLen headDim"], start_pos: int = 0, scalar: Context | None = None) -> Tensor[Array, "seqLen headDim"]:
    """x with each adjacent pair rotated, and the unpaired lane of an odd headDim passed through: there cos = 1 and sin = 0.

    >>> rope_apply(np.array([[7.0]]), start_pos=3)
    array([[7.]])

    Lean: `ropeApplySpec` (after the revised one)
    """
    alpha, x = over(scalar, x=x)
    _, head_dim = shape_of(x, "x", "seqLen headDim")
    rotated = positional_encoding.rope_apply_spec(x, start_pos, alpha)
    unpaired = head_dim - 1 if head_dim % 2 else None
    return tabulate(x.shape, lambda p, j: x[p, j] if j == unpaired else rotated[p, j], alpha)


# -- Laws, each evaluated on the smallest witness of its violation -------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What a law found on its witness: the law says `actual` equals `expected`, entry by entry and exactly."""

    witness: str
    actual: list[float]
    expected: list[float]

    @property
    def holds(self) -> bool:
        """Whether the law holds here. NaN equals nothing."""
        return self.actual == self.expected


@dataclass(frozen=True)
class Erratum:
    """A literal definition, the law of its page that it breaks, and the definition that keeps the law.

    `law(definition)` evaluates the law on the witness; `literal` breaks it, `corrected` keeps it. `declaration` is the Lean name; `says`
    is what the page says of it, in our words; `fixed` is where upstream corrected it.
    """

    id: str
    declaration: str
    says: str
    law_says: str
    law: Callable[[Any], Finding]
    literal: Any
    corrected: Any
    fixed: str


def _numbers(*arrays: Any) -> list[float]:
    return [float(x) for array in arrays for x in np.ravel(array)]


def _combining_undoes_splitting(split: Callable[..., Array]) -> Finding:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    actual = literal.combine_heads_spec(split(x, 2, 1))
    return Finding("x = [[1, 2], [3, 4]], 2 heads of width 1", _numbers(actual), _numbers(x))


def _a_tokens_heads_hold_its_own_entries(split: Callable[..., Array]) -> Finding:
    before, after = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [30.0, 40.0]])
    witness = "token 1 changes from (3, 4) to (30, 40); row 0 of both heads"
    return Finding(witness, _numbers(split(after, 2, 1)[:, 0]), _numbers(split(before, 2, 1)[:, 0]))


_ONES, _ZEROS = np.ones((1, 2)), np.zeros((1, 2))
_UNIFORM = MultiHeadAttention(_ZEROS, _ZEROS, _ONES, np.ones((2, 1)), num_heads=2, head_dim=1)  # Q = K = 0: uniform weights


def _the_past_does_not_see_the_future(forward: Callable[..., Array]) -> Finding:
    outputs = [forward(_UNIFORM, np.array([[0.0], [token]]), literal.causal_mask(2))[0] for token in (1.0, 0.0)]
    return Finding("2 tokens, 2 heads, Wq = Wk = 0, causal; token 1 is 1, then 0; output 0", _numbers(outputs[0]), _numbers(outputs[1]))


def _backward_is_adjoint_to_jvp(derivatives: tuple[Callable[..., Any], Callable[..., Array]]) -> Finding:
    backward, jvp = derivatives
    mha = MultiHeadAttention(_ZEROS, _ZEROS, _ONES, np.array([[1.0], [0.0]]), num_heads=2, head_dim=1)
    still = MultiHeadAttention(_ZEROS, _ZEROS, _ZEROS, np.zeros((2, 1)), num_heads=2, head_dim=1)
    x, dx, g = np.zeros((2, 1)), np.array([[1.0], [0.0]]), np.array([[1.0], [0.0]])
    pairing, transposed = (g * jvp(mha, still, x, dx, None)).sum(), (backward(mha, x, None, g)[0] * dx).sum()
    return Finding("2 tokens, 2 heads, x = 0, dx = g = (1, 0); ⟨Jᵀg, dx⟩ and ⟨g, J dx⟩", _numbers(transposed), _numbers(pairing))


def _an_all_true_mask_equals_none(attend: Callable[[AttentionContext], Array], score: float, nK: int, *scalars: Context) -> Finding:
    """One query, nK equal keys, every value 1: without a mask the output is 1 at any score."""
    q, k, v = np.array([[score]]), np.ones((nK, 1)), np.ones((nK, 1))
    masked = [attend(AttentionContext(q, k, v, literal.all_true_mask(1, nK), scalar=scalar)) for scalar in scalars]
    unmasked = [attend(AttentionContext(q, k, v, scalar=scalar)) for scalar in scalars]
    over_which = " and ".join(map(repr, scalars))
    return Finding(
        f"{nK} key{'s' if nK > 1 else ''} of score {score:g}, value 1, over {over_which}", _numbers(*masked), _numbers(*unmasked)
    )


def _a_row_with_no_allowed_key_is_zero(softmax: Callable[..., Array]) -> Finding:
    rows = [softmax(np.array([0.0]), np.array([False]), scalar) for scalar in (REAL64, FLOAT64)]
    return Finding("one blocked key, over REAL64 and FLOAT64", _numbers(*rows), [0.0, 0.0])


def _rotation_preserves_the_norm(rope: Callable[..., Array]) -> Finding:
    return Finding("x = (1), headDim 1, position 1; |rope(x)|²", _numbers((rope(np.array([[1.0]]), 1) ** 2).sum()), [1.0])


def _weights_sum_to_one(scale_denom: Callable[..., Scalar]) -> Finding:
    scores = np.array([[0.0]])  # the empty dot product of a query and a key without columns
    weights = softmax_spec(scale_spec(scores, FLOAT64.div(FLOAT64.one, scale_denom(0, FLOAT64)), FLOAT64), FLOAT64)
    return Finding("dModel = 0, one key, over FLOAT64; the row's sum of weights", _numbers(weights.sum()), [1.0])


def _literal_scale_denom(d: int, scalar: Context) -> Scalar:
    """The expression that the literal attention uses in place: √d."""
    return scalar.sqrt(scalar.of_nat(d))


# -- The list ------------------------------------------------------------------------------------------------------------------

_REVISED = "revision 0f84531"

_LIST = [
    Erratum(
        id="head-split-inverse",
        declaration="splitHeadsSpec",
        says="splits (n, numHeads·headDim) into heads, like a reshape to (n, numHeads, headDim) followed by a transpose",
        law_says="Combining the heads undoes splitting them.",
        law=_combining_undoes_splitting,
        literal=literal.split_heads_spec,
        corrected=split_heads,
        fixed=_REVISED,
    ),
    Erratum(
        id="head-split-token-mixing",
        declaration="splitHeadsSpec",
        says="row i of every head belongs to token i",
        law_says="Row i of a head depends on token i alone.",
        law=_a_tokens_heads_hold_its_own_entries,
        literal=literal.split_heads_spec,
        corrected=split_heads,
        fixed=_REVISED,
    ),
    Erratum(
        id="head-split-causality",
        declaration="MultiHeadAttention.forward",
        says="attention runs per head under the shared mask, so that a causal mask lets each position attend to itself and the past",
        law_says="Under a causal mask, an output does not depend on later tokens.",
        law=_the_past_does_not_see_the_future,
        literal=MultiHeadAttention.forward,
        corrected=multi_head_attention_forward,
        fixed=_REVISED,
    ),
    Erratum(
        id="multi-head-adjoint",
        declaration="MultiHeadAttentionBackward",
        says="returns the gradients for the input and all projection matrices",
        law_says="The backward is the adjoint of the JVP: ⟨Jᵀg, dx⟩ = ⟨g, J dx⟩.",
        law=_backward_is_adjoint_to_jvp,
        literal=(literal.multi_head_attention_backward, literal.multi_head_attention_jvp),
        corrected=(multi_head_attention_backward, multi_head_attention_jvp),
        fixed=_REVISED,
    ),
    Erratum(
        id="masked-overflow",
        declaration="hardMaskedSoftmaxVecSpec",
        says="a zero numerator is exactly what exp(−∞) = 0 contributes to softmax",
        law_says="An all-true mask equals no mask.",
        law=lambda attend: _an_all_true_mask_equals_none(attend, 710.0, 1, REAL64, FLOAT64),
        literal=literal.scaled_dot_product_attention,
        corrected=scaled_dot_product_attention,
        fixed=_REVISED,
    ),
    Erratum(
        id="masked-sum-overflow",
        declaration="hardMaskedSoftmaxVecSpec",
        says="a zero numerator is exactly what exp(−∞) = 0 contributes to softmax",
        law_says="An all-true mask equals no mask, also where only the sum of the exponentials overflows: then live rows become 0.",
        law=lambda attend: _an_all_true_mask_equals_none(attend, 709.5, 2, REAL64, FLOAT64),
        literal=literal.scaled_dot_product_attention,
        corrected=scaled_dot_product_attention,
        fixed=_REVISED,
    ),
    Erratum(
        id="masked-underflow",
        declaration="hardMaskedSoftmaxVecSpec",
        says="a zero numerator is exactly what exp(−∞) = 0 contributes to softmax",
        law_says="An all-true mask equals no mask: a live row that underflows looks dead where x/0 = 0, and is NaN where 0/0 is.",
        law=lambda attend: _an_all_true_mask_equals_none(attend, -746.0, 1, REAL64, FLOAT64),
        literal=literal.scaled_dot_product_attention,
        corrected=scaled_dot_product_attention,
        fixed=_REVISED,
    ),
    Erratum(
        id="dead-row",
        declaration="hardMaskedSoftmaxVecSpec",
        says="with every entry blocked the definition remains total, because the scalar division is total",
        law_says="A row with no allowed key is zero over every scalar.",
        law=_a_row_with_no_allowed_key_is_zero,
        literal=literal.hard_masked_softmax_vec_spec,
        corrected=hard_masked_softmax_vec,
        fixed=_REVISED,
    ),
    Erratum(
        id="rope-odd-lane",
        declaration="ropeApplySpec",
        says="if headDim is odd, the last (unpaired) entry is left unchanged",
        law_says="A rotation preserves the norm.",
        law=_rotation_preserves_the_norm,
        literal=positional_encoding.rope_apply_spec,
        corrected=rope_apply,
        fixed="a revision after 0f84531",
    ),
    Erratum(
        id="zero-width-scale",
        declaration="scaledDotProductAttention",
        says="each query row of the weights sums to 1",
        law_says="The weights of a row sum to 1, also where dModel = 0.",
        law=_weights_sum_to_one,
        literal=_literal_scale_denom,
        corrected=attention_scale_denom,
        fixed=_REVISED,
    ),
]

ERRATA = {erratum.id: erratum for erratum in _LIST}


def main() -> None:
    """Print the errata as a table."""
    from rich.console import Console  # only for the table: the definitions themselves need no terminal
    from rich.table import Table

    table = Table(title="Where a literal definition breaks a law of its own page", show_lines=True)
    table.add_column("erratum: declaration, law, smallest witness", ratio=1)
    for heading in ("literal", "law says", "corrected"):
        table.add_column(heading, no_wrap=True)
    for erratum in ERRATA.values():
        broken, kept = erratum.law(erratum.literal), erratum.law(erratum.corrected)
        heading = f"[bold]{erratum.id}[/bold]: {erratum.declaration}, corrected in {erratum.fixed}"
        what = f"{heading}\n{erratum.law_says}\n[dim]{broken.witness}[/dim]"
        table.add_row(what, *("\n".join(f"{x:.4g}" for x in values) for values in (broken.actual, broken.expected, kept.actual)))
    Console().print(table)


if __name__ == "__main__":
    main()
