"""Laws of attention without queries, without keys, and with more queries than a causal mask has keys for."""

from typing import Any

import numpy as np

from oracles.ball import Array
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.results import RaisedError
from properties.contract.subject import Subject
from properties.laws.averages import dead_rows_follow_their_convention, mean
from properties.laws.law import Laws
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


def _unless_refused(subject: Subject, arguments: tuple[Any, ...]) -> list[tuple[str, Array]]:
    """The results of a call by their names, none where it is refused by an exception that is
    declared.

    The call is not kept: oracles that refuse it too answer for nothing.
    """
    o = OPERATIONS[subject.operation]
    try:
        values, *_ = subject.run(o, arguments)
    except RaisedError as raised:
        if isinstance(raised.__cause__, subject.implementation.refuses):
            return []
        raise
    return list(zip(o.returned(arguments), values, strict=True))


@law(*_EVERY, "attention", "attention_vjp", "attention_jvp", domains=("no queries",))
def without_queries_there_is_nothing_to_return(subject: Subject, *arguments: Any) -> bool:
    """For every case without queries: the output has no rows, and gradients of keys, values and all
    that is shared are 0.

    Exact. It may be refused, by an exception that is declared, as the definitions refuse it.
    """
    found = _unless_refused(subject, arguments)
    for name, value in found:
        subject.same(value, np.zeros(value.shape), name)
    return bool(found)


def _of_nothing(i: Implementation) -> str:
    return "The mean of no values is no number." if i.resolved_conventions.dead_rows == "uniform" else ""


@law(*_EVERY, domains=("without keys",), exempts=_of_nothing)
def without_keys_every_row_is_fully_masked(subject: Subject, *arguments: Any) -> bool:
    """For every case without keys: rows of the output, or of its derivative, are 0, or NaN, by the
    convention for fully masked rows. Gradients of keys and values have no entries; that of the
    queries is 0, and may be anything for `nan`.

    Exact. It may be refused, by an exception that is declared, as the definitions refuse it; it
    exempts the convention `uniform`.
    """
    o, blank = OPERATIONS[subject.operation], subject.conventions.dead_rows == "nan"
    found = _unless_refused(subject, arguments)
    for name, value in found:
        if not (blank and o.name.endswith("vjp")):
            subject.same(value, np.full(value.shape, np.nan if blank else 0.0), name)
    return bool(found)


def _first(i: Implementation) -> str:
    return "Its first query reads the first key." if i.resolved_conventions.causal == "top_left" else ""


def _last(i: Implementation) -> str:
    return "Its last query reads the last key." if i.resolved_conventions.causal == "bottom_right" else ""


@law(CAUSAL, domains=("more queries than keys",), exempts=_first)
def queries_before_the_first_key_are_fully_masked(subject: Subject, q: Any, k: Any, v: Any) -> bool:
    """For more queries than keys, aligned at the last: as many of the first queries as there are
    more follow the convention for fully masked rows. The others have what they have by themselves.

    Exact for 0 and NaN, else within budget.
    """
    early = q.shape[-2] - k.shape[-2]
    if early < 1:
        return False
    out, dead = subject(q, k, v), np.broadcast_to(np.arange(q.shape[-2]) < early, q.shape[:-1])
    dead_rows_follow_their_convention(subject, out, dead, mean(v, np.ones((*q.shape[:-1], k.shape[-2]), bool)))
    subject.close(out.ball[..., early:, :], subject(q[..., early:, :], k, v))
    return True


@law(CAUSAL, domains=("more queries than keys",), exempts=_last)
def queries_past_the_last_key_see_all_keys(subject: Subject, q: Any, k: Any, v: Any, choose: Choices) -> bool:
    """For more queries than keys, aligned at the first: a query past the last key has what it has
    in the place of that key.
    """
    n, n_q = k.shape[-2], q.shape[-2]
    if n_q <= n:
        return False
    row, moved = choose.integer(n, n_q - 1), q.copy()
    moved[..., n - 1, :] = q[..., row, :]
    subject.close(subject(q, k, v).ball[..., row, :], subject(moved, k, v).ball[..., n - 1, :])
    return True
