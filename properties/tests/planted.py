"""Torch adapters, each with one mistake planted: what the verifier must find."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from properties.implementation import Implementation
from properties.implementations.torch_attention import IMPLEMENTATIONS as ATTENTION
from properties.implementations.torch_multi_head import IMPLEMENTATIONS as MULTI_HEAD
from properties.implementations.torch_positional import IMPLEMENTATIONS as POSITIONAL


def _formula(q: Any, k: Any, v: Any, mask: Any = None, scale: float | None = None, dim: int = -1) -> np.ndarray:
    q, k, v = map(torch.from_numpy, (q, k, v))
    scores = q @ k.T * (scale or 1 / math.sqrt(max(q.shape[1], 1)))
    if mask is not None:
        scores = scores.masked_fill(~torch.from_numpy(mask), -math.inf)
    return np.asarray(torch.softmax(scores, dim).nan_to_num() @ v)


def _planted(implementation: Implementation, **operations: Callable[..., Any]) -> dict[str, list[Implementation]]:
    return {"planted": [replace(implementation, name="planted", operations=operations)]}


_sdpa = ATTENTION[0].operations["scaled_dot_product_attention"]
_sinusoid, _rope = (POSITIONAL[0].operations[name] for name in ("sinusoidal_positional_encoding", "rope"))


def _exchanged_sinusoid(seq_len: int, embed_dim: int, start_pos: int = 0) -> np.ndarray:
    table = _sinusoid(seq_len, embed_dim, start_pos).copy()
    pairs = table[:, : embed_dim // 2 * 2]
    pairs[:, 0::2], pairs[:, 1::2] = pairs[:, 1::2].copy(), pairs[:, 0::2].copy()
    return table


def _exchanged_rope(x: np.ndarray, start_pos: int = 0) -> np.ndarray:
    """(a cos − b sin, b cos + a sin) with cos and sin exchanged is (a sin − b cos, b sin + a cos)."""
    a, b = x[:, 0::2], x[:, 1::2]
    cos_and_sin = _rope(np.stack([np.ones_like(a), np.zeros_like(a)], -1).reshape(x.shape), start_pos)
    cos, sin = cos_and_sin[:, 0::2], cos_and_sin[:, 1::2]
    return np.stack([a * sin - b * cos, b * sin + a * cos], -1).reshape(x.shape)


def _in_bfloat16(x: np.ndarray) -> np.ndarray:
    return np.asarray(torch.from_numpy(x).bfloat16().double())


def _sevens_on_dead_rows(*inputs: Any) -> np.ndarray:
    """NaN where the declared deviation has it, but 7 everywhere else."""
    out = MULTI_HEAD[0].operations["multi_head_attention"](*inputs)
    return np.where(np.isnan(out), out, 7.0) if np.isnan(out).any() else out


FAULTS = {
    "mask inverted": _planted(
        ATTENTION[0], scaled_dot_product_attention=lambda q, k, v, mask=None: _sdpa(q, k, v, None if mask is None else ~mask)
    ),
    "scale left out": _planted(ATTENTION[0], scaled_dot_product_attention=lambda q, k, v, mask=None: _formula(q, k, v, mask, scale=1.0)),
    "causal off by one": _planted(ATTENTION[0], causal_attention=lambda q, k, v: _sdpa(q, k, v, np.tri(len(q), k=1, dtype=bool))),
    "softmax over the wrong axis": _planted(
        ATTENTION[0], scaled_dot_product_attention=lambda q, k, v, mask=None: _formula(q, k, v, mask, dim=-2)
    ),
    "cos and sin exchanged in the sinusoid": _planted(POSITIONAL[0], sinusoidal_positional_encoding=_exchanged_sinusoid),
    "cos and sin exchanged in RoPE": _planted(POSITIONAL[0], rope=_exchanged_rope),
    "start position ignored in the sinusoid": _planted(
        POSITIONAL[0], sinusoidal_positional_encoding=lambda n, d, start_pos=0: _sinusoid(n, d)
    ),
    "start position ignored in RoPE": _planted(POSITIONAL[0], rope=lambda x, start_pos=0: _rope(x)),
    "raises": _planted(POSITIONAL[0], rope=lambda x, start_pos=0: 1 // (len(x) < 3) * _rope(x, start_pos)),
    "wrong shape": _planted(POSITIONAL[0], rope=lambda x, start_pos=0: _rope(x, start_pos)[:1]),
    "writes into its input": _planted(POSITIONAL[0], rope=lambda x, start_pos=0: np.multiply(_rope(x, start_pos), 1, out=x)),
    "inputs rounded to bfloat16": _planted(
        ATTENTION[0], scaled_dot_product_attention=lambda q, k, v, mask=None: _sdpa(*map(_in_bfloat16, (q, k, v)), mask)
    ),
    "too many values": _planted(ATTENTION[0], scaled_dot_product_attention=lambda *inputs: (_sdpa(*inputs), 1)),
    "another type of number": _planted(ATTENTION[0], scaled_dot_product_attention=lambda *inputs: _sdpa(*inputs).astype(complex)),
    "no array": _planted(ATTENTION[0], scaled_dot_product_attention=lambda *inputs: _sdpa(*inputs).tolist()),
    "exits": _planted(ATTENTION[0], scaled_dot_product_attention=lambda *inputs: sys.exit(0)),
    "a declared deviation hides another": {
        "planted": [replace(MULTI_HEAD[0], name="planted", operations={"multi_head_attention": _sevens_on_dead_rows})]
    },
    "returns NaN": _planted(POSITIONAL[0], rope=lambda x, start_pos=0: np.full_like(x, np.nan)),
}
