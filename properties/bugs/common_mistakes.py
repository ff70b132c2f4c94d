"""Slips that a first version of a rotary encoding has: each is plain to see once it is known, and norms mostly stay right."""

import numpy as np

from oracles.ball import Array
from properties.bugs.bug import Register
from properties.bugs.positional import rows
from properties.bugs.turning import exponents, turned
from properties.reference import angles, rope, rotary_tables, rotated

bug = Register()

_COMMON = "none: what first versions often have"


@bug(
    "rope",
    effect="Position 0 is turned too. Scores are right, absolute values and caches filled by other code are not.",
    repair="Count positions from 0.",
    citation=_COMMON,
    law="position zero is the identity",
)
def rope_positions_from_one(x: Array, start_pos: int = 0) -> Array:
    """Positions are counted from 1."""
    return turned(x, rows(start_pos + 1, x.shape[-2]))


@bug(
    "rope",
    effect="Everything is turned by a 57th of its angle.",
    repair="Cosine and sine take radians, which the angle is in already.",
    citation=_COMMON,
    law="the first pair turns by its position",
)
def rope_angles_as_degrees(x: Array, start_pos: int = 0) -> Array:
    """The angle, which is in radians, is converted from degrees."""
    return turned(x, theta=np.deg2rad(angles(start_pos, *x.shape[-2:])))


@bug(
    "rope",
    effect="Frequencies fall twice as fast as they should, to base⁻².",
    repair="The exponent is 2i/d, with the whole width d, for i from 0 to d/2 − 1.",
    citation=_COMMON,
    law="rope turns by the angles of the sinusoidal encoding",
)
def rope_exponent_over_half_the_width(x: Array, start_pos: int = 0) -> Array:
    """The exponent of pair i is 2i/(d/2)."""
    return turned(x, rows(start_pos, x.shape[-2]), 2 * exponents(x.shape[-1]))


@bug(
    "rope",
    effect="Later pairs turn faster instead of slower.",
    repair="Divide by base^(2i/d), or give the exponent its minus.",
    citation=_COMMON,
    law="rope turns by the angles of the sinusoidal encoding",
)
def rope_frequencies_rise(x: Array, start_pos: int = 0) -> Array:
    """The frequency of pair i is base^(+2i/d)."""
    return turned(x, rows(start_pos, x.shape[-2]), -exponents(x.shape[-1]))


@bug(
    "rope",
    effect="Each pair is turned rightly, and then stored elsewhere.",
    repair="Interleave the two results again, by a stack along a new last axis and a reshape.",
    citation=_COMMON,
    law="rope turns each pair by itself",
)
def rope_pairs_stored_as_halves(x: Array, start_pos: int = 0) -> Array:
    """The lanes (2i, 2i + 1) are turned, and the results concatenated: first lanes in the first half, second lanes in the second."""
    found = rope(x, start_pos)
    return np.concatenate([found[..., 0::2], found[..., 1::2]], axis=-1)


@bug(
    "rope",
    effect="Position 0 is turned by a quarter, and the others backwards from there.",
    repair="The cosine goes with the lane itself, the sine with its partner.",
    citation=_COMMON,
    law="position zero is the identity",
)
def rope_cosine_and_sine_exchanged(x: Array, start_pos: int = 0) -> Array:
    """Lanes are multiplied by the sine, and their partners by the cosine."""
    cos, sin = rotary_tables(start_pos, *x.shape[-2:])
    return x * sin + rotated(x) * cos


@bug(
    "rope",
    effect="The lanes of each pair come back in the other order.",
    repair="The first result is a·cos − b·sin, the second b·cos + a·sin.",
    citation=_COMMON,
    law="position zero is the identity",
)
def rope_lanes_exchanged(x: Array, start_pos: int = 0) -> Array:
    """The two results of each pair change places."""
    found = rope(x, start_pos)
    paired = found.shape[-1] // 2 * 2
    lanes = np.arange(found.shape[-1])
    lanes[:paired] ^= 1
    return np.asarray(found[..., lanes])


@bug(
    "rope",
    effect="Nothing is turned: pairs are sheared, and their norms change with the position.",
    repair="The partner of a first lane is taken with a minus.",
    citation=_COMMON,
    law="pairs keep their norm",
)
def rope_without_minus(x: Array, start_pos: int = 0) -> Array:
    """Both lanes of a pair get a·cos + b·sin of itself and its partner."""
    cos, sin = rotary_tables(start_pos, *x.shape[-2:])
    return x * cos + np.where(np.arange(x.shape[-1]) % 2 == 0, -1, 1) * rotated(x) * sin
