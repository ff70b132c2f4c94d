"""Balls cut, joined, turned and summed: what laws of gradients compare."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from oracles.ball import Ball, divide, exact, matmul, sqrt, total

__all__ = ["inner", "joined", "kept", "reciprocal_root", "summed", "turned"]


def turned(x: Ball) -> Ball:
    """The last two axes exchanged."""
    return Ball(x.mid.swapaxes(-1, -2), x.rad.swapaxes(-1, -2))


def joined(parts: Sequence[Ball], axis: int = -2) -> Ball:
    """Balls one after the other along an axis."""
    return Ball(np.concatenate([x.mid for x in parts], axis), np.concatenate([x.rad for x in parts], axis))


def kept(x: Ball, where: Any) -> Ball:
    """The ball with exact zeros elsewhere."""
    return Ball(np.where(where, x.mid, 0.0), np.where(where, x.rad, 0.0))


def summed(x: Ball, rank: int = 0) -> Ball:
    """The sum over all axes but the last `rank`."""
    return total(Ball(x.mid.reshape(-1, *x.mid.shape[x.mid.ndim - rank :]), x.rad.reshape(-1, *x.mid.shape[x.mid.ndim - rank :])), 0)


def inner(pairs: Iterable[tuple[Any, Any]]) -> Ball:
    """⟨a, b⟩ summed over pairs of balls or exact arrays, of shape (1,)."""
    found = [(x if isinstance(x, Ball) else exact(x), y if isinstance(y, Ball) else exact(y)) for x, y in pairs]
    products = [matmul(_line(x), turned(_line(y)))[0] for x, y in found]
    return sum(products[1:], products[0])


def _line(x: Ball) -> Ball:
    return Ball(x.mid.reshape(1, -1), x.rad.reshape(1, -1))


def reciprocal_root(d: int) -> Ball:
    """1/√d, and 1 for d = 0, of shape (1,)."""
    return divide(exact(np.ones(1)), sqrt(exact(np.full(1, float(max(d, 1))))))
