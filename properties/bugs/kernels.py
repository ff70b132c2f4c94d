"""Provides building blocks that kernels have and the reference does not have: masked scores, tiles,
online softmax, rounding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oracles.ball import Array
from properties.bugs.reference import (
    Mask,
    causal_mask,
    dead_weight,
    responding,
    row_term,
    scaled,
    scores_of,
    visible_entries,
)

__all__ = [
    "OnlineAttention",
    "dead_rows",
    "gradients_of",
    "is_causal",
    "joined",
    "masked",
    "rounded_to",
    "scores_shape",
    "tiles",
    "with_dead_rows",
]


def scores_shape(q: Array, k: Array) -> tuple[int, ...]:
    """Return the shape of q·kᵀ."""
    return *q.shape[:-1], k.shape[-2]


def dead_rows(mask: Mask, shape: tuple[int, ...]) -> Any:
    """Return True for each fully masked row of scores of this shape. The last axis of the result
    has length 1.
    """
    return ~visible_entries(mask, shape).any(-1, keepdims=True)


def with_dead_rows(output: Array, mask: Mask, v: Array) -> Array:
    """Return the output of attention, where fully masked rows follow their convention."""
    fully_masked = dead_rows(mask, (*output.shape[:-1], v.shape[-2]))
    return np.where(fully_masked, dead_weight(v.shape[-2]) * v.sum(-2, keepdims=True), output)


def masked(scores: Array, mask: Mask) -> Array:
    """Return the scores, with −∞ at masked entries."""
    return np.where(visible_entries(mask, scores.shape), scores, -np.inf)


def is_causal(mask: Mask, shape: tuple[int, ...]) -> bool:
    """Return whether the mask is the causal mask for scores of this shape. A kernel may then use
    its causal path.
    """
    return mask is not None and mask.shape[-2:] == shape[-2:] and bool((mask == causal_mask(*shape[-2:])).all())


def tiles(n: int, width: int) -> Iterator[slice]:
    """Return slices of `width` numbers that cover the first n numbers. The last slice may be
    shorter.
    """
    return (slice(start, min(start + width, n)) for start in range(0, n, width))


@dataclass(frozen=True)
class OnlineAttention:
    """Attention by tiles of keys with a running maximum. It is correct with the default fields.

    `width` is the size of a tile and `start` the maximum before the first tile. When the maximum
    grows, `rescale_sum` and `rescale_output` say whether the sum and the output are rescaled.
    `dead` says what happens to a maximum that is still −∞ after a tile.
    """

    width: int = 16
    start: float = -np.inf
    rescale_sum: bool = True
    rescale_output: bool = True
    dead: Literal["skipped", "not a number", "taken for zero"] = "skipped"

    def __call__(self, q: Array, k: Array, v: Array, mask: Mask) -> Array:
        """Return the output of attention."""
        scores = masked(scores_of(q, k), mask)
        largest, total = np.full((*q.shape[:-1], 1), self.start), np.zeros((*q.shape[:-1], 1))
        output = np.zeros((*q.shape[:-1], v.shape[-1]))
        for keys in tiles(k.shape[-2], self.width):
            before, largest = largest, np.maximum(largest, scores[..., keys].max(-1, keepdims=True))
            shift = largest if self.dead == "not a number" else np.where(np.isneginf(largest), 0.0, largest)
            with np.errstate(invalid="ignore"):
                shrink, e = np.exp(before - shift), np.exp(scores[..., keys] - shift)
            total = total * (shrink if self.rescale_sum else 1.0) + e.sum(-1, keepdims=True)
            output = output * (shrink if self.rescale_output else 1.0) + e @ v[..., keys, :]
            largest = shift if self.dead == "taken for zero" else largest
        return with_dead_rows(output / np.where(total == 0, 1.0, total), mask, v)


def gradients_of(
    inputs: tuple[Array, Array, Array], mask: Mask, grad_out: Array, p: Array, term: Array | None = None
) -> tuple[Array, ...]:
    """Return dq, dk and dv of the inputs q, k and v for the weights p. `term` is the term of each row,
    by default Σ P·dP.
    """
    q, k, v = inputs
    grad_weights = grad_out @ v.mT
    live = responding(p, visible_entries(mask, p.shape))
    ds = scaled(live * (grad_weights - (row_term(p, grad_weights) if term is None else term)), q.shape[-1])
    return ds @ k, ds.mT @ q, p.mT @ grad_out


def joined(x: Array) -> Array:
    """Return (…, heads, n, width) as (…, n, heads·width) in the order of memory, without a
    transpose.
    """
    return x.reshape(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1])


def rounded_to(bits: int, x: Any) -> Array:
    """Return x rounded to `bits` significant bits, ties to even: 8 for bfloat16, 11 for float16."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits))
