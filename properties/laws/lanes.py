"""Laws of the conventions about lanes: the one that is left over in an odd width, and which two are a pair."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from oracles import Enclosure
from oracles.ball import Ball
from properties.implementation import Implementation
from properties.law import Laws
from properties.laws.pairs import angles
from properties.operations import OPERATIONS
from properties.strategies.positional import (
    ODD,
    rotary,
    rotary_tables,
    rotary_tables_vjp,
    rotary_vjp,
    sinusoid,
)
from properties.subject import BrokenError, RaisedError, Subject

law = Laws()
SINUSOID = "sinusoidal_positional_encoding"
_CASES = {"rope": rotary, "rope_vjp": rotary_vjp, "apply_rotary": rotary_tables, "apply_rotary_vjp": rotary_tables_vjp}
ROTARY = tuple(_CASES)


def refused(subject: Subject, arguments: tuple[Any, ...], what: str) -> None:
    """A call raises one of the exceptions that the implementation declares to refuse with, or returns what is right, where there is such.

    The call is not kept: no oracle answers for what may be refused, and no known bug explains it.
    """
    o, refuses = OPERATIONS[subject.operation], subject.implementation.refuses
    wanted = " or ".join(kind.__name__ for kind in refuses)
    try:
        values, *_ = subject.run(o, arguments)
    except RaisedError as raised:
        subject.require(isinstance(raised.__cause__, refuses), f"{raised} But {what} should be refused by {wanted}.")
        return
    except BrokenError as broken:
        raise BrokenError(f"{broken} But {what} should be refused by {wanted}.") from None
    try:
        right = subject.expected(o, arguments)
    except ValueError:  # in its conventions there is no right answer
        right = ()
    subject.require(right, f"returned something for {what}, but should refuse it by {wanted}.")
    wrong = f"returned something wrong for {what}, but should refuse it by {wanted}"
    for name, value, answer in zip(o.outputs, values, right, strict=True):
        if isinstance(answer, Enclosure):
            excess = answer.excess(value).max(initial=0.0)
            subject.require(excess <= 1, f"{wrong}: {name} is {excess:.4g} budgets off.")
        else:
            subject.require(np.array_equal(value, answer), f"{wrong}: {name} is another mask.")


def _even_exponents(i: Implementation) -> str:
    return "The exponents of tensor2tensor are for even widths." if i.reading.sinusoid_layout == "tensor2tensor" else ""


@law(SINUSOID, cases=lambda i: sinusoid(i, widths=ODD), exempts=_even_exponents, kills="sin-odd-width-padded")
def an_odd_width_ends_with_a_sine(subject: Subject, seq_len: int, embed_dim: int, start_pos: int) -> None:
    """For every odd width: it has one sine more than cosines, and its pairs are every second pair of twice the width.

    Within budget. `tensor2tensor` is for even widths.
    """
    i, pairs = subject.implementation, embed_dim // 2
    encoding = subject(seq_len, embed_dim, start_pos)
    if not i.allows(embed_dim=2 * embed_dim):
        subject.within(encoding)
        return
    interleaved = i.reading.sinusoid_layout == "interleaved"
    sines = encoding.ball[:, 0::2] if interleaved else encoding.ball[:, : pairs + 1]
    cosines = encoding.ball[:, 1::2] if interleaved else encoding.ball[:, pairs + 1 :]
    wide_cosines, wide_sines = angles(i, subject(seq_len, 2 * embed_dim, start_pos))
    subject.close(sines, wide_sines[:, ::2], "sines")
    subject.close(cosines, wide_cosines[:, ::2][:, :pairs], "cosines")


def _with_tables(operation: str) -> bool:
    return operation.startswith("apply")


@law(*ROTARY, cases={o: partial(c, widths=ODD) for o, c in _CASES.items()}, effort=0.6, kills="rope-odd-dim-exponent")
def the_odd_lane_follows_its_convention(subject: Subject, *arguments: Any) -> None:
    """For every odd width: whole pairs are turned as in an even width that has these pairs, and the lane that is left over becomes
    x·(cos + sin) (`literal`) or stays x (`passthrough`); with `reject`, and where pairs are halves, an odd width is refused.

    Of twice the width, every second pair has these angles; tables are lengthened. A lane x·(cos + sin) is one of the pair (x, x).
    Within budget.
    """
    i = subject.implementation
    back, dim = subject.operation.endswith("vjp"), arguments[0].shape[-1]
    if i.reading.odd_lane == "reject" or i.reading.rope_pairing == "half":
        refused(subject, arguments, f"a head_dim of {dim}")
        return
    tables = _with_tables(subject.operation)
    wide = dim + 1 if tables else 2 * dim
    out = subject(*arguments)
    if not i.allows(head_dim=wide):
        subject.within(out)
        return
    lane = np.arange(dim)
    place = lane if tables else 2 * (lane - lane % 2) + lane % 2  # pair i is pair 2i of twice the width

    def widened(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        y = np.zeros((*x.shape[:-1], wide))
        y[..., place] = x
        y[..., place[-1] + 1] = x[..., -1]
        return y

    found = subject(*map(widened, arguments)).ball
    subject.close(out.ball[..., :-1], found[..., place[:-1]])
    x = arguments[OPERATIONS[subject.operation].parameters.index("grad_out")] if back else arguments[0]
    last = x[..., -1] if i.reading.odd_lane == "passthrough" else found[..., place[-1] + (0 if back else 1)]
    subject.close(out.ball[..., -1], last, "the last lane")


def _adjacent(i: Implementation) -> str:
    return "" if i.reading.rope_pairing == "half" else "Its pairs are adjacent lanes."


@law(*ROTARY, cases=_CASES, exempts=_adjacent, effort=0.6, purpose="A pairing in halves is compared with pairs that lie side by side.")
def half_pairing_is_adjacent_pairing_of_shuffled_lanes(subject: Subject, *arguments: Any) -> None:
    """For every x, where pairs are lanes (i, i + d/2): with the lanes in the order 0, d/2, 1, d/2 + 1, … it is turned as by adjacent pairs.

    The adjacent pairs are turned by the oracle. Within budget; adjacent pairing is exempt.
    """
    dim = arguments[0].shape[-1]
    order = np.arange(dim).reshape(2, -1).T.ravel()
    shuffled = tuple(x[..., order] if isinstance(x, np.ndarray) else x for x in arguments)
    reading = replace(subject.implementation.reading, rope_pairing="adjacent")
    adjacent = OPERATIONS[subject.operation].oracle(*shuffled, conventions=reading)
    subject.close(subject(*arguments).ball[..., order], Ball(adjacent.mid, adjacent.rad))
