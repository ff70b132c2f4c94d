"""Laws of the vector–Jacobian products of attention, of softmax and of multi-head attention.

What symmetries say of gradients is in `properties.laws.symmetries`; here are their infinitesimal forms, and what gradients are.
"""

from typing import Any

import numpy as np

from oracles.ball import Array, Ball, divide, exact, matmul, multiply, total
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.algebra import kept, reciprocal_root, summed, turned
from properties.laws.averages import allowed
from properties.strategies.choices import Choices
from properties.subject import Result, Subject

law = Laws()
VJP, SOFTMAX, HEADS = "scaled_dot_product_attention_vjp", "hard_masked_softmax_vjp", "multi_head_attention_vjp"


def _columns(w: Any, num_heads: int) -> list[slice]:
    """The columns that belong to each head."""
    width = w.shape[1] // num_heads
    return [slice(h * width, (h + 1) * width) for h in range(num_heads)]


# -- What they add up to -----------------------------------------------------------------------------------------------------------


def _balanced(subject: Subject, x: Result, axis: int) -> None:
    """Entries sum to 0 along an axis: the positive ones make up for the negative ones, so that the size of what cancels is seen."""
    up = x.value > 0
    subject.close(total(kept(x.ball, up), axis), -total(kept(x.ball, ~up), axis), f"sum of positive {x.name}")


@law(VJP)
def key_gradients_sum_to_zero(subject: Subject, *case: Any) -> None:
    """For every case: dk sums to 0 over the keys, for a vector added to every key changes no weight.

    Within budget.
    """
    _balanced(subject, subject(*case)[1], -2)


@law(SOFTMAX, domains=("everyday", "long rows"))
def score_gradients_sum_to_zero(subject: Subject, *case: Any) -> None:
    """For every case: each row of the gradient of the scores sums to 0, for a number added to every score of a row changes no weight.

    Within budget.
    """
    _balanced(subject, subject(*case), -1)


@law(VJP)
def value_gradients_sum_to_the_cotangents(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every case: dv summed over the keys is grad_out summed over the queries, for the weights of a query sum to 1.

    Within budget.
    """
    subject.close(total(subject(q, k, v, mask, grad_out)[2].ball, -2), total(exact(grad_out), -2), "sum of dv")


@law(VJP, HEADS)
def queries_and_keys_turn_alike(subject: Subject, *case: Any) -> None:
    """For every case: qᵀ·dq is dkᵀ·k, for q·A with k·A⁻ᵀ has the scores of q with k, whatever the matrix A.

    In multi-head attention wqᵀ·dwq is dwkᵀ·wk, for each head. Within budget.
    """
    if subject.operation == VJP:
        dq, dk, _ = subject(*case)
        subject.close(matmul(turned(exact(case[0])), dq.ball), matmul(turned(dk.ball), exact(case[1])), "qᵀ·dq")
        return
    _, wq, wk, *_, num_heads, _, _ = case
    dwq, dwk = (x.ball for x in subject(*case)[1:3])
    for h in _columns(wq, num_heads):
        subject.close(matmul(exact(wq[:, h].T), dwq[:, h]), matmul(turned(dwk[:, h]), exact(wk[:, h])), "wqᵀ·dwq")


@law(VJP, needs=("scaled_dot_product_attention",))
@law(HEADS, needs=("multi_head_attention",))
def values_and_outputs_turn_alike(subject: Subject, *case: Any) -> None:
    """For every case: vᵀ·dv is outᵀ·grad_out, for the output is linear in the values.

    In multi-head attention woᵀ·dwo is outᵀ·grad_out, summed over the batch, and wvᵀ·dwv is dwo·woᵀ, for each head. Within budget. It needs
    the forward.
    """
    *inputs, g = case
    gradients, out = subject(*case), getattr(subject, subject.operation.removesuffix("_vjp"))(*inputs)
    turned_out = matmul(turned(out.ball), exact(g))
    if subject.operation == VJP:
        subject.close(matmul(turned(exact(case[2])), gradients[2].ball), turned_out, "vᵀ·dv")
        return
    *_, wv, wo, num_heads, _, _ = case
    dwv, dwo = (x.ball for x in gradients[3:])
    subject.close(matmul(exact(wo.T), dwo), summed(turned_out, 2), "woᵀ·dwo")
    for h in _columns(wv, num_heads):
        subject.close(matmul(exact(wv[:, h].T), dwv[:, h]), matmul(dwo[h], exact(wo[h].T)), "wvᵀ·dwv")


# -- Readouts ----------------------------------------------------------------------------------------------------------------------


def _one_hot(q: Any, v: Any) -> tuple[Any, Any]:
    """As many different rows as there may be, the last one among them, and a cotangent that is 1 in one column of each."""
    n_q, columns = q.shape[-2], v.shape[-1]
    rows = np.unique(np.linspace(n_q - 1, 0, min(n_q, columns)).astype(int))[::-1]
    g = np.zeros((*q.shape[:-1], columns))
    g[..., rows, np.arange(len(rows))] = 1.0
    return rows, g


@law(VJP)
def one_hot_cotangents_read_out_the_weights(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every q, k, mask and one-hot cotangent: the column of dv is its query's row of weights.

    Never negative, zero behind the mask, and zero in columns without a cotangent. Exact. Its sum is 1. Within budget.
    """
    rows, g = _one_hot(q, v)
    dv = subject(q, k, v, mask, g)[2]
    columns = np.arange(len(rows))
    readable = np.zeros(v.shape, dtype=bool)
    readable[..., columns] = allowed(mask, q, k)[..., rows, :].swapaxes(-1, -2)
    subject.same(np.where(readable, np.abs(dv.value), 0.0), dv, "dv")
    subject.close(total(dv.ball, -2)[..., columns], np.ones((*q.shape[:-2], len(rows))), "sum of dv")


@law(VJP)
def gradients_follow_from_the_weights_they_read_out(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every case and one-hot cotangents, whose columns of dv are weights p: dS = p ⊙ (v − p·v), dq = dS·k/√d and dk = dSᵀ·q/√d.

    Within budget.
    """
    rows, g = _one_hot(q, v)
    dq, dk, dv = subject(q, k, v, mask, g)
    columns = np.arange(len(rows))
    weights, values = turned(dv.ball[..., columns]), turned(exact(v[..., columns]))
    means = total(multiply(weights, values))
    grad_scores = multiply(multiply(weights, values + -means[..., None]), reciprocal_root(q.shape[-1]))
    subject.close(dq.ball[..., rows, :], matmul(grad_scores, exact(k)), "dq")
    subject.close(dk, matmul(turned(grad_scores), exact(q[..., rows, :])))


@law(SOFTMAX, needs=("hard_masked_softmax",))
def one_hot_cotangents_give_columns_of_the_jacobian(subject: Subject, scores: Any, mask: Any, grad_weights: Any) -> None:
    """For every case and a cotangent that is 1 at one entry c of each row: the gradient is p_c·(δ_jc − p_j), with p the forward's weights.

    Within budget. It needs the forward.
    """
    chosen = (np.abs(scores) if mask is None else np.broadcast_to(mask, scores.shape)).argmax(-1, keepdims=True)
    one_hot = np.zeros(scores.shape)
    np.put_along_axis(one_hot, chosen, 1.0, -1)
    p = subject.hard_masked_softmax(scores, mask).ball
    one = Ball(np.take_along_axis(p.mid, chosen, -1), np.take_along_axis(p.rad, chosen, -1))
    subject.close(subject(scores, mask, one_hot), one * (exact(one_hot) - p))


@law(SOFTMAX)
def the_derivative_is_symmetric(subject: Subject, scores: Any, mask: Any, grad_weights: Any, *, choose: Choices) -> None:
    """For every row and cotangents a and b: ⟨J·a, b⟩ is ⟨J·b, a⟩, for the Jacobian diag(p) − p·pᵀ is symmetric.

    Within budget.
    """
    other = grad_weights[..., choose.order(scores.shape[-1])]
    found, exchanged = subject(scores, mask, grad_weights), subject(scores, mask, other)
    subject.close(total(found.ball * exact(other)), total(exchanged.ball * exact(grad_weights)), "⟨J·a, b⟩")


# -- Masks -------------------------------------------------------------------------------------------------------------------------


def _nothing(subject: Subject, x: Result, where: Any, whose: str) -> None:
    """A gradient is exactly 0 somewhere."""
    subject.same(np.where(where, x.value, 0.0), np.zeros(x.value.shape), f"{x.name} of {whose}")


@law(VJP, SOFTMAX, HEADS, domains=("everyday", "padded masks"))
def no_gradient_passes_the_mask(subject: Subject, *case: Any, choose: Choices) -> bool:
    """For every mask, a causal one among them, and cotangents that are 0 in some rows, the last ones for instance: queries and rows without
    a cotangent have gradients 0, and so have keys, values and scores that no others may read.

    Exact.
    """
    *inputs, mask, g = case
    n = g.shape[-2]
    n_k = g.shape[-1] if subject.operation == SOFTMAX else inputs[1 if subject.operation == VJP else 0].shape[-2]
    mask = choose.among([mask, mask, np.tri(n, n_k, dtype=bool)])
    rows = (np.arange(n) < choose.cut(n) if choose.happens() else choose.bits(n))[:, None]
    may = np.broadcast_to(True if mask is None else mask, (*g.shape[:-1], n_k)) & rows
    if may.all():
        return False
    g = np.where(rows, g, 0.0)
    found, unread = subject(*inputs, mask, g), ~may.any(-2)[..., None]
    if subject.operation == SOFTMAX:
        _nothing(subject, found, ~may, "blocked scores")
    elif subject.operation == HEADS:
        _nothing(subject, found[0], unread & ~rows, "a token that is not read")
    else:
        _nothing(subject, found[0], ~rows, "a query without a cotangent")
        for x in found[1:]:
            _nothing(subject, x, unread, "a key that is not read")
    subject.informative_if(g.any())
    return True


def _live(mask: Any, g: Array, n_k: int) -> Any:
    """The rows that may read something, (…, n_q, 1)."""
    return np.broadcast_to(mask, (*g.shape[:-1], n_k)).any(-1, keepdims=True)


@law(VJP, domains=("dead rows",))
def a_query_that_may_read_nothing_has_gradients_by_convention(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every query that may read no key, by the convention dead_rows. `zero`: its dq is 0, and dk and dv are as if its row of grad_out
    were 0. `nan`: its dq may be anything, dk and dv are the same. `uniform`: its dq is 0, dk is the same, and dv of every key gets 1/n_k
    of its row of grad_out besides.

    Exact for dq, else within budget.
    """
    live, reading = _live(mask, grad_out, k.shape[-2]), subject.implementation.reading.dead_rows
    found, without = subject(q, k, v, mask, grad_out), subject(q, k, v, mask, np.where(live, grad_out, 0.0))
    if reading != "nan":
        _nothing(subject, found[0], ~live, "a query that may read no key")
    dv: Ball = without[2].ball
    if not live.any() and reading != "uniform":
        for x in found[1:]:
            _nothing(subject, x, True, "keys that no query may read")
        return
    if reading == "uniform":
        dv = dv + divide(total(exact(np.where(live, 0.0, grad_out)), -2), exact(np.full(1, float(k.shape[-2]))))[..., None, :]
    subject.close(found[1], without[1])
    subject.close(found[2], dv)


@law(SOFTMAX, domains=("dead rows",))
def a_row_with_no_allowed_entry_has_its_gradient_by_convention(subject: Subject, scores: Any, mask: Any, grad_weights: Any) -> None:
    """For every row with no allowed entry, by the convention dead_rows: its gradient is 0 (`zero`, and `uniform`, for the weights do not
    depend on the scores), or may be anything (`nan`); those of the other rows are as if its cotangent were 0.

    Exact for the row, else within budget.
    """
    live = _live(mask, scores, scores.shape[-1])
    found, without = subject(scores, mask, grad_weights), subject(scores, mask, np.where(live, grad_weights, 0.0))
    if subject.implementation.reading.dead_rows != "nan":
        _nothing(subject, found, ~live, "a row with no allowed entry")
    if live.any():
        subject.close(kept(found.ball, live), kept(without.ball, live), found.name)


def _no_reading_of_dead_tokens(i: Implementation) -> str:
    return "" if i.reading.dead_rows == "zero" else "Its gradients of weights are not defined where tokens may read nothing."


@law(HEADS, domains=("dead rows",), exempts=_no_reading_of_dead_tokens)
def a_token_that_may_read_nothing_gives_no_gradient(subject: Subject, *case: Any) -> None:
    """For every token that may read no token: all gradients are as if its row of grad_out were 0, and 0 where that is said of all tokens.

    Within budget, and exact. It exempts other conventions than dead_rows=zero.
    """
    *inputs, mask, g = case
    live = _live(mask, g, g.shape[-2])
    found = subject(*case)
    if not live.any():
        for gradient in found:
            _nothing(subject, gradient, True, "tokens that may read nothing")
        return
    for a, b in zip(found, subject(*inputs, mask, np.where(live, g, 0.0)), strict=True):
        subject.close(a, b)
