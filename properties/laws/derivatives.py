"""Derivatives of the forward definitions along a direction, certified: the spec's text over Taylor series of balls."""

from collections.abc import Callable
from math import inf, nextafter
from typing import Any

import flint
import numpy as np

import spec
from oracles.ball import Array, Ball
from spec.attention import AttentionContext, MultiHeadAttention
from spec.corrected import hard_masked_softmax, multi_head_attention_forward, scaled_dot_product_attention

__all__ = ["DERIVATIVES"]

_BITS = 113
Tensors = list[Any]


def _enclosed(derivative: Any) -> Ball:
    """Float64 balls around balls: the nearest midpoints, and radii upwards."""
    mid = np.array([float(x) for x in derivative.ravel()])
    gaps = [(x - float(m)).abs_upper() for x, m in zip(derivative.ravel(), mid, strict=True)]
    rad = np.array([0.0 if gap == 0 else nextafter(float(gap), inf) for gap in gaps])
    return Ball(mid.reshape(derivative.shape), rad.reshape(derivative.shape))


def _along(arrays: Tensors, directions: Tensors, forward: Callable[..., Array]) -> Ball:
    """The derivative of `forward` at some matrices along their directions."""
    with flint.ctx.workprec(_BITS):
        lines = [
            spec.taylor(spec.tensor(x, spec.ARB), spec.tensor(t, spec.ARB))
            for x, t in zip(arrays, directions, strict=True)
        ]
        return _enclosed(spec.derivative(forward(*lines)))


def _over_batch(lead: tuple[int, ...], each: Callable[[tuple[int, ...]], Ball]) -> Ball:
    found = [each(problem) for problem in np.ndindex(*lead)]
    shape = (*lead, *found[0].mid.shape)
    return Ball(np.reshape([x.mid for x in found], shape), np.reshape([x.rad for x in found], shape))


def _softmax(case: tuple[Any, ...], directions: Tensors) -> Ball:
    scores, mask = case
    may = np.broadcast_to(True if mask is None else mask, scores.shape)
    return _over_batch(
        scores.shape[:-2],
        lambda p: _along([scores[p]], [directions[0][p]], lambda s: hard_masked_softmax(s, may[p], spec.ARB_SERIES)),
    )


def _attention(case: tuple[Any, ...], directions: Tensors) -> Ball:
    """The spec's values are as wide as its keys: others are cut into pieces as wide, the last one
    filled up with zeros.
    """
    q, k, v, mask = case
    may = np.broadcast_to(True if mask is None else mask, (*q.shape[:-1], k.shape[-2]))
    d, d_v = q.shape[-1], v.shape[-1]
    v, dv = (np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -d_v % d)]) for x in (v, directions[2]))

    def piece(p: tuple[int, ...], channels: slice) -> Ball:
        arrays, along = [q[p], k[p], v[p][:, channels]], [directions[0][p], directions[1][p], dv[p][:, channels]]
        return _along(
            arrays,
            along,
            lambda q, k, v: scaled_dot_product_attention(AttentionContext(q, k, v, may[p], scalar=spec.ARB_SERIES)),
        )

    def each(p: tuple[int, ...]) -> Ball:
        pieces = [piece(p, slice(c, c + d)) for c in range(0, d_v, d)]
        return Ball(*(np.concatenate(x, -1)[:, :d_v] for x in ([y.mid for y in pieces], [y.rad for y in pieces])))

    return _over_batch(q.shape[:-2], each)


def _multi_head(case: tuple[Any, ...], directions: Tensors) -> Ball:
    x, *weights, num_heads, mask = case
    may = np.broadcast_to(True if mask is None else mask, (*x.shape[:-1], x.shape[-2]))

    def forward(may: Any, x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Array:
        heads = MultiHeadAttention(wq, wk, wv, wo, num_heads, wq.shape[1] // num_heads, scalar=spec.ARB_SERIES)
        return multi_head_attention_forward(heads, x, may)

    def each(p: tuple[int, ...]) -> Ball:
        return _along([x[p], *weights], [directions[0][p], *directions[1:]], lambda *a: forward(may[p], *a))

    return _over_batch(x.shape[:-2], each)


DERIVATIVES: dict[str, Callable[[tuple[Any, ...], Tensors], Ball]] = {
    "hard_masked_softmax": _softmax,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": _multi_head,
}
"""For each forward: its derivative at a case (its arguments) along directions, one for each array among them."""
