"""Laws of the frequencies base^(−2i/d), of sinusoids and of rotary embeddings alike: what pairs of one width or of two have in common."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oracles.ball import cos, exact, sin
from properties.implementation import Implementation
from properties.law import Cases, Laws
from properties.laws.pairs import Pair, angles, both, conjugate, joined, lanes, of
from properties.strategies.arrays import UnsupportedError
from properties.strategies.positional import ACROSS, EVEN, SEQUENCES, has_width, shapes
from properties.subject import Subject

law = Laws()
SINUSOID = "sinusoidal_positional_encoding"
ALL = (SINUSOID, "rope", "rope_vjp")
_NARROW = (2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)


def _turns(subject: Subject, operation: str, seq_len: int, dim: int, start_pos: int) -> Pair:
    """The cosines and sines of all pairs in each row: those of an encoding, or those to which ones are turned, or turned back."""
    i = subject.implementation
    if operation == SINUSOID:
        return angles(i, subject.call(operation, (seq_len, dim, start_pos)))
    where = lanes(i, dim)
    lead = (1,) * min(i.batch_ranks)
    ones = np.tile(joined(np.ones(dim // 2), np.zeros(dim // 2), where), (*lead, seq_len, 1))
    arguments = (ones, start_pos) if operation == "rope" else (ones, ones, start_pos)
    first, second = (x[(0,) * len(lead)] for x in of(subject.call(operation, arguments), where))
    return (first, second) if operation == "rope" else conjugate((first, second))


def _compare(subject: Subject, actual: Pair, expected: Pair) -> None:
    for name, a, b in zip(("cosines", "sines"), actual, expected, strict=True):
        subject.close(a, b, name)


def _width(operation: str) -> str:
    return "embed_dim" if operation == SINUSOID else "head_dim"


def _sized(operation: str, i: Implementation, widths: tuple[int, ...] = EVEN, farther: int = 1) -> st.SearchStrategy[tuple[Any, ...]]:
    positions = ACROSS.map(lambda p: p // farther)
    checked = positions.map(lambda p: p if i.allows(start_pos=p) and i.allows(start_pos=farther * p) else 0)
    return st.builds(lambda size, start: (*size, start), shapes(i, _width(operation), SEQUENCES, widths), checked)


def _cases(make: Callable[..., Any]) -> dict[str, Cases]:
    return {operation: partial(make, operation) for operation in ALL}


@law(
    SINUSOID,
    cases=_cases(_sized)[SINUSOID],
    kills="rope-turns-backwards",
    purpose="It fixes unit, direction and origin of angles without an oracle.",
)
@both(
    law,
    "rope",
    cases=_cases(_sized),
    kills="rope-turns-backwards",
    purpose="It fixes unit, direction and origin of angles without an oracle.",
)
def the_first_pair_turns_by_its_position(subject: Subject, seq_len: int, dim: int, start_pos: int) -> None:
    """For every width and position p to 2²⁰: the angle of the first pair is p, in radians, from the first lane towards the second.

    For 1 is the base's power 0. Positions of rotary embeddings are scaled, where the convention says so. Within budget.
    """
    found = _turns(subject, subject.operation, seq_len, dim, start_pos)
    p = exact(np.arange(start_pos, start_pos + seq_len, dtype=np.float64))
    if subject.operation != SINUSOID and subject.implementation.reading.rope_scale != 1:
        p = p * exact(subject.implementation.reading.rope_scale)
    _compare(subject, (found[0][:, 0], found[1][:, 0]), (cos(p), sin(p)))


def _doubled(operation: str, i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return _sized(operation, i, tuple(d for d in _NARROW if i.allows(**{_width(operation): 2 * d})))


def _other_exponents(i: Implementation) -> str:
    return "Its exponents are those of tensor2tensor." if i.reading.sinusoid_layout == "tensor2tensor" else ""


@law(
    SINUSOID,
    cases=_cases(_doubled)[SINUSOID],
    exempts=_other_exponents,
    kills="sin-floor-division-comes-last",
    purpose="It ties the frequencies of all widths together without an oracle.",
)
@both(
    law,
    "rope",
    cases=_cases(_doubled),
    kills="rope-cache-ignores-width",
    purpose="It ties the frequencies of all widths together without an oracle.",
)
def every_second_pair_of_twice_the_width_is_alike(subject: Subject, seq_len: int, dim: int, start_pos: int) -> None:
    """For every width d and position: the pairs 0, 2, 4, … of width 2·d have the angles of the pairs 0, 1, 2, … of width d.

    For 2·2i/2d is 2i/d. Within budget. The exponents of tensor2tensor are exempt.
    """
    first, second = _turns(subject, subject.operation, seq_len, 2 * dim, start_pos)
    _compare(subject, _turns(subject, subject.operation, seq_len, dim, start_pos), (first[:, ::2], second[:, ::2]))


_OF_DECADES = (8, 16, 24, 32, 48, 64, 128)


def _decades(operation: str, i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    by_halves = operation == SINUSOID and i.reading.sinusoid_layout == "tensor2tensor"
    widths = tuple(d + 2 for d in _OF_DECADES) if by_halves else _OF_DECADES
    if not i.allows(seq_len=1):
        raise UnsupportedError(f"{i.name} supports no sequence of one row.")
    return _sized(operation, i, widths, 10).map(lambda case: (1, case[1], case[2]))


def _other_base(i: Implementation) -> str:
    return "" if i.reading.rope_base == 10000.0 else f"Its frequencies are powers of {i.reading.rope_base:g}, not of 10000."


@law(SINUSOID, cases=_cases(_decades)[SINUSOID], kills="sin-integer-exponent", purpose="It pins the base down without an oracle.")
@both(
    law,
    "rope",
    cases=_cases(_decades),
    exempts=_other_base,
    kills="rope-exponent-not-doubled",
    purpose="It pins the base down without an oracle.",
)
def a_tenth_of_the_frequency_takes_ten_times_the_position(subject: Subject, seq_len: int, dim: int, start_pos: int) -> None:
    """For every width divisible by 8 and position p: the pairs from number d/8 on have at 10·p the angles that the first ones have at p.

    For 10000^(−1/4) is 1/10. In the exponents of tensor2tensor the step is (d/2 − 1)/4. Within budget; other bases are exempt.
    """
    near, far = (_turns(subject, subject.operation, seq_len, dim, p) for p in (start_pos, 10 * start_pos))
    step = dim // 8  # (d/2 − 1)/4 is the same where d − 2 is divisible by 8
    pairs = dim // 2 - step
    _compare(subject, (far[0][:, step:], far[1][:, step:]), (near[0][:, :pairs], near[1][:, :pairs]))


def _other_angles(i: Implementation) -> str:
    scaled = "" if i.reading.rope_scale == 1 else f"Its positions are scaled by {i.reading.rope_scale:g}."
    return _other_exponents(i) or _other_base(i) or scaled


def _both(i: Implementation) -> st.SearchStrategy[tuple[Any, ...]]:
    return _sized("rope", i, tuple(d for d in EVEN if has_width(i, "embed_dim", d)))


@law("rope", cases=_both, needs=(SINUSOID,), exempts=_other_angles, purpose="Two ways to the same angles agree, in every pair.")
def rope_turns_by_the_angles_of_the_sinusoidal_encoding(subject: Subject, seq_len: int, dim: int, start_pos: int) -> None:
    """For every width and position: ones in the first lanes are turned to the cosines and the sines of the encoding.

    Within budget. Other bases, scaled positions, and the exponents of tensor2tensor, are exempt.
    """
    _compare(subject, _turns(subject, "rope", seq_len, dim, start_pos), _turns(subject, SINUSOID, seq_len, dim, start_pos))
