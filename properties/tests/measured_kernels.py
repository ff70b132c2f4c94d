"""Small kernels with mistakes that no known bug has. Each function makes the kernel from a flag:
with the mistake, or without.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles import Conventions
from properties import Implementation

__all__ = ["KERNELS", "softmax"]

SDPA = "scaled_dot_product_attention"
ONLY_EVEN = {"head_dim": lambda width: width % 2 == 0}


def softmax(scores: Any) -> tuple[Any, Any]:
    """The weights of scores, 0 in a row of -inf, and their log-sum-exps."""
    highest = scores.max(-1, initial=-np.inf, keepdims=True)
    shift = np.where(np.isfinite(highest), highest, 0.0)
    powers = np.exp(scores - shift)
    total = powers.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return powers / np.where(total == 0, 1, total), (np.log(total) + shift)[..., 0]


def scale_of(q: Any) -> float:
    """1/√d, and 1 for a width of 0."""
    return float(max(q.shape[-1], 1) ** -0.5)


def heads_of(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Keys and values, once for each query head."""
    group = q.shape[-3] // max(k.shape[-3], 1)
    return np.repeat(k, group, -3), np.repeat(v, group, -3)


def of_attention(name: str, function: Callable[..., Any], *features: str, **promises: Any) -> Implementation:
    """An implementation of attention with features, for sizes that are not 0."""
    supports = {"every size": lambda size: size > 0}
    return Implementation(name, {"attention": function}, features=("scale", *features), supports=supports, **promises)


def head_blocks(wrong: bool) -> Implementation:
    """Blocks of 4 heads; with the mistake, blocks are counted by the heads of a group."""

    def attention(q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
        heads, key_heads = q.shape[-3], k.shape[-3]
        group = heads // key_heads
        blocks = -(-group // 4)
        k, v = heads_of(q, k, v)
        weights, lse = softmax(q @ k.swapaxes(-1, -2) * (scale_of(q) if scale is None else scale))
        written = np.zeros(heads, bool)
        for block in range(key_heads * blocks):
            group_index, inner = divmod(block, group if wrong else blocks)
            first = group_index * group + inner * 4
            written[first : min(first + 4, (group_index + 1) * group)] = True
        return weights @ v * written[:, None, None], lse * written[:, None]

    return of_attention("head blocks", attention)


def right_side(wrong: bool) -> Implementation:
    """A window that ends at the last key; with the mistake, an open right side has n_k keys."""

    def attention(q: Any, k: Any, v: Any, *, scale: Any = None, window: Any = (None, None)) -> Any:
        n_q, n_k = q.shape[-2], k.shape[-2]
        left, right = window
        row, key = np.arange(n_q)[:, None] + n_k - n_q, np.arange(n_k)
        visible = np.ones((n_q, n_k), bool)
        if left is not None:
            visible &= key >= row - left
        if right is not None or (wrong and left is not None):
            visible &= key <= row + (n_k if right is None else right)
        k, v = heads_of(q, k, v)
        scores = q @ k.swapaxes(-1, -2) * (scale_of(q) if scale is None else scale)
        weights, lse = softmax(np.where(visible, scores, -np.inf))
        return weights @ v, lse

    return of_attention("right side", attention, "window", conventions=Conventions(causal="bottom_right"))


def first_row(wrong: bool) -> Implementation:
    """A kernel for one query; with the mistake, it is taken for up to 8, and leaves old memory."""
    pool = np.zeros(1 << 18)

    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        scores = q @ k.swapaxes(-1, -2) * scale_of(q)
        weights, _ = softmax(scores if mask is None else np.where(mask, scores, -np.inf))
        out = weights @ v
        memory = pool[: out.size].reshape(out.shape)
        rows = slice(1 if wrong and q.shape[-2] <= 8 and mask is None else None)
        memory[..., rows, :] = out[..., rows, :]
        return memory.copy()

    return Implementation("first row", {SDPA: attention})


def value_width(wrong: bool) -> Implementation:
    """A VJP; with the mistake, dq takes only as many channels of v and grad_out as keys have."""

    def vjp(q: Any, k: Any, v: Any, mask: Any, grad_out: Any) -> Any:
        scale, width = scale_of(q), q.shape[-1] if wrong else v.shape[-1]
        scores = q @ k.swapaxes(-1, -2) * scale
        weights, _ = softmax(scores if mask is None else np.where(mask, scores, -np.inf))
        delta = (weights @ v * grad_out).sum(-1, keepdims=True)
        part = grad_out[..., :width] @ v[..., :width].swapaxes(-1, -2)
        of_keys = weights * (grad_out @ v.swapaxes(-1, -2) - delta) * scale
        dq = weights * (part - delta) * scale @ k
        return dq, of_keys.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ grad_out

    return Implementation("value width", {f"{SDPA}_vjp": vjp})


def late_blocks(wrong: bool) -> Implementation:
    """Causal attention in blocks of 16 queries; with the mistake, the keys advance at half speed."""

    def attention(q: Any, k: Any, v: Any, *, scale: Any = None, causal: bool = False) -> Any:
        n_q, n_k = q.shape[-2], k.shape[-2]
        visible = np.arange(n_k) <= np.arange(n_q)[:, None] if causal else np.ones((n_q, n_k), bool)
        if wrong and causal and q.shape[-3] > 1:
            visible &= np.arange(n_k) <= np.arange(n_q)[:, None] - np.arange(n_q)[:, None] // 16 * 16 // 2
        k, v = heads_of(q, k, v)
        scores = q @ k.swapaxes(-1, -2) * (scale_of(q) if scale is None else scale)
        weights, lse = softmax(np.where(visible, scores, -np.inf))
        return weights @ v, lse

    return of_attention("late blocks", attention, "causal")


def padded_width(wrong: bool) -> Implementation:
    """Rows are loaded by a power of two; with the mistake, the next row's channels are not cut off."""

    def loaded(x: Any) -> Any:
        rows, width = x.shape[-2:]
        padded = 1 << max(width - 1, 0).bit_length()
        flat = np.concatenate([x.reshape(*x.shape[:-2], rows * width), np.zeros((*x.shape[:-2], padded))], -1)
        found = flat[..., np.arange(rows)[:, None] * width + np.arange(padded)]
        return found if wrong else found[..., :width]

    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        scores = loaded(q) @ loaded(k).swapaxes(-1, -2) * scale_of(q)
        return softmax(scores if mask is None else np.where(mask, scores, -np.inf))[0] @ v

    return Implementation("padded width", {SDPA: attention})


def split_keys(wrong: bool, least: int = 48) -> Implementation:
    """Decoding over many keys; with the mistake, the pointer to keys and values has no batch."""

    def attention(q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
        if wrong and q.ndim > 3 and q.shape[-2] <= 8 and k.shape[-2] >= least:
            k, v = (np.broadcast_to(x.reshape(-1, *x.shape[-3:])[:1], x.shape) for x in (k, v))
        k, v = heads_of(q, k, v)
        weights, lse = softmax(q @ k.swapaxes(-1, -2) * (scale_of(q) if scale is None else scale))
        return weights @ v, lse

    return of_attention("split keys", attention, batch_ranks=(1, 2))


def sink_of_a_key(wrong: bool) -> Implementation:
    """Attention with a sink; with the mistake, the sink is added to the score of key 0."""

    def attention(q: Any, k: Any, v: Any, *, scale: Any = None, sink: Any = None) -> Any:
        k, v = heads_of(q, k, v)
        scores = q @ k.swapaxes(-1, -2) * (scale_of(q) if scale is None else scale)
        if sink is not None and wrong:
            scores[..., 0] += sink[:, None]
        elif sink is not None:
            scores = np.concatenate([scores, np.broadcast_to(sink[:, None, None], (*scores.shape[:-1], 1))], -1)
        weights, lse = softmax(scores)
        return weights[..., : k.shape[-2]] @ v, lse

    return of_attention("sink of a key", attention, "sink")


def partner_lane(wrong: bool) -> Implementation:
    """A rotation of halves, 8 channels a lane; with the mistake, the partner is found by XOR."""

    def rope(x: Any, start_pos: int = 0) -> Any:
        width = x.shape[-1]
        half = width // 16
        lanes = np.arange(2 * half)
        partner = (lanes ^ half) % (2 * half) if wrong else (lanes + half) % (2 * half)
        other = x[..., (partner[:, None] * 8 + np.arange(8)).ravel()]
        angles = np.arange(start_pos, start_pos + x.shape[-2])[:, None] * 1e4 ** (-np.arange(0, width, 2) / width)
        sines = np.concatenate([-np.sin(angles), np.sin(angles)], -1)
        return x * np.tile(np.cos(angles), 2) + other * sines

    conventions = Conventions(rope_pairing="half", odd_lane="reject")
    return Implementation("partner lane", {"rope": rope}, conventions=conventions, supports={"head_dim": (64, 96, 128)})


KERNELS = {
    kernel.__name__: kernel
    for kernel in (
        *(head_blocks, right_side, first_row, value_width, late_blocks),
        *(padded_width, split_keys, sink_of_a_key, partner_lane),
    )
}
