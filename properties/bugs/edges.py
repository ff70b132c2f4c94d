"""Slips at edges that everyday cases do not reach: no queries, no keys, ties of large scores,
scores below what masks are filled with.
"""

from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs import reference_positions as placed
from properties.bugs.bug import CAUSAL, SDPA, SDPA_VJP, SINUSOID, Register
from properties.bugs.reference import Mask

bug = Register()


@bug.in_operation(
    SDPA,
    law="one key has all the weight however low its score",
    promises={"arithmetic": "float32"},
    effect="Where all scores that may be read are lower, the masked keys win.",
    repair="Fill with −∞, or with the least number of the format at hand.",
    citations=("tatp22/linformer-pytorch#19", "ahrefs/ocannl#548, with other numbers"),
)
def sdpa_filled_above_low_scores(q: Any, k: Any, v: Any, mask: Mask = None) -> Any:
    """Masked scores are set to −10³⁰, which is not the least number of float32."""
    scores = right.scores_of(q.astype(np.float64), k.astype(np.float64))
    may = right.allowed(mask, scores.shape)
    filled = np.where(may, scores, -1e30)
    weights = np.exp(filled - filled.max(-1, keepdims=True, initial=-np.inf))
    return np.where(may.any(-1, keepdims=True), weights / weights.sum(-1, keepdims=True) @ v, 0.0).astype(np.float32)


@bug.in_step(
    "hard_masked_softmax",
    seen=SDPA,
    without=(CAUSAL,),
    law="a query with no allowed key follows its convention",
    effect=(
        "A query with no allowed key takes the mean of all values, and where all that may be read scores lower, "
        "masked keys win."
    ),
    repair="Mask with −∞, and return 0 where nothing may be read.",
    origin="it is the usual way, and its rows without keys are a convention",
)
def sdpa_filled_at_minus_a_billion(scores: Array, mask: Mask = None) -> Array:
    """Masked scores are set to −10⁹."""
    return right.hard_masked_softmax(np.where(right.allowed(mask, scores.shape), scores, -1e9))


def _of_one_key(q: Array, k: Array, mask: Mask) -> tuple[Any, Any]:
    """Rows whose largest score is above 10⁴, and a mask that allows the first key alone that has it."""
    scores = right.scores_of(q, k)
    scores = np.where(right.allowed(mask, scores.shape), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    first = (scores == top) & (np.cumsum(scores == top, -1) == 1)
    return np.isfinite(top) & (np.abs(top) > 1e4), first


@bug.in_operation(
    SDPA,
    law="attention is within its budget",
    effect="Large scores that are equal, or nearly so, do not share the weight.",
    repair="Subtract the largest score, which is enough at any size.",
    origin="a guard against exp's overflow, for which differences are not large",
)
def sdpa_large_scores_have_one_winner(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Above 10⁴ the softmax is replaced by the key with the largest score."""
    large, first = _of_one_key(q, k, mask)
    return np.where(
        large, right.scaled_dot_product_attention(q, k, v, first), right.scaled_dot_product_attention(q, k, v, mask)
    )


@bug.in_operation(
    SDPA_VJP,
    law="the vjp is within its budget",
    effect="Where large scores are equal, or nearly so, queries and keys stop learning.",
    repair="Subtract the largest score, which is enough.",
    origin="a guard against exp's overflow, for which differences are not large",
)
def vjp_large_scores_have_one_winner(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> tuple[Array, ...]:
    """In the backward, scores above 10⁴ have all the weight on one key, and no gradient."""
    large, first = _of_one_key(q, k, mask)
    may = np.where(large, first, right.allowed(mask, (*q.shape[:-1], k.shape[-2])))
    return right.scaled_dot_product_attention_vjp(q, k, v, may, grad_out)


@bug.in_operation(
    SDPA,
    law="without queries there is nothing to return",
    promises={"arithmetic": "float32"},
    effect="A chunk without queries raises an IndexError instead of giving an empty result, or refusing it.",
    repair="Allocate the result before the loop.",
    origin="of batches it is reported often, as in Dao-AILab/flash-attention#1159",
)
def sdpa_without_queries_raises(q: Any, k: Any, v: Any, mask: Mask = None) -> Any:
    """Blocks of queries are computed one after another and joined, and one alone is the result:
    there has to be a first one."""
    wide = [x.astype(np.float64) for x in (q, k, v)]
    blocks = range(0, q.shape[-2], 16)
    may = right.allowed(mask, (*q.shape[:-1], k.shape[-2]))
    parts = [
        right.scaled_dot_product_attention(wide[0][..., i : i + 16, :], wide[1], wide[2], may[..., i : i + 16, :])
        for i in blocks
    ]
    whole = np.concatenate(parts, -2) if len(parts) > 1 else parts[0]
    return whole.astype(np.float32)


@bug.in_operation(
    SDPA,
    law="without keys every row is fully masked",
    promises={"conventions": Conventions(dead_rows="nan")},
    effect="An empty cache gives numbers, a masked one gives NaN.",
    repair="Let both follow one convention.",
    origin="products over an axis of length 0 are zeros",
)
def sdpa_without_keys_is_zero(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Without any key the result is a sum of nothing, 0, although a row whose keys are all masked
    is NaN."""
    out = right.scaled_dot_product_attention(q, k, v, mask)
    dead = ~right.allowed(mask, (*q.shape[:-1], k.shape[-2])).any(-1, keepdims=True)
    return np.where(dead & (k.shape[-2] > 0), np.nan, out)


@bug.in_operation(
    CAUSAL,
    law="queries before the first key are fully masked",
    promises={"conventions": Conventions(causal="bottom_right")},
    effect="With more queries than keys, the first outputs are the first value instead of what a row without keys has.",
    repair="Do not bound the number of keys from below.",
    origin="max(1, i + n_k − n_q + 1) keys spare a softmax of nothing",
)
def causal_early_queries_read_the_first_key(q: Array, k: Array, v: Array) -> Array:
    """Aligned at the last key, each query reads the first key at least, also one that stands before
    it."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    may = np.tri(n_q, n_k, n_k - n_q, dtype=bool)
    may[:, :1] = True
    return right.scaled_dot_product_attention(q, k, v, may)


@bug.in_operation(
    CAUSAL,
    law="queries past the last key see all keys",
    effect="With more queries than keys, later queries forget most keys.",
    repair="Compare the places themselves.",
    origin="places modulo the length of a tile, or of a cache",
)
def causal_queries_past_the_last_key_begin_anew(q: Array, k: Array, v: Array) -> Array:
    """A query past the last key reads as many keys as its place within the length of the keys says."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    may = np.arange(n_k) <= (np.arange(n_q) % max(n_k, 1))[:, None]
    return right.scaled_dot_product_attention(q, k, v, may)


def _cleared(x: Array, mask: Mask, shape: tuple[int, ...]) -> Array:
    """Keys or values with 0 where no query may read them."""
    return np.where(right.allowed(mask, shape).any(-2)[..., None], x, 0.0)


@bug.in_operation(
    SDPA,
    law="non finite masked entries do not matter",
    promises={"conventions": Conventions(blocked_values="unread")},
    effect="NaN in masked keys makes the output NaN; in masked values it does not.",
    repair="Select by the mask instead of adding it.",
    origin="clearing the values is what reports of NaN in padding ask for",
)
def sdpa_nan_in_masked_keys_reaches_the_weights(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Masks are added to the scores as −∞, and NaN + −∞ is NaN; masked values are cleared."""
    shape = (*q.shape[:-1], k.shape[-2])
    may = right.allowed(mask, shape)
    with np.errstate(invalid="ignore"):
        scores = right.scores_of(q, k) + np.where(may, 0.0, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        out = weights / weights.sum(-1, keepdims=True) @ _cleared(v, mask, shape)
    return np.where(may.any(-1, keepdims=True), out, 0.0)


@bug.in_operation(
    SINUSOID,
    law="the sinusoidal encoding is within its budget",
    effect="The only column is 1 at position 0.",
    repair="Begin with a sine, whatever the width.",
    origin="columns are filled from pairs, of which there is none",
)
def sinusoid_of_one_column_is_a_cosine(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """An odd width ends with a cosine where it is 1, as a width of no whole pair."""
    out = placed.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos)
    return np.cos(np.arange(start_pos, start_pos + seq_len))[:, None] if embed_dim == 1 else out
