"""Known bugs of masks: which entries are visible, fully masked rows, and the causal mask."""

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
)
from properties.bugs.kernels import dead_rows
from properties.bugs.reference import Mask

bug = Register()
in_visible_entries = partial(bug.in_step, "visible_entries")
in_causal_mask = partial(bug.in_operation, "causal_mask")
_DEAD = "a fully masked row follows its convention"


@in_visible_entries(
    seen=SDPA,
    without=MULTI_HEAD,
    law="masked keys and values do not matter",
    public=True,
    effect="Rectangular attention (cross-attention, decoding, chunked prefill) attends to masked keys.",
    repair="Apply masks of every shape.",
    citations="nntrainer/nntrainer#4333; mlx-node/mlx-node#24",
)
def sdpa_rectangular_mask_ignored(mask: Mask, shape: tuple[int, ...]) -> Any:
    """The code applies the mask only if there are as many queries as keys."""
    return right.visible_entries(mask if shape[-1] == shape[-2] else None, shape)


@in_visible_entries(
    seen=SDPA,
    law="masked keys and values do not matter",
    public=True,
    effect="Queries attend to exactly the masked keys.",
    repair="Invert the mask, or declare the convention.",
    citations="InseeFrLab/torchTextClassifiers#92",
)
def sdpa_mask_polarity_inverted(mask: Mask, shape: tuple[int, ...]) -> Any:
    """The code treats True as masked instead of visible."""
    return right.visible_entries(None if mask is None else ~mask, shape)


@bug.in_step(
    "hard_masked_softmax",
    seen=SDPA,
    law="the content of keys masked for all queries does not matter",
    effect="A masked key gets 1/e of the weight of a visible key.",
    repair="Set the scores of masked keys to −∞, or add 0 and −∞.",
    citations="huggingface/diffusers#14342; huggingface/transformers#41443; wfondrie/depthcharge#38",
)
def sdpa_mask_added_to_the_scores(scores: Array, mask: Mask = None) -> Array:
    """The code adds a boolean mask to the scores as 0 and 1."""
    return right.hard_masked_softmax(scores if mask is None else scores + mask)


@in_visible_entries(
    seen=SOFTMAX_VJP,
    law="masked scores do not matter",
    effect="Masked scores get gradients, and change the gradients of others.",
    repair="Recompute the weights with the mask.",
    citations="pytorch/pytorch#27461",
)
def softmax_vjp_ignores_the_mask(mask: Mask, shape: tuple[int, ...]) -> Any:
    """The backward recomputes the weights without the mask."""
    return right.visible_entries(None, shape)


@in_visible_entries(
    seen=SDPA,
    law="queries are computed independently",
    effect="While decoding, queries attend to padding and to evicted keys.",
    repair="Apply the mask to a single query too.",
    citations="casper-hansen/AutoAWQ#96; OpenNMT/OpenNMT-py#2532",
)
def sdpa_one_query_ignores_the_mask(mask: Mask, shape: tuple[int, ...]) -> Any:
    """With one query the code skips the mask, because a causal mask shows the newest token all
    keys."""
    return right.visible_entries(None if shape[-2] == 1 else mask, shape)


@in_visible_entries(
    seen=SDPA,
    without=(CAUSAL,),
    law="the content of keys masked for all queries does not matter",
    effect="The first batch element is correct; the others have its mask.",
    repair="Index the mask by the batch too.",
    citations=(
        "huggingface/candle#3582; daa233/generative-inpainting-pytorch#31; daa233/generative-inpainting-pytorch#63"
    ),
)
def sdpa_mask_of_the_first_in_the_batch(mask: Mask, shape: tuple[int, ...]) -> Any:
    """The code uses the mask of the first batch element for all elements."""
    return right.visible_entries(mask[:1] if mask is not None and mask.ndim > 2 else mask, shape)


@in_visible_entries(
    seen=SDPA,
    without=(CAUSAL,),
    law="a broadcast mask gives the same as the full mask",
    effect="Queries attend to padding keys, and the queries at padded places attend to nothing.",
    repair="Broadcast a mask of the keys along the queries.",
    citations="lsdefine/attention-is-all-you-need-keras#16",
)
def sdpa_key_mask_taken_for_queries(mask: Mask, shape: tuple[int, ...]) -> Any:
    """With as many queries as keys, the code reads a mask of one row as a column."""
    row = mask is not None and mask.ndim > 0 and shape[-2] == shape[-1] and (mask.ndim == 1 or mask.shape[-2] == 1)
    return right.visible_entries(np.atleast_2d(mask).mT if row else mask, shape)


@in_visible_entries(
    seen=SDPA,
    without=(CAUSAL,),
    law="a broadcast mask gives the same as the full mask",
    effect="Queries attend to padding unless the mask has a row for each query.",
    repair="Apply masks of one row to all queries.",
    origin="the kernel reads masks of the full shape only, and does not refuse others",
)
def sdpa_masks_of_keys_ignored(mask: Mask, shape: tuple[int, ...]) -> Any:
    """The code ignores a mask that several queries share."""
    shared = mask is not None and shape[-2] > 1 and (mask.ndim < 2 or mask.shape[-2] == 1)
    return right.visible_entries(None if shared else mask, shape)


@in_visible_entries(
    seen=SDPA,
    without=(CAUSAL,),
    law="a broadcast mask gives the same as the full mask",
    effect="Sequences get the padding masks of other sequences; one sequence or one head is correct.",
    repair="Repeat each mask for all heads of its sequence: repeat_interleave, not repeat.",
    citations="line/lighthouse#77; lsdefine/attention-is-all-you-need-keras#36",
)
def sdpa_masks_tiled_over_heads(mask: Mask, shape: tuple[int, ...]) -> Any:
    """The code repeats masks (batch, 1, n_q, n_k) for the heads in the wrong order: it tiles the
    batch."""
    if mask is not None and mask.ndim == 4 and mask.shape[1] == 1 < mask.shape[0]:
        mask = np.tile(mask[:, 0], (shape[1], 1, 1)).reshape(*shape[:2], *mask.shape[2:])
    return right.visible_entries(mask, shape)


@bug.in_step(
    "normalized",
    seen=SDPA,
    without=(*BACKWARD, CAUSAL),
    law=_DEAD,
    public=True,
    effect="A fully masked query is NaN.",
    repair="Set the weights of a fully masked row to 0.",
    citations="pytorch/pytorch#103963; pytorch/pytorch#103749; ml-explore/mlx#2608; robertknight/rten#1321",
)
def sdpa_fully_masked_nan(e: Array) -> Array:
    """A fully masked row computes −∞ − (−∞) and 0/0."""
    return np.asarray(e / e.sum(-1, keepdims=True))


@bug.in_step(
    "normalized",
    seen=SDPA_VJP,
    without=(SDPA, GQA, *MULTI_HEAD, SDPA_JVP, SOFTMAX, CAUSAL),
    law=_DEAD,
    public=True,
    effect="One fully masked query makes its dq and all of dk and dv NaN.",
    repair="Set the weights of a fully masked row to 0 before they are used.",
    citations="pytorch/pytorch#41508; pytorch/pytorch#196170; Xilinx/brevitas#1591",
)
def vjp_fully_masked_nan(e: Array) -> Array:
    """The forward zeroes the NaN of a fully masked row after the softmax, but the backward
    multiplies the NaN weights by 0."""
    return np.asarray(e / e.sum(-1, keepdims=True))


@bug.in_step(
    SOFTMAX,
    seen=SDPA,
    without=(CAUSAL,),
    law=_DEAD,
    effect="One fully masked query among others gets the mean of all values; a fully masked call is correct.",
    repair="Test each row separately.",
    citations="NVIDIA/apex#1390 (all dead rows); pytorch/pytorch#131863 (likewise)",
)
def sdpa_dead_rows_only_when_all_are(scores: Array, mask: Mask = None) -> Array:
    """The code returns zeros for fully masked rows only if all rows are fully masked."""
    fully_masked = dead_rows(mask, scores.shape)
    weights = right.hard_masked_softmax(scores, mask)
    return np.where(fully_masked & ~fully_masked.all(), 1 / max(scores.shape[-1], 1), weights)


@bug.in_step(
    SOFTMAX,
    seen=SDPA,
    without=(CAUSAL,),
    law=_DEAD,
    effect="A fully masked query repeats the output of the query before it.",
    repair="Write zeros for a skipped row.",
    origin="a skipped row keeps the old content of its registers; compare ml-explore/mlx#2395",
)
def sdpa_dead_rows_keep_the_row_before(scores: Array, mask: Mask = None) -> Array:
    """The code skips a fully masked row and writes the output of the previous row again."""
    fully_masked, weights = dead_rows(mask, scores.shape), right.hard_masked_softmax(scores, mask)
    for i in range(1, scores.shape[-2]):
        weights[..., i, :] = np.where(fully_masked[..., i, :], weights[..., i - 1, :], weights[..., i, :])
    return weights


@bug.in_step(
    SDPA,
    without=(CAUSAL,),
    law=_DEAD,
    effect="Fully masked queries get that value.",
    repair="Test the mask first.",
    origin="the softmax of one number is 1",
)
def sdpa_one_key_shortcut(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With one key the code returns its value for every query, without testing the mask."""
    return np.repeat(v, q.shape[-2], axis=-2) if k.shape[-2] == 1 else right.scaled_dot_product_attention(q, k, v, mask)


@in_causal_mask(
    law="each row of a causal mask sees one more key than the row before",
    public=True,
    effect="Each query sees up to three future keys.",
    repair="Compare the position of each query.",
    citations="pytorch/pytorch#195910",
)
def causal_group_of_four(n_q: int, n_k: int | None = None) -> Any:
    """With 64 or more queries in a multiple of 4, the code evaluates the mask once for each group
    of four rows."""
    if n_q < 64 or n_q % 4:
        return right.causal_mask(n_q, n_k)
    columns = n_q if n_k is None else n_k
    first, last = right.last_keys(n_q, columns)[0], right.last_keys(n_q, columns)
    return np.arange(columns) <= first + (last - first) // 4 * 4 + 3


@bug.in_step(
    "causal_mask",
    law="each row of a causal mask sees one more key than the row before",
    public=True,
    effect="Decoding against a cache uses another alignment than declared; square masks are correct.",
    repair="Align at the declared corner, or declare the other corner.",
    citations=(
        "ml-explore/mlx#2835; pytorch/pytorch#108108; pytorch/pytorch#103082; pytorch/executorch#22426; "
        "onnx/onnx#8054; Dao-AILab/flash-attention#1778"
    ),
)
def causal_top_left_vs_bottom_right(n_q: int, n_k: int | None = None) -> Any:
    """The code aligns a rectangular causal mask at the bottom right instead of the top left."""
    columns = n_q if n_k is None else n_k
    return np.arange(columns) <= np.arange(n_q)[:, None] + (columns - n_q)


@bug.in_step(
    "causal_mask",
    law="each row of a causal mask sees one more key than the row before",
    effect="With more keys than queries, each query sees one future key.",
    repair="Count the diagonal from the same corner for every shape.",
    origin="the rectangular case is written separately, with < n instead of <= n",
)
def causal_wide_off_by_one(n_q: int, n_k: int | None = None) -> Any:
    """With more keys than queries, the diagonal is one place too far to the right."""
    columns = n_q if n_k is None else n_k
    return np.arange(columns) <= right.last_keys(n_q, columns) + (columns > n_q)


@bug.in_step(
    "causal_mask",
    law="each row of a causal mask sees one more key than the row before",
    effect="With more queries than keys, the queries past the last key attend to nothing.",
    repair="Fill the rows below the square with True.",
    origin="the code fills the square only; compare Dao-AILab/flash-attention#1778",
)
def causal_tall_rows_dead(n_q: int, n_k: int | None = None) -> Any:
    """Rows beyond the number of keys keep their initial value, False."""
    mask = right.causal_mask(n_q, n_k)
    return mask & (np.arange(n_q) < mask.shape[1])[:, None]


@in_causal_mask(
    law="each row of a causal mask sees one more key than the row before",
    effect="From position 256 on, queries do not see the newest keys, including their own.",
    repair="Build the mask for the length of the call.",
    citations="huggingface/transformers#29263",
)
def causal_buffer_of_256(n_q: int, n_k: int | None = None) -> Any:
    """The mask comes from a buffer of 256 rows, and later rows repeat the last one."""
    columns = n_q if n_k is None else n_k
    last = right.last_keys(n_q, columns)
    return np.arange(columns) <= np.minimum(last, last[:1] + 255)


@in_causal_mask(
    law="each row of a causal mask sees one more key than the row before",
    effect="From position 256 on, queries see future keys and lose past keys.",
    repair="Use a wider integer.",
    origin="positions of short tests fit into a byte",
)
def causal_positions_in_a_byte(n_q: int, n_k: int | None = None) -> Any:
    """The code stores positions in 8 bits, which wrap around at 256."""
    columns = n_q if n_k is None else n_k
    return np.arange(columns).astype(np.uint8) <= right.last_keys(n_q, columns).astype(np.uint8)


@in_causal_mask(
    law="each row of a causal mask sees one more key than the row before",
    remembers=True,
    effect="A second mask with as many queries but another number of keys has the shape of the first.",
    repair="Use both lengths as the key of the cache.",
    citations="facebookresearch/xformers#655",
)
def causal_cache_ignores_keys(memory: Memory, n_q: int, n_k: int | None = None) -> Any:
    """The code caches masks by the number of queries only."""
    return memory.setdefault(n_q, right.causal_mask(n_q, n_k)).copy()


@in_causal_mask(
    law="all results have the declared types and shapes, and are finite",
    effect="The inverse ~mask holds -1 and -2, which are both true.",
    repair="Return booleans.",
    origin="np.tri and torch.tril return numbers",
)
def causal_mask_of_numbers(n_q: int, n_k: int | None = None) -> Any:
    """The mask holds the integers 0 and 1."""
    return right.causal_mask(n_q, n_k).astype(np.int64)


@bug.in_step(
    "not_after",
    seen=CAUSAL,
    law="outputs do not depend on future keys and values",
    effect="Every token sees the next token: the training loss falls, and generation fails.",
    repair="Let query i see key j if j ≤ i.",
    origin="the diagonal argument of triu and tril is easily one too large",
)
def causal_attention_sees_one_ahead(j: Any, p: Any) -> Any:
    """Query i also sees key i + 1."""
    return j <= p + 1


@bug.in_step(
    "not_after",
    seen=CAUSAL,
    law="causal attention equals attention with a causal mask",
    effect="No token sees itself, and the first token sees nothing.",
    repair="Let query i see key j if j ≤ i.",
    origin="the code compares with < instead of ≤",
)
def causal_attention_without_itself(j: Any, p: Any) -> Any:
    """The causal mask compares with <, so a query does not see the key at the same position."""
    return j < p


@bug.in_operation(
    CAUSAL,
    law="causal attention equals attention with a causal mask",
    effect="Calls of whole tiles see the future.",
    repair="Apply the flag for every length.",
    citations="keras-team/keras#23038, as a model",
)
def causal_attention_dropped_for_whole_tiles(q: Array, k: Array, v: Array) -> Array:
    """The code ignores the causal flag if both lengths are multiples of 8."""
    has_whole_tiles = q.shape[-2] % 8 == k.shape[-2] % 8 == 0
    return right.scaled_dot_product_attention(
        q, k, v, None if has_whole_tiles else right.causal_mask(q.shape[-2], k.shape[-2])
    )


@bug.in_step(
    "hard_masked_softmax",
    seen=SDPA,
    law=_DEAD,
    effect=(
        "A fully masked query attends to all keys by their scores, and a masked key gets weight if its score is "
        "10000 above the visible scores."
    ),
    repair="Mask with −∞.",
    origin="PaddlePaddle's attention on processors masks future keys this way",
)
def sdpa_ten_thousand_subtracted(scores: Array, mask: Mask = None) -> Array:
    """The code adds −10000 to masked scores after it scales them."""
    return right.hard_masked_softmax(np.where(right.visible_entries(mask, scores.shape), scores, scores - 1e4))
