"""Laws of rope as models use it: positions and frequencies that are given, parts of the channels,
axes, and attention factors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oracles.ball import Ball, cos, exact, sin
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.laws.maps import Times
from properties.laws.pairs import channels, close, joined, of, what_rotates
from properties.laws.reading import by_name
from properties.laws.rows import Rows
from properties.laws.squares import Case, Term
from properties.strategies.choices import Choices
from properties.strategies.domains import ROTATIONS
from properties.strategies.drawn_rotations import pairs_of

law = Laws(lambda operation: (ROTATIONS, "sections"))
row = Rows(law)
ROPE = ("rope", "rope_vjp")
_DOMAINS = (ROTATIONS, "sections")


def _width(x: Mapping[str, Any]) -> int:
    """How many channels rotate."""
    return int(x["x"].shape[-1] if x["rotary_dim"] is None else x["rotary_dim"])


def _at(x: Mapping[str, Any]) -> Any:
    """The position of each row; with sections an axis of three is in front."""
    if x["positions"] is not None:
        return x["positions"]
    counted = x["start_pos"] + np.arange(x["x"].shape[-2])
    return counted if x["sections"] is None else np.broadcast_to(counted, (3, *[1] * (x["x"].ndim - 2), len(counted)))


def axes_of(pairs: int, sections: tuple[int, int, int], layout: str) -> Any:
    """The axis that each pair rotates by: 0 for time, 1 for height, 2 for width; in blocks, or in
    turn as long as there are some left.
    """
    if layout == "sectioned":
        return np.repeat(np.arange(3), sections)
    i = np.arange(pairs)
    return np.where(i < 3 * np.array((0, *sections[1:]))[i % 3], i % 3, 0)


# -- One option said by another ----------------------------------------------------------------------------------------------------------


@row("rope", domains=_DOMAINS, features=("positions",))
def positions_that_are_given_are_counted_from_the_first(c: Case) -> Sequence[Term] | None:
    """For every first position: the positions from there on, given one by one, give the same."""
    return [Term(instead={"start_pos": 0, "positions": _at(c.arguments).copy()})] if c.positions is None else None


@row("rope", domains=_DOMAINS, features=("positions",))
def the_order_of_rows_does_not_matter(c: Case) -> Sequence[Term] | None:
    """For every order of the rows, with their positions: the result is the same, in this order."""
    return (
        [c.along("seq_len", c.choose.order(c.size("seq_len")))]
        if c.positions is not None and c.size("seq_len") > 1
        else None
    )


@row("rope", domains=_DOMAINS, features=("sections",))
def each_pair_rotates_by_its_own_axis(c: Case) -> Sequence[Term] | None:
    """For every position in time, height and width: each pair is as by the position along its own axis alone."""
    if c.sections is None:
        return None
    r, d = _width(c.arguments), c.size("head_dim")
    axis = np.zeros(d, int)
    axis[pairs_of(c.implementation, r)] = axes_of(r // 2, c.sections, c.implementation.resolved_conventions.mrope)[
        :, None
    ]
    if c.positions is None:
        return [Term(instead={"sections": None})]
    return [
        Term({}, [Times(np.where(axis == k, 1.0, 0.0))], {"sections": None, "positions": c.positions[k].copy()})
        for k in np.unique(axis)
    ]  # fmt: skip


@row("rope", domains=_DOMAINS, features=("positions", "sections"))
def time_height_and_width_that_are_equal_are_one_position(c: Case) -> Sequence[Term] | None:
    """For every position, and sections: three times the same position gives what it gives alone."""
    pairs = _width(c.arguments) // 2
    if c.sections is not None or not pairs:
        return None
    at = np.broadcast_to(_at(c.arguments), (*[1] * (c.x.ndim - 1 - _at(c.arguments).ndim), *_at(c.arguments).shape))
    height, width = (pairs + 1) // 3, pairs // 3
    stacked = np.stack([at] * 3)
    return [Term(instead={"start_pos": 0, "positions": stacked, "sections": (pairs - height - width, height, width)})]


@row("rope", domains=_DOMAINS, features=("rotary_dim",))
def channels_that_rotate_and_those_that_do_not_are_independent(c: Case) -> Sequence[Term] | None:
    """For every number of channels that rotate: without the others they give the same, and the others without them."""
    r, d = c.rotary_dim, c.size("head_dim")
    if r is None or not 0 < r < d:
        return None
    rotating = np.arange(d) < r
    return [c.along("head_dim", np.arange(r), rotary_dim=None), Term({"x": [Times(np.where(rotating, 0.0, 1.0))]})]


@row("rope", domains=_DOMAINS, features=("positions", "inv_freq"))
def positions_twice_as_far_take_half_the_frequency(c: Case) -> Sequence[Term] | None:
    """For all positions and frequencies that are given: twice the positions and half the frequencies give the same."""
    if c.positions is None or c.inv_freq is None:
        return None
    return [Term(instead={"positions": 2 * c.positions, "inv_freq": c.inv_freq / 2})]


@row("rope", domains=_DOMAINS, features=("inv_freq",))
def the_order_of_pairs_does_not_matter(c: Case) -> Sequence[Term] | None:
    """For every order of the pairs of channels, and of their frequencies: the result is in this order."""
    if c.inv_freq is None or c.sections is not None or len(c.inv_freq) < 2:
        return None
    pairs, order, moved = (
        pairs_of(c.implementation, _width(c.arguments)),
        c.choose.order(len(c.inv_freq)),
        np.arange(c.size("head_dim")),
    )
    moved[pairs] = pairs[order]
    return [c.along("head_dim", moved, inv_freq=c.inv_freq[order])]


# -- What rotates, and by how much -------------------------------------------------------------------------------------------------------


def _by(subject: Subject, given: dict[str, Any], /, **others: Any) -> Ball:
    """The channels that rotate, where some arguments are others."""
    found: Ball = subject(*{**given, **others}.values()).ball
    return found[..., : _width(given)]


@law(*ROPE, watches=True, exempts=lambda i: i.lacks("rotary_dim"))
def channels_that_do_not_rotate_pass(subject: Subject, *arguments: Any) -> bool:
    """For every number of channels that rotate: the others come back as they are. Exact."""
    x = by_name(subject, arguments)
    r, given = _width(x), what_rotates(subject, arguments)
    if r == given.shape[-1]:
        return False
    subject.same(subject(*arguments).value[..., r:], given[..., r:])
    return True


@law(*ROPE, watches=True)
def pairs_are_stretched_by_the_attention_factor_alone(subject: Subject, *arguments: Any) -> None:
    """For every case: the sum of a pair's squares is what it was before it was rotated, times the
    square of the attention factor.
    """
    x = by_name(subject, arguments)
    where = channels(subject.implementation, r := _width(x))
    (a, b), (c, d) = (
        of(part, where)
        for part in (exact(what_rotates(subject, arguments)[..., :r]), subject(*arguments).ball[..., :r])
    )
    factor = exact(np.array(1.0 if x["attention_factor"] is None else x["attention_factor"]))
    subject.close(c * c + d * d, (a * a + b * b) * factor * factor, "norm²")


@law(*ROPE)
def position_zero_multiplies_by_the_attention_factor(subject: Subject, *arguments: Any) -> None:
    """For every case at positions of 0: channels that rotate are multiplied by the attention factor."""
    x = by_name(subject, arguments)
    zeros = None if x["positions"] is None else np.zeros_like(x["positions"])
    given = exact(what_rotates(subject, arguments)[..., : _width(x)])
    factor = exact(np.array(1.0 if x["attention_factor"] is None else x["attention_factor"]))
    found = _by(subject, x, positions=zeros, start_pos=0)
    subject.close(
        found[..., :1, :] if zeros is None else found, (given[..., :1, :] if zeros is None else given) * factor
    )


@law(*ROPE, exempts=lambda i: i.lacks("attention_factor"))
def an_attention_factor_multiplies_what_rotates(subject: Subject, *arguments: Any, choose: Choices) -> None:
    """For every attention factor: what rotates is what it is without one, times the factor."""
    x = by_name(subject, arguments)
    given = x["attention_factor"] or choose.among([2.0, 1.25])
    with_it, without = (_by(subject, x, attention_factor=factor) for factor in (given, None))
    subject.close(with_it, without * exact(np.array(given)))
    subject.informative_if(given != 1)


@law(*ROPE, exempts=lambda i: i.lacks("inv_freq"))
def frequencies_are_radians_per_position(subject: Subject, *arguments: Any) -> bool:
    """For all frequencies that are given, and positions: ones in the first channel of each pair
    become the cosines and the sines of position times frequency."""
    x, i, back = by_name(subject, arguments), subject.implementation, subject.operation.endswith("_vjp")
    if x["inv_freq"] is None or x["sections"] is not None:
        return False
    r, shape = _width(x), x["x"].shape
    where, ones = channels(i, r), np.zeros(shape)
    ones[..., :r] = joined(np.ones((*shape[:-1], r // 2)), np.zeros((*shape[:-1], r // 2)), where)
    theta = exact(_at(x).astype(np.float64)[..., None]) * exact(x["inv_freq"])
    theta = Ball(*(np.broadcast_to(part, (*shape[:-1], r // 2)) for part in (theta.mid, theta.rad)))
    rotated = {"x": ones} | ({"grad_out": ones} if back else {})
    first, second = of(_by(subject, x, attention_factor=None, **rotated), where)
    close(subject, (first, -second if back else second), (cos(theta), sin(theta)), "cosines", "sines")
    return True


@law(*ROPE, exempts=lambda i: i.lacks("positions"))
def scores_depend_on_differences_of_positions(subject: Subject, *arguments: Any, choose: Choices) -> bool:
    """For every case with positions that are given, and a number added to all of each axis: what a
    pair adds to the score of two neighbouring rows is the same."""
    x = by_name(subject, arguments)
    if x["positions"] is None or x["x"].shape[-2] < 2:
        return False
    where, shift = channels(subject.implementation, _width(x)), [choose.integer(1, 2**10) for _ in range(3)]
    moved = x["positions"] + (
        shift[0] if x["sections"] is None else np.reshape(shift, (3, *[1] * (x["positions"].ndim - 1)))
    )

    def scores(at: Any) -> Ball:
        a, b = of(_by(subject, x, positions=at), where)
        return a[..., 1:, :] * a[..., :-1, :] + b[..., 1:, :] * b[..., :-1, :]

    subject.close(scores(moved), scores(x["positions"]), "scores")
    return True


@law(
    "rope",
    needs=("rotary_frequencies",),
    exempts=lambda i: i.lacks("yarn", "mscale", "mscale_all_dim", "attention_factor"),
)
def a_scale_of_the_softmax_makes_up_for_the_attention_factor(
    subject: Subject, *arguments: Any, choose: Choices
) -> None:
    """For every factor s and weights w and v of YaRN, whose attention factor is m(s, w)/m(s, v):
    scores of what it multiplies, times m(s, v)² as DeepSeek scales its softmax, are scores without
    it, times m(s, w)².

    m is 1 + 0.1·x·ln s, and 1 + 0.1·ln s is the attention factor without weights. Within budget.
    """
    x, o = by_name(subject, arguments), OPERATIONS["rotary_frequencies"]
    s, (w, v) = choose.among([40.0, 4.0, 2.0]), choose.among([(0.707, 1.0), (1.0, 0.707), (1.0, 1.0)])
    given = {"kind": "yarn", "head_dim": 64, "factor": s, "original_max_position_embeddings": 4096}

    def factor(**weights: float) -> Any:
        return subject.rotary_frequencies(*({**given, **weights}.get(p) for p in o.parameters))[1]

    above, below = (exact(1.0) + exact(weight) * (factor().ball - exact(1.0)) for weight in (w, v))
    weighted = factor(mscale=w, mscale_all_dim=v)
    where = channels(subject.implementation, _width(x))

    def scores(a: float | None) -> Ball:
        first, second = of(_by(subject, x, attention_factor=a), where)
        return first[..., :1, :] * first + second[..., :1, :] * second

    off = Ball(weighted.value, weighted.ball.rad)
    squared, exactly = off * off, exact(weighted.value) * exact(weighted.value)
    subject.close(squared * below * below, above * above, "(attention_factor · m(s, mscale_all_dim))²")
    subject.close(scores(float(weighted.value)), scores(None) * exactly, "scores")
