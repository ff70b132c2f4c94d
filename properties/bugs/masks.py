"""Slips in what masks do to attention, and in the causal mask itself."""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import allowed, dead_rows, scores_shape, unguarded_softmax
from properties.reference import Mask, causal_mask, hard_masked_softmax, scaled_dot_product_attention, scores_of, transposed

bug = Register()

BLOCKED = "blocked keys and values do not matter"
DEAD = "a query with no allowed key follows its convention"
PREFIX = "row i of a causal mask allows the first keys"


@bug(
    "scaled_dot_product_attention",
    effect="Rectangular attention (cross-attention, decoding, chunked prefill) reads blocked keys.",
    repair="Apply the mask whatever its shape.",
    citation="nntrainer/nntrainer#4333; mlx-node/mlx-node#24",
    law=BLOCKED,
    public=True,
)
def sdpa_rectangular_mask_ignored(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The mask is applied only when there are as many queries as keys."""
    return scaled_dot_product_attention(q, k, v, mask if q.shape[-2] == k.shape[-2] else None)


@bug(
    "scaled_dot_product_attention",
    effect="Queries attend to exactly the keys they should not see.",
    repair="Invert the mask, or declare the polarity.",
    citation="InseeFrLab/torchTextClassifiers#92",
    law=BLOCKED,
    public=True,
)
def sdpa_mask_polarity_inverted(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """True is taken for blocked instead of allowed."""
    return scaled_dot_product_attention(q, k, v, None if mask is None else ~mask)


@bug(
    "scaled_dot_product_attention",
    effect="A query with no allowed key is NaN.",
    repair="Set the weights of a row with no allowed key to 0.",
    citation="pytorch/pytorch#103963; pytorch/pytorch#103749; ml-explore/mlx#2608; robertknight/rten#1321",
    law=DEAD,
    public=True,
)
def sdpa_fully_masked_nan(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A row with no allowed key computes −∞ − (−∞) and 0/0."""
    return unguarded_softmax(scores_of(q, k), mask) @ v


@bug(
    "scaled_dot_product_attention",
    effect="Padding attends to everything.",
    repair="Set the weights of a row with no allowed key to 0.",
    citation="NVIDIA/apex#1390; pytorch/pytorch#131863",
    law=DEAD,
)
def sdpa_dead_rows_uniform(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Blocked scores are the lowest finite number, so that a row with no allowed key takes the mean of all values."""
    dead = dead_rows(mask, scores_shape(q, k))
    return np.where(dead, v.mean(-2, keepdims=True), scaled_dot_product_attention(q, k, v, mask))


@bug(
    "scaled_dot_product_attention",
    effect="A call in which all queries are dead is right, one dead query among others takes the mean of all values.",
    repair="Look for dead rows one by one.",
    citation="none: a test on the whole mask is the cheapest guard, and passes the obvious test",
    law=DEAD,
)
def sdpa_dead_rows_only_when_all_are(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Zeros are returned only when no query has an allowed key."""
    dead = dead_rows(mask, scores_shape(q, k))
    return np.where(dead & ~dead.all(), v.mean(-2, keepdims=True), scaled_dot_product_attention(q, k, v, mask))


@bug(
    "scaled_dot_product_attention",
    effect="A query with no allowed key repeats the output of the query before it.",
    repair="Write zeros for a skipped row.",
    citation="none: a row that is skipped keeps what its registers held; compare ml-explore/mlx#2395",
    law=DEAD,
)
def sdpa_dead_rows_keep_the_row_before(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A row with no allowed key is skipped, and the output of the row before it is written once more."""
    dead, out = dead_rows(mask, scores_shape(q, k)), scaled_dot_product_attention(q, k, v, mask)
    for i in range(1, q.shape[-2]):
        out[..., i, :] = np.where(dead[..., i, :], out[..., i - 1, :], out[..., i, :])
    return out


@bug(
    "scaled_dot_product_attention",
    effect="While decoding, padding and evicted keys are attended to.",
    repair="Apply the mask to a single query as well.",
    citation="casper-hansen/AutoAWQ#96; OpenNMT/OpenNMT-py#2532",
    law="appending queries changes nothing",
)
def sdpa_one_query_ignores_the_mask(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With one query the mask is left out: the newest token may see everything, if the mask is causal."""
    return scaled_dot_product_attention(q, k, v, None if q.shape[-2] == 1 else mask)


@bug(
    "scaled_dot_product_attention",
    effect="The first of a batch is right, the others are masked like it.",
    repair="Index the mask by the batch as well.",
    citation="huggingface/candle#3582",
    law="batches are computed one by one",
)
def sdpa_mask_of_the_first_in_the_batch(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Of a mask with batch axes the first entry of the first axis is used for all."""
    return scaled_dot_product_attention(q, k, v, mask[:1] if mask is not None and mask.ndim > 2 else mask)


@bug(
    "scaled_dot_product_attention",
    effect="Padding keys are attended to, and the queries at their places attend to nothing.",
    repair="Broadcast a mask of the keys along the queries.",
    citation="lsdefine/attention-is-all-you-need-keras#16",
    law="a mask broadcasts",
)
def sdpa_key_mask_taken_for_queries(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A mask with one row, for all queries, is turned into a column where there are as many queries as keys."""
    row = mask is not None and mask.ndim > 0 and q.shape[-2] == k.shape[-2] and (mask.ndim == 1 or mask.shape[-2] == 1)
    return scaled_dot_product_attention(q, k, v, transposed(np.atleast_2d(mask)) if row else mask)


@bug(
    "scaled_dot_product_attention",
    effect="A blocked key leaks in once its score is some thousands above the allowed ones.",
    repair="Block with −∞, after scaling.",
    citation="none: the mask is added before the scores are scaled, so −10000 becomes −1250 at width 64",
    law=BLOCKED,
)
def sdpa_mask_scaled_with_the_scores(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """−10000 is added to blocked scores before they are divided by √d."""
    scores = scores_of(q, k)
    penalty = np.where(allowed(mask, scores.shape), 0.0, -1e4 / np.sqrt(max(q.shape[-1], 1)))
    return np.where(dead_rows(mask, scores.shape), 0.0, hard_masked_softmax(scores + penalty) @ v)


@bug(
    "causal_mask",
    effect="On one path, each of four neighbouring queries sees up to three future keys.",
    repair="Compare each query's own position.",
    citation="pytorch/pytorch#195910",
    law=PREFIX,
    public=True,
)
def causal_group_of_four(n_q: int, n_k: int | None = None) -> Any:
    """From 64 queries on, if their number is a multiple of 4, the mask is evaluated once for each group of four rows."""
    if n_q < 64 or n_q % 4:
        return causal_mask(n_q, n_k)
    return np.arange(n_q if n_k is None else n_k) <= np.arange(n_q)[:, None] // 4 * 4 + 3


@bug(
    "causal_mask",
    effect="While decoding against a cache, the alignment differs from the promised one; square masks are right.",
    repair="Align at the corner that is promised, or declare the other.",
    citation="ml-explore/mlx#2835; pytorch/pytorch#108108; pytorch/pytorch#103082; pytorch/executorch#22426; onnx/onnx#8054; "
    "Dao-AILab/flash-attention#1778",
    law="a causal mask of a chunk is part of the whole",
    public=True,
)
def causal_top_left_vs_bottom_right(n_q: int, n_k: int | None = None) -> Any:
    """A rectangular mask is aligned at the bottom right where the contract says top left."""
    columns = n_q if n_k is None else n_k
    return np.arange(columns) <= np.arange(n_q)[:, None] + (columns - n_q)


@bug(
    "causal_mask",
    effect="With more keys than queries, each query sees one key of the future.",
    repair="Count the diagonal from the same corner for every shape.",
    citation="none: the rectangular case is written by hand, with < n for <= n",
    law="a causal mask of a chunk is part of the whole",
)
def causal_wide_off_by_one(n_q: int, n_k: int | None = None) -> Any:
    """With more keys than queries the diagonal lies one further to the right."""
    wide = n_k is not None and n_k > n_q
    return np.tri(n_q, n_q if n_k is None else n_k, int(wide), dtype=bool)


@bug(
    "causal_mask",
    effect="With more queries than keys, the queries beyond the last key attend to nothing.",
    repair="Fill the rows below the square with True.",
    citation="none: the rows below the square are forgotten; compare Dao-AILab/flash-attention#1778",
    law=PREFIX,
)
def causal_tall_rows_dead(n_q: int, n_k: int | None = None) -> Any:
    """Rows beyond the number of keys are left as they were allocated, False."""
    mask = causal_mask(n_q, n_k)
    return mask & (np.arange(n_q) < mask.shape[1])[:, None]


@bug(
    "causal_mask",
    effect="From position 256 on, queries do not see the newest keys, themselves included.",
    repair="Build the mask for the length at hand.",
    citation="huggingface/transformers#29263",
    law=PREFIX,
)
def causal_buffer_of_256(n_q: int, n_k: int | None = None) -> Any:
    """Rows are read from a buffer of 256, its last one for all that follow."""
    return np.arange(n_q if n_k is None else n_k) <= np.minimum(np.arange(n_q), 255)[:, None]


@bug(
    "causal_mask",
    effect="Beyond 256 positions, queries see keys of the future and lose keys of the past.",
    repair="Keep positions in an integer that holds them.",
    citation="none: short tests fit into a byte",
    law=PREFIX,
)
def causal_positions_in_a_byte(n_q: int, n_k: int | None = None) -> Any:
    """Positions are stored in 8 bits and wrap around at 256."""
    return np.arange(n_q if n_k is None else n_k).astype(np.uint8) <= np.arange(n_q).astype(np.uint8)[:, None]


@bug(
    "causal_mask",
    effect="A second mask for as many queries and another number of keys has the shape of the first.",
    repair="Make both lengths the key of the cache.",
    citation="facebookresearch/xformers#655",
    law="a call does not depend on earlier calls",
    requires=("two calls in a row",),
    stateful=True,
)
def causal_cache_ignores_keys() -> Callable[..., Any]:
    """Masks are cached by the number of queries alone."""
    cache: dict[int, Any] = {}
    return lambda n_q, n_k=None: cache.setdefault(n_q, causal_mask(n_q, n_k)).copy()
