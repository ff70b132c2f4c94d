"""Slips in the forward of attention that walks over tiles: rescaling, tails, split keys."""

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import allowed, masked, normalized, online_attention, scores_shape, tiles
from properties.reference import Mask, scaled_dot_product_attention, scores_of

bug = Register()

ORDER = "key order does not matter"
CONSTANT = "constant values come out unchanged"
EXTREME = "attention is within its budget at extreme logits"


def _padded(q: Array, k: Array, v: Array, mask: Mask, extra: int) -> Array:
    """Attention that also allows `extra` keys and values of zeros."""
    rows = [(0, 0)] * (k.ndim - 2) + [(0, extra), (0, 0)]
    more = np.ones((*scores_shape(q, k)[:-1], extra), bool)
    every = np.concatenate([allowed(mask, scores_shape(q, k)), more], -1)
    return scaled_dot_product_attention(q, np.pad(k, rows), np.pad(v, rows), every)


@bug(
    "scaled_dot_product_attention",
    effect="Keys of early tiles weigh too much wherever a later tile has the largest score.",
    repair="Multiply the sum and the output by exp(old − new maximum) before the next tile is added.",
    citation="none: the line that rescales is the one a first version lacks",
    law=ORDER,
)
def sdpa_online_nothing_rescaled(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """When the maximum grows in a later tile of 16 keys, neither the sum nor the output is rescaled."""
    return online_attention(q, k, v, mask, rescale_sum=False, rescale_output=False)


@bug(
    "scaled_dot_product_attention",
    effect="Outputs are too large wherever a later tile has the largest score.",
    repair="Rescale the output together with the sum.",
    citation="none: the sum is a scalar next to the maximum, the output lies elsewhere",
    law=CONSTANT,
)
def sdpa_online_output_not_rescaled(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """When the maximum grows in a later tile of 16 keys, the sum is rescaled, the output is not."""
    return online_attention(q, k, v, mask, rescale_output=False)


@bug(
    "scaled_dot_product_attention",
    effect="Queries whose first tile of keys is blocked, as by left padding, are NaN.",
    repair="Take 0 for a maximum of −∞ in the exponents.",
    citation="flashinfer-ai/flashinfer#4401",
    law=ORDER,
)
def sdpa_first_tile_blocked_nan(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """While all keys so far are blocked, the running maximum is −∞ and the exponent is −∞ − (−∞); wholly dead rows are caught."""
    out = online_attention(q, k, v, mask, dead="not a number")
    return np.where(allowed(mask, scores_shape(q, k)).any(-1, keepdims=True), out, 0.0)


@bug(
    "scaled_dot_product_attention",
    effect="Queries whose first tile is blocked come out as zeros when all their scores are very low.",
    repair="Use 0 in the exponents only, and keep −∞ as the running maximum.",
    citation="Dao-AILab/flash-attention#2082",
    law=EXTREME,
)
def sdpa_first_tile_blocked_keeps_zero(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Where the first tile of 16 keys is blocked, 0 takes the place of the maximum −∞ and stays the maximum."""
    return online_attention(q, k, v, mask, dead="taken for zero")


@bug(
    "scaled_dot_product_attention",
    effect="Rows with very low scores come out as zeros.",
    repair="Start the running maximum at −∞.",
    citation="flashinfer-ai/flashinfer#4267",
    law="adding a vector to every key changes nothing",
)
def sdpa_running_maximum_starts_finite(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The running maximum starts at −1000 instead of −∞, and no lower score moves it."""
    return online_attention(q, k, v, mask, start=-1e3)


@bug(
    "scaled_dot_product_attention",
    effect="A query whose scores are far below those of its neighbours is not a number or zero.",
    repair="Reduce the maximum over the keys of one query.",
    citation="none: one maximum for a tile of queries saves a reduction, and stays right for scores of ordinary size",
    law="queries do not depend on each other",
)
def sdpa_maximum_shared_by_queries(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Tiles of 16 queries share one maximum."""
    scores, out = masked(scores_of(q, k), mask), np.zeros((*q.shape[:-1], v.shape[-1]))
    for rows in tiles(q.shape[-2], 16):
        largest = scores[..., rows, :].max((-1, -2), keepdims=True)
        out[..., rows, :] = normalized(np.exp(scores[..., rows, :] - np.where(np.isneginf(largest), 0.0, largest))) @ v
    return out


@bug(
    "scaled_dot_product_attention",
    effect="Outputs shrink towards 0 when the number of keys is no multiple of the tile.",
    repair="Give the keys beyond the last one the score −∞.",
    citation="flashinfer-ai/flashinfer#5090; NVIDIA/TensorRT-LLM#18111; FluxML/NNkernels.jl#16",
    law=CONSTANT,
)
def sdpa_tail_counts_as_zeros(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The last tile of 64 keys is filled up with zeros, whose scores of 0 count."""
    return _padded(q, k, v, mask, -k.shape[-2] % 64)


@bug(
    "scaled_dot_product_attention",
    effect="Outputs are a little too small for 128, 256, 384 … keys.",
    repair="Stop before the end: a full last tile needs no further one.",
    citation="none: n // 128 + 1 tiles, and a bound tested with <=",
    law="appending blocked keys changes nothing",
)
def sdpa_reads_one_key_beyond(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """For a multiple of 128 keys one more is read, which is zero."""
    return _padded(q, k, v, mask, int(k.shape[-2] % 128 == 0))


@bug(
    "scaled_dot_product_attention",
    effect="The newest keys are not attended to, unless their number is a multiple of 32 or below it.",
    repair="Round the number of tiles up.",
    citation="tile-ai/tilelang#2010",
    law=ORDER,
)
def sdpa_tail_keys_dropped(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Of more than 32 keys those beyond the last full tile of 32 are left out."""
    n = k.shape[-2] // 32 * 32 or k.shape[-2]
    return scaled_dot_product_attention(q, k[..., :n, :], v[..., :n, :], allowed(mask, scores_shape(q, k))[..., :n])


@bug(
    "scaled_dot_product_attention",
    effect="The newest key is not attended to once in 32 steps of decoding.",
    repair="Compute the last tile also when it holds one key.",
    citation="none: (n − 2) // 32 + 1 tiles, or a tail handled where more than one key is left",
    law=ORDER,
)
def sdpa_last_key_dropped(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A last tile of a single key, of 33, 65, 97 … keys, is left out."""
    n = k.shape[-2] - int(k.shape[-2] > 32 and k.shape[-2] % 32 == 1)
    return scaled_dot_product_attention(q, k[..., :n, :], v[..., :n, :], allowed(mask, scores_shape(q, k))[..., :n])


@bug(
    "scaled_dot_product_attention",
    effect="Some keys of the last two tiles weigh twice.",
    repair="Mask the overlap, or pad the keys.",
    citation="none: a slice that would pass the end is silently moved back, as JAX's dynamic_slice does",
    law=ORDER,
)
def sdpa_last_tile_moved_back(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The last tile of 16 begins so that it ends with the keys, and what it shares with the tile before counts twice."""
    n = k.shape[-2]
    starts = range(0, n, 16)
    keys = np.concatenate([np.arange(min(j, n - 16), min(j, n - 16) + 16) for j in starts]) if n > 16 else np.arange(n)
    return scaled_dot_product_attention(q, k[..., keys, :], v[..., keys, :], allowed(mask, scores_shape(q, k))[..., keys])


@bug(
    "scaled_dot_product_attention",
    effect="From 64 keys on, halves of the keys with different maxima are weighted wrongly.",
    repair="Multiply each half's sum by the exponential of its maximum less the common one.",
    citation="none: halves with equal maxima merge rightly, and random scores come close",
    law=ORDER,
)
def sdpa_split_keys_merged_without_maxima(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """From 64 keys on, two halves are merged by their sums, each relative to its own maximum."""
    if k.shape[-2] < 64:
        return scaled_dot_product_attention(q, k, v, mask)
    scores, total, out = masked(scores_of(q, k), mask), np.zeros(()), np.zeros(())
    for s, values in zip(np.array_split(scores, 2, -1), np.array_split(v, 2, -2), strict=True):
        largest = s.max(-1, keepdims=True)
        e = np.exp(s - np.where(np.isneginf(largest), 0.0, largest))
        total, out = total + e.sum(-1, keepdims=True), out + e @ values
    return normalized(out, total)
