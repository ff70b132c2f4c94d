"""Known bugs of the softmax over visible entries: the maximum, the exponentials, the sum."""

from functools import partial
from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import CAUSAL, SDPA, SOFTMAX, Register
from properties.bugs.kernels import tiles
from properties.bugs.reference import Mask

bug = Register()
in_largest_of = partial(bug.in_step, "largest_of")
in_softmax = partial(bug.in_step, SOFTMAX)


@in_softmax(
    law="adding a constant to a row of scores changes nothing",
    public=True,
    effect="Rows with low scores sum to less than 1, or to 0.",
    repair="Set masked scores to −∞ and subtract the largest visible score.",
    origin=(
        "AllenNLP's masked_softmax has this pattern, and at least nine public repositories copied it; compare "
        "allenai/allennlp#437"
    ),
)
def softmax_mask_multiply_eps(scores: Array, mask: Mask = None) -> Array:
    """The code multiplies scores and weights by the mask, and adds 1e-13 to the sum against
    division by 0."""
    factor = right.visible_entries(mask, scores.shape).astype(float)
    p = right.hard_masked_softmax(scores * factor) * factor
    return np.asarray(p / (p.sum(-1, keepdims=True) + 1e-13))


@in_softmax(
    law="the weights of visible entries sum to 1",
    public=True,
    effect="Rows with a masked entry sum to less than 1.",
    repair="Mask before the softmax.",
    citations="huggingface/pytorch-image-models#2236",
)
def softmax_mask_after_no_renorm(scores: Array, mask: Mask = None) -> Array:
    """The softmax runs over all entries, and the code then sets masked weights to 0 without
    normalizing again."""
    return np.where(right.visible_entries(mask, scores.shape), right.hard_masked_softmax(scores), 0.0)


@in_largest_of(
    seen=SOFTMAX,
    law="adding a constant to a row of scores changes nothing",
    effect="Scores above 709 give NaN, and rows below −745 give zeros.",
    repair="Subtract the largest visible score of each row.",
    citations="pytorch/executorch#18407; NVIDIA/FasterTransformer#43",
)
def softmax_no_maximum(scores: Array, visible: Any) -> Array:
    """The code takes exponentials of the scores without subtracting the maximum."""
    return np.zeros(())


@in_largest_of(
    seen=SOFTMAX,
    law="scaling up some rows does not affect the others",
    effect="A score more than 709 above the first gives NaN.",
    repair="Subtract the largest visible score.",
    citations="ROCm/AMDMIGraphX#1290",
)
def softmax_first_score_subtracted(scores: Array, visible: Any) -> Array:
    """The code subtracts the first score of each row instead of the largest."""
    return scores[..., :1]


@in_largest_of(
    seen=SOFTMAX,
    law="a single visible key has weight 1, however low its score",
    effect="A row of more than 32 entries is NaN if a later score is far above the first 32.",
    repair="Reduce over all warps.",
    citations="NVIDIA/DeepLearningExamples#169",
)
def softmax_maximum_of_the_first_warp(scores: Array, visible: Any) -> Array:
    """The maximum of a row covers its first 32 entries only."""
    return right.largest_of(scores[..., :32], visible[..., :32])


@in_largest_of(
    seen=SOFTMAX,
    law="masked scores do not matter",
    effect="A row becomes zeros if a masked score is 745 above the visible scores.",
    repair="Mask before the maximum.",
    citations="allenai/allennlp#437",
)
def softmax_maximum_of_blocked_scores(scores: Array, visible: Any) -> Array:
    """The maximum of a row includes masked entries."""
    return np.asarray(scores.max(-1, keepdims=True))


@bug.in_step(
    "exponentials",
    seen=SOFTMAX,
    law="masked scores do not matter",
    effect="A row is NaN if a masked score is 709 above the visible scores.",
    repair="Mask before the exponential instead of multiplying by 0 after it.",
    citations="deepmodeling/deepmd-kit#5717",
)
def softmax_blocked_scores_overflow(scores: Array, visible: Any, largest: Array) -> Array:
    """The code multiplies the exponentials of masked scores by 0, and they can be ∞."""
    return np.asarray(np.exp(scores - largest) * visible)


@in_largest_of(
    seen=SOFTMAX,
    law="adding a constant to a row of scores changes nothing",
    effect="Rows with all scores below −745 become zeros.",
    repair="Start the maximum at −∞.",
    citations="Dao-AILab/flash-attention#2082",
)
def softmax_maximum_starts_at_zero(scores: Array, visible: Any) -> Array:
    """The search for the largest score starts at 0."""
    return np.maximum(right.largest_of(scores, visible), 0.0)


@in_largest_of(
    seen=SOFTMAX,
    law="scaling up some rows does not affect the others",
    effect="A row becomes zeros if another row has scores 745 above it.",
    repair="Subtract the largest score of each row.",
    origin="one row gives correct results",
)
def softmax_maximum_of_all_rows(scores: Array, visible: Any) -> Array:
    """The code subtracts the largest score of the whole array from every row."""
    return np.asarray(scores.max(where=visible, initial=-np.inf) if visible.any() else 0.0)


@in_largest_of(
    seen=SDPA,
    law="scaling up some queries does not affect the others",
    effect="A query becomes NaN or zero if its scores are far below the scores of its neighbours.",
    repair="Reduce the maximum over the keys of each query.",
    origin="one maximum for a tile saves a reduction, and is correct for scores of ordinary size",
)
def sdpa_maximum_shared_by_queries(scores: Array, visible: Any) -> Array:
    """Sixteen queries of a tile share one maximum."""
    shared = np.where(visible, scores, -np.inf)
    for rows in tiles(scores.shape[-2], 16):
        shared[..., rows, :] = shared[..., rows, :].max((-1, -2), keepdims=True)
    return right.largest_of(shared, visible.any((-1, -2), keepdims=True) & (shared > -np.inf))


def _filled(scores: Array, mask: Mask, fill: float) -> Array:
    """Return weights with masked scores set to a number instead of −∞, except in fully masked rows."""
    visible = right.visible_entries(mask, scores.shape)
    weights = right.hard_masked_softmax(np.where(visible, scores, fill))
    return np.where(visible.any(-1, keepdims=True), weights, right.dead_weight(scores.shape[-1]))


@in_softmax(
    law="adding a constant to a row of scores changes nothing",
    effect="In rows with very low scores, masked entries get the weight.",
    repair="Mask with −∞.",
    citations="ohdearquant/lattice#361",
)
def softmax_blocked_at_minus_ten_thousand(scores: Array, mask: Mask = None) -> Array:
    """The code sets masked scores to −10000 instead of −∞, except in fully masked rows."""
    return _filled(scores, mask, -1e4)


@bug.in_step(
    "exponentials",
    seen=SOFTMAX,
    law="weight ratios are exponentials of score differences",
    effect="Weights are flatter, as at a temperature of 1.44.",
    repair="Multiply the scale by log₂ e.",
    origin="processors compute powers of 2, and other kernels put the factor into the scale",
)
def softmax_powers_of_two(scores: Array, visible: Any, largest: Array) -> Array:
    """The code takes powers of 2 without multiplying the scores by log₂ e."""
    return np.exp2(np.where(visible, scores - largest, -np.inf))


@in_softmax(
    law="masked entries have weight exactly 0",
    effect="Masked entries get as much weight as a score of 0.",
    repair="Mask with −∞.",
    citations="awslabs/gluonts#1401; Shujun-He/RibonanzaNet#5; hyunwoongko/transformer#10",
)
def softmax_blocked_at_minus_epsilon(scores: Array, mask: Mask = None) -> Array:
    """The code sets masked scores to −1e-9 instead of −1e9, except in fully masked rows."""
    return _filled(scores, mask, -1e-9)


@in_softmax(
    law="a broadcast mask gives the same as the full mask",
    effect="With a mask, a visible score of 0 gets no weight.",
    repair="Test the mask, not the scores.",
    citations="smolorg/smoltropix#5",
)
def softmax_zero_scores_taken_for_blocked(scores: Array, mask: Mask = None) -> Array:
    """The code multiplies scores by the mask, then treats every 0 as masked."""
    return right.hard_masked_softmax(scores, None if mask is None else (scores * mask) != 0)


@bug.in_step(
    "normalized",
    seen=SOFTMAX,
    law="the weights of visible entries sum to 1",
    effect="Weights are too small by up to one millionth.",
    repair="Divide by the sum, which is at least 1.",
    origin="the guard is a habit",
)
def softmax_epsilon_in_the_sum(e: Array) -> Array:
    """The code adds 1e-6 to the sum of exponentials against division by 0."""
    return np.asarray(e / (e.sum(-1, keepdims=True) + 1e-6))


@bug.in_step(
    "normalized",
    seen=SOFTMAX,
    law="the weights of visible entries sum to 1",
    effect="Weights have seven correct digits.",
    repair="Keep the precision of the scores.",
    origin="long rows take a path for float32",
)
def softmax_long_rows_in_single_precision(e: Array) -> Array:
    """The code stores the weights of rows of 64 or more entries in float32."""
    return right.normalized(e).astype(np.float32).astype(float) if e.shape[-1] >= 64 else right.normalized(e)


@bug.in_step(
    "normalized",
    seen=SOFTMAX,
    law="the weights of visible entries sum to 1",
    effect="The last one to three weights of a row are too large.",
    repair="Divide the remainder of the vectorized loop too.",
    origin="the remainder loop lacks the last step of the vectorized loop",
)
def softmax_remainder_not_divided(e: Array) -> Array:
    """In rows of more than 4 entries, the code does not divide the entries after the last full
    vector of 4 by the sum."""
    whole_vectors = e.shape[-1] // 4 * 4 if e.shape[-1] > 4 else e.shape[-1]
    return np.concatenate([right.normalized(e)[..., :whole_vectors], e[..., whole_vectors:]], -1)


@bug.in_step(
    "exponentials",
    seen=SOFTMAX,
    without=(CAUSAL,),
    law="masked entries have weight exactly 0",
    effect="Masked entries have a weight of e⁻⁶⁴, and a fully masked row has equal weights.",
    repair="Do not clip the differences: exp returns 0 where they are low.",
    origin="PaddlePaddle's softmax on processors clips this way",
)
def softmax_clipped_from_below(scores: Array, visible: Any, largest: Array) -> Array:
    """The code raises differences from the largest score to at least −64, also of masked entries."""
    return np.exp(np.maximum(np.where(visible, scores - largest, -np.inf), -64.0))
