"""Laws of rotations of pairs of channels: by a position, by tables, by a right angle, and back."""

from typing import Any

import numpy as np

from oracles.ball import Ball, exact
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.laws.pairs import channels, close, distance, first_position, moved, of, position, rotated, what_rotates
from properties.laws.reading import by_name
from properties.strategies.choices import Choices, rounded
from properties.strategies.domains import ROTATIONS

law = Laws()
_ROPE, _TABLES, _HALF = ("rope", "rope_vjp"), ("apply_rotary", "apply_rotary_vjp"), "rotate_half"


@law(*_ROPE)
def position_zero_is_the_identity(subject: Subject, *arguments: Any) -> None:
    """For every x from position 0 on: its first row comes back as it is."""
    x = what_rotates(subject, arguments)
    subject.close(rotated(subject, x, 0).ball[..., 0, :], x[..., 0, :])


@law(*_ROPE, _HALF)
def pairs_keep_their_norm(subject: Subject, *arguments: Any) -> None:
    """For every x: the sum of a pair's squares is what it was before it was rotated."""
    x = what_rotates(subject, arguments)
    half = x.shape[-1] // 2
    where = (
        (slice(0, half), slice(half, None))
        if subject.operation == _HALF
        else channels(subject.implementation, 2 * half)
    )
    (a, b), (c, d) = (of(part, where) for part in (x, subject(*arguments)))
    subject.close(c * c + d * d, a * a + b * b, "norm²")


@law(*_ROPE)
def scores_depend_on_relative_positions_only(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every query and key, the same in every row, and every distance between two positions:
    what a pair of channels adds to the score is the same at all positions, as at the first ones."""
    x, start_pos = what_rotates(subject, arguments), first_position(subject, arguments)
    n = x.shape[-2]
    if n < 2:
        return False
    apart, where = choose.among([1, n - 1, choose.integer(1, n - 1)]), channels(subject.implementation, x.shape[-1])

    def scores(start: int) -> Ball:
        (a, b), (c, d) = (
            of(rotated(subject, np.repeat(x[..., [row], :], n, axis=-2), start), where) for row in (0, -1)
        )
        return a[..., apart:, :] * c[..., :-apart, :] + b[..., apart:, :] * d[..., :-apart, :]

    subject.close(scores(start_pos), scores(0)[..., np.zeros(n - apart, int), :], "scores")
    return True


@law(*_ROPE)
def rotations_compose(subject: Subject, *arguments: Any, choose: Choices) -> None:
    """For every two positions: the first row, rotated by the one and then by the other, is rotated
    by their sum.

    Within budget; the error of what is rotated a second time is rotated with it.
    """
    x, start_pos, i = what_rotates(subject, arguments), first_position(subject, arguments), subject.implementation
    further, where = position(i, choose, start_pos), channels(i, x.shape[-1])
    once = rotated(subject, x, start_pos)
    between = rounded(once.value, i.resolved_arithmetic.inputs)
    first, second = of(distance(between, once.ball), where)
    twice = (moved(part, first + second)[..., 0, :] for part in of(rotated(subject, between, further), where))
    close(subject, of(rotated(subject, x, start_pos + further).ball[..., 0, :], where), twice)


@law("rope_vjp", needs=("rope",), domains=("everyday", ROTATIONS))
@law("apply_rotary_vjp", needs=("apply_rotary",))
def it_is_the_adjoint_of_its_forward(subject: Subject, *arguments: Any) -> None:
    """For every x, cotangent g and rotation, by any tables too: ⟨g, rotated x⟩ = ⟨gradient of g, x⟩, pair by pair."""
    given, forward = by_name(subject, arguments), OPERATIONS[subject.operation].forward
    out = subject.call(forward, tuple(given[p] for p in OPERATIONS[forward].parameters))
    x, g = exact(given["x"]), exact(given["grad_out"])
    width = given.get("rotary_dim") or given["x"].shape[-1]
    several = (part[..., :width] for part in (g, out.ball, subject(*arguments).ball, x))
    (a, b), (c, d), (p, q), (r, s) = (of(part, channels(subject.implementation, width)) for part in several)
    subject.close(a * c + b * d, p * r + q * s, "⟨g, out⟩")


@law(*_TABLES)
def with_cosines_of_zero_channels_are_exchanged(subject: Subject, *arguments: Any) -> None:
    """For every x and sines: with cosines of 0 a pair (a, b) becomes (−b·sin₁, a·sin₂), and its
    gradient (b·sin₂, −a·sin₁).
    """
    x, s = what_rotates(subject, arguments), arguments[2]
    (a, b), (sin_a, sin_b) = (of(part, channels(subject.implementation, x.shape[-1])) for part in (x, s))
    out = of(rotated(subject, x, np.zeros(s.shape), s), channels(subject.implementation, x.shape[-1]))
    close(subject, out, (-(b * sin_a), a * sin_b) if subject.operation == "apply_rotary" else (b * sin_b, -(a * sin_a)))


@law(_HALF)
def one_hot_rows_are_rotated_by_a_right_angle(subject: Subject, x: Any, choose: Choices) -> None:
    """For every even width d and row that is 1 in one channel: 1 in channel i becomes 1 in channel
    i + d/2, and from there −1 in channel i.

    Exact: 0, 1 and −1 are numbers of every format.
    """
    d, rows = x.shape[-1], np.arange(x.shape[-2])
    hot = choose.integers(0, d - 1, rows.shape)
    found, expected = np.zeros(x.shape), np.zeros(x.shape)
    found[..., rows, hot], expected[..., rows, (hot + d // 2) % d] = 1.0, np.where(hot < d // 2, 1.0, -1.0)
    subject.same(subject(found), expected)
