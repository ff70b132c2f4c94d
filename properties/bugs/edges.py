"""Known bugs of edge cases: no queries, no keys, equal large scores, and scores below the value
that masks use.
"""

from typing import Any

import numpy as np

from oracles import Conventions
from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs import reference_positions as placed
from properties.bugs.bug import CAUSAL, SDPA, SDPA_VJP, SINUSOID, Register
from properties.bugs.kernels import with_dead_rows
from properties.bugs.reference import Mask

bug = Register()


@bug.in_operation(
    SDPA,
    law="a single visible key has weight 1, however low its score",
    promises={"arithmetic": "float32"},
    effect="If all visible scores are lower, the masked keys get all the weight.",
    repair="Use −∞, or the lowest number of the format.",
    citations="tatp22/linformer-pytorch#19; ahrefs/ocannl#548, with other numbers",
)
def sdpa_filled_above_low_scores(q: Any, k: Any, v: Any, mask: Mask = None) -> Any:
    """The code sets masked scores to −10³⁰, which is not the lowest number of float32."""
    scores = right.scores_of(q.astype(np.float64), k.astype(np.float64))
    visible = right.visible_entries(mask, scores.shape)
    filled = np.where(visible, scores, -1e30)
    weights = np.exp(filled - filled.max(-1, keepdims=True, initial=-np.inf))
    return with_dead_rows(weights / weights.sum(-1, keepdims=True) @ v, mask, v).astype(np.float32)


@bug.in_step(
    "hard_masked_softmax",
    seen=SDPA,
    without=(CAUSAL,),
    law="a fully masked row follows its convention",
    effect=(
        "A fully masked query gets the mean of all values, and masked keys get the weight if all visible scores "
        "are lower."
    ),
    repair="Mask with −∞, and return 0 for a fully masked row.",
    origin="the value is in common use, and its result for a fully masked row is a convention",
)
def sdpa_filled_at_minus_a_billion(scores: Array, mask: Mask = None) -> Array:
    """The code sets masked scores to −10⁹."""
    return right.hard_masked_softmax(np.where(right.visible_entries(mask, scores.shape), scores, -1e9))


@bug.in_step(
    "hard_masked_softmax",
    seen=SDPA,
    without=(CAUSAL,),
    law="a fully masked row follows its convention",
    effect=(
        "A fully masked query gets the mean of all values, and masked keys get the weight if all visible scores "
        "are below −10⁴."
    ),
    repair="Mask with −∞, and return 0 for a fully masked row.",
    origin="float16 has −10⁴, and does not have −10⁹",
)
def sdpa_filled_at_minus_ten_thousand(scores: Array, mask: Mask = None) -> Array:
    """The code sets masked scores to −10⁴."""
    return right.hard_masked_softmax(np.where(right.visible_entries(mask, scores.shape), scores, -1e4))


def _of_one_key(q: Array, k: Array, mask: Mask) -> tuple[Any, Any]:
    """Return the rows whose largest score is above 10⁴, and a mask in which only the first key with
    that score is visible.
    """
    scores = right.scores_of(q, k)
    scores = np.where(right.visible_entries(mask, scores.shape), scores, -np.inf)
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    first = (scores == largest) & (np.cumsum(scores == largest, -1) == 1)
    return np.isfinite(largest) & (np.abs(largest) > 1e4), first


@bug.in_operation(
    SDPA,
    law="attention is within its error limit",
    effect="Large scores that are equal, or nearly equal, do not share the weight.",
    repair="Subtract the largest score, which is enough for every size.",
    origin="a guard against overflow of exp, which differences of scores do not cause",
)
def sdpa_large_scores_have_one_winner(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """For scores above 10⁴, the code gives all weight to the key with the largest score."""
    is_large, first = _of_one_key(q, k, mask)
    return np.where(
        is_large, right.scaled_dot_product_attention(q, k, v, first), right.scaled_dot_product_attention(q, k, v, mask)
    )


@bug.in_operation(
    SDPA_VJP,
    law="the VJP is within its error limit",
    effect="If large scores are equal, or nearly equal, queries and keys stop learning.",
    repair="Subtract the largest score, which is enough for every size.",
    origin="a guard against overflow of exp, which differences of scores do not cause",
)
def vjp_large_scores_have_one_winner(q: Array, k: Array, v: Array, mask: Mask, grad_out: Array) -> tuple[Array, ...]:
    """If the largest score of a row is above 10⁴, the backward gives all weight to that key. The row
    then adds nothing to dq and dk.
    """
    is_large, first = _of_one_key(q, k, mask)
    visible = np.where(is_large, first, right.visible_entries(mask, (*q.shape[:-1], k.shape[-2])))
    return right.scaled_dot_product_attention_vjp(q, k, v, visible, grad_out)


@bug.in_operation(
    SDPA,
    law="without queries the output is empty and gradients are 0",
    promises={"arithmetic": "float32"},
    effect="A chunk without queries raises an IndexError instead of a refusal or an empty result.",
    repair="Allocate the result before the loop.",
    origin="for batches it is reported often, as in Dao-AILab/flash-attention#1159",
)
def sdpa_without_queries_raises(q: Any, k: Any, v: Any, mask: Mask = None) -> Any:
    """The code joins blocks of queries, and without queries the list of blocks is empty."""
    widened = [x.astype(np.float64) for x in (q, k, v)]
    blocks = range(0, q.shape[-2], 16)
    visible = right.visible_entries(mask, (*q.shape[:-1], k.shape[-2]))
    results = [
        right.scaled_dot_product_attention(
            widened[0][..., i : i + 16, :], widened[1], widened[2], visible[..., i : i + 16, :]
        )
        for i in blocks
    ]
    joined = np.concatenate(results, -2) if len(results) > 1 else results[0]
    return joined.astype(np.float32)


@bug.in_operation(
    SDPA,
    law="without keys every row is fully masked",
    promises={"conventions": Conventions(dead_rows="nan")},
    effect="An empty cache gives numbers, and a masked cache gives NaN.",
    repair="Use one convention for both.",
    origin="products over an axis of length 0 are zeros",
)
def sdpa_without_keys_is_zero(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Without keys the result is 0, an empty sum, although a fully masked row is NaN."""
    output = right.scaled_dot_product_attention(q, k, v, mask)
    return output if k.shape[-2] else np.zeros(output.shape)


@bug.in_operation(
    CAUSAL,
    law="queries before the first key are fully masked",
    promises={"conventions": Conventions(causal="bottom_right")},
    effect=(
        "With more queries than keys, the first outputs are the first value instead of the result of a fully "
        "masked row."
    ),
    repair="Do not limit the number of keys from below.",
    origin="a count of max(1, i + n_k − n_q + 1) keys avoids an empty softmax",
)
def causal_early_queries_read_the_first_key(q: Array, k: Array, v: Array) -> Array:
    """With alignment at the last key, queries before the first key attend to the first key."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    visible = np.tri(n_q, n_k, n_k - n_q, dtype=bool)
    visible[:, :1] = True
    return right.scaled_dot_product_attention(q, k, v, visible)


@bug.in_operation(
    CAUSAL,
    law="queries past the last key see all keys",
    effect="With more queries than keys, later queries do not see most keys.",
    repair="Compare the positions themselves.",
    origin="code takes positions modulo the length of a tile or of a cache",
)
def causal_queries_past_the_last_key_begin_anew(q: Array, k: Array, v: Array) -> Array:
    """For a query past the last key, the code takes its position modulo the number of keys."""
    n_q, n_k = q.shape[-2], k.shape[-2]
    last = right.last_keys(n_q, n_k)
    visible = np.arange(n_k) <= np.where(last < n_k, last, last % max(n_k, 1))
    return right.scaled_dot_product_attention(q, k, v, visible)


def _cleared(x: Array, mask: Mask, shape: tuple[int, ...]) -> Array:
    """Return keys or values, with 0 for keys that are masked for all queries."""
    return np.where(right.visible_entries(mask, shape).any(-2)[..., None], x, 0.0)


@bug.in_operation(
    SDPA,
    law="NaN and infinity in masked keys and values do not matter",
    promises={"conventions": Conventions(blocked_values="unread")},
    effect="NaN in masked keys makes the output NaN; NaN in masked values does not.",
    repair="Select by the mask instead of adding it.",
    origin="reports of NaN in padding ask only to set the values to 0",
)
def sdpa_nan_in_masked_keys_reaches_the_weights(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The code adds −∞ to masked scores, and NaN + −∞ is NaN; it sets masked values to 0."""
    shape = (*q.shape[:-1], k.shape[-2])
    visible = right.visible_entries(mask, shape)
    with np.errstate(invalid="ignore"):
        scores = right.scores_of(q, k) + np.where(visible, 0.0, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        output = weights / weights.sum(-1, keepdims=True) @ _cleared(v, mask, shape)
    return with_dead_rows(output, mask, v)


@bug.in_operation(
    SINUSOID,
    law="the sinusoidal encoding is within its error limit",
    effect="The only column is 1 at position 0.",
    repair="Start every width with a sine.",
    origin="code fills columns from whole pairs, and a width of 1 has no pair",
)
def sinusoid_of_one_column_is_a_cosine(seq_len: int, embed_dim: int, start_pos: int = 0) -> Array:
    """A width of 1 gives a cosine instead of a sine."""
    output = placed.sinusoidal_positional_encoding(seq_len, embed_dim, start_pos)
    return np.cos(np.arange(start_pos, start_pos + seq_len))[:, None] if embed_dim == 1 else output
