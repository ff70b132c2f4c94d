"""Laws of the angles position · base^(−2i/d), which sinusoids, rotary embeddings, their
frequencies, angles and tables have in common.
"""

from typing import Any

import numpy as np

from oracles.ball import Ball, cos, exact, sin
from properties.contract.implementation import Implementation
from properties.contract.operations import OPERATIONS
from properties.contract.subject import Subject
from properties.laws.law import Laws
from properties.laws.pairs import channels, close, joined, of, position, times
from properties.strategies.choices import Choices

law = Laws()
SINUSOID, INV_FREQ, ANGLES, TABLES = "sinusoidal_positional_encoding", "inv_freq", "rope_angles", "rope_tables"
_ROPE = ("rope", "rope_vjp")
_OF_ALL_WIDTHS = ("everyday", "odd widths")


def _size(subject: Subject, arguments: tuple[Any, ...]) -> tuple[int, int, int]:
    """The number of rows, the width and the first position of a case."""
    sizes = OPERATIONS[subject.operation].sizes(arguments)
    return (
        sizes.get("seq_len", 1),
        sizes["embed_dim" if subject.operation == SINUSOID else "head_dim"],
        sizes.get("start_pos", 0),
    )


def _angles(subject: Subject, n: int, d: int, start_pos: int, operation: str = "") -> tuple[Ball, ...]:
    """Of each row and pair the cosine and the sine; or the angle; or, of each pair, the frequency.
    Those of rope are what ones become.
    """
    o, i = operation or subject.operation, subject.implementation
    call = subject if o == subject.operation else getattr(subject, o)
    if o in (INV_FREQ, ANGLES):
        return (call(*(d,) if o == INV_FREQ else (n, d, start_pos)).ball,)
    if o == SINUSOID:
        encoding, sines = call(n, d, start_pos).ball, (d + 1) // 2
        interleaved = i.resolved_conventions.sinusoid_layout == "interleaved"
        return (encoding[:, 1::2], encoding[:, ::2]) if interleaved else (encoding[:, sines:], encoding[:, :sines])
    if o == TABLES:
        pairs = d // 2 if i.resolved_conventions.odd_lane == "passthrough" else (d + 1) // 2
        lead = slice(0, d // 2) if i.resolved_conventions.rope_pairing == "half" else slice(0, 2 * pairs, 2)
        return tuple(table.ball[:, lead] for table in call(n, d, start_pos))
    where, rank = channels(i, d), min(i.batch_ranks)
    ones = np.tile(joined(np.ones(d // 2), np.zeros(d // 2), where), (*(1,) * rank, n, 1))
    first, second = (x[(0,) * rank] for x in of(call(*(ones,) * (1 + o.endswith("_vjp")), start_pos), where))
    return first, -second if o.endswith("_vjp") else second


def _compare(subject: Subject, actual: tuple[Ball, ...], expected: tuple[Any, ...]) -> None:
    close(
        subject,
        actual,
        expected,
        *(("cosines", "sines") if len(actual) == 2 else OPERATIONS[subject.operation].outputs),
    )


@law(SINUSOID, ANGLES, TABLES)
def position_zero_is_the_identity(subject: Subject, *arguments: Any) -> None:
    """For every length and width: all angles of position 0 are 0, cosines are 1 and sines 0, each
    where it belongs.

    Within budget; exact for angles.
    """
    n, d, _ = _size(subject, arguments)
    first = tuple(x[0] for x in _angles(subject, n, d, 0))
    if len(first) == 1:
        subject.same(first[0].mid, np.zeros(d // 2), "angles")
    else:
        _compare(subject, first, (np.ones(d // 2), np.zeros(d // 2)))


@law(SINUSOID, *_ROPE, ANGLES, TABLES)
def the_first_pair_rotates_by_its_position(subject: Subject, *arguments: Any) -> None:
    """For every width and position p to 2²⁰: the angle of the first pair is p, in radians, from the
    first channel towards the second.

    For the base's power 0 is 1. Positions of rotary embeddings are multiplied by the scale of the
    conventions. Within budget.
    """
    n, d, start_pos = _size(subject, arguments)
    theta, scale = exact(np.arange(start_pos, start_pos + n, dtype=np.float64)), subject.conventions.rope_scale
    if subject.operation != SINUSOID and scale != 1:
        theta = theta * exact(scale)
    found = tuple(x[:, 0] for x in _angles(subject, n, d, start_pos))
    _compare(subject, found, (cos(theta), sin(theta)) if len(found) == 2 else (theta,))


def _other_exponents(i: Implementation) -> str:
    return (
        "Its exponents are those of tensor2tensor." if i.resolved_conventions.sinusoid_layout == "tensor2tensor" else ""
    )


@law(SINUSOID, domains=_OF_ALL_WIDTHS, exempts=_other_exponents)
@law(INV_FREQ, ANGLES, TABLES, domains=_OF_ALL_WIDTHS)
@law(*_ROPE)
def twice_the_width_has_the_same_angles_in_every_second_pair(subject: Subject, *arguments: Any) -> bool:
    """For every width d and position: the pairs 0, 2, 4, … of width 2·d have the angles of the
    pairs 0, 1, 2, … of width d.

    For 2·2i/2d is 2i/d. The last channel of an odd width begins a pair, unless it passes through.
    Within budget. The exponents of tensor2tensor are exempt, and odd widths where they are refused.
    """
    n, d, start_pos = _size(subject, arguments)
    i, sinusoid = subject.implementation, subject.operation == SINUSOID
    refused = (
        d % 2
        and not sinusoid
        and (i.resolved_conventions.odd_lane == "reject" or i.resolved_conventions.rope_pairing == "half")
    )
    if refused or not i.allows(**{"embed_dim" if sinusoid else "head_dim": 2 * d}):
        return False
    found = _angles(subject, n, d, start_pos)
    wide = _angles(subject, n, 2 * d, start_pos)
    _compare(subject, found, tuple(x[..., ::2][..., : own.mid.shape[-1]] for x, own in zip(wide, found, strict=True)))
    return True


def _other_base(i: Implementation) -> str:
    base = i.resolved_conventions.rope_base
    return "" if base == 10000.0 else f"Its frequencies are powers of {base:g}, not of 10000."


@law(SINUSOID)
@law(*_ROPE, ANGLES, TABLES, exempts=_other_base)
def a_tenth_of_the_frequency_takes_ten_times_the_position(subject: Subject, *arguments: Any) -> bool:
    """For every width divisible by 8 and position p > 0: the pairs from number d/8 on have at 10·p
    the angles of the first ones at p.

    For 10000^(−1/4) is 1/10. In the exponents of tensor2tensor the step is (d/2 − 1)/4. Within
    budget; other bases are exempt.
    """
    n, d, start_pos = _size(subject, arguments)
    i, near, step = subject.implementation, start_pos // 10, d // 8
    fewer = 2 if subject.operation == SINUSOID and i.resolved_conventions.sinusoid_layout == "tensor2tensor" else 0
    if near == 0 or step == 0 or (d - fewer) % 8 or not (i.allows(start_pos=near) and i.allows(start_pos=10 * near)):
        return False
    first, later = (_angles(subject, n, d, p) for p in (near, 10 * near))
    _compare(subject, tuple(x[0, step:] for x in later), tuple(x[0, : d // 2 - step] for x in first))
    return True


@law(SINUSOID, ANGLES, TABLES)
def angles_add_up_as_positions_do(subject: Subject, *arguments: Any, choose: Choices) -> None:
    """For every shift to 2²⁰: the angles of position p + shift are those of p plus those of the
    shift.

    Cosines and sines are multiplied as complex numbers: cos(a + b) = cos a cos b − sin a sin b.
    Within budget.
    """
    n, d, start_pos = _size(subject, arguments)
    shift = position(subject.implementation, choose, start_pos)
    rows, by = _angles(subject, n, d, start_pos), tuple(x[:1] for x in _angles(subject, n, d, shift))
    expected = times((rows[0], rows[1]), (by[0], by[1])) if len(rows) == 2 else (rows[0] + by[0],)
    _compare(subject, _angles(subject, n, d, start_pos + shift), expected)


@law(SINUSOID, TABLES)
def cosines_and_sines_lie_on_the_circle(subject: Subject, *arguments: Any) -> None:
    """For every row and pair: cos² + sin² is 1."""
    c, s = _angles(subject, *_size(subject, arguments))
    subject.close(c * c + s * s, np.ones(c.mid.shape), "cos² + sin²")


@law(ANGLES, needs=(INV_FREQ,))
def angles_are_positions_times_frequencies(subject: Subject, seq_len: int, head_dim: int, start_pos: int) -> None:
    """For every width and position: the angles of a row are the frequencies, times the position."""
    positions = exact(np.arange(start_pos, start_pos + seq_len, dtype=np.float64)[:, None])
    subject.close(subject(seq_len, head_dim, start_pos), positions * subject.inv_freq(head_dim).ball)


@law(TABLES, needs=(ANGLES,), domains=("near positions",))
def tables_are_cosines_and_sines_of_the_angles(subject: Subject, *arguments: Any) -> None:
    """For every width and position to 64: the entries of a pair are the cosine and the sine of its angle."""
    (theta,) = _angles(subject, *_size(subject, arguments), operation=ANGLES)
    _compare(subject, _angles(subject, *_size(subject, arguments)), (cos(theta), sin(theta)))


@law(TABLES, needs=("rope",))
def tables_are_what_rope_rotates_by(subject: Subject, *arguments: Any) -> None:
    """For every width and position: the entries of a pair are the cosine and the sine that rope makes of ones."""
    size = _size(subject, arguments)
    _compare(subject, _angles(subject, *size), _angles(subject, *size, operation="rope"))


def _other_angles(i: Implementation) -> str:
    scaled = (
        ""
        if i.resolved_conventions.rope_scale == 1
        else f"Its positions are scaled by {i.resolved_conventions.rope_scale:g}."
    )
    return _other_exponents(i) or _other_base(i) or scaled


@law("rope", needs=(SINUSOID,), exempts=_other_angles)
def rope_rotates_by_the_angles_of_the_sinusoidal_encoding(subject: Subject, x: Any, start_pos: int, *_: Any) -> bool:
    """For every width and position: ones in the first channels become the cosines and the sines of
    the encoding.

    Within budget. Other bases, scaled positions, and the exponents of tensor2tensor, are exempt.
    """
    if not subject.implementation.allows(embed_dim=x.shape[-1]):
        return False
    n, d = x.shape[-2:]
    _compare(subject, _angles(subject, n, d, start_pos), _angles(subject, n, d, start_pos, SINUSOID))
    return True
