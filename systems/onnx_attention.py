"""ONNX's Attention, opset 23 to 25, in terms of `attention`: what its inputs and attributes mean,
in each version of the text.

    y, present_key, present_value, qk = onnx_attention(attend, q, k, v, attn_mask, past_key,
    past_value, nonpad_kv_seqlen, is_causal=1, …)

`attend` is any `attention` that follows `Conventions.onnx(version)`. The other way, `attention` by
an Attention that runs, is `systems.onnx_engines`.

Keys and values are those of a cache, then the new ones; query 0 stands behind the cache, or n_q
places before what is padding. Inputs may have three axes, (batch, length, heads·width). A mask that
ends before the keys do blocks the rest; one with three axes has heads. `qk_matmul_output_mode`
shows a stage of the weights: scores (0), capped (1), with the bias, and −∞ where masked (2),
weights (3); before 1.22 the cap came last, and so 1 and 2 are exchanged.

Source: onnx/onnx, onnx/defs/nn/defs.cc, Attention-23 to -25, as it is in 1.18, 1.20, 1.22 and 1.23.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["onnx_attention"]

Array = NDArray[Any]


def onnx_attention(
    attend: Callable[..., tuple[Array, Array]], q: Array, k: Array, v: Array, attn_mask: Any = None, past_key: Any = None,
    past_value: Any = None, nonpad_kv_seqlen: Any = None, *, scale: float | None = None, softcap: float = 0.0, is_causal: int = 0,
    left_window_size: int = -1, right_window_size: int = -1, q_num_heads: int | None = None, kv_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0, softmax_precision: int | None = None, version: str = "1.23",
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Y, present_key, present_value and qk_matmul_output.

    `softmax_precision` says what is rounded, and nothing of what is meant.
    Raises ValueError for one half of a cache, for a cache beside `nonpad_kv_seqlen`, and for three
    axes without numbers of heads.
    """
    if (past_key is None) != (past_value is None):
        raise ValueError("past_key or past_value is given alone, but should come with the other.")
    if past_key is not None and nonpad_kv_seqlen is not None:
        raise ValueError("nonpad_kv_seqlen is given beside a cache, but should be given without.")
    flat, text = q.ndim == 3, tuple(int(part) for part in version.split("."))
    if flat:
        if not (q_num_heads and kv_num_heads):
            raise ValueError("q has three axes, but q_num_heads and kv_num_heads are not both given, and should be.")
        heads = q_num_heads, kv_num_heads, kv_num_heads
        q, k, v = (x.reshape(*x.shape[:2], n, -1).swapaxes(1, 2) for x, n in zip((q, k, v), heads, strict=True))
    offset: Any = 0
    if past_key is not None:
        offset = past_key.shape[2] if text >= (1, 20) else 0
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    mask, bias = _masks(attn_mask, k.shape[2])
    if nonpad_kv_seqlen is not None:
        offset = nonpad_kv_seqlen - q.shape[2] if text >= (1, 23) else 0
        there = np.arange(k.shape[2]) < nonpad_kv_seqlen.reshape(-1, 1, 1, 1)
        mask = there if mask is None else mask & there
    left, right = (None if side < 0 else side for side in (left_window_size, right_window_size))
    options = {
        "mask": mask,
        "bias": bias,
        "scale": scale,
        "causal": bool(is_causal),
        "offset": offset,
        "window": (left, right),
    }
    out, _ = attend(q, k, v, **options, softcap=softcap or None)
    y = out.swapaxes(1, 2).reshape(*q.shape[:1], q.shape[2], -1) if flat else out
    return y, k, v, _stage(attend, q, k, options, softcap, qk_matmul_output_mode, text)


def _masks(attn_mask: Any, n_k: int) -> tuple[Any, Any]:
    """A mask of booleans, or one of numbers, for n_k keys."""
    if attn_mask is None:
        return None, None
    boolean = attn_mask.dtype == np.bool_
    missing = [(0, 0)] * (attn_mask.ndim - 1) + [(0, n_k - attn_mask.shape[-1])]
    whole = np.pad(attn_mask, missing, constant_values=False if boolean else -np.inf)
    return (whole, None) if boolean else (None, whole)


def _stage(
    attend: Callable[..., Any],
    q: Array,
    k: Array,
    options: dict[str, Any],
    softcap: float,
    mode: int,
    text: tuple[int, ...],
) -> Array:
    """A stage of the weights. These are read out by values of which each has a single 1; what is
    masked, by scores of 0.
    """
    ones = np.broadcast_to(np.eye(k.shape[2], dtype=q.dtype), (*k.shape[:3], k.shape[2]))
    if mode == 3:
        return np.asarray(attend(q, k, ones, **options, softcap=softcap or None)[0])
    group = q.shape[1] // k.shape[1]
    keys = np.tile(k, (1, group, 1, 1)) if text < (1, 20) else np.repeat(k, group, 1)
    stage: Array = (q @ keys.swapaxes(2, 3)) * (
        max(q.shape[3], 1) ** -0.5 if options["scale"] is None else options["scale"]
    )
    bias = 0.0 if options["bias"] is None else options["bias"]
    level = None if options["bias"] is None else np.where(np.isneginf(bias), bias, 0.0)
    may = np.asarray(attend(np.zeros_like(q), k, ones, **options | {"bias": level})[0]) > 0
    capping = ["cap"] if softcap else []
    steps = [*capping, "mask"] if text >= (1, 22) else ["mask", *capping]
    last = {0: 0, 1: 1 if text < (1, 22) else len(capping), 2: len(steps)}[mode]
    for step in steps[:last]:
        stage = softcap * np.tanh(stage / softcap) if step == "cap" else np.where(may, stage + bias, -np.inf)
    return stage
