"""Laws of gradients behind a mask: of blocked keys, of the past under a causal mask, of queries that may read no key."""

from typing import Any

import numpy as np

from oracles.ball import Ball, divide, exact, total
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.algebra import kept
from properties.laws.averages import allowed
from properties.strategies.attention import softmax_vjp
from properties.strategies.gradients import LONGER, causal_vjp, dead_vjp, partly_softmax_vjp, partly_vjp
from properties.strategies.masks import dead_masks
from properties.strategies.multi_head import multi_head_vjp
from properties.subject import Result, Subject

law = Laws()
VJP = "scaled_dot_product_attention_vjp"
SOFTMAX = "hard_masked_softmax_vjp"
HEADS = "multi_head_attention_vjp"


def _nothing(subject: Subject, x: Result, where: Any, whose: str) -> None:
    """A gradient is exactly 0 somewhere."""
    subject.same(np.where(where, x.value, 0.0), np.zeros(x.value.shape), f"{x.name} of {whose}")


@law(VJP, SOFTMAX, cases={VJP: partly_vjp, SOFTMAX: partly_softmax_vjp}, effort=0.5, purpose="The backward masks what the forward masks.")
def blocked_positions_give_and_get_no_gradient(subject: Subject, *case: Any) -> None:
    """For every mask: keys that no query with a cotangent may read have gradients 0, and so have queries without a cotangent.

    Likewise every blocked score. Exact. Informative where there is such a key or score.
    """
    mask, g = case[-2:]
    reads = g.any(-1, keepdims=True)
    if subject.operation == SOFTMAX:
        may = np.broadcast_to(mask, g.shape) & reads
        _nothing(subject, subject(*case), ~may, "blocked scores")
    else:
        q, k = case[:2]
        may = allowed(mask, q, k) & reads
        dq, dk, dv = subject(*case)
        _nothing(subject, dq, ~reads, "a query without a cotangent")
        for x in (dk, dv):
            _nothing(subject, x, ~may.any(-2)[..., None], "a key that is not read")
    subject.informative_if(not may.all() and reads.any())


@law(VJP, cases=partly_vjp, effort=0.5, purpose="Whatever stands behind the mask is multiplied by 0 in the backward, or not read.")
def blocked_keys_and_values_do_not_matter_to_gradients(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every mask and keys and values that no query may read: all gradients are the same, whatever finite numbers stand there.

    Exact for an implementation that declares to be deterministic, else within budget.
    """
    unread = ~allowed(mask, q, k).any(-2)[..., None]
    subject.informative_if(unread.any() and grad_out.any())
    largest = subject.largest_harmless
    poisoned = subject(q, np.where(unread, largest, k), np.where(unread, -largest, v), mask, grad_out)
    for a, b in zip(poisoned, subject(q, k, v, mask, grad_out), strict=True):
        (subject.same if subject.implementation.deterministic else subject.close)(a, b)


@law(VJP, cases=causal_vjp, effort=0.5, purpose="Causal paths of a backward turn the comparison of positions round.")
def under_a_causal_mask_keys_get_nothing_from_earlier_queries(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any, row: int
) -> None:
    """For every row r, under a causal mask: if grad_out is 0 from row r on, so are dq, dk and dv from there on.

    Exact. And dk and dv of the keys before sum to what they should. Within budget.
    """
    early = np.arange(q.shape[-2])[:, None] < row
    before = np.where(early, grad_out, 0.0)
    dq, dk, dv = subject(q, k, v, mask, before)
    _nothing(subject, dq, ~early, "later queries")
    for x in (dk, dv):
        _nothing(subject, x, np.arange(k.shape[-2])[:, None] >= row, "later keys")
    subject.informative_if(row < k.shape[-2])
    subject.close(total(dv.ball[..., :row, :], -2), total(exact(before), -2), "sum of dv")


def _dead_softmax(i: Implementation) -> Any:
    return softmax_vjp(i, lengths=LONGER, masks=dead_masks)


def _dead_heads(i: Implementation) -> Any:
    return multi_head_vjp(i, lengths=(2, 3, 1, 4, 5, 8), masks=dead_masks)


def _no_reading_of_dead_tokens(i: Implementation) -> str:
    return "" if i.reading.dead_rows == "zero" else "Its gradients of weights are not defined where tokens may read nothing."


@law(
    VJP,
    cases=dead_vjp,
    effort=0.5,
    kills="vjp-fully-masked-nan",
)
def a_dead_query_has_gradients_by_convention(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every query that may read no key, by the convention dead_rows. `zero`: its dq is 0, and dk and dv are as if its row of grad_out
    were 0. `nan`: its dq may be anything, dk and dv are the same. `uniform`: its dq is 0, dk is the same, and dv of every key gets 1/n_k
    of its row of grad_out besides.

    Exact for dq, else within budget.
    """
    live = allowed(mask, q, k).any(-1, keepdims=True)
    found, without = subject(q, k, v, mask, grad_out), subject(q, k, v, mask, np.where(live, grad_out, 0.0))
    reading = subject.implementation.reading.dead_rows
    if reading != "nan":
        _nothing(subject, found[0], ~live, "a query that may read no key")
    dv: Ball = without[2].ball
    if not live.any() and reading != "uniform":
        for x in found[1:]:
            _nothing(subject, x, True, "keys that no query may read")
        return
    if reading == "uniform":
        share = divide(total(exact(np.where(live, 0.0, grad_out)), -2), exact(np.full(1, float(k.shape[-2]))))
        dv = dv + Ball(share.mid[..., None, :], share.rad[..., None, :])
    subject.close(found[1], without[1])
    subject.close(found[2], dv)


@law(SOFTMAX, cases=_dead_softmax, effort=0.5, kills="softmax-vjp-dead-rows-nan")
def a_row_with_no_allowed_entry_has_its_gradient_by_convention(subject: Subject, scores: Any, mask: Any, grad_weights: Any) -> None:
    """For every row with no allowed entry, by the convention dead_rows: its gradient is 0 (`zero`, and `uniform`, for the weights do not
    depend on the scores), or may be anything (`nan`); those of the other rows are as if its cotangent were 0.

    Exact for the row, else within budget.
    """
    live = np.broadcast_to(mask, scores.shape).any(-1, keepdims=True)
    found, without = subject(scores, mask, grad_weights), subject(scores, mask, np.where(live, grad_weights, 0.0))
    if subject.implementation.reading.dead_rows != "nan":
        _nothing(subject, found, ~live, "a row with no allowed entry")
    if live.any():
        subject.close(kept(found.ball, live), kept(without.ball, live), found.name)


@law(
    HEADS,
    cases=_dead_heads,
    exempts=_no_reading_of_dead_tokens,
    effort=0.5,
    purpose="One token that may read nothing must not spoil all weights.",
)
def a_dead_token_gives_no_gradient(subject: Subject, *case: Any) -> None:
    """For every token that may read no token: all gradients are as if its row of grad_out were 0, and 0 where that is said of all tokens.

    Within budget, and exact. It exempts other conventions than dead_rows=zero.
    """
    x, *rest, mask, g = case
    live = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2])).any(-1, keepdims=True)
    if not live.any():
        for gradient in subject(*case):
            _nothing(subject, gradient, True, "tokens that may read nothing")
        return
    for a, b in zip(subject(*case), subject(x, *rest, mask, np.where(live, g, 0.0)), strict=True):
        subject.close(a, b)
