"""Laws of the softmax over the allowed entries of each row."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import ball, exact, exp, total
from properties.implementation import Implementation
from properties.law import Laws
from properties.strategies.arrays import LENGTHS, TILES, Draw, also, live_masks, orders
from properties.strategies.attention import EXTREME, LOGITS, SCALES, softmax
from properties.strategies.masks import dead_masks
from properties.subject import Subject

law = Laws()
SOFTMAX = "hard_masked_softmax"

_LONG = (*TILES, 511, 512, 513, 640, 1000, 1023, 1024, 1025, 1100)


def anywhere(i: Implementation, **options: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """(scores, mask) of everyday sizes and of such around tiles."""
    return softmax(i, **{"keys": LENGTHS, "logits": (*LOGITS, 64.0), **options})


def allowed(scores: Any, mask: Any) -> Any:
    """The mask as a bool array like the scores."""
    return np.broadcast_to(True if mask is None else mask, scores.shape)


@law(SOFTMAX, cases=softmax, agreement=True, lean="Spec.hardMaskedSoftmax")
def softmax_is_within_its_budget(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask that leaves each row an entry: the weights are exp(s_j)/Σ exp(s_l) over the allowed entries.

    Within budget.
    """
    subject.within(subject(scores, mask))


@law(SOFTMAX, cases=lambda i: softmax(i, lengths=(1, 2, 3, 16, 33), keys=_LONG), agreement=True)
def softmax_is_within_its_budget_across_tiles(subject: Subject, scores: Any, mask: Any) -> None:
    """For rows of lengths around the tiles of kernels, to 1100: the weights are the softmax.

    Within budget.
    """
    subject.within(subject(scores, mask))


@law(SOFTMAX, cases=lambda i: softmax(i, keys=LENGTHS, logits=EXTREME), agreement=True)
def softmax_is_within_its_budget_at_extreme_scores(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores to ±1e4: the weights are the softmax.

    Within budget.
    """
    subject.within(subject(scores, mask))


@law(
    SOFTMAX,
    cases=lambda i: anywhere(i, masks=live_masks),
    kills="softmax-blocked-at-minus-epsilon",
    purpose="A mask is a promise about zeros, not about small numbers.",
)
def blocked_entries_weigh_exactly_zero(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: blocked entries weigh 0, and no entry less.

    Exact. Informative where an entry is blocked.
    """
    may = allowed(scores, mask)
    subject.informative_if(not may.all())
    weights = subject(scores, mask)
    subject.same(np.where(may, np.abs(weights.value), 0.0), weights)


@law(SOFTMAX, cases=anywhere, kills="softmax-mask-after-no-renorm", purpose="It needs no oracle: weights are a distribution.")
def allowed_weights_sum_to_one(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: the allowed weights of a row sum to 1.

    Within budget.
    """
    may = allowed(scores, mask)
    weights = subject(scores, mask).ball
    subject.close(
        total(ball(np.where(may, weights.mid, 0.0), np.where(may, weights.rad, 0.0))), np.ones(scores.shape[:-1]), "sum of weights"
    )


@st.composite
def _shifted(draw: Draw, i: Implementation) -> tuple[Any, ...]:
    """(scores, mask, constants), with a constant for each row that can be added to its scores exactly."""
    scores, mask = draw(anywhere(i))
    step = draw(st.sampled_from([1 / 16, 1.0, 64.0]))
    reach = 2.0 ** round(-np.log2(i.rounding.inputs.unit_roundoff) - 1)
    whole = np.clip(np.rint(8 * scores), 1 - reach, reach - 1)
    signs = draw(st.sampled_from([1.0, -1.0])) * np.where(np.arange(scores.shape[-2]) % 2, -1.0, 1.0)
    far = min(reach, 16384 / step)
    return np.clip(whole, -16384 / step, 16384 / step) * step, mask, (far * step * signs)[:, None]


@law(SOFTMAX, cases=_shifted, kills="softmax-no-maximum")
def adding_a_constant_to_a_row_changes_nothing(subject: Subject, scores: Any, mask: Any, constants: Any) -> None:
    """For every row and constant, to ±1e4: added to all scores of the row it leaves the weights as they are.

    All numbers are exact. Within budget.
    """
    subject.close(subject(scores + constants, mask), subject(scores, mask))


@law(
    SOFTMAX,
    cases=lambda i: anywhere(i, masks=live_masks),
    kills="softmax-maximum-of-blocked-scores",
    purpose="What a mask hides may be anything, and larger than everything that is allowed.",
)
def blocked_scores_do_not_matter(subject: Subject, scores: Any, mask: Any) -> None:
    """For every mask: whatever finite numbers the blocked scores are, the weights are the same.

    Within budget. Informative where an entry is blocked.
    """
    may = allowed(scores, mask)
    subject.informative_if(not may.all())
    largest = max(subject.largest_harmless, 8192.0)
    weights = subject(scores, mask)
    for poison in (largest, -largest):
        subject.close(subject(np.where(may, scores, poison), mask), weights)


@law(
    SOFTMAX,
    cases=lambda i: also(anywhere(i), lambda scores, mask: orders(scores.shape[-1])),
    kills="softmax-first-score-subtracted",
    purpose="No place in a row is special: not the first, the last, or the lane of a warp.",
)
def weights_move_with_their_scores(subject: Subject, scores: Any, mask: Any, order: Any) -> None:
    """For every order of the entries: scores and mask in this order have the weights in this order.

    Within budget. Informative where there are two entries.
    """
    subject.informative_if(scores.shape[-1] > 1)
    moved = None if mask is None else allowed(scores, mask)[..., order]
    subject.close(subject(scores[..., order], moved), subject(scores, mask).ball[..., order])


@law(
    SOFTMAX,
    cases=lambda i: also(anywhere(i), lambda *_: st.integers(0, 2**16)),
    purpose="One entry has weight 1, however low its score and wherever it lies.",
)
def one_allowed_entry_has_weight_one(subject: Subject, scores: Any, mask: Any, seed: Any) -> None:
    """For every choice of one entry for each row: with only that allowed it weighs 1, and the others 0.

    Within budget.
    """
    chosen = np.random.default_rng(seed).integers(0, scores.shape[-1], scores.shape[:-1])
    only = np.arange(scores.shape[-1]) == chosen[..., None]
    subject.close(subject(scores, only), only.astype(float))


@law(SOFTMAX, cases=lambda i: anywhere(i, masks=dead_masks), kills="softmax-dead-rows-uniform")
def a_row_with_no_allowed_entry_follows_its_convention(subject: Subject, scores: Any, mask: Any) -> None:
    """For every mask that leaves a row no entry: its weights are 0, NaN, or all equal, by the convention for dead rows.

    The other rows are those under a mask that allows these rows everything. Exact for 0 and NaN, else within budget.
    """
    dead, convention = ~mask.any(-1), subject.implementation.reading.dead_rows
    weights = subject(scores, mask)
    if convention == "uniform":
        equal = exact(1.0 / scores.shape[-1] * np.ones(weights.value[dead].shape))
        subject.close(weights.ball[dead], ball(equal.mid, equal.mid * 2.0**-53))
    else:
        fill = 0.0 if convention == "zero" else np.nan
        subject.same(weights.value[dead], np.full(weights.value[dead].shape, fill), "a dead row")
    live = subject(scores, mask | dead[..., None])
    subject.close(weights.ball[~dead], live.ball[~dead])


@law(SOFTMAX, cases=lambda i: anywhere(i, masks=lambda *_: st.none()), purpose="With and without a mask there are two paths.")
def a_mask_that_allows_everything_is_no_mask(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores: the weights under a mask of trues are those without a mask.

    Within budget.
    """
    subject.close(subject(scores, np.ones(scores.shape, bool)), subject(scores, None))


@law(SOFTMAX, cases=lambda i: anywhere(i, logits=SCALES), purpose="A larger score never weighs less, and equal ones weigh the same.")
def weights_keep_the_order_of_scores(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: of two allowed entries of a row the one with the larger score weighs at least as much.

    And those with equal scores weigh the same. Within budget. Informative where two entries of a row are allowed.
    """
    may = allowed(scores, mask)
    subject.informative_if((may.sum(-1) > 1).any())
    ranked = np.argsort(np.where(may, scores, -np.inf), axis=-1, kind="stable")
    weights = subject(scores, mask).ball
    mid, rad, s, both = (np.take_along_axis(x, ranked, axis=-1) for x in (weights.mid, weights.rad, scores, may))
    lower, upper = ball(mid, rad)[..., :-1], ball(mid, rad)[..., 1:]
    falls = (upper.mid < lower.mid) | (s[..., 1:] == s[..., :-1]) & both[..., :-1]
    subject.close(upper, ball(np.where(falls, lower.mid, upper.mid), lower.rad))


@law(SOFTMAX, cases=anywhere, purpose="The base is e and the temperature 1.")
def quotients_of_weights_are_exponentials_of_differences(subject: Subject, scores: Any, mask: Any) -> None:
    """For all scores and every mask: each weight is that of the largest allowed score times the exponential of their difference.

    Within budget. Informative where two entries of a row are allowed.
    """
    may = allowed(scores, mask)
    subject.informative_if((may.sum(-1) > 1).any())
    largest = np.where(may, scores, -np.inf).argmax(-1)[..., None]
    weights = subject(scores, mask).ball
    top = ball(*(np.take_along_axis(x, largest, axis=-1) for x in (weights.mid, weights.rad)))
    below = exact(np.where(may, scores, -np.inf).max(-1, keepdims=True))
    expected = exp(exact(np.where(may, scores, below.mid)) - below) * top
    subject.close(weights, ball(np.where(may, expected.mid, 0.0), np.where(may, expected.rad, 0.0)))


@law(
    SOFTMAX,
    cases=lambda i: also(anywhere(i), lambda *_: st.integers(0, 1)),
    kills="softmax-maximum-of-all-rows",
    purpose="A maximum or a sum of more than its row leaks from row to row.",
)
def rows_of_weights_do_not_depend_on_each_other(subject: Subject, scores: Any, mask: Any, parity: Any) -> None:
    """For every case: whatever the scores of every second row are, ±8192 for instance, the other rows are the same.

    Within budget. Informative where there are two rows.
    """
    subject.informative_if(scores.shape[-2] > 1)
    kept = np.arange(scores.shape[-2]) % 2 == parity
    extreme = np.where(scores[..., ::-1] < 0, -8192.0, 8192.0)
    changed = subject(np.where(kept[:, None], scores, extreme), mask)
    subject.close(changed.ball[..., kept, :], subject(scores, mask).ball[..., kept, :])
