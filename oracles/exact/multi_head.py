"""Softmax and attention of one head on matrices of arb balls, row by row over the visible keys.

In this module w are the softmax weights and softmax'(t) = w ⊙ (t − Σ w ⊙ t) is the derivative of
softmax in the direction t.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, compress
from operator import mul

import numpy as np
from flint import arb, arb_mat
from numpy.typing import NDArray

from oracles.arb_matrix import Bools, Matrix, from_array, from_rows, side_by_side
from oracles.conventions import Conventions
from oracles.error_analysis.logits import Features

Head = tuple[Matrix, ...]

ZERO, ONE = arb(0), arb(1)


def attention(head: Head, allowed: Bools, scale: arb, conventions: Conventions) -> Matrix:
    """Return the output softmax(scale·q·kᵀ)·v; fully masked rows follow `conventions.dead_rows`."""
    q, k, v = head
    weights = softmax((q @ k.transposed) * scale, allowed, conventions)
    return lose_dead_rows(weights @ v, allowed, conventions)


def attention_vjp(head: Head, allowed: Bools, grad: Matrix, scale: arb, conventions: Conventions) -> list[Matrix]:
    """Return the gradients [dq, dk, dv]: with dS = scale·softmax'(grad·vᵀ), dq = dS·k, dk = dSᵀ·q
    and dv = weightsᵀ·grad.
    """
    q, k, v = head
    scores, allowed = levelled((q @ k.transposed) * scale, allowed, conventions)
    weights = softmax(scores, allowed, conventions)
    ds = softmax_derivative(weights, allowed, grad @ v.transposed) * scale
    return [lose_dead_rows(ds @ k, allowed, conventions), ds.transposed @ q, weights.transposed @ grad]


def attention_jvp(point: Head, tangent: Head, allowed: Bools, scale: arb, conventions: Conventions) -> Matrix:
    """Return the derivative of the output in the direction (dq, dk, dv): softmax'(scale·(dq·kᵀ +
    q·dkᵀ))·v + weights·dv.
    """
    (q, k, v), (dq, dk, dv) = point, tangent
    scores, allowed = levelled((q @ k.transposed) * scale, allowed, conventions)
    weights = softmax(scores, allowed, conventions)
    ds = (dq @ k.transposed + q @ dk.transposed) * scale
    dout = softmax_derivative(weights, allowed, ds) @ v + weights @ dv
    return lose_dead_rows(dout, allowed, conventions)


def generalised(head: Head, allowed: Bools, f: Features, scale: arb, conventions: Conventions) -> list[Matrix]:
    """Return [out, lse]: the output, where a sink is a key of value 0, and the log-sum-exp of each
    row as a column. lse is 0 in a fully masked row.
    """
    q, k, v = head
    u, visible = with_sink(logits((q @ k.transposed) * scale, f), allowed, f)
    weights = softmax(u, visible, replace(conventions, dead_rows="zero"))
    weights = _of_keys(weights, visible, allowed.shape[1], conventions)
    lse = log_sum_exp(u, _counted(visible, allowed.shape[1], conventions))
    return [lose_dead_rows(kept(weights, f) @ v, visible, conventions), _in_base(lse, conventions)]


def generalised_vjp(
    head: Head, allowed: Bools, cotangents: Head, f: Features, scale: arb, conventions: Conventions
) -> list[Matrix]:
    """Return the gradients [dq, dk, dv], then dbias with a bias, and dsink with sinks.

    With the cotangents g of the output and g_lse of the log-sum-exp: dU = softmax'(g·vᵀ) + w ⊙
    g_lse, and dS = dU ⊙ (1 − tanh²).
    """
    (q, k, v), (cotangent, of_lse) = head, cotangents
    scores, n = (q @ k.transposed) * scale, allowed.shape[1]
    u, visible = levelled(*with_sink(logits(scores, f), allowed, f), conventions, n)
    weights = softmax(u, visible, replace(conventions, dead_rows="zero"))
    grad_weights = kept(cotangent @ v.transposed, f)
    grad_weights = grad_weights if f.sink is None else side_by_side([grad_weights, from_array(np.zeros(f.sink.shape))])
    du = softmax_derivative(weights, visible, grad_weights)
    counted = _counted(visible, n, conventions)
    shares = weights if counted is visible else softmax(u, counted, replace(conventions, dead_rows="zero"))
    du = du + scaled_rows(shares, _in_base(of_lse, conventions))
    h = cap_slope(scores, f)
    of_keys = du.columns(slice(0, n))
    ds = (of_keys if h is None else times(of_keys, h)) * scale
    key_weights = kept(_of_keys(weights, visible, n, conventions), f)
    gradients = [lose_dead_rows(ds @ k, visible, conventions), ds.transposed @ q, key_weights.transposed @ cotangent]
    if f.bias is not None:
        gradients.append(times(of_keys, h) if h is not None and f.after_bias else of_keys)
    if f.sink is not None:
        gradients.append(du.columns(slice(n, n + 1)))
    return gradients


def generalised_jvp(
    point: Head, tangent: Head, allowed: Bools, f: Features, scale: arb, conventions: Conventions
) -> list[Matrix]:
    """Return the derivatives [dout, dlse] of the output and of the log-sum-exp.

    dU = (scale·(dq·kᵀ + q·dkᵀ)) ⊙ (1 − tanh²) + dbias, dlse = Σ w dU and dout = Σ w (dU − dlse) v +
    Σ w dv.
    """
    (q, k, v), (dq, dk, dv, dbias, dsink) = point, tangent
    scores, n = (q @ k.transposed) * scale, allowed.shape[1]
    u, visible = levelled(*with_sink(logits(scores, f), allowed, f), conventions, n)
    zero_convention = replace(conventions, dead_rows="zero")
    weights, h = softmax(u, visible, zero_convention), cap_slope(scores, f)
    du = (dq @ k.transposed + q @ dk.transposed) * scale
    du = du + dbias if f.after_bias else du
    du = du if h is None else times(du, h)
    du = du if f.after_bias else du + dbias
    du = du if f.sink is None else side_by_side([du, dsink])
    counted = _counted(visible, n, conventions)
    dlse = row_sums(weights if counted is visible else softmax(u, counted, zero_convention), du, counted)
    key_weights = _of_keys(weights, visible, n, conventions)
    dout = softmax_derivative(weights, visible, du).columns(slice(0, n)) @ v + key_weights @ dv
    return [lose_dead_rows(dout, visible, conventions), _in_base(dlse, conventions)]


def _of_keys(weights: Matrix, may: Bools, n: int, conventions: Conventions) -> Matrix:
    """Return the weights of the keys without the sink. Under `uniform` all weights of a fully
    masked row are 1/n.
    """
    key_weights, fully_masked = weights.columns(slice(0, n)), ~may.any(axis=1, keepdims=True)
    if conventions.dead_rows == "uniform" and n:
        key_weights = key_weights + from_array(np.where(fully_masked, 1.0, 0.0) * np.ones((len(may), n))) * (1 / arb(n))
    return key_weights


def _counted(may: Bools, n: int, conventions: Conventions) -> Bools:
    """Return which entries the log-sum-exp includes: all visible ones, or only the keys if it
    excludes the sink.
    """
    return may if conventions.lse_sink == "included" else may & (np.arange(may.shape[1]) < n)


def _in_base(x: Matrix, conventions: Conventions) -> Matrix:
    """Return a natural logarithm, or a cotangent of one, converted to the base of the convention."""
    return x * (1 / arb(2).log()) if conventions.lse_base == "2" else x


def cap_slope(scores: Matrix, f: Features) -> Matrix | None:
    """Return the slope 1 − tanh² of the softcap for each score; None without a softcap. It is 0
    where the logit does not depend on the score.
    """
    if f.cap is None:
        return None
    argument = biased(scores, f) if f.after_bias else scores
    c = arb(f.cap)
    slopes = [[1 - (s / c).tanh() ** 2 for s in row] for row in argument.balls.tolist()]
    if f.blocked is not None:
        slopes = [
            [ZERO if b else x for x, b in zip(row, blocks, strict=True)]
            for row, blocks in zip(slopes, f.blocked.tolist(), strict=True)
        ]
        return from_rows(slopes, ~f.blocked, argument.lost & ~f.blocked)
    return from_rows(slopes, argument.support, argument.lost)


def times(a: Matrix, b: Matrix) -> Matrix:
    """Return the product of two matrices entry by entry, with the support of the first. An entry
    that is lost in `a` is lost in the product only if it is in the support of `b`; an entry lost in
    `b` is always lost.
    """
    products = [
        [x * y for x, y in zip(*row_pair, strict=True)]
        for row_pair in zip(a.balls.tolist(), b.balls.tolist(), strict=True)
    ]
    return from_rows(products, a.support, (a.lost & b.support) | b.lost)


def scaled_rows(a: Matrix, factors: Matrix) -> Matrix:
    """Return the matrix with every row multiplied by its own number."""
    products = [
        [x * factor for x in row] for row, (factor,) in zip(a.balls.tolist(), factors.balls.tolist(), strict=True)
    ]
    return from_rows(products, a.support, a.lost | (factors.lost & a.support))


def row_sums(a: Matrix, b: Matrix, where: Bools) -> Matrix:
    """Return Σ a·b over the entries of each row that `where` selects, (rows, 1)."""
    totals = [[sum(map(mul, *row_pair), ZERO)] for row_pair in zip(_read(a, where), _read(b, where), strict=True)]
    return from_rows(
        totals,
        np.ones((len(totals), 1), dtype=bool),
        np.asarray(((a.lost | b.lost) & where).any(axis=1, keepdims=True)),
    )


def logits(scores: Matrix, f: Features) -> Matrix:
    """Return the logits c·tanh(s/c) + bias, or c·tanh((s + bias)/c) if the softcap acts after the
    bias. If it acts after the mask, masked entries are −c.
    """
    for capping in (False, True) if f.after_bias else (True, False):
        if not capping:
            scores = biased(scores, f)
        elif f.cap is not None:
            c = arb(f.cap)
            rows = [[(s / c).tanh() * c for s in row] for row in scores.balls.tolist()]
            scores = from_rows(rows, scores.support, scores.lost)
            if f.blocked is not None and f.blocked.any():
                rows = [
                    [-c if blocked else s for s, blocked in zip(*row, strict=True)]
                    for row in zip(rows, f.blocked.tolist(), strict=True)
                ]
                scores = from_rows(rows, scores.support, scores.lost & ~f.blocked)
    return scores


def biased(scores: Matrix, f: Features) -> Matrix:
    """Return the scores plus the bias, and plus ALiBi's slopes times the distances."""
    if f.bias is not None:
        scores = scores + from_array(f.bias)
    if f.slope is not None and f.distance is not None:
        scores = scores + scaled_rows(from_array(f.distance), from_array(f.slope))
    return scores


def kept(weights: Matrix, f: Features) -> Matrix:
    """Return the weights that dropout keeps, over 1 − p, and 0 for others."""
    return weights if f.kept is None else times(weights, from_array(f.kept)) * (1 / (1 - arb(f.dropout)))


def with_sink(u: Matrix, allowed: Bools, f: Features) -> tuple[Matrix, Bools]:
    """Return the logits and the visible entries; a sink is their last column."""
    if f.sink is None:
        return u, allowed
    is_finite = f.sink > -np.inf
    return side_by_side([u, from_array(np.where(is_finite, f.sink, 0.0))]), np.concatenate([allowed, is_finite], axis=1)


def levelled(u: Matrix, allowed: Bools, conventions: Conventions, n: int | None = None) -> tuple[Matrix, Bools]:
    """Return the logits and the visible entries from which derivatives are computed. If gradients
    flow in fully masked rows, all n keys are visible to these rows, with logits of 0.
    """
    fully_masked = np.asarray(~allowed.any(axis=1, keepdims=True))
    if not (conventions.dead_rows_flow and fully_masked.any()):
        return u, allowed
    rows = [
        [ZERO] * len(row) if is_masked else row
        for row, is_masked in zip(u.balls.tolist(), fully_masked[:, 0], strict=True)
    ]
    counted_keys = np.arange(allowed.shape[1]) < (allowed.shape[1] if n is None else n)
    return from_rows(rows, u.support | fully_masked, u.lost & ~fully_masked), allowed | (fully_masked & counted_keys)


def log_sum_exp(u: Matrix, allowed: Bools) -> Matrix:
    """Return log Σ exp(u) over the visible entries of each row, (rows, 1); 0 in a row without a
    visible entry.
    """
    totals = [[_log_sum_exp(row)] for row in _read(u, allowed)]
    return from_rows(
        totals, np.ones((len(totals), 1), dtype=bool), np.asarray((u.lost & allowed).any(axis=1, keepdims=True))
    )


def _log_sum_exp(row: list[arb]) -> arb:
    if not row:
        return ZERO
    largest = arb(max(x.mid() for x in row))
    return sum(((x - largest).exp() for x in row), ZERO).log() + largest


def softmax(scores: Matrix, allowed: Bools, conventions: Conventions) -> Matrix:
    """Return the softmax of each row over its visible keys. Under `uniform`, the weights of a fully
    masked row are 1/n.
    """
    uniform = ~allowed.any(axis=1, keepdims=True) & np.full(allowed.shape, conventions.dead_rows == "uniform")
    shares = list(chain.from_iterable(map(_shares, _read(scores, allowed))))
    lost = allowed & (scores.lost & allowed).any(axis=1, keepdims=True)
    weights = np.full(allowed.shape, ZERO)
    weights[uniform] = 1 / arb(max(allowed.shape[1], 1))
    return _placed(shares, allowed, weights, allowed | uniform, lost)


def softmax_derivative(weights: Matrix, allowed: Bools, direction: Matrix) -> Matrix:
    """Return w ⊙ (t − Σ_visible w ⊙ t) in each row, where t is the direction. This is both Jᵀ·t and
    J·t. It is exactly 0 in a row with a single visible key.
    """
    slopes = list(chain.from_iterable(map(_slopes, _read(weights, allowed), _read(direction, allowed))))
    lost = allowed & ((weights.lost | direction.lost) & allowed).any(axis=1, keepdims=True)
    return _placed(slopes, allowed, np.full(allowed.shape, ZERO), allowed, lost)


def _shares(scores: list[arb]) -> list[arb]:
    """Return the softmax of some scores; exactly 1 for a single score.

    Subtracting one number from all scores changes nothing. It is only needed where exponentials
    leave arb's range, from scores of about 2¹¹³ on. There the largest score is subtracted.
    """
    if len(scores) < 2:
        return [ONE] * len(scores)
    numerators = [score.exp() for score in scores]
    reciprocal = 1 / sum(numerators, ZERO)
    if not reciprocal.is_finite():
        largest = max(score.mid() for score in scores)
        numerators = [(score - largest).exp() for score in scores]
        reciprocal = 1 / sum(numerators, ZERO)
    return [numerator * reciprocal for numerator in numerators]


def _slopes(weights: list[arb], direction: list[arb]) -> list[arb]:
    """Return w ⊙ (t − Σ w ⊙ t) for the weights w and the direction t; exactly 0 for a single
    weight, because it is always 1.
    """
    if len(weights) < 2:
        return [ZERO] * len(weights)
    weighted_mean = sum(map(mul, weights, direction), ZERO)
    return [weight * (t - weighted_mean) for weight, t in zip(weights, direction, strict=True)]


def _read(matrix: Matrix, allowed: Bools) -> Iterator[list[arb]]:
    """Return the visible entries of each row."""
    return (list(compress(row, allows)) for row, allows in zip(matrix.balls.tolist(), allowed.tolist(), strict=True))


def _placed(entries: list[arb], where: Bools, others: NDArray[np.object_], support: Bools, lost: Bools) -> Matrix:
    """Return the matrix with the given entries, row by row, at the places `where`, and with
    `others` at all other places.
    """
    height, width = where.shape
    if len(entries) < where.size:
        others[where] = np.fromiter(entries, dtype=object, count=len(entries))
        entries = others.ravel().tolist()
    return Matrix(arb_mat(height, width, entries), support, lost)


def lose_dead_rows(result: Matrix, allowed: Bools, conventions: Conventions) -> Matrix:
    """Return the result with fully masked rows marked as lost, if they are NaN by convention.
    Results computed from them are lost too.
    """
    if conventions.dead_rows != "nan":
        return result
    fully_masked = ~allowed.any(axis=1, keepdims=True)
    return Matrix(result.balls, result.support, result.lost | fully_masked)


def split_heads(joined: Matrix, num_heads: int) -> list[Matrix]:
    """Return the heads of a matrix: its num_heads contiguous blocks of columns."""
    width = joined.support.shape[1] // num_heads
    return [joined.columns(slice(head * width, (head + 1) * width)) for head in range(num_heads)]
