"""Laws of rotary position embeddings and of their gradients: which lanes they turn, and that they turn each row by itself."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.pairs import both, joined, lanes, turned
from properties.strategies.arrays import Draw, numbers
from properties.strategies.positional import ANY_LENGTH, LONG, chunks, exact_rows, rotary, rotary_vjp
from properties.subject import Subject

law = Laws()


def _near(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return rotary(i, positions=st.integers(0, 64))


def _near_vjp(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return rotary_vjp(i, positions=st.integers(0, 64))


@both(law, "rope", cases={"rope": _near, "rope_vjp": _near_vjp}, agreement=True, lean="Spec.ropeApplySpec")
def rope_is_within_its_budget(subject: Subject, *arguments: Any) -> None:
    """For every x of even width and start to 64: the pair i of row p is turned by (start + p)·base^(−2i/d); its gradient is turned back.

    Within budget.
    """
    subject.within(subject(*arguments))


@both(law, "rope", cases={"rope": rotary, "rope_vjp": rotary_vjp}, agreement=True)
def rope_is_within_its_budget_at_long_positions(subject: Subject, *arguments: Any) -> None:
    """For every start to 2²⁰, across powers of two above all: pairs are turned by the angles of their positions.

    Within budget.
    """
    subject.within(subject(*arguments))


def _long(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return rotary(i, lengths=LONG, widths=(2, 4, 8, 32))


def _long_vjp(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return rotary_vjp(i, lengths=LONG, widths=(2, 4, 8, 32))


@both(law, "rope", cases={"rope": _long, "rope_vjp": _long_vjp}, agreement=True)
def rope_is_within_its_budget_over_long_sequences(subject: Subject, *arguments: Any) -> None:
    """For every length to 1100: pairs are turned by the angles of their positions, in the last row as in the first.

    Within budget.
    """
    subject.within(subject(*arguments))


@both(law, "rope", cases=lambda i: rotary(i, lengths=ANY_LENGTH, positions=st.just(0)), purpose="Whoever counts positions from 1 turns it.")
def position_zero_is_the_identity(subject: Subject, x: Any, start_pos: int) -> None:
    """For every x from position 0 on: its first row comes back as it is.

    Within budget.
    """
    subject.close(turned(subject, x, start_pos).ball[..., 0, :], x[..., 0, :])


@both(law, "rope", cases=lambda i: exact_rows(i, 2, lengths=ANY_LENGTH), purpose="Turning multiplies by numbers that do not depend on x.")
def rope_is_linear(subject: Subject, x: Any, y: Any, start_pos: int) -> None:
    """For every x and y whose difference is exact: turning x − y is turning x, minus turning y.

    Within budget.
    """
    difference = turned(subject, x, start_pos).ball - turned(subject, y, start_pos).ball
    subject.close(turned(subject, x - y, start_pos), difference)


def _pairs_kept(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    @st.composite
    def build(draw: Draw, x: Any, start_pos: int) -> tuple[Any, ...]:
        pairs = x.shape[-1] // 2
        one = draw(st.integers(0, pairs - 1))
        kept = np.arange(pairs) == one
        return x, start_pos, kept if draw(st.booleans()) else ~kept

    return rotary(i, lengths=ANY_LENGTH).flatmap(lambda case: build(*case))


@both(law, "rope", cases=_pairs_kept, kills="rope-half-split-pairs", purpose="It shows which lanes are pairs.")
def rope_turns_each_pair_by_itself(subject: Subject, x: Any, start_pos: int, kept: Any) -> None:
    """For every x: with some pairs of lanes set to zero these come out as zeros, and the others as before.

    Informative from two pairs on. Exact for zeros, else within budget.
    """
    subject.informative_if(len(kept) > 1)
    where = lanes(subject.implementation, x.shape[-1])
    lane_kept = joined(kept, kept, where).astype(bool)
    some = turned(subject, np.where(lane_kept, x, 0.0), start_pos)
    subject.same(some.value[..., ~lane_kept], np.zeros((*x.shape[:-1], int((~lane_kept).sum()))), "lanes of zeros")
    subject.close(some.ball[..., lane_kept], turned(subject, x, start_pos).ball[..., lane_kept])


def _cut(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    lead = (1,) * min(i.batch_ranks)

    def build(n: int, dim: int, start_pos: int, cut: int) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.tuples(numbers(i, (*lead, n, dim)), st.just(start_pos), st.just(cut))

    return chunks(i, "head_dim").flatmap(lambda case: build(*case))


@both(law, "rope", cases=_cut, kills="rope-decodes-at-zero")
def a_chunk_is_the_slice_of_the_whole(subject: Subject, x: Any, start_pos: int, cut: int) -> None:
    """For every sequence to 1100 rows, cut in two anywhere, after one row or before one too: the parts are turned as in the whole.

    Half of the chunks of one sequence have the same shape, but start elsewhere. Within budget.
    """
    first = turned(subject, x[..., :cut, :], start_pos)
    second = turned(subject, x[..., cut:, :], start_pos + cut)
    whole = turned(subject, x, start_pos).ball
    subject.close(first, whole[..., :cut, :])
    subject.close(second, whole[..., cut:, :])


def _two_batches(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    @st.composite
    def build(draw: Draw, x: Any, start_pos: int) -> tuple[Any, ...]:
        return x, draw(numbers(i, x.shape)), start_pos, tuple(draw(st.integers(0, n - 1)) for n in x.shape[:-2])

    return rotary(i, rank=1).flatmap(lambda case: build(*case))


@both(law, "rope", cases=_two_batches, purpose="What is summed or shared over heads, or read from the wrong one, shows in all of them.")
def heads_do_not_depend_on_each_other(subject: Subject, x: Any, others: Any, start_pos: int, head: tuple[int, ...]) -> None:
    """For every batch and one element of it: whatever the other elements are, it is turned the same.

    Informative from two elements on. Exact for an implementation that declares to be deterministic, else within budget.
    """
    subject.informative_if(x[..., 0, 0].size > 1)
    changed = others.copy()
    changed[head] = x[head]
    a, b = turned(subject, x, start_pos), turned(subject, changed, start_pos)
    if subject.implementation.deterministic:
        subject.same(a.value[head], b.value[head])
    else:
        subject.close(a.ball[head], b.ball[head])


@law("rope_vjp", cases=rotary_vjp, purpose="Rope is linear: its gradient does not depend on where it is taken.")
def the_gradient_does_not_depend_on_x(subject: Subject, x: Any, grad_out: Any, start_pos: int) -> None:
    """For every cotangent: its gradient is the same for all x.

    Exact for an implementation that declares to be deterministic, else within budget.
    """
    a, b = subject(x, grad_out, start_pos), subject(np.zeros(x.shape), grad_out, start_pos)
    (subject.same if subject.implementation.deterministic else subject.close)(a, b)
