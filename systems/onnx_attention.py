"""ONNX's Attention, opset 23 to 25, in terms of `attention`: the meaning of its inputs and
attributes in each version of the text.

    y, present_key, present_value, qk = onnx_attention(attend, q, k, v, attn_mask, past_key,
    past_value, nonpad_kv_seqlen, is_causal=1, …)

`attend` is any `attention` that follows `Conventions.onnx(version)`. `systems.onnx_engines` goes
the other way: it computes `attention` by an engine that runs Attention.

The keys and values of a cache come before the new ones. Query 0 stands behind the cache, or n_q
places before the padding. Inputs may have three axes, (batch, length, heads·width). A mask that is
shorter than the keys masks the rest; a mask with three axes has heads. `qk_matmul_output_mode`
selects a stage of the weights: scores (0), capped scores (1), scores with the bias, and −∞ at
masked keys (2), weights (3). Before 1.22 the softcap came last, so 1 and 2 are exchanged.

Source: onnx/onnx, onnx/defs/nn/defs.cc, Attention-23 to -25, in versions 1.18, 1.20, 1.22 and 1.23.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Attributes", "Inputs", "onnx_attention"]

Array = NDArray[Any]


class Inputs(NamedTuple):
    """The optional inputs of Attention, by ONNX's names."""

    attn_mask: Any = None
    past_key: Any = None
    past_value: Any = None
    nonpad_kv_seqlen: Any = None


class Attributes(NamedTuple):
    """The attributes of Attention, by ONNX's names, and the version of ONNX whose text defines
    them.
    """

    scale: float | None = None
    softcap: float = 0.0
    is_causal: int = 0
    left_window_size: int = -1
    right_window_size: int = -1
    q_num_heads: int | None = None
    kv_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    softmax_precision: int | None = None
    version: str = "1.23"


def onnx_attention(
    attend: Callable[..., tuple[Array, Array]], q: Array, k: Array, v: Array, *optional: Any, **attributes: Any
) -> tuple[Array, Array, Array, Array]:
    """Y, present_key, present_value and qk_matmul_output.

    `optional` are the inputs attn_mask, past_key, past_value and nonpad_kv_seqlen, which may be
    None or absent. `Attributes` lists the attributes. `softmax_precision` selects a rounding, and
    does not change the real function. Raises ValueError for one half of a cache, for a cache beside
    `nonpad_kv_seqlen`, and for three axes without numbers of heads.
    """
    inputs, given = Inputs(*optional), Attributes(**attributes)
    _check(inputs)
    flat, version = q.ndim == 3, tuple(int(part) for part in given.version.split("."))
    if flat:
        q, k, v = _heads((q, k, v), given)
    offset: Any = 0
    if inputs.past_key is not None:
        offset = inputs.past_key.shape[2] if version >= (1, 20) else 0
        k, v = np.concatenate([inputs.past_key, k], 2), np.concatenate([inputs.past_value, v], 2)
    mask, bias = _masks(inputs.attn_mask, k.shape[2])
    if inputs.nonpad_kv_seqlen is not None:
        offset = inputs.nonpad_kv_seqlen - q.shape[2] if version >= (1, 23) else 0
        filled = np.arange(k.shape[2]) < inputs.nonpad_kv_seqlen.reshape(-1, 1, 1, 1)
        mask = filled if mask is None else mask & filled
    left, right = (None if side < 0 else side for side in (given.left_window_size, given.right_window_size))
    options = {
        "mask": mask,
        "bias": bias,
        "scale": given.scale,
        "causal": bool(given.is_causal),
        "offset": offset,
        "window": (left, right),
    }
    out, _ = attend(q, k, v, **options, softcap=given.softcap or None)
    y = out.swapaxes(1, 2).reshape(*q.shape[:1], q.shape[2], -1) if flat else out
    if given.qk_matmul_output_mode == 3:
        return y, k, v, np.asarray(attend(q, k, _unit_values(k), **options, softcap=given.softcap or None)[0])
    visible = _visible(attend, q, k, options)
    stages = _stages(_scores(q, k, given.scale, version), visible, bias, given.softcap, version)
    return y, k, v, stages[given.qk_matmul_output_mode]


def _check(inputs: Inputs) -> None:
    if (inputs.past_key is None) != (inputs.past_value is None):
        raise ValueError("past_key or past_value is given alone, but should come with the other.")
    if inputs.past_key is not None and inputs.nonpad_kv_seqlen is not None:
        raise ValueError("nonpad_kv_seqlen is given beside a cache, but should be given without.")


def _heads(arrays: tuple[Array, ...], given: Attributes) -> list[Array]:
    """Arrays (batch, heads, length, width) from q, k and v (batch, length, heads·width)."""
    if not (given.q_num_heads and given.kv_num_heads):
        raise ValueError("q has three axes, but q_num_heads and kv_num_heads are not both given, and should be.")
    heads = given.q_num_heads, given.kv_num_heads, given.kv_num_heads
    return [x.reshape(*x.shape[:2], n, -1).swapaxes(1, 2) for x, n in zip(arrays, heads, strict=True)]


def _masks(attn_mask: Any, n_k: int) -> tuple[Any, Any]:
    """The boolean mask, or the mask of numbers, for n_k keys; None for the other."""
    if attn_mask is None:
        return None, None
    boolean = attn_mask.dtype == np.bool_
    missing = [(0, 0)] * (attn_mask.ndim - 1) + [(0, n_k - attn_mask.shape[-1])]
    whole = np.pad(attn_mask, missing, constant_values=False if boolean else -np.inf)
    return (whole, None) if boolean else (None, whole)


def _unit_values(k: Array) -> Array:
    """Values that turn an output into weights: value j is 1 in column j and 0 elsewhere."""
    return np.broadcast_to(np.eye(k.shape[2], dtype=k.dtype), (*k.shape[:3], k.shape[2]))


def _visible(attend: Callable[..., Any], q: Array, k: Array, options: dict[str, Any]) -> Array:
    """True at the visible keys, which are the keys with a weight above 0 where all scores are 0."""
    bias = options["bias"]
    level = None if bias is None else np.where(np.isneginf(bias), bias, 0.0)
    weights = attend(np.zeros_like(q), k, _unit_values(k), **options | {"bias": level})[0]
    return np.asarray(weights) > 0


def _scores(q: Array, k: Array, scale: float | None, version: tuple[int, ...]) -> Array:
    """The scaled scores of all heads."""
    group = q.shape[1] // k.shape[1]
    keys = np.tile(k, (1, group, 1, 1)) if version < (1, 20) else np.repeat(k, group, 1)
    scores: Array = (q @ keys.swapaxes(2, 3)) * (max(q.shape[3], 1) ** -0.5 if scale is None else scale)
    return scores


def _stages(scores: Array, visible: Array, bias: Any, softcap: float, version: tuple[int, ...]) -> list[Array]:
    """The stages of the modes 0, 1 and 2, in the order that the version defines."""

    def capped(stage: Array) -> Array:
        return softcap * np.tanh(stage / softcap) if softcap else stage

    def masked(stage: Array) -> Array:
        return np.where(visible, stage + (0.0 if bias is None else bias), -np.inf)

    first, second = (capped, masked) if version >= (1, 22) else (masked, capped)
    return [scores, first(scores), second(first(scores))]
