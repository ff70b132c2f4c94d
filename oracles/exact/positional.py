"""The exact value of every positional operation, by ball arithmetic of any precision:
`method="arb"`.

Arguments are validated float64 arrays, and positions count from 0. Each function returns a tuple of
`Ball`s (midpoint ± radius).  An entry that depends on a number that is not finite is lost: its
midpoint is NaN and its radius ∞. All other entries are known.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import prod

import numpy as np
from flint import arb

from oracles.arb_matrix import MOST_PRECISION, PRECISION, Bools, enclosed
from oracles.ball import Array, Ball
from oracles.conventions import Conventions
from oracles.error_analysis.angle import powers

Row = list[arb]
CosSin = Callable[[int], list[tuple[Row, Row]]]
"""A function that returns the cosines and sines of the given number of rows, at the working
precision.
"""


def sinusoidal_positional_encoding(
    seq_len: int, exponents: list[Fraction], start: int, base: float, scale: float = 1.0, *, precision: int = PRECISION
) -> tuple[Ball, Ball]:
    """Return the cosines and the sines of position·scale·base^(−e), both (seq_len, exponents)."""

    def both() -> list[tuple[Row, Bools]]:
        table = [pair for row in _angles(seq_len, exponents, start, base, scale) for pair in row]
        return [([pair[i] for pair in table], np.zeros((seq_len, len(exponents)), dtype=bool)) for i in range(2)]

    cos, sin = enclosed(both, precision)
    return cos, sin


def frequencies(
    exponents: list[Fraction], base: float, scale: float, *, precision: int = PRECISION
) -> tuple[Ball, ...]:
    """Return scale·base^(−e) for each exponent e."""
    return _settled(lambda: powers(exponents, base, scale), (len(exponents),), precision)


def angles(
    seq_len: int, exponents: list[Fraction], start: int, base: float, scale: float, *, precision: int = PRECISION
) -> tuple[Ball, ...]:
    """Return position·scale·base^(−e) for each position and exponent e, (seq_len, exponents)."""

    def entries() -> Row:
        row = powers(exponents, base, scale)
        return [frequency * position for position in range(start, start + seq_len) for frequency in row]

    return _settled(entries, (seq_len, len(exponents)), precision)


def add(x: Array, y: Array, *, precision: int = PRECISION) -> tuple[Ball, ...]:
    """Return x + y for two arrays of one shape."""
    return _settled(lambda: [arb(a) + arb(b) for a, b in zip(_floats(x), _floats(y), strict=True)], x.shape, precision)


def rope(
    x: Array, cos_sin: CosSin, back: bool, channels: int, most: int, *, conventions: Conventions
) -> tuple[Ball, ...]:
    """Return x with every pair of its first `channels` channels rotated by its angle, or rotated
    back; x is (…, rows, head_dim).
    """
    pair = [lane % (channels // 2) if conventions.rope_pairing == "half" else lane // 2 for lane in range(channels)]

    def entries() -> Row:
        if x.size == 0:
            return []
        table = cos_sin(x.shape[-2])
        cos, sin = ([[row[function][i] for i in pair] for row in table] for function in range(2))
        return _turned(x, cos, sin, back, conventions)

    return _settled(entries, x.shape, PRECISION, most)


def tables(cos_sin: CosSin, length: int, pairs: int, most: int, *, precision: int = PRECISION) -> tuple[Ball, ...]:
    """Return the cosine and the sine of each row and pair, both (length, pairs)."""

    def both() -> list[tuple[Row, Bools]]:
        found = cos_sin(length)
        return [([entry for row in found for entry in row[i]], np.zeros((length, pairs), dtype=bool)) for i in range(2)]

    return enclosed(both, precision, most)


def apply_rotary(
    x: Array, cos: Array, sin: Array, back: bool, *, conventions: Conventions, precision: int = PRECISION
) -> tuple[Ball, ...]:
    """Return x ⊙ cos + rotated(x) ⊙ sin, or with `back` the transpose of this map applied to x."""

    def entries() -> Row:
        cos_rows, sin_rows = ([[arb(entry) for entry in row] for row in table.tolist()] for table in (cos, sin))
        return _turned(x, cos_rows, sin_rows, back, conventions)

    return _settled(entries, x.shape, precision)


def _turned(x: Array, cos: list[Row], sin: list[Row], back: bool, conventions: Conventions) -> Row:
    """Return the rotated rows of x, given tables with an entry for each channel."""
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1]).tolist()
    results: Row = []
    for index, row in enumerate(rows):
        c, s = cos[index % len(cos)], sin[index % len(sin)]
        entries = [arb(entry) for entry in row]
        results += _turned_row(entries[: len(c)], c, s, back, conventions) + entries[len(c) :]
    return results


def _turned_row(x: Row, cos: Row, sin: Row, back: bool, conventions: Conventions) -> Row:
    """Return one rotated row: entry j is x[j]·cos[j] ∓ x[partner]·sin. Forward, the table entry of
    channel j gives the sine; back, the entry of the partner gives it.
    """
    half = len(x) // 2
    result = []
    for j, entry in enumerate(x):
        if j == 2 * half:
            literal = conventions.odd_lane == "literal"
            result.append(entry * (cos[j] + sin[j]) if literal else entry)
            continue
        first = j < half if conventions.rope_pairing == "half" else j % 2 == 0
        stride = half if conventions.rope_pairing == "half" else 1
        partner = j + stride if first else j - stride
        term = x[partner] * sin[partner if back else j]
        result.append(entry * cos[j] + (term if first == back else -term))
    return result


def _angles(
    length: int, exponents: list[Fraction], start: int, base: float, scale: float
) -> list[list[tuple[arb, arb]]]:
    """Return (cos, sin) of position·scale·base^(−e) for each position and exponent e."""
    turning = powers(exponents, base, scale)
    table = []
    for position in range(start, start + length):
        row = [(frequency * position).sin_cos() for frequency in turning]
        table.append([(cos, sin) for sin, cos in row])
    return table


def _floats(x: Array) -> Iterable[float]:
    values: list[float] = x.ravel().tolist()
    return values


def _settled(
    entries: Callable[[], Row], shape: tuple[int, ...], precision: int, most: int = MOST_PRECISION
) -> tuple[Ball, ...]:
    """Return the ball of the entries, at a precision that settles them. An entry made of finite
    numbers is a finite ball at any precision; every other entry is lost.
    """

    def evaluate() -> list[tuple[Row, Bools]]:
        found = entries()
        lost = np.array([not entry.is_finite() for entry in found], dtype=bool).reshape(shape)
        return [(found, lost)]

    return enclosed(evaluate, precision, most)
