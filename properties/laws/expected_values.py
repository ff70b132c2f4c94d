"""Computes expected values in ball arithmetic (intervals value ± radius): parts of balls, products,
averages of visible values, and the values of a fully masked row.
"""

from typing import Any

import numpy as np

from oracles.ball import Ball, divide, exact, exp, matmul, max_shift, sqrt
from properties.contract.implementation import Implementation
from properties.contract.results import Result
from properties.contract.subject import Subject

__all__ = [
    "check_fully_masked_rows",
    "exponentials",
    "inner_product",
    "kept",
    "key_heads",
    "mean_of_visible",
    "transposed",
    "visible_mask",
]


def transposed(x: Ball) -> Ball:
    """Return the ball with its last two axes exchanged."""
    return Ball(x.mid.mT, x.rad.mT)


def kept(x: Ball, where: Any) -> Ball:
    """Return the ball with exactly 0 at the entries where `where` is False."""
    return Ball(np.where(where, x.mid, 0.0), np.where(where, x.rad, 0.0))


def inner_product(a: Ball, b: Ball, rank: int = 0) -> Ball:
    """Return Σ a·b over all axes except the last `rank` axes of each ball.

    Rank 0 gives one number, of shape (1, 1); rank 1 gives the product aᵀ·b.
    """
    first, second = (
        Ball(*(part.reshape(-1, part.shape[-1] if rank else 1) for part in (ball.mid, ball.rad))) for ball in (a, b)
    )
    return matmul(transposed(first), second)


def visible_mask(mask: Any, q: Any, k: Any) -> Any:
    """Return the mask as a bool array (…, n_q, n_k): True for a visible key."""
    return np.broadcast_to(True if mask is None else mask, (*q.shape[:-1], k.shape[-2]))


def mean_of_visible(v: Any, visible: Any) -> Ball:
    """Return the mean of the visible values of each query."""
    count = exact(visible.sum(-1, keepdims=True).astype(float))
    return divide(matmul(exact(visible.astype(float)), exact(v)), count)


def exponentials(q: Any, k: Any, visible: Any) -> Ball:
    """Return exp(s − m) for visible keys, and exactly 0 for masked keys.

    The scores are s = q·kᵀ/√d, and m is near the largest visible score of the query.
    """
    root = sqrt(exact(np.array([float(max(q.shape[-1], 1))])))
    scores = divide(matmul(exact(q), exact(k.mT)), root)
    lowest = scores.mid.min(axis=-1, keepdims=True)
    finite = Ball(np.where(visible, scores.mid, lowest), np.where(visible, scores.rad, 0.0))
    return kept(exp(max_shift(finite)), visible)


def check_fully_masked_rows(subject: Subject, found: Result, dead: Any, average: Ball) -> None:
    """Check that fully masked rows are 0, NaN or the average, by the convention `dead_rows`. The
    rows are compared exactly with 0 and NaN.
    """
    if subject.conventions.dead_rows == "uniform":
        subject.close(found.ball[dead], average[dead], found.name)
    else:
        number = 0.0 if subject.conventions.dead_rows == "zero" else np.nan
        subject.same(found, np.where(dead[..., None], number, found.value), found.name)


def key_heads(implementation: Implementation, heads: int, few: int) -> Any:
    """Return the index of the key head for each of the `heads` query heads, by the convention
    `kv_heads`. `few` is the number of key heads.
    """
    repeats = implementation.resolved_conventions.kv_heads == "repeat"
    return np.arange(heads) // (heads // few) if repeats else np.arange(heads) % few
