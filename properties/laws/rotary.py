"""Laws of rotating pairs of channels: by a position, by tables, by a right angle, and backwards."""

from typing import Any

import numpy as np

from oracles.ball import Ball, exact
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.channel_pairs import (
    channels_of_pairs,
    check_pairs,
    distance,
    first_position,
    pairs_at,
    rotated,
    rotated_input,
    supported_position,
    within_distance,
)
from properties.laws.feature_rules import arguments_by_name
from properties.laws.law import Laws
from properties.strategies.choices import Choices, rounded
from properties.strategies.domains import ROTATIONS

law = Laws()
_ROPE, _TABLES, _HALF = ("rope", "rope_vjp"), ("apply_rotary", "apply_rotary_vjp"), "rotate_half"
ADJOINT = "the VJP is the adjoint of the forward"


@law(*_ROPE)
def position_0_rotates_by_angle_0(subject: Subject, *arguments: Any) -> None:
    """For every x, from position 0 on: the first row is returned unchanged."""
    x = rotated_input(subject, arguments)
    subject.close(rotated(subject, x, 0).ball[..., 0, :], x[..., 0, :])


@law(*_ROPE, _HALF)
def rotation_keeps_the_norm_of_each_pair(subject: Subject, *arguments: Any) -> None:
    """For every x: the sum of the squares of a pair is the same before and after the rotation."""
    x = rotated_input(subject, arguments)
    half = x.shape[-1] // 2
    places = channels_of_pairs(subject.implementation, 2 * half)
    where = (slice(0, half), slice(half, None)) if subject.operation == _HALF else places
    (a, b), (c, d) = (pairs_at(part, where) for part in (x, subject(*arguments)))
    subject.close(c * c + d * d, a * a + b * b, "norm²")


@law(*_ROPE)
def scores_depend_on_relative_positions_only(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every query and key, repeated in every row, and every distance between two positions: the
    contribution of a pair of channels to the score is the same at all positions as at the first
    ones.
    """
    x, start_pos = rotated_input(subject, arguments), first_position(subject, arguments)
    rows = x.shape[-2]
    if rows < 2:
        return False
    apart = choose.among([1, rows - 1, choose.integer(1, rows - 1)])
    where = channels_of_pairs(subject.implementation, x.shape[-1])

    def scores(start: int) -> Ball:
        query, key = (np.repeat(x[..., [row], :], rows, axis=-2) for row in (0, -1))
        (a, b), (c, d) = (pairs_at(rotated(subject, repeated, start), where) for repeated in (query, key))
        return a[..., apart:, :] * c[..., :-apart, :] + b[..., apart:, :] * d[..., :-apart, :]

    subject.close(scores(start_pos), scores(0)[..., np.zeros(rows - apart, int), :], "scores")
    return True


@law(*_ROPE, name="rotating by p and then by q rotates by p + q")
def rotating_by_p_and_then_by_q_rotates_by_p_plus_q(subject: Subject, *arguments: Any, choose: Choices) -> None:
    """For every two positions p and q: the first row, rotated by p and then by q, is the first row
    rotated by p + q.

    The error of the first rotation is rotated by the second one, and added to the limit.
    """
    x, start_pos = rotated_input(subject, arguments), first_position(subject, arguments)
    implementation = subject.implementation
    further = supported_position(implementation, choose, start_pos)
    where = channels_of_pairs(implementation, x.shape[-1])
    once = rotated(subject, x, start_pos)
    between = rounded(once.value, implementation.resolved_arithmetic.inputs)
    first, second = pairs_at(distance(between, once.ball), where)
    again = pairs_at(rotated(subject, between, further), where)
    twice = (within_distance(part, first + second)[..., 0, :] for part in again)
    check_pairs(subject, pairs_at(rotated(subject, x, start_pos + further).ball[..., 0, :], where), twice)


@law("rope_vjp", needs=("rope",), domains=("everyday", ROTATIONS), name=ADJOINT)
@law("apply_rotary_vjp", needs=("apply_rotary",), name=ADJOINT)
def the_vjp_is_the_adjoint_of_the_forward(subject: Subject, *arguments: Any) -> None:
    """For every x, cotangent g and rotation, also by any tables: ⟨g, rotated x⟩ = ⟨gradient of g,
    x⟩, pair by pair.
    """
    given, forward = arguments_by_name(subject, arguments), OPERATIONS[subject.operation].forward
    out = subject.call(forward, tuple(given[parameter] for parameter in OPERATIONS[forward].parameters))
    x, g = exact(given["x"]), exact(given["grad_out"])
    width = given.get("rotary_dim") or given["x"].shape[-1]
    several = (part[..., :width] for part in (g, out.ball, subject(*arguments).ball, x))
    (a, b), (c, d), (p, q), (r, s) = (
        pairs_at(part, channels_of_pairs(subject.implementation, width)) for part in several
    )
    subject.close(a * c + b * d, p * r + q * s, "⟨g, out⟩")


@law(*_TABLES, name="with all cosines 0, a pair (a, b) becomes (-b*sin, a*sin)")
def with_cosines_of_0_each_pair_swaps_its_channels(subject: Subject, *arguments: Any) -> None:
    """For every x and sines: with cosines of 0 a pair (a, b) becomes (−b·sin₁, a·sin₂), and its
    gradient (b·sin₂, −a·sin₁).
    """
    x, sines = rotated_input(subject, arguments), arguments[2]
    where = channels_of_pairs(subject.implementation, x.shape[-1])
    (a, b), (sin_a, sin_b) = (pairs_at(part, where) for part in (x, sines))
    out = pairs_at(rotated(subject, x, np.zeros(sines.shape), sines), where)
    forward = subject.operation == "apply_rotary"
    check_pairs(subject, out, (-(b * sin_a), a * sin_b) if forward else (b * sin_b, -(a * sin_a)))


@law(_HALF, name="rotate_half rotates one-hot rows by a right angle", exact=True)
def rotate_half_rotates_one_hot_rows_by_a_right_angle(subject: Subject, x: Any, choose: Choices) -> None:
    """For every even width d, and a row that is 1 in one channel: 1 in channel i becomes 1 in
    channel i + d/2, and 1 in channel i + d/2 becomes −1 in channel i.

    Every format has the numbers 0, 1 and −1.
    """
    d, rows = x.shape[-1], np.arange(x.shape[-2])
    hot = choose.integers(0, d - 1, rows.shape)
    found, expected = np.zeros(x.shape), np.zeros(x.shape)
    found[..., rows, hot], expected[..., rows, (hot + d // 2) % d] = 1.0, np.where(hot < d // 2, 1.0, -1.0)
    subject.same(subject(found), expected)
