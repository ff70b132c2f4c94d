"""Laws of the quarter turn of all pairs of lanes (i, i + d/2): (−second half, first half)."""

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import exact
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.conduct import empty
from properties.laws.pairs import Places, dot, lanes, of
from properties.strategies.arrays import UnsupportedError, numbers
from properties.strategies.positional import ANY_LENGTH, halves, has_width, shapes_of_sequences
from properties.subject import Subject

law = Laws()
HALF = "rotate_half"


def _halves(dim: int) -> Places:
    """The two halves of the lanes."""
    return slice(0, dim // 2), slice(dim // 2, None)


@law(HALF, cases=partial(halves, lengths=ANY_LENGTH), agreement=True)
def rotate_half_is_the_negated_second_half_and_the_first(subject: Subject, x: Any) -> None:
    """For every x of even width and length to 1100: lane i becomes minus lane i + d/2, and lane i + d/2 becomes lane i.

    Exact, where the output's format has all numbers of the inputs'.
    """
    subject.within(subject(x))


@law(HALF, cases=halves, kills="rotate-half-without-minus", purpose="A quarter turn twice is half a turn.")
def two_quarter_turns_negate(subject: Subject, x: Any) -> None:
    """For every x: turned twice, it is −x.

    Within budget, which is 0 where the output's format has all numbers of the inputs'.
    """
    once = subject(x)
    subject.close(subject(once.value), -x)


def _basis(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    found = [d for d in (2, 4, 6, 8, 16, 32) if i.allows(seq_len=d) and has_width(i, "head_dim", d)]
    if not found:
        raise UnsupportedError(f"{i.name} supports no sequence as long as it is wide, among those tried.")
    return st.tuples(st.sampled_from(found))


@law(HALF, cases=_basis, kills="rotate-half-turns-backwards", purpose="It shows where each lane goes, and with which sign.")
def one_hot_rows_read_out_the_quarter_turn(subject: Subject, dim: int) -> None:
    """For every even width d: the row that is 1 in lane i becomes 1 in lane i + d/2, and the one that is 1 in lane i + d/2 −1 in lane i.

    Exact: 0, 1 and −1 are numbers of every format.
    """
    lead = (1,) * min(subject.implementation.batch_ranks)
    one, none = np.eye(dim // 2), np.zeros((dim // 2,) * 2)
    subject.same(subject(np.eye(dim).reshape(*lead, dim, dim)), np.block([[none, one], [-one, none]]).reshape(*lead, dim, dim))


@law(HALF, cases=halves, kills="rotate-half-copies-the-second", purpose="Turning keeps what is turned.")
def pairs_keep_their_norm(subject: Subject, x: Any) -> None:
    """For every x: the sum of the squares of lanes i and i + d/2 is what it was before.

    Within budget.
    """
    before, after = (of(part, _halves(x.shape[-1])) for part in (x, subject(x)))
    subject.close(dot(after, after)[0], dot(before, before)[0], "norm²")


def _kept(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def build(x: Any) -> st.SearchStrategy[tuple[Any, ...]]:
        pairs = x.shape[-1] // 2
        return st.tuples(st.just(x), numbers(i, x.shape), st.integers(0, pairs - 1))

    return halves(i, lengths=ANY_LENGTH).flatmap(lambda case: build(*case))


@law(HALF, cases=_kept, kills="rotate-half-of-adjacent-lanes", purpose="A lane meets the one that is half the width away, and no other.")
def pairs_are_turned_by_themselves(subject: Subject, x: Any, other: Any, pair: int) -> None:
    """For every x: whatever stands in the other lanes, the lanes `pair` and `pair` + d/2 come out the same.

    Within budget, which is 0 where the output's format has all numbers of the inputs'.
    """
    mine = np.arange(x.shape[-1]) % (x.shape[-1] // 2) == pair
    subject.close(subject(np.where(mine, x, other)).ball[..., mine], subject(x).ball[..., mine])


def _with_tables(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    def build(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.tuples(numbers(i, shape), *[numbers(i, shape[-2:], target=i.rounding.angle.table)] * 2)

    return shapes_of_sequences(i).flatmap(build)


@law(HALF, cases=_with_tables, needs=("apply_rotary",), purpose="It is what rotary embeddings are written with.")
def apply_rotary_is_written_with_rotate_half(subject: Subject, x: Any, cos: Any, sin: Any) -> None:
    """For every x and tables, of rotations or not: x ⊙ cos + rotate_half(x) ⊙ sin is `apply_rotary`, where its pairs are the halves' lanes;
    adjacent pairs are brought to the halves, and back.

    Within budget.
    """
    where = lanes(subject.implementation, x.shape[-1])
    order = np.concatenate([np.arange(x.shape[-1])[lane] for lane in where])
    turned = exact(x[..., order]) * exact(cos[:, order]) + subject(x[..., order]).ball * exact(sin[:, order])
    subject.close(subject.apply_rotary(x, cos, sin).ball[..., order], turned)


def _empty(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    lead = (1,) * min(i.batch_ranks)
    found = [shape for shape in ((0, 2), (2, 0), (0, 0)) if i.allows(seq_len=shape[0], head_dim=shape[1])]
    if not found:
        raise UnsupportedError(f"{i.name} supports no size of 0.")
    return st.sampled_from(found).map(lambda shape: (np.zeros((*lead, *shape)),))


@law(HALF, cases=_empty, effort=0.2, kills="rotate-half-no-lanes-raises")
def without_rows_or_lanes_nothing_is_turned(subject: Subject, x: Any) -> None:
    """For a sequence without rows, or rows without lanes: the result has the shape of x, and no entries. Exact."""
    empty(subject, subject(x))
