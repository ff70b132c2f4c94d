"""Attention with its features in NumPy, in tiles of keys with a running maximum, as kernels compute
it.

The softmax is online: each row keeps a maximum, a sum and an output, and a tile with a larger logit
rescales them. A row with a sink begins at the sink. Tiles without a visible key are skipped. The
backward pass computes the weights again from the saved log-sum-exp (Dao, FlashAttention-2), and
adds up the gradients of all query heads that share a key head.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from properties.contract.implementation import Implementation
from systems.taken_features import TAKEN

__all__ = ["IMPLEMENTATIONS"]

Array = NDArray[Any]
_TILE = 16


class _Logits:
    """The logits of tiles of keys, in grouped heads (…, H_kv, G, n_q, tile), for q, k and the
    options.
    """

    def __init__(self, q: Array, k: Array, **options: Any) -> None:
        self.kind, self.options = q.dtype.type, options
        self.shape = (*q.shape[:-3], k.shape[-3], q.shape[-3] // max(k.shape[-3], 1), q.shape[-2], k.shape[-2])
        self.q, self.k = q.reshape(*self.shape[:-1], q.shape[-1]), k[..., None, :, :]
        self.scale = self.kind(
            options.get("scale") if options.get("scale") is not None else max(q.shape[-1], 1) ** -0.5
        )
        self.full = (*q.shape[:-1], k.shape[-2])

    def tiles(self) -> Iterator[slice]:
        """The tiles with a key that is visible to some query."""
        for first in range(0, self.shape[-1], _TILE):
            tile = slice(first, min(first + _TILE, self.shape[-1]))
            if self.visible(tile).any():
                yield tile

    def grouped(self, x: Array, tile: slice) -> Any:
        """A tile of an array that broadcasts to the scores, in grouped heads."""
        return np.broadcast_to(x, self.full)[..., tile].reshape(*self.shape[:-1], tile.stop - tile.start)

    def visible(self, tile: slice) -> Any:
        """True at the keys of a tile that each query sees."""
        options, n_q = self.options, self.shape[-2]
        first = np.asarray(0 if options.get("offset") is None else options["offset"])
        p, j = first[..., None, None, None, None] + np.arange(n_q)[:, None], np.arange(self.shape[-1])[tile]
        left, right = options.get("window") or (None, None)
        seen = np.ones((*self.shape[:-1], len(j)), bool)
        seen &= True if left is None else p - j <= left
        seen &= True if right is None else j - p <= right
        seen &= j <= p if options.get("causal") else True
        seen &= True if options.get("mask") is None else self.grouped(options["mask"], tile)
        return seen & (True if options.get("bias") is None else self.grouped(options["bias"], tile) > -np.inf)

    def of(self, tile: slice) -> tuple[Array, Any]:
        """The logits of a tile, −∞ at masked keys, and the derivative of the softcap."""
        s = self.scale * (self.q @ self.k[..., tile, :].swapaxes(-1, -2))
        softcap, bias = self.options.get("softcap"), self.options.get("bias")
        bent = None if softcap is None else np.tanh(s / self.kind(softcap))
        t = s if bent is None else self.kind(softcap) * bent
        u = t if bias is None else t + np.maximum(self.grouped(bias, tile), np.finfo(s.dtype).min)
        return np.where(self.visible(tile), u, self.kind(-np.inf)), 1 if bent is None else (1 - bent) * (1 + bent)

    def sinks(self) -> Array:
        """The sink of each row; −∞ without one."""
        sink = self.options.get("sink")
        by_head = np.full(self.shape[-4] * self.shape[-3], -np.inf) if sink is None else sink
        return np.broadcast_to(by_head.reshape(*self.shape[-4:-2], 1, 1).astype(self.kind), (*self.shape[:-1], 1))


def _forward(u: _Logits, v: Array) -> tuple[Array, Array]:
    largest = u.sinks()
    total = np.isfinite(largest).astype(u.kind)
    out = np.zeros((*u.shape[:-1], v.shape[-1]), u.kind)
    for tile in u.tiles():
        logits, _ = u.of(tile)
        new = np.maximum(largest, logits.max(-1, keepdims=True))
        shift = np.where(np.isneginf(new), u.kind(0), new)
        rescale, e = np.exp(largest - shift), np.exp(logits - shift)
        total, out = total * rescale + e.sum(-1, keepdims=True), out * rescale + e @ v[..., None, tile, :]
        largest = new
    with np.errstate(divide="ignore"):
        lse = np.where(total > 0, largest + np.log(total), u.kind(-np.inf))
    return out / np.where(total > 0, total, u.kind(1)), lse


def attention(q: Array, k: Array, v: Array, **options: Any) -> tuple[Array, Array]:
    """The output and the log-sum-exp."""
    out, lse = _forward(_Logits(q, k, **options), v)
    return out.reshape(*q.shape[:-1], v.shape[-1]), lse.reshape(q.shape[:-1])


def attention_vjp(
    q: Array, k: Array, v: Array, grad_out: Array, *, grad_lse: Any = None, **options: Any
) -> Sequence[Any]:
    """The gradients with respect to q, k, v, the bias and the sinks."""
    u = _Logits(q, k, **options)
    out, lse = _forward(u, v)
    finite = np.where(np.isneginf(lse), u.kind(0), lse)
    g = grad_out.reshape(*u.shape[:-1], v.shape[-1])
    from_lse = u.kind(0) if grad_lse is None else grad_lse.reshape(*u.shape[:-1], 1)
    shift = from_lse - (g * out).sum(-1, keepdims=True)
    dq, dk, dv, du = np.zeros_like(u.q), np.zeros_like(k), np.zeros_like(v), np.zeros(u.shape, u.kind)
    for tile in u.tiles():
        logits, slope = u.of(tile)
        w = np.exp(logits - finite)
        du[..., tile] = w * (g @ v[..., None, tile, :].swapaxes(-1, -2) + shift)
        ds = u.scale * du[..., tile] * slope
        dq += ds @ u.k[..., tile, :]
        dk[..., tile, :], dv[..., tile, :] = ((x.swapaxes(-1, -2) @ y).sum(-3) for x, y in ((ds, u.q), (w, g)))
    bias, sink = options.get("bias"), options.get("sink")
    grad_bias = None if bias is None else _summed(du.reshape(u.full), bias.shape)
    grad_sink = None
    if sink is not None:
        by_row = (np.exp(u.sinks() - finite) * shift).reshape(*q.shape[:-1], 1)
        grad_sink = _summed(by_row, (*sink.shape, 1, 1)).reshape(-1)
    return dq.reshape(q.shape), dk, dv, grad_bias, grad_sink


def _summed(x: Array, shape: tuple[int, ...]) -> Array:
    """The sum of x over the axes along which an array of this shape is broadcast."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return np.asarray(x.sum(tuple(axis for axis, n in enumerate(shape) if n == 1), keepdims=True))


def merge_attention(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array) -> tuple[Array, Array]:
    """The output and the log-sum-exp over two parts of the keys.

    The weights of the parts are e^(lse_a − lse) and e^(lse_b − lse).
    """
    lse = np.logaddexp(lse_a, lse_b)
    finite = np.where(np.isneginf(lse), lse.dtype.type(0), lse)[..., None]
    a, b = (
        np.where(np.isneginf(y)[..., None], 0, np.exp(y[..., None] - finite) * x)
        for x, y in ((out_a, lse_a), (out_b, lse_b))
    )
    return a + b, lse


IMPLEMENTATIONS = [
    Implementation(
        name=f"NumPy tiled {name}",
        operations={"attention": attention, "attention_vjp": attention_vjp, "merge_attention": merge_attention},
        arithmetic=name,
        batch_ranks=(1, 2),
        features=TAKEN,
    )
    for name in ("float64", "float32")
]
