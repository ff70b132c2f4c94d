"""The exact value of every operation on softmax and attention, by ball arithmetic: `method="arb"`.

arb (Johansson, Arb: efficient arbitrary-precision midpoint-radius interval arithmetic, IEEE Trans.
Comput. 66, 2017) proves an enclosure of the value over ℝ; the formulas below are the definitions,
row by row and head by head.  Arguments are validated float64 arrays with equal leading axes,
`allowed` a bool array of the shape of the scores (true where a query may attend) or None; the scale
is 1/√d unless given.  Each function returns a tuple with one `Ball` per result.

Masked entries are outside the support of the weights, so nothing in them matters.  A number that is
not finite loses exactly the entries whose products read it, be the other factor 0: midpoint NaN,
radius ∞.
"""

from collections.abc import Callable
from functools import reduce
from itertools import chain
from typing import Any, cast

import numpy as np
from flint import arb

from oracles.arb_matrix import PRECISION, Bools, Matrix, enclosed, from_array, side_by_side
from oracles.ball import Array, Ball
from oracles.conventions import Conventions
from oracles.error_analysis.logits import Features
from oracles.exact.multi_head import (
    attention,
    attention_jvp,
    attention_vjp,
    generalised,
    generalised_jvp,
    generalised_vjp,
    levelled,
    lose_dead_rows,
    softmax,
    softmax_derivative,
    split_heads,
)


def hard_masked_softmax(
    scores: Array, allowed: Bools | None, *, conventions: Conventions, precision: int = PRECISION
) -> tuple[Ball, ...]:
    """weights[i, j] = exp(scores[i, j]) / Σ_allowed exp(scores[i, ·]), and 0 where masked; dead rows by convention."""
    live = _allowed(scores.shape, allowed)

    def evaluate(s: Array, a: Bools) -> list[Matrix]:
        return [lose_dead_rows(softmax(from_array(s), a, conventions), a, conventions)]

    return _expecting_nan(_batched(evaluate, [scores, live], precision), live, conventions)


def hard_masked_softmax_vjp(
    scores: Array,
    allowed: Bools | None,
    grad_weights: Array,
    *,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """dscores = w ⊙ (g − Σ_allowed w ⊙ g), and 0 where masked and in dead rows (unchecked there if they are NaN)."""

    def evaluate(s: Array, a: Bools, g: Array) -> list[Matrix]:
        u, a = levelled(from_array(s), a, conventions)
        weights = softmax(u, a, conventions)
        return [lose_dead_rows(softmax_derivative(weights, a, from_array(g)), a, conventions)]

    return _batched(evaluate, [scores, _allowed(scores.shape, allowed), grad_weights], precision)


def scaled_dot_product_attention(
    q: Array,
    k: Array,
    v: Array,
    allowed: Bools | None,
    *,
    scale: float | None = None,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """out = softmax(scale·q·kᵀ)·v over the allowed keys."""
    live = _allowed((*q.shape[:-1], k.shape[-2]), allowed)

    def evaluate(q: Array, k: Array, v: Array, a: Bools) -> list[Matrix]:
        return [attention((from_array(q), from_array(k), from_array(v)), a, _scale(scale, q.shape[-1]), conventions)]

    return _expecting_nan(_batched(evaluate, [q, k, v, live], precision), live, conventions)


def scaled_dot_product_attention_vjp(
    q: Array,
    k: Array,
    v: Array,
    allowed: Bools | None,
    grad_out: Array,
    *,
    scale: float | None = None,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """(dq, dk, dv): dS = scale·softmax'(g·vᵀ), dq = dS·k, dk = dSᵀ·q, dv = weightsᵀ·g."""

    def evaluate(q: Array, k: Array, v: Array, a: Bools, g: Array) -> list[Matrix]:
        head = from_array(q), from_array(k), from_array(v)
        return attention_vjp(head, a, from_array(g), _scale(scale, q.shape[-1]), conventions)

    live = _allowed((*q.shape[:-1], k.shape[-2]), allowed)
    return _batched(evaluate, [q, k, v, live, grad_out], precision)


def scaled_dot_product_attention_jvp(
    q: Array,
    k: Array,
    v: Array,
    allowed: Bools | None,
    dq: Array,
    dk: Array,
    dv: Array,
    *,
    scale: float | None = None,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """dout = softmax'(scale·(dq·kᵀ + q·dkᵀ))·v + weights·dv."""

    def evaluate(q: Array, k: Array, v: Array, a: Bools, dq: Array, dk: Array, dv: Array) -> list[Matrix]:
        point, tangent = (from_array(q), from_array(k), from_array(v)), (from_array(dq), from_array(dk), from_array(dv))
        return [attention_jvp(point, tangent, a, _scale(scale, q.shape[-1]), conventions)]

    live = _allowed((*q.shape[:-1], k.shape[-2]), allowed)
    return _expecting_nan(_batched(evaluate, [q, k, v, live, dq, dk, dv], precision), live, conventions)


def generalised_attention(
    q: Array,
    k: Array,
    v: Array,
    allowed: Bools,
    *,
    scale: float | None = None,
    features: Features,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """(out, lse) of `oracles.attention`, its heads folded; lse (…, n, 1) is −∞ in a row that may
    read no key and has no sink.
    """

    def evaluate(q: Array, k: Array, v: Array, a: Bools, *parts: Array) -> list[Matrix]:
        f = features._replace(**cast(Any, dict(zip(given, parts, strict=True))))
        return generalised(
            (from_array(q), from_array(k), from_array(v)), a, f, _scale(scale, q.shape[-1], conventions), conventions
        )

    given = _given(features)
    out, lse = _batched(evaluate, [q, k, v, allowed, *given.values()], precision)
    live = _live(allowed, features)
    none = ~(_live(allowed, features._replace(sink=None)) if conventions.lse_sink == "excluded" else live)
    unchecked = np.inf if conventions.dead_rows == "uniform" else 0.0
    return *_expecting_nan((out,), live, conventions), Ball(
        np.where(none, -np.inf, lse.mid), np.where(none, unchecked, lse.rad)
    )


def generalised_attention_vjp(
    q: Array,
    k: Array,
    v: Array,
    allowed: Bools,
    grad_out: Array,
    grad_lse: Array | None,
    *,
    scale: float | None = None,
    features: Features,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """(dq, dk, dv), and the gradients of each logit's bias and of each row's sink, where there are such."""
    given = _given(features)

    def evaluate(q: Array, k: Array, v: Array, a: Bools, g: Array, of_lse: Array, *parts: Array) -> list[Matrix]:
        f = features._replace(**cast(Any, dict(zip(given, parts, strict=True))))
        head, scale_ = (from_array(q), from_array(k), from_array(v)), _scale(scale, q.shape[-1], conventions)
        return generalised_vjp(head, a, from_array(g), from_array(of_lse), f, scale_, conventions)

    of_lse = np.zeros((*q.shape[:-1], 1)) if grad_lse is None else grad_lse
    return _batched(evaluate, [q, k, v, allowed, grad_out, of_lse, *given.values()], precision)


def generalised_attention_jvp(
    q: Array,
    k: Array,
    v: Array,
    allowed: Bools,
    dq: Array,
    dk: Array,
    dv: Array,
    dbias: Array | None,
    dsink: Array | None,
    *,
    scale: float | None = None,
    features: Features,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """(dout, dlse) in the direction of all tangents; dlse (…, n, 1) is 0 in a dead row."""
    given = _given(features)
    moves = [np.zeros((*q.shape[:-1], n)) if x is None else x for x, n in ((dbias, k.shape[-2]), (dsink, 1))]

    def evaluate(
        q: Array,
        k: Array,
        v: Array,
        a: Bools,
        dq: Array,
        dk: Array,
        dv: Array,
        dbias: Array,
        dsink: Array,
        *parts: Array,
    ) -> list[Matrix]:
        f = features._replace(**cast(Any, dict(zip(given, parts, strict=True))))
        point, tangent = (from_array(q), from_array(k), from_array(v)), (from_array(dq), from_array(dk), from_array(dv))
        scale_ = _scale(scale, q.shape[-1], conventions)
        return generalised_jvp(point, tangent, from_array(dbias), from_array(dsink), a, f, scale_, conventions)

    out, lse = _batched(evaluate, [q, k, v, allowed, dq, dk, dv, *moves, *given.values()], precision)
    return *_expecting_nan((out,), _live(allowed, features), conventions), lse


def _live(allowed: Bools, features: Features) -> Bools:
    """Which rows (…, n_q, 1) may read a key, or have a sink."""
    found = np.asarray(allowed.any(axis=-1, keepdims=True))
    return found if features.sink is None else found | (features.sink > -np.inf)


def _given(features: Features) -> dict[str, Any]:
    """The arrays among the features."""
    return {name: x for name in ("bias", "blocked", "sink") if (x := getattr(features, name)) is not None}


def multi_head_attention(
    x: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    wo: Array,
    num_heads: int,
    allowed: Bools | None,
    *,
    scale: float | None = None,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """out = [head_0 | head_1 | …]·wo, where head h attends with the h-th block of columns of x·wq, x·wk and x·wv."""
    live = _allowed((*x.shape[:-1], x.shape[-2]), allowed)
    width = wq.shape[1] // num_heads

    def evaluate(x: Array, a: Bools) -> list[Matrix]:
        projected = (split_heads(from_array(x) @ from_array(w), num_heads) for w in (wq, wk, wv))
        outs = [attention(head, a, _scale(scale, width), conventions) for head in zip(*projected, strict=True)]
        return [side_by_side(outs) @ from_array(wo)]

    found = _batched(evaluate, [x, live], precision)
    return _expecting_nan(found, live, conventions) if width else found


def multi_head_attention_vjp(
    x: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    wo: Array,
    num_heads: int,
    allowed: Bools | None,
    grad_out: Array,
    *,
    scale: float | None = None,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """(dx, dwq, dwk, dwv, dwo), the weights' gradients summed over the batch.

    With dc = g·woᵀ, split into heads, and (dq, dk, dv) each head's VJP put side by side again: dwo
    = concatᵀ·g, dwq = xᵀ·dq and so on, dx = dq·wqᵀ + dk·wkᵀ + dv·wvᵀ.
    """
    live = _allowed((*x.shape[:-1], x.shape[-2]), allowed)
    width = wq.shape[1] // num_heads

    def evaluate(x: Array, a: Bools, g: Array) -> list[Matrix]:
        factor = _scale(scale, width)
        tokens, projections = from_array(x), [from_array(w) for w in (wq, wk, wv)]
        heads = list(zip(*(split_heads(tokens @ w, num_heads) for w in projections), strict=True))
        concat = side_by_side([attention(head, a, factor, conventions) for head in heads])
        grads = split_heads(from_array(g) @ from_array(wo).transposed, num_heads)
        pulled = [attention_vjp(head, a, grad, factor, conventions) for head, grad in zip(heads, grads, strict=True)]
        dq, dk, dv = (side_by_side(list(parts)) for parts in zip(*pulled, strict=True))
        dx = dq @ projections[0].transposed + dk @ projections[1].transposed + dv @ projections[2].transposed
        return [dx, *(tokens.transposed @ d for d in (dq, dk, dv)), concat.transposed @ from_array(g)]

    return _batched(evaluate, [x, live, grad_out], precision, summed=4)


def multi_head_attention_jvp(
    x: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    wo: Array,
    num_heads: int,
    allowed: Bools | None,
    dx: Array,
    dwq: Array,
    dwk: Array,
    dwv: Array,
    dwo: Array,
    *,
    scale: float | None = None,
    conventions: Conventions,
    precision: int = PRECISION,
) -> tuple[Ball, ...]:
    """dout = [dhead_0 | …]·wo + [head_0 | …]·dwo, each head's tangents being blocks of dx·wq + x·dwq and so on."""
    live = _allowed((*x.shape[:-1], x.shape[-2]), allowed)
    width = wq.shape[1] // num_heads

    def evaluate(x: Array, a: Bools, dx: Array) -> list[Matrix]:
        factor = _scale(scale, width)
        pairs = [(from_array(w), from_array(dw)) for w, dw in ((wq, dwq), (wk, dwk), (wv, dwv))]
        points = list(zip(*(split_heads(from_array(x) @ w, num_heads) for w, _ in pairs), strict=True))
        moves = (split_heads(from_array(dx) @ w + from_array(x) @ dw, num_heads) for w, dw in pairs)
        tangents = list(zip(*moves, strict=True))
        outs = [attention(point, a, factor, conventions) for point in points]
        douts = [
            attention_jvp(point, tangent, a, factor, conventions)
            for point, tangent in zip(points, tangents, strict=True)
        ]
        return [side_by_side(douts) @ from_array(wo) + side_by_side(outs) @ from_array(dwo)]

    found = _batched(evaluate, [x, live, dx], precision)
    return _expecting_nan(found, live, conventions) if width else found


def _expecting_nan(found: tuple[Ball, ...], allowed: Bools, conventions: Conventions) -> tuple[Ball, ...]:
    """Radius 0 on the dead rows of an output that are NaN by convention: NaN is what is expected there."""
    if conventions.dead_rows != "nan":
        return found
    dead = ~allowed.any(axis=-1, keepdims=True)
    return tuple(Ball(ball.mid, np.where(dead, 0.0, ball.rad)) for ball in found)


def _allowed(shape: tuple[int, ...], allowed: Bools | None) -> Bools:
    return np.ones(shape, dtype=bool) if allowed is None else np.broadcast_to(allowed, shape)


def _scale(scale: float | None, width: int, conventions: Conventions | None = None) -> arb:
    """1/√width, or 1 by the convention, unless given; 1 where there is nothing to scale."""
    if scale is None and conventions is not None and conventions.scale_default == "one":
        return arb(1)
    return arb(scale) if scale is not None else arb(max(width, 1)).rsqrt()


def _batched(
    evaluate: Callable[..., list[Matrix]], arguments: list[Array | Bools], precision: int, *, summed: int = 0
) -> tuple[Ball, ...]:
    """`evaluate` for every element of the batch; its last `summed` results are added up, the others stacked."""
    if arguments[0].ndim == 1:  # a row by itself
        return tuple(
            Ball(one.mid[0], one.rad[0]) for one in _batched(evaluate, [x[np.newaxis] for x in arguments], precision)
        )
    batch = arguments[0].shape[:-2]
    if 0 in batch:
        shapes = [one.support.shape for one in evaluate(*(np.zeros(x.shape[-2:], dtype=x.dtype) for x in arguments))]
        stacked = len(shapes) - summed
        zeros = [np.zeros((*batch, *shape) if i < stacked else shape) for i, shape in enumerate(shapes)]
        return tuple(Ball(zero, zero.copy()) for zero in zeros)

    def everything() -> list[tuple[list[arb], Bools]]:
        results = list(zip(*(evaluate(*(x[index] for x in arguments)) for index in np.ndindex(batch)), strict=True))
        stacked = len(results) - summed
        added = [(reduce(Matrix.__add__, parts),) for parts in results[stacked:]]
        entries = [
            list(chain.from_iterable(part.balls.entries() for part in parts)) for parts in results[:stacked] + added
        ]
        losses = [np.stack([part.lost for part in parts]) for parts in results[:stacked]]
        shaped = [lost.reshape(*batch, *lost.shape[1:]) for lost in losses] + [total.lost for (total,) in added]
        return list(zip(entries, shaped, strict=True))

    return enclosed(everything, precision)
