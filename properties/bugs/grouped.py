"""Slips in grouped queries: which keys, values and masks a query head meets."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import allowed
from properties.reference import Mask, grouped_query_attention, scaled_dot_product_attention

bug = Register()

REPEATED = "grouped attention is attention with repeated heads"


def _attend(q: Array, k: Array, v: Array, mask: Mask, key_head: Any, value_head: Any = None) -> Array:
    """Attention of each query head over the key and value heads with these indices."""
    value_head = key_head if value_head is None else value_head
    return scaled_dot_product_attention(q, k[..., key_head, :, :], v[..., value_head, :, :], mask)


@bug(
    "grouped_query_attention",
    effect="Attention is too sharp, the more the wider the heads are.",
    repair="Divide the scores by √d.",
    citation="none: the commonest slip of a first version",
    law="each head is attention over its own",
)
def gqa_scale_missing(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The scores are not scaled."""
    return grouped_query_attention(q * np.sqrt(max(q.shape[-1], 1)), k, v, mask)


@bug(
    "grouped_query_attention",
    effect="Query heads meet the keys of another group, unless there is one group or no grouping.",
    repair="Repeat each key head for its group of query heads, h // group.",
    citation="onnx/onnx#7274; apple/axlearn#842; HazyResearch/HipKittens#22; ggml-org/llama.cpp#3364",
    law=REPEATED,
    public=True,
)
def gqa_tile_vs_repeat_interleave(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Query head h uses key head h % H_kv instead of h // (H / H_kv)."""
    return _attend(q, k, v, mask, np.arange(q.shape[-3]) % k.shape[-3])


@bug(
    "grouped_query_attention",
    effect="Some key heads are never used; right where groups are as large as they are many.",
    repair="Divide by the size of a group, not by the number of groups.",
    citation="PSAL-POSTECH/ONNXim#34",
    law=REPEATED,
)
def gqa_divided_by_key_heads(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Query head h uses key head h // H_kv, and the last one where there are not so many."""
    return _attend(q, k, v, mask, np.minimum(np.arange(q.shape[-3]) // k.shape[-3], k.shape[-3] - 1))


@bug(
    "grouped_query_attention",
    effect="Groups of 3, 5, 6 … query heads meet wrong keys; 1, 2, 4 and 8 are right.",
    repair="Divide by the size of a group instead of shifting.",
    citation="none: a shift replaces the division, and models in use have groups of 4 and 8",
    law=REPEATED,
)
def gqa_group_is_a_power_of_two(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The size of a group is rounded down to a power of two."""
    bits = (q.shape[-3] // k.shape[-3]).bit_length() - 1
    return _attend(q, k, v, mask, np.minimum(np.arange(q.shape[-3]) >> bits, k.shape[-3] - 1))


@bug(
    "grouped_query_attention",
    effect="Weights belong to one key head, values to another.",
    repair="Index keys and values alike.",
    citation="none: two index expressions, one of which was mended",
    law=REPEATED,
)
def gqa_values_tiled(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Query head h uses key head h // group, but value head h % H_kv."""
    heads = np.arange(q.shape[-3])
    return _attend(q, k, v, mask, heads // (q.shape[-3] // k.shape[-3]), heads % k.shape[-3])


@bug(
    "grouped_query_attention",
    effect="The first of a batch is right, the others attend to its keys and values; without grouping all is right.",
    repair="Add the batch's own offset to the keys and values.",
    citation="none: the stride of the batch is that of the repeated keys, which were never made",
    law="batches are computed one by one",
)
def gqa_keys_of_the_first_in_the_batch(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With grouping, all of a batch meet the keys and values of its first."""
    if q.shape[-3] > k.shape[-3] and k.ndim > 3:
        k, v = (np.broadcast_to(x[:1], x.shape) for x in (k, v))
    return grouped_query_attention(q, k, v, mask)


@bug(
    "grouped_query_attention",
    effect="Masks that differ between heads are applied to the wrong ones.",
    repair="Index the mask by the query head.",
    citation="none: inside the kernel only the index of the key head is at hand",
    law=REPEATED,
)
def gqa_mask_of_the_key_head(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A mask for each query head is indexed by the key head."""
    heads = q.shape[-3]
    if mask is not None and mask.ndim > 2 and mask.shape[-3] == heads:
        mask = mask[..., np.arange(heads) // (heads // k.shape[-3]), :, :]
    return grouped_query_attention(q, k, v, mask)


@bug(
    "grouped_query_attention",
    effect="Masks that differ between queries are applied to the wrong ones as soon as heads are grouped.",
    repair="The query of row r of a packed group is r % n_q.",
    citation="none: query heads of a group are packed as rows of one product, in either order",
    law=REPEATED,
)
def gqa_packed_rows_masked_by_division(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The query heads of a group lie one after the other as rows of one product, but row r is masked as query r // group."""
    (heads, n_q), group = q.shape[-3:-1], q.shape[-3] // k.shape[-3]
    rows = (np.arange(heads)[:, None] % group * n_q + np.arange(n_q)) // group
    every = allowed(mask, (*q.shape[:-1], k.shape[-2]))
    return grouped_query_attention(q, k, v, every[..., np.arange(heads)[:, None], rows, :])


@bug(
    "grouped_query_attention",
    effect="With a single key head blocked keys are attended to.",
    repair="Pass the mask on to the path for one key head.",
    citation="none: multi-query attention is a path of its own",
    law=REPEATED,
)
def gqa_one_key_head_ignores_the_mask(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Where one key head serves several query heads, the mask is left out."""
    return grouped_query_attention(q, k, v, None if k.shape[-3] == 1 < q.shape[-3] else mask)
