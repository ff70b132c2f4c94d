"""Every operation in NumPy: short, batched, in float64, in named steps that operations share.

A mutant changes one step in every operation that takes the step: `operations(scores_of=…)` returns
the operations with another step `scores_of`. All steps follow the conventions that are declared, see
`properties.bugs.declared`.

The reference proves no bound of its errors. It is an implementation like any other, and the
verifier tests it.
"""

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import (
    reference_attention,
    reference_frequencies,
    reference_latent,
    reference_layer,
    reference_packed,
    reference_paged,
    reference_positions,
    reference_quantised,
)
from properties.bugs.reference_attention import (
    alibi_bias,
    alibi_slopes,
    attention,
    attention_jvp,
    attention_vjp,
    averages,
    dead_weight,
    first_position,
    key_heads,
    merge_attention,
    not_after,
    responding,
    scaled,
)
from properties.bugs.reference_batched_caches import BatchedCached, Slotted
from properties.bugs.reference_caches import Buffered, Cached
from properties.bugs.reference_frequencies import rotary_frequencies
from properties.bugs.reference_latent import latent_attention
from properties.bugs.reference_layer import attention_layer, heads_mask, merge_heads, split_heads
from properties.bugs.reference_packed import packed_attention, packed_attention_vjp
from properties.bugs.reference_paged import paged_attention
from properties.bugs.reference_positions import (
    add_positional_encoding,
    apply_rotary,
    apply_rotary_vjp,
    inv_freq,
    learned_positional_encoding,
    position_ids,
    relative_bias,
    relative_position_index,
    rope,
    rope_angles,
    rope_tables,
    rope_vjp,
    rotary_embedding,
    rotary_tables,
    rotate_half,
    sinusoidal_positional_encoding,
    table_lookup,
)

__all__ = [
    "REFERENCE",
    "Mask",
    "dead_weight",
    "key_heads",
    "merge_heads",
    "operations",
    "responding",
    "scaled",
    "split_heads",
    "users_of",
]

Mask = Any  # a bool array that broadcasts to the scores, or None


# -- Attention -------------------------------------------------------------------------------------


def scores_of(q: Array, k: Array) -> Array:
    """Return q·kᵀ / √d."""
    return scaled(q @ k.mT, q.shape[-1])


def visible_entries(mask: Mask, shape: tuple[int, ...]) -> Any:
    """Return True for each visible entry of scores of this shape. Without a mask, return True for
    all entries.
    """
    return np.broadcast_to(True if mask is None else mask, shape)


def largest_of(scores: Array, visible: Any) -> Array:
    """Return the largest visible score of each row, or 0 for a fully masked row."""
    largest = scores.max(-1, keepdims=True, where=visible, initial=-np.inf)
    return np.where(np.isneginf(largest), 0.0, largest)


def exponentials(scores: Array, visible: Any, largest: Array) -> Array:
    """Return exp(score − largest), or 0 for masked entries."""
    return np.exp(np.where(visible, scores - largest, -np.inf))


def normalized(e: Array) -> Array:
    """Return each row divided by its sum; a row with the sum 0 is fully masked."""
    total = e.sum(-1, keepdims=True)
    return np.where(total == 0, dead_weight(e.shape[-1]), e / np.where(total == 0, 1.0, total))


def hard_masked_softmax(scores: Array, mask: Mask = None) -> Array:
    """Return the softmax over the visible entries of each row; masked entries are 0, and fully masked
    rows follow their convention.
    """
    visible = visible_entries(mask, scores.shape)
    return normalized(exponentials(scores, visible, largest_of(scores, visible)))


def row_term(weights: Array, grad_weights: Array) -> Array:
    """Return the term of each row in the backward of softmax: Σ w g."""
    return np.asarray((weights * grad_weights).sum(-1, keepdims=True))


def softmax_backward(weights: Array, grad_weights: Array) -> Array:
    """Return the gradient of the scores: w ⊙ (g − Σ w g) in each row."""
    return weights * (grad_weights - row_term(weights, grad_weights))


def hard_masked_softmax_vjp(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """Return the gradient of Σ grad_weights ⊙ weights with respect to the scores."""
    live = responding(hard_masked_softmax(scores, mask), visible_entries(mask, scores.shape))
    return softmax_backward(live, grad_weights)


def attention_weights(q: Array, k: Array, mask: Mask = None) -> Array:
    """Return the softmax of the scores over the visible keys."""
    return hard_masked_softmax(scores_of(q, k), mask)


def scaled_dot_product_attention(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Return attention's output: the weights times the values."""
    return averages(attention_weights(q, k, mask), v)


def scaled_dot_product_attention_vjp(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> tuple[Array, ...]:
    """Return the gradients of Σ grad_out ⊙ out with respect to q, k and v."""
    p = attention_weights(q, k, mask)
    live = responding(p, visible_entries(mask, p.shape))
    ds = scaled(softmax_backward(live, grad_out @ v.mT), q.shape[-1])
    return ds @ k, ds.mT @ q, p.mT @ grad_out


def scores_tangent(q: Array, k: Array, dq: Array, dk: Array) -> Array:
    """Return the derivative of the scores in the direction (dq, dk)."""
    return scores_of(dq, k) + scores_of(q, dk)


def scaled_dot_product_attention_jvp(
    q: Array, k: Array, v: Array, mask: Mask, dq: Array, dk: Array, dv: Array
) -> Array:
    """Return the derivative of the output in the direction (dq, dk, dv)."""
    p = attention_weights(q, k, mask)
    live = responding(p, visible_entries(mask, p.shape))
    return softmax_backward(live, scores_tangent(q, k, dq, dk)) @ v + averages(p, dv)


def grouped_query_attention(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Return attention in which query head h uses key head h // (H / H_kv)."""
    each = key_heads(q.shape[-3], k.shape[-3])
    return scaled_dot_product_attention(q, k.take(each, -3), v.take(each, -3), mask)


def multi_head_attention(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask = None
) -> Array:
    """Return multi-head attention: attention of each head over its block of columns of the
    projections. The heads are then merged and projected.
    """
    q, k, v = (split_heads(x @ w, num_heads) for w in (wq, wk, wv))
    return merge_heads(scaled_dot_product_attention(q, k, v, heads_mask(mask))) @ wo


def token_gradient(grads: list[Array], weights: list[Array]) -> Array:
    """Return the gradient of x from the gradients of its projections."""
    return sum((g @ w.T for g, w in zip(grads, weights, strict=True)), np.zeros(()))


def summed(x: Array, rank: int) -> Array:
    """Return the sum over the batch axes. The batch shares the weights, so their gradient is this
    sum.
    """
    return np.asarray(x.sum(tuple(range(x.ndim - rank))))


def multi_head_attention_vjp(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask, grad_out: Array
) -> tuple[Array, ...]:
    """Return the gradients of Σ grad_out ⊙ out with respect to x and the four weights."""
    q, k, v = (split_heads(x @ w, num_heads) for w in (wq, wk, wv))
    heads = merge_heads(scaled_dot_product_attention(q, k, v, heads_mask(mask)))
    grad_heads = split_heads(grad_out @ wo.T, num_heads)
    grads = [merge_heads(g) for g in scaled_dot_product_attention_vjp(q, k, v, heads_mask(mask), grad_heads)]
    return (
        token_gradient(grads, [wq, wk, wv]),
        *(summed(x.mT @ g, 2) for g in grads),
        summed(heads.mT @ grad_out, 2),
    )


def multi_head_attention_jvp(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, num_heads: int, mask: Mask,
    dx: Array, dwq: Array, dwk: Array, dwv: Array, dwo: Array,
) -> Array:  # fmt: skip
    """Return the derivative of the output in the direction (dx, dwq, dwk, dwv, dwo)."""
    q, k, v = (split_heads(x @ w, num_heads) for w in (wq, wk, wv))
    dq, dk, dv = (split_heads(dx @ w + x @ dw, num_heads) for w, dw in ((wq, dwq), (wk, dwk), (wv, dwv)))
    heads = scaled_dot_product_attention(q, k, v, heads_mask(mask))
    dheads = scaled_dot_product_attention_jvp(q, k, v, heads_mask(mask), dq, dk, dv)
    return merge_heads(dheads) @ wo + merge_heads(heads) @ dwo


# -- Masks -----------------------------------------------------------------------------------------


def last_keys(n_q: int, n_k: int) -> Any:
    """Return the last key that causality shows to each query, as a column."""
    return first_position(n_q, n_k) + np.arange(n_q)[:, None]


def causal_mask(n_q: int, n_k: int | None = None) -> Any:
    """Return a mask that is True where key j is not after query i."""
    columns = n_q if n_k is None else n_k
    return not_after(np.arange(columns), last_keys(n_q, columns))


def padding_mask(lengths: Any, max_len: int) -> Any:
    """Return a mask that is True where position j is before the end of sequence b."""
    return np.arange(max_len) < lengths[:, None]


def left_padding_mask(lengths: Any, n: int) -> Any:
    """Return a mask that is True where position j is a token of sequence b, whose tokens come last."""
    return np.arange(n) >= n - lengths[:, None]


def document_mask(ids_q: Any, ids_k: Any) -> Any:
    """Return a mask that is True where query i and key j are in the same document."""
    return ids_q[:, None] == ids_k


def prefix_mask(prefix: int, n: int) -> Any:
    """Return a mask that is True where key j is in the prefix or not after query i."""
    positions = np.arange(n)
    return (positions < prefix) | not_after(positions, positions[:, None])


def chunked_mask(n: int, chunk: int, start: int) -> Any:
    """Return a mask that is True where key j is not after query i, in the same chunk of positions."""
    positions = np.arange(n)
    chunks = (start + positions) // chunk
    return (chunks[:, None] == chunks) & not_after(positions, positions[:, None])


def tree_mask(parents: Any) -> Any:
    """Return a mask that is True where key j is node i or one of its ancestors."""
    mask = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


def combine_masks(first: Any, second: Any) -> Any:
    """Return a mask that is True where both masks are True."""
    return first & second


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    """Return attention under the causal mask."""
    return scaled_dot_product_attention(q, k, v, causal_mask(q.shape[-2], k.shape[-2]))


# -- The operations, and mutants of their steps ----------------------------------------------------


decode, batched_decode = Cached(Buffered), BatchedCached(Slotted)

REFERENCE: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        scaled_dot_product_attention,
        scaled_dot_product_attention_vjp,
        scaled_dot_product_attention_jvp,
        grouped_query_attention,
        attention,
        attention_vjp,
        attention_jvp,
        latent_attention,
        packed_attention,
        packed_attention_vjp,
        paged_attention,
        merge_attention,
        alibi_slopes,
        alibi_bias,
        multi_head_attention,
        multi_head_attention_vjp,
        multi_head_attention_jvp,
        attention_layer,
        hard_masked_softmax,
        hard_masked_softmax_vjp,
        causal_mask,
        padding_mask,
        left_padding_mask,
        document_mask,
        prefix_mask,
        chunked_mask,
        tree_mask,
        combine_masks,
        causal_attention,
        position_ids,
        sinusoidal_positional_encoding,
        add_positional_encoding,
        learned_positional_encoding,
        table_lookup,
        relative_bias,
        relative_position_index,
        rope,
        rope_vjp,
        apply_rotary,
        apply_rotary_vjp,
        rotate_half,
        inv_freq,
        rotary_frequencies,
        rotary_embedding,
        rope_angles,
        rope_tables,
        rotary_tables,
    )
} | {"decode": decode, "batched_decode": batched_decode}
_PARTS = (
    reference_attention,
    reference_latent,
    reference_layer,
    reference_packed,
    reference_paged,
    reference_quantised,
    reference_frequencies,
    reference_positions,
)
_SCOPE = {name: x for part in _PARTS for name, x in vars(part).items()} | globals()
_OWN = (__name__, *(part.__name__ for part in _PARTS))
_FUNCTIONS = {name: f for name, f in _SCOPE.items() if isinstance(f, FunctionType) and f.__module__ in _OWN}


def operations(**steps: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return the operations with other functions in place of these steps: the same code with other
    global names.
    """
    scope = dict(_SCOPE)
    scope |= {name: FunctionType(f.__code__, scope, name, f.__defaults__) for name, f in _FUNCTIONS.items()}
    for name, f in _FUNCTIONS.items():
        scope[name].__kwdefaults__ = f.__kwdefaults__
    scope |= steps
    return {name: scope[name] for name in REFERENCE}


def users_of(*steps: str) -> tuple[str, ...]:
    """Return the names of the operations that contain one of these steps, or that are one of them."""
    reached = set(steps)
    while added := {name for name, names in _NAMES.items() if not reached.isdisjoint(names)} - reached:
        reached |= added
    return tuple(name for name in REFERENCE if name in reached)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


_NAMES = {name: frozenset(_names(f.__code__)) for name, f in _FUNCTIONS.items()}
