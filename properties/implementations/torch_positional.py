"""A sinusoidal encoding and RoPE in torch, written the usual way: tables in the working precision, adjacent pairs."""

import math
from functools import partial

import numpy as np
import torch

from oracles import FLOAT32, FLOAT64, Arithmetic
from properties.implementation import Dtype, Implementation
from spec.tensor_core import Array

__all__ = ["IMPLEMENTATIONS"]


def _sinusoid(dtype: torch.dtype, seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    position = torch.arange(start_pos, start_pos + seq_len, dtype=dtype)[:, None]
    frequency = torch.exp(torch.arange(0, embed_dim, 2, dtype=dtype) * (-math.log(10000.0) / max(embed_dim, 1)))
    table = torch.empty(seq_len, embed_dim, dtype=dtype)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency[: embed_dim // 2])
    return np.asarray(table)


def _rope(x: Array, start_pos: int = 0) -> Array:
    x_ = torch.from_numpy(x)
    seq_len, head_dim = x.shape
    frequency = 1.0 / (10000.0 ** (torch.arange(0, head_dim, 2, dtype=x_.dtype) / max(head_dim, 1)))
    angle = torch.arange(start_pos, start_pos + seq_len, dtype=x_.dtype)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    even, odd = x_[:, 0::2], x_[:, 1::2]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).reshape(seq_len, head_dim)
    return np.asarray(turned)


def _implementation(dtype: Dtype, arithmetic: Arithmetic) -> Implementation:
    return Implementation(
        name=f"torch {dtype}",
        dtype=dtype,
        arithmetic=arithmetic,
        operations={"sinusoidal_positional_encoding": partial(_sinusoid, getattr(torch, dtype)), "rope": _rope},
        even_dims=True,
    )


IMPLEMENTATIONS = [_implementation("float64", FLOAT64), _implementation("float32", FLOAT32)]
