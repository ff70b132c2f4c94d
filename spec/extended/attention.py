"""Attention with today's features: grouped heads, masks by position, a bias, a softcap and a sink.
It returns the output and the log-sum-exp.

This module is not TorchLean's: the definitions are ours, in the style of `spec.attention`, over the
same scalars. For query row i of head h, whose position among the keys is p = i + offset, and key j
of key head h // (H / H_kv):

    score      s = (q · k) × scale; the scale is 1/√d by default
    softcap    t = c · tanh(s / c), and s without a softcap
    bias       u = t + bias − slopeₕ · |p − j|
    visible    mask ∧ (not causal ∨ j ≤ p) ∧ (left is None ∨ j ≥ p − left) ∧ (right is None ∨ j ≤ p + right) ∧ bias > −∞
    sum        D = Σ exp(u) over the visible keys, and exp(sink) where there is a sink
    weights    w = exp(u) / D, and 0 where a key is not visible
    dropout    w ← w · M / (1 − p), in the output alone, where M is a given mask of 0 and 1
    results    out = Σ w v and lse = log D, the natural logarithm

Shapes: q is (…, H, nQ, d), k is (…, HKv, nK, d), v is (…, HKv, nK, dV) with H a multiple of HKv;
out is (…, H, nQ, dV), lse (…, H, nQ). The mask (booleans, True where visible) and the bias
broadcast to (…, H, nQ, nK) as NumPy broadcasts; the sink and the slopes of ALiBi, `alibi`, are (H,).
Everything else has the stated shape. Positions count from 0, and the first key has position 0.
Scores, bias, sink and lse are natural logarithms.

Keys and values that are not visible are not read, so they may be NaN. A row without a visible key
has out = 0 and lse = −∞; with a sink it has out = 0 and lse = sink. A sink of −∞ equals no sink. nK
= 0 is legal.

Sources: ONNX, operator Attention-25; flash-attention, `flash_attn/cute/testing.py`; PyTorch,
`flex_attention`; JAX, `jax.nn.dot_product_attention`; Gemma 2, 2024 (softcap); OpenAI, gpt-oss,
2025 (sink); Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (the merge)
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Bool

from spec.context import Context, Scalar
from spec.extended.alibi import distance_bias
from spec.extended.arguments import broadcast, finite
from spec.extended.attention_steps import (
    attention_scores,
    dropout_factors,
    finite_sink,
    group_of,
    scale_factor,
    softcap_scores,
    softmax_with_sink,
    total,
    visible_keys,
)
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, tabulate

__all__ = ["Attended", "attention", "attention_weights", "merge_attention"]


# -- Weights ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Attended:
    """The results of attention that do not depend on the values: the scores s, the visible keys, w,
    w_sink and lse. Also the scale and the softcap.
    """

    scores: Array
    visible: Array
    weights: Array
    sink_weights: Array
    lse: Array
    scale: Scalar
    softcap: Scalar | None

    def slope(self, *index: int) -> Scalar:
        """Return ∂t / ∂(q · k) at an entry: scale × (1 − tanh²(s / c)), and without a softcap the
        scale.
        """
        if self.softcap is None:
            return self.scale
        capped = alpha.tanh(alpha.div(self.scores[index], self.softcap))
        return self.scale * (alpha.one - capped * capped)


@definition()
def attention_weights(
    q: Tensor[Array, "*batch H nQ d"],
    k: Tensor[Array, "*batch HKv nK d"],
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
) -> Attended:
    """Return the results of attention that do not depend on the values: scores, visible keys,
    weights and log-sum-exp.

        s = q kᵀ × scale,  t = c · tanh(s / c),  u = t + bias,  w = exp(u) / D,  lse = log D

    Edge cases: as in `attention`; the weights of a row without a visible key are 0.

    >>> q, k = np.zeros((1, 1, 1)), np.zeros((1, 3, 1))
    >>> attention_weights(q, k, causal=True, offset=1).weights
    array([[[0.5, 0.5, 0. ]]])
    """
    s = attention_scores(q, k, scale)
    t = s if softcap is None else softcap_scores(s, softcap)
    visible, u = visible_keys(s.shape, mask=mask, causal=causal, offset=offset, window=window), t
    if bias is not None:
        hidden = tabulate(bias.shape, lambda *index: _hides(bias[index], index), bool)
        visible = visible & ~broadcast(hidden, "bias", s.shape)
        broadcast_bias = broadcast(bias, "bias", s.shape)
        u = tabulate(s.shape, lambda *index: t[index] + broadcast_bias[index] if visible[index] else alpha.zero)
    if alibi is not None:
        n_q, n_k = s.shape[-2:]
        u = u + broadcast(distance_bias(alibi, n_q, n_k, offset), "alibi", s.shape)
    sinks = [None] * s.shape[-3] if sink is None else [finite_sink(x, f"sink[{h}]") for h, x in enumerate(sink)]
    rows = {row: softmax_with_sink(u[row], visible[row], sinks[row[-2]]) for row in np.ndindex(*s.shape[:-1])}
    return Attended(
        scores=s,
        visible=visible,
        weights=tabulate(s.shape, lambda *index: rows[index[:-1]][0][index[-1]]),
        sink_weights=tabulate(s.shape[:-1], lambda *row: rows[row][1]),
        lse=tabulate(s.shape[:-1], lambda *row: rows[row][2]),
        scale=scale_factor(q.shape[-1], scale),
        softcap=None if softcap is None else alpha.lift(softcap),
    )


def _hides(entry: Scalar, index: tuple[int, ...]) -> bool:
    """Return whether an entry of the bias is −∞, and so masks its key. NaN and +∞ are refused."""
    if alpha.is_neg_inf(entry):
        return True
    finite(entry, f"bias{list(index)}", "a finite number, or −∞ to hide the key")
    return False


# -- Attention -------------------------------------------------------------------------------------


@definition()
def attention(
    q: Tensor[Array, "*batch H nQ d"],
    k: Tensor[Array, "*batch HKv nK d"],
    v: Tensor[Array, "*batch HKv nK dV"],
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
) -> tuple[Tensor[Array, "*batch H nQ dV"], Tensor[Array, "*batch H nQ"]]:
    """Return (out, lse): for each query the weighted mean of its visible values, and the logarithm
    of the sum of its exponentials.

        out = Σⱼ wⱼ vⱼ,    lse = log D = log(Σⱼ exp(uⱼ) + exp(sink))

    The module's docstring lists the steps in a table. Without its argument a step changes nothing.
    Without all of them, and with one head, out is `spec.corrected.scaled_dot_product_attention`.

    Edge cases
    - A row without a visible key: out 0, lse −∞. With a sink: out 0, lse the sink.
    - nK = 0: every row is a row without a visible key. nQ = 0, H = 0, dV = 0: empty results. d = 0:
      all scores are 0.
    - Dropout leaves the log-sum-exp unchanged, and the sink too. A row may lose all its weights: out 0.
    - A bias of −∞ masks its key. +∞ and NaN are refused in a bias and in a sink, and so is a slope
      that is not finite.

    >>> q, k, v = np.zeros((1, 2, 1)), np.zeros((1, 2, 1)), np.array([[[1.0], [3.0]]])
    >>> out, lse = attention(q, k, v, causal=True)  # one visible key, then two: log 1 and log 2
    >>> out.tolist(), np.exp(lse).round(6).tolist()
    ([[[1.0], [2.0]]], [[1.0, 2.0]])
    >>> out, lse = attention(q, k, v, sink=np.array([np.log(2.0)]))  # (1 + 3) / (1 + 1 + 2)
    >>> out.round(6).tolist(), np.exp(lse).round(6).tolist()
    ([[[1.0], [1.0]]], [[4.0, 4.0]])
    >>> attention(q, k, v, offset=-1, causal=True)[1].round(6).tolist()  # position −1 sees no key
    [[-inf, 0.0]]
    >>> attention(q, k, v, alibi=np.array([np.log(3.0)]))[0].round(6).tolist()  # weights (1, ⅓) ÷ 4/3, then reversed
    [[[1.5], [2.5]]]
    >>> attention(q, k, v, dropout_mask=np.array([[True, False], [True, True]]), dropout=0.5)[0].tolist()  # twice ½ · 1
    [[[1.0], [4.0]]]
    """
    seen: Any = {"mask": mask, "causal": causal, "offset": offset, "window": window}
    r = attention_weights(q, k, bias=bias, scale=scale, softcap=softcap, sink=sink, alibi=alibi, **seen)
    *batch, heads, n_q, n_k = r.scores.shape
    group, factors = group_of(heads, k.shape[-3]), dropout_factors(r.scores.shape, dropout_mask, dropout)

    def out(*index: int) -> Scalar:
        *b, h, i, c = index
        weights = {j: r.weights[*b, h, i, j] * factors[*b, h, i, j] for j in range(n_k) if r.visible[*b, h, i, j]}
        return total(w * v[*b, h // group, j, c] for j, w in weights.items())

    return tabulate((*batch, heads, n_q, v.shape[-1]), out), r.lse


# -- Two parts of the keys -------------------------------------------------------------------------


@definition()
def merge_attention(
    out_a: Tensor[Array, "*rows dV"],
    lse_a: Tensor[Array, "*rows"],
    out_b: Tensor[Array, "*rows dV"],
    lse_b: Tensor[Array, "*rows"],
    scalar: Context | None = None,
) -> tuple[Tensor[Array, "*rows dV"], Tensor[Array, "*rows"]]:
    """Return (out, lse) over all keys, given (out, lse) of two parts of the keys:

        m = max(lse_a, lse_b),  a = exp(lse_a − m),  b = exp(lse_b − m),
        out = (a · out_a + b · out_b) / (a + b),  lse = m + log(a + b)

    A sink must belong to one of the parts.

    Edge cases
    - lse = −∞: that part has no key in the row, and its output is not read. Where both parts have
      lse = −∞, out is 0 and lse is −∞.
    - lse = +∞ or NaN: refused.

    >>> # weights 1 and 3
    >>> out, lse = merge_attention(np.array([[2.0]]), np.array([0.0]), np.array([[6.0]]), np.array([np.log(3.0)]))
    >>> out.round(6), np.exp(lse).round(6)
    (array([[5.]]), array([4.]))
    """

    def row(*index: int) -> tuple[Callable[[int], Scalar], Scalar]:
        parts = [
            (lse[index], out[index])
            for lse, out in ((lse_a, out_a), (lse_b, out_b))
            if not alpha.is_neg_inf(lse[index])
        ]
        if not parts:
            return lambda c: alpha.zero, alpha.neg_inf
        m = reduce(alpha.max, [finite(lse, "lse", "a finite number, or −∞ for no key") for lse, _ in parts])
        weights = [alpha.exp(lse - m) for lse, _ in parts]
        D = total(weights)
        return lambda c: alpha.div(
            total(w * out[c] for w, (_, out) in zip(weights, parts, strict=True)), D
        ), m + alpha.log(D)

    rows = {index: row(*index) for index in np.ndindex(*lse_a.shape)}
    return tabulate(out_a.shape, lambda *index: rows[index[:-1]][0](index[-1])), tabulate(
        lse_a.shape, lambda *index: rows[index][1]
    )
