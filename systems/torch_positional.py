"""A sinusoidal encoding and RoPE in torch: tables in the working precision, adjacent pairs."""

import math
from functools import partial
from typing import Any

import torch

from properties.contract.implementation import Implementation

__all__ = ["IMPLEMENTATIONS"]


def _sinusoid(dtype: torch.dtype, seq_len: int, embed_dim: int, start_pos: int = 0) -> torch.Tensor:
    position = torch.arange(start_pos, start_pos + seq_len, dtype=dtype)[:, None]
    frequency = torch.exp(torch.arange(0, embed_dim, 2, dtype=dtype) * (-math.log(10000.0) / max(embed_dim, 1)))
    table = torch.empty(seq_len, embed_dim, dtype=dtype)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency[: embed_dim // 2])
    return table


def _rope(x: Any, start_pos: int = 0) -> torch.Tensor:
    seq_len, head_dim = x.shape[-2:]
    if head_dim % 2:
        raise ValueError(f"head_dim={head_dim}, but should be even.")
    frequency = 1.0 / (10000.0 ** (torch.arange(0, head_dim, 2, dtype=x.dtype) / max(head_dim, 1)))
    angle = torch.arange(start_pos, start_pos + seq_len, dtype=x.dtype)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)


def _rope_vjp(x: Any, grad_out: Any, start_pos: int = 0) -> torch.Tensor:
    dx: torch.Tensor = torch.autograd.grad(_rope(x.requires_grad_(), start_pos), x, grad_out)[0]
    return dx


def _implementation(dtype: str) -> Implementation:
    return Implementation(
        name=f"torch {dtype}",
        operations={
            "sinusoidal_positional_encoding": partial(_sinusoid, getattr(torch, dtype)),
            "rope": _rope,
            "rope_vjp": _rope_vjp,
        },
        arithmetic=dtype,
        arrays="torch",
        supports={"head_dim": lambda d: d % 2 == 0},
        refuses=(ValueError,),
    )


IMPLEMENTATIONS = [_implementation("float64"), _implementation("float32")]
