"""Slips in the forward of attention that looks at the mask tile by tile."""

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import allowed, is_causal, scores_shape, tiles
from properties.reference import Mask, hard_masked_softmax, scaled_dot_product_attention, scores_of

bug = Register()

BLOCKED = "blocked keys and values do not matter"
LARGE = "attention is within its budget across tiles"


@bug(
    "scaled_dot_product_attention",
    effect="From 32 queries on, each query sees up to 15 future keys.",
    repair="Apply the mask inside the tiles on the diagonal.",
    citation="none: tiles before the diagonal need no mask, and the comparison is <= for <",
    law="the past does not depend on the future",
)
def sdpa_causal_diagonal_tile_full(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """On the causal path the tiles of 16 by 16 on the diagonal are computed without a mask, from 32 queries on."""
    if not is_causal(mask, scores_shape(q, k)) or q.shape[-2] < 32:
        return scaled_dot_product_attention(q, k, v, mask)
    tile = np.arange(k.shape[-2]) // 16 == np.arange(q.shape[-2])[:, None] // 16
    return scaled_dot_product_attention(q, k, v, mask | tile)


@bug(
    "scaled_dot_product_attention",
    effect="On the causal path, the later half of each tile of queries does not see the newest keys.",
    repair="End the loop with the tile of keys that holds the last query of the tile.",
    citation="none: the bound is right where both tiles have one size",
    law=LARGE,
)
def sdpa_causal_loop_ends_early(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """On the causal path, 32 queries are met with tiles of 16 keys up to the one that holds the first of these queries."""
    if not is_causal(mask, scores_shape(q, k)):
        return scaled_dot_product_attention(q, k, v, mask)
    met = np.arange(k.shape[-2]) < (np.arange(q.shape[-2]) // 32 * 32 + 16)[:, None]
    return scaled_dot_product_attention(q, k, v, mask & met)


@bug(
    "scaled_dot_product_attention",
    effect="Blocked keys inside a tile are attended to.",
    repair="Look at every entry of a tile before its mask is left out.",
    citation="none: for causal and banded masks the corners tell everything",
    law=BLOCKED,
)
def sdpa_tile_judged_by_its_corners(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A tile of 8 by 8 whose four corners are allowed is computed without a mask."""
    every = allowed(mask, scores_shape(q, k)).copy()
    for rows in tiles(q.shape[-2], 8):
        for keys in tiles(k.shape[-2], 8):
            tile = every[..., rows, keys]
            tile |= (tile[..., :1, :1] & tile[..., :1, -1:]) & (tile[..., -1:, :1] & tile[..., -1:, -1:])
    return scaled_dot_product_attention(q, k, v, every)


@bug(
    "scaled_dot_product_attention",
    effect="Queries lose keys that a query some rows above them may not see.",
    repair="Skip a tile only if all its rows are blocked.",
    citation="none: under a causal mask of square tiles the first row is the last to wake",
    law=LARGE,
)
def sdpa_tile_skipped_by_its_first_row(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A tile of 16 by 16 is skipped if its first row is blocked; the causal path is its own."""
    every = allowed(mask, scores_shape(q, k)).copy()
    for rows in tiles(0 if is_causal(mask, every.shape) else q.shape[-2], 16):
        for keys in tiles(k.shape[-2], 16):
            every[..., rows, keys] &= every[..., rows, keys][..., :1, :].any(-1, keepdims=True)
    return scaled_dot_product_attention(q, k, v, every)


@bug(
    "scaled_dot_product_attention",
    effect="Beyond the first 32 keys, keys are blocked and allowed as those 32 places before them.",
    repair="Move the pointer to the mask with the pointer to the keys.",
    citation="none: one of three pointers is not advanced",
    law=BLOCKED,
)
def sdpa_mask_of_the_first_tile(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Every tile of 32 keys is masked with the columns of the first."""
    return hard_masked_softmax(scores_of(q, k), allowed(mask, scores_shape(q, k))[..., np.arange(k.shape[-2]) % 32]) @ v
