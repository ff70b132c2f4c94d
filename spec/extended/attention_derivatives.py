"""The derivatives of attention with today's features, as definitions: the cotangents of all inputs,
and the tangents of both outputs.

This module is not TorchLean's: see `spec.extended`. The letters and the arguments are explained in
`spec.extended.attention`; w_sink is exp(sink − lse), the share of the sink. With T = g · vᵀ and
δ = Σⱼ w T; under dropout T and the w of dv are multiplied by M / (1 − p):

    VJP    dU = w ⊙ (T − δ + g_lse),  dS = dU ⊙ (1 − tanh²(s / c)),
           dq = dS · k × scale,  dk = dSᵀ · q × scale,  dv = wᵀ · g,  dbias = dU,  dsink = Σ w_sink · (g_lse − δ)
    JVP    dU = (dq · k + q · dk) × scale ⊙ (1 − tanh²(s / c)) + dbias,
           dlse = Σ w dU + w_sink · dsink,  dout = Σ w (dU − dlse) v + Σ w dv

The slopes of ALiBi are constants: they have no cotangent and no tangent. dk and dv are summed over
the query heads of a group, dbias over the axes along which the bias is
broadcast, dsink over rows and batch. A masked key, the bias that masks it, and its tangents are not
read, and their derivatives are 0.

Source: the chain rule; `spec.attention` for attention without these arguments
"""

from typing import Any

import numpy as np
from jaxtyping import Bool

from spec.context import Context, Scalar
from spec.extended.arguments import broadcast
from spec.extended.attention import attention_weights
from spec.extended.attention_steps import dropout_factors, group_of, total
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, replicate, tabulate

__all__ = ["attention_jvp", "attention_vjp"]


@definition()
def attention_vjp(
    q: Tensor[Array, "*batch H nQ d"],
    k: Tensor[Array, "*batch HKv nK d"],
    v: Tensor[Array, "*batch HKv nK dV"],
    grad_out: Tensor[Array, "*batch H nQ dV"],
    grad_lse: Tensor[Array, "*batch H nQ"] | None = None,
    *,
    mask: Bool[Array, "*mask"] | None = None,
    bias: Tensor[Array, "*bias"] | None = None,
    scale: Scalar | None = None,
    causal: bool = False,
    offset: Any = None,
    window: tuple[int | None, int | None] = (None, None),
    softcap: Scalar | None = None,
    sink: Tensor[Array, "H"] | None = None,
    alibi: Tensor[Array, "H"] | None = None,
    dropout_mask: Bool[Array, "*dropped"] | None = None,
    dropout: float = 0.0,
    scalar: Context | None = None,
) -> tuple[
    Tensor[Array, "*batch H nQ d"],
    Tensor[Array, "*batch HKv nK d"],
    Tensor[Array, "*batch HKv nK dV"],
    Tensor[Array, "*bias"] | None,
    Tensor[Array, "H"] | None,
]:
    """Return (dq, dk, dv, dbias, dsink), the cotangents of the inputs when out and lse have the
    cotangents grad_out and grad_lse.

    Without a bias dbias is None, and without a sink dsink is None. grad_lse=None means 0.

    Edge cases
    - A row without a visible key adds nothing to any gradient, and its cotangents are not read.
      With a sink, grad_lse is added to the gradient of the sink.
    - A bias of −∞ and a sink of −∞ have cotangent 0.

    >>> q, k, v = np.zeros((1, 1, 1)), np.array([[[1.0], [3.0]]]), np.array([[[10.0], [20.0]]])
    >>> dq, dk, dv, *_ = attention_vjp(q, k, v, np.array([[[1.0]]]))  # w = (½, ½), T = (10, 20), dU = (−2½, 2½)
    >>> dq.tolist(), dk.tolist(), dv.tolist()
    ([[[5.0]]], [[[0.0], [0.0]]], [[[0.5], [0.5]]])
    >>> nothing, one = np.array([[[0.0]]]), np.array([[1.0]])
    >>> attention_vjp(q, k, v, nothing, one, bias=np.zeros((1, 1)))[3]  # ∂lse/∂u = w, and the bias is added to two keys
    array([[1.]])
    """
    seen: Any = {"mask": mask, "causal": causal, "offset": offset, "window": window}
    r = attention_weights(q, k, bias=bias, scale=scale, softcap=softcap, sink=sink, alibi=alibi, **seen)
    *_, heads, n_q, n_k = shape = r.scores.shape
    group, d_v, factors = group_of(heads, k.shape[-3]), v.shape[-1], dropout_factors(shape, dropout_mask, dropout)

    def row(*at: int) -> list[Scalar]:
        *b, h, _ = at
        visible_keys = [j for j in range(n_k) if r.visible[*at, j]]
        of_values = {j: total(grad_out[*at, c] * v[*b, h // group, j, c] for c in range(d_v)) for j in visible_keys}
        T = {j: of_values[j] * factors[*at, j] for j in visible_keys}
        delta = total(r.weights[*at, j] * T[j] for j in visible_keys)
        from_lse = alpha.zero if grad_lse is None or alpha.is_neg_inf(r.lse[at]) else grad_lse[at]
        dU = [r.weights[*at, j] * (T[j] - delta + from_lse) if j in T else alpha.zero for j in range(n_k)]
        return [*dU, r.sink_weights[at] * (from_lse - delta)]

    rows = {at: row(*at) for at in np.ndindex(*shape[:-1])}
    dU = tabulate(shape, lambda *index: rows[index[:-1]][index[-1]])
    dS = tabulate(shape, lambda *index: dU[index] * r.slope(*index) if r.visible[index] else alpha.zero)

    def dq(*index: int) -> Scalar:
        *at, c = index
        *b, h, _ = at
        return total(dS[*at, j] * k[*b, h // group, j, c] for j in range(n_k) if r.visible[*at, j])

    def of_key(t: Array, weights: Array) -> Any:
        def entry(*index: int) -> Scalar:
            *b, key_head, j, c = index
            readers = [
                (h, i)
                for h in range(key_head * group, (key_head + 1) * group)
                for i in range(n_q)
                if r.visible[*b, h, i, j]
            ]
            return total(weights[*b, h, i, j] * t[*b, h, i, c] for h, i in readers)

        return entry

    return (
        tabulate(q.shape, dq),
        tabulate(k.shape, of_key(q, dS)),
        tabulate(v.shape, of_key(grad_out, r.weights * factors)),
        None if bias is None else _gathered(dU, bias.shape),
        None
        if sink is None
        else tabulate((heads,), lambda h: total(dRow[-1] for at, dRow in rows.items() if at[-2] == h)),
    )


@definition()
def attention_jvp(
    q: Tensor[Array, "*batch H nQ d"],
    k: Tensor[Array, "*batch HKv nK d"],
    v: Tensor[Array, "*batch HKv nK dV"],
    dq: Tensor[Array, "*batch H nQ d"],
    dk: Tensor[Array, "*batch HKv nK d"],
    dv: Tensor[Array, "*batch HKv nK dV"],
    dbias: Tensor[Array, "*bias"] | None = None,
    dsink: Tensor[Array, "H"] | None = None,
    *,
    mask: Bool[Array, "*mask"] | None = None,
    bias: Tensor[Array, "*bias"] | None = None,
    scale: Scalar | None = None,
    causal: bool = False,
    offset: Any = None,
    window: tuple[int | None, int | None] = (None, None),
    softcap: Scalar | None = None,
    sink: Tensor[Array, "H"] | None = None,
    alibi: Tensor[Array, "H"] | None = None,
    scalar: Context | None = None,
) -> tuple[Tensor[Array, "*batch H nQ dV"], Tensor[Array, "*batch H nQ"]]:
    """Return (dout, dlse), the derivatives of the results in the direction of the inputs' tangents.
    dbias=None and dsink=None mean 0.

    Edge cases
    - A row without a visible key: dout 0, dlse 0. With a sink: dout 0, dlse = dsink.
    - A tangent of a bias without the bias, or of a sink without the sink, is refused.

    >>> q, k, v = np.zeros((1, 1, 1)), np.array([[[1.0], [3.0]]]), np.array([[[10.0], [20.0]]])
    >>> zeros = np.zeros((1, 2, 1))
    >>> dout, dlse = attention_jvp(q, k, v, np.array([[[1.0]]]), zeros, zeros)  # dU = (1, 3)
    >>> dout.tolist(), dlse.tolist()
    ([[[5.0]]], [[2.0]])
    """
    for name, along_argument, argument in (("dbias", dbias, bias), ("dsink", dsink, sink)):
        if along_argument is not None and argument is None:
            raise ValueError(f"{name} is given without {name[1:]}, but is the tangent of it.")
    seen: Any = {"mask": mask, "causal": causal, "offset": offset, "window": window}
    r = attention_weights(q, k, bias=bias, scale=scale, softcap=softcap, sink=sink, alibi=alibi, **seen)
    *_, heads, _, n_k = shape = r.scores.shape
    group, d = group_of(heads, k.shape[-3]), q.shape[-1]
    along_bias = None if dbias is None else broadcast(dbias, "dbias", shape)

    def tangent(*index: int) -> Scalar:
        *b, h, i, j = index
        key = (*b, h // group, j)
        dots = total(dq[*b, h, i, c] * k[*key, c] for c in range(d)) + total(
            q[*b, h, i, c] * dk[*key, c] for c in range(d)
        )
        return dots * r.slope(*index) + (alpha.zero if along_bias is None else along_bias[index])

    def row(*at: int) -> tuple[dict[int, Scalar], Scalar]:
        h = at[-2]
        dU = {j: tangent(*at, j) for j in range(n_k) if r.visible[*at, j]}
        of_sink = (
            alpha.zero if dsink is None or sink is None or alpha.is_neg_inf(sink[h]) else r.sink_weights[at] * dsink[h]
        )
        return dU, total(r.weights[*at, j] * x for j, x in dU.items()) + of_sink

    rows = {at: row(*at) for at in np.ndindex(*shape[:-1])}

    def dout(*index: int) -> Scalar:
        *b, h, i, c = index
        dU, dlse = rows[*b, h, i]
        of_weights = total(r.weights[*b, h, i, j] * (x - dlse) * v[*b, h // group, j, c] for j, x in dU.items())
        return of_weights + total(r.weights[*b, h, i, j] * dv[*b, h // group, j, c] for j in dU)

    return tabulate((*shape[:-1], v.shape[-1]), dout), tabulate(shape[:-1], lambda *at: rows[at][1])


def _gathered(t: Array, shape: tuple[int, ...]) -> Array:
    """Return the sum of t over the axes along which an array of `shape` was broadcast to t's shape.
    This is the adjoint of broadcasting.
    """
    result = replicate(alpha.zero, shape)
    positions = np.broadcast_to(np.arange(result.size).reshape(shape), t.shape)
    for position, entry in zip(positions.flat, t.flat, strict=True):
        result.flat[position] = result.flat[position] + entry
    return result
