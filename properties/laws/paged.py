"""Laws of attention over keys in pages: changes of the pages, of the table and of the sequences that
keep the results of each sequence.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from oracles.ball import Ball
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.packing import of_sequence
from properties.contract.paging import (
    Case,
    flat,
    gathered,
    in_order,
    page_arrays,
    page_count,
    pages_are_shared,
    queries_of,
    query_arrays,
    unused_slots,
    with_sequences,
)
from properties.contract.quantising import of_query_heads
from properties.contract.results import Result
from properties.contract.subject import Subject
from properties.laws.law import Laws, always
from properties.strategies.choices import Choices

__all__ = ["law"]

law = Laws()
PAGED, ATTENTION = "paged_attention", "attention"
_OPERATION = OPERATIONS[PAGED]
_PAGE_SIZES = (1, 2, 3, 5, 16)


class _Changed(NamedTuple):
    """A changed case whose sequences give what sequences of the original case give: the places of
    these in the original case, and which of their queries are left (all by default).
    """

    case: Case
    places: Sequence[int]
    queries: Sequence[slice] = ()


def _of_sequence(case: Case, b: int, result: Result) -> Ball:
    """Return the output (n_q, num_heads, value_dim), or the log-sum-exp (num_heads, n_q), of sequence b."""
    if case["cu_q"] is None:
        return result.ball[b]
    query_rows = slice(int(case["cu_q"][b]), int(case["cu_q"][b + 1]))
    return result.ball[query_rows] if result.name == "out" else result.ball[:, query_rows]


def _compare(subject: Subject, case: Case, changed: _Changed) -> None:
    """Assert that each sequence of the changed case gives what it gives in the original case."""
    before, after = subject(*case.values()), subject(*changed.case.values())
    for place, b in enumerate(changed.places):
        queries = changed.queries[place] if changed.queries else slice(None)
        for original, other in zip(before, after, strict=True):
            whole = _of_sequence(case, b, original)
            expected = whole[queries] if original.name == "out" else whole[:, queries]
            subject.close(expected, _of_sequence(changed.case, place, other), f"{original.name} (sequence {b})")


def _is_valid_only(subject: Subject) -> bool:
    return "valid table entries" in subject.implementation.support.options


# -- Pages and tables ------------------------------------------------------------------------------


def _moved(subject: Subject, case: Case, choose: Choices) -> Case:
    """For every order of the pages, with the table renumbered: the results are the same."""
    new_order = choose.order(len(case["k_pages"]))
    new_numbers = np.argsort(new_order)
    block_table = case["block_table"].copy()
    for table_row, length in zip(block_table, case["lengths"].tolist(), strict=True):
        count = page_count(length, case["k_pages"].shape[1])
        table_row[:count] = new_numbers[table_row[:count]]
    return case | {name: case[name][new_order] for name in page_arrays(case)} | {"block_table": block_table}


def _lengthened(subject: Subject, case: Case, choose: Choices) -> Case:
    """For every table with more entries behind each row, of any numbers: the results are the same. Where
    the adapter declares that all entries name pages, the numbers are those of pages.
    """
    num_pages, entries_shape = len(case["k_pages"]), (len(case["lengths"]), choose.among([1, 3, 8]))
    numbers = (
        np.zeros(entries_shape, np.int32)
        if _is_valid_only(subject)
        else np.full(entries_shape, choose.among([-1, num_pages]))
    )
    other_entries = choose.integers(0, max(num_pages - 1, 0), entries_shape) if choose.happens() else numbers
    return case | {"block_table": np.concatenate([case["block_table"], other_entries.astype(np.int32)], 1)}


def _copied(subject: Subject, case: Case, choose: Choices) -> Case | None:
    """For every case in which sequences share pages: the results are the same where each sequence has
    its own pages, one behind the other.
    """
    page_size = case["k_pages"].shape[1]
    return in_order(case, gathered(case), page_size) if pages_are_shared(case) else None


def _resized(subject: Subject, case: Case, choose: Choices) -> Case | None:
    """For every other size of the pages that the implementation takes: the same keys in pages of this
    size give the same results.
    """
    listed = subject.implementation.support.listed("page_size") or _PAGE_SIZES
    sizes = [page_size for page_size in listed if page_size != case["k_pages"].shape[1]]
    return in_order(case, gathered(case), choose.among(sizes)) if sizes else None


def _refilled(subject: Subject, case: Case, choose: Choices) -> Case | None:
    """For every finite number in the slots that no sequence reads: the results are the same."""
    unused, changed = unused_slots(case), dict(case)
    numbers = choose.among([8.0, -8.0, 0.0]), choose.among([32.0, -32.0]), 32.0, 32.0
    for name, number in zip(page_arrays(case), numbers, strict=False):
        largest = _OPERATION.stored(name, subject.arithmetic).largest
        changed[name] = case[name].copy()
        changed[name][unused] = np.clip(number, -largest, largest)
    return changed if unused.any() else None


def _in_one_axis(subject: Subject, case: Case, choose: Choices) -> Case | None:
    """For every case with an axis of sequences: the queries in one axis of rows, with cu_q, give the
    same results.
    """
    if case["cu_q"] is not None:
        return None
    q = case["q"]
    rows = {name: flat(case[name]) for name in query_arrays(case)}
    return case | rows | {"cu_q": (q.shape[1] * np.arange(len(q) + 1)).astype(np.int32)}


def _one_page_size(implementation: Implementation) -> str:
    return "It declares one page size." if len(implementation.support.listed("page_size")) == 1 else ""


def _one_form(implementation: Implementation) -> str:
    return "" if len(implementation.ranks(_OPERATION)) > 1 else "It takes queries in one form."


_Change = Callable[[Subject, Case, Choices], Case | None]


def _law_of(change: _Change) -> Callable[..., bool | None]:
    """Return the body of the law that a change of the case keeps all results."""

    def body(subject: Subject, *arguments: Any, choose: Choices) -> bool | None:
        case = _OPERATION.named(arguments)
        changed = change(subject, case, choose)
        if changed is None or not subject.takes(*changed.values()):
            return False
        _compare(subject, case, _Changed(changed, range(len(case["lengths"]))))
        return None

    body.__doc__ = change.__doc__
    return body


for _name, _change, _domains, _exempts in (
    ("the order of pages does not matter", _moved, ("everyday",), always),
    ("a longer row of the table of pages changes nothing", _lengthened, ("everyday",), always),
    ("shared pages give the same as copies of them", _copied, ("everyday", "large pages"), always),
    ("another page size gives the same", _resized, ("everyday", "ragged queries"), _one_page_size),
    ("the content of unused slots does not matter", _refilled, ("everyday", "ragged queries", "windows"), always),
    ("queries in one axis of rows give the same as in a batch", _in_one_axis, ("everyday",), _one_form),
):
    law(PAGED, name=_name, domains=_domains, exempts=_exempts)(_law_of(_change))


# -- Sequences and queries -------------------------------------------------------------------------


@law(PAGED, domains=("everyday", "ragged queries", "large pages"))
def sequences_with_pages_are_computed_independently(subject: Subject, *arguments: Any, choose: Choices) -> bool | None:
    """For every choice of the sequences, in any order: each of them gives what it gives among all
    sequences.
    """
    case = _OPERATION.named(arguments)
    new_order = choose.order(len(case["lengths"]))
    sequence_places = new_order[: choose.integer(1, len(new_order))].tolist()
    changed = with_sequences(case, sequence_places)
    if sequence_places == [*range(len(new_order))] or not subject.takes(*changed.values()):
        return False
    _compare(subject, case, _Changed(changed, sequence_places))
    return None


@law(PAGED, domains=("everyday", "ragged queries", "queries before the keys", "windows"))
def decoding_a_query_alone_gives_the_same_as_in_a_chunk(
    subject: Subject, *arguments: Any, choose: Choices
) -> bool | None:
    """For every query of a causal case: it gives the same as the only query, if the length ends at its
    position. So decoding equals prefill.
    """
    case = _OPERATION.named(arguments)
    query_counts = [len(queries_of(case, b)) for b in range(len(case["lengths"]))]
    first_places = choose.integers(
        0, max([*query_counts, 1]) - 1, len(query_counts) if case["cu_q"] is not None else ()
    )
    kept_places = [int(place) for place in np.minimum(first_places, np.maximum(np.array(query_counts, int) - 1, 0))]
    reads_masked_keys = case["softcap"] is not None and subject.conventions.softcap_order == "after_mask"
    if case["causal"] is False or reads_masked_keys or max(query_counts, default=0) < 2:
        return False
    queries = [slice(place, place + 1) for place in kept_places]
    ends = [
        length - max(n - 1 - place, 0)
        for length, n, place in zip(case["lengths"], query_counts, kept_places, strict=True)
    ]
    has_dead_rows = any(n and end <= 0 for n, end in zip(query_counts, ends, strict=True))
    if has_dead_rows and subject.conventions.dead_rows == "uniform":  # a mean over other numbers of keys
        return False
    changed = with_sequences(case, range(len(query_counts)), queries)
    changed["lengths"] = np.maximum(ends, 0).astype(case["lengths"].dtype)
    if not subject.takes(*changed.values()):
        return False
    _compare(subject, case, _Changed(changed, range(len(query_counts)), queries))
    return None


@law(PAGED, domains=("everyday", "one token each"))
def a_query_with_one_key_returns_its_value(subject: Subject, *arguments: Any) -> bool | None:
    """For every case with one query for each sequence, of length 1, without sinks and windows: the
    output is the value in the first slot of the first page of the sequence. Values on a grid have the
    scale 1.
    """
    case = _OPERATION.named(arguments)
    with_keys = [b for b, length in enumerate(case["lengths"]) if length > 0 and len(queries_of(case, b))]
    changed = with_sequences(case, with_keys, [slice(1)] * len(with_keys)) | {"sink": None, "window": None}
    changed["lengths"] = np.ones(len(with_keys), case["lengths"].dtype)
    changed["v_scale"] = None if case["v_scale"] is None else np.ones(changed["v_scale"].shape)
    if not with_keys or not subject.takes(*changed.values()):
        return False
    out, _ = subject(*changed.values())
    first_values = case["v_pages"][changed["block_table"][:, 0], 0]
    of_heads = of_query_heads(np.arange(first_values.shape[1]), case["q"].shape[-2], subject.conventions)
    subject.close(out, first_values[:, of_heads].reshape(out.value.shape))
    return None


@law(PAGED, domains=("many pages",), measures=True)
def numbers_of_pages_beyond_8_and_16_bits_are_right(subject: Subject, *arguments: Any) -> None:
    """At more than 256, and at more than 65536 pages: the result is within its error limit."""
    subject(*arguments)
    subject.judge(len(subject.calls) - 1)


@law(PAGED, needs=(ATTENTION,), exempts=lambda each: each.lacks("offset", "causal"))
def pages_give_the_same_as_attention_on_gathered_keys(
    subject: Subject, *arguments: Any, choose: Choices
) -> bool | None:
    """For every sequence: `attention` on its keys in one array, with the first query at the position
    length − n_q, gives the same.
    """
    case = _OPERATION.named(arguments)
    b = choose.integer(0, len(case["lengths"]) - 1)
    arrays = of_sequence(case, b, subject.conventions)
    options = {name: case[name] for name in ("scale", "window", "softcap", "sink", "alibi")}
    offset = arrays["k"].shape[1] - arrays["q"].shape[1]
    options |= {"causal": None if case["causal"] is False else True, "offset": offset}
    lead = (1,) * min(subject.implementation.ranks(OPERATIONS[ATTENTION]), default=0)
    options |= {name: x.reshape(*lead, *x.shape) for name, x in arrays.items()}
    call = tuple(options.get(name) for name in OPERATIONS[ATTENTION].parameters)
    if not subject.implementation.takes(OPERATIONS[ATTENTION], call):
        return False
    for mine, other in zip(subject(*arguments), subject.call(ATTENTION, call), strict=True):
        expected = other.ball[(0,) * len(lead)]
        if mine.name == "out":
            expected = Ball(np.swapaxes(expected.mid, 0, 1), np.swapaxes(expected.rad, 0, 1))
        subject.close(_of_sequence(case, b, mine), expected, f"{mine.name} (sequence {b})")
    return None
