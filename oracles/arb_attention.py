"""Softmax and attention of one head on matrices of arb balls, row by row over the allowed keys."""

from math import isfinite

import numpy as np
from flint import arb

from oracles.arb_matrix import Bools, Matrix, from_rows
from oracles.conventions import Conventions

Head = tuple[Matrix, ...]

ZERO = arb(0)


def attention(head: Head, allowed: Bools, scale: arb, conventions: Conventions) -> Matrix:
    """softmax(scale·q·kᵀ)·v, dead rows by convention."""
    q, k, v = head
    weights = softmax((q @ k.transposed) * scale, allowed, conventions)
    return lose_dead_rows(weights @ v, allowed, conventions)


def attention_vjp(head: Head, allowed: Bools, grad: Matrix, scale: arb, conventions: Conventions) -> list[Matrix]:
    """[dq, dk, dv]: dS = scale·softmax'(g·vᵀ), dq = dS·k, dk = dSᵀ·q, dv = weightsᵀ·g."""
    q, k, v = head
    weights = softmax((q @ k.transposed) * scale, allowed, conventions)
    ds = softmax_derivative(weights, allowed, grad @ v.transposed) * scale
    return [lose_dead_rows(ds @ k, allowed, conventions), ds.transposed @ q, weights.transposed @ grad]


def attention_jvp(point: Head, tangent: Head, allowed: Bools, scale: arb, conventions: Conventions) -> Matrix:
    """softmax'(scale·(dq·kᵀ + q·dkᵀ))·v + weights·dv."""
    (q, k, v), (dq, dk, dv) = point, tangent
    weights = softmax((q @ k.transposed) * scale, allowed, conventions)
    ds = (dq @ k.transposed + q @ dk.transposed) * scale
    dout = softmax_derivative(weights, allowed, ds) @ v + weights @ dv
    return lose_dead_rows(dout, allowed, conventions)


def softmax(scores: Matrix, allowed: Bools, conventions: Conventions) -> Matrix:
    """exp(s_j − s_m) / Σ exp(s_l − s_m) over the allowed keys of each row, m the largest; exactly 1 for a single key.

    A shift by any one number cancels; the largest score keeps arb's exponential within its range, for scores of any size.
    """
    uniform = ~allowed.any(axis=1, keepdims=True) & np.full(allowed.shape, conventions.dead_rows == "uniform")
    share, rows = [1 / arb(allowed.shape[1])] * allowed.shape[1], []
    alike: list[bool] = uniform[:, 0].tolist() if allowed.shape[1] else [False] * len(allowed)
    for row, allows, is_uniform in zip(scores.balls.tolist(), allowed.tolist(), alike, strict=True):
        keys = [key for key, allow in enumerate(allows) if allow]
        weights = list(share) if is_uniform else [ZERO] * len(row)
        if len(keys) == 1:
            weights[keys[0]] = arb(1)
        elif keys:
            read = [row[key] for key in keys]
            top = max([float(score) for score in read])
            shift = arb(top) if isfinite(top) else max(score.mid() for score in read)
            numerators = [(score - shift).exp() for score in read]
            reciprocal = 1 / sum(numerators, ZERO)
            for key, numerator in zip(keys, numerators, strict=True):
                weights[key] = numerator * reciprocal
        rows.append(weights)
    lost = allowed & (scores.lost & allowed).any(axis=1, keepdims=True)
    return from_rows(rows, allowed | uniform, lost)


def softmax_derivative(weights: Matrix, allowed: Bools, direction: Matrix) -> Matrix:
    """w ⊙ (t − Σ_allowed w ⊙ t) in each row, which is both Jᵀ·t and J·t; exactly 0 where one key alone is allowed."""
    rows = []
    table = zip(weights.balls.tolist(), direction.balls.tolist(), allowed.tolist(), strict=True)
    for row, slopes, allows in table:
        keys = [key for key, allow in enumerate(allows) if allow]
        result = [ZERO] * len(row)
        if len(keys) > 1:
            mean = sum((row[key] * slopes[key] for key in keys), ZERO)
            for key in keys:
                result[key] = row[key] * (slopes[key] - mean)
        rows.append(result)
    lost = allowed & ((weights.lost | direction.lost) & allowed).any(axis=1, keepdims=True)
    return from_rows(rows, allowed, lost)


def lose_dead_rows(result: Matrix, allowed: Bools, conventions: Conventions) -> Matrix:
    """Dead rows that are NaN by convention reach whatever is computed from them."""
    if conventions.dead_rows != "nan":
        return result
    dead = ~allowed.any(axis=1, keepdims=True)
    return Matrix(result.balls, result.support | dead, result.lost | dead)


def split_heads(joined: Matrix, num_heads: int) -> list[Matrix]:
    """Contiguous blocks of columns."""
    width = joined.support.shape[1] // num_heads
    return [joined.columns(slice(head * width, (head + 1) * width)) for head in range(num_heads)]
