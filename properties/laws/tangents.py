"""Laws of the Jacobian–vector products of attention and of multi-head attention, and what ties them to the vector–Jacobian products."""

from typing import Any

import numpy as np

from oracles.ball import Array, exact
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.algebra import inner, kept
from properties.laws.averages import allowed, mean
from properties.laws.derivatives import DERIVATIVES
from properties.operations import OPERATIONS
from properties.strategies.arrays import LENGTHS, TILES, also, orders, rounded
from properties.strategies.attention import attention_jvp
from properties.strategies.gradients import (
    LONGER,
    anywhere_jvp,
    beside,
    causal_jvp,
    directions,
    exact_jvp,
    extreme_jvp,
    longer_vjp,
    partly_jvp,
    parts,
    require_small,
    signed_orders,
)
from properties.strategies.masks import dead_masks
from properties.strategies.multi_head import multi_head_jvp, multi_head_vjp
from properties.subject import Subject

law = Laws()
JVP = "scaled_dot_product_attention_jvp"
HEADS = "multi_head_attention_jvp"
SDPA = "scaled_dot_product_attention"


def _tangents(operation: str) -> int:
    """How many of the operation's parameters are tangents: one for each array of the forward."""
    return len(OPERATIONS[operation].arrays) // 2


@law(JVP, HEADS, cases={JVP: attention_jvp, HEADS: multi_head_jvp}, agreement=True)
def the_jvp_is_within_its_budget(subject: Subject, *case: Any) -> None:
    """For every case and tangents of all inputs: the result is the derivative of the output along them.

    Within budget.
    """
    subject.within(subject(*case))


def _tiled(i: Implementation) -> Any:
    return attention_jvp(i, lengths=TILES, widths=(1, 2, 8, 16, 64))


def _tiled_heads(i: Implementation) -> Any:
    return multi_head_jvp(i, lengths=TILES[:16], widths=(1, 2, 8, 16))


@law(JVP, HEADS, cases={JVP: _tiled, HEADS: _tiled_heads}, agreement=True, effort=0.5)
def the_jvp_is_within_its_budget_across_tiles(subject: Subject, *case: Any) -> None:
    """For all lengths around the tiles of kernels, to 300: the result is the derivative of the output along the tangents.

    Within budget.
    """
    subject.within(subject(*case))


@law(JVP, cases=extreme_jvp, agreement=True)
def the_jvp_is_within_its_budget_at_extreme_logits(subject: Subject, *case: Any) -> None:
    """For all logits to ±1e4, which vary within a row or are all large or all very low: the result is the derivative of the output.

    Within budget.
    """
    subject.within(subject(*case))


def _parted(i: Implementation) -> Any:
    return beside(anywhere_jvp(i), lambda *case: _parts_of(case[-3:]))


def _parted_heads(i: Implementation) -> Any:
    return beside(multi_head_jvp(i), lambda *case: _parts_of(case[-5:]))


def _parts_of(tangents: tuple[Any, ...]) -> Any:
    return parts((len(tangents),)).flatmap(lambda whole: parts(tangents[0].shape).map(lambda first: (whole, first)))


@law(
    JVP,
    HEADS,
    cases={JVP: _parted, HEADS: _parted_heads},
    effort=0.5,
    purpose="A derivative is linear: no product of tangents is part of it.",
)
def the_jvp_is_linear(subject: Subject, cut: Any, *case: Any) -> None:
    """For all tangents t = a + b, cut by inputs and by the entries of the first: the derivative along −2t is −2 times those along a and b.

    Within budget.
    """
    chosen, entries = cut
    count = _tangents(subject.operation)
    inputs, t = case[:-count], case[-count:]
    kept = [entries if place == 0 else np.full(x.shape, which) for place, (x, which) in enumerate(zip(t, chosen, strict=True))]
    a, b = ([np.where(k == side, x, 0.0) for x, k in zip(t, kept, strict=True)] for side in (True, False))
    both = subject(*inputs, *(-2.0 * x for x in t))
    subject.close(both, exact(-2.0) * (subject(*inputs, *a).ball + subject(*inputs, *b).ball))


def _small(i: Implementation) -> Any:
    require_small(i, n_q=(2, 1, 3), n_k=(2, 1, 3), head_dim=(1, 2, 3))
    return attention_jvp(i, lengths=(2, 1, 3), widths=(1, 2, 3))


def _small_heads(i: Implementation) -> Any:
    require_small(i, seq_len=(2, 1, 3), head_dim=(1, 2))
    return multi_head_jvp(i, lengths=(2, 1, 3), widths=(1, 2), heads=(1, 2))


@law(
    JVP,
    HEADS,
    cases={JVP: _small, HEADS: _small_heads},
    effort=0.5,
    purpose="It compares with the forward's own definition, not with a formula.",
)
def the_jvp_is_certified_by_the_derivative_of_the_forward(subject: Subject, *case: Any) -> None:
    """For every small case: the result is the derivative of the forward's definition along the tangents.

    That is enclosed by running the definition over Taylor series of balls. Within budget.
    """
    count = _tangents(subject.operation)
    forward = DERIVATIVES[subject.operation.removesuffix("_jvp")]
    subject.close(subject(*case), forward(case[:-count], list(case[-count:])))


@law(JVP, cases=anywhere_jvp, needs=(SDPA,), effort=0.5, purpose="The tangents of the values are attended to as values are.")
def a_tangent_of_the_values_alone_is_attention_of_it(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any
) -> None:
    """For every tangent of the values, if queries and keys have none: the derivative is attention with the tangent for values.

    Within budget. It needs the forward.
    """
    alone = subject(q, k, v, mask, np.zeros(q.shape), np.zeros(k.shape), dv)
    subject.close(alone, subject.scaled_dot_product_attention(q, k, dv, mask))


@law(JVP, cases=lambda i: exact_jvp(i, "dk"), effort=0.5, purpose="Each row's mean is subtracted, with the weights of that row.")
def a_common_tangent_of_all_keys_changes_nothing(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any, shift: Any
) -> None:
    """For every case and vector that is added to the tangent of every key: the derivative is the same.

    Within budget.
    """
    subject.close(subject(q, k, v, mask, dq, dk + shift, dv), subject(q, k, v, mask, dq, dk, dv))


@law(
    JVP,
    cases=lambda i: exact_jvp(i, "v"),
    effort=0.5,
    purpose="Tangents of weights sum to 0 in each row, so what values have in common cancels.",
)
def constant_values_have_no_tangent_from_the_scores(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any, shift: Any
) -> None:
    """For every case and vector that is added to every value: the derivative along tangents of queries and keys is the same.

    Within budget.
    """
    nothing = np.zeros(v.shape)
    subject.close(subject(q, k, v + shift, mask, dq, dk, nothing), subject(q, k, v, mask, dq, dk, nothing))


@law(
    JVP,
    cases=lambda i: also(anywhere_jvp(i), lambda q, *_: signed_orders(q.shape[-1])),
    effort=0.5,
    purpose="The two terms of the scores' tangent have one scale, and each lane its partner.",
)
def turning_queries_is_turning_keys_back(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any, lanes: Any
) -> None:
    """For every matrix A with one ±1 in each row and column: the derivative along dq = q·A is that along dk = k·Aᵀ.

    Within budget.
    """
    order, sign = lanes
    back = np.argsort(order)
    nothing, still = (np.zeros(q.shape), np.zeros(k.shape)), np.zeros(v.shape)
    by_queries = subject(q, k, v, mask, q[..., order] * sign, nothing[1], still)
    by_keys = subject(q, k, v, mask, nothing[0], (k * sign)[..., back], still)
    subject.close(by_queries, by_keys)


@law(JVP, cases=partly_jvp, effort=0.5, purpose="A tangent behind the mask is multiplied by 0, or not read.")
def blocked_tangents_do_not_matter(subject: Subject, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any) -> None:
    """For every mask, and keys that no query may read: the derivative is the same, whatever finite tangents they and their values have.

    Exact for an implementation that declares to be deterministic, else within budget.
    """
    unread = ~allowed(mask, q, k).any(-2)[..., None]
    subject.informative_if(unread.any())
    largest = subject.largest_harmless
    poisoned = subject(q, k, v, mask, dq, np.where(unread, largest, dk), np.where(unread, -largest, dv))
    (subject.same if subject.implementation.deterministic else subject.close)(poisoned, subject(q, k, v, mask, dq, dk, dv))


@law(JVP, cases=causal_jvp, effort=0.5, purpose="Causal paths mask the tangents as they mask the scores.")
def the_past_does_not_move_with_the_future(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any, row: int
) -> None:
    """For every row r, under a causal mask: if only inputs from row r on have tangents, outputs before row r have none.

    Exact. Informative where inputs have tangents from row r on.
    """
    late = [np.where(np.arange(x.shape[-2])[:, None] < row, 0.0, x) for x in (dq, dk, dv)]
    out = subject(q, k, v, mask, *late).value[..., :row, :]
    subject.same(out, np.zeros(out.shape), "dout of the past")
    subject.informative_if(any(x.any() for x in late[1:]))


@law(JVP, cases=lambda i: also(anywhere_jvp(i), lambda q, k, *_: orders(k.shape[-2])), effort=0.5, purpose="No tile of keys is privileged.")
def the_order_of_keys_does_not_matter_to_tangents(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any, order: Any
) -> None:
    """For every order of the keys, with their values, tangents and columns of the mask: the derivative is the same.

    Within budget.
    """
    k2, v2, dk2, dv2 = (x[..., order, :] for x in (k, v, dk, dv))
    moved = subject(q, k2, v2, mask if mask is None else mask[..., order], dq, dk2, dv2)
    subject.close(moved, subject(q, k, v, mask, dq, dk, dv))


def _undefined(i: Implementation) -> str:
    return "Where a query may read no key its output is NaN, which has no derivative." if i.reading.dead_rows == "nan" else ""


@law(
    JVP,
    cases=lambda i: attention_jvp(i, lengths=(*LONGER, *LENGTHS), masks=dead_masks),
    exempts=_undefined,
    effort=0.5,
    kills="jvp-dead-rows-nan",
)
def a_dead_query_has_tangent_by_convention(subject: Subject, q: Any, k: Any, v: Any, mask: Any, dq: Any, dk: Any, dv: Any) -> None:
    """For every query that may read no key: its output has derivative 0; under dead_rows=uniform the mean of all tangents of values.

    Exact; the mean within budget. It exempts dead_rows=nan.
    """
    out = subject(q, k, v, mask, dq, dk, dv)
    live = allowed(mask, q, k).any(-1, keepdims=True)
    if subject.implementation.reading.dead_rows == "zero":
        subject.same(np.where(live, 0.0, out.value), np.zeros(out.value.shape), "dout of a query that may read no key")
    else:
        average = mean(dv, np.ones((*q.shape[:-1], k.shape[-2])))
        subject.close(kept(out.ball, ~live), kept(average, ~live))


# -- Both ------------------------------------------------------------------------------------------------------------------------


def _representative(subject: Subject, gradient: Array, fill: Array) -> Array:
    """A direction along a gradient, of size about 1, in which no entry is 0 for the gradient's being 0."""
    size = np.abs(gradient).max(initial=0.0)
    scaled = gradient / 2.0 ** np.ceil(np.log2(size)) if size else gradient
    small = np.abs(scaled) < 2.0**-6
    return rounded(np.where(small, fill / 16, scaled), subject.implementation.rounding.inputs)


def _along(i: Implementation) -> Any:
    return beside(longer_vjp(i), lambda q, k, v, mask, g: directions(q.shape, k.shape, v.shape))


def _along_heads(i: Implementation) -> Any:
    cases = multi_head_vjp(i, lengths=(2, 1, 3, 4, 5, 8, 9, 17, 33, 65))
    return beside(cases, lambda x, wq, wk, wv, wo, heads, mask, g: directions(*(w.shape for w in (x, wq, wk, wv, wo))))


_TWO_WAYS = "Forwards and backwards there is one derivative: scales, transposes and paths of either are checked by the other."


@law("scaled_dot_product_attention_vjp", cases=_along, needs=(JVP,), effort=0.5, purpose=_TWO_WAYS)
@law("multi_head_attention_vjp", cases=_along_heads, needs=(HEADS,), effort=0.25, purpose=_TWO_WAYS)
def vjp_and_jvp_are_adjoint(subject: Subject, fills: Any, *case: Any) -> None:
    """For every cotangent g and each input: ⟨gradient, t⟩ is ⟨g, derivative along t⟩.

    The direction t is the gradient itself, and small integers where that is nearly 0, so that the sum is larger than its budget.
    Within budget. It needs both derivatives.
    """
    *inputs, g = case
    gradients = subject(*inputs, g)
    jvp = getattr(subject, subject.operation.replace("_vjp", "_jvp"))
    along = [_representative(subject, x.value, fill) for x, fill in zip(gradients, fills, strict=True)]
    for place, gradient in enumerate(gradients):
        one = [t if n == place else np.zeros(t.shape) for n, t in enumerate(along)]
        subject.close(inner([(gradient.ball, along[place])]), inner([(g, jvp(*inputs, *one).ball)]), f"⟨{gradient.name}, t⟩")
