"""Balls kept, turned and summed: what laws of gradients compare."""

from typing import Any

import numpy as np

from oracles.ball import Ball, divide, exact, matmul, sqrt, total

__all__ = ["inner", "kept", "reciprocal_root", "signed", "summed", "turned"]


def turned(x: Ball) -> Ball:
    """The last two axes exchanged."""
    return Ball(x.mid.swapaxes(-1, -2), x.rad.swapaxes(-1, -2))


def kept(x: Ball, where: Any) -> Ball:
    """The ball with exact zeros elsewhere."""
    return Ball(np.where(where, x.mid, 0.0), np.where(where, x.rad, 0.0))


def summed(x: Ball, rank: int = 0) -> Ball:
    """The sum over all axes but the last `rank`."""
    shape = (-1, *x.mid.shape[x.mid.ndim - rank :])
    return total(Ball(x.mid.reshape(shape), x.rad.reshape(shape)), 0)


def inner(a: Any, b: Any) -> Ball:
    """⟨a, b⟩ of balls or exact arrays of one shape, of shape (1,)."""
    x, y = (z if isinstance(z, Ball) else exact(z) for z in (a, b))
    return matmul(Ball(x.mid.reshape(1, -1), x.rad.reshape(1, -1)), Ball(y.mid.reshape(-1, 1), y.rad.reshape(-1, 1)))[0]


def reciprocal_root(d: int) -> Ball:
    """1/√d, and 1 for d = 0, of shape (1,)."""
    return divide(exact(np.ones(1)), sqrt(exact(np.full(1, float(max(d, 1))))))


def signed(order: Any, sign: Any) -> Any:
    """The matrix with x·A = x[..., order]·sign: one ±1 in each row and column."""
    return np.eye(len(order))[:, order] * sign
