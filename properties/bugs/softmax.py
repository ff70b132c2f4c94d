"""Slips in the softmax over allowed entries: the maximum, the exponentials, the sum."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.bugs import reference as right
from properties.bugs.bug import SDPA, SOFTMAX, Register
from properties.bugs.kernels import tiles
from properties.bugs.reference import Mask

bug = Register()


@bug.slip(SOFTMAX, law="a constant added to a row changes nothing", public=True)
def softmax_mask_multiply_eps(scores: Array, mask: Mask = None) -> Array:
    """Scores are multiplied by the mask, so are the weights, and the sum gets 1e-13 to be safe from
    0. Effect: Rows of low scores sum to less than 1, or to 0. Repair: Subtract the largest allowed
    score, and set masked entries to −∞ before. Seen: none: the pattern of AllenNLP's
    masked_softmax, read in at least nine public copies; compare allenai/allennlp#437"""
    factor = right.allowed(mask, scores.shape).astype(float)
    p = right.hard_masked_softmax(scores * factor) * factor
    return np.asarray(p / (p.sum(-1, keepdims=True) + 1e-13))


@bug.slip(SOFTMAX, law="allowed weights sum to one", public=True)
def softmax_mask_after_no_renorm(scores: Array, mask: Mask = None) -> Array:
    """The softmax runs over all entries, then masked ones are set to 0 and the others are left as
    they are. Effect: Rows with a masked entry sum to less than 1. Repair: Mask before the softmax.
    Seen: huggingface/pytorch-image-models#2236"""
    return np.where(right.allowed(mask, scores.shape), right.hard_masked_softmax(scores), 0.0)


@bug.slip("largest_of", seen=SOFTMAX, law="a constant added to a row changes nothing")
def softmax_no_maximum(scores: Array, visible: Any) -> Array:
    """Exponentials are taken of the scores themselves.
    Effect: Scores above 709 give NaN, rows below −745 give zeros. Repair: Subtract the largest
    allowed score of each row. Seen: pytorch/executorch#18407; NVIDIA/FasterTransformer#43"""
    return np.zeros(())


@bug.slip("largest_of", seen=SOFTMAX, law="rows do not affect each other")
def softmax_first_score_subtracted(scores: Array, visible: Any) -> Array:
    """The first score of each row is subtracted instead of the largest.
    Effect: NaN where a score lies 709 above the first. Repair: Subtract the largest allowed score.
    Seen: ROCm/AMDMIGraphX#1290"""
    return scores[..., :1]


@bug.slip("largest_of", seen=SOFTMAX, law="one key has all the weight however low its score")
def softmax_maximum_of_the_first_warp(scores: Array, visible: Any) -> Array:
    """The largest score is sought among the first 32 entries of a row.
    Effect: NaN in rows of more than 32 entries whose largest lies far above the first 32. Repair:
    Reduce over the warps too. Seen: NVIDIA/DeepLearningExamples#169"""
    return right.largest_of(scores[..., :32], visible[..., :32])


@bug.slip("largest_of", seen=SOFTMAX, law="masked scores do not matter")
def softmax_maximum_of_blocked_scores(scores: Array, visible: Any) -> Array:
    """The largest score is sought among all entries, masked ones too.
    Effect: Rows become zeros when a masked score lies 745 above. Repair: Mask before the maximum.
    Seen: allenai/allennlp#437"""
    return np.asarray(scores.max(-1, keepdims=True))


@bug.slip("exponentials", seen=SOFTMAX, law="masked scores do not matter")
def softmax_blocked_scores_overflow(scores: Array, visible: Any, largest: Array) -> Array:
    """Masked exponentials are multiplied by 0, and may be ∞.
    Effect: A row is NaN when a masked score lies 709 above the allowed ones. Repair: Mask before
    the exponential, instead of multiplying by 0 after it. Seen: deepmodeling/deepmd-kit#5717"""
    return np.asarray(np.exp(scores - largest) * visible)


@bug.slip("largest_of", seen=SOFTMAX, law="a constant added to a row changes nothing")
def softmax_maximum_starts_at_zero(scores: Array, visible: Any) -> Array:
    """The largest score is sought from 0 upwards.
    Effect: Rows whose scores are all below −745 become zeros. Repair: Start the maximum at −∞.
    Seen: Dao-AILab/flash-attention#2082"""
    return np.maximum(right.largest_of(scores, visible), 0.0)


@bug.slip("largest_of", seen=SOFTMAX, law="rows do not affect each other")
def softmax_maximum_of_all_rows(scores: Array, visible: Any) -> Array:
    """The largest score of the whole array is subtracted from every row.
    Effect: Rows become zeros when another has scores 745 above. Repair: Take each row's own
    largest. Seen: none: it is right for one row"""
    return np.asarray(scores.max(where=visible, initial=-np.inf) if visible.any() else 0.0)


@bug.slip("largest_of", seen=SDPA, law="queries do not affect each other")
def sdpa_maximum_shared_by_queries(scores: Array, visible: Any) -> Array:
    """Tiles of 16 queries share one maximum.
    Effect: A query whose scores are far below those of its neighbours is not a number or zero.
    Repair: Reduce the maximum over the keys of one query. Seen: none: one maximum for a tile of
    queries saves a reduction, and stays right for scores of ordinary size"""
    shared = np.where(visible, scores, -np.inf)
    for rows in tiles(scores.shape[-2], 16):
        shared[..., rows, :] = shared[..., rows, :].max((-1, -2), keepdims=True)
    return right.largest_of(shared, visible.any((-1, -2), keepdims=True) & (shared > -np.inf))


@bug.slip(SOFTMAX, law="a constant added to a row changes nothing")
def softmax_blocked_at_minus_ten_thousand(scores: Array, mask: Mask = None) -> Array:
    """Masked scores are set to −10000; a row with no allowed entry is caught.
    Effect: In rows of very low scores masked entries take over. Repair: Mask with −∞. Seen:
    ohdearquant/lattice#361"""
    visible = right.allowed(mask, scores.shape)
    return np.where(visible.any(-1, keepdims=True), right.hard_masked_softmax(np.where(visible, scores, -1e4)), 0.0)


@bug.slip("exponentials", seen=SOFTMAX, law="quotients of weights are exponentials of differences")
def softmax_powers_of_two(scores: Array, visible: Any, largest: Array) -> Array:
    """Exponentials are powers of 2, and scores were not multiplied by log₂ e.
    Effect: Weights are flatter, as at a temperature of 1.44. Repair: Multiply the scale by log₂ e.
    Seen: none: powers of 2 are what processors have, and the factor belongs to the scale,
    elsewhere"""
    return np.asarray(np.exp2(np.where(visible, scores - largest, -np.inf)))


@bug.slip(SOFTMAX, law="masked entries weigh exactly zero")
def softmax_blocked_at_minus_epsilon(scores: Array, mask: Mask = None) -> Array:
    """Masked scores are set to −1e-9 where −1e9 was meant; a row with no allowed entry is caught.
    Effect: Masked entries weigh as much as a score of 0. Repair: Mask with −∞. Seen:
    awslabs/gluonts#1401; Shujun-He/RibonanzaNet#5; hyunwoongko/transformer#10"""
    visible = right.allowed(mask, scores.shape)
    return np.where(visible.any(-1, keepdims=True), right.hard_masked_softmax(np.where(visible, scores, -1e-9)), 0.0)


@bug.slip(SOFTMAX, law="a mask can be written out")
def softmax_zero_scores_taken_for_blocked(scores: Array, mask: Mask = None) -> Array:
    """Scores are multiplied by the mask, and what is 0 then is masked.
    Effect: An allowed score of 0 weighs nothing under a mask. Repair: Ask the mask, not the scores.
    Seen: smolorg/smoltropix#5"""
    return right.hard_masked_softmax(scores, None if mask is None else (scores * mask) != 0)


@bug.slip("normalized", seen=SOFTMAX, law="allowed weights sum to one")
def softmax_epsilon_in_the_sum(e: Array) -> Array:
    """The sum of exponentials gets 1e-6 to be safe from 0.
    Effect: Weights are up to a millionth too small. Repair: Divide by the sum: it is at least 1.
    Seen: none: a guard added by habit"""
    return np.asarray(e / (e.sum(-1, keepdims=True) + 1e-6))


@bug.slip("normalized", seen=SOFTMAX, law="allowed weights sum to one")
def softmax_long_rows_in_single_precision(e: Array) -> Array:
    """Weights of rows from 64 entries on are stored in float32.
    Effect: Weights have seven digits. Repair: Keep the precision of the scores. Seen: none: long
    rows take a path for float32"""
    return right.normalized(e).astype(np.float32).astype(float) if e.shape[-1] >= 64 else right.normalized(e)


@bug.slip("normalized", seen=SOFTMAX, law="allowed weights sum to one")
def softmax_remainder_not_divided(e: Array) -> Array:
    """In rows of more than 4 entries those after the last full vector of 4 are not divided by the
    sum. Effect: The last one to three weights of a row are too large. Repair: Divide the remainder
    of the vectorised loop too. Seen: none: a loop over vectors of 4 with a remainder loop that
    lacks the last step"""
    n = e.shape[-1] // 4 * 4 if e.shape[-1] > 4 else e.shape[-1]
    return np.concatenate([right.normalized(e)[..., :n], e[..., n:]], -1)
