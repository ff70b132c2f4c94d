"""Laws of the vector–Jacobian products of attention, of softmax and of multi-head attention: what they are."""

from typing import Any

import numpy as np

from oracles.ball import Ball, exact, matmul, multiply, total
from properties.law import Laws
from properties.laws.algebra import inner, reciprocal_root, turned
from properties.laws.averages import allowed
from properties.laws.derivatives import DERIVATIVES
from properties.strategies.arrays import TILES
from properties.strategies.attention import attention_vjp, softmax_vjp
from properties.strategies.gradients import (
    anywhere_vjp,
    beside,
    directions,
    extreme_softmax_vjp,
    extreme_vjp,
    masks_of_several,
    parts,
    require_small,
)
from properties.strategies.multi_head import multi_head_vjp
from properties.subject import Subject

law = Laws()
VJP = "scaled_dot_product_attention_vjp"
SOFTMAX = "hard_masked_softmax_vjp"
HEADS = "multi_head_attention_vjp"


def _tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


@law(VJP, SOFTMAX, HEADS, cases={VJP: attention_vjp, SOFTMAX: softmax_vjp, HEADS: multi_head_vjp}, agreement=True)
def the_vjp_is_within_its_budget(subject: Subject, *case: Any) -> None:
    """For every case and cotangent: the gradients are those of Σ grad_out ⊙ out with respect to each input.

    Within budget.
    """
    for gradient in _tuple(subject(*case)):
        subject.within(gradient)


@law(
    VJP,
    SOFTMAX,
    HEADS,
    cases={
        VJP: lambda i: attention_vjp(i, lengths=TILES, widths=(1, 2, 8, 16, 64)),
        SOFTMAX: lambda i: softmax_vjp(i, lengths=TILES),
        HEADS: lambda i: multi_head_vjp(i, lengths=TILES[:16], widths=(1, 2, 8, 16)),
    },
    agreement=True,
    effort=0.5,
)
def the_vjp_is_within_its_budget_across_tiles(subject: Subject, *case: Any) -> None:
    """For all lengths around the tiles of kernels, to 300: the gradients are those of Σ grad_out ⊙ out with respect to each input.

    Within budget.
    """
    for gradient in _tuple(subject(*case)):
        subject.within(gradient)


@law(VJP, SOFTMAX, cases={VJP: extreme_vjp, SOFTMAX: extreme_softmax_vjp}, agreement=True)
def the_vjp_is_within_its_budget_at_extreme_logits(subject: Subject, *case: Any) -> None:
    """For all logits to ±1e4, which vary within a row or are all large or all very low: the gradients are those of Σ grad_out ⊙ out.

    Within budget.
    """
    for gradient in _tuple(subject(*case)):
        subject.within(gradient)


@law(
    VJP,
    SOFTMAX,
    HEADS,
    cases={
        VJP: lambda i: beside(anywhere_vjp(i), lambda *case: parts(case[-1].shape)),
        SOFTMAX: lambda i: beside(softmax_vjp(i), lambda *case: parts(case[-1].shape)),
        HEADS: lambda i: beside(multi_head_vjp(i), lambda *case: parts(case[-1].shape)),
    },
    effort=0.5,
    purpose="A vector–Jacobian product is a product: nothing of the cotangent is limited, rounded, or added twice.",
)
def the_vjp_is_linear(subject: Subject, first: Any, *case: Any) -> None:
    """For every cotangent g = a + b, cut into two by its entries, rows or columns: those of −2g are −2 times those of a and b.

    Within budget.
    """
    *inputs, g = case
    both = _tuple(subject(*inputs, -2.0 * g))
    ones, others = (_tuple(subject(*inputs, np.where(part, g, 0.0))) for part in (first, ~first))
    for whole, a, b in zip(both, ones, others, strict=True):
        subject.close(whole, exact(-2.0) * (a.ball + b.ball))


def _small(i: Any) -> Any:
    require_small(i, n_q=(2, 1, 3), n_k=(2, 1, 3), head_dim=(1, 2, 3))
    return beside(attention_vjp(i, lengths=(2, 1, 3), widths=(1, 2, 3)), lambda q, k, v, mask, g: directions(q.shape, k.shape, v.shape))


def _small_softmax(i: Any) -> Any:
    require_small(i, n_q=(2, 1, 3, 4), n_k=(2, 3, 4))
    cases = softmax_vjp(i, lengths=(2, 1, 3, 4), keys=(2, 3, 4), masks=masks_of_several, logits=(1.0, 0.25))
    return beside(cases, lambda scores, mask, g: directions(scores.shape))


def _small_heads(i: Any) -> Any:
    require_small(i, seq_len=(2, 1, 3), head_dim=(1, 2))
    cases = multi_head_vjp(i, lengths=(2, 1, 3), widths=(1, 2), heads=(1, 2))
    return beside(cases, lambda x, wq, wk, wv, wo, heads, mask, g: directions(*(w.shape for w in (x, wq, wk, wv, wo))))


@law(
    VJP,
    SOFTMAX,
    HEADS,
    cases={VJP: _small, SOFTMAX: _small_softmax, HEADS: _small_heads},
    effort=0.25,
    purpose="It compares with no formula of a gradient, but with the derivative of the forward's own definition.",
)
def the_vjp_is_certified_by_the_derivative_of_the_forward(subject: Subject, along: Any, *case: Any) -> None:
    """For every small case and direction t of each input: ⟨gradient, t⟩ is ⟨grad_out, derivative of the output along t⟩.

    The derivative is enclosed by running the forward's definition over Taylor series of balls. Within budget.
    """
    *inputs, g = case
    gradients = _tuple(subject(*inputs, g))
    forward = DERIVATIVES[subject.operation.removesuffix("_vjp")]
    for place, gradient in enumerate(gradients):
        one = [t if place == n else np.zeros(t.shape) for n, t in enumerate(along)]
        subject.close(inner([(gradient.ball, along[place])]), inner([(g, forward(tuple(inputs), one))]), gradient.name)


def _one_hot(q: Any, v: Any) -> tuple[Any, Any]:
    """As many different rows as there may be, the last one among them, and a cotangent that is 1 in one column of each."""
    n_q, columns = q.shape[-2], v.shape[-1]
    rows = np.unique(np.linspace(n_q - 1, 0, min(n_q, columns)).astype(int))[::-1]
    g = np.zeros((*q.shape[:-1], columns))
    g[..., rows, np.arange(len(rows))] = 1.0
    return rows, g


@law(VJP, cases=lambda i: anywhere_vjp(i), effort=0.5, purpose="The weights that the backward uses are seen one by one.")
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


@law(VJP, cases=lambda i: anywhere_vjp(i), effort=0.5, purpose="dq and dk follow from dv: neither the oracle nor a forward is asked.")
def gradients_follow_from_the_weights_they_read_out(subject: Subject, q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> None:
    """For every case and one-hot cotangents, whose columns of dv are weights p: dS = p ⊙ (v − p·v), dq = dS·k/√d and dk = dSᵀ·q/√d.

    Within budget.
    """
    rows, g = _one_hot(q, v)
    dq, dk, dv = subject(q, k, v, mask, g)
    columns = np.arange(len(rows))
    weights = turned(dv.ball[..., columns])
    means = total(multiply(weights, turned(exact(v[..., columns]))))
    apart = turned(exact(v[..., columns])) + -Ball(means.mid[..., None], means.rad[..., None])
    grad_scores = multiply(multiply(weights, apart), reciprocal_root(q.shape[-1]))
    subject.close(dq.ball[..., rows, :], matmul(grad_scores, exact(k)), "dq")
    subject.close(dk, matmul(turned(grad_scores), exact(q[..., rows, :])))
