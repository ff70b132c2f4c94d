"""Laws of the rotations by which rotary position embeddings turn: they keep norms, and their angles add up."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import Ball
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.pairs import both, conjugate, distance, dot, joined, lanes, moved, of, times, turned
from properties.strategies.arrays import numbers, rounded
from properties.strategies.positional import ANY_LENGTH, EVEN, rotary, shapes, starts
from properties.subject import Subject

law = Laws()


@both(
    law,
    "rope",
    cases=lambda i: rotary(i, lengths=ANY_LENGTH),
    kills="rope-tables-tiled",
    purpose="Turning is what rotations do, at every position.",
)
def pairs_keep_their_norm(subject: Subject, x: Any, start_pos: int) -> None:
    """For every x and start: the sum of a pair's squares is that of the pair before it was turned.

    Within budget.
    """
    where = lanes(subject.implementation, x.shape[-1])
    before, after = of(x, where), of(turned(subject, x, start_pos), where)
    subject.close(dot(after, after)[0], dot(before, before)[0], "norm²")


def _equal_rows(i: Implementation, rows: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """(some rows of shape (rows, head_dim), seq_len, start_pos): what is repeated in all rows of as many sequences."""

    def build(seq_len: int, head_dim: int) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.tuples(numbers(i, (rows, head_dim)), st.just(seq_len), starts(i))

    return shapes(i, "head_dim", (2, 3, 4, 5, 7), EVEN).flatmap(lambda size: build(*size))


def _in_every_row(subject: Subject, row: Any, seq_len: int) -> Any:
    """A row repeated, with as many leading axes of size 1 as are taken."""
    return np.tile(row, (*[1] * min(subject.implementation.batch_ranks), seq_len, 1))


@both(law, "rope", cases=lambda i: _equal_rows(i, 2), kills="rope-positions-in-sixteen-bits", purpose="What rotary embeddings are for.")
def scores_depend_on_relative_positions_only(subject: Subject, rows: Any, seq_len: int, start_pos: int) -> None:
    """For every query and key, the same in every row, and every start to 2²⁰: what a pair of lanes adds to a score depends on m − n only.

    So scores are constant along diagonals, and those at the start are those at 0. Within budget.
    """
    where = lanes(subject.implementation, rows.shape[-1])

    def products(start: int) -> Ball:
        q, k = (of(turned(subject, _in_every_row(subject, row, seq_len), start), where) for row in rows)
        (a, b), (c, d) = q, k
        return a[..., :, None, :] * c[..., None, :, :] + b[..., :, None, :] * d[..., None, :, :]

    scores = products(start_pos)
    subject.close(scores[..., 1:, 1:, :], scores[..., :-1, :-1, :], "scores")
    subject.close(scores, products(0), "scores")


@both(
    law,
    "rope",
    cases=lambda i: _equal_rows(i, 1),
    kills="rope-table-ends-at-4096",
    purpose="Tables that end, wrap or lose bits show where a step is no step.",
)
def consecutive_positions_differ_by_one_fixed_rotation(subject: Subject, rows: Any, seq_len: int, start_pos: int) -> None:
    """For every start to 2²⁰: of equal rows each is the one before, turned by what position 1 is turned by.

    Within budget.
    """
    dim = rows.shape[-1]
    where = lanes(subject.implementation, dim)
    ones = joined(np.ones(dim // 2), np.zeros(dim // 2), where)
    cos, sin = of(turned(subject, _in_every_row(subject, ones, seq_len), 0), where)
    first, second = of(turned(subject, _in_every_row(subject, rows[0], seq_len), start_pos), where)
    expected = times((first[..., :-1, :], second[..., :-1, :]), (cos[..., 1:2, :], sin[..., 1:2, :]))
    subject.close(first[..., 1:, :], expected[0], "first lanes")
    subject.close(second[..., 1:, :], expected[1], "second lanes")


def _composed(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def again(x: Any, start_pos: int) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.tuples(st.just(x), st.just(start_pos), starts(i, reach=start_pos))

    return rotary(i, lengths=(1,)).flatmap(lambda case: again(*case))


@both(
    law,
    "rope",
    cases=_composed,
    purpose="Angles add up, whatever they are.",
)
def rotations_compose(subject: Subject, x: Any, start_pos: int, further: int) -> None:
    """For every two positions: one row turned by the first and then by the second is the row turned by their sum.

    Within budget; the error of what is turned a second time is turned with it.
    """
    i = subject.implementation
    where = lanes(i, x.shape[-1])
    once = turned(subject, x, start_pos)
    between = rounded(once.value, i.rounding.inputs)
    first, second = of(distance(between, once.ball), where)
    twice = (moved(part, first + second) for part in of(turned(subject, between, further), where))
    for name, actual, expected in zip(
        ("first lanes", "second lanes"), of(turned(subject, x, start_pos + further), where), twice, strict=True
    ):
        subject.close(actual, expected, name)


@law(
    "rope_vjp",
    cases=lambda i: rotary(i, lengths=ANY_LENGTH),
    needs=("rope",),
    kills="rope-vjp-rows-count-within-blocks",
    purpose="The transpose of a rotation is its inverse.",
)
def the_rope_vjp_turns_back(subject: Subject, x: Any, start_pos: int) -> None:
    """For every cotangent: reflected before and after, in the second lane of each pair, the gradient is what rope makes of it.

    For a rotation's transpose turns by minus its angle. Within budget.
    """
    where = lanes(subject.implementation, x.shape[-1])
    reflected = x.copy()
    reflected[..., where[1]] *= -1
    back = of(turned(subject, x, start_pos), where)
    for name, actual, expected in zip(
        ("first lanes", "second lanes"), conjugate(back), of(subject.rope(reflected, start_pos), where), strict=True
    ):
        subject.close(actual, expected, name)
