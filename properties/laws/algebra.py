"""Balls kept, transposed and multiplied: what laws of gradients compare."""

from typing import Any

import numpy as np

from oracles.ball import Ball, matmul

__all__ = ["inner", "kept", "transposed"]


def transposed(x: Ball) -> Ball:
    """The last two axes exchanged."""
    return Ball(x.mid.swapaxes(-1, -2), x.rad.swapaxes(-1, -2))


def kept(x: Ball, where: Any) -> Ball:
    """The ball with exact zeros elsewhere."""
    return Ball(np.where(where, x.mid, 0.0), np.where(where, x.rad, 0.0))


def inner(a: Ball, b: Ball, rank: int = 0) -> Ball:
    """Σ a·b over all axes but the last `rank`, 0 or 1, of either, which the result has: of shape
    (1, 1), or their product aᵀ·b.
    """
    x, y = (Ball(*(part.reshape(-1, part.shape[-1] if rank else 1) for part in (z.mid, z.rad))) for z in (a, b))
    return matmul(transposed(x), y)
