"""Laws of the softmax over the visible entries of each row that are not symmetries: the weights are
a probability distribution, with exponentials of base e.
"""

from typing import Any

import numpy as np

from oracles.ball import ball, exact, exp, total
from properties.contract.subject import Subject
from properties.laws.expected_values import check_fully_masked_rows, kept
from properties.laws.law import Laws
from properties.strategies.choices import Choices

law = Laws()
SOFTMAX = "hard_masked_softmax"


def _visible(scores: Any, mask: Any) -> Any:
    """Return the mask as a bool array of the shape of the scores."""
    return np.broadcast_to(True if mask is None else mask, scores.shape)


@law(SOFTMAX, exact=True)
def masked_entries_have_weight_exactly_0(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: masked entries have weight 0, and no weight is negative.

    A case is informative if an entry is masked.
    """
    visible = _visible(scores, mask)
    subject.informative_if(not visible.all())
    weights = subject(scores, mask)
    subject.same(np.where(visible, np.abs(weights.value), 0.0), weights)


@law(SOFTMAX)
def the_weights_of_visible_entries_sum_to_1(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: the weights of the visible entries of a row sum to 1."""
    weights = kept(subject(scores, mask).ball, _visible(scores, mask))
    subject.close(total(weights), np.ones(scores.shape[:-1]), "sum(weights)")


@law(SOFTMAX)
def a_single_visible_entry_has_weight_1(subject: Subject, scores: Any, mask: Any, choose: Choices) -> None:
    """For every choice of one entry for each row: if only this entry is visible, its weight is 1,
    and the other weights are 0.
    """
    chosen = choose.integers(0, scores.shape[-1] - 1, scores.shape[:-1])
    only = np.arange(scores.shape[-1]) == chosen[..., None]
    subject.close(subject(scores, only), only.astype(float))


@law(SOFTMAX, domains=("dead rows", "special masks"), exact="for 0 and NaN")
def a_fully_masked_row_of_weights_follows_its_convention(subject: Subject, scores: Any, mask: Any) -> None:
    """For every mask with a fully masked row: the weights of this row are 0, NaN, or all equal, by
    the convention `dead_rows`.

    The other rows have the weights of a mask that masks nothing in the fully masked rows.
    """
    visible, weights = _visible(scores, mask), subject(scores, mask)
    equal = np.full(scores.shape, 1.0 / scores.shape[-1])
    masked = ~visible.any(-1)
    check_fully_masked_rows(subject, weights, masked, ball(equal, equal * 2.0**-53))
    subject.close(weights.ball[~masked], subject(scores, visible | masked[..., None]).ball[~masked])


@law(SOFTMAX)
def weight_ratios_are_exponentials_of_score_differences(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: each weight is the weight of the largest visible score, times
    the exponential of the difference between the two scores.

    A case is informative if two entries of a row are visible.
    """
    visible = _visible(scores, mask)
    subject.informative_if((visible.sum(-1) > 1).any())
    visible_scores, weights = np.where(visible, scores, -np.inf), subject(scores, mask).ball
    largest = visible_scores.argmax(-1)[..., None]
    top = ball(*(np.take_along_axis(part, largest, axis=-1) for part in (weights.mid, weights.rad)))
    below = exact(visible_scores.max(-1, keepdims=True))
    subject.close(weights, kept(exp(exact(np.where(visible, scores, below.mid)) - below) * top, visible))
