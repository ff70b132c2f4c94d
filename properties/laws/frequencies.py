"""Laws of the angles position · base^(−2i/d). Sinusoidal encodings, rotary embeddings, and their
frequencies, angles and tables share these angles.
"""

from typing import Any

import numpy as np

from oracles.ball import Ball, cos, exact, sin
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS, Arguments
from properties.contract.subject import Subject
from properties.laws.channel_pairs import channels_of_pairs, check_pairs, joined, pairs_at, product, supported_position
from properties.laws.law import Laws
from properties.strategies.choices import Choices

law = Laws()
SINUSOID, INV_FREQ, ANGLES, TABLES = "sinusoidal_positional_encoding", "inv_freq", "rope_angles", "rope_tables"
_ROPE = ("rope", "rope_vjp")
_OF_ALL_WIDTHS = ("everyday", "odd widths")


def _size(subject: Subject, arguments: Arguments) -> tuple[int, int, int]:
    """Return the number of rows, the width and the first position of a call's arguments."""
    sizes = OPERATIONS[subject.operation].sizes(arguments)
    return (
        sizes.get("seq_len", 1),
        sizes["embed_dim" if subject.operation == SINUSOID else "head_dim"],
        sizes.get("start_pos", 0),
    )


def _angles(subject: Subject, rows: int, width: int, start_pos: int, operation: str = "") -> tuple[Ball, ...]:
    """Return the cosine and the sine of each row and pair. For `rope_angles`, return the angle
    instead, and for `inv_freq` the frequency of each pair.

    The cosines and sines of rope are the results of rotating ones.
    """
    operation, implementation = operation or subject.operation, subject.implementation
    call = subject if operation == subject.operation else getattr(subject, operation)
    if operation in (INV_FREQ, ANGLES):
        return (call(*(width,) if operation == INV_FREQ else (rows, width, start_pos)).ball,)
    if operation == SINUSOID:
        encoding, sines = call(rows, width, start_pos).ball, (width + 1) // 2
        interleaved = implementation.resolved_conventions.sinusoid_layout == "interleaved"
        return (encoding[:, 1::2], encoding[:, ::2]) if interleaved else (encoding[:, sines:], encoding[:, :sines])
    if operation == TABLES:
        pairs = width // 2 if implementation.resolved_conventions.odd_lane == "passthrough" else (width + 1) // 2
        half = implementation.resolved_conventions.rope_pairing == "half"
        lead = slice(0, width // 2) if half else slice(0, 2 * pairs, 2)
        return tuple(table.ball[:, lead] for table in call(rows, width, start_pos))
    where, rank = channels_of_pairs(implementation, width), min(implementation.batch_ranks)
    ones = np.tile(joined(np.ones(width // 2), np.zeros(width // 2), where), (*(1,) * rank, rows, 1))
    backwards = operation.endswith("_vjp")
    rotated_ones = call(*(ones,) * (1 + backwards), start_pos)
    first, second = (part[(0,) * rank] for part in pairs_at(rotated_ones, where))
    return first, -second if backwards else second


def _compare(subject: Subject, actual: tuple[Ball, ...], expected: tuple[Any, ...]) -> None:
    names = ("cosines", "sines") if len(actual) == 2 else OPERATIONS[subject.operation].outputs
    check_pairs(subject, actual, expected, *names)


@law(SINUSOID, ANGLES, TABLES, exact="for angles")
def position_0_rotates_by_angle_0(subject: Subject, *arguments: Any) -> None:
    """For every length and width: all angles of position 0 are 0, all cosines are 1 and all sines
    0, each at its place.
    """
    rows, width, _ = _size(subject, arguments)
    first = tuple(part[0] for part in _angles(subject, rows, width, 0))
    if len(first) == 1:
        subject.same(first[0].mid, np.zeros(width // 2), "angles")
    else:
        _compare(subject, first, (np.ones(width // 2), np.zeros(width // 2)))


@law(SINUSOID, *_ROPE, ANGLES, TABLES)
def at_position_p_the_first_pair_rotates_by_p_radians(subject: Subject, *arguments: Any) -> None:
    """For every width and position p up to 2²⁰: the angle of the first pair is p radians, from the
    first channel towards the second, because base⁰ = 1.

    Positions of rotary embeddings are first multiplied by the convention `rope_scale`.
    """
    rows, width, start_pos = _size(subject, arguments)
    angle, scale = exact(np.arange(start_pos, start_pos + rows, dtype=np.float64)), subject.conventions.rope_scale
    if subject.operation != SINUSOID and scale != 1:
        angle = angle * exact(scale)
    found = tuple(part[:, 0] for part in _angles(subject, rows, width, start_pos))
    _compare(subject, found, (cos(angle), sin(angle)) if len(found) == 2 else (angle,))


def _other_exponents(implementation: Implementation) -> str:
    tensor2tensor = implementation.resolved_conventions.sinusoid_layout == "tensor2tensor"
    return "It uses the exponents of tensor2tensor." if tensor2tensor else ""


@law(SINUSOID, domains=_OF_ALL_WIDTHS, exempts=_other_exponents)
@law(INV_FREQ, ANGLES, TABLES, domains=_OF_ALL_WIDTHS)
@law(*_ROPE)
def pair_2i_at_width_2d_has_the_same_angle_as_pair_i_at_width_d(subject: Subject, *arguments: Any) -> bool:
    """For every width d and position: the pairs 0, 2, 4, … of width 2·d have the angles of the
    pairs 0, 1, 2, … of width d, because 2·2i/2d = 2i/d.

    The last channel of an odd width begins a pair, unless it passes through. The exponents of
    tensor2tensor are exempt, and odd widths that are refused.
    """
    rows, width, start_pos = _size(subject, arguments)
    sinusoid, conventions = subject.operation == SINUSOID, subject.implementation.resolved_conventions
    refuses_odd = conventions.odd_lane == "reject" or conventions.rope_pairing == "half"
    if width % 2 and not sinusoid and refuses_odd:
        return False
    if not subject.implementation.allows(**{"embed_dim" if sinusoid else "head_dim": 2 * width}):
        return False
    found = _angles(subject, rows, width, start_pos)
    wide = _angles(subject, rows, 2 * width, start_pos)
    every_second = (part[..., ::2] for part in wide)
    expected = tuple(part[..., : own.mid.shape[-1]] for part, own in zip(every_second, found, strict=True))
    _compare(subject, found, expected)
    return True


def _other_base(implementation: Implementation) -> str:
    base = implementation.resolved_conventions.rope_base
    return "" if base == 10000.0 else f"Its frequencies are powers of {base:g}, not of 10000."


@law(SINUSOID)
@law(*_ROPE, ANGLES, TABLES, exempts=_other_base)
def ten_times_the_position_at_a_tenth_of_the_frequency_has_the_same_angle(subject: Subject, *arguments: Any) -> bool:
    """For every width divisible by 8 and position p > 0: the pairs from number d/8 on have at
    position 10·p the angles of the first pairs at position p, because 10000^(−1/4) = 1/10.

    With the exponents of tensor2tensor the distance of the pairs is (d/2 − 1)/4. Other bases are
    exempt.
    """
    rows, width, start_pos = _size(subject, arguments)
    implementation, near, step = subject.implementation, start_pos // 10, width // 8
    tensor2tensor = implementation.resolved_conventions.sinusoid_layout == "tensor2tensor"
    fewer = 2 if subject.operation == SINUSOID and tensor2tensor else 0
    if near == 0 or step == 0 or (width - fewer) % 8:
        return False
    if not (implementation.allows(start_pos=near) and implementation.allows(start_pos=10 * near)):
        return False
    first, later = (_angles(subject, rows, width, position) for position in (near, 10 * near))
    _compare(subject, tuple(part[0, step:] for part in later), tuple(part[0, : width // 2 - step] for part in first))
    return True


@law(SINUSOID, ANGLES, TABLES, name="the angle of p + s is the angle of p plus the angle of s")
def the_angle_of_p_plus_s_is_the_angle_of_p_plus_the_angle_of_s(
    subject: Subject, *arguments: Any, choose: Choices
) -> None:
    """For every shift s up to 2²⁰ and position p: the angles of position p + s are the angles of p
    plus the angles of s.

    Cosines and sines are multiplied as complex numbers: cos(a + b) = cos a cos b − sin a sin b.
    """
    rows, width, start_pos = _size(subject, arguments)
    shift = supported_position(subject.implementation, choose, start_pos)
    angles = _angles(subject, rows, width, start_pos)
    shifts = tuple(part[:1] for part in _angles(subject, rows, width, shift))
    are_pairs = len(angles) == 2
    expected = product((angles[0], angles[1]), (shifts[0], shifts[1])) if are_pairs else (angles[0] + shifts[0],)
    _compare(subject, _angles(subject, rows, width, start_pos + shift), expected)


@law(SINUSOID, TABLES, name="cos**2 + sin**2 = 1")
def the_squares_of_cosine_and_sine_sum_to_1(subject: Subject, *arguments: Any) -> None:
    """For every row and pair: cos**2 + sin**2 = 1."""
    cosine, sine = _angles(subject, *_size(subject, arguments))
    subject.close(cosine * cosine + sine * sine, np.ones(cosine.mid.shape), "cos² + sin²")


@law(ANGLES, needs=(INV_FREQ,))
def angles_equal_positions_times_frequencies(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every width and position: the angles of a row are the frequencies, times the position."""
    positions = exact(np.arange(start_pos, start_pos + seq_len, dtype=np.float64)[:, None])
    subject.close(subject(seq_len, head_dim, start_pos), positions * subject.inv_freq(head_dim).ball)


@law(TABLES, needs=(ANGLES,), domains=("near positions",))
def tables_contain_the_cosines_and_sines_of_the_angles(subject: Subject, *arguments: Any) -> None:
    """For every width and position up to 64: the entries of a pair are the cosine and the sine of
    its angle.
    """
    (angle,) = _angles(subject, *_size(subject, arguments), operation=ANGLES)
    _compare(subject, _angles(subject, *_size(subject, arguments)), (cos(angle), sin(angle)))


@law(TABLES, needs=("rope",))
def rope_rotates_by_the_cosines_and_sines_of_the_tables(subject: Subject, *arguments: Any) -> None:
    """For every width and position: the entries of a pair are the cosine and the sine that rope
    makes of ones.
    """
    size = _size(subject, arguments)
    _compare(subject, _angles(subject, *size), _angles(subject, *size, operation="rope"))


def _other_angles(implementation: Implementation) -> str:
    scale = implementation.resolved_conventions.rope_scale
    scaled = "" if scale == 1 else f"Its positions are scaled by {scale:g}."
    return _other_exponents(implementation) or _other_base(implementation) or scaled


@law("rope", needs=(SINUSOID,), exempts=_other_angles)
def rope_rotates_by_the_angles_of_the_sinusoidal_encoding(subject: Subject, x: Any, start_pos: int, *_: Any) -> bool:
    """For every width and position: a pair (1, 0) is rotated to the cosine and the sine of the
    sinusoidal encoding.

    The law does not apply to another base, to scaled positions, or to tensor2tensor's exponents.
    """
    if not subject.implementation.allows(embed_dim=x.shape[-1]):
        return False
    rows, width = x.shape[-2:]
    _compare(subject, _angles(subject, rows, width, start_pos), _angles(subject, rows, width, start_pos, SINUSOID))
    return True
