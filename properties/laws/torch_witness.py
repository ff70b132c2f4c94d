"""A law with a witness: multi-head attention as PyTorch has it."""

from importlib.util import find_spec
from typing import Any

import numpy as np

import oracles
from oracles.ball import Array, Ball, ball
from properties.implementation import Implementation
from properties.law import Laws
from properties.strategies.multi_head import multi_head
from properties.subject import Subject

law = Laws()
HEADS = "multi_head_attention"


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


@law(
    HEADS,
    cases=lambda i: multi_head(i, square=True),
    exempts=_no_witness,
    effort=0.25,
    purpose="A second opinion on what heads and weights mean, by code that is in use and was not written here.",
)
def multi_head_attention_equals_that_of_torch(subject: Subject, *case: Any) -> None:
    """For every model as wide as its heads together: the output is that of torch.nn.MultiheadAttention in float64.

    Within budget, to which that of float64 is added. It exempts environments without PyTorch.
    """
    exact: Ball = ball(_witness(*case), oracles.multi_head_attention(*case, arithmetic=oracles.FLOAT64).rad)
    subject.close(subject(*case), exact)
