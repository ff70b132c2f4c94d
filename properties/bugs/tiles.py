"""Slips in the forward of attention that walks over tiles: rescaling, tails, split keys, masks
looked at tile by tile.
"""

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import SDPA, Register
from properties.bugs.kernels import OnlineAttention, is_causal, masked, scores_shape, tiles
from properties.bugs.reference import Mask

bug = Register()


def _padded(q: Array, k: Array, v: Array, mask: Mask, extra: int) -> Array:
    """Attention that also allows `extra` keys and values of zeros."""
    rows = [(0, 0)] * (k.ndim - 2) + [(0, extra), (0, 0)]
    more = np.ones((*scores_shape(q, k)[:-1], extra), bool)
    every = np.concatenate([right.allowed(mask, scores_shape(q, k)), more], -1)
    return right.scaled_dot_product_attention(q, np.pad(k, rows), np.pad(v, rows), every)


@bug.in_operation(
    SDPA,
    law="the order of keys does not matter",
    effect="Keys of early tiles weigh too much wherever a later tile has the largest score.",
    repair="Multiply the sum and the output by exp(old − new maximum) before the next tile is added.",
    origin="the line that rescales is the one a first version lacks",
)
def sdpa_online_nothing_rescaled(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """When the maximum grows in a later tile of 16 keys, neither the sum nor the output is
    rescaled."""
    return OnlineAttention(width=tile, rescale_sum=False, rescale_output=False)(q, k, v, mask)


@bug.in_operation(
    SDPA,
    law="constant values come out unchanged",
    effect="Outputs are too large wherever a later tile has the largest score.",
    repair="Rescale the output together with the sum.",
    origin="the sum is a scalar next to the maximum, the output lies elsewhere",
)
def sdpa_online_output_not_rescaled(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """When the maximum grows in a later tile of 16 keys, the sum is rescaled, the output is not."""
    return OnlineAttention(width=tile, rescale_output=False)(q, k, v, mask)


@bug.in_operation(
    SDPA,
    law="one head is self attention",
    effect="Queries whose first tile of keys is masked, as by left padding, are NaN.",
    repair="Take 0 for a maximum of −∞ in the exponents.",
    citations=("flashinfer-ai/flashinfer#4401",),
)
def sdpa_first_tile_blocked_nan(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """While all keys so far are masked, the running maximum is −∞ and the exponent is −∞ − (−∞);
    wholly dead rows are caught."""
    out = OnlineAttention(width=tile, dead="not a number")(q, k, v, mask)
    return np.where(right.allowed(mask, scores_shape(q, k)).any(-1, keepdims=True), out, 0.0)


@bug.in_operation(
    SDPA,
    law="attention is within its budget",
    effect="Queries whose first tile is masked come out as zeros when all their scores are very low.",
    repair="Use 0 in the exponents only, and keep −∞ as the running maximum.",
    citations=("Dao-AILab/flash-attention#2082",),
)
def sdpa_first_tile_blocked_keeps_zero(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """Where the first tile of 16 keys is masked, 0 takes the place of the maximum −∞ and stays the
    maximum."""
    return OnlineAttention(width=tile, dead="taken for zero")(q, k, v, mask)


@bug.in_operation(
    SDPA,
    law="a vector added to all keys changes nothing",
    effect="Rows with very low scores come out as zeros.",
    repair="Start the running maximum at −∞.",
    citations=("flashinfer-ai/flashinfer#4267",),
)
def sdpa_running_maximum_starts_finite(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The running maximum starts at −1000 instead of −∞, and no lower score moves it."""
    return OnlineAttention(start=-1e3)(q, k, v, mask)


@bug.in_operation(
    SDPA,
    law="constant values come out unchanged",
    effect="Outputs shrink towards 0 when the number of keys is no multiple of the tile.",
    repair="Give the keys beyond the last one the score −∞.",
    citations=("flashinfer-ai/flashinfer#5090", "NVIDIA/TensorRT-LLM#18111", "FluxML/NNkernels.jl#16"),
)
def sdpa_tail_counts_as_zeros(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 64) -> Array:
    """The last tile of 64 keys is filled up with zeros, whose scores of 0 count."""
    return _padded(q, k, v, mask, -k.shape[-2] % tile)


@bug.in_operation(
    SDPA,
    law="a vector added to all keys changes nothing",
    effect="Outputs are a little too small for 128, 256, 384 … keys.",
    repair="Stop before the end: a full last tile needs no further one.",
    origin="n // 128 + 1 tiles, and a bound tested with <=",
)
def sdpa_reads_one_key_beyond(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 128) -> Array:
    """For a multiple of 128 keys one more is read, which is zero."""
    return _padded(q, k, v, mask, int(k.shape[-2] % tile == 0))


@bug.in_operation(
    SDPA,
    law="the order of keys does not matter",
    effect="The newest keys are not attended to, for most lengths.",
    repair="Round the number of tiles up.",
    citations=("tile-ai/tilelang#2010",),
)
def sdpa_tail_keys_dropped(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 32) -> Array:
    """Of more than 32 keys those beyond the last full tile of 32 are left out."""
    n = k.shape[-2] // tile * tile or k.shape[-2]
    return right.scaled_dot_product_attention(
        q, k[..., :n, :], v[..., :n, :], right.allowed(mask, scores_shape(q, k))[..., :n]
    )


@bug.in_operation(
    SDPA,
    law="the order of keys does not matter",
    effect="The newest key is not attended to once in 32 steps of decoding.",
    repair="Compute the last tile also when it holds one key.",
    origin="(n − 2) // 32 + 1 tiles, or a tail handled where more than one key is left",
)
def sdpa_last_key_dropped(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 32) -> Array:
    """A last tile of a single key, of 33, 65, 97 … keys, is left out."""
    n = k.shape[-2] - int(k.shape[-2] > tile and k.shape[-2] % tile == 1)
    return right.scaled_dot_product_attention(
        q, k[..., :n, :], v[..., :n, :], right.allowed(mask, scores_shape(q, k))[..., :n]
    )


@bug.in_operation(
    SDPA,
    law="the order of keys does not matter",
    effect="Some keys of the last two tiles weigh twice.",
    repair="Mask the overlap, or pad the keys.",
    origin="a slice that would pass the end is silently moved back, as JAX's dynamic_slice does",
)
def sdpa_last_tile_moved_back(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """The last tile of 16 begins so that it ends with the keys, and what it shares with the tile
    before counts twice."""
    n, first = k.shape[-2], max(k.shape[-2] - tile, 0)
    keys = np.concatenate([np.arange(min(j, first), min(j, first) + min(n, tile)) for j in range(0, n, tile)])
    return right.scaled_dot_product_attention(
        q, k[..., keys, :], v[..., keys, :], right.allowed(mask, scores_shape(q, k))[..., keys]
    )


@bug.in_operation(
    SDPA,
    law="the order of keys does not matter",
    effect="From 64 keys on, halves of the keys with different maxima are weighted wrongly.",
    repair="Multiply each half's sum by the exponential of its maximum less the common one.",
    origin="halves with equal maxima merge rightly, and random scores come close",
)
def sdpa_split_keys_merged_without_maxima(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """From 64 keys on, two halves are merged by their sums, each relative to its own maximum."""
    scores, total, out, parts = masked(right.scores_of(q, k), mask), np.zeros(()), np.zeros(()), 1 + (k.shape[-2] >= 64)
    for s, values in zip(np.array_split(scores, parts, -1), np.array_split(v, parts, -2), strict=True):
        largest = s.max(-1, keepdims=True)
        e = np.exp(s - np.where(np.isneginf(largest), 0.0, largest))
        total, out = total + e.sum(-1, keepdims=True), out + e @ values
    return out / np.where(total == 0, 1.0, total)


@bug.in_operation(
    SDPA,
    law="the past does not depend on the future",
    effect="From 32 queries on, each query sees up to 15 future keys.",
    repair="Apply the mask inside the tiles on the diagonal.",
    origin="tiles before the diagonal need no mask, and the comparison is <= for <",
)
def sdpa_causal_diagonal_tile_full(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """On the causal path the tiles of 16 by 16 on the diagonal are computed without a mask, from 32
    queries on."""
    if not is_causal(mask, scores_shape(q, k)) or q.shape[-2] < 2 * tile:
        return right.scaled_dot_product_attention(q, k, v, mask)
    return right.scaled_dot_product_attention(
        q, k, v, mask | (np.arange(k.shape[-2]) // tile == np.arange(q.shape[-2])[:, None] // tile)
    )


@bug.in_operation(
    SDPA,
    law="causal attention is attention under the causal mask",
    effect="On the causal path, the later half of each tile of queries does not see the newest keys.",
    repair="End the loop with the tile of keys that holds the last query of the tile.",
    origin="the bound is right where both tiles have one size",
)
def sdpa_causal_loop_ends_early(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """On the causal path, 32 queries are met with tiles of 16 keys up to the one that holds the
    first of these queries."""
    if not is_causal(mask, scores_shape(q, k)):
        return right.scaled_dot_product_attention(q, k, v, mask)
    met = np.arange(k.shape[-2]) < (np.arange(q.shape[-2]) // (2 * tile) * 2 * tile + tile)[:, None]
    return right.scaled_dot_product_attention(q, k, v, mask & met)


@bug.in_operation(
    SDPA,
    law="masked keys and values do not matter",
    effect="Masked keys inside a tile are attended to.",
    repair="Look at every entry of a tile before its mask is left out.",
    origin="for causal and banded masks the corners tell everything",
)
def sdpa_tile_judged_by_its_corners(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 8) -> Array:
    """A tile of 8 by 8 whose four corners are allowed is computed without a mask."""
    every = right.allowed(mask, scores_shape(q, k)).copy()
    for rows in tiles(q.shape[-2], tile):
        for keys in tiles(k.shape[-2], tile):
            part = every[..., rows, keys]
            part |= (part[..., :1, :1] & part[..., :1, -1:]) & (part[..., -1:, :1] & part[..., -1:, -1:])
    return right.scaled_dot_product_attention(q, k, v, every)


@bug.in_operation(
    SDPA,
    law="queries are computed independently",
    effect="Queries lose keys that a query some rows above them may not see.",
    repair="Skip a tile only if all its rows are masked.",
    origin="under a causal mask of square tiles the first row is the last to wake",
)
def sdpa_tile_skipped_by_its_first_row(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 16) -> Array:
    """A tile of 16 by 16 is skipped if its first row is masked; the causal path is its own."""
    every = right.allowed(mask, scores_shape(q, k)).copy()
    for rows in tiles(0 if is_causal(mask, every.shape) else q.shape[-2], tile):
        for keys in tiles(k.shape[-2], tile):
            every[..., rows, keys] &= every[..., rows, keys][..., :1, :].any(-1, keepdims=True)
    return right.scaled_dot_product_attention(q, k, v, every)


@bug.in_operation(
    SDPA,
    law="masked keys and values do not matter",
    effect="Beyond the first 32 keys, keys are masked and allowed as those 32 places before them.",
    repair="Move the pointer to the mask with the pointer to the keys.",
    origin="one of three pointers is not advanced",
)
def sdpa_mask_of_the_first_tile(q: Array, k: Array, v: Array, mask: Mask = None, tile: int = 32) -> Array:
    """Every tile of 32 keys is masked with the columns of the first."""
    return (
        right.hard_masked_softmax(
            right.scores_of(q, k), right.allowed(mask, scores_shape(q, k))[..., np.arange(k.shape[-2]) % tile]
        )
        @ v
    )
