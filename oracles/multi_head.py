"""Multi-head attention and its derivatives. Each returned value comes with a radius: the exact
value lies in value ± radius.

    out = [head_0 | head_1 | …]·wo,   head_h = attention(x·wq_h, x·wk_h, x·wv_h)

where wq_h is the h-th block of columns of wq, as in PyTorch.  All steps compute with balls, which
are pairs value ± radius. A projection is a product of balls (`ball.matmul`), widened by the
roundings of the modelled arithmetic (`ball.rounded`). Attention maps balls to balls
(`oracles.error_analysis.ball_attention`).
"""

from math import prod
from typing import Any, Unpack

from oracles.ball import Ball, exact
from oracles.enclosure import Enclosure
from oracles.error_analysis import ball_attention
from oracles.error_analysis.jvp import Tangents
from oracles.exact import attention as arb_attention
from oracles.judging import Balls, Evaluation, settle
from oracles.options import MultiHeadOptions, takes
from oracles.projections import Projections, checked, mapped


@takes(MultiHeadOptions)
def multi_head_attention(
    x: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    num_heads: int,
    mask: Any = None,
    **options: Unpack[MultiHeadOptions],
) -> Enclosure:
    """Return multi-head self-attention of x. The result is an `Enclosure` (value ± radius).

    Shapes: x (…, n, d_model); wq, wk, wv (d_model, num_heads·head_dim); wo (num_heads·head_dim,
    d_model); mask broadcasts to (…, n, n) and is shared by the heads; the result is like x.
    Edge cases: a token to which no token is visible has the output 0. There `conventions.dead_rows`
    = nan gives NaN, and uniform gives the mean of all values times wo.
    Raises ValueError and TypeError for shapes, types and values that do not fit.
    """
    call = checked((x, wq, wk, wv, wo), num_heads, mask, options)

    def fast() -> Balls:
        return (output(call),)

    def arb() -> Balls:
        return arb_attention.multi_head_attention(call.arguments, call.num_heads, call.allowed(), **call.options)

    return settle(Evaluation(call.setting.arithmetic, call.method, fast, arb, call.work, by_rows=True))[0]


@takes(MultiHeadOptions)
def multi_head_attention_vjp(
    x: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    num_heads: int,
    mask: Any,
    grad_out: Any,
    **options: Unpack[MultiHeadOptions],
) -> tuple[Enclosure, ...]:
    """Return the gradients (dx, dwq, dwk, dwv, dwo) of Σ grad_out ⊙ out. The results are
    `Enclosure`s (value ± radius). The gradients of weights are summed over the batch.

    dc = grad_out·woᵀ is split into heads. dq, dk and dv hold the heads' VJPs side by side, and
    concat holds the heads' outputs side by side. Then dwo = concatᵀ·grad_out, dwq = xᵀ·dq (dwk and
    dwv likewise), and dx = dq·wqᵀ + dk·wkᵀ + dv·wvᵀ.

    Shapes: grad_out is like x; the gradients are like x, wq, wk, wv and wo.
    Edge cases: as for attention. Under `dead_rows` = nan the dq of a fully masked row is unchecked,
    and so is every entry of a result that depends on it.
    Raises ValueError and TypeError for shapes, types and values that do not fit.
    """
    call = checked((x, wq, wk, wv, wo), num_heads, mask, options)
    cotangent = call.like(grad_out, "grad_out", call.x)

    def fast() -> Balls:
        q, k, v = projected = call.projections(backward=True)
        tokens, out = exact(call.x), exact(cotangent)
        concat = _side_by_side(call.kept(ball_attention.output(projected, call.setting), v))
        split = call.heads(call.stored(call.product(out, _transposed(exact(call.wo)), backward=True)), cotangent)
        dq, dk, dv = ball_attention.vjp(projected, split, call.setting)
        kept = (call.kept(dq, k, q, v, split), call.kept(dk, q, k, v, split), call.kept(dv, split))
        pulled = [_side_by_side(d) for d in kept]
        dx = call.added(pulled, [_transposed(exact(w)) for w in (call.wq, call.wk, call.wv)], call.last, backward=True)
        pairs = [(tokens, d) for d in pulled] + [(concat, out)]
        weights = (call.product(_transposed(_tokens(a)), _tokens(b), backward=True) for a, b in pairs)
        return (dx, *(call.last(w) for w in weights))

    def arb() -> Balls:
        return arb_attention.multi_head_attention_vjp(
            call.arguments, call.num_heads, call.allowed(), cotangent, **call.options
        )

    return settle(Evaluation(call.setting.arithmetic, call.method, fast, arb, 3 * call.work))


@takes(MultiHeadOptions)
def multi_head_attention_jvp(
    x: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    num_heads: int,
    mask: Any,
    dx: Any,
    dwq: Any,
    dwk: Any,
    dwv: Any,
    dwo: Any,
    **options: Unpack[MultiHeadOptions],
) -> Enclosure:
    """Return the derivative of multi-head attention in the direction (dx, dwq, dwk, dwv, dwo). The
    result is an `Enclosure` (value ± radius).

    dout = [dhead_0 | …]·wo + [head_0 | …]·dwo. The tangent dhead_h is the JVP of attention at the
    h-th blocks of dx·wq + x·dwq, dx·wk + x·dwk and dx·wv + x·dwv.

    Shapes: tangents like their arguments; the result is like x.
    Edge cases: a token to which no token is visible has the derivative 0. There
    `conventions.dead_rows` = nan gives NaN, and uniform gives the derivative of the mean.
    Raises ValueError and TypeError for shapes, types and values that do not fit.
    """
    call = checked((x, wq, wk, wv, wo), num_heads, mask, options)
    named = (
        (dx, "dx", call.x),
        (dwq, "dwq", call.wq),
        (dwk, "dwk", call.wk),
        (dwv, "dwv", call.wv),
        (dwo, "dwo", call.wo),
    )
    tangents = [call.like(tangent, name, like) for tangent, name, like in named]

    def fast() -> Balls:
        q, k, v = projected = call.projections(backward=True)
        pairs = (
            ([exact(tangents[0]), exact(call.x)], [exact(w), exact(dw)])
            for w, dw in zip((call.wq, call.wk, call.wv), tangents[1:4], strict=True)
        )
        tq, tk, tv = (call.heads(call.added(*pair, call.stored), call.x, tangents[0]) for pair in pairs)
        heads = _side_by_side(call.kept(ball_attention.output(projected, call.setting), v))
        moved, _ = ball_attention.jvp(projected, Tangents(tq, tk, tv), call.setting)
        drift = _side_by_side(call.kept(call.kept(moved, v, q, k, tq, tk), tv))
        return (call.expecting_nan(call.added([drift, heads], [exact(call.wo), exact(tangents[4])], call.last)),)

    def arb() -> Balls:
        return arb_attention.multi_head_attention_jvp(
            call.arguments, call.num_heads, call.allowed(), tangents, **call.options
        )

    return settle(Evaluation(call.setting.arithmetic, call.method, fast, arb, 3 * call.work))[0]


def output(call: Projections) -> Ball:
    """Return the output of a call, as a ball: attention of the projections, projected again."""
    projected = call.projections()
    heads = call.kept(ball_attention.output(projected, call.setting), projected.v)
    return call.expecting_nan(call.affine(_side_by_side(heads), call.wo, "bo", call.last))


def _transposed(a: Ball) -> Ball:
    """Return the ball with its last two axes exchanged."""
    return mapped(a, lambda m: m.mT)


def _side_by_side(a: Ball) -> Ball:
    """Return the heads' columns side by side: (…, num_heads, n, head_dim) -> (…, n,
    num_heads·head_dim).
    """
    return mapped(a, lambda m: m.swapaxes(-3, -2).reshape(*m.shape[:-3], m.shape[-2], m.shape[-3] * m.shape[-1]))


def _tokens(a: Ball) -> Ball:
    """Return all tokens of the batch as rows: (…, n, columns) -> (tokens, columns)."""
    return mapped(a, lambda m: m.reshape(prod(m.shape[:-1]), m.shape[-1]))
