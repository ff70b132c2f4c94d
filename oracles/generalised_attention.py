"""Attention with grouped heads, windows, offsets, biases, softcaps and sinks. Each returned value
comes with a radius: the exact value lies in value ± radius.

    s = scale·q·kᵀ    t = c·tanh(s/c)    u = t + bias    D = Σ exp(u) + exp(sink) over the visible keys
    out = Σ exp(u)·v / D    lse = log D

Shapes: q (…, H, n_q, d), k (…, H_kv, n_k, d), v (…, H_kv, n_k, d_v), where H is a multiple of H_kv.
`oracles.options` explains the options.

Raises ValueError or TypeError for shapes, types and values that do not fit.
Source: ONNX Attention-25 (onnx/defs/nn/defs.cc); Dao et al., FlashAttention; gpt-oss (sinks); Gemma
2 (softcaps).
"""

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from oracles.attention_arguments import checked
from oracles.attention_call import AttentionCall
from oracles.enclosure import Enclosure
from oracles.error_analysis import ball_attention
from oracles.error_analysis.ball_attention import Setting
from oracles.error_analysis.grouped_heads import Gathered
from oracles.error_analysis.jvp import Tangents
from oracles.error_analysis.scores import operand
from oracles.exact import attention as arb_attention
from oracles.judging import Balls
from oracles.options import AttentionOptions, DirectionalOptions, GradientOptions, takes


@takes(AttentionOptions)
def attention(
    q: Any,
    k: Any,
    v: Any,
    **options: Unpack[AttentionOptions],
) -> tuple[Enclosure, Enclosure]:
    """Return the output and the log-sum-exp (lse) of attention with bias, window, softcap and sink.
    The results are `Enclosure`s (value ± radius).

    w are the softmax weights: out = Σ w v, and lse = log Σ exp(logit) over the visible keys and the
    sink. With dropout, out = Σ w M v / (1 − p), where M is the dropout mask; lse stays.

    Shapes: out (…, H, n_q, d_v), lse (…, H, n_q).
    Edge cases: masked keys, values and biases are never read. n_k = 0 is legal. A query without a
    visible key has the output 0 and the lse `sink` if its head has a sink. Without a sink its
    output follows `conventions.dead_rows` and its lse is −∞, which is unchecked under `dead_rows` =
    uniform. Where q, k and v are codes with scales, see `oracles.quantised`; all codes are read.
    """
    call = checked(q, k, v, options, options["rows"])

    def fast(setting: Setting) -> Balls:
        return ball_attention.forward(call.inputs._replace(v=call.thinned(call.inputs.v)), setting)

    def arb() -> Balls:
        return arb_attention.generalised_attention(
            call.exact_inputs, call.allowed(), features=call.features, **call.options
        )

    out, lse = call.evaluated(fast, arb, of_rows=2, averages=True)
    return out, call.of_lse(lse)


@takes(GradientOptions)
def attention_vjp(
    q: Any,
    k: Any,
    v: Any,
    grad_out: Any,
    grad_lse: Any = None,
    **options: Unpack[GradientOptions],
) -> tuple[Enclosure, Enclosure, Enclosure, Enclosure | None, Enclosure | None]:
    """Return the gradients (dq, dk, dv, dbias, dsink) of Σ grad_out ⊙ out + Σ grad_lse ⊙ lse. The
    results are `Enclosure`s (value ± radius). dbias is None without a bias, and dsink is None
    without a sink.

    w are the softmax weights, T = grad_out·vᵀ and δ = rowsum(grad_out ⊙ out). Then dU = w ⊙ (T − δ
    + grad_lse) and dS = dU ⊙ (1 − tanh²(s/c)).  The gradients are dq = scale·dS·k, dk = scale·dSᵀ·q
    and dv = wᵀ·grad_out; dk and dv are summed over the query heads that share a key head. dbias is
    dU, summed over the axes along which the bias is broadcast. dsink = Σ w_sink·(grad_lse − δ).
    With dropout T and, in dv, w are multiplied by M/(1 − p), where M is the dropout mask.

    Under `conventions.lse_sink` = excluded, the lse has no sink in it, and grad_lse multiplies the
    weights without the sink. A budget covers a kernel that computes these weights from the lse
    without the sink. It does not cover a kernel that divides w by 1 − w_sink, because this
    difference cancels.

    Shapes: grad_out like out, grad_lse like lse; each result like its input.
    Edge cases: a masked entry has gradient 0, and so has an entry −∞ of the bias. A query without a
    visible key has dq = 0, and its grad_lse is ignored. There `dead_rows` = nan leaves dq
    unchecked. `dead_rows` = uniform adds grad_out/n_k to dv, or gives the gradients of a row of
    equal logits: `dead_gradients` decides.
    """
    call = checked(q, k, v, options)
    dq, dk, dv, *finer = gradients(call, grad_out, grad_lse, call.finished)
    return dq, dk, dv, call.bias_gradient(finer), finer[-1] if call.sink is not None else None


def gradients(
    call: AttentionCall, grad_out: Any, grad_lse: Any, finished: Callable[[list[Gathered]], Balls]
) -> tuple[Enclosure, ...]:
    """Return the gradients (dq, dk, dv) of a call, and those of the bias and of the sinks, which
    `finished` makes from their sums over rows and columns.
    """
    cotangent = call.of_rows(grad_out, "grad_out", call.v.shape[-1])
    of_lse = None if grad_lse is None else call.of_rows(grad_lse, "grad_lse")
    natural = of_lse if of_lse is None or call.setting.conventions.lse_base == "e" else of_lse / np.log(2.0)

    def fast(setting: Setting) -> Balls:
        finer = call.gathered()
        found = ball_attention.vjp(call.inputs, call.thinned(operand(cotangent)), setting, natural, finer)
        return *found, *finished(finer)

    def arb() -> Balls:
        found = arb_attention.generalised_attention_vjp(
            (call.q, call.k, call.v), call.allowed(), cotangent, of_lse, features=call.features, **call.options
        )
        return *found[:3], *finished(call.summed(found[3:]))

    return call.evaluated(fast, arb, of_rows=1, times=3)


@takes(DirectionalOptions)
def attention_jvp(
    q: Any,
    k: Any,
    v: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    dbias: Any = None,
    dsink: Any = None,
    **options: Unpack[DirectionalOptions],
) -> tuple[Enclosure, Enclosure]:
    """Return the derivatives (dout, dlse) of attention in the direction (dq, dk, dv, dbias, dsink).
    The results are `Enclosure`s (value ± radius).

    w are the softmax weights. On visible entries dU = (scale·(dq·kᵀ + q·dkᵀ)) ⊙ (1 − tanh²(s/c)) +
    dbias. Then dlse = Σ w dU + w_sink·dsink, and dout = Σ w (dU − dlse)·v + Σ w dv.

    Shapes: tangents like their inputs; the results like out and lse.
    Edge cases: the tangents of masked entries are never read. A tangent of a bias or a sink is
    refused unless that input is given. A query without a visible key has dout = 0 and dlse = 0.
    There `dead_rows` = nan makes dout NaN. `dead_rows` = uniform makes dout the mean of dv, or
    makes both the derivatives of a row of equal logits: `dead_gradients` decides.
    """
    call = checked(q, k, v, options, options["rows"])
    tq = call.of_rows(dq, "dq", call.q.shape[-1])
    tk, tv = call.of_keys(dk, "dk", call.k), call.of_keys(dv, "dv", call.v)
    of_bias, of_sink = call.tangents(dbias, dsink)

    def fast(setting: Setting) -> Balls:
        tangents = Tangents(operand(tq), operand(tk), operand(tv), of_bias, of_sink)
        return ball_attention.jvp(call.inputs, tangents, setting)

    def arb() -> Balls:
        moves = None if of_bias is None else of_bias.tile(slice(None), slice(None))
        return arb_attention.generalised_attention_jvp(
            (call.q, call.k, call.v),
            call.allowed(),
            (tq, tk, tv),
            moves,
            of_sink,
            features=call.features,
            **call.options,
        )

    out, lse = call.evaluated(fast, arb, of_rows=2, times=3)
    return out, call.of_lse(lse)
