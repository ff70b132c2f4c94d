"""Known bugs of attention that works by tiles of keys: rescaling, last tiles, split keys, and masks
of tiles.
"""

from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs import reference_attention as steps
from properties.bugs.bug import SDPA, Register
from properties.bugs.kernels import OnlineAttention, is_causal, masked, scores_shape, tiles, with_dead_rows
from properties.bugs.reference import Mask

bug = Register()
in_attention = partial(bug.in_operation, SDPA)
in_sums = partial(
    bug.in_step,
    seen="attention",
    law="attention with options is within its error limit",
    without=("attention_vjp", "attention_jvp", "packed_attention_vjp"),
)


def _padded(q: Array, k: Array, v: Array, mask: Mask, extra: int) -> Array:
    """Return attention that also attends to `extra` keys and values of zeros."""
    rows = [(0, 0)] * (k.ndim - 2) + [(0, extra), (0, 0)]
    padded_mask = np.ones((*scores_shape(q, k)[:-1], extra), bool)
    visible = np.concatenate([right.visible_entries(mask, scores_shape(q, k)), padded_mask], -1)
    return right.scaled_dot_product_attention(q, np.pad(k, rows), np.pad(v, rows), visible)


def _of_keys(q: Array, k: Array, v: Array, mask: Mask, keys: slice | Array) -> Array:
    """Return attention to some of the keys alone."""
    visible = right.visible_entries(mask, scores_shape(q, k))
    return right.scaled_dot_product_attention(q, k[..., keys, :], v[..., keys, :], visible[..., keys])


@in_attention(
    law="the order of keys does not matter",
    effect="Keys of early tiles get too much weight if a later tile has the largest score.",
    repair="Multiply the sum and the output by exp(old − new maximum) before the next tile is added.",
    origin="a first version often lacks the line that rescales",
)
def sdpa_online_nothing_rescaled(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """When a later tile of {tile} keys raises the maximum, the code rescales neither the sum nor the
    output."""
    return OnlineAttention(width=tile, rescale_sum=False, rescale_output=False)(q, k, v, mask)


@in_attention(
    law="if all values are equal, the output is that value",
    effect="Outputs are too large if a later tile has the largest score.",
    repair="Rescale the output together with the sum.",
    origin="the code keeps the sum beside the maximum, and the output elsewhere",
)
def sdpa_online_output_not_rescaled(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """When a later tile of {tile} keys raises the maximum, the code rescales the sum but not the
    output."""
    return OnlineAttention(width=tile, rescale_output=False)(q, k, v, mask)


def _so_far(u: Array, may: Any, reference: Array, tile: int) -> Array:
    """Return the largest logit in the tile of each key and in all tiles before, or the reference if it is a
    larger sink; 0 without visible keys.
    """
    rows = [(0, 0)] * (u.ndim - 1)
    visible = np.pad(np.where(may, u, -np.inf), [*rows, (0, -u.shape[-1] % tile)], constant_values=-np.inf)
    of_tiles = visible.reshape(*visible.shape[:-1], -1, tile).max(-1) if u.size else visible
    running = np.maximum.accumulate(of_tiles, -1).repeat(tile, -1)[..., : u.shape[-1]]
    running = np.where(reference > running[..., -1:], reference, running) if u.size else running
    return np.where(np.isneginf(running), 0.0, running)


@in_sums(
    "exponentials_of_logits",
    effect="The weights of a row add up to more than 1 if a later tile has the largest score.",
    repair="Multiply the output by exp(old − new maximum) before the next tile is added.",
    origin="the code keeps the sum beside the maximum, and the output elsewhere",
)
def attention_running_output_not_rescaled(u: Array, may: Any, reference: Array, tile: int = 32) -> Array:
    """When a later tile of {tile} keys raises the maximum, the code rescales the sum but not the
    output."""
    return steps.exponentials_of_logits(u, may, _so_far(u, may, reference, tile))


@in_sums(
    "sum_of_exponentials",
    effect="The weights of a row add up to less than 1 if a later tile has the largest score.",
    repair="Multiply the sum by exp(old − new maximum) before the next tile is added.",
    origin="the code keeps the output beside the maximum, and the sum elsewhere",
)
def attention_running_sum_not_rescaled(u: Array, may: Any, reference: Array, tile: int = 32) -> Array:
    """When a later tile of {tile} keys raises the maximum, the code rescales the output but not the
    sum."""
    return steps.sum_of_exponentials(u, may, _so_far(u, may, reference, tile))


@in_sums(
    "references",
    effect="Keys of early tiles get too much weight if a later tile has the largest score.",
    repair="Multiply the sum and the output by exp(old − new maximum) before the next tile is added.",
    origin="a first version often lacks the line that rescales",
)
def attention_running_sums_not_rescaled(u: Array, may: Any, reference: Array, tile: int = 32) -> Array:
    """When a later tile of {tile} keys raises the maximum, the code rescales neither the sum nor the
    output."""
    return _so_far(u, may, reference, tile)


@in_attention(
    law="multi-head attention with one head equals attention",
    effect="Queries with a masked first tile of keys, for example by left padding, are NaN.",
    repair="Replace a maximum of −∞ by 0 in the exponents.",
    citations="flashinfer-ai/flashinfer#4401",
)
def sdpa_first_tile_blocked_nan(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """While all keys so far are masked, the code computes exp(−∞ − (−∞)); it handles fully masked
    rows separately."""
    output = OnlineAttention(width=tile, dead="not a number")(q, k, v, mask)
    return with_dead_rows(output, mask, v)


@in_attention(
    law="attention is within its error limit",
    effect="Queries with a masked first tile become zeros if all their scores are very low.",
    repair="Use 0 in the exponents only, and keep −∞ as the running maximum.",
    citations="Dao-AILab/flash-attention#2082",
)
def sdpa_first_tile_blocked_keeps_zero(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """If the first tile of {tile} keys is masked, 0 replaces the maximum −∞ and stays the maximum."""
    return OnlineAttention(width=tile, dead="taken for zero")(q, k, v, mask)


@in_attention(
    law="a vector added to all keys changes nothing",
    effect="Rows with very low scores become zeros.",
    repair="Start the running maximum at −∞.",
    citations="flashinfer-ai/flashinfer#4267",
)
def sdpa_running_maximum_starts_finite(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The running maximum starts at −1000 instead of −∞."""
    return OnlineAttention(start=-1e3)(q, k, v, mask)


@in_attention(
    law="if all values are equal, the output is that value",
    effect="Outputs shrink towards 0 if the number of keys is not a multiple of the tile.",
    repair="Give padded keys the score −∞.",
    citations="flashinfer-ai/flashinfer#5090; NVIDIA/TensorRT-LLM#18111; FluxML/NNkernels.jl#16",
)
def sdpa_tail_counts_as_zeros(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 64) -> Array:
    """The code pads the last tile of {tile} keys with zeros, and their scores of 0 count."""
    return _padded(q, k, v, mask, -k.shape[-2] % tile)


@in_attention(
    law="a vector added to all keys changes nothing",
    effect="Outputs are slightly too small for 128, 256, 384 … keys.",
    repair="Stop at the end: a full last tile needs no further tile.",
    origin="n // 128 + 1 tiles, or a bound tested with <=",
)
def sdpa_reads_one_key_beyond(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 128) -> Array:
    """With a multiple of {tile} keys, the code reads one more key, which is zero."""
    return _padded(q, k, v, mask, int(k.shape[-2] % tile == 0))


@in_attention(
    law="the order of keys does not matter",
    effect="For most lengths, queries do not see the newest keys.",
    repair="Round the number of tiles up.",
    citations="tile-ai/tilelang#2010",
)
def sdpa_tail_keys_dropped(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 32) -> Array:
    """With more than {tile} keys, the code drops the keys after the last full tile of {tile}."""
    return _of_keys(q, k, v, mask, slice(k.shape[-2] // tile * tile or k.shape[-2]))


@in_attention(
    law="the order of keys does not matter",
    effect="Once in 32 steps of decoding, the query does not see the newest key.",
    repair="Compute the last tile even if it has one key.",
    origin="(n − 2) // 32 + 1 tiles, or a tail that runs only with more than one key",
)
def sdpa_last_key_dropped(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 32) -> Array:
    """The code drops a last tile that has one key, as with 33, 65 or 97 keys."""
    return _of_keys(q, k, v, mask, slice(k.shape[-2] - int(k.shape[-2] > tile and k.shape[-2] % tile == 1)))


@in_attention(
    law="the order of keys does not matter",
    effect="Some keys of the last two tiles get twice their weight.",
    repair="Mask the overlap, or pad the keys.",
    origin="some libraries silently move a slice back that would pass the end, as JAX's dynamic_slice does",
)
def sdpa_last_tile_moved_back(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """The last tile of {tile} keys starts early enough to be full, and the keys that it shares with the
    previous tile count twice."""
    n_k, first = k.shape[-2], max(k.shape[-2] - tile, 0)
    keys = np.concatenate([np.arange(min(j, first), min(j, first) + min(n_k, tile)) for j in range(0, n_k, tile)])
    return _of_keys(q, k, v, mask, keys)


@in_attention(
    law="the order of keys does not matter",
    effect="With 64 or more keys, halves with different maxima have wrong weights.",
    repair="Multiply the sum of each half by exp(its maximum − the common maximum).",
    origin="halves with equal maxima merge correctly, and random scores are close to that",
)
def sdpa_split_keys_merged_without_maxima(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With 64 or more keys, the code adds two halves that are relative to different maxima."""
    scores, total, output, part_count = (
        masked(right.scores_of(q, k), mask),
        np.zeros(()),
        np.zeros(()),
        1 + (k.shape[-2] >= 64),
    )
    for s, values in zip(np.array_split(scores, part_count, -1), np.array_split(v, part_count, -2), strict=True):
        largest = s.max(-1, keepdims=True)
        e = np.exp(s - np.where(np.isneginf(largest), 0.0, largest))
        total, output = total + e.sum(-1, keepdims=True), output + e @ values
    return with_dead_rows(output / np.where(total == 0, 1.0, total), mask, v)


@in_attention(
    law="outputs do not depend on future keys and values",
    effect="With 32 or more queries, each query sees up to 15 future keys.",
    repair="Apply the mask inside the tiles on the diagonal.",
    origin="tiles before the diagonal need no mask, and the comparison is <= instead of <",
)
def sdpa_causal_diagonal_tile_full(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """On the causal path with two or more tiles of queries, the code computes the diagonal tiles of
    {tile} by {tile} without a mask."""
    if not is_causal(mask, scores_shape(q, k)) or q.shape[-2] < 2 * tile:
        return right.scaled_dot_product_attention(q, k, v, mask)
    return right.scaled_dot_product_attention(
        q, k, v, mask | (np.arange(k.shape[-2]) // tile == right.last_keys(q.shape[-2], k.shape[-2]) // tile)
    )


@in_attention(
    law="causal attention equals attention with a causal mask",
    effect="On the causal path, the later half of each tile of queries does not see the newest keys.",
    repair="End the loop at the tile that holds the last query of the tile.",
    origin="the bound is correct if both tiles have the same size",
)
def sdpa_causal_loop_ends_early(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """On the causal path, the loop over tiles of {tile} keys ends at the tile of the first query of a
    tile that is twice as large."""
    if not is_causal(mask, scores_shape(q, k)):
        return right.scaled_dot_product_attention(q, k, v, mask)
    last = right.last_keys(q.shape[-2], k.shape[-2])
    visible = np.arange(k.shape[-2]) < (last // (2 * tile) * 2 * tile + tile)
    return right.scaled_dot_product_attention(q, k, v, mask & visible)


@in_attention(
    law="masked keys and values do not matter",
    effect="Queries attend to masked keys inside the tile.",
    repair="Test every entry of a tile before its mask is skipped.",
    origin="for causal and banded masks, the corners decide the whole tile",
)
def sdpa_tile_judged_by_its_corners(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 8) -> Array:
    """The code skips the mask of a tile of {tile} by {tile} if its four corners are visible."""
    visible = right.visible_entries(mask, scores_shape(q, k)).copy()
    for rows in tiles(q.shape[-2], tile):
        for keys in tiles(k.shape[-2], tile):
            tile_mask = visible[..., rows, keys]
            tile_mask |= (tile_mask[..., :1, :1] & tile_mask[..., :1, -1:]) & (
                tile_mask[..., -1:, :1] & tile_mask[..., -1:, -1:]
            )
    return right.scaled_dot_product_attention(q, k, v, visible)


@in_attention(
    law="queries are computed independently",
    effect="Queries lose keys that are masked for the first query of their tile.",
    repair="Skip a tile only if all its rows are masked.",
    origin="under a causal mask with square tiles, the first row decides whether a tile has a visible key",
)
def sdpa_tile_skipped_by_its_first_row(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """Outside the causal path, the code skips a tile of {tile} by {tile} if its first row is masked."""
    visible = right.visible_entries(mask, scores_shape(q, k)).copy()
    for rows in tiles(0 if is_causal(mask, visible.shape) else q.shape[-2], tile):
        for keys in tiles(k.shape[-2], tile):
            visible[..., rows, keys] &= visible[..., rows, keys][..., :1, :].any(-1, keepdims=True)
    return right.scaled_dot_product_attention(q, k, v, visible)


@in_attention(
    law="masked keys and values do not matter",
    effect="After the first 32 keys, each key has the mask of an earlier key.",
    repair="Advance the pointer to the mask with the pointer to the keys.",
    origin="one of three pointers does not advance",
)
def sdpa_mask_of_the_first_tile(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 32) -> Array:
    """The code masks every tile of {tile} keys with the columns of the first tile."""
    return (
        right.hard_masked_softmax(
            right.scores_of(q, k), right.visible_entries(mask, scores_shape(q, k))[..., np.arange(k.shape[-2]) % tile]
        )
        @ v
    )
