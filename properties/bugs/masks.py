"""Slips in what masks do: which entries are allowed, rows with no allowed entry, and the causal mask itself."""

from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import (
    BACKWARD,
    CAUSAL,
    GQA,
    MULTI_HEAD,
    SDPA,
    SDPA_JVP,
    SDPA_VJP,
    SOFTMAX,
    SOFTMAX_VJP,
    Memory,
    Register,
    named,
)
from properties.bugs.kernels import dead_rows
from properties.bugs.reference import Mask

bug = Register()
_DEAD = "a query with no allowed key follows its convention"


@bug.slip("allowed", seen=SDPA, without=MULTI_HEAD, law="masked keys and values do not matter", public=True)
def sdpa_rectangular_mask_ignored(mask: Mask, shape: tuple[int, ...]) -> Any:
    """The mask is applied only when there are as many queries as keys.
    Effect: Rectangular attention (cross-attention, decoding, chunked prefill) reads masked keys.
    Repair: Apply the mask whatever its shape. Seen: nntrainer/nntrainer#4333;
    mlx-node/mlx-node#24"""
    return right.allowed(mask if shape[-1] == shape[-2] else None, shape)


@bug.slip("allowed", seen=SDPA, law="masked keys and values do not matter", public=True)
def sdpa_mask_polarity_inverted(mask: Mask, shape: tuple[int, ...]) -> Any:
    """True is taken for masked instead of allowed.
    Effect: Queries attend to exactly the masked keys. Repair: Invert the mask, or declare it. Seen:
    InseeFrLab/torchTextClassifiers#92"""
    return right.allowed(None if mask is None else ~mask, shape)


@bug.slip("hard_masked_softmax", seen=SDPA, law="keys masked for all queries do not matter")
def sdpa_mask_added_to_the_scores(scores: Array, mask: Mask = None) -> Array:
    """A mask of booleans is added to the scores, as 0 and 1.
    Effect: Masked keys weigh 1/e of what allowed ones do. Repair: Set the scores of masked keys to
    −∞, or add 0 and −∞. Seen: huggingface/diffusers#14342; huggingface/transformers#41443;
    wfondrie/depthcharge#38"""
    return right.hard_masked_softmax(scores if mask is None else scores + mask)


@bug.slip("allowed", seen=SOFTMAX_VJP, law="masked scores do not matter")
def softmax_vjp_ignores_the_mask(mask: Mask, shape: tuple[int, ...]) -> Any:
    """The weights are recomputed without the mask.
    Effect: Masked scores get gradients, and change others. Repair: Recompute them under the mask.
    Seen: pytorch/pytorch#27461"""
    return right.allowed(None, shape)


@bug.slip("allowed", seen=SDPA, law="queries are computed independently")
def sdpa_one_query_ignores_the_mask(mask: Mask, shape: tuple[int, ...]) -> Any:
    """With one query the mask is left out: the newest token may see everything, if the mask is
    causal. Effect: While decoding, padding and evicted keys are attended to. Repair: Apply the mask
    to a single query as well. Seen: casper-hansen/AutoAWQ#96; OpenNMT/OpenNMT-py#2532"""
    return right.allowed(None if shape[-2] == 1 else mask, shape)


@bug.slip("allowed", seen=SDPA, without=(CAUSAL,), law="keys masked for all queries do not matter")
def sdpa_mask_of_the_first_in_the_batch(mask: Mask, shape: tuple[int, ...]) -> Any:
    """Of a mask with batch axes the first entry of the first axis is used for all.
    Effect: The first of a batch is right, the others are masked like it. Repair: Index the mask by
    the batch as well. Seen: huggingface/candle#3582; daa233/generative-inpainting-pytorch#31;
    daa233/generative-inpainting-pytorch#63"""
    return right.allowed(mask[:1] if mask is not None and mask.ndim > 2 else mask, shape)


@bug.slip("allowed", seen=SDPA, without=(CAUSAL,), law="a mask can be written out")
def sdpa_key_mask_taken_for_queries(mask: Mask, shape: tuple[int, ...]) -> Any:
    """A mask with one row, for all queries, is turned into a column where there are as many queries
    as keys. Effect: Padding keys are attended to, and the queries at their places attend to
    nothing. Repair: Broadcast a mask of the keys along the queries. Seen:
    lsdefine/attention-is-all-you-need-keras#16"""
    row = mask is not None and mask.ndim > 0 and shape[-2] == shape[-1] and (mask.ndim == 1 or mask.shape[-2] == 1)
    return right.allowed(right.transposed(np.atleast_2d(mask)) if row else mask, shape)


@bug.slip("allowed", seen=SDPA, without=(CAUSAL,), law="a mask can be written out")
def sdpa_masks_of_keys_ignored(mask: Mask, shape: tuple[int, ...]) -> Any:
    """A mask that several queries share is left out.
    Effect: Padding is attended to, unless the mask is written out for each query. Repair: Apply
    masks of one row to all queries. Seen: none: a kernel that reads masks of the full shape alone,
    and does not refuse others"""
    shared = mask is not None and shape[-2] > 1 and (mask.ndim < 2 or mask.shape[-2] == 1)
    return right.allowed(None if shared else mask, shape)


@bug.slip("allowed", seen=SDPA, without=(CAUSAL,), law="a mask can be written out")
def sdpa_masks_tiled_over_heads(mask: Mask, shape: tuple[int, ...]) -> Any:
    """Masks (batch, 1, n_q, n_k) are repeated for the heads by tiling the batch.
    Effect: Sequences get each other's padding masks; one sequence, or one head, does not show it.
    Repair: Repeat each mask for all heads of its sequence: repeat_interleave, not repeat. Seen:
    line/lighthouse#77; lsdefine/attention-is-all-you-need-keras#36"""
    if mask is not None and mask.ndim == 4 and mask.shape[1] == 1 < mask.shape[0]:
        mask = np.tile(mask[:, 0], (shape[1], 1, 1)).reshape(*shape[:2], *mask.shape[2:])
    return right.allowed(mask, shape)


@bug.slip("normalized", seen=SDPA, without=(*BACKWARD, CAUSAL), law=_DEAD, public=True)
def sdpa_fully_masked_nan(e: Array) -> Array:
    """A row with no allowed key computes −∞ − (−∞) and 0/0.
    Effect: A query with no allowed key is NaN. Repair: Set the weights of a row with no allowed key
    to 0. Seen: pytorch/pytorch#103963; pytorch/pytorch#103749; ml-explore/mlx#2608;
    robertknight/rten#1321"""
    return np.asarray(e / e.sum(-1, keepdims=True))


@bug.slip(
    "normalized", seen=SDPA_VJP, without=(SDPA, GQA, *MULTI_HEAD, SDPA_JVP, SOFTMAX, CAUSAL), law=_DEAD, public=True
)
def vjp_fully_masked_nan(e: Array) -> Array:
    """The forward zeroes the NaN of a fully masked row after the softmax, the backward multiplies
    the NaN weights by 0. Effect: One query with no allowed key makes its dq and all of dk and dv
    NaN. Repair: Set the weights of such a row to 0 before they are used. Seen:
    pytorch/pytorch#41508; pytorch/pytorch#196170; Xilinx/brevitas#1591"""
    return np.asarray(e / e.sum(-1, keepdims=True))


@bug.slip(SOFTMAX, seen=SDPA, without=(CAUSAL,), law=_DEAD)
def sdpa_dead_rows_only_when_all_are(scores: Array, mask: Mask = None) -> Array:
    """Zeros are returned only when no query has an allowed key.
    Effect: A call in which all queries are dead is right, one dead query among others takes the
    mean of all values. Repair: Look for dead rows one by one. Seen: NVIDIA/apex#1390 (all dead
    rows); pytorch/pytorch#131863 (likewise)"""
    dead = dead_rows(mask, scores.shape)
    return np.where(dead & ~dead.all(), 1 / max(scores.shape[-1], 1), right.hard_masked_softmax(scores, mask))


@bug.slip(SOFTMAX, seen=SDPA, without=(CAUSAL,), law=_DEAD)
def sdpa_dead_rows_keep_the_row_before(scores: Array, mask: Mask = None) -> Array:
    """A row with no allowed key is skipped, and the output of the row before it is written once
    more. Effect: A query with no allowed key repeats the output of the query before it. Repair:
    Write zeros for a skipped row. Seen: none: a row that is skipped keeps what its registers held;
    compare ml-explore/mlx#2395"""
    dead, weights = dead_rows(mask, scores.shape), right.hard_masked_softmax(scores, mask)
    for i in range(1, scores.shape[-2]):
        weights[..., i, :] = np.where(dead[..., i, :], weights[..., i - 1, :], weights[..., i, :])
    return weights


@bug.slip(SDPA, without=(CAUSAL,), law=_DEAD)
def sdpa_one_key_shortcut(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With one key its value is returned for every query, without a look at the mask.
    Effect: Fully masked queries get that value. Repair: Look at the mask first. Seen: none: the
    softmax of one number is 1"""
    return np.repeat(v, q.shape[-2], axis=-2) if k.shape[-2] == 1 else right.scaled_dot_product_attention(q, k, v, mask)


@bug("causal_mask", law="row i of a causal mask allows the first keys", public=True)
def causal_group_of_four(n_q: int, n_k: int | None = None) -> Any:
    """From 64 queries on, if their number is a multiple of 4, the mask is evaluated once for each
    group of four rows. Effect: There each query sees up to three future keys. Repair: Compare each
    query's own position. Seen: pytorch/pytorch#195910"""
    if n_q < 64 or n_q % 4:
        return right.causal_mask(n_q, n_k)
    return np.arange(n_q if n_k is None else n_k) <= np.arange(n_q)[:, None] // 4 * 4 + 3


@bug.slip("causal_mask", law="row i of a causal mask allows the first keys", public=True)
def causal_top_left_vs_bottom_right(n_q: int, n_k: int | None = None) -> Any:
    """A rectangular mask is aligned at the bottom right where the contract says top left. Effect:
    While decoding against a cache, the alignment differs from the promised one; square masks are
    right. Repair: Align at the corner that is promised, or declare the other. Seen:
    ml-explore/mlx#2835; pytorch/pytorch#108108; pytorch/pytorch#103082; pytorch/executorch#22426;
    onnx/onnx#8054; Dao-AILab/flash-attention#1778"""
    columns = n_q if n_k is None else n_k
    return np.arange(columns) <= np.arange(n_q)[:, None] + (columns - n_q)


@bug.slip("causal_mask", law="row i of a causal mask allows the first keys")
def causal_wide_off_by_one(n_q: int, n_k: int | None = None) -> Any:
    """With more keys than queries the diagonal lies one further to the right.
    Effect: With more keys than queries, each query sees one key of the future. Repair: Count the
    diagonal from the same corner for every shape. Seen: none: the rectangular case is written by
    hand, with < n for <= n"""
    return np.tri(n_q, n_q if n_k is None else n_k, int(n_k is not None and n_k > n_q), dtype=bool)


@bug.slip("causal_mask", law="row i of a causal mask allows the first keys")
def causal_tall_rows_dead(n_q: int, n_k: int | None = None) -> Any:
    """Rows beyond the number of keys are left as they were allocated, False.
    Effect: With more queries than keys, the queries beyond the last key attend to nothing. Repair:
    Fill the rows below the square with True. Seen: none: the rows below the square are forgotten;
    compare Dao-AILab/flash-attention#1778"""
    mask = right.causal_mask(n_q, n_k)
    return mask & (np.arange(n_q) < mask.shape[1])[:, None]


@bug("causal_mask", law="row i of a causal mask allows the first keys")
def causal_buffer_of_256(n_q: int, n_k: int | None = None) -> Any:
    """Rows are read from a buffer of 256, its last one for all that follow.
    Effect: From position 256 on, queries do not see the newest keys, themselves included. Repair:
    Build the mask for the length at hand. Seen: huggingface/transformers#29263"""
    return np.arange(n_q if n_k is None else n_k) <= np.minimum(np.arange(n_q), 255)[:, None]


@bug("causal_mask", law="row i of a causal mask allows the first keys")
def causal_positions_in_a_byte(n_q: int, n_k: int | None = None) -> Any:
    """Positions are stored in 8 bits and wrap around at 256.
    Effect: Beyond 256, queries see the future and lose the past. Repair: Use a wider integer. Seen:
    none: short tests fit into a byte"""
    return np.arange(n_q if n_k is None else n_k).astype(np.uint8) <= np.arange(n_q).astype(np.uint8)[:, None]


@bug("causal_mask", law="row i of a causal mask allows the first keys", remembers=True)
def causal_cache_ignores_keys(memory: Memory, n_q: int, n_k: int | None = None) -> Any:
    """Masks are cached by the number of queries alone.
    Effect: A second mask for as many queries and another number of keys has the shape of the first.
    Repair: Make both lengths the key of the cache. Seen: facebookresearch/xformers#655"""
    return memory.setdefault(n_q, right.causal_mask(n_q, n_k)).copy()


@bug("causal_mask", law="what it returns is as promised")
def causal_mask_of_numbers(n_q: int, n_k: int | None = None) -> Any:
    """The mask holds the integers 0 and 1.
    Effect: Inverted with ~ it is -1 and -2, which are true. Repair: Return booleans. Seen: none:
    np.tri and torch.tril give numbers"""
    return right.causal_mask(n_q, n_k).astype(np.int64)


for _name, _last, _law, _told in (
    ("causal_attention_sees_one_ahead", 1, "the past does not depend on the future", """The causal mask reaches one key too far.
     Effect: Every token sees the next one: training loss falls, generation fails. Repair: Allow key j to query i where j ≤ i. Seen:
     none: the diagonal argument of triu and tril is easily one too large."""),
    ("causal_attention_without_itself", -1, "causal attention is attention under the causal mask", """The causal mask ends one key
     before. Effect: No token sees itself, and the first one nothing. Repair: Allow key j to query i where j ≤ i. Seen: none: < for ≤"""),
):  # fmt: skip
    bug.slip("causal_mask", seen=CAUSAL, law=_law)(named(partial(np.tri, k=_last, dtype=bool), _name, _told))


@bug(CAUSAL, law="causal attention is attention under the causal mask")
def causal_attention_dropped_for_whole_tiles(q: Array, k: Array, v: Array) -> Array:
    """The flag is ignored where both lengths are multiples of 8.
    Effect: Whole tiles see the future. Repair: Apply the flag whatever the length. Seen:
    keras-team/keras#23038, as a model"""
    whole = q.shape[-2] % 8 == k.shape[-2] % 8 == 0
    return right.scaled_dot_product_attention(q, k, v, None if whole else right.causal_mask(q.shape[-2], k.shape[-2]))
