"""Slips in the scores of attention: their scale, their precision, their width."""

import math

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import MULTI_HEAD, SDPA, SOFTMAX, Register, named
from properties.bugs.reference import Mask

bug = Register()


for _name, _scaled, _told in (
    ("sdpa_scale_missing", lambda s, d: s, """The scores are not scaled. Effect: Attention is too sharp, above all of wide heads. Repair:
     Divide the scores by √d. Seen: none: common in first versions"""),
    ("sdpa_scale_inverted", lambda s, d: s * np.sqrt(max(d, 1)), """Scores are divided by 1/√d, that is multiplied by √d. Effect: Scores are
     d times too large. Repair: Divide by the root. Seen: esceptico/perceiver-io#9; pytorch/pytorch#151098"""),
    ("sdpa_scale_without_root", lambda s, d: s / max(d, 1), """Scores are divided by d. Effect: Attention is too flat; widths of 0 and 1 are
     right. Repair: Divide by √d. Seen: none: models that are parametrised for any width do so, and say so"""),
    ("sdpa_scale_integer_root", lambda s, d: s / max(math.isqrt(d), 1), """√d is rounded down to an integer. Effect: Attention is too sharp
     for widths that are no square; 1, 4, 16 and 64 are right. Repair: Take the root in floating point. Seen: none: the width is an integer,
     and an integer root of 64 or 16 shows nothing"""),
):  # fmt: skip
    bug.slip("scaled", seen=SDPA, law="channels of zeros change the scale alone")(named(_scaled, _name, _told))


@bug.slip("scaled", seen=SDPA, without=MULTI_HEAD, law="attention of width zero takes the mean")
def sdpa_width_zero_not_a_number(products: Array, width: int) -> Array:
    """Scores of width 0 are 0/0.
    Effect: Everything is NaN where queries and keys have no columns. Repair: Take the scale as 1
    for width 0. Seen: none: 1/√d forgets 0"""
    return np.asarray(products / np.sqrt(width))


@bug.slip(SDPA, without=MULTI_HEAD, law="channels of zeros change the scale alone")
def sdpa_scale_by_value_width(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The scale is 1/√d_v, the width of the values.
    Effect: Attention is too flat or too sharp as soon as values are wider or narrower than keys.
    Repair: Scale by the width of queries and keys. Seen: lucidrains/flash-attention-jax#15;
    juho-lee/set_transformer#18"""
    return right.scaled_dot_product_attention(q * math.sqrt(max(q.shape[-1], 1) / max(v.shape[-1], 1)), k, v, mask)


@bug.slip("attention_weights", seen=SDPA, law="a mask can be written out")
def sdpa_scale_twice_under_a_mask(q: Array, k: Array, mask: Mask = None) -> Array:
    """Where there is a mask, the scale is applied to the queries and again to the scores. Effect:
    Attention with a mask is too flat, the same call without one is right. Repair: Scale once:
    either the queries or the scores. Seen: none: the masked path scales its queries beforehand and
    calls what scales the scores"""
    return right.attention_weights(q if mask is None else q / math.sqrt(max(q.shape[-1], 1)), k, mask)


@bug.slip("scores_of", seen=SDPA, law="blocks of keys merge by log sum exp")
def sdpa_last_lanes_dropped(q: Array, k: Array) -> Array:
    """A width above 8 that is no multiple of 8 is cut down to one.
    Effect: Queries and keys that differ in their last channels only are not told apart. Repair: Pad
    the channels to a multiple of 8, or do the last ones by themselves. Seen:
    NVIDIA/FasterTransformer#89"""
    lanes = q.shape[-1] // 8 * 8 if q.shape[-1] > 8 else q.shape[-1]
    return right.scaled(q[..., :lanes] @ right.transposed(k[..., :lanes]), q.shape[-1])


@bug.slip(SOFTMAX, seen=SDPA, law="a vector added to all keys changes nothing")
def sdpa_scores_clamped(scores: Array, mask: Mask = None) -> Array:
    """Scores are limited to ±50.
    Effect: Beyond ±50 all scores are alike: of two large ones the smaller gets as much as the
    larger. Repair: Subtract the largest score of each row; then nothing needs a limit. Seen: none:
    a limit on the scores is a common first aid against overflow"""
    return right.hard_masked_softmax(np.clip(scores, -50, 50), mask)


@bug.slip("scores_of", seen=SDPA, law="one head is self attention")
def sdpa_scores_in_single_precision(q: Array, k: Array) -> Array:
    """From 64 keys on the scores are stored in float32.
    Effect: Long rows have seven digits instead of sixteen. Repair: Keep the inputs' precision.
    Seen: AI-Hypercomputer/maxtext#1225"""
    scores = right.scores_of(q, k)
    return scores.astype(np.float32).astype(float) if k.shape[-2] >= 64 else scores


@bug.slip("scores_of", seen=SDPA, law="an orthogonal change of basis changes nothing")
def sdpa_products_in_tf32(q: Array, k: Array) -> Array:
    """Where the width is a multiple of 8, queries and keys are cut to the 10 bits of TF32 before
    they are multiplied. Effect: Three digits instead of sixteen, for some widths only; small
    integers come out right. Repair: Ask the matrix product for full precision. Seen:
    alexdremov/kernels#1"""
    if q.shape[-1] % 8:
        return right.scores_of(q, k)
    return right.scores_of(*((np.ascontiguousarray(x).view(np.int64) & -(1 << 42)).view(float) for x in (q, k)))


@bug.slip("attention_weights", seen=SDPA, law="constant values come out unchanged")
def sdpa_weights_in_half_precision(q: Array, k: Array, mask: Mask = None) -> Array:
    """The weights are rounded to float16 before they meet the values.
    Effect: Weights no longer sum to 1, and small ones are 0. Repair: Keep the weights in the
    precision of the accumulator. Seen: none: kernels for 16-bit values store the weights so, and
    are reused for wider ones"""
    return right.attention_weights(q, k, mask).astype(np.float16).astype(float)


@bug.slip("attention_weights", seen=SDPA, law="constant values come out unchanged", public=True)
def sdpa_softmax_query_axis(q: Array, k: Array, mask: Mask = None) -> Array:
    """The softmax is taken over the queries instead of the keys.
    Effect: Each column of weights sums to 1 instead of each row: outputs are no averages of the
    values. Repair: Take the softmax over the last axis, the keys. Seen:
    labmlai/annotated_deep_learning_paper_implementations#146; FudanNLP/fastNLP#254;
    nerminnuraydogan/vision-transformer#1"""
    scores = right.scores_of(q, k)
    return right.transposed(
        right.hard_masked_softmax(right.transposed(scores), right.transposed(right.allowed(mask, scores.shape)))
    )


@bug.slip("attention_weights", seen=SDPA, law="masked keys and values do not matter")
def sdpa_mask_scaled_with_the_scores(q: Array, k: Array, mask: Mask = None) -> Array:
    """−10000 is added to masked scores before they are divided by √d.
    Effect: A masked key leaks in once its score is some thousands above the allowed ones. Repair:
    Mask with −∞, after scaling. Seen: none: the mask is added before the scores are scaled, so
    −10000 becomes −1250 at width 64"""
    scores = right.scores_of(q, k)
    visible = right.allowed(mask, scores.shape)
    penalty = np.where(visible, 0.0, right.scaled(np.array(-1e4), q.shape[-1]))
    return np.where(visible.any(-1, keepdims=True), right.hard_masked_softmax(scores + penalty), 0.0)
