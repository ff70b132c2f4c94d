"""Laws of attention without queries or without keys, and of causal attention with more queries than
keys.
"""

from typing import Any

import numpy as np

from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.expected_values import check_fully_masked_rows, mean_of_visible
from properties.laws.law import Laws
from properties.laws.refusals import results_unless_refused
from properties.strategies.choices import Choices

__all__ = ["law"]

law = Laws()
CAUSAL = "causal_attention"
_PLAIN = (
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_vjp",
    "scaled_dot_product_attention_jvp",
    CAUSAL,
)
_EVERY = (*_PLAIN, "grouped_query_attention")


@law(*_EVERY, "attention", "attention_vjp", "attention_jvp", domains=("no queries",), exact=True)
def without_queries_the_output_is_empty_and_gradients_are_0(subject: Subject, *arguments: Any) -> bool:
    """For every test input without queries: the output has no rows, and the gradients of keys,
    values and shared arrays are 0.

    The call may be refused by a declared exception, as the definitions refuse it.
    """
    found = results_unless_refused(subject, arguments)
    for name, value in found:
        subject.same(value, np.zeros(value.shape), name)
    return bool(found)


def _mean_of_nothing(implementation: Implementation) -> str:
    return (
        "The mean of no values is not a number." if implementation.resolved_conventions.dead_rows == "uniform" else ""
    )


@law(*_EVERY, domains=("without keys",), exempts=_mean_of_nothing, exact=True)
def without_keys_every_row_is_fully_masked(subject: Subject, *arguments: Any) -> bool:
    """For every test input without keys: rows of the output, or of its derivative, are 0 or NaN, by
    the convention `dead_rows`.

    The gradients of keys and values have no entries. The gradient of the queries is 0; for `nan` it
    may be anything. The call may be refused by a declared exception, as the definitions refuse it.
    The convention `uniform` is exempt.
    """
    operation, blank = OPERATIONS[subject.operation], subject.conventions.dead_rows == "nan"
    found = results_unless_refused(subject, arguments)
    for name, value in found:
        if not (blank and operation.name.endswith("vjp")):
            subject.same(value, np.full(value.shape, np.nan if blank else 0.0), name)
    return bool(found)


def _aligned_at_the_first_key(implementation: Implementation) -> str:
    return "Its first query sees the first key." if implementation.resolved_conventions.causal == "top_left" else ""


def _aligned_at_the_last_key(implementation: Implementation) -> str:
    return "Its last query sees the last key." if implementation.resolved_conventions.causal == "bottom_right" else ""


@law(CAUSAL, domains=("more queries than keys",), exempts=_aligned_at_the_first_key, exact="for 0 and NaN")
def queries_before_the_first_key_are_fully_masked(subject: Subject, q: Any, k: Any, v: Any) -> bool:
    """For more queries than keys, aligned at the last key: the n_q − n_k first queries follow the
    convention `dead_rows` for fully masked rows.

    The other queries have the outputs that they have without the first queries.
    """
    early = q.shape[-2] - k.shape[-2]
    if early < 1:
        return False
    found, masked_rows = subject(q, k, v), np.broadcast_to(np.arange(q.shape[-2]) < early, q.shape[:-1])
    average = mean_of_visible(v, np.ones((*q.shape[:-1], k.shape[-2]), bool))
    check_fully_masked_rows(subject, found, masked_rows, average)
    subject.close(found.ball[..., early:, :], subject(q[..., early:, :], k, v))
    return True


@law(CAUSAL, domains=("more queries than keys",), exempts=_aligned_at_the_last_key)
def queries_past_the_last_key_see_all_keys(subject: Subject, q: Any, k: Any, v: Any, choose: Choices) -> bool:
    """For more queries than keys, aligned at the first key: a query past the last key has the
    output that it has at the position of the last key.
    """
    keys, n_q = k.shape[-2], q.shape[-2]
    if n_q <= keys:
        return False
    row, moved = choose.integer(keys, n_q - 1), q.copy()
    moved[..., keys - 1, :] = q[..., row, :]
    subject.close(subject(q, k, v).ball[..., row, :], subject(moved, k, v).ball[..., keys - 1, :])
    return True
