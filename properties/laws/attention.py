"""Laws of scaled dot-product attention that are not symmetries: averages of values, the effect of
masks, and cases that conventions decide.
"""

from typing import Any

import numpy as np

from oracles.ball import Ball, divide, exact, total
from properties.contract.implementation import Implementation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws.expected_values import (
    check_fully_masked_rows,
    exponentials,
    key_heads,
    mean_of_visible,
    visible_mask,
)
from properties.laws.law import Laws
from properties.strategies.adjustments import dominant
from properties.strategies.choices import Choices

law = Laws()
SDPA, GQA, CAUSAL, SOFTMAX = (
    "scaled_dot_product_attention",
    "grouped_query_attention",
    "causal_attention",
    "hard_masked_softmax",
)


@law(SDPA)
def outputs_lie_between_the_smallest_and_largest_visible_value(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any
) -> None:
    """For every test input: each entry of the output lies between the smallest and the largest
    value in its column that is visible to its query.
    """
    found = subject(q, k, v, mask)
    visible = visible_mask(mask, q, k)
    smallest, largest = np.empty(found.value.shape), np.empty(found.value.shape)
    for column in range(v.shape[-1]):
        values = v[..., None, :, column]
        smallest[..., column] = np.where(visible, values, np.inf).min(-1)
        largest[..., column] = np.where(visible, values, -np.inf).max(-1)
    subject.close(found, np.clip(found.value, smallest, largest))


@law(SDPA, name="if all values are equal, the output is that value")
def if_all_values_are_equal_the_output_is_that_value(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every q, k and mask: if all keys have the same value, every output is that value, because
    the weights of a query sum to 1.
    """
    value = v[..., :1, :]
    found = subject(q, k, np.broadcast_to(value, v.shape), mask)
    subject.close(found, np.broadcast_to(value, (*q.shape[:-1], v.shape[-1])))


@law(SDPA)
def a_zero_query_returns_the_mean_of_the_visible_values(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every k, v and mask: the output of a query of zeros is the mean of its visible values."""
    subject.close(subject(np.zeros(q.shape), k, v, mask), mean_of_visible(v, visible_mask(mask, q, k)))


@law(SDPA)
def a_key_with_a_far_higher_score_determines_the_output(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices
) -> None:
    """For every place of a key whose score is far above all other visible scores: the output is the
    value of this key.

    Queries of even index find one key, and queries of odd index find the opposite key. The error
    limit contains exp(−128·√d) for the other keys, and more where scores are coarse.
    """
    n_k, width = k.shape[-2:]
    size = dominant(subject.arithmetic, width)
    winner = choose.among([n_k - 1, 0, choose.integer(0, n_k - 1)])
    other = n_k - 1 - winner if 2 * winner != n_k - 1 else (winner + 1) % n_k
    direction, is_odd = np.where(q[..., :1, :] < 0, -1.0, 1.0), np.arange(q.shape[-2]) % 2 == 1
    keys = np.clip(k, -size / 2, size / 2)
    keys[..., other, :], keys[..., winner, :] = -size * direction[..., 0, :], size * direction[..., 0, :]
    found = np.where(is_odd, other, winner)
    if mask is not None:
        mask = visible_mask(mask, q, k).copy()
        mask[..., np.arange(q.shape[-2]), found] = True
    limit = 2 * n_k * np.exp(-(size**2) / 2 * np.sqrt(width)) * np.abs(v).max(-2, keepdims=True)
    expected = v[..., found, :]
    subject.close(
        subject(size * direction * np.where(is_odd, -1.0, 1.0)[:, None], keys, v, mask),
        Ball(expected, limit + 0.0 * expected),
    )


def _narrow_accumulators(implementation: Implementation) -> str:
    arithmetic = implementation.resolved_arithmetic
    if arithmetic.output.unit_roundoff < 2.0**-12:
        return "Its outputs have more than 16 bits, and overflow with its accumulators."
    wide = arithmetic.elementwise.largest > 2.0**16 * arithmetic.output.largest
    return "" if wide else "Its accumulators overflow as soon as its outputs."


@law(SDPA, exempts=_narrow_accumulators)
def outputs_are_infinite_only_where_the_exact_value_is_too_large(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any
) -> None:
    """For values up to the largest number of a 16-bit format: the output is 2¹³ times the output
    for values that are 2¹³ times smaller.

    An output that may round beyond the largest number may also be ±∞, but never NaN. Formats whose
    accumulators have no larger numbers are exempt.
    """
    largest = subject.arithmetic.output.largest
    scale = 2.0 ** (np.floor(np.log2(largest)) - 2)
    small = np.clip(2.0 * v, -largest / scale, largest / scale)
    subject.informative_if((np.abs(small) == largest / scale).any())
    subject.close(subject(q, k, small * scale, mask), subject(q, k, small, mask).ball * exact(scale))


@law(SDPA, name="with head_dim 0 the output is the mean of the visible values")
def with_head_dim_0_the_output_is_the_mean_of_the_visible_values(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any
) -> bool:
    """For queries and keys without columns: all scores are 0, and every output is the mean of the
    visible values.

    Implementations that do not support head_dim 0 are exempt.
    """
    case = q[..., :0], k[..., :0], v, mask
    if not subject.takes(*case):
        return False
    subject.close(subject(*case), mean_of_visible(v, visible_mask(mask, q, k)))
    return True


@law(
    f"{SDPA}_vjp",
    f"{SDPA}_jvp",
    GQA,
    CAUSAL,
    domains=("width zero",),
    name="with head_dim 0 all weights are equal",
)
def with_head_dim_0_all_weights_are_equal(subject: Subject, *arguments: Any) -> bool:
    """For queries and keys without columns: the result is the result of equal weights for all
    visible keys.

    Implementations that do not support head_dim 0, or support it only if values have no columns
    either, are exempt.
    """
    subject(*arguments)
    subject.judge(len(subject.calls) - 1)
    return any(x.size for x in subject.calls[-1].outputs)


@law(SDPA)
def the_output_is_the_weighted_mean_of_the_outputs_of_two_blocks_of_keys(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices
) -> bool:
    """For every cut of the keys into two blocks: the output is the mean of both blocks' outputs,
    each weighted with the block's sum of exponentials.

    The sums are enclosed. A block in which a query sees no key has weight 0 for this query.
    """
    n_k = k.shape[-2]

    def takes(count: int) -> bool:
        return subject.takes(q, k[..., :count, :], v[..., :count, :], None)

    cut = choose.cut(n_k, lambda count: takes(count) and takes(n_k - count))
    if cut == n_k:
        return False
    visible = visible_mask(mask, q, k)
    weights, parts = exponentials(q, k, visible), []
    for keys in (slice(0, cut), slice(cut, None)):
        part = None if mask is None else np.where(visible[..., keys].any(-1, keepdims=True), visible[..., keys], True)
        share = divide(total(weights[..., keys]), total(weights))[..., None]
        parts.append(share * subject(q, k[..., keys, :], v[..., keys, :], part).ball)
    subject.close(subject(q, k, v, mask), parts[0] + parts[1])
    return True


# -- Masks -----------------------------------------------------------------------------------------


@law(SDPA)
def masked_keys_and_values_do_not_matter(subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices) -> bool:
    """For every mask and query: finite numbers in the masked keys and their values do not change
    the query's output.

    The outputs of all other queries for which these keys are masked stay the same too. The keys are
    as long as the format allows, and point along the query, so that they would have the largest
    scores if they were visible.
    """
    visible, query = visible_mask(mask, q, k), choose.integer(0, q.shape[-2] - 1)
    masked = ~visible[..., query, :]
    if not masked.any():
        return False
    largest = subject.largest_harmless
    towards = np.where(q[..., query, None, :] < 0, -largest, largest)
    poisoned = subject(q, np.where(masked[..., None], towards, k), np.where(masked[..., None], -largest, v), mask)
    unaffected = ~(visible & masked[..., None, :]).any(-1)
    subject.close(poisoned.ball[unaffected], subject(q, k, v, mask).ball[unaffected])
    return True


def _reads_masked_values(implementation: Implementation) -> str:
    unread = implementation.resolved_conventions.blocked_values == "unread"
    return "" if unread else "Its convention is that masked values are finite."


@law(
    SDPA,
    domains=("padded masks",),
    exempts=_reads_masked_values,
    name="NaN and infinity in masked keys and values do not matter",
)
def nan_and_infinity_in_masked_keys_and_values_do_not_matter(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices
) -> bool:
    """For keys that are masked for every query, and then for their values: NaN or ±∞ there does not
    change the output.

    Implementations whose convention for `blocked_values` is not `unread` are exempt.
    """
    masked, number = ~visible_mask(mask, q, k).any(-2)[..., None], choose.among([np.nan, np.inf, -np.inf])
    if not masked.any():
        return False
    right = subject(q, k, v, mask)
    for name, case in (("keys", (q, np.where(masked, number, k), v)), ("values", (q, k, np.where(masked, number, v)))):
        try:
            subject.close(subject(*case, mask), right)
        except BrokenError as broken:
            raise BrokenError(f"With {number} in masked {name} {broken}", broken.excess) from None
    return True


@law(SDPA, domains=("everyday", "tiles"))
@law(CAUSAL, domains=("everyday", "tiles", "extreme scores"))
def outputs_do_not_depend_on_future_keys_and_values(
    subject: Subject, q: Any, k: Any, v: Any, *_: Any, choose: Choices
) -> bool:
    """For every moment, under a causal mask of either alignment, or in causal attention: changed or
    removed keys and values of the future do not change the earlier outputs.

    The mask of one query among several keys is included. The first queries may see only the first
    keys.
    """
    causal, single_query = subject.operation == CAUSAL, q[..., :1, :]
    q = single_query if not causal and choose.happens(0.25) and subject.takes(single_query, k, v) else q
    n_q, n_k = q.shape[-2], k.shape[-2]
    shift = [0, n_k - n_q][subject.conventions.causal == "bottom_right" if causal else choose.among([0, 1])]
    moment = choose.integer(1, n_q)
    known_keys = max(moment + shift, 0)
    if known_keys >= n_k or (n_k < n_q and not causal):
        return False
    masks = () if causal else (np.tri(n_q, n_k, shift, dtype=bool),)
    largest, future = subject.largest_harmless, np.arange(n_k)[:, None] >= known_keys
    towards = np.where(q[..., moment - 1, None, :] < 0, -largest, largest)
    past = subject(q, k, v, *masks).ball[..., :moment, :]
    subject.close(
        subject(q, np.where(future, towards, k), np.where(future, -largest, v), *masks).ball[..., :moment, :], past
    )
    past_case = (
        q[..., :moment, :],
        k[..., :known_keys, :],
        v[..., :known_keys, :],
        *(mask[:moment, :known_keys] for mask in masks),
    )
    if subject.takes(*past_case):
        subject.close(subject(*past_case), past)
    return True


@law(SDPA)
def a_single_visible_key_returns_its_value(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices
) -> None:
    """For every choice of one key for each query: if only this key is visible, the output is its
    value.
    """
    chosen = choose.integers(0, k.shape[-2] - 1, q.shape[:-1])
    mask_of_one = np.arange(k.shape[-2]) == chosen[..., None]
    subject.close(subject(q, k, v, mask_of_one), np.take_along_axis(v, chosen[..., None], axis=-2))


@law(SDPA, SOFTMAX, domains=("below finite fills",), name="a single visible key has weight 1, however low its score")
def a_single_visible_key_has_weight_1_however_low_its_score(subject: Subject, *case: Any) -> bool:
    """For one visible key for each query, with a score below every finite number that kernels write
    over masked scores: the result is the result for scores of 0.

    The error limit is the limit for scores of 0: the weight is 1, and the rounding of a score does
    not change it, however large the score is.
    """
    *inputs, mask = case
    if mask is None or (np.broadcast_to(mask, (*inputs[0].shape[:-1], mask.shape[-1])).sum(-1) != 1).any():
        return False
    found, right = subject(*case), subject(np.zeros(inputs[0].shape), *inputs[1:], mask).ball
    subject.require(
        np.isfinite(found.value).all(), f"{found.name} has an entry that is no number, but should have none."
    )
    subject.close(Ball(found.value, right.rad), right, found.name)
    return True


@law(SDPA, GQA, domains=("dead rows", "special masks"), exact="for 0 and NaN")
def a_fully_masked_row_follows_its_convention(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every mask with fully masked rows: their outputs are 0, NaN, or the mean of all values,
    by the convention `dead_rows`.

    The other outputs are the outputs under a mask that masks nothing in the fully masked rows.
    """
    visible, found = visible_mask(mask, q, k), subject(q, k, v, mask)
    masked_rows = ~visible.any(-1)
    values = (
        v if subject.operation == SDPA else v[..., key_heads(subject.implementation, q.shape[-3], k.shape[-3]), :, :]
    )
    check_fully_masked_rows(subject, found, masked_rows, mean_of_visible(values, np.ones(visible.shape)))
    subject.close(found.ball[~masked_rows], subject(q, k, v, visible | masked_rows[..., None]).ball[~masked_rows])
