"""Attention with its features in PyTorch: `flex_attention`, and written out over `torch.softmax`
with the derivatives that torch forms.

flex_attention takes the cap and the bias as its `score_mod`, the mask, causality, the offset and
the window as its `mask_mod`, and returns the log-sum-exp; a sink is put in afterwards, by the
identity out·σ(lse − sink), as torchtitan does. It is not compiled: see `systems.torch_flex`. On the
CPU it has no derivatives. Written out, a sink is one more column of logits.
"""

from typing import Any
from unittest.mock import patch

import torch
from torch.nn.attention import flex_attention as flex

from properties.contract.features import FEATURES
from properties.contract.implementation import Implementation
from systems.torch_flex import looked_up

__all__ = ["IMPLEMENTATIONS"]

Tensor = torch.Tensor


def _allowed(shape: torch.Size | tuple[int, ...], mask: Any, causal: bool, offset: Any, window: Any) -> Tensor:
    """The keys that a query may read, of the shape of the scores: by a mask, causality, and a
    window, at the positions of the offset.
    """
    n_q, n_k = shape[-2:]
    first = torch.as_tensor(0 if offset is None else offset)
    ahead = (
        torch.arange(n_k) - torch.arange(n_q)[:, None] - first.reshape(*first.shape, 1, 1, 1)
    )  # of the query's own place
    may = torch.ones((), dtype=torch.bool) if mask is None else mask
    for holds, given in (
        (ahead <= 0, causal),
        *zip((ahead >= -(window[0] or 0), ahead <= (window[1] or 0)), window, strict=True),
    ):
        may = may if given is None or given is False else may & holds
    return may.reshape(may.shape[-len(shape) :]).expand(shape)


def _flex(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Any = None, bias: Any = None, scale: Any = None, causal: bool = False, offset: Any = None,
    window: Any = (None, None), softcap: Any = None, sink: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    shape = *q.shape[:-1], k.shape[-2]
    allowed, added = (
        looked_up(_allowed(shape, mask, causal, offset, window)),
        None if bias is None else looked_up(bias.expand(shape)),
    )

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        t = s if softcap is None else softcap * torch.tanh(s / softcap)
        return t if added is None else t + added(b, h, i, j)

    batch, heads, n_q, n_k = shape
    blocks = flex.create_block_mask(allowed, batch, heads, n_q, n_k, device="cpu")
    with patch.object(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True):
        both: Any = flex.flex_attention(
            q,
            k,
            v,
            score_mod=score,
            block_mask=blocks,
            scale=scale,
            enable_gqa=True,
            return_aux=flex.AuxRequest(lse=True),
        )
    out, lse = both[0], both[1].lse
    if sink is None:
        return out, lse
    column = sink[:, None]
    kept = torch.where(column.isneginf(), 1.0, torch.sigmoid(lse - column))
    return out * kept[..., None], torch.logaddexp(lse, column)


def _written(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Any = None, bias: Any = None, scale: Any = None, causal: bool = False, offset: Any = None,
    window: Any = (None, None), softcap: Any = None, sink: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    group = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(group, dim=-3) for x in (k, v))
    logits = (q @ k.mT) * (max(q.shape[-1], 1) ** -0.5 if scale is None else scale)
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    logits = logits if bias is None else logits + bias
    logits = logits.masked_fill(~_allowed(logits.shape, mask, causal, offset, window), -torch.inf)
    if sink is not None:
        logits = torch.cat([logits, sink[:, None, None].expand(*logits.shape[:-1], 1)], -1)
    alive = (logits > -torch.inf).any(-1, keepdim=True)
    there = torch.where(alive, logits, 0.0)
    weights = torch.where(alive, torch.softmax(there, -1), 0.0)
    lse = torch.where(alive[..., 0], torch.logsumexp(there, -1), -torch.inf)
    return weights[..., : k.shape[-2]] @ v, lse


def _named(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """What has a gradient, or a tangent."""
    return {"q": q, "k": k, "v": v} | {p: options.pop(p) for p in ("bias", "sink") if options.get(p) is not None}


def _vjp(q: Tensor, k: Tensor, v: Tensor, grad_out: Tensor, *, grad_lse: Any = None, **options: Any) -> tuple[Any, ...]:
    given = {p: x.requires_grad_() for p, x in _named(q, k, v, options).items()}
    out, lse = _written(**given, **options)
    results, cotangents = ([out], [grad_out]) if grad_lse is None else ([out, lse], [grad_out, grad_lse])
    found = torch.autograd.grad(results, list(given.values()), cotangents, allow_unused=True, materialize_grads=True)
    each = dict(zip(given, found, strict=True))
    return tuple(each.get(p) for p in ("q", "k", "v", "bias", "sink"))


def _jvp(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    *,
    dbias: Any = None,
    dsink: Any = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    given, moved = _named(q, k, v, options), {"q": dq, "k": dk, "v": dv, "bias": dbias, "sink": dsink}
    tangents = tuple(torch.zeros_like(x) if moved[p] is None else moved[p] for p, x in given.items())
    found = torch.func.jvp(
        lambda *x: _written(**dict(zip(given, x, strict=True)), **options), tuple(given.values()), tangents
    )
    out, lse = found[1]
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
        features=FEATURES,
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
            attention=_written,
            attention_vjp=_vjp,
            attention_jvp=_jvp,
            merge_attention=_merge,
        )
        for name in ("float64", "float32")
    ),
]
