"""Laws of turning by given tables, which need not be rotations, and of its gradient."""

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import exact
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.conduct import empty
from properties.laws.pairs import both, distance, joined, lanes, moved, of, turned
from properties.strategies.arrays import Draw, UnsupportedError, fixed_points, numbers, rounded
from properties.strategies.positional import (
    ANY_LENGTH,
    LONG,
    chunks,
    rotary,
    rotary_tables,
    rotary_tables_vjp,
    shapes_of_sequences,
    small_tables,
)
from properties.subject import Subject

law = Laws()
_CASES = {"apply_rotary": rotary_tables, "apply_rotary_vjp": rotary_tables_vjp}


@both(law, "apply_rotary", cases=_CASES, agreement=True)
def apply_rotary_is_within_its_budget(subject: Subject, *arguments: Any) -> None:
    """For every x of even width and all tables, of rotations or not: the result is x ⊙ cos + rotated(x) ⊙ sin; its gradient the transpose.

    Within budget.
    """
    subject.within(subject(*arguments))


@both(law, "apply_rotary", cases={o: partial(c, lengths=LONG, widths=(2, 4, 8, 32)) for o, c in _CASES.items()}, agreement=True)
def apply_rotary_is_within_its_budget_over_long_sequences(subject: Subject, *arguments: Any) -> None:
    """For every length to 1100: each row is turned by its row of the tables.

    Within budget.
    """
    subject.within(subject(*arguments))


def _two_inputs(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def build(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
        tables = [numbers(i, shape[-2:], target=i.rounding.angle.table)] * 2
        return st.tuples(fixed_points(i, shape), fixed_points(i, shape), *tables)

    return shapes_of_sequences(i).flatmap(build)


@both(law, "apply_rotary", cases=_two_inputs, purpose="Turning multiplies by numbers that do not depend on x.")
def turning_is_linear(subject: Subject, x: Any, y: Any, cos: Any, sin: Any) -> None:
    """For every x and y whose difference is exact: turning x − y is turning x, minus turning y.

    Within budget.
    """
    subject.close(turned(subject, x - y, cos, sin), turned(subject, x, cos, sin).ball - turned(subject, y, cos, sin).ball)


def _two_tables(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return shapes_of_sequences(i).flatmap(lambda shape: st.tuples(numbers(i, shape), *[small_tables(i, shape[-2:])] * 4))


@both(
    law,
    "apply_rotary",
    cases=_two_tables,
    kills="apply-rotary-keeps-the-first-tables",
    purpose="Tables are inputs as well, and read anew by each call.",
)
def turning_is_linear_in_the_tables(subject: Subject, x: Any, cos: Any, sin: Any, less_cos: Any, less_sin: Any) -> None:
    """For every two pairs of tables whose differences are exact: their difference turns x to the difference of what they turn it to.

    Within budget.
    """
    difference = turned(subject, x, cos, sin).ball - turned(subject, x, less_cos, less_sin).ball
    subject.close(turned(subject, x, cos - less_cos, sin - less_sin), difference)


@both(law, "apply_rotary", cases=_CASES, purpose="What a cosine does, and a sine, can be told apart.")
def without_sines_lanes_are_multiplied_by_cosines(subject: Subject, *arguments: Any) -> None:
    """For every x and cosines: with sines of 0 each lane comes out times its own cosine.

    Within budget.
    """
    x, cos = arguments[:2]
    subject.close(turned(subject, x, cos, np.zeros(cos.shape)), exact(x) * exact(cos))


@both(
    law, "apply_rotary", cases=_CASES, kills="apply-rotary-sine-before-rotation", purpose="It shows each sign and each partner by itself."
)
def without_cosines_lanes_are_exchanged(subject: Subject, *arguments: Any) -> None:
    """For every x and sines: with cosines of 0 a pair (a, b) comes out as (−b·sin₁, a·sin₂), and its gradient as (b·sin₂, −a·sin₁).

    Within budget.
    """
    x, _, sin = arguments[:3]
    where = lanes(subject.implementation, x.shape[-1])
    (a, b), (sin_a, sin_b) = of(x, where), of(sin, where)
    first, second = of(turned(subject, x, np.zeros(sin.shape), sin), where)
    forward = subject.operation == "apply_rotary"
    subject.close(first, -(b * sin_a) if forward else b * sin_b, "first lanes")
    subject.close(second, a * sin_b if forward else -(a * sin_a), "second lanes")


@law(
    "apply_rotary_vjp",
    cases=rotary_tables_vjp,
    needs=("apply_rotary",),
    kills="rope-vjp-sin-after-rotate",
    purpose="It needs no oracle, and tables that are no rotations.",
)
def apply_rotary_and_its_vjp_are_adjoint(subject: Subject, x: Any, cos: Any, sin: Any, grad_out: Any) -> None:
    """For every x, cotangent and tables, of rotations or not: ⟨g, turned x⟩ = ⟨gradient of g, x⟩, and so pair by pair.

    Within budget.
    """
    where = lanes(subject.implementation, x.shape[-1])
    out, dx = of(subject.apply_rotary(x, cos, sin), where), of(subject(x, cos, sin, grad_out), where)
    g, t = of(grad_out, where), of(x, where)
    subject.close(g[0] * out[0] + g[1] * out[1], dx[0] * t[0] + dx[1] * t[1], "⟨g, out⟩")


def _pairs_kept(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    @st.composite
    def build(draw: Draw, x: Any, cos: Any, sin: Any) -> tuple[Any, ...]:
        one = np.arange(x.shape[-1] // 2) == draw(st.integers(0, x.shape[-1] // 2 - 1))
        return x, cos, sin, one if draw(st.booleans()) else ~one

    return rotary_tables(i, lengths=ANY_LENGTH).flatmap(lambda case: build(*case))


@both(law, "apply_rotary", cases=_pairs_kept, purpose="A pair meets its own lanes and its own entries of the tables.")
def pairs_are_turned_by_themselves(subject: Subject, x: Any, cos: Any, sin: Any, kept: Any) -> None:
    """For every x and tables: with some pairs of lanes set to zero, their tables too, these come out as zeros, and the others as before.

    Informative from two pairs on. Exact for zeros, else within budget.
    """
    subject.informative_if(len(kept) > 1)
    where = lanes(subject.implementation, x.shape[-1])
    lane_kept = joined(kept, kept, where).astype(bool)
    some = turned(subject, *(np.where(lane_kept, part, 0.0) for part in (x, cos, sin)))
    subject.same(some.value[..., ~lane_kept], np.zeros((*x.shape[:-1], int((~lane_kept).sum()))), "lanes of zeros")
    subject.close(some.ball[..., lane_kept], turned(subject, x, cos, sin).ball[..., lane_kept])


def _cut(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    lead, target = (1,) * min(i.batch_ranks), i.rounding.angle.table

    def build(n: int, dim: int, start_pos: int, cut: int) -> st.SearchStrategy[tuple[Any, ...]]:
        tables = [numbers(i, (n, dim), target=target)] * 2
        return st.tuples(numbers(i, (*lead, n, dim)), *tables, st.just(cut))

    return chunks(i, "head_dim").flatmap(lambda case: build(*case))


@both(
    law,
    "apply_rotary",
    cases=_cut,
    kills="apply-rotary-square-tables-transposed",
    purpose="Row p of the tables is for position p, also where tables are square.",
)
def rows_are_turned_by_their_own_row_of_the_tables(subject: Subject, x: Any, cos: Any, sin: Any, cut: int) -> None:
    """For every sequence to 1100 rows, cut in two anywhere, and its tables with it: the parts are turned as in the whole.

    Within budget.
    """
    whole = turned(subject, x, cos, sin).ball
    subject.close(turned(subject, x[..., :cut, :], cos[:cut], sin[:cut]), whole[..., :cut, :])
    subject.close(turned(subject, x[..., cut:, :], cos[cut:], sin[cut:]), whole[..., cut:, :])


@law("apply_rotary", cases=rotary, needs=("rope",), purpose="Two ways to one result: their angles, pairings and signs are the same.")
def rope_is_turning_by_its_own_tables(subject: Subject, x: Any, start_pos: int) -> None:
    """For every x and start: with tables of the cosines and sines to which rope turns ones, x is turned as by rope.

    Within budget; the errors of the tables' entries are multiplied by the lanes that they meet.
    """
    i = subject.implementation
    where, target = lanes(i, x.shape[-1]), i.rounding.angle.table
    n, half = x.shape[-2], x.shape[-1] // 2
    lead = (1,) * min(i.batch_ranks)
    ones = np.tile(joined(np.ones(half), np.zeros(half), where), (*lead, n, 1))
    found = [part[(0,) * len(lead)] for part in of(subject.rope(ones, start_pos), where)]
    tables = [rounded(part.mid, target) for part in found]
    cos_error, sin_error = (distance(table, part) for table, part in zip(tables, found, strict=True))
    out = of(turned(subject, x, *(joined(table, table, where) for table in tables)), where)
    a, b = of(np.abs(x), where)
    errors = a * cos_error + b * sin_error, b * cos_error + a * sin_error
    for lane, expected, error in zip(out, of(subject.rope(x, start_pos), where), errors, strict=True):
        subject.close(lane, moved(expected, error))


def _empty(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    lead = (1,) * min(i.batch_ranks)
    found = [shape for shape in ((0, 2), (2, 0), (0, 0), (0, 8)) if i.allows(seq_len=shape[0], head_dim=shape[1])]
    if not found:
        raise UnsupportedError(f"{i.name} supports no size of 0.")
    return st.sampled_from(found).map(lambda shape: (np.zeros((*lead, *shape)),))


@both(law, "rope", cases=_empty, effort=0.2, purpose="Sizes of 0 are legal, and have their own law.")
@both(law, "apply_rotary", cases=_empty, effort=0.2, purpose="Sizes of 0 are legal, and have their own law.")
def without_rows_or_lanes_nothing_is_turned(subject: Subject, x: Any) -> None:
    """For a sequence without rows, or rows without lanes: the result has the shape of x, and no entries. Exact."""
    tables = (x.reshape(x.shape[-2:]),) * 2
    more: dict[str, tuple[Any, ...]] = {"rope": (0,), "rope_vjp": (x, 0), "apply_rotary": tables, "apply_rotary_vjp": (*tables, x)}
    empty(subject, subject(x, *more[subject.operation]))
