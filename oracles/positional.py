"""Sinusoidal positional encodings, and sums with any encoding, each value in a proved interval,
value ± radius.

Every function takes by keyword `arithmetic` (None for the certified value, an `Arithmetic` or a
preset's name for the budget), `conventions`, and `method` ("fast" for float64, "arb" for ball
arithmetic, "auto" for arb where float64 is too wide to judge by and arb affordable).
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np

from oracles import arrays
from oracles.ball import Array, Ball, add, exact, rounded
from oracles.conventions import Conventions
from oracles.conventions import resolve as resolve_conventions
from oracles.enclosure import Enclosure
from oracles.error_analysis.angle import blocks, cos_sin, frequencies, pair_exponents, start_position
from oracles.exact import positional as arb_positional
from oracles.formats import Arithmetic, Format
from oracles.judging import Balls, Evaluation, settle
from oracles.options import AnswerOptions, answer, takes

Given = Arithmetic | str | None

SINUSOID_BASE = 10000.0
LARGEST_TABLE, WIDEST = 2**28, 2**20
ARB_WORK = 8
"""The cost of an entry in ball arithmetic, in multiplications."""


@takes(AnswerOptions)
def sinusoidal_positional_encoding(
    seq_len: Any,
    embed_dim: Any,
    start_pos: Any = 0,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Sines and cosines of the angles (start_pos + p)·10000^(−2i/embed_dim); the result is an
    `Enclosure`.

    Column 2i of the row p is the sine and column 2i + 1 the cosine of the angle of pair i;
    `conventions.sinusoid_layout` moves all sines before the cosines, and for `tensor2tensor` the
    exponents are −i/(embed_dim/2 − 1), as in `tensor2tensor_sinusoidal`.

    Shapes: (seq_len, embed_dim).  Positions count from 0. Edge cases: an odd embed_dim ends with a
    sine; `tensor2tensor` refuses it, and embed_dim 2; sizes may be 0. Raises TypeError and
    ValueError for sizes and positions that are not natural numbers, positions beyond 2⁵³, an
    embed_dim beyond 2²⁰, and more than 2²⁸ entries.
    """
    arithmetic, conventions, method = answer(options)
    length, columns = arrays.natural(seq_len, "seq_len"), arrays.natural(embed_dim, "embed_dim", most=WIDEST)
    if length * columns > LARGEST_TABLE:
        raise ValueError(f"seq_len × embed_dim = {length} × {columns}, but should be at most {LARGEST_TABLE} entries.")
    first = start_position(start_pos, length)
    if conventions.sinusoid_layout == "tensor2tensor":
        _require_ends(columns)
    if length * columns == 0:
        empty = exact(np.empty((length, columns)))
        return settle(Evaluation(arithmetic, method, lambda: (empty,), lambda: (empty,), 0))[0]
    exponents = _exponents(columns, conventions)

    def fast() -> Balls:
        mid, rad = np.empty((length, columns)), np.empty((length, columns))
        angular_frequencies = frequencies(exponents, SINUSOID_BASE, first + length)
        for rows in blocks(length, columns):
            positions = np.arange(first + rows.start, first + rows.stop, dtype=np.float64)
            cos, sin = cos_sin(positions, angular_frequencies, arithmetic)
            _lay_out(mid[rows], sin.mid, cos.mid, conventions)
            _lay_out(rad[rows], sin.rad, cos.rad, conventions)
        result = Ball(mid, rad)
        return (result if arithmetic is None else stored(result, arithmetic.angle.table, arithmetic),)

    def arb() -> Balls:
        cos, sin = arb_positional.sinusoidal_positional_encoding(length, exponents, first, SINUSOID_BASE)
        mid, rad = np.empty((length, columns)), np.empty((length, columns))
        _lay_out(mid, sin.mid, cos.mid, conventions)
        _lay_out(rad, sin.rad, cos.rad, conventions)
        return (Ball(mid, rad),)

    return settle(Evaluation(arithmetic, method, fast, arb, ARB_WORK * length * columns))[0]


@takes(AnswerOptions)
def tensor2tensor_sinusoidal(
    seq_len: Any,
    embed_dim: Any,
    start_pos: Any = 0,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """Return an enclosure of all sines, then all cosines, of the angles (start_pos + p)·exp(−i·ln
    10000 / (embed_dim/2 − 1)).

    It is `sinusoidal_positional_encoding` with `sinusoid_layout` = `tensor2tensor`; that field of
    the given conventions is ignored: the frequencies run from 1 to 1/10000, both ends included, as
    in tensor2tensor, fairseq and fairseq2.

    Shapes: (seq_len, embed_dim).  Positions count from 0.
    Edge cases: an odd embed_dim is refused, and so is 2, where the exponents are divided by 0;
    sizes may be 0. Raises TypeError and ValueError as `sinusoidal_positional_encoding`.
    """
    conventions = replace(resolve_conventions(options["conventions"]), sinusoid_layout="tensor2tensor")
    answer_options = AnswerOptions(arithmetic=options["arithmetic"], conventions=conventions, method=options["method"])
    return sinusoidal_positional_encoding(seq_len, embed_dim, start_pos, **answer_options)


@takes(AnswerOptions)
def add_positional_encoding(
    x: Any,
    pos: Any,
    **options: Unpack[AnswerOptions],
) -> Enclosure:
    """x + pos; the result is an `Enclosure`.

    Shapes: x is (…, seq_len, embed_dim); pos is like x, or (seq_len, embed_dim) for the whole
    batch. Edge cases: a NaN or ±∞ stays in its entry; axes of size 0 are legal.
    Raises TypeError and ValueError for what are not such arrays.
    """
    arithmetic, _, method = answer(options)
    x, pos = (arrays.float_array(a, name, arithmetic=arithmetic) for a, name in ((x, "x"), (pos, "pos")))
    if x.ndim < 2:
        raise ValueError(f"x has shape {x.shape}, but should have at least two axes: (…, seq_len, embed_dim).")
    if pos.shape not in (x.shape, x.shape[-2:]):
        raise ValueError(f"pos has shape {pos.shape}, but should be {x.shape[-2:]}, as x ends, or that of x.")
    pos = np.broadcast_to(pos, x.shape)

    def fast() -> Balls:
        exact_sum = add(exact(x), exact(pos))
        if arithmetic is None:
            return (exact_sum,)
        elementwise = arithmetic.elementwise
        return (stored(rounded(exact_sum, elementwise, flush=arithmetic.flush_to_zero), elementwise, arithmetic),)

    def arb() -> Balls:
        return arb_positional.add(x, pos)

    return settle(Evaluation(arithmetic, method, fast, arb, ARB_WORK * x.size))[0]


def stored(value: Ball, source: Format, arithmetic: Arithmetic) -> Ball:
    """Return numbers of a format in the output's format: rounded, unless that format holds all of
    them.
    """
    target = arithmetic.output
    return value if target.holds(source) else rounded(value, target, flush=arithmetic.flush_to_zero)


def copied(value: Ball, arithmetic: Arithmetic) -> Ball:
    """Return numbers that are copied from the inputs' format to the output's format. Numbers below
    the smallest normal number may become 0 if the arithmetic flushes.
    """
    may_flush = np.abs(value.mid) - value.rad < arithmetic.output.smallest_normal
    if arithmetic.flush_to_zero and may_flush.any():
        value = Ball(value.mid, np.where(may_flush, np.maximum(value.rad, np.abs(value.mid)), value.rad))
    return stored(value, arithmetic.inputs, arithmetic)


def _exponents(dim: int, conventions: Conventions) -> list[Fraction]:
    """The exponent of each pair."""
    if conventions.sinusoid_layout != "tensor2tensor":
        return pair_exponents(dim)
    return [Fraction(i, dim // 2 - 1) for i in range(dim // 2)]


def _require_ends(dim: int) -> None:
    """Raise ValueError unless tensor2tensor's exponents, from 0 to 1, have as many sines as cosines
    and two ends.
    """
    if dim % 2:
        raise ValueError(f"embed_dim={dim}, but should be even: sinusoid_layout='tensor2tensor'.")
    if dim == 2:
        raise ValueError(
            "embed_dim=2, but should be 0 or at least 4: sinusoid_layout='tensor2tensor' divides by embed_dim/2 − 1."
        )


def _lay_out(out: Array, sin: Array, cos: Array, conventions: Conventions) -> None:
    """Put sines and cosines into the columns of their layout; an odd number of columns leaves out the last cosine."""
    sines, cosines = sin.shape[1], out.shape[1] // 2
    if conventions.sinusoid_layout == "interleaved":
        out[:, 0::2], out[:, 1::2] = sin, cos[:, :cosines]
    else:
        out[:, :sines], out[:, sines:] = sin, cos[:, :cosines]
