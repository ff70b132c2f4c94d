"""The steps of attention with today's features, one function for each: visible keys, scores,
softcap, and the softmax with a sink.

This module is not TorchLean's: see `spec.extended`. The table in `spec.extended.attention` shows
the order of the steps.
"""

import operator
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np  # noqa: F401 - for the examples
from jaxtyping import Bool

from spec.context import Context, Scalar
from spec.corrected import attention_scale_denom
from spec.extended.arguments import broadcast, finite, offsets, positive, sides
from spec.lean import definition
from spec.scope import alpha
from spec.tensor_core import Array, Tensor, replicate, tabulate
from spec.tensor_ops import map2_spec, map_spec

__all__ = ["attention_scores", "dropout_factors", "softcap_scores", "softmax_with_sink", "visible_keys"]


# -- Which keys a query sees -----------------------------------------------------------------------


def visible_keys(
    shape: tuple[int, ...],
    *,
    mask: Array | None = None,
    causal: bool = False,
    offset: Any = None,
    window: tuple[int | None, int | None] = (None, None),
) -> Bool[Array, "*s"]:
    """Return the mask of `shape` = (…, H, nQ, nK) that is True where the given mask is True and
    position j is in the query's window.

        mask[…, h, i, j] ∧ (not causal ∨ j ≤ p) ∧ (left is None ∨ j ≥ p − left) ∧ (right is None ∨ j ≤ p + right),
        p = i + offset

    A side of the window is a bound on the distance: left = L leaves L + 1 keys visible, the query's
    own included. The offset is the number of keys before the first query: an integer, which may be
    negative, or one for each sequence of the batch. None means 0. With nK − nQ the last query has
    the position of the last key.

    Edge cases
    - causal equals the window (None, 0). With a window too, the narrower side counts.
    - A row whose window ends before key 0 or begins after the last key has no visible key.

    >>> # positions 2 and 3, each with the key before it
    >>> visible_keys((1, 2, 4), causal=True, offset=2, window=(1, None)).astype(int)
    array([[[0, 1, 1, 0],
            [0, 0, 1, 1]]])
    """
    *batch, _, _, _ = shape
    allowed = None if mask is None else broadcast(mask, "mask", shape)
    first = offsets(offset, tuple(batch))
    left, right = sides(window, causal)

    def entry(*index: int) -> bool:
        *b, _, i, j = index
        p = i + first[*b]
        masked = allowed is not None and not allowed[index]
        return bool(not masked and (left is None or j >= p - left) and (right is None or j <= p + right))

    return tabulate(shape, entry, bool)


# -- Scores ----------------------------------------------------------------------------------------


@definition()
def attention_scores(
    q: Tensor[Array, "*batch H nQ d"],
    k: Tensor[Array, "*batch HKv nK d"],
    scale: Scalar | None = None,
    scalar: Context | None = None,
) -> Tensor[Array, "*batch H nQ nK"]:
    """Return (q · k) × scale for each query and each key of its key head: query head h uses key
    head h // (H / HKv).

    Edge cases
    - scale=None means 1/√d, and 1 if d = 0. A scale may be negative or 0. It is refused if it is
      not finite.
    - H not a multiple of HKv: refused.

    >>> q, k = np.array([[[1.0]], [[2.0]]]), np.array([[[10.0], [20.0]]])  # two query heads on one key head
    >>> attention_scores(q, k)
    array([[[10., 20.]],
    <BLANKLINE>
           [[20., 40.]]])
    """
    *batch, heads, n_q, d = q.shape
    key_heads, n_k = k.shape[-3:-1]
    group = group_of(heads, key_heads)
    factor = scale_factor(d, scale)

    def entry(*index: int) -> Scalar:
        *b, h, i, j = index
        return total(q[*b, h, i, c] * k[*b, h // group, j, c] for c in range(d)) * factor

    return tabulate((*batch, heads, n_q, n_k), entry)


@definition()
def softcap_scores(s: Tensor[Array, "*s"], softcap: Scalar, scalar: Context | None = None) -> Tensor[Array, "*s"]:
    """Return c · tanh(s / c), entry by entry, where c is the softcap. It is odd in s, close to s
    where |s| is small compared with c, and never beyond ±c.

    A softcap that is not a finite number above 0 is refused.

    >>> softcap_scores(np.array([0.0, 0.01, -100.0]), 1.0).round(6)
    array([ 0.  ,  0.01, -1.  ])
    """
    c = positive(softcap, "softcap")
    return map_spec(lambda x: c * alpha.tanh(alpha.div(x, c)), s)


@definition()
def softmax_with_sink(
    u: Tensor[Array, "n"], visible: Bool[Array, "n"], sink: Scalar | None = None, scalar: Context | None = None
) -> tuple[Tensor[Array, "n"], Scalar, Scalar]:
    """Return (w, w_sink, lse) of one row. w is exp(uⱼ) / D at the visible keys and 0 elsewhere,
    w_sink is exp(sink) / D, and lse is log D.

        D = Σ exp(uⱼ) + exp(sink)

    The sum runs over the visible keys, and includes exp(sink) if a sink is given. The largest
    exponent m is subtracted from all exponents. This changes no weight, and lse = m + log Σ exp(· −
    m), so nothing overflows.

    Edge cases
    - No visible key and no sink: (0, 0, −∞). No visible key and a sink: (0, 1, sink).
    - sink = −∞ equals no sink; +∞ and NaN are refused.

    >>> w, w_sink, lse = softmax_with_sink(np.array([0.0, 0.0, 9.0]), np.array([True, True, False]), sink=np.log(2.0))
    >>> w.round(6), w_sink.round(6), np.exp(lse).round(6)  # 1, 1 and 2 of 4
    (array([0.25, 0.25, 0.  ]), np.float64(0.5), np.float64(4.0))
    """
    sink_logit = finite_sink(sink, "sink")
    sink_logits = [] if sink_logit is None else [sink_logit]
    exponents = [*u[visible], *sink_logits]
    if not exponents:
        return replicate(alpha.zero, u.shape), alpha.zero, alpha.neg_inf
    m = reduce(alpha.max, exponents)
    D = total(alpha.exp(x - m) for x in exponents)
    w = map2_spec(lambda x, seen: alpha.div(alpha.exp(x - m), D) if seen else alpha.zero, u, visible)
    w_sink = total(alpha.div(alpha.exp(x - m), D) for x in sink_logits)
    return w, w_sink, m + alpha.log(D)


def scale_factor(d: int, scale: Scalar | None) -> Scalar:
    """Return the scale, or 1/√d if scale is None."""
    return alpha.div(alpha.one, attention_scale_denom(d)) if scale is None else finite(scale, "scale")


def finite_sink(sink: Scalar | None, name: str) -> Scalar | None:
    """Return the sink over α; None if the sink is None or −∞. Raises ValueError if it is NaN or +∞."""
    if sink is None or alpha.is_neg_inf(alpha.lift(sink)):
        return None
    return finite(sink, name, "a finite number, or −∞ for none")


def group_of(heads: int, key_heads: int) -> int:
    """Return how many query heads share a key head. Raises ValueError if the number of key heads
    does not divide the number of query heads.
    """
    if heads and (key_heads == 0 or heads % key_heads):
        raise ValueError(
            f"q has {heads} heads and k has {key_heads}, but the first number should be a multiple of the second."
        )
    return heads // key_heads if heads else 1


def total(terms: Iterable[Scalar]) -> Scalar:
    """Return the sum of the terms, a left fold from 0."""
    return reduce(operator.add, terms, alpha.zero)


def dropout_factors(
    shape: tuple[int, ...], dropout_mask: Array | None, dropout: float = 0.0
) -> Tensor[Array, "*batch H nQ nK"]:
    """Return the factor of each weight in the output: 1 / (1 − p) where the mask is True, and 0
    elsewhere; 1 without a mask. p is the dropout.

    Raises ValueError unless 0 ≤ p < 1, and for a dropout without a mask.
    """
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout={dropout}, but should be at least 0 and less than 1.")
    if dropout_mask is None:
        if dropout:
            raise ValueError(f"dropout={dropout} is given without dropout_mask, but should come with it.")
        return replicate(alpha.one, shape)
    kept, factor = broadcast(dropout_mask, "dropout_mask", shape), alpha.div(alpha.one, alpha.one - alpha.lift(dropout))
    return tabulate(shape, lambda *index: factor if kept[index] else alpha.zero)
