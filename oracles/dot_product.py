"""Scaled dot-product attention and its derivatives. Each returned value comes with a radius: the
exact value lies in value ± radius.

    out = softmax(scale·q·kᵀ over the visible keys)·v

Shapes: q (…, n_q, d), k (…, n_k, d), v (…, n_k, d_v) with equal leading axes; `mask` is bool and
broadcasts to (…, n_q, n_k).  `oracles.options` explains the options.

Raises ValueError or TypeError for shapes, types and values that do not fit.
"""

from typing import Any, Unpack

from oracles.attention_arguments import plain
from oracles.attention_call import AttentionCall
from oracles.enclosure import Enclosure
from oracles.error_analysis import ball_attention
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.jvp import Tangents
from oracles.error_analysis.scores import operand
from oracles.exact import attention as arb_attention
from oracles.judging import Balls
from oracles.options import CausalOptions, DotProductOptions, takes


@takes(DotProductOptions)
def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    **options: Unpack[DotProductOptions],
) -> Enclosure:
    """Return the attention output softmax(scale·q·kᵀ)·v over the visible keys. The result is an
    `Enclosure` (value ± radius).

    out[i] = Σ_j p_ij v[j],  p_ij = exp(s_ij) / Σ_visible exp(s_il),  s = scale·q·kᵀ.

    Shapes: (…, n_q, d), (…, n_k, d), (…, n_k, d_v), (…, n_q, n_k) -> (…, n_q, d_v). With the option
    `rows`, only the outputs of these queries are returned: (…, len(rows), d_v).
    Edge cases: the output of a query without a visible key follows `conventions.dead_rows`. Masked
    keys and values are never read. d = 0 gives the mean of the visible values. A NaN or ±∞ in a
    query or in a key that is visible to it makes the query's whole output NaN with an infinite
    radius. A NaN or ±∞ in a visible value does so only in that value's column.
    """
    return _output(plain(q, k, v, mask, options))


@takes(DotProductOptions)
def scaled_dot_product_attention_vjp(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    grad_out: Any,
    **options: Unpack[DotProductOptions],
) -> tuple[Enclosure, ...]:
    """Return the gradients (dq, dk, dv) of Σ grad_out ⊙ out. The results are `Enclosure`s (value ±
    radius).

    P are the softmax weights, T = grad_out·vᵀ − rowsum(grad_out ⊙ out) and dS = P ⊙ T. Then dq =
    scale·dS·k, dk = scale·dSᵀ·q and dv = Pᵀ·grad_out.

    Shapes: dq, dk and dv are like q, k and v; grad_out is (…, n_q, d_v).  With the option `rows`
    the result is the tuple (dq,) for these queries: dk and dv need all queries.
    Edge cases: a masked pair of query and key adds nothing to dq, dk and dv. A query without a visible key gets
    dq = 0 and adds nothing to dk and dv. There `dead_rows` = nan leaves dq unchecked. `dead_rows` =
    uniform adds grad_out/n_k to dv, or gives the gradients of a row of equal scores:
    `dead_gradients` decides.
    """
    call = plain(q, k, v, mask, options)
    cotangent = call.of_rows(grad_out, "grad_out", call.v.shape[-1])

    def fast(setting: Setting) -> Balls:
        return ball_attention.vjp(call.inputs, operand(cotangent), setting)

    def arb() -> Balls:
        return arb_attention.scaled_dot_product_attention_vjp(
            (call.q, call.k, call.v), call.allowed(), cotangent, **call.options
        )

    results = call.evaluated(fast, arb, of_rows=3, times=3)
    return results if options["rows"] is None else results[:1]


@takes(DotProductOptions)
def scaled_dot_product_attention_jvp(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    **options: Unpack[DotProductOptions],
) -> Enclosure:
    """Return the derivative of the attention output in the direction (dq, dk, dv). The result is an
    `Enclosure` (value ± radius).

    P are the softmax weights and t = scale·(dq·kᵀ + q·dkᵀ). Then dout = (P ⊙ (t − rowsum(P ⊙ t)))·v
    + P·dv.

    Shapes: dq, dk and dv are like q, k and v; the result is like the output.
    Edge cases: the tangents of masked keys and values are never read. A query without a visible key
    has the derivative 0. There `dead_rows` = nan gives NaN. `dead_rows` = uniform gives the mean of
    dv, or the derivative of a row of equal scores: `dead_gradients` decides.
    """
    call = plain(q, k, v, mask, options)
    tq = call.of_rows(dq, "dq", call.q.shape[-1])
    tk, tv = call.of_keys(dk, "dk", call.k), call.of_keys(dv, "dv", call.v)

    def fast(setting: Setting) -> Balls:
        return ball_attention.jvp(call.inputs, Tangents(operand(tq), operand(tk), operand(tv)), setting)[:1]

    def arb() -> Balls:
        return arb_attention.scaled_dot_product_attention_jvp(
            (call.q, call.k, call.v), call.allowed(), (tq, tk, tv), **call.options
        )

    return call.evaluated(fast, arb, of_rows=1, times=3)[0]


@takes(CausalOptions)
def causal_attention(
    q: Any,
    k: Any,
    v: Any,
    **options: Unpack[CausalOptions],
) -> Enclosure:
    """Return attention under the causal mask. This operation is for code that takes a flag and not
    a mask. The result is an `Enclosure` (value ± radius).

    Query i attends to the keys j ≤ i. Where `conventions.causal` is `bottom_right`, it attends to
    the keys j ≤ i + n_k − n_q.

    Shapes: (…, n_q, d), (…, n_k, d), (…, n_k, d_v) -> (…, n_q, d_v). With the option `rows`, only
    the outputs of these queries are returned: (…, len(rows), d_v).
    Edge cases: with `bottom_right` and n_q > n_k the first n_q − n_k queries see no key, and follow
    `conventions.dead_rows`.
    """
    return scaled_dot_product_attention(q, k, v, **options, is_causal=True)


@takes(DotProductOptions)
def grouped_query_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    **options: Unpack[DotProductOptions],
) -> Enclosure:
    """Return attention in which groups of query heads share a key head. The result is an
    `Enclosure` (value ± radius).

    Query head h uses key head h // (H / H_kv). Where `conventions.kv_heads` is `tile`, it uses key
    head h mod H_kv.

    Shapes: q (…, H, n_q, d), k (…, H_kv, n_k, d), v (…, H_kv, n_k, d_v), mask broadcast to (…, H,
    n_q, n_k); the result is (…, H, n_q, d_v).
    Edge cases: H_kv = H is ordinary attention. With H_kv = 1 all query heads use one key head. n_q
    = 0 is legal. Without keys every row is fully masked.
    """
    return _output(plain(q, k, v, mask, options, grouped=True))


def _output(call: AttentionCall) -> Enclosure:
    """Return the output of attention without bias, window, softcap or sink."""

    def fast(setting: Setting) -> Balls:
        return (ball_attention.output(call.inputs, setting),)

    def arb() -> Balls:
        return arb_attention.scaled_dot_product_attention((call.q, call.k, call.v), call.allowed(), **call.options)

    return call.evaluated(fast, arb, of_rows=1, averages=True)[0]
