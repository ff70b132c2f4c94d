"""Laws of heads: of multi-head attention, of grouped queries, and a witness."""

from importlib.util import find_spec
from typing import Any

import numpy as np

import oracles
from oracles.ball import Array, ball, exact, matmul
from properties.contract.implementation import Implementation
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
    live, reading = np.broadcast_to(mask, every).any(-1, keepdims=True), subject.implementation.reading.dead_rows
    if reading == "uniform":
        average = matmul(matmul(mean(x, np.ones(every)), exact(wv)), exact(wo))
        subject.close(kept(out.ball, ~live), kept(average, ~live))
    else:
        expected = 0.0 if reading == "zero" else np.nan
        subject.same(np.where(live, expected, out.value), np.full(x.shape, expected), "out of a token that may attend to nothing")


@law(GQA, domains=("everyday", "padded masks"), needs=(SDPA,))
def each_head_is_attention_over_its_own(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every case: the output is attention with the heads of keys and values repeated, and heads as an axis of the batch.

    Which head is repeated where, says the convention `kv_heads`. Within budget. It needs attention.
    """
    own = own_heads(subject.implementation, q.shape[-3], k.shape[-3])
    out = subject.scaled_dot_product_attention(q, k[..., own, :, :], v[..., own, :, :], mask)
    subject.close(subject(q, k, v, mask), out)


# -- A witness -----------------------------------------------------------------------------------------------------------------------


def _no_witness(i: Implementation) -> str:
    if find_spec("torch") is None:
        return "PyTorch is not installed."
    return (
        "" if i.allows(model_dim_minus_heads_width=0) else "It supports no model that is as wide as its heads together, as PyTorch's are."
    )


def _witness(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Any) -> Array:
    """The output of torch.nn.MultiheadAttention in float64, whose weights are stored transposed and whose mask is true where it blocks."""
    import torch

    n, model = x.shape[-2:]
    module = torch.nn.MultiheadAttention(model, num_heads, bias=False, batch_first=True, dtype=torch.float64)
    stacked = torch.from_numpy(np.concatenate([w.T for w in (wq, wk, wv)]))
    module.load_state_dict({"in_proj_weight": stacked, "out_proj.weight": torch.from_numpy(np.ascontiguousarray(wo.T))})
    tokens = torch.from_numpy(np.ascontiguousarray(x.reshape(-1, n, model)))
    blocked = None
    if mask is not None:
        each = np.broadcast_to(~mask, (*x.shape[:-1], n)).reshape(-1, n, n)
        blocked = torch.from_numpy(np.repeat(each, num_heads, 0))
    with torch.no_grad():
        out = module(tokens, tokens, tokens, attn_mask=blocked, need_weights=False)[0]
    return np.asarray(out.numpy()).reshape(x.shape)


@law(HEADS, exempts=_no_witness)
def multi_head_attention_equals_that_of_torch(subject: Subject, *case: Any) -> bool:
    """For every model as wide as its heads together: the output is that of torch.nn.MultiheadAttention in float64.

    Within budget, to which that of float64 is added. It exempts environments without PyTorch.
    """
    if case[0].shape[-1] != case[1].shape[1]:
        return False
    subject.close(subject(*case), ball(_witness(*case), oracles.multi_head_attention(*case, arithmetic=oracles.FLOAT64).rad))
    return True
