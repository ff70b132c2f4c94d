"""Slips in the backward of the softmax over allowed entries."""

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.kernels import dead_rows, unguarded_softmax
from properties.reference import Mask, hard_masked_softmax, hard_masked_softmax_vjp, softmax_backward

bug = Register()

NO_GRADIENT = "blocked positions give and get no gradient"


@bug(
    "hard_masked_softmax_vjp",
    effect="Batched gradients are wrong, unbatched ones right.",
    repair="Sum over the last axis.",
    citation="none: axis 1 is the last one of a matrix; compare torch/nn#548",
    law="batches are computed one by one",
)
def softmax_vjp_sums_over_axis_one(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """Σ w·g is taken over axis 1, whatever the number of axes."""
    weights = hard_masked_softmax(scores, mask)
    return np.asarray(weights * (grad_weights - (weights * grad_weights).sum(min(1, scores.ndim - 1), keepdims=True)))


@bug(
    "hard_masked_softmax_vjp",
    effect="Gradients are those of the logarithm of the weights.",
    repair="Multiply by the weights.",
    citation="none: the two backward formulas look alike; compare mlpack/mlpack#2360",
    law=NO_GRADIENT,
)
def softmax_vjp_of_the_logarithm(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """g − w·Σ g, the gradient of a log-softmax."""
    return np.asarray(grad_weights - hard_masked_softmax(scores, mask) * grad_weights.sum(-1, keepdims=True))


@bug(
    "hard_masked_softmax_vjp",
    effect="Gradients of a row do not sum to 0.",
    repair="Subtract the sum of w·g.",
    citation="none: Σ w·g is a mean of g under w, and is written as a mean",
    law="score gradients sum to zero",
)
def softmax_vjp_subtracts_a_mean(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """Σ w·g is divided by the number of entries."""
    weights = hard_masked_softmax(scores, mask)
    return np.asarray(weights * (grad_weights - (weights * grad_weights).mean(-1, keepdims=True)))


@bug(
    "hard_masked_softmax_vjp",
    effect="Blocked scores get gradients, and change those of the others.",
    repair="Recompute the weights under the mask.",
    citation="none: the mask is not among what the forward saved",
    law=NO_GRADIENT,
)
def softmax_vjp_ignores_the_mask(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """The weights are recomputed without the mask."""
    return hard_masked_softmax_vjp(scores, None, grad_weights)


@bug(
    "hard_masked_softmax_vjp",
    effect="Rows that are not whole groups of four have wrong gradients, unless their last entries are blocked.",
    repair="Add the entries of the tail to the sum.",
    citation="none: an unrolled loop ends with the last whole group; compare sdpa-tail-keys-dropped",
    law="gradients move with their scores",
)
def softmax_vjp_tail_not_in_the_sum(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """Σ w·g is taken over whole groups of four entries, unless there is none."""
    weights = hard_masked_softmax(scores, mask)
    whole = scores.shape[-1] // 4 * 4 or scores.shape[-1]
    return np.asarray(weights * (grad_weights - (weights * grad_weights)[..., :whole].sum(-1, keepdims=True)))


@bug(
    "hard_masked_softmax_vjp",
    effect="A row with no allowed entry has NaN gradients.",
    repair="Set the weights of such a row to 0 before they are used.",
    citation="pytorch/pytorch#41508",
    law="a row with no allowed entry has its gradient by convention",
)
def softmax_vjp_dead_rows_nan(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """The forward hides the NaN of a row with no allowed entry, the backward multiplies it by 0."""
    return softmax_backward(unguarded_softmax(scores, mask), np.where(dead_rows(mask, scores.shape), 0.0, grad_weights))


@bug(
    "hard_masked_softmax_vjp",
    effect="Rows far from 0 have the gradients of equal scores, though the forward tells them apart.",
    repair="Subtract the largest score of each row; then nothing needs a limit.",
    citation="none: the forward subtracts its maximum, the backward guards its exponential by a limit; compare sdpa-scores-clamped",
    law="adding a constant to a row changes no gradient",
)
def softmax_vjp_scores_clamped(scores: Array, mask: Mask, grad_weights: Array) -> Array:
    """The weights are recomputed from scores that are limited to ±300."""
    return hard_masked_softmax_vjp(np.clip(scores, -300, 300), mask, grad_weights)
