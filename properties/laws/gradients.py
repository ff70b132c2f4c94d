"""Laws of the vector–Jacobian products of attention, of softmax and of multi-head attention.

What symmetries say of gradients is in `properties.laws.symmetries`; here are their infinitesimal
forms, and what gradients are.
"""

from typing import Any

import numpy as np

from oracles.ball import Array, Ball, divide, exact, matmul, total
from properties.contract.implementation import Implementation
from properties.contract.results import Result, results_of
from properties.contract.subject import Subject
from properties.laws.algebra import inner, kept, transposed
from properties.laws.law import Laws
from properties.strategies.choices import Choices

law = Laws()
VJP, SOFTMAX, HEADS = "scaled_dot_product_attention_vjp", "hard_masked_softmax_vjp", "multi_head_attention_vjp"


def _columns(w: Any, num_heads: int) -> list[slice]:
    """The columns that belong to each head."""
    width = w.shape[1] // num_heads
    return [slice(h * width, (h + 1) * width) for h in range(num_heads)]


# -- What they add up to -----------------------------------------------------------------------------------------------------------


def _balanced(subject: Subject, x: Result, axis: int) -> None:
    """Entries sum to 0 along an axis: the positive ones make up for the negative ones, so that the
    size of what cancels is seen.
    """
    up = x.value > 0
    subject.close(total(kept(x.ball, up), axis), -total(kept(x.ball, ~up), axis), f"sum of positive {x.name}")


@law(VJP, watches=True)
def key_gradients_sum_to_zero(subject: Subject, *case: Any) -> None:
    """For every case: dk sums to 0 over the keys, for a vector added to every key changes no weight."""
    _balanced(subject, subject(*case)[1], -2)


@law(SOFTMAX, domains=("everyday", "long rows"), watches=True)
def score_gradients_sum_to_zero(subject: Subject, *case: Any) -> None:
    """For every case: each row of the gradient of the scores sums to 0, for a number added to every
    score of a row changes no weight.
    """
    _balanced(subject, subject(*case), -1)


@law(VJP, watches=True)
def value_gradients_sum_to_the_cotangents(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every case: dv summed over the keys is grad_out summed over the queries, for the weights
    of a query sum to 1.
    """
    subject.close(total(subject(q, k, v, mask, grad_out)[2].ball, -2), total(exact(grad_out), -2), "sum of dv")


@law(VJP, HEADS, watches=True)
def query_and_key_gradients_balance(subject: Subject, *case: Any) -> None:
    """For every case: qᵀ·dq is dkᵀ·k, for q·A with k·A⁻ᵀ has the scores of q with k, whatever the
    matrix A.

    In multi-head attention wqᵀ·dwq is dwkᵀ·wk, for each head. Within budget.
    """
    if subject.operation == VJP:
        dq, dk, _ = subject(*case)
        subject.close(matmul(transposed(exact(case[0])), dq.ball), matmul(transposed(dk.ball), exact(case[1])), "qᵀ·dq")
        return
    _, wq, wk, *_, num_heads, _, _ = case
    dwq, dwk = (x.ball for x in subject(*case)[1:3])
    for h in _columns(wq, num_heads):
        subject.close(matmul(exact(wq[:, h].T), dwq[:, h]), matmul(transposed(dwk[:, h]), exact(wk[:, h])), "wqᵀ·dwq")


@law(VJP, needs=("scaled_dot_product_attention",))
@law(HEADS, needs=("multi_head_attention",))
def value_and_output_gradients_balance(subject: Subject, *case: Any) -> None:
    """For every case: vᵀ·dv is outᵀ·grad_out, for the output is linear in the values.

    In multi-head attention woᵀ·dwo is outᵀ·grad_out, summed over the batch, and wvᵀ·dwv is dwo·woᵀ,
    for each head. Within budget. It needs the forward.
    """
    *inputs, g = case
    gradients, out = subject(*case), getattr(subject, subject.operation.removesuffix("_vjp"))(*inputs)
    if subject.operation == VJP:
        subject.close(
            matmul(transposed(exact(case[2])), gradients[2].ball), matmul(transposed(out.ball), exact(g)), "vᵀ·dv"
        )
        return
    *_, wv, wo, num_heads, _, _ = case
    dwv, dwo = (x.ball for x in gradients[3:])
    subject.close(matmul(exact(wo.T), dwo), inner(out.ball, exact(g), 1), "woᵀ·dwo")
    for h in _columns(wv, num_heads):
        subject.close(matmul(exact(wv[:, h].T), dwv[:, h]), matmul(dwo[h], exact(wo[h].T)), "wvᵀ·dwv")


# -- Readouts ----------------------------------------------------------------------------------------------------------------------


@law(SOFTMAX, needs=("hard_masked_softmax",))
def one_hot_cotangents_give_columns_of_the_jacobian(
    subject: Subject, scores: Any, mask: Any, grad_weights: Any
) -> None:
    """For every case and a cotangent that is 1 at one entry c of each row: the gradient is
    p_c·(δ_jc − p_j), with p the forward's weights.

    Within budget. It needs the forward.
    """
    chosen = (np.abs(scores) if mask is None else np.broadcast_to(mask, scores.shape)).argmax(-1, keepdims=True)
    one_hot = np.zeros(scores.shape)
    np.put_along_axis(one_hot, chosen, 1.0, -1)
    p = subject.hard_masked_softmax(scores, mask).ball
    one = Ball(np.take_along_axis(p.mid, chosen, -1), np.take_along_axis(p.rad, chosen, -1))
    subject.close(subject(scores, mask, one_hot), one * (exact(one_hot) - p))


# -- Masks -------------------------------------------------------------------------------------------------------------------------


def _nothing(subject: Subject, x: Result, where: Any, whose: str) -> None:
    """A gradient is exactly 0 somewhere."""
    subject.same(np.where(where, x.value, 0.0), np.zeros(x.value.shape), f"{x.name} of {whose}")


def _may(inputs: Any, mask: Any, g: Array) -> Any:
    """The mask as a bool array (…, n_q, n_k)."""
    n_k = g.shape[-1] if len(inputs) == 1 else inputs[1 if len(inputs) == 3 else 0].shape[-2]
    return np.broadcast_to(True if mask is None else mask, (*g.shape[:-1], n_k))


@law(VJP, SOFTMAX, HEADS, domains=("everyday", "padded masks"))
def no_derivative_passes_the_mask(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every mask, a causal one among them, and cotangents that are 0 in some rows, the last
    ones for instance: queries and rows without a cotangent have gradients 0, and so have keys,
    values and scores that no others may read.

    Exact.
    """
    *inputs, mask, g = case
    n, n_k = _may(inputs, mask, g).shape[-2:]
    mask = choose.among([mask, mask, np.tri(n, n_k, dtype=bool)])
    rows = (np.arange(n) < choose.cut(n) if choose.happens() else choose.bits(n))[:, None]
    may = _may(inputs, mask, g) & rows
    if may.all():
        return False
    found, unread = results_of(subject(*inputs, mask, np.where(rows, g, 0.0))), ~may.any(-2)[..., None]
    own = ~may if subject.operation == SOFTMAX else ~rows if subject.operation == VJP else unread & ~rows
    _nothing(subject, found[0], own, "what reads nothing, or has no cotangent")
    for x in found[1:] if subject.operation == VJP else ():
        _nothing(subject, x, unread, "a key that is not read")
    subject.informative_if((g * rows).any())
    return True


def all_within(subject: Subject, *case: Any) -> bool:
    """All results are within their budgets: of rows that may read nothing, where agreement leaves these to a law."""
    for result in results_of(subject(*case)):
        subject.within(result)
    return True


def _no_reading_of_dead_tokens(i: Implementation) -> str:
    return (
        "Its gradients of weights are not defined where tokens may read nothing."
        if i.resolved_conventions.dead_rows == "nan"
        else ""
    )


@law(VJP, SOFTMAX, domains=("dead rows",))
@law(HEADS, domains=("dead rows",), exempts=_no_reading_of_dead_tokens)
def a_query_with_no_allowed_key_follows_its_convention(subject: Subject, *case: Any) -> bool:
    """For every query, row of scores or token that may read nothing, by the convention dead_rows:
    all gradients are as if its row of the cotangent were 0. Its own is 0, and may be anything for
    `nan`; for `uniform` dv of every key gets 1/n_k of its row of grad_out besides, or all are those
    of equal scores, by `dead_gradients`.

    Exact for its own, else within budget; so are all of multi-head attention for `uniform`, which
    it exempts for `nan`.
    """
    if subject.conventions.dead_rows_flow or (
        subject.operation == HEADS and subject.conventions.dead_rows == "uniform"
    ):
        return all_within(subject, *case)
    *inputs, mask, g = case
    may, convention = _may(inputs, mask, g), subject.conventions.dead_rows
    live = may.any(-1, keepdims=True)
    found, without = (results_of(subject(*inputs, mask, cotangent)) for cotangent in (g, np.where(live, g, 0.0)))
    if subject.operation != HEADS and convention != "nan":
        _nothing(subject, found[0], ~live, "what reads nothing")
    if not live.any() and convention != "uniform":
        for x in found[subject.operation != HEADS :]:
            _nothing(subject, x, True, "what nothing reads")
        return subject.operation != SOFTMAX or convention != "nan"
    for a, b in zip(found, without, strict=True):
        where, expected = live if a is found[0] and subject.operation != HEADS else True, b.ball
        if a.name == "dv" and convention == "uniform":
            total_of_dead = total(exact(np.where(live, 0.0, g)), -2)
            expected = expected + divide(total_of_dead, exact(np.full(1, float(may.shape[-1]))))[..., None, :]
        subject.close(kept(a.ball, where), kept(expected, where), a.name)
    return True
