"""Slips in the softmax over allowed entries."""

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import allowed, dead_rows, masked, normalized
from properties.reference import Mask, hard_masked_softmax

bug = Register()

SHIFT = "adding a constant to a row changes nothing"
BLOCKED = "blocked scores do not matter"
SUM = "allowed weights sum to one"
MOVE = "weights move with their scores"
DEAD = "a row with no allowed entry follows its convention"


def _shifted(scores: Array, mask: Mask, shift: Array | float) -> Array:
    """The softmax with `shift` subtracted from the scores, whatever becomes of it."""
    with np.errstate(over="ignore", invalid="ignore"):
        return normalized(np.exp(masked(scores - shift, mask)))


@bug(
    "hard_masked_softmax",
    effect="Rows of low scores sum to less than 1, or to 0.",
    repair="Subtract the largest allowed score, and set blocked entries to −∞ before.",
    citation="none: the pattern of AllenNLP's masked_softmax, read in at least nine public copies; compare allenai/allennlp#437",
    law=SHIFT,
    public=True,
)
def softmax_mask_multiply_eps(scores: Array, mask: Mask = None) -> Array:
    """Scores are multiplied by the mask, so are the weights, and the sum gets 1e-13 to be safe from 0."""
    factor = allowed(mask, scores.shape).astype(float)
    p = hard_masked_softmax(scores * factor) * factor
    return np.asarray(p / (p.sum(-1, keepdims=True) + 1e-13))


@bug(
    "hard_masked_softmax",
    effect="Rows with a blocked entry sum to less than 1.",
    repair="Block before the softmax.",
    citation="huggingface/pytorch-image-models#2236",
    law=SUM,
    public=True,
)
def softmax_mask_after_no_renorm(scores: Array, mask: Mask = None) -> Array:
    """The softmax runs over all entries, then blocked ones are set to 0 and the others are left as they are."""
    return np.where(allowed(mask, scores.shape), hard_masked_softmax(scores), 0.0)


@bug(
    "hard_masked_softmax",
    effect="Scores above 709 give NaN, rows below −745 give zeros.",
    repair="Subtract the largest allowed score of each row.",
    citation="pytorch/executorch#18407; NVIDIA/FasterTransformer#43",
    law=SHIFT,
)
def softmax_no_maximum(scores: Array, mask: Mask = None) -> Array:
    """Exponentials are taken of the scores themselves."""
    return _shifted(scores, mask, 0.0)


@bug(
    "hard_masked_softmax",
    effect="NaN where a score lies 709 above the first of its row.",
    repair="Subtract the largest allowed score of each row.",
    citation="ROCm/AMDMIGraphX#1290",
    law=MOVE,
)
def softmax_first_score_subtracted(scores: Array, mask: Mask = None) -> Array:
    """The first score of each row is subtracted instead of the largest."""
    return _shifted(scores, mask, scores[..., :1])


@bug(
    "hard_masked_softmax",
    effect="NaN in rows of more than 32 entries whose largest lies far above the first 32.",
    repair="Reduce over the warps too.",
    citation="NVIDIA/DeepLearningExamples#169",
    law="adding a constant to a row changes nothing",
)
def softmax_maximum_of_the_first_warp(scores: Array, mask: Mask = None) -> Array:
    """The largest score is sought among the first 32 entries of a row."""
    largest = masked(scores, mask)[..., :32].max(-1, keepdims=True)
    return _shifted(scores, mask, np.where(np.isneginf(largest), 0.0, largest))


@bug(
    "hard_masked_softmax",
    effect="Rows become zeros when a blocked score lies 745 above the allowed ones.",
    repair="Take the maximum after blocking.",
    citation="allenai/allennlp#437",
    law=BLOCKED,
)
def softmax_maximum_of_blocked_scores(scores: Array, mask: Mask = None) -> Array:
    """The largest score is sought among all entries, blocked ones too."""
    return _shifted(scores, mask, scores.max(-1, keepdims=True))


@bug(
    "hard_masked_softmax",
    effect="A row is NaN when a blocked score lies 709 above the allowed ones.",
    repair="Block before the exponential, instead of multiplying by 0 after it.",
    citation="deepmodeling/deepmd-kit#5717",
    law=BLOCKED,
)
def softmax_blocked_scores_overflow(scores: Array, mask: Mask = None) -> Array:
    """Blocked exponentials are multiplied by 0, and may be ∞."""
    factor, largest = allowed(mask, scores.shape), masked(scores, mask).max(-1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        return normalized(np.exp(scores - np.where(np.isneginf(largest), 0.0, largest)) * factor)


@bug(
    "hard_masked_softmax",
    effect="Rows whose scores are all below −745 become zeros.",
    repair="Start the maximum at −∞.",
    citation="Dao-AILab/flash-attention#2082",
    law=SHIFT,
)
def softmax_maximum_starts_at_zero(scores: Array, mask: Mask = None) -> Array:
    """The largest score is sought from 0 upwards."""
    return _shifted(scores, mask, np.maximum(masked(scores, mask).max(-1, keepdims=True), 0.0))


@bug(
    "hard_masked_softmax",
    effect="Rows become zeros when another row has scores 745 above theirs.",
    repair="Subtract each row's own largest score.",
    citation="none: np.max(x) without an axis is right for one row",
    law="rows of weights do not depend on each other",
)
def softmax_maximum_of_all_rows(scores: Array, mask: Mask = None) -> Array:
    """The largest score of the whole array is subtracted from every row."""
    largest = masked(scores, mask).max(initial=-np.inf)
    return _shifted(scores, mask, 0.0 if np.isneginf(largest) else largest)


@bug(
    "hard_masked_softmax",
    effect="Scores above 88 weigh as 88, and those below −88 as −88.",
    repair="Subtract the largest allowed score; then nothing needs a limit.",
    citation="none: 88 is where the exponential of a float32 ends",
    law=SHIFT,
)
def softmax_scores_clamped(scores: Array, mask: Mask = None) -> Array:
    """Scores are limited to ±88 before the exponential."""
    return hard_masked_softmax(np.clip(scores, -88, 88), mask)


@bug(
    "hard_masked_softmax",
    effect="In rows of very low scores blocked entries take over.",
    repair="Block with −∞.",
    citation="ohdearquant/lattice#361",
    law=SHIFT,
)
def softmax_blocked_at_minus_ten_thousand(scores: Array, mask: Mask = None) -> Array:
    """Blocked scores are set to −10000; a row with no allowed entry is caught."""
    return np.where(dead_rows(mask, scores.shape), 0.0, hard_masked_softmax(masked(scores, mask, -1e4)))


@bug(
    "hard_masked_softmax",
    effect="Blocked entries weigh as much as a score of 0.",
    repair="Block with −∞.",
    citation="awslabs/gluonts#1401; Shujun-He/RibonanzaNet#5; hyunwoongko/transformer#10",
    law="blocked entries weigh exactly zero",
)
def softmax_blocked_at_minus_epsilon(scores: Array, mask: Mask = None) -> Array:
    """Blocked scores are set to −1e-9 where −1e9 was meant; a row with no allowed entry is caught."""
    return np.where(dead_rows(mask, scores.shape), 0.0, hard_masked_softmax(masked(scores, mask, -1e-9)))


@bug(
    "hard_masked_softmax",
    effect="An allowed score of exactly 0 weighs nothing where a mask is given.",
    repair="Ask the mask what is blocked, not the scores.",
    citation="smolorg/smoltropix#5",
    law="a mask that allows everything is no mask",
)
def softmax_zero_scores_taken_for_blocked(scores: Array, mask: Mask = None) -> Array:
    """Scores are multiplied by the mask, and what is 0 then is blocked."""
    return hard_masked_softmax(scores, None if mask is None else (scores * mask) != 0)


@bug(
    "hard_masked_softmax",
    effect="Weights are too small by up to a millionth.",
    repair="Divide by the sum; it is at least 1 wherever an entry is allowed.",
    citation="none: a guard against 0 that is added everywhere",
    law=SUM,
)
def softmax_epsilon_in_the_sum(scores: Array, mask: Mask = None) -> Array:
    """The sum of exponentials gets 1e-6 to be safe from 0."""
    weights = hard_masked_softmax(scores, mask)
    largest = weights.max(-1, keepdims=True)  # 1 / the sum of exponentials
    return np.asarray(weights / (1 + 1e-6 * largest))


@bug(
    "hard_masked_softmax",
    effect="From 64 entries on, weights have seven digits.",
    repair="Keep the precision of the scores.",
    citation="none: long rows take a vectorised path written for float32",
    law=SUM,
)
def softmax_long_rows_in_single_precision(scores: Array, mask: Mask = None) -> Array:
    """Weights of rows from 64 entries on are stored in float32."""
    weights = hard_masked_softmax(scores, mask)
    return weights.astype(np.float32).astype(float) if scores.shape[-1] >= 64 else weights


@bug(
    "hard_masked_softmax",
    effect="The last one to three weights of a row are too large.",
    repair="Divide the remainder of the vectorised loop too.",
    citation="none: a loop over vectors of 4 with a remainder loop that lacks the last step",
    law=SUM,
)
def softmax_remainder_not_divided(scores: Array, mask: Mask = None) -> Array:
    """In rows of more than 4 entries those after the last full vector of 4 are not divided by the sum."""
    weights, tail = hard_masked_softmax(scores, mask), scores.shape[-1] % 4 if scores.shape[-1] > 4 else 0
    largest = weights.max(-1, keepdims=True)
    return np.concatenate([weights[..., : scores.shape[-1] - tail], normalized(weights, largest)[..., scores.shape[-1] - tail :]], -1)


@bug(
    "hard_masked_softmax",
    effect="A row with no allowed entry has equal weights.",
    repair="Set the weights of such a row to 0.",
    citation="NVIDIA/apex#1390",
    law=DEAD,
)
def softmax_dead_rows_uniform(scores: Array, mask: Mask = None) -> Array:
    """Blocked scores are the lowest finite number, from which a row with no allowed entry gets equal weights."""
    return np.where(dead_rows(mask, scores.shape), 1 / scores.shape[-1], hard_masked_softmax(scores, mask))
