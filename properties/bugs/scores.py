"""Known bugs of the scores of attention: their scale, their precision, their width."""

import math

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import MULTI_HEAD, OPTIONS, SDPA, SOFTMAX, Register
from properties.bugs.reference import Mask

bug = Register(seen=SDPA)


@bug.in_step(
    "scaled",
    law="added zero channels change only the scale",
    effect="Attention is too sharp, most of all with wide heads.",
    repair="Divide the scores by √d.",
    origin="first versions often forget it",
)
def sdpa_scale_missing(products: Array, width: int) -> Array:
    """The code does not scale the scores."""
    return products


@bug.in_step(
    "scaled",
    law="added zero channels change only the scale",
    effect="Scores are d times too large.",
    repair="Divide the scores by √d.",
    citations="esceptico/perceiver-io#9; pytorch/pytorch#151098",
)
def sdpa_scale_inverted(products: Array, width: int) -> Array:
    """The code multiplies the scores by √d instead of dividing by it."""
    return np.asarray(products * np.sqrt(max(width, 1)))


@bug.in_step(
    "scaled",
    law="added zero channels change only the scale",
    effect="Attention is too flat; a width of 0 or 1 is correct.",
    repair="Divide by √d.",
    origin="models in the muP parametrisation divide by d, and say so",
)
def sdpa_scale_without_root(products: Array, width: int) -> Array:
    """The code divides the scores by d instead of √d."""
    return products / max(width, 1)


@bug.in_step(
    "scaled",
    without=OPTIONS,
    law="repeating every key and value changes nothing",
    effect="Attention is flatter with more keys than channels, and sharper with fewer.",
    repair="Divide by √d: the width of q and k, the last axis of both.",
    origin="the code takes the size of the wrong axis",
)
def sdpa_scale_of_the_number_of_keys(products: Array, width: int) -> Array:
    """The code divides the scores by √n_k instead of √d."""
    return np.asarray(products / np.sqrt(max(products.shape[-1], 1)))


@bug.in_step(
    "scaled",
    law="added zero channels change only the scale",
    effect="Attention is too sharp if the width is not a square; 1, 4, 16 and 64 are correct.",
    repair="Take the root in floating point.",
    origin="the width is an integer, and widths of 16 and 64 do not show the bug",
)
def sdpa_scale_integer_root(products: Array, width: int) -> Array:
    """The code rounds √d down to an integer."""
    return products / max(math.isqrt(width), 1)


@bug.in_step(
    "scaled",
    without=(*MULTI_HEAD, *OPTIONS),
    law="with head_dim 0 the output is the mean of the visible values",
    effect="Every output is NaN if queries and keys have no columns.",
    repair="Use a scale of 1 for width 0.",
    origin="1/√d is undefined for 0",
)
def sdpa_width_zero_not_a_number(products: Array, width: int) -> Array:
    """With a width of 0 the code computes 0/0."""
    return np.asarray(products / np.sqrt(width))


@bug.in_step(
    SDPA,
    without=MULTI_HEAD,
    law="added zero channels change only the scale",
    effect="Attention is too flat or too sharp if values are wider or narrower than keys.",
    repair="Take the scale from the width of queries and keys.",
    citations="lucidrains/flash-attention-jax#15; juho-lee/set_transformer#18",
)
def sdpa_scale_by_value_width(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The scale is 1/√d_v, from the width of the values."""
    return right.scaled_dot_product_attention(q * math.sqrt(max(q.shape[-1], 1) / max(v.shape[-1], 1)), k, v, mask)


@bug.in_step(
    "attention_weights",
    law="a broadcast mask gives the same as the full mask",
    effect="Attention with a mask is too flat; the same call without a mask is correct.",
    repair="Scale once, either the queries or the scores.",
    origin="the masked path scales the queries, then calls a function that scales the scores",
)
def sdpa_scale_twice_under_a_mask(q: Array, k: Array, mask: Mask = None) -> Array:
    """With a mask, the code scales the queries and then the scores again."""
    return right.attention_weights(q if mask is None else q / math.sqrt(max(q.shape[-1], 1)), k, mask)


@bug.in_step(
    "scores_of",
    law="the output is the weighted mean of the outputs of two blocks of keys",
    effect="The last channels of queries and keys have no effect.",
    repair="Pad the channels to a multiple of 8, or process the last ones separately.",
    citations="NVIDIA/FasterTransformer#89",
)
def sdpa_last_lanes_dropped(q: Array, k: Array) -> Array:
    """The code rounds a width above 8 down to a multiple of 8."""
    kept_channels = q.shape[-1] // 8 * 8 if q.shape[-1] > 8 else q.shape[-1]
    return right.scaled(q[..., :kept_channels] @ k[..., :kept_channels].mT, q.shape[-1])


@bug.in_step(
    SOFTMAX,
    law="a vector added to all keys changes nothing",
    effect="Two scores above 50 get equal weights although they differ.",
    repair="Subtract the largest score of each row; then no score needs a limit.",
    origin="clipping is a common first remedy for overflow",
)
def sdpa_scores_clamped(scores: Array, mask: Mask = None) -> Array:
    """The code clips the scores to ±50."""
    return right.hard_masked_softmax(np.clip(scores, -50, 50), mask)


@bug.in_step(
    "scores_of",
    law="multi-head attention with one head equals attention",
    effect="Long rows have seven correct digits instead of sixteen.",
    repair="Keep the precision of the inputs.",
    citations="AI-Hypercomputer/maxtext#1225",
)
def sdpa_scores_in_single_precision(q: Array, k: Array) -> Array:
    """With 64 or more keys, the code stores the scores in float32."""
    scores = right.scores_of(q, k)
    return scores.astype(np.float32).astype(float) if k.shape[-2] >= 64 else scores


@bug.in_step(
    "scores_of",
    law="an orthogonal change of basis of q and k changes nothing",
    effect="Results have three correct digits instead of sixteen, for some widths only; small integers are exact.",
    repair="Request full precision for the matrix product.",
    citations="alexdremov/kernels#1",
)
def sdpa_products_in_tf32(q: Array, k: Array) -> Array:
    """If the width is a multiple of 8, the code cuts queries and keys to the 10 bits of TF32 before
    it multiplies."""
    if q.shape[-1] % 8:
        return right.scores_of(q, k)
    return right.scores_of(*((np.ascontiguousarray(x).view(np.int64) & -(1 << 42)).view(float) for x in (q, k)))


@bug.in_step(
    "attention_weights",
    law="if all values are equal, the output is that value",
    effect="Weights do not sum to 1, and small weights become 0.",
    repair="Keep the weights in the precision of the accumulator.",
    origin="kernels for 16-bit values store the weights this way, and users call them with wider values",
)
def sdpa_weights_in_half_precision(q: Array, k: Array, mask: Mask = None) -> Array:
    """The code rounds the weights to float16 before it multiplies the values."""
    return right.attention_weights(q, k, mask).astype(np.float16).astype(float)


@bug.in_step(
    "attention_weights",
    law="if all values are equal, the output is that value",
    public=True,
    effect="Each column of weights sums to 1 instead of each row, so outputs are not averages of the values.",
    repair="Take the softmax over the last axis, the keys.",
    citations=(
        "labmlai/annotated_deep_learning_paper_implementations#146; FudanNLP/fastNLP#254; "
        "nerminnuraydogan/vision-transformer#1"
    ),
)
def sdpa_softmax_query_axis(q: Array, k: Array, mask: Mask = None) -> Array:
    """The softmax runs over the queries instead of the keys."""
    scores = right.scores_of(q, k)
    return right.hard_masked_softmax(scores.mT, right.visible_entries(mask, scores.shape).mT).mT


@bug.in_step(
    "attention_weights",
    law="masked keys and values do not matter",
    effect="A masked key gets weight if its score is some thousands above the visible scores.",
    repair="Mask with −∞, after the scale.",
    origin="with the mask added first, −10000 becomes −1250 at width 64",
)
def sdpa_mask_scaled_with_the_scores(q: Array, k: Array, mask: Mask = None) -> Array:
    """The code adds −10000 to masked scores before it divides them by √d."""
    scores = right.scores_of(q, k)
    visible = right.visible_entries(mask, scores.shape)
    penalty = np.where(visible, 0.0, right.scaled(np.array(-1e4), q.shape[-1]))
    weights = right.hard_masked_softmax(scores + penalty)
    return np.where(visible.any(-1, keepdims=True), weights, right.dead_weight(scores.shape[-1]))


def _padded_rows(x: Array) -> Array:
    """The rows of each matrix, continued to a power of two of channels by what follows in memory: the
    next row, and zeros after the last row.
    """
    (n, width), block = x.shape[-2:], 1 << max(x.shape[-1] - 1, 0).bit_length()
    flat = np.pad(x.reshape(*x.shape[:-2], n * width), [(0, 0)] * (x.ndim - 2) + [(0, block)])
    return flat[..., np.arange(n)[:, None] * width + np.arange(block)]


@bug.in_step(
    "scores_of",
    law="the output is the weighted mean of the outputs of two blocks of keys",
    effect="Scores of widths that are not powers of two have products of other rows in them.",
    repair="Mask the channels beyond the width when a tile is loaded.",
    citations="flagos-ai/FlagGems#951",
)
def sdpa_width_padded_by_the_next_row(q: Array, k: Array) -> Array:
    """The code loads a power of two of channels without a mask, so a row continues with the first
    channels of the next row."""
    return right.scaled(_padded_rows(q) @ _padded_rows(k).mT, q.shape[-1])
