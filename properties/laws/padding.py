"""Laws of masks of padded sequences, and of masks that are combined. Masks are as the spec has them: true allows."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.conduct import empty
from properties.strategies.arrays import UnsupportedError, also, orders
from properties.strategies.masks import lengths_of_sequences, two_masks
from properties.subject import Subject

law = Laws()
PADDING, COMBINED = "padding_mask", "combine_masks"


@law(PADDING, cases=lengths_of_sequences, agreement=True)
def a_padding_mask_is_its_definition(subject: Subject, lengths: Any, max_len: int) -> None:
    """For all lengths: entry (b, j) is true where j < lengths[b].

    Exact.
    """
    subject.same(subject(lengths, max_len), np.arange(max_len) < lengths[:, None], "mask")


@law(PADDING, cases=lengths_of_sequences, kills="padding-one-too-many", purpose="A sequence is as long as it says.")
def a_padding_mask_allows_as_many_as_the_length(subject: Subject, lengths: Any, max_len: int) -> None:
    """For all lengths: row b has lengths[b] true entries.

    Exact.
    """
    subject.same(subject(lengths, max_len).sum(-1), lengths, "true entries of a row")


@law(PADDING, cases=lengths_of_sequences, kills="padding-at-the-beginning", purpose="Padding comes last, as it is drawn.")
def after_padding_comes_only_padding(subject: Subject, lengths: Any, max_len: int) -> None:
    """For all lengths: in each row the true entries come first; none follows a false one.

    Exact. Informative where a row has entries of both kinds.
    """
    mask = subject(lengths, max_len)
    subject.informative_if(((lengths > 0) & (lengths < max_len)).any())
    subject.same(mask, np.logical_and.accumulate(mask, axis=-1), "mask")


def _constant(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return also(lengths_of_sequences(i), lambda lengths, max_len: st.sampled_from([0, max_len]))


@law(PADDING, cases=_constant, kills="padding-empty-sequence-is-full", purpose="The ends of the range are where an index wraps around.")
def empty_sequences_are_all_padding_and_full_ones_have_none(subject: Subject, lengths: Any, max_len: int, length: int) -> None:
    """For lengths that are all 0, or all max_len: no entry is true, or every one is.

    Exact.
    """
    subject.same(subject(np.full(lengths.shape, length), max_len), np.full((len(lengths), max_len), length > 0), "mask")


def _longer(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return also(lengths_of_sequences(i), lambda lengths, max_len: st.sampled_from([1, 2, 7, 64]))


@law(PADDING, cases=_longer, kills="padding-relative-to-the-end", purpose="How far a batch is padded says nothing about its sequences.")
def more_padding_is_only_blocked_positions(subject: Subject, lengths: Any, max_len: int, more: int) -> None:
    """For all lengths: padded further, the mask has the same entries, and then false ones.

    Exact.
    """
    longer, blocked = subject(lengths, max_len + more), np.zeros((len(lengths), more), bool)
    subject.same(longer, np.concatenate([subject(lengths, max_len), blocked], axis=1), "mask")


def _reordered(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return also(lengths_of_sequences(i), lambda lengths, max_len: orders(len(lengths)))


@law(PADDING, cases=_reordered, kills="padding-sorted-by-length", purpose="Each sequence has its own row.")
def rows_of_a_padding_mask_move_with_their_sequences(subject: Subject, lengths: Any, max_len: int, order: Any) -> None:
    """For every order of the sequences: the mask's rows come in that order.

    Exact. Informative where lengths differ.
    """
    subject.informative_if(len(set(lengths.tolist())) > 1)
    subject.same(subject(lengths[order], max_len), subject(lengths, max_len)[order], "mask")


def _no_padding(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    cases = [(count, n) for count, n in ((2, 0), (0, 3), (0, 0)) if i.allows(batch=count, max_len=n)]
    if not cases:
        raise UnsupportedError(f"{i.name} supports no size of 0.")
    return st.sampled_from(cases).map(lambda case: (np.zeros(case[0], np.int64), case[1]))


@law(PADDING, cases=_no_padding, effort=0.2, kills="padding-of-nothing-raises")
def a_padding_mask_of_nothing_is_empty(subject: Subject, lengths: Any, max_len: int) -> None:
    """For no sequences, or a max_len of 0: the mask has the shape (sequences, max_len), and no entries. Exact."""
    empty(subject, subject(lengths, max_len))


@law(COMBINED, cases=two_masks, agreement=True)
def a_combined_mask_is_its_definition(subject: Subject, first: Any, second: Any) -> None:
    """For all masks that broadcast: an entry is true where it is in both.

    Exact.
    """
    subject.same(subject(first, second), first & second, "mask")


def _shape(first: Any, second: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(first.shape, second.shape)


@law(COMBINED, cases=two_masks, kills="combined-by-or", purpose="It tells `and` from `or`, in the polarity that is declared.")
def a_mask_that_allows_all_changes_nothing(subject: Subject, first: Any, second: Any) -> None:
    """For every mask: combined with one that allows everything, on either side, it is what it was, broadcast to both.

    Exact.
    """
    expected, everything = np.broadcast_to(first, _shape(first, second)), np.ones(second.shape, bool)
    subject.same(subject(first, everything), expected, "mask")
    subject.same(subject(everything, first), expected, "mask")


@law(COMBINED, cases=two_masks, kills="combined-keeps-a-dead-row", purpose="What a mask blocks stays blocked, though nothing is left.")
def a_mask_that_blocks_all_blocks_all(subject: Subject, first: Any, second: Any) -> None:
    """For every mask: combined with one that blocks everything, on either side, everything is blocked.

    Exact.
    """
    expected, nothing = np.zeros(_shape(first, second), bool), np.zeros(second.shape, bool)
    subject.same(subject(first, nothing), expected, "mask")
    subject.same(subject(nothing, first), expected, "mask")


@law(COMBINED, cases=two_masks, kills="combined-second-inverted", purpose="Both masks are read alike, in one polarity.")
def the_order_of_masks_does_not_matter(subject: Subject, first: Any, second: Any) -> None:
    """For all masks: the second combined with the first is the first combined with the second.

    Exact. Informative where they differ.
    """
    subject.informative_if((first != second).any())
    subject.same(subject(second, first), subject(first, second), "mask")


@law(COMBINED, cases=two_masks, kills="combined-where-equal", purpose="A mask that is applied twice is applied.")
def a_mask_combined_with_itself_is_itself(subject: Subject, first: Any, second: Any) -> None:
    """For every mask: combined with itself it is what it was, and combined again with one of two that it was made of, too.

    Exact.
    """
    subject.same(subject(first, first), first, "mask")
    both = subject(first, second)
    subject.same(subject(both, second), both, "mask")


@law(COMBINED, cases=two_masks, kills="combined-square-batch-along-queries", purpose="An axis of size 1 says the same for all.")
def masks_are_combined_as_if_they_were_written_out(subject: Subject, first: Any, second: Any) -> None:
    """For all masks that broadcast: combined as they are, they are as when each is written out in the common shape.

    Exact. Informative where the shapes differ.
    """
    subject.informative_if(first.shape != second.shape)
    full = (np.broadcast_to(mask, _shape(first, second)).copy() for mask in (first, second))
    subject.same(subject(first, second), subject(*full), "mask")


def _square(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    found = [n for n in (1, 2, 3, 5, 8, 16, 33) if i.allows(n_q=n, n_k=n, n_k_minus_n_q=0)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no square mask among those tried.")
    return lengths_of_sequences(i).flatmap(
        lambda case: st.sampled_from(found).map(lambda n: (np.minimum(case[0], n), n))
    )  # fmt: skip


@law(COMBINED, cases=_square, needs=(PADDING, "causal_mask"), purpose="What masks are combined for: decoders of padded batches.")
def causal_and_padding_masks_allow_the_first_keys(subject: Subject, lengths: Any, n: int) -> None:
    """For all lengths to n: the causal mask of n keys and the padding mask, with an axis for the queries, combine to one whose row i of
    sequence b allows the first min(i + 1, lengths[b]) keys.

    Exact.
    """
    mask = subject(subject.causal_mask(n, n), subject.padding_mask(lengths, n)[:, None, :])
    allowed = np.minimum(np.arange(1, n + 1), lengths[:, None])
    subject.same(mask, np.arange(n) < allowed[..., None], "mask")


def _no_entries(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    found = [shape for shape in ((0, 3), (2, 0), (0, 0)) if i.allows(n_q=shape[0], n_k=shape[1], n_k_minus_n_q=shape[1] - shape[0])]
    if not found:
        raise UnsupportedError(f"{i.name} supports no mask without entries.")
    return st.sampled_from(found).map(lambda shape: (np.zeros(shape, bool), np.ones((1, shape[1]), bool)))


@law(COMBINED, cases=_no_entries, effort=0.2, kills="combined-without-entries-raises")
def masks_without_entries_combine_to_none(subject: Subject, first: Any, second: Any) -> None:
    """For masks without rows or columns: the result has their common shape, and no entries. Exact."""
    empty(subject, subject(first, second))
