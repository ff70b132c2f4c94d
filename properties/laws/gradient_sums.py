"""Laws of gradients of attention and of softmax: what they add up to, and with what else they agree."""

from typing import Any

import numpy as np

from oracles.ball import Ball, exact, matmul, total
from properties.law import Laws
from properties.laws.algebra import kept, turned
from properties.strategies.arrays import TILES
from properties.strategies.attention import softmax_vjp
from properties.strategies.gradients import LONGER, anywhere_vjp, longer_vjp, shifted_vjp, spread_softmax_vjp
from properties.subject import Result, Subject

law = Laws()
VJP = "scaled_dot_product_attention_vjp"
SOFTMAX = "hard_masked_softmax_vjp"
SDPA = "scaled_dot_product_attention"


def _balanced(subject: Subject, x: Result, axis: int) -> None:
    """Entries sum to 0 along an axis: the positive ones make up for the negative ones, so that the size of what cancels is seen."""
    up = x.value > 0
    subject.close(total(kept(x.ball, up), axis), -total(kept(x.ball, ~up), axis), f"sum of positive {x.name}")


@law(VJP, cases=longer_vjp, purpose="Softmax subtracts Σ p·dP in each row, with the weights of that row: nothing else balances the keys.")
def key_gradients_sum_to_zero(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every case: dk sums to 0 over the keys, for a vector added to every key changes no weight.

    Within budget.
    """
    _balanced(subject, subject(q, k, v, mask, grad_out)[1], -2)


@law(SOFTMAX, cases=spread_softmax_vjp, purpose="A number added to every score of a row changes no weight.")
def score_gradients_sum_to_zero(subject: Subject, scores: Any, mask: Any, grad_weights: Any) -> None:
    """For every case: each row of the gradient of the scores sums to 0.

    Within budget.
    """
    _balanced(subject, subject(scores, mask, grad_weights), -1)


@law(VJP, cases=anywhere_vjp, purpose="Every query counts in dv, with weights of sum 1, whatever its tile.")
def value_gradients_sum_to_the_live_cotangents(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every case: dv summed over the keys is grad_out summed over the queries, for the weights of a query sum to 1.

    Within budget.
    """
    subject.close(total(subject(q, k, v, mask, grad_out)[2].ball, -2), total(exact(grad_out), -2), "sum of dv")


@law(VJP, cases=longer_vjp, purpose="dq and dk come of one dS: scales, transposes and tiles of the one are those of the other.")
def queries_and_keys_turn_alike(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every case: qᵀ·dq is dkᵀ·k, for q·A with k·A⁻ᵀ has the scores of q with k, whatever the matrix A.

    Within budget.
    """
    dq, dk, _ = subject(q, k, v, mask, grad_out)
    subject.close(matmul(turned(exact(q)), dq.ball), matmul(turned(dk.ball), exact(k)), "qᵀ·dq")


@law(VJP, cases=anywhere_vjp, needs=(SDPA,), purpose="The backward's weights are the forward's.")
def values_and_outputs_turn_alike(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every case: vᵀ·dv is outᵀ·grad_out, for the output is linear in the values.

    Within budget. It needs the forward.
    """
    dv, out = subject(q, k, v, mask, grad_out)[2], subject.scaled_dot_product_attention(q, k, v, mask)
    subject.close(matmul(turned(exact(v)), dv.ball), matmul(turned(out.ball), exact(grad_out)), "vᵀ·dv")


@law(VJP, cases=lambda i: shifted_vjp(i, of_keys=False), effort=0.5, purpose="The row term takes away what all values have in common.")
def adding_a_vector_to_every_value_changes_no_gradient(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any, shift: Any
) -> None:
    """For every case and vector c: (dq, dk, dv) for the values v + c are those for v.

    Within budget.
    """
    before, after = subject(q, k, v, mask, grad_out), subject(q, k, v + shift, mask, grad_out)
    for a, b in zip(after[:2], before[:2], strict=True):
        subject.close(a, b)
    subject.informative_if(_differ(before[0]) or _differ(before[1]))
    subject.close(after[2], before[2])


@law(
    VJP, cases=lambda i: shifted_vjp(i, of_keys=True), effort=0.5, purpose="Weights are recomputed far from 0, as by a forward that shifts."
)
def adding_a_vector_to_every_key_changes_no_gradient(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any, shift: Any
) -> None:
    """For every case and vector c, which brings logits to ±1e4: (dq, dk, dv) for the keys k + c are those for k.

    Within budget.
    """
    before, after = subject(q, k, v, mask, grad_out), subject(q, k + shift, v, mask, grad_out)
    for a, b in zip(after, before, strict=True):
        subject.close(a, b)


def _differ(x: Result) -> bool:
    """Whether some entry is of more than its budget."""
    return bool((np.abs(x.value) > x.ball.rad).any())


@law(
    SOFTMAX,
    cases=lambda i: softmax_vjp(i, lengths=(*LONGER, *TILES), logits=(1.0, 0.25)),
    needs=("hard_masked_softmax",),
    purpose="The Jacobian itself is seen, column by column.",
)
def one_hot_cotangents_give_columns_of_the_jacobian(subject: Subject, scores: Any, mask: Any, grad_weights: Any) -> None:
    """For every case and a cotangent that is 1 at one entry c of each row: the gradient is p_c·(δ_jc − p_j), with p the forward's weights.

    Within budget. It needs the forward.
    """
    chosen = np.abs(scores).argmax(-1, keepdims=True) if mask is None else np.broadcast_to(mask, scores.shape).argmax(-1, keepdims=True)
    one_hot = np.zeros(scores.shape)
    np.put_along_axis(one_hot, chosen, 1.0, -1)
    p = subject.hard_masked_softmax(scores, mask).ball
    one = Ball(np.take_along_axis(p.mid, chosen, -1), np.take_along_axis(p.rad, chosen, -1))
    subject.close(subject(scores, mask, one_hot), one * (exact(one_hot) - p))


@law(SOFTMAX, cases=lambda i: spread_softmax_vjp(i, shifted=True), kills="softmax-vjp-scores-clamped")
def adding_a_constant_to_a_row_changes_no_gradient(subject: Subject, scores: Any, mask: Any, grad_weights: Any, shift: Any) -> None:
    """For every row and number to ±1e4 that is added to all of its scores exactly: the gradient is the same.

    Within budget.
    """
    subject.close(subject(scores + shift, mask, grad_weights), subject(scores, mask, grad_weights))
