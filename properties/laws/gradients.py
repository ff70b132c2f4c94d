"""Laws of the vector–Jacobian products of attention, softmax and multi-head attention.

The symmetries of the gradients are in `properties.laws.symmetries`. This module has the laws that
follow from a symmetry for small changes, and laws of the values of the gradients.
"""

from typing import Any

import numpy as np

from oracles.ball import Array, Ball, divide, exact, matmul, total
from properties.contract.implementation import Implementation
from properties.contract.results import Result, results_of
from properties.contract.subject import Subject
from properties.laws.expected_values import inner_product, kept, transposed
from properties.laws.law import Laws
from properties.strategies.choices import Choices

law = Laws()
VJP, SOFTMAX, HEADS = "scaled_dot_product_attention_vjp", "hard_masked_softmax_vjp", "multi_head_attention_vjp"
VALUES_AND_OUTPUTS = "value and output gradients satisfy v.T @ dv = out.T @ grad_out"


def _columns_of_heads(weight: Any, num_heads: int) -> list[slice]:
    """Return the columns of each head in a weight matrix."""
    width = weight.shape[1] // num_heads
    return [slice(head * width, (head + 1) * width) for head in range(num_heads)]


# -- Sums of gradients ---------------------------------------------------------------------------


def _check_sum_is_zero(subject: Subject, result: Result, axis: int) -> None:
    """Check that the entries of a gradient sum to 0 along an axis. The sum of the positive entries
    is compared with minus the sum of the negative ones. So the error limit depends on the size of
    the numbers that cancel.
    """
    positive = result.value > 0
    above, below = total(kept(result.ball, positive), axis), total(kept(result.ball, ~positive), axis)
    subject.close(above, -below, f"sum(positive {result.name})")


@law(VJP, watches=True)
def key_gradients_sum_to_zero(subject: Subject, *case: Any) -> None:
    """For every test input: dk sums to 0 over the keys, because a vector added to every key changes
    no weight.
    """
    _check_sum_is_zero(subject, subject(*case)[1], -2)


@law(SOFTMAX, domains=("everyday", "long rows"), watches=True)
def score_gradients_sum_to_zero(subject: Subject, *case: Any) -> None:
    """For every test input: each row of the scores' gradient sums to 0, because a number added to
    every score of a row changes no weight.
    """
    _check_sum_is_zero(subject, subject(*case), -1)


@law(VJP, watches=True, name="dv summed over keys equals grad_out summed over queries")
def dv_summed_over_keys_equals_grad_out_summed_over_queries(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any
) -> None:
    """For every test input: dv summed over the keys is grad_out summed over the queries, because
    the weights of a query sum to 1.
    """
    subject.close(total(subject(q, k, v, mask, grad_out)[2].ball, -2), total(exact(grad_out), -2), "sum(dv)")


@law(VJP, HEADS, watches=True, name="query and key gradients satisfy q.T @ dq = dk.T @ k")
def query_and_key_gradients_agree(subject: Subject, *case: Any) -> None:
    """For every test input: qᵀ·dq = dkᵀ·k, because q·A and k·A⁻ᵀ have the scores of q and k, for
    every invertible matrix A.

    In multi-head attention wqᵀ·dwq = dwkᵀ·wk, for each head.
    """
    if subject.operation == VJP:
        dq, dk, _ = subject(*case)
        of_queries = matmul(transposed(exact(case[0])), dq.ball)
        subject.close(of_queries, matmul(transposed(dk.ball), exact(case[1])), "qᵀ·dq")
        return
    _, wq, wk, *_, num_heads, _, _ = case
    dwq, dwk = (result.ball for result in subject(*case)[1:3])
    for columns in _columns_of_heads(wq, num_heads):
        of_queries = matmul(exact(wq[:, columns].T), dwq[:, columns])
        of_keys = matmul(transposed(dwk[:, columns]), exact(wk[:, columns]))
        subject.close(of_queries, of_keys, "wqᵀ·dwq")


@law(VJP, needs=("scaled_dot_product_attention",), name=VALUES_AND_OUTPUTS)
@law(HEADS, needs=("multi_head_attention",), name=VALUES_AND_OUTPUTS)
def value_and_output_gradients_agree(subject: Subject, *case: Any) -> None:
    """For every test input: vᵀ·dv = outᵀ·grad_out, because the output is linear in the values.

    In multi-head attention woᵀ·dwo = outᵀ·grad_out, summed over the batch, and wvᵀ·dwv = dwo·woᵀ,
    for each head. The law needs the forward.
    """
    *inputs, cotangent = case
    gradients, out = subject(*case), getattr(subject, subject.operation.removesuffix("_vjp"))(*inputs)
    if subject.operation == VJP:
        of_values = matmul(transposed(exact(case[2])), gradients[2].ball)
        subject.close(of_values, matmul(transposed(out.ball), exact(cotangent)), "vᵀ·dv")
        return
    *_, wv, wo, num_heads, _, _ = case
    dwv, dwo = (result.ball for result in gradients[3:])
    subject.close(matmul(exact(wo.T), dwo), inner_product(out.ball, exact(cotangent), 1), "woᵀ·dwo")
    for columns in _columns_of_heads(wv, num_heads):
        of_values = matmul(exact(wv[:, columns].T), dwv[:, columns])
        subject.close(of_values, matmul(dwo[columns], exact(wo[columns].T)), "wvᵀ·dwv")


# -- Entries -----------------------------------------------------------------------------------------


@law(SOFTMAX, needs=("hard_masked_softmax",), name="a one-hot cotangent gives a row of the Jacobian")
def a_one_hot_cotangent_gives_a_row_of_the_jacobian(
    subject: Subject, scores: Any, mask: Any, grad_weights: Any
) -> None:
    """For every test input, and a cotangent that is 1 at one entry c of each row: the gradient is
    p_c·(δ_jc − p_j), with the weights p of the forward.

    The law needs the forward.
    """
    chosen = (np.abs(scores) if mask is None else np.broadcast_to(mask, scores.shape)).argmax(-1, keepdims=True)
    one_hot = np.zeros(scores.shape)
    np.put_along_axis(one_hot, chosen, 1.0, -1)
    weights = subject.hard_masked_softmax(scores, mask).ball
    chosen_weight = Ball(np.take_along_axis(weights.mid, chosen, -1), np.take_along_axis(weights.rad, chosen, -1))
    subject.close(subject(scores, mask, one_hot), chosen_weight * (exact(one_hot) - weights))


# -- Masks -----------------------------------------------------------------------------------------


def _check_zero(subject: Subject, result: Result, where: Any, whose: str) -> None:
    """Check that a gradient is exactly 0 at the entries where `where` is True. `whose` names them
    in the message.
    """
    subject.same(np.where(where, result.value, 0.0), np.zeros(result.value.shape), f"{result.name} ({whose})")


def _visible(inputs: Any, mask: Any, cotangent: Array) -> Any:
    """Return the mask as a bool array (…, n_q, n_k)."""
    key_count = cotangent.shape[-1] if len(inputs) == 1 else inputs[1 if len(inputs) == 3 else 0].shape[-2]
    return np.broadcast_to(True if mask is None else mask, (*cotangent.shape[:-1], key_count))


@law(VJP, SOFTMAX, HEADS, domains=("everyday", "padded masks"), exact=True)
def derivatives_do_not_pass_through_masked_entries(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every mask, also a causal one, and cotangents that are 0 in some rows, such as the last
    ones: the gradients are 0 for queries and score rows without a cotangent, and for keys, values
    and scores that no other row sees.
    """
    *inputs, mask, cotangent = case
    row_count, key_count = _visible(inputs, mask, cotangent).shape[-2:]
    mask = choose.among([mask, mask, np.tri(row_count, key_count, dtype=bool)])
    rows = (np.arange(row_count) < choose.cut(row_count) if choose.happens() else choose.bits(row_count))[:, None]
    visible = _visible(inputs, mask, cotangent) & rows
    if visible.all():
        return False
    found = results_of(subject(*inputs, mask, np.where(rows, cotangent, 0.0)))
    unseen = ~visible.any(-2)[..., None]
    zero = ~visible if subject.operation == SOFTMAX else ~rows if subject.operation == VJP else unseen & ~rows
    _check_zero(subject, found[0], zero, "masked entries, and rows without a cotangent")
    for result in found[1:] if subject.operation == VJP else ():
        _check_zero(subject, result, unseen, "a masked key")
    subject.informative_if((cotangent * rows).any())
    return True


def all_within_limits(subject: Subject, *case: Any) -> bool:
    """Check that all results for inputs with fully masked rows are within their error limits. The
    law of agreement does not check such inputs.
    """
    for result in results_of(subject(*case)):
        subject.within(result)
    return True


def _undefined_for_masked_tokens(implementation: Implementation) -> str:
    undefined = implementation.resolved_conventions.dead_rows == "nan"
    return "Its gradients of weights are not defined for fully masked tokens." if undefined else ""


@law(
    VJP,
    SOFTMAX,
    domains=("dead rows", "special masks"),
    exact="for the gradient of the fully masked row itself",
)
@law(
    HEADS,
    domains=("dead rows",),
    exempts=_undefined_for_masked_tokens,
    exact="for the gradient of the fully masked row itself",
)
def a_fully_masked_row_follows_its_convention(subject: Subject, *case: Any) -> bool:
    """For every fully masked query, row of scores or token, by the convention `dead_rows`: all
    gradients are the gradients for a cotangent of 0 in this row.

    The row's own gradient is 0; for `nan` it may be anything. For `uniform`, dv of every key also
    gets 1/n_k of the row's grad_out, or all gradients are the gradients of equal scores, by the
    convention `dead_gradients`. In multi-head attention with `uniform` all gradients are compared
    within the error limit; multi-head attention with `nan` is exempt.
    """
    convention, heads = subject.conventions.dead_rows, subject.operation == HEADS
    if subject.conventions.dead_rows_flow or (heads and convention == "uniform"):
        return all_within_limits(subject, *case)
    *inputs, mask, cotangent = case
    visible = _visible(inputs, mask, cotangent)
    live = visible.any(-1, keepdims=True)
    found = results_of(subject(*inputs, mask, cotangent))
    without = results_of(subject(*inputs, mask, np.where(live, cotangent, 0.0)))
    if not heads and convention != "nan":
        _check_zero(subject, found[0], ~live, "a fully masked row")
    if not live.any() and convention != "uniform":
        for result in found[not heads :]:
            _check_zero(subject, result, True, "inputs that are masked for all rows")
        return subject.operation != SOFTMAX or convention != "nan"
    for result, expected in zip(found, (other.ball for other in without), strict=True):
        where = live if result is found[0] and not heads else True
        if result.name == "dv" and convention == "uniform":
            masked_total = total(exact(np.where(live, 0.0, cotangent)), -2)
            expected = expected + divide(masked_total, exact(np.full(1, float(visible.shape[-1]))))[..., None, :]
        subject.close(kept(result.ball, where), kept(expected, where), result.name)
    return True
