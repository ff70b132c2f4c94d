"""Slips in the softmax over allowed entries: the maximum, the exponentials, the sum."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import SDPA, SOFTMAX, Register
from properties.bugs.kernels import tiles
from properties.bugs.reference import Mask

bug = Register()


@bug.in_step(
    SOFTMAX,
    law="a constant added to a row changes nothing",
    public=True,
    effect="Rows of low scores sum to less than 1, or to 0.",
    repair="Subtract the largest allowed score, and set masked entries to −∞ before.",
    origin=(
        "the pattern of AllenNLP's masked_softmax, read in at least nine public copies; compare allenai/allennlp#437"
    ),
)
def softmax_mask_multiply_eps(scores: Array, mask: Mask = None) -> Array:
    """Scores are multiplied by the mask, so are the weights, and the sum gets 1e-13 to be safe from
    0."""
    factor = right.allowed(mask, scores.shape).astype(float)
    p = right.hard_masked_softmax(scores * factor) * factor
    return np.asarray(p / (p.sum(-1, keepdims=True) + 1e-13))


@bug.in_step(
    SOFTMAX,
    law="allowed weights sum to one",
    public=True,
    effect="Rows with a masked entry sum to less than 1.",
    repair="Mask before the softmax.",
    citations=("huggingface/pytorch-image-models#2236",),
)
def softmax_mask_after_no_renorm(scores: Array, mask: Mask = None) -> Array:
    """The softmax runs over all entries, then masked ones are set to 0 and the others are left as
    they are."""
    return np.where(right.allowed(mask, scores.shape), right.hard_masked_softmax(scores), 0.0)


@bug.in_step(
    "largest_of",
    seen=SOFTMAX,
    law="a constant added to a row changes nothing",
    effect="Scores above 709 give NaN, rows below −745 give zeros.",
    repair="Subtract the largest allowed score of each row.",
    citations=("pytorch/executorch#18407", "NVIDIA/FasterTransformer#43"),
)
def softmax_no_maximum(scores: Array, visible: Any) -> Array:
    """Exponentials are taken of the scores themselves."""
    return np.zeros(())


@bug.in_step(
    "largest_of",
    seen=SOFTMAX,
    law="rows do not affect each other",
    effect="NaN where a score lies 709 above the first.",
    repair="Subtract the largest allowed score.",
    citations=("ROCm/AMDMIGraphX#1290",),
)
def softmax_first_score_subtracted(scores: Array, visible: Any) -> Array:
    """The first score of each row is subtracted instead of the largest."""
    return scores[..., :1]


@bug.in_step(
    "largest_of",
    seen=SOFTMAX,
    law="a constant added to a row changes nothing",
    effect="NaN in rows of more than 32 entries whose largest lies far above the first 32.",
    repair="Reduce over the warps too.",
    citations=("NVIDIA/DeepLearningExamples#169",),
)
def softmax_maximum_of_the_first_warp(scores: Array, visible: Any) -> Array:
    """The largest score is sought among the first 32 entries of a row."""
    return right.largest_of(scores[..., :32], visible[..., :32])


@bug.in_step(
    "largest_of",
    seen=SOFTMAX,
    law="masked scores do not matter",
    effect="Rows become zeros when a masked score lies 745 above.",
    repair="Mask before the maximum.",
    citations=("allenai/allennlp#437",),
)
def softmax_maximum_of_blocked_scores(scores: Array, visible: Any) -> Array:
    """The largest score is sought among all entries, masked ones too."""
    return np.asarray(scores.max(-1, keepdims=True))


@bug.in_step(
    "exponentials",
    seen=SOFTMAX,
    law="masked scores do not matter",
    effect="A row is NaN when a masked score lies 709 above the allowed ones.",
    repair="Mask before the exponential, instead of multiplying by 0 after it.",
    citations=("deepmodeling/deepmd-kit#5717",),
)
def softmax_blocked_scores_overflow(scores: Array, visible: Any, largest: Array) -> Array:
    """Masked exponentials are multiplied by 0, and may be ∞."""
    return np.asarray(np.exp(scores - largest) * visible)


@bug.in_step(
    "largest_of",
    seen=SOFTMAX,
    law="a constant added to a row changes nothing",
    effect="Rows whose scores are all below −745 become zeros.",
    repair="Start the maximum at −∞.",
    citations=("Dao-AILab/flash-attention#2082",),
)
def softmax_maximum_starts_at_zero(scores: Array, visible: Any) -> Array:
    """The largest score is sought from 0 upwards."""
    return np.maximum(right.largest_of(scores, visible), 0.0)


@bug.in_step(
    "largest_of",
    seen=SOFTMAX,
    law="rows do not affect each other",
    effect="Rows become zeros when another has scores 745 above.",
    repair="Take each row's own largest.",
    origin="it is right for one row",
)
def softmax_maximum_of_all_rows(scores: Array, visible: Any) -> Array:
    """The largest score of the whole array is subtracted from every row."""
    return np.asarray(scores.max(where=visible, initial=-np.inf) if visible.any() else 0.0)


@bug.in_step(
    "largest_of",
    seen=SDPA,
    law="queries do not affect each other",
    effect="A query whose scores are far below those of its neighbours is not a number or zero.",
    repair="Reduce the maximum over the keys of one query.",
    origin="one maximum for a tile of queries saves a reduction, and stays right for scores of ordinary size",
)
def sdpa_maximum_shared_by_queries(scores: Array, visible: Any) -> Array:
    """Tiles of 16 queries share one maximum."""
    shared = np.where(visible, scores, -np.inf)
    for rows in tiles(scores.shape[-2], 16):
        shared[..., rows, :] = shared[..., rows, :].max((-1, -2), keepdims=True)
    return right.largest_of(shared, visible.any((-1, -2), keepdims=True) & (shared > -np.inf))


@bug.in_step(
    SOFTMAX,
    law="a constant added to a row changes nothing",
    effect="In rows of very low scores masked entries take over.",
    repair="Mask with −∞.",
    citations=("ohdearquant/lattice#361",),
)
def softmax_blocked_at_minus_ten_thousand(scores: Array, mask: Mask = None) -> Array:
    """Masked scores are set to −10000; a row with no allowed entry is caught."""
    visible = right.allowed(mask, scores.shape)
    return np.where(visible.any(-1, keepdims=True), right.hard_masked_softmax(np.where(visible, scores, -1e4)), 0.0)


@bug.in_step(
    "exponentials",
    seen=SOFTMAX,
    law="quotients of weights are exponentials of differences",
    effect="Weights are flatter, as at a temperature of 1.44.",
    repair="Multiply the scale by log₂ e.",
    origin="powers of 2 are what processors have, and the factor belongs to the scale, elsewhere",
)
def softmax_powers_of_two(scores: Array, visible: Any, largest: Array) -> Array:
    """Exponentials are powers of 2, and scores were not multiplied by log₂ e."""
    return np.asarray(np.exp2(np.where(visible, scores - largest, -np.inf)))


@bug.in_step(
    SOFTMAX,
    law="masked entries weigh exactly zero",
    effect="Masked entries weigh as much as a score of 0.",
    repair="Mask with −∞.",
    citations=("awslabs/gluonts#1401", "Shujun-He/RibonanzaNet#5", "hyunwoongko/transformer#10"),
)
def softmax_blocked_at_minus_epsilon(scores: Array, mask: Mask = None) -> Array:
    """Masked scores are set to −1e-9 where −1e9 was meant; a row with no allowed entry is caught."""
    visible = right.allowed(mask, scores.shape)
    return np.where(visible.any(-1, keepdims=True), right.hard_masked_softmax(np.where(visible, scores, -1e-9)), 0.0)


@bug.in_step(
    SOFTMAX,
    law="a mask can be written out",
    effect="An allowed score of 0 weighs nothing under a mask.",
    repair="Ask the mask, not the scores.",
    citations=("smolorg/smoltropix#5",),
)
def softmax_zero_scores_taken_for_blocked(scores: Array, mask: Mask = None) -> Array:
    """Scores are multiplied by the mask, and what is 0 then is masked."""
    return right.hard_masked_softmax(scores, None if mask is None else (scores * mask) != 0)


@bug.in_step(
    "normalized",
    seen=SOFTMAX,
    law="allowed weights sum to one",
    effect="Weights are up to a millionth too small.",
    repair="Divide by the sum: it is at least 1.",
    origin="a guard added by habit",
)
def softmax_epsilon_in_the_sum(e: Array) -> Array:
    """The sum of exponentials gets 1e-6 to be safe from 0."""
    return np.asarray(e / (e.sum(-1, keepdims=True) + 1e-6))


@bug.in_step(
    "normalized",
    seen=SOFTMAX,
    law="allowed weights sum to one",
    effect="Weights have seven digits.",
    repair="Keep the precision of the scores.",
    origin="long rows take a path for float32",
)
def softmax_long_rows_in_single_precision(e: Array) -> Array:
    """Weights of rows from 64 entries on are stored in float32."""
    return right.normalized(e).astype(np.float32).astype(float) if e.shape[-1] >= 64 else right.normalized(e)


@bug.in_step(
    "normalized",
    seen=SOFTMAX,
    law="allowed weights sum to one",
    effect="The last one to three weights of a row are too large.",
    repair="Divide the remainder of the vectorised loop too.",
    origin="a loop over vectors of 4 with a remainder loop that lacks the last step",
)
def softmax_remainder_not_divided(e: Array) -> Array:
    """In rows of more than 4 entries those after the last full vector of 4 are not divided by the
    sum."""
    n = e.shape[-1] // 4 * 4 if e.shape[-1] > 4 else e.shape[-1]
    return np.concatenate([right.normalized(e)[..., :n], e[..., n:]], -1)
