"""Attention with its options, its derivatives, merging and ALiBi in NumPy: a part of the reference.
It follows the conventions that are declared, see `properties.bugs.declared`.

`properties.bugs.reference` has the other operations and explains steps.
"""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.declared import declared
from properties.bugs.reference_quantised import numbers_of

__all__ = [
    "alibi_bias",
    "alibi_distances",
    "alibi_slopes",
    "attention",
    "attention_jvp",
    "attention_vjp",
    "averages",
    "bias_gradient",
    "biased",
    "dead_weight",
    "exponential",
    "exponentials_of_logits",
    "first_position",
    "group_sums",
    "in_lse_base",
    "in_window",
    "key_distances",
    "key_heads",
    "log_of_sum",
    "logarithm",
    "logit_gradient",
    "merge_attention",
    "merge_weights",
    "not_after",
    "options_of",
    "query_positions",
    "references",
    "responding",
    "scale_of",
    "scaled",
    "shared",
    "sink_gradient",
    "sinks_of",
    "slopes_added",
    "softcap_slope",
    "softcapped",
    "sum_of_exponentials",
    "thinned",
    "thinned_forward",
    "visible_keys",
    "weights_of",
]


def key_heads(heads: int, groups: int) -> Any:
    """Return the key head of each query head: h // (heads / groups), or h mod groups."""
    if declared().kv_heads == "tile":
        return np.arange(heads) % groups
    return np.repeat(np.arange(groups), heads // groups)


# -- Fully masked rows -----------------------------------------------------------------------------


def dead_weight(n_k: int) -> float:
    """Return the weight of each of n_k keys in a fully masked row."""
    return {"zero": 0.0, "nan": np.nan, "uniform": 1 / max(n_k, 1)}[declared().dead_rows]


def averages(w: Array, v: Array, dead: Any = True) -> Array:
    """Return the weights times the values. Without keys, `dead` says which rows are fully masked."""
    if v.shape[-2]:
        return w @ v
    return np.where(dead, 0.0 * dead_weight(0), np.zeros((*w.shape[:-1], v.shape[-1])))


def responding(weights: Array, visible: Any) -> Array:
    """Return the weights with 0 in fully masked rows whose weights do not depend on the scores."""
    if declared().dead_rows == "zero" or declared().dead_rows_flow:
        return weights
    return np.where(visible.any(-1, keepdims=True), weights, 0.0)


# -- Visible keys ----------------------------------------------------------------------------------


def first_position(n_q: int, n_k: int) -> int:
    """Return the position of the first query among the keys where no offset is given."""
    return n_k - n_q if declared().causal == "bottom_right" else 0


def query_positions(n_q: int, n_k: int, offset: Any) -> Any:
    """Return the position of each query among the keys, for each batch element."""
    first = first_position(n_q, n_k) if offset is None else offset
    return np.asarray(first)[..., None, None, None] + np.arange(n_q)[:, None]


def in_window(p: Any, j: Any, left: int | None, right: int | None) -> Any:
    """True if key j is at most `left` before position p and at most `right` after it. A left side
    that counts keys includes the key at p.
    """
    if left is not None and declared().window == "count":
        left -= 1
    return (j >= (-np.inf if left is None else p - left)) & (j <= (np.inf if right is None else p + right))


def not_after(j: Any, p: Any) -> Any:
    """True if key j is not after position p: the keys that causality shows."""
    return j <= p


def together(mask: Any) -> tuple[Any, bool]:
    """Return the mask and the causal flag that apply where both are given."""
    wins = {"mask_wins": (mask, False), "causal_wins": (None, True), "causal_alone": (None, True)}
    return wins.get(declared().causal_with_mask, (mask, True))


def visible_keys(
    shape: tuple[int, ...],
    mask: Any = None,
    bias: Any = None,
    causal: bool = False,
    offset: Any = None,
    window: Any = (None, None),
) -> Any:
    """Return True for each key that a query sees. The mask, causality, the window, and a bias above
    −∞ must all allow it.
    """
    if mask is not None and causal:
        mask, causal = together(mask)
    p, j = query_positions(shape[-2], shape[-1], offset), np.arange(shape[-1])
    visible = in_window(p, j, *window) & (True if mask is None else mask) & (True if bias is None else bias > -np.inf)
    return np.broadcast_to(visible & not_after(j, p) if causal else visible, shape)


# -- Weights ---------------------------------------------------------------------------------------


def scaled(products: Array, width: int) -> Array:
    """Return the products divided by √width; a width of 0 divides by 1."""
    return np.asarray(products / np.sqrt(max(width, 1)))


def scale_of(width: int, scale: float | None) -> float:
    """Return the given scale, or the default: 1/√d, or 1."""
    if scale is not None:
        return scale
    return float(scaled(np.ones(()), width)) if declared().scale_default == "rsqrt" else 1.0


def softcapped(s: Array, softcap: float | None) -> Array:
    """Return the scores after the softcap: c·tanh(s/c)."""
    return s if softcap is None else softcap * np.tanh(s / softcap)


def softcap_slope(s: Array, softcap: float | None) -> Array:
    """Return the derivative of the softcap: 1 − tanh²(s/c)."""
    return np.ones(s.shape) if softcap is None else np.cosh(np.clip(s / softcap, -300, 300)) ** -2


def biased(t: Array, bias: Any) -> Array:
    """Return t + bias where the bias is finite, and t elsewhere."""
    return t if bias is None else t + np.where(bias > -np.inf, bias, 0.0)


def slopes_added(t: Array, alibi: Any, offset: Any) -> Array:
    """Return t plus ALiBi: the slope of each head times the negative distance."""
    if alibi is None:
        return t
    distances = key_distances(query_positions(t.shape[-2], t.shape[-1], offset), t.shape[-1])
    return np.asarray(t + alibi[:, None, None] * distances)


def key_distances(p: Any, n_k: int) -> Array:
    """−|p − j|, or j if the bias is the slope times the position of the key."""
    j = np.arange(n_k)
    return np.asarray(j + 0 * p if declared().alibi_reference == "key" else -np.abs(p - j), np.float64)


def logits_of(s: Array, softcap: float | None, bias: Any, alibi: Any = None, offset: Any = None) -> Array:
    """Return the scores after the softcap, the bias and ALiBi."""
    return slopes_added(biased(softcapped(s, softcap), bias), alibi, offset)


def sinks_of(sink: Any, largest: Array) -> Array:
    """Return exp(sink − largest) for each row; 0 without a sink."""
    return np.zeros(largest.shape) if sink is None else np.exp(sink[:, None, None] - largest)


def largest_logit(u: Array, may: Any, sink: Any) -> Array:
    """Return the largest logit of each row, including the sink; 0 for a row without visible keys
    and without a sink.
    """
    largest = u.max(-1, keepdims=True, where=may, initial=-np.inf)
    largest = largest if sink is None else np.maximum(largest, sink[:, None, None])
    return np.where(np.isneginf(largest), 0.0, largest)


def references(u: Array, may: Any, largest: Array) -> Array:
    """Return what is subtracted from the logits: the largest one of each row."""
    return largest


def exponentials_of_logits(u: Array, may: Any, reference: Array) -> Array:
    """Return exp(logit − reference) for each visible key, and 0 for the others."""
    return np.exp(np.where(may, u - reference, -np.inf))


def sum_of_exponentials(u: Array, may: Any, reference: Array) -> Array:
    """Return Σ exp(logit − reference) over the visible keys. A step of its own, without
    `exponentials_of_logits`: a bug may be in one of the two.
    """
    return np.asarray(np.exp(np.where(may, u - reference, -np.inf)).sum(-1, keepdims=True))


def logarithm(x: Array) -> Array:
    """log x in the base of log-sum-exps, without a warning; −∞ for 0."""
    with np.errstate(divide="ignore"):
        return np.log2(x) if declared().lse_base == "2" else np.log(x)


def exponential(x: Array) -> Array:
    """The base of log-sum-exps to the power x: the inverse of `logarithm`."""
    return np.exp2(x) if declared().lse_base == "2" else np.exp(x)


def in_lse_base(x: Any) -> Any:
    """Return a natural logarithm, or its derivative, in the base of log-sum-exps."""
    return x / np.log(2) if declared().lse_base == "2" else x


def log_of_sum(largest: Array, total: Array) -> Array:
    """Return the log-sum-exp of each row; −∞ for a row without visible keys and without a sink."""
    return np.asarray((in_lse_base(largest) + logarithm(total))[..., 0])


def options_of(q: Array, k: Array, scale: float | None = None, **options: Any) -> Any:
    """Return the options of a call. A missing scale is filled in, and a bias that causality makes
    ineffective is left out.
    """
    if options.get("causal") and declared().causal_with_mask == "causal_alone":
        options["bias"] = None
    return {"scale": scale_of(q.shape[-1], scale), **options}


def weights_of(
    q: Array, k: Array, scale: float, softcap: float | None = None, sink: Any = None, **visible: Any
) -> tuple[Array, ...]:
    """Return the weights, those that depend on the scores, the sink's weight, the log-sum-exp, and
    the scores. `visible` are the options of `visible_keys`, and ALiBi's slopes.
    """
    alibi = visible.pop("alibi", None)
    s = scale * (q @ k.take(key_heads(q.shape[-3], k.shape[-3]), -3).mT)
    u = logits_of(s, softcap, visible.get("bias"), alibi, visible.get("offset"))
    may = visible_keys(s.shape, **visible)
    largest = largest_logit(u, may, sink)
    reference, sink_weight = references(u, may, largest), sinks_of(sink, largest)
    e, total = exponentials_of_logits(u, may, reference), sum_of_exponentials(u, may, reference) + sink_weight
    divisor = np.where(total == 0, 1.0, total)
    w = np.where(total == 0, dead_weight(s.shape[-1]), e / divisor)
    return w, responding(w, may), sink_weight / divisor, log_of_sum(largest, total), s


def thinned(x: Array, dropout_mask: Any, dropout: float | None) -> Array:
    """Return weights, or their gradients, after dropout: x / (1 − p) where the mask keeps them, and 0
    elsewhere.
    """
    return x if dropout_mask is None else np.asarray(x * (dropout_mask / (1 - (dropout or 0.0))))


def thinned_forward(w: Array, dropout_mask: Any, dropout: float | None) -> Array:
    """Return the weights that multiply the values in the forward pass."""
    return thinned(w, dropout_mask, dropout)


def attention(
    q: Array, k: Array, v: Array, *, dropout_mask: Any = None, dropout: float | None = None, **options: Any
) -> tuple[Array, Array]:
    """Return attention's output, the weights times the values, and the log-sum-exp. The arrays may hold
    codes, with their scales among the options.
    """
    scales = tuple(options.pop(name, None) for name in ("q_scale", "k_scale", "v_scale"))
    q, k, v = numbers_of((q, k, v), scales, key_heads(q.shape[-3], k.shape[-3]))
    w, _, sink_weight, lse, _ = weights_of(q, k, **options_of(q, k, **options))
    w = thinned_forward(w, dropout_mask, dropout)
    return averages(w, v.take(key_heads(q.shape[-3], k.shape[-3]), -3), sink_weight == 0), lse


# -- Derivatives -----------------------------------------------------------------------------------


def logit_gradient(w: Array, of_weights: Array, delta: Array, of_lse: Array) -> Array:
    """Return the gradient of the logits: w ⊙ (T − δ + g_lse), with the weights w, their gradients
    T, and the gradient g_lse of the log-sum-exp.
    """
    return w * (of_weights - delta + of_lse)


def shared(x: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient of an array of this shape that was broadcast: the sum of x over the axes
    along which it was broadcast.
    """
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return np.asarray(x.sum(tuple(axis for axis, length in enumerate(shape) if length == 1), keepdims=True))


def bias_gradient(du: Array, bias: Any) -> Any:
    """Return the gradient of the bias, in the shape of the bias."""
    return None if bias is None else shared(du, bias.shape)


def sink_gradient(of_sink: Array, delta: Array, of_lse: Array, sink: Any) -> Any:
    """Return the gradient of the sinks: Σ w_sink·(g_lse − δ) over rows and batch."""
    return None if sink is None else shared(of_sink * (of_lse - delta), (*sink.shape, 1, 1))[:, 0, 0]


def group_sums(x: Array, heads: Any, groups: int) -> Array:
    """Return the sums over the query heads that share a key head."""
    return np.stack([x[..., heads == head, :, :].sum(-3) for head in range(groups)], -3)


def attention_vjp(
    q: Array, k: Array, v: Array, grad_out: Array, *, grad_lse: Any = None, **options: Any
) -> tuple[Any, ...]:
    """Return the gradients of Σ grad_out ⊙ out + Σ grad_lse ⊙ lse with respect to q, k, v, the bias
    and the sinks.
    """
    bias, sink = options.get("bias"), options.get("sink")
    drops = {name: options.pop(name, None) for name in ("dropout_mask", "dropout")}
    heads, groups, options = key_heads(q.shape[-3], k.shape[-3]), k.shape[-3], options_of(q, k, **options)
    w, live, sink_weight, _, s = weights_of(q, k, **options)
    grad_weights = thinned(grad_out @ v.take(heads, -3).mT, **drops)
    delta = (w * grad_weights).sum(-1, keepdims=True)
    of_lse = np.zeros(()) if grad_lse is None else in_lse_base(grad_lse[..., None])
    du = logit_gradient(live, grad_weights, delta, of_lse)
    ds = options["scale"] * du * softcap_slope(s, options.get("softcap"))
    dk, dv = (group_sums(x.mT @ y, heads, groups) for x, y in ((ds, q), (thinned(w, **drops), grad_out)))
    dbias = bias_gradient(du if bias is options.get("bias") else 0.0 * du, bias)
    return ds @ k.take(heads, -3), dk, dv, dbias, sink_gradient(sink_weight, delta, of_lse, sink)


def attention_jvp(
    q: Array,
    k: Array,
    v: Array,
    dq: Array,
    dk: Array,
    dv: Array,
    *,
    dbias: Any = None,
    dsink: Any = None,
    **options: Any,
) -> tuple[Array, Array]:
    """Return the derivatives of the output and of the log-sum-exp in the direction (dq, dk, dv,
    dbias, dsink).
    """
    heads, options = key_heads(q.shape[-3], k.shape[-3]), options_of(q, k, **options)
    w, live, sink_weight, _, s = weights_of(q, k, **options)
    ds = options["scale"] * (dq @ k.take(heads, -3).mT + q @ dk.take(heads, -3).mT)
    du = softcap_slope(s, options.get("softcap")) * ds + (
        0.0 if dbias is None or options.get("bias") is None else dbias
    )
    dlse = (live * du).sum(-1, keepdims=True) + (0.0 if dsink is None else sink_weight * dsink[:, None, None])
    return (live * (du - dlse)) @ v.take(heads, -3) + averages(w, dv.take(heads, -3), sink_weight == 0), in_lse_base(
        dlse[..., 0]
    )


# -- Parts, and ALiBi ------------------------------------------------------------------------------


def merge_weights(lse_a: Array, lse_b: Array) -> tuple[Array, Array, Array]:
    """Return the larger of two log-sum-exps (0 if both are −∞), and the weight of each part
    relative to it.
    """
    largest = np.maximum(lse_a, lse_b)
    largest = np.where(np.isneginf(largest), 0.0, largest)
    return largest, exponential(lse_a - largest), exponential(lse_b - largest)


def merge_attention(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """Return the output and the log-sum-exp over both parts. The output of a part with weight 0 is
    not read.
    """
    largest, a, b = merge_weights(lse_a, lse_b)
    weighted = (np.where(w[..., None] == 0, 0.0, w[..., None] * x) for w, x in ((a, out_a), (b, out_b)))
    total = a + b
    out = sum(weighted, np.zeros(())) / np.where(total == 0, 1.0, total)[..., None]
    is_undefined = (total == 0)[..., None] & (declared().dead_rows == "nan")
    return np.where(is_undefined, np.nan, out), largest + logarithm(total)


def slope_exponents(num_heads: int) -> Array:
    """8h/m for h = 1 … m, with m the largest power of two up to the number of heads; then every
    second exponent for 2m heads. With geometric slopes, m is the number of heads.
    """
    if declared().alibi_slopes == "geometric":
        return np.arange(1, num_heads + 1) * 8 / num_heads
    m = 1 << (num_heads.bit_length() - 1)
    return np.concatenate([np.arange(1, m + 1) * 8 / m, np.arange(1, 2 * (num_heads - m), 2) * 4 / m])


def alibi_slopes(num_heads: int) -> Array:
    """Return 2^(−exponent) for each head."""
    return 2.0 ** -slope_exponents(num_heads)


def alibi_distances(n_q: int, n_k: int, offset: Any) -> Array:
    """−|p − j|, or j if the bias is the slope times the position of the key."""
    return key_distances(query_positions(n_q, n_k, offset)[0], n_k)


def alibi_bias(num_heads: int, n_q: int, n_k: int, *, offset: Any = None) -> Array:
    """Return the ALiBi bias: the slope of each head times the negative distance."""
    return alibi_slopes(num_heads)[:, None, None] * alibi_distances(n_q, n_k, offset)
