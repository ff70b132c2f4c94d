"""Laws of scaled dot-product attention: what masks hide, and what becomes of queries with one allowed key, or none."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.attention import SDPA
from properties.laws.averages import allowed, as_many, mean
from properties.strategies.arrays import SEVERAL, also, live_masks
from properties.strategies.attention import anywhere
from properties.strategies.masks import dead_masks, narrow_masks, padded_masks
from properties.strategies.variations import causally_masked, differing_masks, split_keys
from properties.subject import Subject

law = Laws()


@law(
    SDPA,
    cases=lambda i: anywhere(i, masks=lambda *_: st.none()),
    kills="sdpa-scale-twice-under-a-mask",
    purpose="With and without a mask there are two paths.",
)
def a_mask_that_allows_everything_is_no_mask(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every q, k and v: attention under a mask of trues is attention without a mask.

    Within budget.
    """
    every = np.ones((*q.shape[:-1], k.shape[-2]), bool)
    subject.close(subject(q, k, v, every), subject(q, k, v, None))


def _one_row(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return also(anywhere(i, keys=SEVERAL, masks=live_masks), lambda q, k, v, mask: st.integers(0, q.shape[-2] - 1))


@law(SDPA, cases=_one_row, kills="sdpa-rectangular-mask-ignored", purpose="The promise of a mask: what nobody may read is not read.")
def blocked_keys_and_values_do_not_matter(subject: Subject, q: Any, k: Any, v: Any, mask: Any, row: Any) -> None:
    """For every mask and query: whatever finite numbers stand in the keys that it may not read and in their values, its output is the same.

    So are those of all queries that may read none of these keys. The keys are as long as formats allow, and turned towards the query, so
    that their scores would win. Within budget. Informative where a key is blocked.
    """
    may = allowed(mask, q, k)
    hidden = ~may[..., row, :]
    subject.informative_if(hidden.any())
    largest = subject.largest_harmless
    towards = np.where(q[..., row, None, :] < 0, -largest, largest)
    poisoned = subject(q, np.where(hidden[..., None], towards, k), np.where(hidden[..., None], -largest, v), mask)
    free = ~(may & hidden[..., None, :]).any(-1)
    subject.close(poisoned.ball[free], subject(q, k, v, mask).ball[free])


def _reads_what_is_blocked(i: Implementation) -> str:
    return "" if i.reading.blocked_values == "unread" else "Its convention is that blocked values are finite."


@law(
    SDPA,
    cases=lambda i: also(anywhere(i, keys=SEVERAL, masks=padded_masks), lambda *_: st.sampled_from([np.nan, np.inf, -np.inf])),
    exempts=_reads_what_is_blocked,
    purpose="Padding that was never written holds anything.",
)
def non_finite_blocked_entries_do_not_matter(subject: Subject, q: Any, k: Any, v: Any, mask: Any, number: Any) -> None:
    """For keys and values that no query may read: NaN or ±∞ there leave the output as it is.

    Within budget. It exempts implementations whose convention for `blocked_values` is not `unread`.
    """
    unread = ~allowed(mask, q, k).any(-2)[..., None]
    subject.informative_if(unread.any())
    poisoned = subject(q, np.where(unread, number, k), np.where(unread, number, v), mask)
    subject.close(poisoned, subject(q, k, v, mask))


@law(
    SDPA,
    cases=causally_masked,
    kills="sdpa-causal-diagonal-tile-full",
    purpose="Nobody sees the future: neither what it holds, nor that there is one.",
)
def the_past_does_not_depend_on_the_future(subject: Subject, q: Any, k: Any, v: Any, mask: Any, now: Any, known: Any) -> None:
    """For every causal mask, of either alignment, and moment: keys and values of the future change no output, nor does their absence.

    The first `now` queries may read the first `known` keys only. Within budget. Informative where there is a future.
    """
    subject.informative_if(now < q.shape[-2])
    largest, future = subject.largest_harmless, np.arange(k.shape[-2])[:, None] >= known
    towards = np.where(q[..., now - 1, None, :] < 0, -largest, largest)
    past = subject(q, k, v, mask).ball[..., :now, :]
    changed = subject(q, np.where(future, towards, k), np.where(future, -largest, v), mask)
    subject.close(changed.ball[..., :now, :], past)
    subject.close(subject(q[..., :now, :], k[..., :known, :], v[..., :known, :], mask[:now, :known]), past)


@law(SDPA, cases=split_keys, exempts=as_many, purpose="Padding to a tile, or to the longest of a batch, is invisible.")
def appending_blocked_keys_changes_nothing(subject: Subject, q: Any, k: Any, v: Any, mask: Any, count: Any) -> None:
    """For every case: without the keys from `count` on, the output is what it is with them blocked, whatever they hold.

    Within budget. Informative where there are such keys.
    """
    subject.informative_if(count < k.shape[-2])
    largest, beyond = subject.largest_harmless, np.arange(k.shape[-2])[:, None] >= count
    few = allowed(mask, q, k)[..., :count]
    few = np.where(few.any(-1, keepdims=True), few, True)
    padded = np.concatenate([few, np.zeros((*few.shape[:-1], k.shape[-2] - count), bool)], -1)
    with_them = subject(q, np.where(beyond, largest, k), np.where(beyond, -largest, v), padded)
    subject.close(with_them, subject(q, k[..., :count, :], v[..., :count, :], None if mask is None else few))


@law(SDPA, cases=lambda i: anywhere(i, keys=SEVERAL, masks=narrow_masks), kills="sdpa-key-mask-taken-for-queries")
def a_mask_broadcasts(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every mask with axes of size 1, or with fewer axes: it stands for the mask repeated along them.

    Within budget. Informative where the mask blocks a key.
    """
    subject.informative_if(not mask.all())
    subject.close(subject(q, k, v, mask), subject(q, k, v, allowed(mask, q, k).copy()))


@law(
    SDPA,
    cases=differing_masks,
    kills="sdpa-mask-of-the-first-in-the-batch",
    purpose="A mask is for its own sequence and head, not for all of them.",
)
def each_of_a_batch_has_its_own_mask(subject: Subject, q: Any, k: Any, v: Any, mask: Any, problem: Any) -> None:
    """For every batch with two masks by turns: the output of a problem is what it is where all have that problem's mask.

    Within budget. Informative where the masks differ. It exempts implementations that take no batches.
    """
    subject.informative_if((mask != mask[problem]).any())
    subject.close(subject(q, k, v, mask).ball[problem], subject(q, k, v, mask[problem]).ball[problem])


@law(
    SDPA,
    cases=lambda i: also(anywhere(i), lambda q, k, v, mask: st.integers(0, 2**16)),
    purpose="One key has weight 1, however low its score and wherever it lies.",
)
def one_allowed_key_gives_its_value(subject: Subject, q: Any, k: Any, v: Any, mask: Any, seed: Any) -> None:
    """For every choice of one key for each query: with only that allowed the output is its value.

    Within budget.
    """
    chosen = np.random.default_rng(seed).integers(0, k.shape[-2], q.shape[:-1])
    only = np.arange(k.shape[-2]) == chosen[..., None]
    subject.close(subject(q, k, v, only), np.take_along_axis(v, chosen[..., None], axis=-2))


@law(SDPA, cases=lambda i: anywhere(i, masks=dead_masks), kills="sdpa-fully-masked-nan")
def a_query_with_no_allowed_key_follows_its_convention(subject: Subject, q: Any, k: Any, v: Any, mask: Any) -> None:
    """For every mask that leaves a query no key: its output is 0, NaN, or the mean of all values, by the convention for dead rows.

    The other outputs are those under a mask that allows these queries everything. Exact for 0 and NaN, else within budget.
    """
    dead, convention = ~mask.any(-1), subject.implementation.reading.dead_rows
    out = subject(q, k, v, mask)
    if convention == "uniform":
        subject.close(out.ball[dead], mean(v, np.ones(mask.shape, bool))[dead])
    else:
        subject.same(out.value[dead], np.full(out.value[dead].shape, 0.0 if convention == "zero" else np.nan), "a dead row")
    live = subject(q, k, v, mask | dead[..., None])
    subject.close(out.ball[~dead], live.ball[~dead])
