"""Laws of gradients of attention and of softmax: how they change with their inputs."""

from typing import Any

import numpy as np

from oracles.ball import Ball, exact, total
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.algebra import joined
from properties.laws.averages import allowed
from properties.strategies.arrays import LENGTHS, TILES, also, orders
from properties.strategies.attention import softmax_vjp
from properties.strategies.gradients import cut_vjp, lanes_vjp, longer_vjp, more_keys_vjp, steps_vjp
from properties.subject import Subject

law = Laws()
VJP = "scaled_dot_product_attention_vjp"
SOFTMAX = "hard_masked_softmax_vjp"


def _rows(mask: Any, rows: slice) -> Any:
    """The rows of a mask that has them."""
    return mask if mask is None else mask[..., rows, :]


def _as_many_queries_as_keys(i: Implementation) -> str:
    found = i.allows(n_k_minus_n_q=1) or i.allows(n_k_minus_n_q=8)
    return "" if found else "It takes as many queries as keys only."


@law(VJP, cases=cut_vjp, exempts=_as_many_queries_as_keys, effort=0.5, purpose="Tiles of queries add up, the last one included.")
def queries_give_separate_gradients(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any, count: int) -> None:
    """For every case cut in two at a query: dq is that of the one part and then of the other, dk and dv are the sums of theirs.

    Within budget. It exempts implementations that take as many queries as keys only.
    """
    dq, dk, dv = subject(q, k, v, mask, grad_out)
    cut = (slice(0, count), slice(count, None)) if count < q.shape[-2] else (slice(None),)
    subject.informative_if(len(cut) == 2)
    parts = [[x.ball for x in subject(q[..., r, :], k, v, _rows(mask, r), grad_out[..., r, :])] for r in cut]
    subject.close(dq, joined([part[0] for part in parts]))
    for whole, pieces in ((dk, [part[1] for part in parts]), (dv, [part[2] for part in parts])):
        subject.close(whole, sum(pieces[1:], pieces[0]))


@law(VJP, cases=lambda i: also(longer_vjp(i), lambda q, k, *_: orders(k.shape[-2])), effort=0.5, purpose="No tile of keys is privileged.")
def gradients_move_with_their_keys(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any, order: Any) -> None:
    """For every order of the keys, with their values and their columns of the mask: dk and dv are in that order, dq is the same.

    Within budget.
    """
    dq, dk, dv = subject(q, k, v, mask, grad_out)
    moved = subject(q, k[..., order, :], v[..., order, :], mask if mask is None else mask[..., order], grad_out)
    subject.close(moved[0], dq)
    subject.close(moved[1], dk.ball[..., order, :])
    subject.close(moved[2], dv.ball[..., order, :])


@law(VJP, cases=lanes_vjp, effort=0.5, purpose="No lane is privileged: those at the end of a vector count like the others.")
def gradients_move_with_their_lanes(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any, lanes: Any, value_lanes: Any
) -> None:
    """For every order and signs of the lanes of queries and keys, and of those of values and grad_out: the gradients' lanes follow them.

    Within budget.
    """
    (order, sign), (values_order, values_sign) = lanes, value_lanes
    turned = [x[..., order] * sign for x in (q, k)], [x[..., values_order] * values_sign for x in (v, grad_out)]
    (q_turned, k_turned), (v_turned, g_turned) = turned
    expected = [x.ball for x in subject(q, k, v, mask, grad_out)]
    found = subject(q_turned, k_turned, v_turned, mask, g_turned)
    for a, b in zip(found[:2], expected[:2], strict=True):
        subject.close(a, _signed(b[..., order], sign))
    subject.close(found[2], _signed(expected[2][..., values_order], values_sign))


def _signed(x: Ball, sign: Any) -> Ball:
    return Ball(x.mid * sign, x.rad)


@law(VJP, cases=steps_vjp, effort=0.5, purpose="Each gradient has the scale of the other inputs, once.")
def gradients_scale_against_their_inputs(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any, powers: Any) -> None:
    """For all powers of two a, b, c: of a·q, k/a, b·v and c·g the gradients are b·c/a·dq, a·b·c·dk and c·dv.

    Within budget.
    """
    a, b, c = powers
    dq, dk, dv = subject(q, k, v, mask, grad_out)
    found = subject(a * q, k / a, b * v, mask, c * grad_out)
    for x, y, factor in zip(found, (dq, dk, dv), (b * c / a, a * b * c, c), strict=True):
        subject.close(x, exact(factor) * y.ball)


@law(
    VJP,
    cases=more_keys_vjp,
    exempts=_as_many_queries_as_keys,
    effort=0.5,
    purpose="A tail of keys that a tile is filled up with is no key.",
)
def appending_blocked_keys_changes_no_gradient(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any, count: int) -> None:
    """For all keys after the first `count`, if no query may read them: they get no gradient, exactly; the others get theirs without them.

    Within budget. It exempts implementations that take as many queries as keys only.
    """
    may = allowed(mask, q, k) & (np.arange(k.shape[-2]) < count)
    subject.informative_if(count < k.shape[-2])
    padded = subject(q, k, v, may, grad_out)
    alone = subject(q, k[..., :count, :], v[..., :count, :], may[..., :count], grad_out)
    subject.close(padded[0], alone[0])
    for a, b in zip(padded[1:], alone[1:], strict=True):
        subject.same(a.value[..., count:, :], np.zeros(a.value[..., count:, :].shape), f"{a.name} of blocked keys")
        subject.close(a.ball[..., :count, :], b)


@law(
    SOFTMAX,
    cases=lambda i: also(softmax_vjp(i, lengths=LENGTHS), lambda scores, *_: orders(scores.shape[-1])),
    effort=0.5,
    purpose="No entry of a row is privileged.",
)
def gradients_move_with_their_scores(subject: Subject, scores: Any, mask: Any, grad_weights: Any, order: Any) -> None:
    """For every order of the columns: the gradient of the scores is in that order.

    Within budget.
    """
    moved = subject(scores[..., order], mask if mask is None else mask[..., order], grad_weights[..., order])
    subject.close(moved, subject(scores, mask, grad_weights).ball[..., order])


@law(
    SOFTMAX,
    cases=lambda i: also(softmax_vjp(i, lengths=(2, 3, 1, 4, 5, 8, 17, *TILES)), lambda scores, *_: orders(scores.shape[-1])),
    purpose="A Jacobian that is no derivative of a potential is not symmetric.",
)
def the_softmax_derivative_is_symmetric(subject: Subject, scores: Any, mask: Any, grad_weights: Any, order: Any) -> None:
    """For every row and cotangents a and b: ⟨J·a, b⟩ is ⟨J·b, a⟩, for the Jacobian diag(p) − p·pᵀ is symmetric.

    Within budget.
    """
    other = grad_weights[..., order]
    found, turned = subject(scores, mask, grad_weights), subject(scores, mask, other)
    subject.close(total(found.ball * exact(other)), total(turned.ball * exact(grad_weights)), "⟨J·a, b⟩")
