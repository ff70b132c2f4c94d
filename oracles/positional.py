"""Sinusoidal positional encodings, and sums with any encoding. Each returned value comes with a
radius: the exact value lies in value ± radius.

Every function takes three options by keyword. `arithmetic` is None for the certified value, or an
`Arithmetic` or a preset's name for the budget. `conventions` states the conventions. `method` is
"fast" for float64, "arb" for ball arithmetic, or "auto". "auto" computes in float64, and in ball
arithmetic where float64 is too wide to judge and ball arithmetic is affordable.
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
    """Return the sines and cosines of the angles (start_pos + p)·10000^(−2i/embed_dim). The result
    is an `Enclosure` (value ± radius).

    In row p, column 2i is the sine and column 2i + 1 the cosine of the angle of pair i. Other
    values of `conventions.sinusoid_layout` put all sines before the cosines. With `tensor2tensor`
    the exponents are −i/(embed_dim/2 − 1), as in `tensor2tensor_sinusoidal`.

    Shapes: (seq_len, embed_dim).  Positions count from 0.
    Edge cases: with an odd embed_dim the last column is a sine. `tensor2tensor` refuses an odd
    embed_dim, and embed_dim = 2. Sizes may be 0.
    Raises TypeError and ValueError for sizes and positions that are not natural numbers, positions
    beyond 2⁵³, an embed_dim beyond 2²⁰, and more than 2²⁸ entries.
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
    """Return all sines, then all cosines, of the angles (start_pos + p)·exp(−i·ln 10000 /
    (embed_dim/2 − 1)). The result is an `Enclosure` (value ± radius).

    The frequencies run from 1 to 1/10000, both ends included, as in tensor2tensor, fairseq and
    fairseq2. The result equals `sinusoidal_positional_encoding` with `sinusoid_layout` =
    `tensor2tensor`; that field of the given conventions is ignored.

    Shapes: (seq_len, embed_dim).  Positions count from 0.
    Edge cases: an odd embed_dim is refused. embed_dim = 2 is refused, because its exponents are
    divided by 0. Sizes may be 0.
    Raises the same errors as `sinusoidal_positional_encoding`.
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
    """Return x + pos. The result is an `Enclosure` (value ± radius).

    Shapes: x is (…, seq_len, embed_dim); pos is like x, or (seq_len, embed_dim) for the whole
    batch.
    Edge cases: a NaN or ±∞ stays in its entry; axes of size 0 are legal.
    Raises TypeError and ValueError for arrays of other shapes or types.
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
    """Return a ball of numbers of the format `source`, rounded to the output format unless that
    format holds all of them.
    """
    target = arithmetic.output
    return value if target.holds(source) else rounded(value, target, flush=arithmetic.flush_to_zero)


def copied(value: Ball, arithmetic: Arithmetic) -> Ball:
    """Return a ball of numbers that code copies from the input format to the output format. Numbers
    below the smallest normal number may become 0 if the arithmetic flushes.
    """
    may_flush = np.abs(value.mid) - value.rad < arithmetic.output.smallest_normal
    if arithmetic.flush_to_zero and may_flush.any():
        value = Ball(value.mid, np.where(may_flush, np.maximum(value.rad, np.abs(value.mid)), value.rad))
    return stored(value, arithmetic.inputs, arithmetic)


def _exponents(dim: int, conventions: Conventions) -> list[Fraction]:
    """Return the exponent 2i/dim of each pair i, or i/(dim/2 − 1) under tensor2tensor."""
    if conventions.sinusoid_layout != "tensor2tensor":
        return pair_exponents(dim)
    return [Fraction(i, dim // 2 - 1) for i in range(dim // 2)]


def _require_ends(dim: int) -> None:
    """Raise ValueError unless dim suits tensor2tensor. An odd dim has more sines than cosines, and
    dim = 2 has no two exponents from 0 to 1.
    """
    if dim % 2:
        raise ValueError(f"embed_dim={dim}, but should be even: sinusoid_layout='tensor2tensor'.")
    if dim == 2:
        raise ValueError(
            "embed_dim=2, but should be 0 or at least 4: sinusoid_layout='tensor2tensor' divides by embed_dim/2 − 1."
        )


def _lay_out(out: Array, sin: Array, cos: Array, conventions: Conventions) -> None:
    """Write sines and cosines into the columns of their layout. If the number of columns is odd,
    the last cosine is left out.
    """
    sines, cosines = sin.shape[1], out.shape[1] // 2
    if conventions.sinusoid_layout == "interleaved":
        out[:, 0::2], out[:, 1::2] = sin, cos[:, :cosines]
    else:
        out[:, :sines], out[:, sines:] = sin, cos[:, :cosines]
