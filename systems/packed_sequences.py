"""Attention over packed sequences: in NumPy by one mask of all rows, and in PyTorch sequence by
sequence, behind the signature of flash-attention.

flash-attention runs on CUDA only. `flash_attn_varlen_func` has its arguments and its meaning: the
last query stands at the last key, a window of −1 is open, and a softcap of 0 is none.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems import numpy_tiled

__all__ = ["IMPLEMENTATIONS", "flash_attn_varlen_func"]

Array = NDArray[Any]
Tensor = torch.Tensor


# -- One mask of all rows --------------------------------------------------------------------------


def _documents(cu: Array, used: Any, total: int) -> tuple[Array, Array, Array]:
    """For each row the number of its sequence (−1 for none) and its place there; and the lengths."""
    lengths = np.append(np.diff(cu) if used is None else used, 0)
    number = np.searchsorted(cu, np.arange(total), side="right") - 1
    place = np.arange(total) - cu[number]
    return np.where(place < lengths[number], number, -1), place, lengths


def _mask(q: Array, k: Array, cu_q: Array, cu_k: Array, options: dict[str, Any]) -> Any:
    """True where a row of queries sees a row of keys. The options about positions and lengths are
    removed.
    """
    given = {name: options.pop(name, None) for name in ("seqused_q", "seqused_k", "causal", "window")}
    of_q, i, n_q = _documents(cu_q, given["seqused_q"], len(q))
    of_k, j, n_k = _documents(cu_k, given["seqused_k"], len(k))
    ahead = j - (i + (n_k - n_q)[of_q])[:, None]
    left, right = given["window"] or (None, None)
    seen = (of_q[:, None] == of_k) & (of_q >= 0)[:, None]
    seen &= ahead <= 0 if given["causal"] else True
    seen &= True if left is None else ahead >= -left
    return seen & (True if right is None else ahead <= right)


def _swapped(x: Array) -> Array:
    return np.ascontiguousarray(x.swapaxes(0, 1))


def _masked(q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array, **options: Any) -> tuple[Array, Array]:
    """The output and the log-sum-exp."""
    mask = _mask(q, k, cu_q, cu_k, options)
    out, lse = numpy_tiled.attention(*map(_swapped, (q, k, v)), mask=mask, **options)
    return _swapped(out), lse


def _masked_vjp(
    q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array, grad_out: Array, **options: Any
) -> tuple[Any, ...]:
    """The gradients with respect to q, k, v and the sinks. Rows that no sequence uses add nothing."""
    used_q = options.get("seqused_q")
    mask = _mask(q, k, cu_q, cu_k, options)
    used = _documents(cu_q, used_q, len(q))[0] >= 0
    g, of_lse = np.where(used[:, None, None], grad_out, 0), options.pop("grad_lse", None)
    of_lse = None if of_lse is None else np.where(used, of_lse, 0)
    inputs = map(_swapped, (q, k, v, g))
    *gradients, _, sinks = numpy_tiled.attention_vjp(*inputs, grad_lse=of_lse, mask=mask, **options)
    return *map(_swapped, gradients), sinks


def _of_codes(q: Array, k: Array, v: Array, cu_q: Array, cu_k: Array, **options: Any) -> tuple[Array, Array]:
    """Codes with a scale for each key head of a sequence: their numbers, under one mask of all rows."""

    def numbers(name: str, codes: Array, cu: Array) -> Array:
        if (scale := options.pop(f"{name}_scale", None)) is None:
            return codes.astype(np.float64)
        number = np.searchsorted(cu, np.arange(len(codes)), side="right") - 1
        of_rows = scale[np.minimum(number, len(scale) - 1)].repeat(codes.shape[1] // scale.shape[1], 1)
        scaled: Array = codes.astype(np.float64) * of_rows[..., None]
        return scaled

    return _masked(numbers("q", q, cu_q), numbers("k", k, cu_k), numbers("v", v, cu_k), cu_q, cu_k, **options)


# -- Sequence by sequence --------------------------------------------------------------------------


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    seqused_k: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp with the heads first."""
    group = q.shape[1] // k.shape[1]
    scale = max(q.shape[-1], 1) ** -0.5 if softmax_scale is None else softmax_scale
    left, right = window_size[0], 0 if causal else window_size[1]
    outs, sums = [], []
    for b, ((first, last), (start, end)) in enumerate(
        zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist()), strict=True)
    ):
        end = end if seqused_k is None else start + int(seqused_k[b])
        keys, values = (x[start:end].repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("ihc,jhc->hij", q[first:last], keys) * scale
        scores = scores if softcap == 0 else softcap * torch.tanh(scores / softcap)
        ahead = torch.arange(end - start) - torch.arange(last - first)[:, None] - (end - start - last + first)
        hidden = ((ahead < -left) & (left >= 0)) | ((ahead > right) & (right >= 0))
        scores = scores.masked_fill(hidden, -torch.inf)
        alive = ~hidden.all(-1, keepdim=True)
        finite = torch.where(alive, scores, 0.0)
        weights = torch.where(alive, torch.softmax(finite, -1), 0.0)
        outs.append(torch.einsum("hij,jhc->ihc", weights, values))
        sums.append(torch.where(alive[:, 0], torch.logsumexp(finite, -1), -torch.inf))
    unused = len(q) - int(cu_seqlens_q[-1])
    outs.append(q.new_zeros(unused, q.shape[1], v.shape[-1]))
    sums.append(q.new_zeros(q.shape[1], unused))
    return torch.cat(outs), torch.cat(sums, -1)


def _flash(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    max_seqlen_q: int, max_seqlen_k: int, causal: bool = False, window: Any = (None, None),
    softcap: float | None = None, **others: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The operation by `flash_attn_varlen_func`."""
    left, right = (-1 if side is None else side for side in window)
    options = {"softmax_scale": others.get("scale"), "seqused_k": others.get("seqused_k")}
    return flash_attn_varlen_func(
        q, k, v, cu_q, cu_k, max_seqlen_q, max_seqlen_k,
        causal=causal, window_size=(left, right), softcap=softcap or 0.0, **options,
    )  # fmt: skip


def _flash_vjp(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, grad_out: Tensor, **options: Any) -> Any:
    """The gradients with respect to q, k and v by autograd."""
    grad_lse, inputs = options.pop("grad_lse", None), [x.requires_grad_() for x in (q, k, v)]
    out, lse = _flash(q, k, v, cu_q, cu_k, **options)
    results, cotangents = ([out], [grad_out]) if grad_lse is None else ([out, lse], [grad_out, grad_lse])
    return torch.autograd.grad(results, inputs, cotangents, allow_unused=True, materialize_grads=True)


_ROWS_OF_A_MASK: Any = dict.fromkeys(("total_q", "total_k"), lambda rows: rows <= 2048)
_OPTIONS = ("scale", "causal", "window", "softcap", "grad_lse")
BOTTOM_RIGHT = Conventions(causal="bottom_right")
IMPLEMENTATIONS = [
    *(
        Implementation(
            f"NumPy packed by a mask {name}",
            {"packed_attention": _masked, "packed_attention_vjp": _masked_vjp},
            arithmetic=name,
            conventions=BOTTOM_RIGHT,
            supports=_ROWS_OF_A_MASK,
            features=(*_OPTIONS, "sink", "seqused_q", "seqused_k"),
        )
        for name in ("float64", "float32")
    ),
    Implementation(
        "NumPy packed by a mask of int8",
        {"packed_attention": _of_codes},
        arithmetic="float64-int8",
        conventions=replace(BOTTOM_RIGHT, scale_shape="head"),
        supports={"sequences": lambda number: number > 0, **_ROWS_OF_A_MASK},
        features=(*_OPTIONS, "sink", "seqused_q", "seqused_k", "q_scale", "k_scale", "v_scale"),
    ),
    Implementation(
        "torch packed by sequences float32",
        {"packed_attention": _flash, "packed_attention_vjp": _flash_vjp},
        arithmetic="float32",
        conventions=BOTTOM_RIGHT,
        arrays="torch",
        supports={"sequences": lambda number: number > 0},
        features=(*_OPTIONS, "seqused_k", "max_seqlen_q", "max_seqlen_k"),
    ),
]
