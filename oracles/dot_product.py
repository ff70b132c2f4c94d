"""Scaled dot-product attention and its derivatives, each value with a rigorous enclosure.

    out = softmax(scale·q·kᵀ over the allowed keys)·v

Shapes: q (…, n_q, d), k (…, n_k, d), v (…, n_k, d_v) with equal leading axes; `mask` is bool and broadcasts to
(…, n_q, n_k).  Every function takes by keyword

    scale         a finite float64 number; 1/√d by default (1 for d = 0)
    is_causal     allow key j to query i where j ≤ i, aligned by `conventions.causal`, on top of the mask
    rows          the query rows to evaluate, all by default
    arithmetic    None for the certificate: exact ∈ [mid − rad, mid + rad]; an `Arithmetic` or a preset's name for the
                  budget: any covered code under that arithmetic is within rad of mid
    conventions   the readings of masks, dead rows and heads that the answer follows
    method        "fast" (float64), "arb" (ball arithmetic), or "auto": fast, and arb where fast is too wide and arb
                  affordable

Raises ValueError or TypeError, in a sentence, for shapes, types and values that do not fit.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles import arb_attention, arrays, ball_attention, formats
from oracles.arguments import Arguments, Given, checked
from oracles.ball import Array
from oracles.ball_attention import Setting
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.enclosure import Enclosure
from oracles.judging import Balls, Evaluation, Method, mean_is_accepted, settle, zero_is_accepted
from oracles.scores import operand


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    rows: Sequence[int] | None = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """The attention output softmax(scale·q·kᵀ)·v over the allowed keys, enclosed.

    out[i] = Σ_j p_ij v[j],  p_ij = exp(s_ij) / Σ_allowed exp(s_il),  s = scale·q·kᵀ.

    Shapes: (…, n_q, d), (…, n_k, d), (…, n_k, d_v), (…, n_q, n_k) -> (…, n_q, d_v), or (…, len(rows), d_v).
    Edge cases: a row with no allowed key follows `conventions.dead_rows`; blocked keys and values are never read; a NaN
    or ±∞ that a row may read makes that row, or that column of it, NaN with an infinite radius; d = 0 gives the mean of
    the allowed values.
    """
    p = checked(q, k, v, mask, scale, is_causal, rows, arithmetic, conventions, method)

    def fast(setting: Setting) -> Balls:
        return (ball_attention.forward(operand(p.q), operand(p.k), operand(p.v), setting),)

    def arb() -> Balls:
        return arb_attention.scaled_dot_product_attention(p.q, p.k, p.v, p.allowed(), **p.options)

    def vacuous(balls: Balls) -> tuple[bool, ...]:
        return (mean_is_accepted(balls[0], p.v, p.allowed_row),)

    return settle(_evaluation(p, fast, arb, p.work, vacuous))[0]


def scaled_dot_product_attention_vjp(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    grad_out: Any,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    rows: Sequence[int] | None = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> tuple[Enclosure, ...]:
    """The gradients (dq, dk, dv) of Σ grad_out ⊙ out, enclosed.

    With P the weights, T = grad_out·vᵀ − rowsum(grad_out ⊙ out) and dS = P ⊙ T: dq = scale·dS·k, dk = scale·dSᵀ·q, dv =
    Pᵀ·grad_out.

    Shapes: those of q, k and v; grad_out is (…, n_q, d_v).  With `rows` only dq is returned, as the tuple (dq,), for
    those rows: dk and dv need them all. Edge cases: a row with no allowed key gets and gives no gradient (`dead_rows` =
    nan leaves its dq unchecked, uniform adds grad_out/n_k to dv); blocked positions get and give none.
    """
    p = checked(q, k, v, mask, scale, is_causal, rows, arithmetic, conventions, method)
    g = p.rows_of(p.like(grad_out, "grad_out", (*p.q.shape[:-2], p.n_q, p.v.shape[-1])))

    def fast(setting: Setting) -> Balls:
        return ball_attention.vjp(operand(p.q), operand(p.k), operand(p.v), operand(g), setting)

    def arb() -> Balls:
        return arb_attention.scaled_dot_product_attention_vjp(p.q, p.k, p.v, p.allowed(), g, **p.options)

    results = settle(_evaluation(p, fast, arb, 3 * p.work))
    return results if rows is None else results[:1]


def scaled_dot_product_attention_jvp(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    rows: Sequence[int] | None = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """The derivative of the attention output in the direction (dq, dk, dv), enclosed.

    With t = scale·(dq·kᵀ + q·dkᵀ): dout = (P ⊙ (t − rowsum(P ⊙ t)))·v + P·dv.

    Shapes: tangents like q, k and v; the result like the output.
    Edge cases: a row with no allowed key is 0 (NaN, or the mean of dv, by `dead_rows`); tangents of blocked entries are
    never read.
    """
    p = checked(q, k, v, mask, scale, is_causal, rows, arithmetic, conventions, method)
    tq = p.rows_of(p.like(dq, "dq", (*p.q.shape[:-2], p.n_q, p.q.shape[-1])))
    tk, tv = p.like(dk, "dk", p.k.shape), p.like(dv, "dv", p.v.shape)

    def fast(setting: Setting) -> Balls:
        return (ball_attention.jvp(operand(p.q), operand(p.k), operand(p.v), operand(tq), operand(tk), operand(tv), setting),)

    def arb() -> Balls:
        return arb_attention.scaled_dot_product_attention_jvp(p.q, p.k, p.v, p.allowed(), tq, tk, tv, **p.options)

    return settle(_evaluation(p, fast, arb, 3 * p.work))[0]


def causal_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    rows: Sequence[int] | None = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """Attention under the causal mask, for code that takes no mask but a flag, enclosed.

    Query i attends to the keys j ≤ i, or j ≤ i + n_k − n_q where `conventions.causal` is `bottom_right`.

    Shapes: (…, n_q, d), (…, n_k, d), (…, n_k, d_v) -> (…, n_q, d_v), or (…, len(rows), d_v).
    Edge cases: with `bottom_right` and n_q > n_k the first n_q − n_k rows follow `conventions.dead_rows`.
    """
    return scaled_dot_product_attention(
        q, k, v, scale=scale, is_causal=True, rows=rows, arithmetic=arithmetic, conventions=conventions, method=method
    )


def grouped_query_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    rows: Sequence[int] | None = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> Enclosure:
    """Attention in which groups of query heads share a key head, enclosed.

    Query head h uses key head h // (H / H_kv), or h mod H_kv under `kv_heads` = tile.

    Shapes: q (…, H, n_q, d), k (…, H_kv, n_k, d), v (…, H_kv, n_k, d_v), mask broadcast to (…, H, n_q, n_k); the
    result is (…, H, n_q, d_v).
    Edge cases: H_kv = H is ordinary attention; H_kv = 1 shares one key head by all.
    """
    a, c = formats.resolve(arithmetic), resolve_conventions(conventions)
    q, k, v = (arrays.float_array(x, name, arithmetic=a) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    for x, name, axes in ((q, "q", "(…, H, n_q, d)"), (k, "k", "(…, H_kv, n_k, d)"), (v, "v", "(…, H_kv, n_k, d_v)")):
        if x.ndim < 3:
            raise ValueError(f"{name} has shape {x.shape}, but should be {axes}.")
    heads, kv_heads = q.shape[-3], k.shape[-3]
    if v.shape[-3] != kv_heads:
        raise ValueError(f"v has {v.shape[-3]} heads, but should have {kv_heads} like k.")
    if kv_heads == 0:
        raise ValueError("k has 0 heads, but should have at least one.")
    if heads % kv_heads:
        raise ValueError(f"q has {heads} heads, but should have a multiple of k's {kv_heads}.")
    for x, name in ((k, "k"), (v, "v")):
        if x.shape[:-3] != q.shape[:-3]:
            raise ValueError(f"{name} has leading axes {x.shape[:-3]}, but should have {q.shape[:-3]} like q.")
    given = arrays.bool_mask(mask, "mask", (*q.shape[:-1], k.shape[-2]), c.mask_polarity)
    groups, shared = ((kv_heads, heads // kv_heads), -3) if c.kv_heads == "repeat" else ((heads // kv_heads, kv_heads), -4)

    def split(x: NDArray[Any]) -> NDArray[Any]:
        return x.reshape(*x.shape[:-3], *groups, *x.shape[-2:])

    def views(x: Array) -> Array:
        return np.broadcast_to(np.expand_dims(x, shared), (*x.shape[:-3], *groups, *x.shape[-2:]))

    found = scaled_dot_product_attention(
        split(q), views(k), views(v), None if given is None else split(given),
        scale=scale, is_causal=is_causal, rows=rows, arithmetic=a, conventions=replace(c, mask_polarity="true_allows"), method=method,
    )  # fmt: skip
    shape = (*q.shape[:-2], *found.mid.shape[-2:])
    return replace(found, mid=found.mid.reshape(shape), rad=found.rad.reshape(shape))


def _evaluation(
    p: Arguments,
    fast: Callable[[Setting], Balls],
    arb: Callable[[], Balls],
    work: int,
    vacuous: Callable[[Balls], tuple[bool, ...]] = zero_is_accepted,
) -> Evaluation:
    """The ways to evaluate attention, sharp ones among them."""
    return Evaluation(
        p.setting.arithmetic, p.method, lambda: fast(p.setting), arb, work, vacuous, lambda: fast(replace(p.setting, sharp=True))
    )
