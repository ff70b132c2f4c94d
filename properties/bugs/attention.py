"""Slips in the forward of attention: scale, sizes, precision, memory. Masks and tiles have modules of their own."""

import math
from collections.abc import Callable

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import allowed
from properties.reference import Mask, attention_weights, hard_masked_softmax, scaled_dot_product_attention, scores_of, transposed

bug = Register()

WIDTH = "padding with zero lanes needs doubled queries"


@bug(
    "scaled_dot_product_attention",
    effect="Each column of weights sums to 1 instead of each row: outputs are no averages of the values.",
    repair="Take the softmax over the last axis, the keys.",
    citation="labmlai/annotated_deep_learning_paper_implementations#146; FudanNLP/fastNLP#254; nerminnuraydogan/vision-transformer#1",
    law="constant values come out unchanged",
    public=True,
)
def sdpa_softmax_query_axis(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The softmax is taken over the queries instead of the keys."""
    scores = scores_of(q, k)
    return transposed(hard_masked_softmax(transposed(scores), transposed(allowed(mask, scores.shape)))) @ v


@bug(
    "scaled_dot_product_attention",
    effect="Keys that are a transposed or strided view are scrambled.",
    repair="Use the strides, or copy what is not contiguous.",
    citation="pytorch/pytorch#112577; torch-spyre/torch-spyre#4331",
    law="a view equals its copy",
    requires=("strided views",),
    public=True,
)
def sdpa_noncontiguous_inputs(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The keys are read in the order in which they lie in memory, whatever their strides."""
    return scaled_dot_product_attention(q, k.ravel(order="K").reshape(k.shape), v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="Attention is too sharp, the more the wider the heads are.",
    repair="Divide the scores by √d.",
    citation="none: the commonest slip of a first version",
    law=WIDTH,
)
def sdpa_scale_missing(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The scores are not scaled."""
    return scaled_dot_product_attention(q * math.sqrt(max(q.shape[-1], 1)), k, v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="Attention is too flat or too sharp as soon as values are wider or narrower than keys.",
    repair="Scale by the width of queries and keys.",
    citation="lucidrains/flash-attention-jax#15; juho-lee/set_transformer#18",
    law=WIDTH,
)
def sdpa_scale_by_value_width(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The scale is 1/√d_v, the width of the values."""
    return scaled_dot_product_attention(q * math.sqrt(max(q.shape[-1], 1) / max(v.shape[-1], 1)), k, v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="Scores are d times too large.",
    repair="Multiply by the reciprocal of the root, or divide by the root.",
    citation="esceptico/perceiver-io#9; pytorch/pytorch#151098",
    law=WIDTH,
)
def sdpa_scale_inverted(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Scores are divided by 1/√d, that is multiplied by √d."""
    return scaled_dot_product_attention(q * q.shape[-1], k, v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="Attention is too sharp for widths that are no square; 1, 4, 16 and 64 are right.",
    repair="Take the root in floating point.",
    citation="none: the width is an integer, and an integer root of 64 or 16 shows nothing",
    law=WIDTH,
)
def sdpa_scale_integer_root(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """√d is rounded down to an integer."""
    return scaled_dot_product_attention(q * (math.sqrt(q.shape[-1]) / max(math.isqrt(q.shape[-1]), 1)), k, v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="Attention with a mask is too flat, the same call without one is right.",
    repair="Scale once: either the queries or the scores.",
    citation="none: the masked path scales its queries beforehand and calls what scales the scores",
    law="a mask that allows everything is no mask",
)
def sdpa_scale_twice_under_a_mask(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Where there is a mask, the scale is applied to the queries and again to the scores."""
    return scaled_dot_product_attention(q if mask is None else q / math.sqrt(max(q.shape[-1], 1)), k, v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="Queries and keys that differ in their last lanes only are not told apart.",
    repair="Pad the lanes to a multiple of 8, or do the last ones by themselves.",
    citation="NVIDIA/FasterTransformer#89",
    law="an orthogonal change of basis changes nothing",
)
def sdpa_last_lanes_dropped(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """A width above 8 that is no multiple of 8 is cut down to one."""
    lanes = q.shape[-1] // 8 * 8 if q.shape[-1] > 8 else q.shape[-1]
    return hard_masked_softmax(q[..., :lanes] @ transposed(k[..., :lanes]) / math.sqrt(max(q.shape[-1], 1)), mask) @ v


@bug(
    "scaled_dot_product_attention",
    effect="A query that may not attend to the only key gets its value.",
    repair="Leave the shortcut to calls without a mask.",
    citation="none: the softmax of one number is 1, so a short cut looks safe",
    law="a query with no allowed key follows its convention",
)
def sdpa_one_key_shortcut(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With one key its value is returned for every query, without a look at the mask."""
    return np.repeat(v, q.shape[-2], axis=-2) if k.shape[-2] == 1 else scaled_dot_product_attention(q, k, v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="Everything is NaN where queries and keys have no columns.",
    repair="Take the scale as 1 for width 0.",
    citation="none: 1/√d is written without a thought of d = 0",
    law="attention of width zero takes the mean",
)
def sdpa_width_zero_not_a_number(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Scores of width 0 are 0/0."""
    with np.errstate(invalid="ignore"):
        return hard_masked_softmax(q @ transposed(k) / np.sqrt(q.shape[-1]), mask) @ v


@bug(
    "scaled_dot_product_attention",
    effect="Beyond ±50 all scores are alike: of two large ones the smaller gets as much as the larger.",
    repair="Subtract the largest score of each row; then nothing needs a limit.",
    citation="none: a limit on the scores is a common first aid against overflow",
    law="adding a vector to every key changes nothing",
)
def sdpa_scores_clamped(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Scores are limited to ±50."""
    return hard_masked_softmax(np.clip(scores_of(q, k), -50, 50), mask) @ v


@bug(
    "scaled_dot_product_attention",
    effect="Seven digits instead of sixteen, in long rows only.",
    repair="Keep the scores in the precision of the inputs.",
    citation="AI-Hypercomputer/maxtext#1225",
    law="attention is within its budget across tiles",
)
def sdpa_scores_in_single_precision(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """From 64 keys on the scores are stored in float32."""
    scores = scores_of(q, k)
    return hard_masked_softmax(scores.astype(np.float32).astype(float) if k.shape[-2] >= 64 else scores, mask) @ v


@bug(
    "scaled_dot_product_attention",
    effect="Three digits instead of sixteen, for some widths only; small integers come out right.",
    repair="Ask the matrix product for full precision.",
    citation="alexdremov/kernels#1",
    law="an orthogonal change of basis changes nothing",
)
def sdpa_products_in_tf32(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """Where the width is a multiple of 8, queries and keys are cut to the 10 bits of TF32 before they are multiplied."""

    def cut(x: Array) -> Array:
        return (np.ascontiguousarray(x).view(np.int64) & -(1 << 42)).view(float)

    return scaled_dot_product_attention(cut(q), cut(k), v, mask) if q.shape[-1] % 8 == 0 else scaled_dot_product_attention(q, k, v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="Weights no longer sum to 1, and small ones are 0.",
    repair="Keep the weights in the precision of the accumulator.",
    citation="none: kernels for 16-bit values store the weights so, and are reused for wider ones",
    law="constant values come out unchanged",
)
def sdpa_weights_in_half_precision(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The weights are rounded to float16 before they meet the values."""
    return attention_weights(q, k, mask).astype(np.float16).astype(float) @ v


@bug(
    "scaled_dot_product_attention",
    effect="The caller's queries are changed, and a second call gives another result.",
    repair="Scale a copy.",
    citation="none: q *= scale is shorter than q = q * scale",
    law="inputs are not written",
)
def sdpa_queries_scaled_in_place(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """The scale is applied to the caller's own queries."""
    out = scaled_dot_product_attention(q, k, v, mask)
    if q.flags.writeable:
        q /= math.sqrt(max(q.shape[-1], 1))
    return out


@bug(
    "scaled_dot_product_attention",
    effect="Writing into the result changes the values.",
    repair="Return a copy.",
    citation="none: one query and one key need no arithmetic at all",
    law="the result is no view of an input",
)
def sdpa_returns_its_values(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
    """With one query, one key and no mask the values themselves are returned."""
    return v if q.shape[-2] == k.shape[-2] == 1 and mask is None else scaled_dot_product_attention(q, k, v, mask)


@bug(
    "scaled_dot_product_attention",
    effect="The first call is right, each later one of the same shape adds what came before.",
    repair="Clear the accumulator at the start of each call.",
    citation="none: a workspace is allocated once and cleared once",
    law="a second call gives the same",
    requires=("two calls in a row",),
    stateful=True,
)
def sdpa_accumulator_not_cleared() -> Callable[..., Array]:
    """The accumulator is kept between calls of one shape, and not set to zero."""
    kept: dict[tuple[int, ...], Array] = {}

    def attend(q: Array, k: Array, v: Array, mask: Mask = None) -> Array:
        out = scaled_dot_product_attention(q, k, v, mask)
        kept[out.shape] = out + kept.get(out.shape, 0.0)
        return kept[out.shape].copy()

    return attend
