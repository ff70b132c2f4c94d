"""Laws of rope with the options that models use: given positions and frequencies, partial rotation,
sections for time, height and width, and attention factors.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oracles.ball import Ball, cos, exact, sin
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.channel_pairs import channels_of_pairs, check_pairs, joined, pairs_at, rotated_input
from properties.laws.commuting_squares import Case, Sum, Term
from properties.laws.feature_rules import arguments_by_name
from properties.laws.law import Laws
from properties.laws.linear_maps import Times
from properties.laws.symmetry_rows import Rows
from properties.strategies.choices import Choices
from properties.strategies.domains import ROTATIONS
from properties.strategies.drawn_rotations import pairs_of

law = Laws(lambda operation: (ROTATIONS, "sections"))
row = Rows(law)
ROPE = ("rope", "rope_vjp")
_DOMAINS = (ROTATIONS, "sections")


def _width(x: Mapping[str, Any]) -> int:
    """Return the number of channels that rotate."""
    return int(x["x"].shape[-1] if x["rotary_dim"] is None else x["rotary_dim"])


def _positions(x: Mapping[str, Any]) -> Any:
    """Return the position of each row. With sections, return it for the axis of each: time, height and
    width, or height and width.
    """
    if x["positions"] is not None:
        return x["positions"]
    counted = x["start_pos"] + np.arange(x["x"].shape[-2])
    if x["sections"] is None:
        return counted
    return np.broadcast_to(counted, (len(x["sections"]), *[1] * (x["x"].ndim - 2), len(counted)))


def axes_of(pairs: int, sections: tuple[int, ...], layout: str) -> Any:
    """Return the axis by which each pair rotates: 0 for time, 1 for height, 2 for width.

    The axes come in blocks ("sectioned"), or alternate as long as the sections after the first last.
    """
    count = len(sections)
    if layout == "sectioned":
        return np.repeat(np.arange(count), sections)
    pair = np.arange(pairs)
    return np.where(pair < count * np.array((0, *sections[1:]))[pair % count], pair % count, 0)


# -- Relations between options ---------------------------------------------------------------------


@row("rope", domains=_DOMAINS, features=("positions",), name="explicit positions equal counting from start_pos")
def explicit_positions_equal_counting_from_start_pos(case: Case) -> Sum:
    """For every first position: the positions from there on, given one by one, give the same
    result.
    """
    if case.positions is not None:
        return None
    return [Term(instead={"start_pos": 0, "positions": _positions(case.arguments).copy()})]


@row("rope", domains=_DOMAINS, features=("positions",))
def reordering_rows_reorders_their_results_in_the_same_way(case: Case) -> Sum:
    """For every order of the rows and of their positions: the rows of the result are in this order too."""
    if case.positions is None or case.size("seq_len") < 2:
        return None
    return [case.along("seq_len", case.choose.order(case.size("seq_len")))]


@row("rope", domains=_DOMAINS, features=("sections",))
def each_pair_rotates_by_the_position_of_the_axis_that_it_belongs_to(case: Case) -> Sum:
    """For every position in time, height and width: each pair is rotated as if the position along
    its own axis were the only one.
    """
    if case.sections is None:
        return None
    if case.positions is None:
        return [Term(instead={"sections": None})]
    width, layout = _width(case.arguments), case.implementation.resolved_conventions.mrope
    axes = np.zeros(case.size("head_dim"), int)
    axes[pairs_of(case.implementation, width)] = axes_of(width // 2, case.sections, layout)[:, None]
    return [
        Term(
            {},
            [Times(np.where(axes == axis, 1.0, 0.0))],
            {"sections": None, "positions": case.positions[axis].copy()},
        )
        for axis in np.unique(axes)
    ]


@row(
    "rope",
    domains=_DOMAINS,
    features=("positions", "sections"),
    name="equal positions in time, height and width act as one position",
)
def equal_positions_in_time_height_and_width_act_as_one_position(case: Case) -> Sum:
    """For every test input without sections: with three sections, and the same position in time,
    height and width, the result is the same.
    """
    pairs = _width(case.arguments) // 2
    if case.sections is not None or not pairs:
        return None
    positions = _positions(case.arguments)
    leading = case.x.ndim - 1 - positions.ndim
    positions = np.broadcast_to(positions, (*[1] * leading, *positions.shape))
    height, width = (pairs + 1) // 3, pairs // 3
    sections = (pairs - height - width, height, width)
    return [Term(instead={"start_pos": 0, "positions": np.stack([positions] * 3), "sections": sections})]


@row("rotary_embedding", domains=("everyday",), features=("freq_factors",))
def doubled_positions_with_doubled_factors_change_nothing(case: Case) -> Sum:
    """For all positions, and factors that divide the frequencies: doubled positions with doubled
    factors give the same result.
    """
    if case.freq_factors is None:
        return None
    return [Term(instead={"positions": 2 * case.positions, "freq_factors": 2 * case.freq_factors})]


@row("rope", domains=_DOMAINS, features=("rotary_dim",))
def rotated_and_unrotated_channels_are_independent(case: Case) -> Sum:
    """For every number of rotated channels: the rotated channels give the same result without the
    other channels, and the other channels without the rotated ones.
    """
    width, head_dim = case.rotary_dim, case.size("head_dim")
    if width is None or not 0 < width < head_dim:
        return None
    unrotated = np.where(np.arange(head_dim) < width, 0.0, 1.0)
    return [case.along("head_dim", np.arange(width), rotary_dim=None), Term({"x": [Times(unrotated)]})]


@row("rope", domains=_DOMAINS, features=("positions", "inv_freq"))
def doubled_positions_with_halved_frequencies_change_nothing(case: Case) -> Sum:
    """For all given positions and frequencies: doubled positions with halved frequencies give the
    same result.
    """
    if case.positions is None or case.inv_freq is None:
        return None
    return [Term(instead={"positions": 2 * case.positions, "inv_freq": case.inv_freq / 2})]


@row("rope", domains=_DOMAINS, features=("inv_freq",))
def reordering_pairs_reorders_their_results_in_the_same_way(case: Case) -> Sum:
    """For every order of the pairs of channels, and of their frequencies: the pairs of the result
    are in this order too.
    """
    if case.inv_freq is None or case.sections is not None or len(case.inv_freq) < 2:
        return None
    pairs, order = pairs_of(case.implementation, _width(case.arguments)), case.choose.order(len(case.inv_freq))
    moved = np.arange(case.size("head_dim"))
    moved[pairs] = pairs[order]
    return [case.along("head_dim", moved, inv_freq=case.inv_freq[order])]


# -- Rotated channels and angles -- -----------------------------------------------------------------


def _rotated_channels(subject: Subject, given: dict[str, Any], /, **others: Any) -> Ball:
    """Return the rotated channels of the result of a call, with some arguments replaced."""
    found: Ball = subject(*{**given, **others}.values()).ball
    return found[..., : _width(given)]


@law(*ROPE, watches=True, exempts=lambda implementation: implementation.lacks("rotary_dim"), exact=True)
def channels_that_do_not_rotate_are_returned_unchanged(subject: Subject, *arguments: Any) -> bool:
    """For every number of rotated channels: the other channels are returned unchanged."""
    x = arguments_by_name(subject, arguments)
    width, given = _width(x), rotated_input(subject, arguments)
    if width == given.shape[-1]:
        return False
    subject.same(subject(*arguments).value[..., width:], given[..., width:])
    return True


@law(*ROPE, watches=True)
def only_the_attention_factor_changes_the_norm_of_a_pair(subject: Subject, *arguments: Any) -> None:
    """For every test input: the sum of the squares of a rotated pair is the sum before the
    rotation, times the square of the attention factor.
    """
    x = arguments_by_name(subject, arguments)
    width = _width(x)
    where = channels_of_pairs(subject.implementation, width)
    a, b = pairs_at(exact(rotated_input(subject, arguments)[..., :width]), where)
    c, d = pairs_at(subject(*arguments).ball[..., :width], where)
    factor = exact(np.array(1.0 if x["attention_factor"] is None else x["attention_factor"]))
    subject.close(c * c + d * d, (a * a + b * b) * factor * factor, "norm²")


@law(*ROPE)
def position_0_only_multiplies_by_the_attention_factor(subject: Subject, *arguments: Any) -> None:
    """For every test input with positions of 0: the rotated channels are multiplied by the
    attention factor.
    """
    x = arguments_by_name(subject, arguments)
    zeros = None if x["positions"] is None else np.zeros_like(x["positions"])
    given = exact(rotated_input(subject, arguments)[..., : _width(x)])
    factor = exact(np.array(1.0 if x["attention_factor"] is None else x["attention_factor"]))
    found = _rotated_channels(subject, x, positions=zeros, start_pos=0)
    rows = slice(0, 1) if zeros is None else slice(None)
    subject.close(found[..., rows, :], given[..., rows, :] * factor)


@law(*ROPE, exempts=lambda implementation: implementation.lacks("attention_factor"))
def an_attention_factor_multiplies_the_rotated_channels(subject: Subject, *arguments: Any, choose: Choices) -> None:
    """For every attention factor: the rotated channels are the channels without an attention
    factor, times the factor.
    """
    x = arguments_by_name(subject, arguments)
    given = x["attention_factor"] or choose.among([2.0, 1.25])
    with_it, without = (_rotated_channels(subject, x, attention_factor=factor) for factor in (given, None))
    subject.close(with_it, without * exact(np.array(given)))
    subject.informative_if(given != 1)


@law(*ROPE, exempts=lambda implementation: implementation.lacks("inv_freq"))
def frequencies_are_radians_per_position(subject: Subject, *arguments: Any) -> bool:
    """For all given frequencies, and positions: ones in the first channel of each pair become the
    cosines and the sines of position times frequency.
    """
    x, backwards = arguments_by_name(subject, arguments), subject.operation.endswith("_vjp")
    if x["inv_freq"] is None or x["sections"] is not None:
        return False
    width, shape = _width(x), x["x"].shape
    where, ones, half = channels_of_pairs(subject.implementation, width), np.zeros(shape), (*shape[:-1], width // 2)
    ones[..., :width] = joined(np.ones(half), np.zeros(half), where)
    angle = exact(_positions(x).astype(np.float64)[..., None]) * exact(x["inv_freq"])
    angle = Ball(*(np.broadcast_to(part, half) for part in (angle.mid, angle.rad)))
    rotated = {"x": ones} | ({"grad_out": ones} if backwards else {})
    first, second = pairs_at(_rotated_channels(subject, x, attention_factor=None, **rotated), where)
    check_pairs(subject, (first, -second if backwards else second), (cos(angle), sin(angle)), "cosines", "sines")
    return True


@law(*ROPE, exempts=lambda implementation: implementation.lacks("positions"))
def scores_depend_only_on_differences_of_the_given_positions(
    subject: Subject, *arguments: Any, choose: Choices
) -> bool:
    """For every test input with given positions, and a number added to all positions of each axis:
    the contribution of a pair to the score of two neighbouring rows stays the same.
    """
    x = arguments_by_name(subject, arguments)
    if x["positions"] is None or x["x"].shape[-2] < 2:
        return False
    where = channels_of_pairs(subject.implementation, _width(x))
    count = 1 if x["sections"] is None else len(x["sections"])
    shifts = np.reshape([choose.integer(1, 2**10) for _ in range(count)], (count, *[1] * (x["positions"].ndim - 1)))
    moved = x["positions"] + (shifts.flat[0] if x["sections"] is None else shifts)

    def scores(positions: Any) -> Ball:
        a, b = pairs_at(_rotated_channels(subject, x, positions=positions), where)
        return a[..., 1:, :] * a[..., :-1, :] + b[..., 1:, :] * b[..., :-1, :]

    subject.close(scores(moved), scores(x["positions"]), "scores")
    return True


@law(
    "rope",
    needs=("rotary_frequencies",),
    exempts=lambda implementation: implementation.lacks("yarn", "mscale", "mscale_all_dim", "attention_factor"),
    name="DeepSeek scaling of the softmax equals YaRN scaling of q and k",
)
def softmax_scale_and_attention_factor_of_yarn_agree(subject: Subject, *arguments: Any, choose: Choices) -> None:
    """For every factor s and weights w and v of YaRN, whose attention factor is m(s, w)/m(s, v):
    the scores with the attention factor, times m(s, v)² as DeepSeek scales its softmax, are the
    scores without it, times m(s, w)².

    m(s, x) is 1 + 0.1·x·ln s, and 1 + 0.1·ln s is the attention factor without weights.
    """
    x, operation = arguments_by_name(subject, arguments), OPERATIONS["rotary_frequencies"]
    s, (w, v) = choose.among([40.0, 4.0, 2.0]), choose.among([(0.707, 1.0), (1.0, 0.707), (1.0, 1.0)])
    given = {"kind": "yarn", "head_dim": 64, "factor": s, "original_max_position_embeddings": 4096}

    def factor(**weights: float) -> Any:
        return subject.rotary_frequencies(*({**given, **weights}.get(name) for name in operation.parameters))[1]

    above, below = (exact(1.0) + exact(weight) * (factor().ball - exact(1.0)) for weight in (w, v))
    weighted = factor(mscale=w, mscale_all_dim=v)
    where = channels_of_pairs(subject.implementation, _width(x))

    def scores(attention_factor: float | None) -> Ball:
        first, second = pairs_at(_rotated_channels(subject, x, attention_factor=attention_factor), where)
        return first[..., :1, :] * first + second[..., :1, :] * second

    uncertain = Ball(weighted.value, weighted.ball.rad)
    squared, exactly = uncertain * uncertain, exact(weighted.value) * exact(weighted.value)
    subject.close(squared * below * below, above * above, "(attention_factor · m(s, mscale_all_dim))²")
    subject.close(scores(float(weighted.value)), scores(None) * exactly, "scores")
