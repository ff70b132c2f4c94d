"""Errata: each shows, on a smallest input (the witness), that a literal definition breaks a law
that its own page states. Each has a corrected definition.

The literal definitions of `spec` stay as the seed revision has them. The corrected ones are in
`spec.corrected`, and each erratum refers to one. A law takes a definition and evaluates it on the
witness, so the same law judges both:

>>> erratum = ERRATA["head-split-inverse"]
>>> erratum.law(erratum.literal).holds, erratum.law(erratum.corrected).holds
(False, True)

`python -m spec.errata` prints all of them, with the numbers computed as it runs.

Sources: TorchLean's revision `spec.lean.REVISED`, which corrects most of them, and a public copy (the
rotary lane).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spec import attention as literal
from spec import positional_encoding
from spec.activation import softmax_spec
from spec.attention import AttentionContext, MultiHeadAttention
from spec.context import FLOAT64, REAL64, Context, Scalar
from spec.corrected import (
    attention_scale_denom,
    hard_masked_softmax,
    hard_masked_softmax_vec,
    multi_head_attention_backward,
    multi_head_attention_forward,
    multi_head_attention_jvp,
    rope_apply,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
    scaled_dot_product_attention_jvp,
    split_heads,
)
from spec.lean import REVISED
from spec.tensor_core import Array
from spec.tensor_ops import scale_spec

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
    "scaled_dot_product_attention_backward",
    "scaled_dot_product_attention_jvp",
    "split_heads",
]


# -- Laws, each evaluated on the smallest witness of its violation ---------------------------------


@dataclass(frozen=True)
class Finding:
    """The result of a law on its witness: the law requires that `actual` equals `expected`, entry
    by entry and exactly.
    """

    witness: str
    actual: list[float]
    expected: list[float]

    @property
    def holds(self) -> bool:
        """Whether the law holds here. NaN equals nothing."""
        return self.actual == self.expected


@dataclass(frozen=True)
class Erratum:
    """A literal definition, the law of its page that it breaks, and the definition that keeps the
    law.

    `law(definition)` evaluates the law on the witness; `literal` breaks it, `corrected` keeps it.
    `declaration` is the Lean name; `says` states the page's claim in our words; `fixed` is
    where upstream corrected it.
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
_UNIFORM = MultiHeadAttention(
    _ZEROS, _ZEROS, _ONES, np.ones((2, 1)), num_heads=2, head_dim=1
)  # Q = K = 0: uniform weights


def _the_past_does_not_see_the_future(forward: Callable[..., Array]) -> Finding:
    outputs = [forward(_UNIFORM, np.array([[0.0], [token]]), literal.causal_mask(2))[0] for token in (1.0, 0.0)]
    return Finding(
        "2 tokens, 2 heads, Wq = Wk = 0, causal; token 1 is 1, then 0; output 0",
        _numbers(outputs[0]),
        _numbers(outputs[1]),
    )


def _backward_is_adjoint_to_jvp(derivatives: tuple[Callable[..., Any], Callable[..., Array]]) -> Finding:
    backward, jvp = derivatives
    mha = MultiHeadAttention(_ZEROS, _ZEROS, _ONES, np.array([[1.0], [0.0]]), num_heads=2, head_dim=1)
    zero_tangent = MultiHeadAttention(_ZEROS, _ZEROS, _ZEROS, np.zeros((2, 1)), num_heads=2, head_dim=1)
    x, dx, g = np.zeros((2, 1)), np.array([[1.0], [0.0]]), np.array([[1.0], [0.0]])
    pairing, transposed = (g * jvp(mha, zero_tangent, x, dx, None)).sum(), (backward(mha, x, None, g)[0] * dx).sum()
    return Finding(
        "2 tokens, 2 heads, x = 0, dx = g = (1, 0); ⟨Jᵀg, dx⟩ and ⟨g, J dx⟩", _numbers(transposed), _numbers(pairing)
    )


def _an_all_true_mask_equals_none(
    attend: Callable[[AttentionContext], Array], score: float, nK: int, *scalars: Context
) -> Finding:
    """Return the finding for one query, nK equal keys, and values of 1: without a mask the output
    is 1 at any score.
    """
    q, k, v = np.array([[score]]), np.ones((nK, 1)), np.ones((nK, 1))
    masked = [attend(AttentionContext(q, k, v, literal.all_true_mask(1, nK), scalar=scalar)) for scalar in scalars]
    unmasked = [attend(AttentionContext(q, k, v, scalar=scalar)) for scalar in scalars]
    over_which = " and ".join(map(repr, scalars))
    return Finding(
        f"{nK} key{'s' if nK > 1 else ''} of score {score:g}, value 1, over {over_which}",
        _numbers(*masked),
        _numbers(*unmasked),
    )


def _a_row_with_no_allowed_key_is_zero(softmax: Callable[..., Array]) -> Finding:
    rows = [softmax(np.array([0.0]), np.array([False]), scalar) for scalar in (REAL64, FLOAT64)]
    return Finding("one blocked key, over REAL64 and FLOAT64", _numbers(*rows), [0.0, 0.0])


def _rotation_preserves_the_norm(rope: Callable[..., Array]) -> Finding:
    return Finding(
        "x = (1), headDim 1, position 1; |rope(x)|²", _numbers((rope(np.array([[1.0]]), 1) ** 2).sum()), [1.0]
    )


def _weights_sum_to_one(scale_denom: Callable[..., Scalar]) -> Finding:
    scores = np.array([[0.0]])  # the empty dot product of a query and a key without columns
    weights = softmax_spec(scale_spec(scores, FLOAT64.div(FLOAT64.one, scale_denom(0, FLOAT64)), FLOAT64), FLOAT64)
    return Finding("dModel = 0, one key, over FLOAT64; the row's sum of weights", _numbers(weights.sum()), [1.0])


def _literal_scale_denom(d: int, scalar: Context) -> Scalar:
    """Return √d, the expression that the literal attention contains."""
    return scalar.sqrt(scalar.of_nat(d))


# -- The list --------------------------------------------------------------------------------------

_REVISED = f"revision {REVISED[:7]}"

_LIST = [
    Erratum(
        id="head-split-inverse",
        declaration="splitHeadsSpec",
        says="splits (n, numHeads·headDim) into heads, "
        "like a reshape to (n, numHeads, headDim) followed by a transpose",
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
        says="attention runs per head under the shared mask, "
        "so that a causal mask lets each position attend to itself and the past",
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
        law_says="An all-true mask equals no mask, "
        "also where only the sum of the exponentials overflows: then live rows become 0.",
        law=lambda attend: _an_all_true_mask_equals_none(attend, 709.5, 2, REAL64, FLOAT64),
        literal=literal.scaled_dot_product_attention,
        corrected=scaled_dot_product_attention,
        fixed=_REVISED,
    ),
    Erratum(
        id="masked-underflow",
        declaration="hardMaskedSoftmaxVecSpec",
        says="a zero numerator is exactly what exp(−∞) = 0 contributes to softmax",
        law_says="An all-true mask equals no mask: "
        "a live row that underflows looks dead where x/0 = 0, and is NaN where 0/0 is.",
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
        fixed="revision a351909 of a public copy",
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
    table.add_column("erratum: declaration, what its page says, law, smallest witness", ratio=1)
    for heading in ("literal", "law says", "corrected"):
        table.add_column(heading, no_wrap=True)
    for erratum in ERRATA.values():
        broken, corrected = erratum.law(erratum.literal), erratum.law(erratum.corrected)
        heading = f"[bold]{erratum.id}[/bold]: {erratum.declaration}, corrected in {erratum.fixed}"
        description = f"{heading}\nIts page: {erratum.says}.\n{erratum.law_says}\n[dim]{broken.witness}[/dim]"
        table.add_row(
            description,
            *("\n".join(f"{x:.4g}" for x in values) for values in (broken.actual, broken.expected, corrected.actual)),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
