"""The layer of attention in NumPy: a part of the reference. `properties.bugs.reference` explains steps."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array
from properties.bugs.reference_attention import attention

__all__ = [
    "attention_layer",
    "heads_mask",
    "layer_biases",
    "layer_scale",
    "layer_tokens",
    "layer_weights",
    "merge_heads",
    "output_with_bias",
    "split_heads",
]

Biases = dict[str, Any]


def layer_tokens(x: Array, context: Array) -> tuple[Array, Array, Array]:
    """Return the tokens that queries, keys and values are made of."""
    return x, context, context


def layer_weights(wq: Array, wk: Array, wv: Array, num_heads: int) -> tuple[Array, Array, Array]:
    """Return the weights of queries, keys and values."""
    return wq, wk, wv


def layer_biases(biases: Biases, num_heads: int, scale: float | None) -> Biases:
    """Return the biases of the four projections, by name."""
    return biases


def layer_scale(scale: float | None, x: Array) -> float | None:
    """Return the given scale; None for the default."""
    return scale


def split_heads(x: Array, num_heads: int) -> Array:
    """Return (…, n, heads·width) as (…, heads, n, width). Head h takes the h-th block of columns."""
    return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads).swapaxes(-2, -3)


def merge_heads(x: Array) -> Array:
    """Return the inverse of `split_heads`."""
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def heads_mask(mask: Any) -> Any:
    """Return the mask with one more axis, for the heads, which share the mask."""
    return None if mask is None else mask[..., None, :, :] if mask.ndim > 1 else mask


def output_with_bias(out: Array, bias: Array | None, sees_nothing: NDArray[np.bool_]) -> Array:
    """Return the output with its bias. `sees_nothing` (…, n_q, 1) is true for tokens that see no token."""
    return out if bias is None else out + bias


def attention_layer(x: Array, context: Array, *weights: Any, **options: Any) -> Array:
    """Return the output of a layer: attention of x over the context, between projections with biases.
    `weights` are wq, wk, wv and wo, and the number of query heads.
    """
    wq, wk, wv, wo, num_heads = weights
    scale, biases = options.get("scale"), {name: options.get(name) for name in ("bq", "bk", "bv", "bo")}
    given, mask = layer_biases(biases, num_heads, scale), options.get("mask")
    projections = zip(layer_tokens(x, context), layer_weights(wq, wk, wv, num_heads), ("bq", "bk", "bv"), strict=True)
    q, k, v = (y @ w if given[name] is None else y @ w + given[name] for y, w, name in projections)
    groups = k.shape[-1] * num_heads // q.shape[-1]
    heads = split_heads(q, num_heads), split_heads(k, groups), split_heads(v, groups)
    out, lse = attention(*heads, mask=heads_mask(mask), causal=options.get("causal"), scale=layer_scale(scale, x))
    return output_with_bias(merge_heads(out) @ wo, given["bo"], np.isneginf(lse[..., 0, :, None]))
