"""Attention as it is used today, each value with a rigorous enclosure: grouped heads, windows, offsets, biases, caps and sinks.

    s = scale·q·k,  t = c·tanh(s/c),  u = t + bias,  D = Σ_allowed exp(u) + exp(sink),  out = Σ exp(u)·v / D,  lse = log D

Shapes: q (…, H, n_q, d), k (…, H_kv, n_k, d), v (…, H_kv, n_k, d_v), H a multiple of H_kv.  Every function takes by keyword

    mask          bool, broadcast to (…, H, n_q, n_k)
    bias          float, broadcast to it; −∞ blocks
    scale         a finite float64 number; 1/√d by default (1 for d = 0)
    causal        allow key j to the query at position p where j ≤ p
    offset        the position of query 0 among the keys, an int or one for each element of the batch; by default 0, or n_k − n_q under
                  `conventions.causal` = bottom_right
    window        (left, right): allow j ≥ p − left and j ≤ p + right; None is open
    softcap       c > 0, or None
    sink          (H,): the logit of a key without a value; −∞ is none
    rows          the query rows to evaluate, all by default
    arithmetic, conventions, method   as in `oracles.scaled_dot_product_attention`

Raises ValueError or TypeError, in a sentence, for shapes, types and values that do not fit.
Source: ONNX Attention-25 (onnx/defs/nn/defs.cc); Dao et al., FlashAttention; gpt-oss (sinks); Gemma 2 (caps).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from oracles import arb_attention, ball_attention
from oracles.arguments import Given
from oracles.ball import exact
from oracles.ball_attention import Setting
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.features import Window, checked
from oracles.judging import Balls, Evaluation, Method, mean_is_accepted, settle, zero_is_accepted


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    causal: bool = False,
    offset: Any = None,
    window: Window = (None, None),
    softcap: float | None = None,
    sink: Any = None,
    rows: Sequence[int] | None = None,
    arithmetic: Given = None,
    conventions: Conventions | None = None,
    method: Method = "auto",
) -> tuple[Enclosure, Enclosure]:
    """The output Σ w v and the log-sum-exp of attention with all its features, enclosed.

    Shapes: out (…, H, n_q, d_v), lse (…, H, n_q).
    Edge cases: a row with no allowed key and no sink follows `conventions.dead_rows`, its lse is −∞ (unchecked under uniform); with a sink
    it is 0, and its lse the sink; n_k = 0 is legal.  Blocked keys, values and biases are never read.
    """
    p = checked(
        q, k, v, mask=mask, bias=bias, scale=scale, causal=causal, offset=offset, window=window, softcap=softcap, sink=sink, rows=rows,
        arithmetic=arithmetic, conventions=conventions, method=method,
    )  # fmt: skip

    def fast(setting: Setting) -> Balls:
        return ball_attention.forward_and_lse(exact(p.q), exact(p.k), exact(p.v), setting)

    def vacuous(balls: Balls) -> tuple[bool, ...]:
        return mean_is_accepted(balls[0], p.v, p.allowed_row), *zero_is_accepted(balls[1:])

    found = settle(
        Evaluation(
            p.setting.arithmetic,
            p.method,
            lambda: fast(p.setting),
            lambda: arb_attention.generalised_attention(p.q, p.k, p.v, p.allowed(), **p.given),
            p.work,
            vacuous,
            lambda: fast(replace(p.setting, sharp=True)),
        )
    )
    out, lse = (replace(e, mid=p.heads.unfold(e.mid), rad=p.heads.unfold(e.rad)) for e in found)
    return out, replace(lse, mid=lse.mid[..., 0], rad=lse.rad[..., 0], format=p.format_of_lse)
