"""Slips in the forward of attention and of grouped queries."""

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.reference import Mask, hard_masked_softmax, scaled_dot_product_attention, scores_of

bug = Register()


@bug(
    "scaled_dot_product_attention",
    effect="Each column of weights sums to 1 instead of each row: outputs are no averages of the values.",
    repair="Take the softmax over the last axis, the keys.",
    citation="labmlai/annotated_deep_learning_paper_implementations#146; FudanNLP/fastNLP#254; nerminnuraydogan/vision-transformer#1",
    law="constant values come out unchanged",
    public=True,
)
def sdpa_softmax_query_axis(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The softmax is taken over the queries instead of the keys."""
    scores = scores_of(q, k)
    allowed = np.broadcast_to(True if mask is None else mask, scores.shape)
    return hard_masked_softmax(scores.swapaxes(-1, -2), allowed.swapaxes(-1, -2)).swapaxes(-1, -2) @ v


@bug(
    "scaled_dot_product_attention",
    effect="Rectangular attention (cross-attention, decoding, chunked prefill) reads blocked keys.",
    repair="Apply the mask whatever its shape.",
    citation="nntrainer/nntrainer#4333; mlx-node/mlx-node#24",
    law="blocked keys and values do not matter",
    public=True,
)
def sdpa_rectangular_mask_ignored(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The mask is applied only when there are as many queries as keys."""
    return scaled_dot_product_attention(q, k, v, mask if q.shape[-2] == k.shape[-2] else None)
