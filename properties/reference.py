"""Every operation as one would write it in NumPy: short, batched, in float64. The known bugs are slips made in this text.

It is no oracle: it proves nothing about its errors. It is an implementation like any other, and the verifier judges it.
"""

from typing import Any

import numpy as np

from oracles.ball import Array

__all__ = [
    "OPERATIONS",
    "add_positional_encoding",
    "angles",
    "apply_rotary",
    "apply_rotary_vjp",
    "attention_weights",
    "causal_attention",
    "causal_mask",
    "combine_masks",
    "grouped_query_attention",
    "hard_masked_softmax",
    "hard_masked_softmax_vjp",
    "inv_freq",
    "learned_positional_encoding",
    "merge_heads",
    "multi_head_attention",
    "multi_head_attention_jvp",
    "multi_head_attention_vjp",
    "padding_mask",
    "rope",
    "rope_angles",
    "rope_tables",
    "rope_vjp",
    "rotary_tables",
    "rotate_half",
    "rotated",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_jvp",
    "scaled_dot_product_attention_vjp",
    "scores_of",
    "sinusoidal_positional_encoding",
    "softmax_backward",
    "split_heads",
    "table_lookup",
    "transposed",
]

Mask = Any  # a bool array that broadcasts to the scores, or None


def transposed(x: Array) -> Array:
    """The last two axes exchanged."""
    return x.swapaxes(-1, -2)


def scores_of(q: Array, k: Array) -> Array:
    """q·kᵀ / √d."""
    return np.asarray(q @ transposed(k) / np.sqrt(max(q.shape[-1], 1)))


def hard_masked_softmax(scores: Array, mask: Mask = None) -> Array:
    """The softmax over the allowed entries of each row; blocked entries and rows without an allowed entry are 0."""
    allowed = np.broadcast_to(True if mask is None else mask, scores.shape)
    largest = scores.max(-1, keepdims=True, where=allowed, initial=-np.inf)
    largest[np.isneginf(largest)] = 0.0  # a row with no allowed entry
    e = np.exp(np.where(allowed, scores - largest, -np.inf))
    total = e.sum(-1, keepdims=True)
    total[total == 0] = 1.0
    return np.asarray(e / total)


def softmax_backward(weights: Array, grad_weights: Array) -> Array:
    """The gradient of the scores: w ⊙ (g − Σ w g) in each row."""
    return np.asarray(weights * (grad_weights - (weights * grad_weights).sum(-1, keepdims=True)))


def hard_masked_softmax_vjp(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """The gradient of Σ grad_weights ⊙ weights with respect to the scores."""
    return softmax_backward(hard_masked_softmax(scores, mask), grad_weights)


def attention_weights(q: Array, k: Array, mask: Mask = None) -> Array:
    """The softmax of the scores over the allowed keys."""
    return hard_masked_softmax(scores_of(q, k), mask)


def scaled_dot_product_attention(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The weights times the values."""
    return attention_weights(q, k, mask) @ v


def scaled_dot_product_attention_vjp(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> tuple[Array, ...]:
    """The gradients of Σ grad_out ⊙ out with respect to q, k and v."""
    p = attention_weights(q, k, mask)
    ds = softmax_backward(p, grad_out @ transposed(v)) / np.sqrt(max(q.shape[-1], 1))
    return ds @ k, transposed(ds) @ q, transposed(p) @ grad_out


def scaled_dot_product_attention_jvp(q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array) -> Array:
    """The derivative of the output in the direction (dq, dk, dv)."""
    p = attention_weights(q, k, mask)
    return softmax_backward(p, scores_of(dq, k) + scores_of(q, dk)) @ v + p @ dv


def grouped_query_attention(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Attention of query head h over key head h // (H / H_kv)."""
    group = q.shape[-3] // k.shape[-3]
    return scaled_dot_product_attention(q, np.repeat(k, group, axis=-3), np.repeat(v, group, axis=-3), mask)


def split_heads(x: Array, num_heads: int) -> Array:
    """(…, n, heads·width) as (…, heads, n, width): head h has the h-th block of columns."""
    return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads).swapaxes(-2, -3)


def merge_heads(x: Array) -> Array:
    """The inverse of `split_heads`."""
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _heads_mask(mask: Mask) -> Mask:
    """A mask that all heads share."""
    return None if mask is None else mask[..., None, :, :] if mask.ndim > 1 else mask


def multi_head_attention(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None) -> Array:
    """Attention of each head over its block of the projections, merged and projected."""
    q, k, v = (split_heads(x @ w, num_heads) for w in (wq, wk, wv))
    return merge_heads(scaled_dot_product_attention(q, k, v, _heads_mask(mask))) @ wo


def multi_head_attention_vjp(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask, grad_out: Array
) -> tuple[Array, ...]:
    """The gradients of Σ grad_out ⊙ out with respect to x and the four weights."""
    q, k, v = (split_heads(x @ w, num_heads) for w in (wq, wk, wv))
    heads = merge_heads(scaled_dot_product_attention(q, k, v, _heads_mask(mask)))
    grad_heads = split_heads(grad_out @ wo.T, num_heads)
    grads = [merge_heads(g) for g in scaled_dot_product_attention_vjp(q, k, v, _heads_mask(mask), grad_heads)]
    dx = sum((g @ w.T for g, w in zip(grads, (wq, wk, wv), strict=True)), np.zeros(x.shape))
    return dx, *(_summed(transposed(x) @ g, 2) for g in grads), _summed(transposed(heads) @ grad_out, 2)


def multi_head_attention_jvp(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask,
    dx: Array, dwq: Array, dwk: Array, dwv: Array, dwo: Array,
) -> Array:  # fmt: skip
    """The derivative of the output in the direction (dx, dwq, dwk, dwv, dwo)."""
    q, k, v = (split_heads(x @ w, num_heads) for w in (wq, wk, wv))
    dq, dk, dv = (split_heads(dx @ w + x @ dw, num_heads) for w, dw in ((wq, dwq), (wk, dwk), (wv, dwv)))
    heads = scaled_dot_product_attention(q, k, v, _heads_mask(mask))
    dheads = scaled_dot_product_attention_jvp(q, k, v, _heads_mask(mask), dq, dk, dv)
    return merge_heads(dheads) @ wo + merge_heads(heads) @ dwo


def _summed(x: Array, rank: int) -> Array:
    """The sum over the batch axes: weights are shared by the batch."""
    return np.asarray(x.sum(tuple(range(x.ndim - rank))))


def causal_mask(n_q: int, n_k: int | None = None) -> Any:
    """True where key j is not after query i."""
    return np.arange(n_q if n_k is None else n_k) <= np.arange(n_q)[:, None]


def padding_mask(lengths: Any, max_len: int) -> Any:
    """True where position j is before the end of sequence b."""
    return np.arange(max_len) < lengths[:, None]


def combine_masks(first: Any, second: Any) -> Any:
    """True where both masks are."""
    return first & second


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    """Attention under the causal mask."""
    return scaled_dot_product_attention(q, k, v, causal_mask(q.shape[-2], k.shape[-2]))


def inv_freq(head_dim: int) -> Array:
    """10000^(−2i/head_dim) for each pair of lanes; an odd width's last lane begins a pair too."""
    return np.asarray(10000.0 ** (-2.0 * np.arange((head_dim + 1) // 2) / max(head_dim, 1)))


def angles(start_pos: int, seq_len: int, dim: int) -> Array:
    """The frequency of each pair times each position."""
    return np.arange(start_pos, start_pos + seq_len)[:, None] * inv_freq(dim)


def sinusoidal_positional_encoding(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """Sines in the even columns, cosines in the odd ones."""
    theta = angles(start_pos, seq_len, embed_dim)
    out = np.empty((seq_len, embed_dim))
    out[:, 0::2] = np.sin(theta)
    out[:, 1::2] = np.cos(theta[:, : embed_dim // 2])
    return out


def add_positional_encoding(x: Array, pos: Array) -> Array:
    """x + pos."""
    return x + pos


def learned_positional_encoding(table: Array, seq_len: int, start_pos: int = 0) -> Array:
    """The rows of the table from the start position on."""
    return table[start_pos : start_pos + seq_len].copy()


def table_lookup(table: Array, indices: Any) -> Array:
    """The row of the table at each index."""
    return np.asarray(table[indices])


def rope_angles(seq_len: int, head_dim: int, start_pos: int = 0) -> Array:
    """The angles of a chunk's positions."""
    return angles(start_pos, seq_len, head_dim)


def rotary_tables(start_pos: int, seq_len: int, dim: int) -> tuple[Array, Array]:
    """Cosines and sines for each lane: both lanes of a pair have the same angle."""
    theta = np.repeat(angles(start_pos, seq_len, dim), 2, axis=-1)[:, :dim]
    return np.cos(theta), np.sin(theta)


def rope_tables(seq_len: int, head_dim: int, start_pos: int = 0) -> tuple[Array, Array]:
    """Cosines and sines of a chunk's positions, for each lane."""
    return rotary_tables(start_pos, seq_len, head_dim)


def rotate_half(x: Array) -> Array:
    """(−second half, first half) of the lanes."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([-second, first], axis=-1)


def rotated(x: Array) -> Array:
    """(−second, first) of each pair of lanes; the unpaired last lane of an odd dim as it is."""
    out = x.copy()
    pairs = x.shape[-1] // 2 * 2
    out[..., 0:pairs:2], out[..., 1:pairs:2] = -x[..., 1:pairs:2], x[..., 0:pairs:2]
    return out


def apply_rotary(x: Array, cos: Array, sin: Array) -> Array:
    """x ⊙ cos + rotated(x) ⊙ sin."""
    return x * cos + rotated(x) * sin


def apply_rotary_vjp(x: Array, cos: Array, sin: Array, grad_out: Array) -> Array:
    """grad_out ⊙ cos + rotatedᵀ(grad_out ⊙ sin): the transpose turns each pair back."""
    pairs = x.shape[-1] // 2 * 2
    back = rotated(grad_out * sin)
    back[..., :pairs] *= -1
    return grad_out * cos + back


def rope(x: Array, start_pos: int = 0) -> Array:
    """Each pair of lanes rotated by its angle."""
    return apply_rotary(x, *rotary_tables(start_pos, *x.shape[-2:]))


def rope_vjp(x: Array, grad_out: Array, start_pos: int = 0) -> Array:
    """The gradient of Σ grad_out ⊙ rope(x)."""
    return apply_rotary_vjp(x, *rotary_tables(start_pos, *x.shape[-2:]), grad_out)


OPERATIONS = {
    f.__name__: f
    for f in (
        scaled_dot_product_attention,
        scaled_dot_product_attention_vjp,
        scaled_dot_product_attention_jvp,
        grouped_query_attention,
        multi_head_attention,
        multi_head_attention_vjp,
        multi_head_attention_jvp,
        hard_masked_softmax,
        hard_masked_softmax_vjp,
        causal_mask,
        padding_mask,
        combine_masks,
        causal_attention,
        sinusoidal_positional_encoding,
        add_positional_encoding,
        learned_positional_encoding,
        table_lookup,
        rope,
        rope_vjp,
        apply_rotary,
        apply_rotary_vjp,
        rotate_half,
        inv_freq,
        rope_angles,
        rope_tables,
    )
}
