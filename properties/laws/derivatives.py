"""Computes certified directional derivatives of the forward definitions: runs the spec's code over
Taylor series whose coefficients are balls (intervals value ± radius).
"""

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
    """Return float64 balls that contain the balls of a derivative. The midpoints are rounded to
    nearest, and the radii upwards.
    """
    middles = np.array([float(entry) for entry in derivative.ravel()])
    gaps = [(entry - float(middle)).abs_upper() for entry, middle in zip(derivative.ravel(), middles, strict=True)]
    radii = np.array([0.0 if gap == 0 else nextafter(float(gap), inf) for gap in gaps])
    return Ball(middles.reshape(derivative.shape), radii.reshape(derivative.shape))


def _along(arrays: Tensors, directions: Tensors, forward: Callable[..., Array]) -> Ball:
    """Return the derivative of `forward` at some arrays, along one direction for each."""
    with flint.ctx.workprec(_BITS):
        lines = [
            spec.taylor(spec.tensor(x, spec.ARB), spec.tensor(direction, spec.ARB))
            for x, direction in zip(arrays, directions, strict=True)
        ]
        return _enclosed(spec.derivative(forward(*lines)))


def _over_batch(lead: tuple[int, ...], each: Callable[[tuple[int, ...]], Ball]) -> Ball:
    """Return the derivatives of all problems of a batch in one array. `each` returns that of one
    problem.
    """
    found = [each(problem) for problem in np.ndindex(*lead)]
    shape = (*lead, *found[0].mid.shape)
    return Ball(np.reshape([x.mid for x in found], shape), np.reshape([x.rad for x in found], shape))


def _softmax(case: tuple[Any, ...], directions: Tensors) -> Ball:
    scores, mask = case
    visible = np.broadcast_to(True if mask is None else mask, scores.shape)

    def each(problem: tuple[int, ...]) -> Ball:
        def forward(scores: Any) -> Array:
            return hard_masked_softmax(scores, visible[problem], spec.ARB_SERIES)

        return _along([scores[problem]], [directions[0][problem]], forward)

    return _over_batch(scores.shape[:-2], each)


def _attention(case: tuple[Any, ...], directions: Tensors) -> Ball:
    """Return the derivative of attention along some directions.

    In the spec, values are as wide as keys. For this reason wider values are cut into pieces of
    that width, and the last piece is filled with zeros.
    """
    q, k, v, mask = case
    visible = np.broadcast_to(True if mask is None else mask, (*q.shape[:-1], k.shape[-2]))
    width, value_width = q.shape[-1], v.shape[-1]
    v, dv = (np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -value_width % width)]) for x in (v, directions[2]))

    def piece(problem: tuple[int, ...], channels: slice) -> Ball:
        arrays = [q[problem], k[problem], v[problem][:, channels]]
        along = [directions[0][problem], directions[1][problem], dv[problem][:, channels]]

        def forward(q: Any, k: Any, v: Any) -> Array:
            context = AttentionContext(q, k, v, visible[problem], scalar=spec.ARB_SERIES)
            return scaled_dot_product_attention(context)

        return _along(arrays, along, forward)

    def each(problem: tuple[int, ...]) -> Ball:
        pieces = [piece(problem, slice(start, start + width)) for start in range(0, value_width, width)]
        middle, radius = (
            np.concatenate(parts, -1) for parts in zip(*((ball.mid, ball.rad) for ball in pieces), strict=True)
        )
        return Ball(middle[:, :value_width], radius[:, :value_width])

    return _over_batch(q.shape[:-2], each)


def _multi_head(case: tuple[Any, ...], directions: Tensors) -> Ball:
    x, *weights, num_heads, mask = case
    visible = np.broadcast_to(True if mask is None else mask, (*x.shape[:-1], x.shape[-2]))

    def each(problem: tuple[int, ...]) -> Ball:
        def forward(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Array:
            heads = MultiHeadAttention(wq, wk, wv, wo, num_heads, wq.shape[1] // num_heads, scalar=spec.ARB_SERIES)
            return multi_head_attention_forward(heads, x, visible[problem])

        return _along([x[problem], *weights], [directions[0][problem], *directions[1:]], forward)

    return _over_batch(x.shape[:-2], each)


DERIVATIVES: dict[str, Callable[[tuple[Any, ...], Tensors], Ball]] = {
    "hard_masked_softmax": _softmax,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": _multi_head,
}
"""The derivative of each forward at a case, along one direction for each array of the case."""
