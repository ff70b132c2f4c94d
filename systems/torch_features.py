"""Attention with its features in PyTorch: by `flex_attention`, and written out with
`torch.softmax`, with autograd's derivatives.

flex_attention takes the softcap and the bias as its `score_mod`, and the mask, causality, the
offset and the window as its `mask_mod`. It returns the log-sum-exp. A sink is applied to its
result, by the identity out·σ(lse − sink), as in torchtitan. It is not compiled: see
`systems.torch_flex`. On the CPU it has no derivatives. The written-out version adds a column of
logits for a sink.
"""

from typing import Any
from unittest.mock import patch

import torch
from torch.nn.attention import flex_attention as flex

from properties.contract.implementation import Implementation
from systems.attention_arguments import AttentionOptions
from systems.taken_features import TAKEN
from systems.torch_flex import looked_up

__all__ = ["IMPLEMENTATIONS"]

Tensor = torch.Tensor


def _visible(shape: torch.Size | tuple[int, ...], options: AttentionOptions) -> Tensor:
    """True at the visible keys, in the shape of the scores: by the mask, causality, the window and
    the offset.
    """
    n_q, n_k = shape[-2:]
    left, right = options.window
    first = torch.as_tensor(0 if options.offset is None else options.offset)
    places = torch.arange(n_q)[:, None] + first.reshape(*first.shape, 1, 1, 1)
    ahead = torch.arange(n_k) - places  # of the query's own place
    visible = torch.ones((), dtype=torch.bool) if options.mask is None else options.mask
    if options.causal:
        visible = visible & (ahead <= 0)
    if left is not None:
        visible = visible & (ahead >= -left)
    if right is not None:
        visible = visible & (ahead <= right)
    return visible.reshape(visible.shape[-len(shape) :]).expand(shape)


def _flex(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp by flex_attention."""
    options = AttentionOptions(**given)
    softcap, sink = options.softcap, options.sink
    shape = *q.shape[:-1], k.shape[-2]
    added = None if options.bias is None else looked_up(options.bias.expand(shape))

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        t = s if softcap is None else softcap * torch.tanh(s / softcap)
        return t if added is None else t + added(b, h, i, j)

    visible, (batch, heads, n_q, n_k) = looked_up(_visible(shape, options)), shape
    blocks = flex.create_block_mask(visible, batch, heads, n_q, n_k, device="cpu")
    with patch.object(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True):
        result: Any = flex.flex_attention(
            q,
            k,
            v,
            score_mod=score,
            block_mask=blocks,
            scale=options.scale,
            enable_gqa=True,
            return_aux=flex.AuxRequest(lse=True),
        )
    out, lse = result[0], result[1].lse
    if sink is None:
        return out, lse
    column = sink[:, None]
    kept = torch.where(column.isneginf(), 1.0, torch.sigmoid(lse - column))
    return out * kept[..., None], torch.logaddexp(lse, column)


def _written_out(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp by matrix products and a softmax."""
    options = AttentionOptions(**given)
    softcap, sink = options.softcap, options.sink
    group = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(group, dim=-3) for x in (k, v))
    logits = (q @ k.mT) * (max(q.shape[-1], 1) ** -0.5 if options.scale is None else options.scale)
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    logits = logits if options.bias is None else logits + options.bias
    logits = logits.masked_fill(~_visible(logits.shape, options), -torch.inf)
    if sink is not None:
        logits = torch.cat([logits, sink[:, None, None].expand(*logits.shape[:-1], 1)], -1)
    alive = (logits > -torch.inf).any(-1, keepdim=True)
    finite = torch.where(alive, logits, 0.0)
    weights = torch.where(alive, torch.softmax(finite, -1), 0.0)
    lse = torch.where(alive[..., 0], torch.logsumexp(finite, -1), -torch.inf)
    return weights[..., : k.shape[-2]] @ v, lse


def _inputs(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """The arrays with a gradient or a tangent, by name; bias and sink leave the options."""
    given = {name: options.pop(name) for name in ("bias", "sink") if options.get(name) is not None}
    return {"q": q, "k": k, "v": v} | given


def _vjp(q: Tensor, k: Tensor, v: Tensor, grad_out: Tensor, *, grad_lse: Any = None, **options: Any) -> tuple[Any, ...]:
    inputs = {name: x.requires_grad_() for name, x in _inputs(q, k, v, options).items()}
    out, lse = _written_out(**inputs, **options)
    results, cotangents = ([out], [grad_out]) if grad_lse is None else ([out, lse], [grad_out, grad_lse])
    found = torch.autograd.grad(results, list(inputs.values()), cotangents, allow_unused=True, materialize_grads=True)
    gradients = dict(zip(inputs, found, strict=True))
    return tuple(gradients.get(name) for name in ("q", "k", "v", "bias", "sink"))


def _jvp(q: Tensor, k: Tensor, v: Tensor, *tangents: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The tangents of the output and of the log-sum-exp, for tangents of the arrays.

    Tangents of q, k and v are positional; dbias and dsink are keywords.
    """
    moved = dict(zip(("q", "k", "v"), tangents, strict=True))
    moved |= {name: options.pop(f"d{name}", None) for name in ("bias", "sink")}
    inputs = _inputs(q, k, v, options)

    def attend(*arrays: Tensor) -> tuple[Tensor, Tensor]:
        return _written_out(**dict(zip(inputs, arrays, strict=True)), **options)

    directions = tuple(torch.zeros_like(x) if moved[name] is None else moved[name] for name, x in inputs.items())
    out, lse = torch.func.jvp(attend, tuple(inputs.values()), directions)[1]
    return out, lse


def _merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    shares = torch.softmax(torch.stack([lse_a, lse_b]), 0).nan_to_num(0.0)[..., None]
    return shares[0] * out_a + shares[1] * out_b, torch.logaddexp(lse_a, lse_b)


def _implementation(
    name: str, arithmetic: str, supports: Any, ranks: tuple[int, ...], **operations: Any
) -> Implementation:
    return Implementation(
        name=f"torch {name}",
        operations=operations,
        arithmetic=arithmetic,
        arrays="torch",
        batch_ranks=ranks,
        supports=supports,
        features=TAKEN,
        refuses=(RuntimeError, ValueError, ZeroDivisionError, IndexError),
    )


_SIZES = {"head_dim": lambda d: d > 0, "batch": lambda n: n > 0, "n_k": lambda n: n > 0}
IMPLEMENTATIONS = [
    *(_implementation(f"flex features {name}", name, _SIZES, (2,), attention=_flex) for name in ("float64", "float32")),
    *(
        _implementation(
            f"features {name}",
            name,
            {},
            (1, 2),
            attention=_written_out,
            attention_vjp=_vjp,
            attention_jvp=_jvp,
            merge_attention=_merge,
        )
        for name in ("float64", "float32")
    ),
]
