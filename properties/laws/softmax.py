"""Laws of the softmax over the allowed entries of each row that are no symmetries: weights are a
distribution, of base e.
"""

from typing import Any

import numpy as np

from oracles.ball import ball, exact, exp, total
from properties.contract.subject import Subject
from properties.laws.algebra import kept
from properties.laws.averages import dead_rows_follow_their_convention
from properties.laws.law import Laws
from properties.strategies.choices import Choices

law = Laws()
SOFTMAX = "hard_masked_softmax"


def _allowed(scores: Any, mask: Any) -> Any:
    """The mask as a bool array like the scores."""
    return np.broadcast_to(True if mask is None else mask, scores.shape)


@law(SOFTMAX)
def masked_entries_weigh_exactly_zero(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: masked entries weigh 0, and no entry less.

    Exact. Informative where an entry is masked.
    """
    may = _allowed(scores, mask)
    subject.informative_if(not may.all())
    weights = subject(scores, mask)
    subject.same(np.where(may, np.abs(weights.value), 0.0), weights)


@law(SOFTMAX)
def allowed_weights_sum_to_one(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: the allowed weights of a row sum to 1."""
    weights = kept(subject(scores, mask).ball, _allowed(scores, mask))
    subject.close(total(weights), np.ones(scores.shape[:-1]), "sum of weights")


@law(SOFTMAX)
def one_allowed_entry_has_weight_one(subject: Subject, scores: Any, mask: Any, choose: Choices) -> None:
    """For every choice of one entry for each row: with only that allowed it weighs 1, and the others 0."""
    chosen = choose.integers(0, scores.shape[-1] - 1, scores.shape[:-1])
    only = np.arange(scores.shape[-1]) == chosen[..., None]
    subject.close(subject(scores, only), only.astype(float))


@law(SOFTMAX, domains=("dead rows",))
def a_row_with_no_allowed_entry_follows_its_convention(subject: Subject, scores: Any, mask: Any) -> None:
    """For every mask that leaves a row no entry: its weights are 0, NaN, or all equal, by the
    convention for fully masked rows.

    The other rows are those under a mask that allows these rows everything. Exact for 0 and NaN,
    else within budget.
    """
    may, weights, equal = _allowed(scores, mask), subject(scores, mask), np.full(scores.shape, 1.0 / scores.shape[-1])
    dead = ~may.any(-1)
    dead_rows_follow_their_convention(subject, weights, dead, ball(equal, equal * 2.0**-53))
    subject.close(weights.ball[~dead], subject(scores, may | dead[..., None]).ball[~dead])


@law(SOFTMAX)
def quotients_of_weights_are_exponentials_of_differences(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: each weight is that of the largest allowed score times the
    exponential of their difference.

    Within budget. Informative where two entries of a row are allowed.
    """
    may = _allowed(scores, mask)
    subject.informative_if((may.sum(-1) > 1).any())
    s, weights = np.where(may, scores, -np.inf), subject(scores, mask).ball
    largest = s.argmax(-1)[..., None]
    top = ball(*(np.take_along_axis(x, largest, axis=-1) for x in (weights.mid, weights.rad)))
    below = exact(s.max(-1, keepdims=True))
    subject.close(weights, kept(exp(exact(np.where(may, scores, below.mid)) - below) * top, may))
