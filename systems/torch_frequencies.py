"""Rotary frequencies of every kind, and rope as models use it, written out in PyTorch.

The channels of a pair are half a head apart, each position axis has a block of pairs, frequencies
are powers, and gradients come from autograd. Parameters have the names of transformers'
configurations.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from oracles import Conventions
from properties.contract.implementation import Implementation
from systems.taken_features import TAKEN

__all__ = ["IMPLEMENTATIONS"]

Tensor = torch.Tensor


def _even(r: int) -> int:
    if r % 2:
        raise ValueError(f"{r} channels rotate, but should be an even number.")
    return r


def _powers(base: float, r: int, dtype: torch.dtype) -> Tensor:
    return 1.0 / base ** (torch.arange(0, r, 2, dtype=dtype) / max(r, 1))


def _yarn(f: Tensor, base: float, p: dict[str, Any]) -> tuple[Tensor, float]:
    """YaRN's frequencies, which a ramp over the pairs blends with the scaled ones, and its
    attention factor.
    """
    r, s, most = 2 * len(f), p["factor"], p["original_max_position_embeddings"]
    low, high = (
        r / 2 * math.log(most / (turns * 2 * math.pi)) / math.log(base)
        for turns in (p.get("beta_fast", 32), p.get("beta_slow", 1))
    )
    if p.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, r - 1)
    ramp = ((torch.arange(r // 2, dtype=f.dtype) - low) / max(high - low, 1e-3 if high == low else 0)).clamp(0, 1)

    def m(weight: float) -> float:
        return 1.0 if s <= 1 else 0.1 * weight * math.log(s) + 1.0

    several = p.get("mscale"), p.get("mscale_all_dim")
    factor = m(several[0]) / m(several[1]) if several[0] and several[1] else m(1.0)
    return f / s * ramp + f * (1 - ramp), p.get("attention_factor", factor)


def _llama3(f: Tensor, p: dict[str, Any]) -> Tensor:
    s, most, low, high = (
        p[name] for name in ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    wavelength = 2 * math.pi / f
    smooth = (most / wavelength - low) / (high - low)
    middle = (1 - smooth) * f / s + smooth * f
    return torch.where(wavelength < most / high, f, torch.where(wavelength > most / low, f / s, middle))


def _frequencies(
    dtype: torch.dtype, kind: str, head_dim: int, *, base: float = 10000.0, **p: Any
) -> tuple[Tensor, float]:
    """The inverse frequencies and the attention factor of a kind; p has its parameters and the
    lengths.
    """
    r, s, factor = _even(p.get("rotary_dim", head_dim)), p.get("factor", 1.0), 1.0
    seq_len = p.get("seq_len")
    if kind == "dynamic":
        most = p["max_position_embeddings"]
        base *= (s * max(seq_len or most, most) / most - (s - 1)) ** (r / (r - 2))
    f = _powers(base, r, dtype)
    if kind == "linear":
        f = f / s
    elif kind == "yarn":
        f, factor = _yarn(f, base, p)
    elif kind == "llama3":
        f = _llama3(f, p)
    elif kind == "longrope":
        most = p["original_max_position_embeddings"]
        f = f / torch.tensor(p["long_factor" if seq_len and seq_len > most else "short_factor"], dtype=dtype)
        factor = p.get("attention_factor", math.sqrt(1 + math.log(s) / math.log(most)) if s > 1 else 1.0)
    elif kind == "proportional":
        f = torch.where(torch.arange(r // 2) < int(p["partial_rotary_factor"] * r // 2), f / s, 0.0)
    return f, factor


def _tables(
    positions: Tensor, inv_freq: Tensor, *, attention_factor: float = 1.0, sections: Any = None
) -> tuple[Tensor, Tensor]:
    theta = positions.to(inv_freq.dtype)[..., None] * inv_freq
    if sections is not None:
        theta = torch.cat([part[axis] for axis, part in enumerate(torch.split(theta, list(sections), dim=-1))], -1)
    theta = torch.cat([theta, theta], -1)
    return theta.cos() * attention_factor, theta.sin() * attention_factor


def _rope(
    x: Tensor,
    start_pos: int = 0,
    *,
    positions: Any = None,
    inv_freq: Any = None,
    rotary_dim: int | None = None,
    **options: Any,
) -> Tensor:
    d, n = x.shape[-1], x.shape[-2]
    r = _even(d if rotary_dim is None else rotary_dim)
    if positions is None:
        positions = torch.arange(start_pos, start_pos + n)
        if options.get("sections") is not None:
            positions = positions.expand(3, n)
    cos, sin = _tables(positions, _powers(10000.0, r, x.dtype) if inv_freq is None else inv_freq, **options)
    rotating, passed = x[..., :r], x[..., r:]
    first, second = rotating.chunk(2, -1) if r else (rotating, rotating)
    return torch.cat([rotating * cos + torch.cat([-second, first], -1)[..., :r] * sin, passed], -1)


def _vjp(x: Tensor, grad_out: Tensor, start_pos: int = 0, **options: Any) -> Tensor:
    inputs = x.requires_grad_()
    (gradient,) = torch.autograd.grad(_rope(inputs, start_pos, **options), inputs, grad_out)
    return gradient


def _implementation(name: str) -> Implementation:
    dtype: torch.dtype = getattr(torch, name)
    frequencies: Callable[..., Any] = partial(_frequencies, dtype)
    return Implementation(
        name=f"torch rotations {name}",
        operations={"rotary_frequencies": frequencies, "rope": _rope, "rope_vjp": _vjp, "rotary_tables": _tables},
        arithmetic=name,
        arrays="torch",
        conventions=Conventions(rope_pairing="half", odd_lane="reject"),
        supports={"head_dim": lambda d: d % 2 == 0},
        features=TAKEN,
        refuses=(RuntimeError, ValueError),
    )


IMPLEMENTATIONS = [_implementation(name) for name in ("float64", "float32")]
