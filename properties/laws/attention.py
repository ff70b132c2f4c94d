"""Laws of scaled dot-product attention that are no symmetries: averages of values, what masks hide,
and quirks by convention.
"""

from typing import Any

import numpy as np

from oracles.ball import Ball, divide, exact, total
from properties.contract.implementation import Implementation
from properties.contract.results import BrokenError
from properties.contract.subject import Subject
from properties.laws.averages import allowed, dead_rows_follow_their_convention, exponentials, mean, own_heads
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
def outputs_stay_within_the_allowed_values(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every case: each entry of the output lies between the least and the largest value that
    its query may read in its column.
    """
    out = subject(q, k, v, mask)
    may = allowed(mask, q, k)
    low, high = np.empty(out.value.shape), np.empty(out.value.shape)
    for column in range(v.shape[-1]):
        values = v[..., None, :, column]
        low[..., column], high[..., column] = (
            np.where(may, values, np.inf).min(-1),
            np.where(may, values, -np.inf).max(-1),
        )
    subject.close(out, np.clip(out.value, low, high))


@law(SDPA)
def constant_values_come_out_unchanged(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every q, k and mask: where all keys have one value, every output is that value, for the
    weights of a query sum to 1.
    """
    one = v[..., :1, :]
    subject.close(
        subject(q, k, np.broadcast_to(one, v.shape), mask), np.broadcast_to(one, (*q.shape[:-1], v.shape[-1]))
    )


@law(SDPA)
def zero_queries_take_the_mean(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every k, v and mask: a query of zeros takes the mean of the values that it may read."""
    subject.close(subject(np.zeros(q.shape), k, v, mask), mean(v, allowed(mask, q, k)))


@law(SDPA)
def a_dominating_key_wins(subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices) -> None:
    """For every place of a key whose score is far above all others that a query may read: the
    output is its value.

    Queries of even index find one key, others the opposite one. Within budget, and exp(−128·√d) for
    other keys, or more of coarse scores.
    """
    n_k, d = k.shape[-2:]
    size = dominant(subject.arithmetic, d)
    winner = choose.among([n_k - 1, 0, choose.integer(0, n_k - 1)])
    other = n_k - 1 - winner if 2 * winner != n_k - 1 else (winner + 1) % n_k
    direction, odd = np.where(q[..., :1, :] < 0, -1.0, 1.0), np.arange(q.shape[-2]) % 2 == 1
    keys = np.clip(k, -size / 2, size / 2)
    keys[..., other, :], keys[..., winner, :] = -size * direction[..., 0, :], size * direction[..., 0, :]
    found = np.where(odd, other, winner)
    if mask is not None:
        mask = allowed(mask, q, k).copy()
        mask[..., np.arange(q.shape[-2]), found] = True
    others = 2 * n_k * np.exp(-(size**2) / 2 * np.sqrt(d)) * np.abs(v).max(-2, keepdims=True)
    expected = v[..., found, :]
    subject.close(
        subject(size * direction * np.where(odd, -1.0, 1.0)[:, None], keys, v, mask),
        Ball(expected, others + 0.0 * expected),
    )


def _wider_accumulators(i: Implementation) -> str:
    a = i.resolved_arithmetic
    if a.output.unit_roundoff < 2.0**-12:
        return "Its outputs have more than 16 bits, and overflow with its accumulators."
    return (
        ""
        if a.elementwise.largest > 2.0**16 * a.output.largest
        else "Its accumulators overflow as soon as its outputs."
    )


@law(SDPA, exempts=_wider_accumulators)
def outputs_beyond_the_largest_number_may_overflow(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For values to the largest number of a format of 16 bits: the output is that of values 2¹³
    times smaller, times 2¹³.

    Or it is ±∞, where it may round beyond the largest number; never NaN. Within budget. It exempts
    formats whose accumulators have no larger numbers.
    """
    largest = subject.arithmetic.output.largest
    scale = 2.0 ** (np.floor(np.log2(largest)) - 2)
    small = np.clip(2.0 * v, -largest / scale, largest / scale)
    subject.informative_if((np.abs(small) == largest / scale).any())
    subject.close(subject(q, k, small * scale, mask), subject(q, k, small, mask).ball * exact(scale))


@law(SDPA)
def attention_of_width_zero_takes_the_mean(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> bool:
    """For queries and keys without columns: all scores are 0, and every output is the mean of the
    allowed values.

    Within budget. It exempts implementations that do not support a head_dim of 0.
    """
    case = q[..., :0], k[..., :0], v, mask
    if not subject.takes(*case):
        return False
    subject.close(subject(*case), mean(v, allowed(mask, q, k)))
    return True


@law(f"{SDPA}_vjp", f"{SDPA}_jvp", "grouped_query_attention", "causal_attention", domains=("width zero",))
def at_width_zero_all_weights_are_equal(subject: Subject, *arguments: Any) -> bool:
    """For queries and keys without columns: the result is that of equal weights of all allowed
    keys.

    Within budget. It exempts implementations that do not support a head_dim of 0, or only where
    values have no columns either.
    """
    subject(*arguments)
    subject.judge(len(subject.calls) - 1)
    return any(x.size for x in subject.calls[-1].outputs)


@law(SDPA)
def blocks_of_keys_merge_by_log_sum_exp(subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices) -> bool:
    """For every cut of the keys: the output is the average of those of both blocks, each weighted
    with its sum of exponentials.

    Within budget; the sums are enclosed. A block that a query may not read counts for nothing.
    """
    n_k = k.shape[-2]
    cut = choose.cut(n_k, lambda n: all(subject.takes(q, k[..., :m, :], v[..., :m, :], None) for m in (n, n_k - n)))
    if cut == n_k:
        return False
    may = allowed(mask, q, k)
    e, parts = exponentials(q, k, may), []
    for keys in (slice(0, cut), slice(cut, None)):
        part = None if mask is None else np.where(may[..., keys].any(-1, keepdims=True), may[..., keys], True)
        share = divide(total(e[..., keys]), total(e))[..., None]
        parts.append(share * subject(q, k[..., keys, :], v[..., keys, :], part).ball)
    subject.close(subject(q, k, v, mask), parts[0] + parts[1])
    return True


# -- Masks ---------------------------------------------------------------------------------------------------------------------------


@law(SDPA)
def masked_keys_and_values_do_not_matter(subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices) -> bool:
    """For every mask and query: whatever finite numbers stand in the keys that it may not read and
    in their values, its output is the same.

    So are those of all queries that may read none of these keys. The keys are as long as formats
    allow, and along the query, so that their scores would win. Within budget.
    """
    may, row = allowed(mask, q, k), choose.integer(0, q.shape[-2] - 1)
    hidden = ~may[..., row, :]
    if not hidden.any():
        return False
    largest = subject.largest_harmless
    towards = np.where(q[..., row, None, :] < 0, -largest, largest)
    poisoned = subject(q, np.where(hidden[..., None], towards, k), np.where(hidden[..., None], -largest, v), mask)
    free = ~(may & hidden[..., None, :]).any(-1)
    subject.close(poisoned.ball[free], subject(q, k, v, mask).ball[free])
    return True


def _reads_what_is_blocked(i: Implementation) -> str:
    return (
        "" if i.resolved_conventions.blocked_values == "unread" else "Its convention is that blocked values are finite."
    )


@law(SDPA, domains=("padded masks",), exempts=_reads_what_is_blocked)
def non_finite_masked_entries_do_not_matter(
    subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices
) -> bool:
    """For keys that no query may read, and then for their values: NaN or ±∞ there leaves the output
    as it is.

    Within budget. It exempts implementations whose convention for `blocked_values` is not `unread`.
    """
    unread, number = ~allowed(mask, q, k).any(-2)[..., None], choose.among([np.nan, np.inf, -np.inf])
    if not unread.any():
        return False
    right = subject(q, k, v, mask)
    for name, case in (("keys", (q, np.where(unread, number, k), v)), ("values", (q, k, np.where(unread, number, v)))):
        try:
            subject.close(subject(*case, mask), right)
        except BrokenError as broken:
            raise BrokenError(f"With {number} in masked {name} {broken}", broken.excess) from None
    return True


@law(SDPA, domains=("everyday", "tiles"))
@law(CAUSAL, domains=("everyday", "tiles", "extreme scores"))
def the_past_does_not_depend_on_the_future(subject: Subject, q: Any, k: Any, v: Any, *_: Any, choose: Choices) -> bool:
    """For every moment, under a causal mask of either alignment, or causal by a flag: keys and
    values of the future change no output, nor does their absence. The first queries may read the
    first keys only; one query's mask is one of keys."""
    flag, one = subject.operation == CAUSAL, q[..., :1, :]
    q = one if not flag and choose.happens(0.25) and subject.takes(one, k, v) else q
    n_q, n_k = q.shape[-2], k.shape[-2]
    shift = [0, n_k - n_q][subject.conventions.causal == "bottom_right" if flag else choose.among([0, 1])]
    now = choose.integer(1, n_q)
    known = max(now + shift, 0)
    if known >= n_k or (n_k < n_q and not flag):
        return False
    masks = () if flag else (np.tri(n_q, n_k, shift, dtype=bool),)
    largest, future = subject.largest_harmless, np.arange(n_k)[:, None] >= known
    towards = np.where(q[..., now - 1, None, :] < 0, -largest, largest)
    past = subject(q, k, v, *masks).ball[..., :now, :]
    subject.close(
        subject(q, np.where(future, towards, k), np.where(future, -largest, v), *masks).ball[..., :now, :], past
    )
    alone = q[..., :now, :], k[..., :known, :], v[..., :known, :], *(mask[:now, :known] for mask in masks)
    if subject.takes(*alone):
        subject.close(subject(*alone), past)
    return True


@law(SDPA)
def one_allowed_key_gives_its_value(subject: Subject, q: Any, k: Any, v: Any, mask: Any, choose: Choices) -> None:
    """For every choice of one key for each query: with only that allowed the output is its value."""
    chosen = choose.integers(0, k.shape[-2] - 1, q.shape[:-1])
    only = np.arange(k.shape[-2]) == chosen[..., None]
    subject.close(subject(q, k, v, only), np.take_along_axis(v, chosen[..., None], axis=-2))


@law(SDPA, SOFTMAX, domains=("below finite fills",))
def one_key_has_all_the_weight_however_low_its_score(subject: Subject, *case: Any) -> bool:
    """For one allowed key for each query, with a score below every number that fills others: the
    result is that of scores of 0.

    Within budget of those, for the weight is 1, and no score is rounded into it, however large.
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


@law(SDPA, GQA, domains=("dead rows",))
def a_query_with_no_allowed_key_follows_its_convention(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every mask that leaves a query no key: its output is 0, NaN, or the mean of all values,
    by the convention for fully masked rows.

    The other outputs are those under a mask that allows these queries everything. Exact for 0 and
    NaN, else within budget.
    """
    may, out = allowed(mask, q, k), subject(q, k, v, mask)
    dead = ~may.any(-1)
    own = v if subject.operation == SDPA else v[..., own_heads(subject.implementation, q.shape[-3], k.shape[-3]), :, :]
    dead_rows_follow_their_convention(subject, out, dead, mean(own, np.ones(may.shape)))
    subject.close(out.ball[~dead], subject(q, k, v, may | dead[..., None]).ball[~dead])
