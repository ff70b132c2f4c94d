"""Laws of packed sequences: each sequence has the result that it has alone, wherever it lies."""

from typing import Any

import numpy as np

from oracles.ball import Ball
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.packing import AXES, has_padding, lengths, of_sequence, rows_of
from properties.contract.quantising import of_sequences
from properties.contract.subject import Subject
from properties.laws.commuting_squares import Case, Sum, Term
from properties.laws.law import Laws
from properties.laws.symmetry_rows import Rows

__all__ = ["law"]

law = Laws()
row = Rows(law)
PACKED = "packed_attention"
_DOMAINS = ("everyday", "used rows", "used queries", "many sequences", "lengths far apart", "sinks")


def _of_sequences(case: Case, numbers: Any) -> Term:
    """Return the term for a call on these sequences alone, in this order, without unused rows."""
    indices, instead = dict[str, Any](), dict[str, Any](of_sequences(case.arguments, numbers))
    for side, axis in AXES.items():
        rows = [rows_of(case.arguments, side)[b] for b in numbers]
        counts = [len(each) for each in rows]
        indices[axis] = np.array([row for each in rows for row in each], int)
        instead |= {f"cu_{side}": np.cumsum([0, *counts]).astype(np.int32), f"seqused_{side}": None}
        if case.arguments[f"max_seqlen_{side}"] is not None:
            instead[f"max_seqlen_{side}"] = max(counts, default=0)
    return case.across(indices, **instead)


@row(PACKED, domains=_DOMAINS)
def the_order_of_sequences_does_not_matter(case: Case) -> Sum:
    """For every order of the sequences: each sequence gives the same result."""
    count = case.size("sequences")
    return [_of_sequences(case, case.choose.order(count))] if count > 1 else None


@row(PACKED, domains=_DOMAINS)
def a_sequence_gives_the_same_result_alone(case: Case) -> Sum:
    """For every sequence: it gives the same result alone, and so do all others without it. The
    gradient of the sinks is the sum of both.
    """
    count = case.size("sequences")
    if count < 2:
        return None
    alone = case.choose.integer(0, count - 1)
    return [_of_sequences(case, part) for part in ([alone], [b for b in range(count) if b != alone])]


@row(PACKED, domains=_DOMAINS)
def rows_that_no_sequence_uses_do_not_matter(case: Case) -> Sum:
    """For rows behind the last sequence, and rows that a sequence owns but does not use: without them
    the result is the same.
    """
    return [_of_sequences(case, range(case.size("sequences")))] if has_padding(case.arguments) else None


def _needs_exact_lengths(implementation: Implementation) -> str:
    if implementation.resolved_conventions.max_seqlen == "exact":
        return "It takes the exact lengths of the longest sequences (max_seqlen)."
    return "" if not implementation.lacks("max_seqlen_q") else implementation.lacks("max_seqlen_k")


@row(PACKED, domains=_DOMAINS, exempts=_needs_exact_lengths)
def a_larger_max_seqlen_changes_nothing(case: Case) -> Sum:
    """For every max_seqlen_q and max_seqlen_k: larger numbers give the same result."""
    given = {option: case.arguments[option] for option in ("max_seqlen_q", "max_seqlen_k")}
    surplus = case.choose.among([1, 8, 65, 128])
    return [Term(instead={option: value + surplus for option, value in given.items() if value is not None})]


@law(PACKED, needs=("attention",), domains=_DOMAINS)
def sequences_of_equal_lengths_equal_a_batch_of_attention(subject: Subject, *case: Any) -> bool:
    """For sequences of equal lengths: attention of the batch of these sequences, with the same
    options, gives the same result.
    """
    given = OPERATIONS[subject.operation].named(case)
    attention, all_lengths = OPERATIONS["attention"], lengths(given)
    n_q, n_k = max(all_lengths, key=all_lengths.count, default=(0, 0))
    members = [b for b, pair in enumerate(all_lengths) if pair == (n_q, n_k)]
    if not n_q:
        return False
    rows = np.array([rows_of(given, "q")[b] for b in members], int)
    sequences = [of_sequence(given, b, subject.conventions) for b in members]
    batch = {name: np.stack([each[name] for each in sequences]) for name in sequences[0]}
    shared = {option: given[option] for option in attention.options if option in given}
    arguments = tuple((dict.fromkeys(attention.parameters) | shared | batch).values())
    if not subject.implementation.takes(attention, arguments):
        return False
    out, lse = subject(*case)
    own_results = out.ball, Ball(lse.ball.mid.T, lse.ball.rad.T)
    for name, measured, other in zip(("out", "lse"), own_results, subject.attention(*arguments), strict=True):
        subject.close(measured[rows.ravel()], _by_rows(other.ball), name)
    return True


def _by_rows(batch: Ball) -> Ball:
    """Return the rows of a batch (sequences, heads, n, …) one behind the other, with heads inside."""
    return Ball(*(np.swapaxes(x, 1, 2).reshape(-1, x.shape[1], *x.shape[3:]) for x in (batch.mid, batch.rad)))


@law(PACKED, f"{PACKED}_vjp", domains=("many rows",), measures=True)
def row_numbers_beyond_16_bits_are_right(subject: Subject, *case: Any) -> None:
    """At more than 65536 rows of queries and of keys: the result is within its error limit."""
    subject(*case)
    subject.judge(len(subject.calls) - 1)
