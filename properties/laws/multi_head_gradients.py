"""Laws of the derivatives of multi-head attention: what is particular to heads, weights and tokens."""

from typing import Any

import numpy as np

from oracles.ball import exact, matmul
from properties.law import Laws
from properties.laws.algebra import joined, summed, turned
from properties.strategies.arrays import orders
from properties.strategies.gradients import beside, signed_orders
from properties.strategies.multi_head import TOKENS, batched_vjp, causal_tokens_vjp, multi_head_jvp, multi_head_vjp
from properties.subject import Subject

law = Laws()
VJP = "multi_head_attention_vjp"
JVP = "multi_head_attention_jvp"
HEADS = "multi_head_attention"


def _columns(w: Any, num_heads: int) -> list[Any]:
    """Slices of the columns that belong to the heads."""
    width = w.shape[1] // num_heads
    return [slice(h * width, (h + 1) * width) for h in range(num_heads)]


@law(VJP, cases=batched_vjp, effort=0.5, purpose="A weight is shared by the batch, and gets the sum of what each sequence gives it.")
def weight_gradients_sum_over_the_batch(subject: Subject, *case: Any) -> None:
    """For every batch: gradients of weights are the sums of those of its sequences, of which each has its own dx.

    Within budget. Informative where there are several sequences.
    """
    x, *weights, num_heads, mask, g = case
    subject.informative_if(x.shape[0] > 1)
    if mask is not None:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))
    dx, *grads = subject(*case)
    alone = [
        [y.ball for y in subject(x[b : b + 1], *weights, num_heads, None if mask is None else mask[b : b + 1], g[b : b + 1])]
        for b in range(x.shape[0])
    ]
    subject.close(dx, joined([each[0] for each in alone], 0))
    for place, whole in enumerate(grads, 1):
        subject.close(whole, sum((each[place] for each in alone[1:]), alone[0][place]))


@law(
    VJP,
    cases=multi_head_vjp,
    effort=0.5,
    purpose="Within a head queries and keys, and values and outputs, may turn against each other: dwq, dwk, dwv and dwo are tied.",
)
def weights_of_a_head_turn_alike(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, grad_out: Any
) -> None:
    """For every case and head h: wq_hᵀ·dwq_h is dwk_hᵀ·wk_h, and wv_hᵀ·dwv_h is dwo_h·wo_hᵀ.

    For wq_h·A with wk_h·A⁻ᵀ, and wv_h·A with A⁻¹·wo_h, give the same output, whatever the matrix A. Within budget.
    """
    _, dwq, dwk, dwv, dwo = (y.ball for y in subject(x, wq, wk, wv, wo, num_heads, mask, grad_out))
    for h in _columns(wq, num_heads):
        subject.close(matmul(exact(wq[:, h].T), dwq[:, h]), matmul(turned(dwk[:, h]), exact(wk[:, h])), "wqᵀ·dwq")
        subject.close(matmul(exact(wv[:, h].T), dwv[:, h]), matmul(dwo[h], exact(wo[h].T)), "wvᵀ·dwv")


@law(VJP, cases=multi_head_vjp, needs=(HEADS,), effort=0.5, purpose="dwo is of the heads that the forward computes.")
def outputs_and_output_weights_turn_alike(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, grad_out: Any
) -> None:
    """For every case: woᵀ·dwo is outᵀ·grad_out, summed over the batch, for the output is linear in wo.

    Within budget. It needs the forward.
    """
    dwo = subject(x, wq, wk, wv, wo, num_heads, mask, grad_out)[4]
    out = subject.multi_head_attention(x, wq, wk, wv, wo, num_heads, mask)
    subject.close(matmul(exact(wo.T), dwo.ball), summed(matmul(turned(out.ball), exact(grad_out)), 2), "woᵀ·dwo")


@law(
    VJP,
    cases=lambda i: beside(multi_head_vjp(i, lengths=(*TOKENS, *TOKENS, 16, 17, 33, 65)), lambda x, *_: orders(x.shape[-2])),
    effort=0.5,
    purpose="No token is privileged.",
)
def gradients_move_with_their_tokens(subject: Subject, order: Any, *case: Any) -> None:
    """For every order of the tokens, with the rows and columns of the mask: dx is in that order, gradients of weights are the same.

    Within budget.
    """
    x, *weights, num_heads, mask, g = case
    dx, *grads = subject(x, *weights, num_heads, mask, g)
    reordered = mask if mask is None else mask[..., order, :][..., order]
    moved = subject(x[..., order, :], *weights, num_heads, reordered, g[..., order, :])
    subject.close(moved[0], dx.ball[..., order, :])
    for a, b in zip(moved[1:], grads, strict=True):
        subject.close(a, b)


@law(VJP, cases=causal_tokens_vjp, effort=0.5, purpose="The backward has the mask, in each head.")
def under_a_causal_mask_tokens_get_nothing_from_earlier_ones(subject: Subject, count: int, *case: Any) -> None:
    """For every number of first tokens, under a causal mask: if grad_out is 0 after them, so is dx.

    Exact. Informative where there are tokens after them, and grad_out is not 0.
    """
    *inputs, g = case
    early = np.arange(g.shape[-2])[:, None] < count
    dx = subject(*inputs, np.where(early, g, 0.0))[0]
    subject.same(np.where(early, 0.0, dx.value), np.zeros(dx.value.shape), "dx of later tokens")
    subject.informative_if(count < g.shape[-2] and g[..., :count, :].any())


@law(
    JVP,
    cases=lambda i: beside(multi_head_jvp(i), lambda x, *_: signed_orders(x.shape[-1])),
    effort=0.5,
    purpose="A tangent reaches each projection through x and through its weight, alike.",
)
def turning_the_tokens_is_turning_the_projections(subject: Subject, lanes: Any, *case: Any) -> None:
    """For every matrix A with one ±1 in each row and column: the derivative along dx = x·A is that along A·wq, A·wk and A·wv together.

    Within budget.
    """
    x, wq, wk, wv, wo = case[:5]
    order, sign = lanes
    back = np.argsort(order)
    none, still = [np.zeros(w.shape) for w in (x, wq, wk, wv, wo)], np.zeros(wo.shape)
    by_tokens = subject(*case[:7], x[..., order] * sign, *none[1:])
    by_weights = subject(*case[:7], none[0], *((w * sign[:, None])[back] for w in (wq, wk, wv)), still)
    subject.close(by_tokens, by_weights)


@law(
    JVP,
    cases=multi_head_jvp,
    needs=(HEADS,),
    effort=0.5,
    purpose="The output is linear in wv and in wo: each tangent goes where its weight goes.",
)
def tangents_of_values_and_outputs_take_the_place_of_weights(
    subject: Subject, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, num_heads: int, mask: Any, dx: Any, dwq: Any, dwk: Any, dwv: Any, dwo: Any
) -> None:
    """For every tangent of wv alone, or of wo alone: the derivative is the output with the tangent in the place of the weight.

    Within budget. It needs the forward.
    """
    none = [np.zeros(w.shape) for w in (x, wq, wk, wv, wo)]
    inputs = x, wq, wk, wv, wo, num_heads, mask
    subject.close(subject(*inputs, *none[:3], dwv, none[4]), subject.multi_head_attention(x, wq, wk, dwv, wo, num_heads, mask))
    subject.close(subject(*inputs, *none[:4], dwo), subject.multi_head_attention(x, wq, wk, wv, dwo, num_heads, mask))
