"""What laws of attention compare with: which keys a query may read, and averages of their values,
in ball arithmetic.
"""

from typing import Any

import numpy as np

from oracles.ball import Ball, divide, exact, exp, matmul, max_shift, sqrt
from properties.contract.implementation import Implementation
from properties.contract.results import Result
from properties.contract.subject import Subject
from properties.laws.algebra import kept

__all__ = ["allowed", "dead_rows_follow_their_convention", "exponentials", "mean", "own_heads"]


def allowed(mask: Any, q: Any, k: Any) -> Any:
    """The mask as a bool array (…, n_q, n_k)."""
    return np.broadcast_to(True if mask is None else mask, (*q.shape[:-1], k.shape[-2]))


def mean(v: Any, may: Any) -> Ball:
    """The mean of the values that each query may read."""
    return divide(matmul(exact(may.astype(float)), exact(v)), exact(may.sum(-1, keepdims=True).astype(float)))


def exponentials(q: Any, k: Any, may: Any) -> Ball:
    """exp(s − m) with the scores s = q·kᵀ/√d, and m near the largest that a query may read; exactly
    0 where it may not.
    """
    s = divide(matmul(exact(q), exact(k.swapaxes(-1, -2))), sqrt(exact(np.array([float(max(q.shape[-1], 1))]))))
    lowest = s.mid.min(axis=-1, keepdims=True)
    return kept(exp(max_shift(Ball(np.where(may, s.mid, lowest), np.where(may, s.rad, 0.0)))), may)


def dead_rows_follow_their_convention(subject: Subject, found: Result, dead: Any, average: Ball) -> None:
    """Rows that may read nothing are 0 or NaN, exactly, or that average, by the convention dead_rows."""
    if subject.conventions.dead_rows == "uniform":
        subject.close(found.ball[dead], average[dead], found.name)
    else:
        number = 0.0 if subject.conventions.dead_rows == "zero" else np.nan
        subject.same(found, np.where(dead[..., None], number, found.value), found.name)


def own_heads(i: Implementation, heads: int, few: int) -> Any:
    """The head of keys that each head of queries reads, by the convention `kv_heads`."""
    return np.arange(heads) // (heads // few) if i.resolved_conventions.kv_heads == "repeat" else np.arange(heads) % few
