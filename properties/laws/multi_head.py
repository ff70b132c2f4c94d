"""Laws of heads: of multi-head attention, and of grouped queries."""

from typing import Any

import numpy as np

from oracles.ball import exact, matmul
from properties.contract.subject import Subject
from properties.laws.algebra import kept
from properties.laws.averages import mean, own_heads
from properties.laws.law import Laws
from properties.strategies.choices import Choices

law = Laws()
HEADS, SDPA, GQA = "multi_head_attention", "scaled_dot_product_attention", "grouped_query_attention"


@law(HEADS)
def one_allowed_token_gives_its_projection(subject: Subject, x: Any, *weights: Any, choose: Choices) -> None:
    """For every case in which token i may attend to token π(i) only: the output is x·wv·wo in the order π.

    Within budget.
    """
    n, (_, _, wv, wo, _, _) = x.shape[-2], weights
    target = choose.integers(0, n - 1, x.shape[:-1]) if choose.happens() else np.broadcast_to(choose.order(n), x.shape[:-1])
    chosen = np.take_along_axis(x, target[..., None], -2)
    found = subject(x, *weights[:5], np.eye(n, dtype=bool)[target])
    subject.close(found, matmul(matmul(exact(chosen), exact(wv)), exact(wo)))


@law(HEADS, needs=(SDPA,))
def one_head_is_self_attention(subject: Subject, x: Any, *weights: Any, choose: Choices) -> bool:
    """For one head, and projections that choose columns of x and are exact: the output is attention of x·wq, x·wk and x·wv, times wo.

    Within budget. It needs attention.
    """
    wq, _, _, wo, num_heads, mask = weights
    width, model = wq.shape[1] // num_heads, len(wq)
    selections = [np.eye(model)[:, choose.integers(0, model - 1, width)] * choose.among([0.25, -0.125, 1.0]) for _ in range(3)]
    case = (x, *selections, wo[:width], 1, mask)
    if not subject.takes(*case):
        return False
    attended = subject.scaled_dot_product_attention(*(x @ w for w in selections), mask)
    subject.close(subject(*case), matmul(attended.ball, exact(wo[:width])))
    return True


@law(HEADS, domains=("dead rows",), watches=True)
def a_query_with_no_allowed_key_follows_its_convention(subject: Subject, x: Any, *weights: Any) -> None:
    """For every token that may attend to no token: its output is 0, or NaN, or the mean of all x·wv·wo, by the convention dead_rows.

    Exact, the mean within budget.
    """
    *_, wv, wo, _, mask = weights
    out, every = subject(x, *weights), (*x.shape[:-1], x.shape[-2])
    live, convention = np.broadcast_to(mask, every).any(-1, keepdims=True), subject.conventions.dead_rows
    if convention == "uniform":
        average = matmul(matmul(mean(x, np.ones(every)), exact(wv)), exact(wo))
        subject.close(kept(out.ball, ~live), kept(average, ~live))
    else:
        expected = 0.0 if convention == "zero" else np.nan
        subject.same(np.where(live, expected, out.value), np.full(x.shape, expected), "out of a token that may attend to nothing")


@law(GQA, domains=("everyday", "padded masks"), needs=(SDPA,))
def each_head_is_attention_over_its_own(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every case: the output is attention with the heads of keys and values repeated, and heads as an axis of the batch.

    Which head is repeated where, says the convention `kv_heads`. Within budget. It needs attention.
    """
    own = own_heads(subject.implementation, q.shape[-3], k.shape[-3])
    out = subject.scaled_dot_product_attention(q, k[..., own, :, :], v[..., own, :, :], mask)
    subject.close(subject(q, k, v, mask), out)
