"""Slips in the scores of attention: their scale, their precision, their width."""

import math

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import MULTI_HEAD, SDPA, SOFTMAX, Register
from properties.bugs.reference import Mask

bug = Register()


@bug.in_step(
    "scaled",
    seen=SDPA,
    law="channels of zeros change the scale alone",
    effect="Attention is too sharp, above all of wide heads.",
    repair="Divide the scores by √d.",
    origin="common in first versions",
)
def sdpa_scale_missing(products: Array, width: int) -> Array:
    """The scores are not scaled."""
    return products


@bug.in_step(
    "scaled",
    seen=SDPA,
    law="channels of zeros change the scale alone",
    effect="Scores are d times too large.",
    repair="Divide by the root.",
    citations=("esceptico/perceiver-io#9", "pytorch/pytorch#151098"),
)
def sdpa_scale_inverted(products: Array, width: int) -> Array:
    """Scores are divided by 1/√d, that is multiplied by √d."""
    return np.asarray(products * np.sqrt(max(width, 1)))


@bug.in_step(
    "scaled",
    seen=SDPA,
    law="channels of zeros change the scale alone",
    effect="Attention is too flat; widths of 0 and 1 are right.",
    repair="Divide by √d.",
    origin="models that are parametrised for any width do so, and say so",
)
def sdpa_scale_without_root(products: Array, width: int) -> Array:
    """Scores are divided by d."""
    return np.asarray(products / max(width, 1))


@bug.in_step(
    "scaled",
    seen=SDPA,
    law="channels of zeros change the scale alone",
    effect="Attention is too sharp for widths that are no square; 1, 4, 16 and 64 are right.",
    repair="Take the root in floating point.",
    origin="the width is an integer, and an integer root of 64 or 16 shows nothing",
)
def sdpa_scale_integer_root(products: Array, width: int) -> Array:
    """√d is rounded down to an integer."""
    return np.asarray(products / max(math.isqrt(width), 1))


@bug.in_step(
    "scaled",
    seen=SDPA,
    without=MULTI_HEAD,
    law="attention of width zero takes the mean",
    effect="Everything is NaN where queries and keys have no columns.",
    repair="Take the scale as 1 for width 0.",
    origin="1/√d forgets 0",
)
def sdpa_width_zero_not_a_number(products: Array, width: int) -> Array:
    """Scores of width 0 are 0/0."""
    return np.asarray(products / np.sqrt(width))


@bug.in_step(
    SDPA,
    without=MULTI_HEAD,
    law="channels of zeros change the scale alone",
    effect="Attention is too flat or too sharp as soon as values are wider or narrower than keys.",
    repair="Scale by the width of queries and keys.",
    citations=("lucidrains/flash-attention-jax#15", "juho-lee/set_transformer#18"),
)
def sdpa_scale_by_value_width(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The scale is 1/√d_v, the width of the values."""
    return right.scaled_dot_product_attention(q * math.sqrt(max(q.shape[-1], 1) / max(v.shape[-1], 1)), k, v, mask)


@bug.in_step(
    "attention_weights",
    seen=SDPA,
    law="a mask can be written out",
    effect="Attention with a mask is too flat, the same call without one is right.",
    repair="Scale once: either the queries or the scores.",
    origin="the masked path scales its queries beforehand and calls what scales the scores",
)
def sdpa_scale_twice_under_a_mask(q: Array, k: Array, mask: Mask = None) -> Array:
    """Where there is a mask, the scale is applied to the queries and again to the scores."""
    return right.attention_weights(q if mask is None else q / math.sqrt(max(q.shape[-1], 1)), k, mask)


@bug.in_step(
    "scores_of",
    seen=SDPA,
    law="blocks of keys merge by log sum exp",
    effect="Queries and keys that differ in their last channels only are not told apart.",
    repair="Pad the channels to a multiple of 8, or do the last ones by themselves.",
    citations=("NVIDIA/FasterTransformer#89",),
)
def sdpa_last_lanes_dropped(q: Array, k: Array) -> Array:
    """A width above 8 that is no multiple of 8 is cut down to one."""
    lanes = q.shape[-1] // 8 * 8 if q.shape[-1] > 8 else q.shape[-1]
    return right.scaled(q[..., :lanes] @ right.transposed(k[..., :lanes]), q.shape[-1])


@bug.in_step(
    SOFTMAX,
    seen=SDPA,
    law="a vector added to all keys changes nothing",
    effect="Beyond ±50 all scores are alike: of two large ones the smaller gets as much as the larger.",
    repair="Subtract the largest score of each row; then nothing needs a limit.",
    origin="a limit on the scores is a common first aid against overflow",
)
def sdpa_scores_clamped(scores: Array, mask: Mask = None) -> Array:
    """Scores are limited to ±50."""
    return right.hard_masked_softmax(np.clip(scores, -50, 50), mask)


@bug.in_step(
    "scores_of",
    seen=SDPA,
    law="one head is self attention",
    effect="Long rows have seven digits instead of sixteen.",
    repair="Keep the inputs' precision.",
    citations=("AI-Hypercomputer/maxtext#1225",),
)
def sdpa_scores_in_single_precision(q: Array, k: Array) -> Array:
    """From 64 keys on the scores are stored in float32."""
    scores = right.scores_of(q, k)
    return scores.astype(np.float32).astype(float) if k.shape[-2] >= 64 else scores


@bug.in_step(
    "scores_of",
    seen=SDPA,
    law="an orthogonal change of basis changes nothing",
    effect="Three digits instead of sixteen, for some widths only; small integers come out right.",
    repair="Ask the matrix product for full precision.",
    citations=("alexdremov/kernels#1",),
)
def sdpa_products_in_tf32(q: Array, k: Array) -> Array:
    """Where the width is a multiple of 8, queries and keys are cut to the 10 bits of TF32 before
    they are multiplied."""
    if q.shape[-1] % 8:
        return right.scores_of(q, k)
    return right.scores_of(*((np.ascontiguousarray(x).view(np.int64) & -(1 << 42)).view(float) for x in (q, k)))


@bug.in_step(
    "attention_weights",
    seen=SDPA,
    law="constant values come out unchanged",
    effect="Weights no longer sum to 1, and small ones are 0.",
    repair="Keep the weights in the precision of the accumulator.",
    origin="kernels for 16-bit values store the weights so, and are reused for wider ones",
)
def sdpa_weights_in_half_precision(q: Array, k: Array, mask: Mask = None) -> Array:
    """The weights are rounded to float16 before they meet the values."""
    return right.attention_weights(q, k, mask).astype(np.float16).astype(float)


@bug.in_step(
    "attention_weights",
    seen=SDPA,
    law="constant values come out unchanged",
    public=True,
    effect="Each column of weights sums to 1 instead of each row: outputs are no averages of the values.",
    repair="Take the softmax over the last axis, the keys.",
    citations=(
        "labmlai/annotated_deep_learning_paper_implementations#146",
        "FudanNLP/fastNLP#254",
        "nerminnuraydogan/vision-transformer#1",
    ),
)
def sdpa_softmax_query_axis(q: Array, k: Array, mask: Mask = None) -> Array:
    """The softmax is taken over the queries instead of the keys."""
    scores = right.scores_of(q, k)
    return right.transposed(
        right.hard_masked_softmax(right.transposed(scores), right.transposed(right.allowed(mask, scores.shape)))
    )


@bug.in_step(
    "attention_weights",
    seen=SDPA,
    law="masked keys and values do not matter",
    effect="A masked key leaks in once its score is some thousands above the allowed ones.",
    repair="Mask with −∞, after scaling.",
    origin="the mask is added before the scores are scaled, so −10000 becomes −1250 at width 64",
)
def sdpa_mask_scaled_with_the_scores(q: Array, k: Array, mask: Mask = None) -> Array:
    """−10000 is added to masked scores before they are divided by √d."""
    scores = right.scores_of(q, k)
    visible = right.allowed(mask, scores.shape)
    penalty = np.where(visible, 0.0, right.scaled(np.array(-1e4), q.shape[-1]))
    return np.where(visible.any(-1, keepdims=True), right.hard_masked_softmax(scores + penalty), 0.0)
