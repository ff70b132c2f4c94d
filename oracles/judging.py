"""Makes enclosures of balls: chooses the evaluation, and says whether it is narrow enough to judge
by and whether a budget is vacuous.
"""

import sys
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from oracles.ball import ROUNDOFF, Array, Ball, ball
from oracles.enclosure import Enclosure
from oracles.error_analysis.visible_keys import Mask
from oracles.formats import BINARY32, Arithmetic

_SMALLEST_NORMAL = sys.float_info.min
Method = Literal["auto", "fast", "arb"]
_METHODS = get_args(Method)
_CHOICES = ", ".join(map(repr, _METHODS))
Balls = tuple[Ball, ...]

SAMPLE = 256
"""Elements of a column from which a typical one is taken, at most."""

BLOCK = 1 << 15
"""Elements that are evaluated together."""

AFFORDABLE = 1 << 20
"""Multiplications in ball arithmetic that take about 100 ms."""


def require_method(method: object) -> None:
    """Raise ValueError or TypeError unless the method is one of "auto", "fast" and "arb", and
    RuntimeError unless its arithmetic can be trusted.

    The thread that calls must not flush subnormal numbers: neither a result (half of the smallest
    normal number) nor an operand (when that is doubled again).  Every operation comes by here.
    """
    if _SMALLEST_NORMAL * 0.5 * 2.0 != _SMALLEST_NORMAL:
        raise RuntimeError(
            "This thread flushes subnormal numbers to zero, but should keep them: "
            "the oracles' radii hold for IEEE 754 only. "
            "Undo it, as by torch.set_flush_denormal(False), before an oracle is called."
        )
    if not isinstance(method, str):
        raise TypeError(f"method has type {type(method).__name__}, but should be one of {_CHOICES}.")
    if method not in _METHODS:
        raise ValueError(f"method={method!r}, but should be one of {_CHOICES}.")


def zero_is_accepted(balls: Balls) -> tuple[bool, ...]:
    """Return, for each result, whether its budget is vacuous: it is wide (`is_wide`), or zeros are
    within it everywhere.

    Entries that should be NaN by convention are left out, because they do not show the width of the
    budget.
    """
    return tuple(is_wide(x) or (_holds_zeros(x) and bool((x.rad > 0).any())) for x in balls)


def _holds_zeros(x: Ball) -> bool:
    """Whether zeros are within it everywhere, NaN left out; the first block of rows without them
    decides.
    """
    return x.mid.size == 0 or all(bool(((np.abs(mid) <= rad) | np.isnan(mid)).all()) for _, mid, rad in _blocks(x))


def _blocks(x: Ball) -> Iterator[tuple[slice, Array, Array]]:
    """Some rows at a time, over all axes except the last, so that results stay in the cache."""
    columns = x.mid.shape[-1] if x.mid.ndim else 1
    mid, rad = (part.reshape(-1, columns) for part in (x.mid, x.rad))
    for first in range(0, len(mid), step := max(1, BLOCK // columns)):
        rows = slice(first, first + step)
        yield rows, mid[rows], rad[rows]


def zeros_are_accepted(balls: Balls) -> tuple[bool, ...]:
    """Return, for each result, whether the budgets of all results are vacuous. At position 0 all
    sines should be 0, so zeros in one table do not count alone.
    """
    return (all(zero_is_accepted(balls)),) * len(balls)


def attention_is_vacuous(v: Array, allowed: Callable[[int], Mask | None]) -> Callable[[Balls], tuple[bool, ...]]:
    """Return a function that says whether budgets of attention are vacuous: `mean_is_accepted` for
    the output, `zero_is_accepted` for the log-sum-exp.
    """
    return lambda balls: (mean_is_accepted(balls[0], v, allowed), *zero_is_accepted(balls[1:]))


def is_wide(x: Ball) -> bool:
    """Return whether a budget is as wide as what it judges: in at least half of the rows, half of
    the radii reach the row's mean |mid|.

    The mean, so that a row is known by its large entries.  Rows count that have an entry above the
    last bit of binary32 next to the largest of the matrix: others differ from 0 only by rounding
    (the first row of dq under a causal mask) or underflow (dv of keys whose weights underflow).
    Entries with an infinite radius do not count, unless all radii are infinite.
    """
    if x.mid.size == 0:
        return False
    shape = (*x.mid.shape[:-1], 1)
    found = []
    for some, mid, rad in _blocks(x):
        with np.errstate(over="ignore", invalid="ignore"):
            likely = ~(
                rad.max(axis=-1) * mid.shape[-1] < np.abs(mid).sum(axis=-1)
            )  # else no radius reaches the mean, and nothing is NaN
        if likely.any():
            rest = np.flatnonzero(likely)
            found.append(some.start + rest[_wide_rows(mid[rest], rad[rest])])
    if not any(rows.size for rows in found):
        return False
    rows = np.zeros(prod(shape), dtype=bool)
    rows[np.concatenate(found)] = True
    largest = np.concatenate([np.where(np.isnan(mid), 0.0, np.abs(mid)).max(axis=-1) for _, mid, _ in _blocks(x)])
    largest, rows = largest.reshape(shape), rows.reshape(shape)[..., 0]
    most = largest.max(axis=-2, keepdims=True) if largest.ndim > 1 else largest
    counts = ((largest > 0) & (largest >= BINARY32.unit_roundoff * most))[..., 0]
    rows &= counts
    return bool(counts.any() and 2 * rows.sum() >= counts.sum())


def _wide_rows(mid: Array, rad: Array) -> NDArray[np.bool_]:
    """Whether half of each row's radii reach the mean |mid| of those that count."""
    size, judged = np.abs(mid), ~np.isnan(mid) & (rad < np.inf)
    number = judged.sum(axis=-1)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = judged & (rad * number[..., None] >= np.where(judged, size, 0.0).sum(axis=-1, keepdims=True))
    return np.asarray(2 * wide.sum(axis=-1) >= number)


class Evaluation(NamedTuple):
    """An operation on given arguments: the ways to enclose its results, and when their budget is
    vacuous.

    arithmetic, method  as they were given
    fast                the certified value, or the budget, in float64
    arb                 the certified value in ball arithmetic, which takes `work` multiplications
    vacuous             whether the budget of each result is vacuous, given all results
    sharp               a narrower certified value in float64 than `fast`, or None
    shaped              the returned results, given the computed ones
    by_rows             whether each row of the first result must be narrow, as for an output of attention
    """

    arithmetic: Arithmetic | None
    method: Method
    fast: Callable[[], Balls]
    arb: Callable[[], Balls]
    work: int
    vacuous: Callable[[Balls], tuple[bool, ...]] = zero_is_accepted
    sharp: Callable[[], Balls] | None = None
    shaped: Callable[[Balls], Balls] = tuple
    by_rows: bool = False

    def is_narrow(self, balls: Balls) -> bool:
        """Return whether a certified value can tell binary32 results apart, or is the exact value
        up to one rounding.
        """
        narrow = all(_is_narrow(x, self.by_rows and x is balls[0]) for x in balls)
        return narrow or _is_rounded_once(balls)


def settle(of: Evaluation) -> tuple[Enclosure, ...]:
    """Return the enclosures of an operation's results by a method.

    "auto" takes `fast`; a certificate that is too wide to judge by is taken from `sharp`, then from
    `arb` where that is affordable, and is marked as not judged where it is too wide still.  A
    budget has a part for the oracle's float64 and a part for the given arithmetic.  If the given
    arithmetic rounds at least as much as float64, the second part is the wider one.  So a budget is
    too wide to judge by only if the second part is, and then it is vacuous with every method.  The
    budget of an arithmetic that is finer than float64 is marked as not judged.
    """
    judged = not _is_finer(of.arithmetic)
    if of.method == "arb":
        balls = of.arb()
        if of.arithmetic is None:
            judged = of.is_narrow(balls)
        else:
            balls = tuple(_around(value, budget) for value, budget in zip(balls, of.fast(), strict=True))
    else:
        balls = of.fast()
        judged = judged and (of.arithmetic is not None or of.is_narrow(balls))
        if not judged and of.arithmetic is None and of.method == "auto":
            if of.sharp is not None:
                balls = of.sharp()
                judged = of.is_narrow(balls)
            if not judged and of.work <= AFFORDABLE:
                balls = of.arb()
                judged = of.is_narrow(balls)
    flags = (False,) * len(balls) if of.arithmetic is None else of.vacuous(balls)
    target = None if of.arithmetic is None else of.arithmetic.output
    found = zip(of.shaped(balls), flags, strict=True)
    return tuple(Enclosure(x.mid, x.rad, format=target, vacuous=flag, judged=judged) for x, flag in found)


def mean_is_accepted(out: Ball, v: Array, allowed: Callable[[int], Mask | None]) -> bool:
    """Return whether the budget is vacuous: it is as wide as the outputs (`is_wide`), or everywhere
    accepts the mean of the allowed values and is as wide as they spread, rad ≥ spread / 2.

    Both are needed.  Uniform attention, as with q = 0, *is* the mean, and the tightest correct
    budget accepts it; a budget is vacuous if it is as wide as the range in which every convex
    combination lies.  Only entries with two different allowed values count; fully masked rows and
    single keys know their result without a budget.

    `allowed(i)` says which keys query row i may read, for all batches: (…, 1, n_k), or None for
    all.  One row of values whose spread the budget resolves, or whose mean it refuses, settles the
    matter; so this rarely looks at more than one row.
    """
    if is_wide(out) or v.shape[-2] == 0:
        return is_wide(out)
    resolves = False
    for i in range(out.mid.shape[-2]):
        may = allowed(i)
        where = np.isfinite(v) if may is None else may.swapaxes(-1, -2) & np.isfinite(v)
        spread = np.where(where, v, -np.inf).max(axis=-2) - np.where(where, v, np.inf).min(axis=-2)
        mid, rad = out.mid[..., i, :], out.rad[..., i, :]
        if (rad < spread / 2).any():
            return False
        mean = np.where(where, v, 0.0).sum(axis=-2) / np.maximum(where.sum(axis=-2), 1)
        live = spread > 0
        if (live & (rad < np.inf) & (np.abs(mean - mid) > rad)).any():
            return False
        resolves |= bool(live.any())
    return resolves


def _is_finer(a: Arithmetic | None) -> bool:
    """Whether an arithmetic rounds less than the float64 of the oracle itself."""
    return a is not None and min(a.elementwise.unit_roundoff, a.accumulate, a.grad_accumulate) < ROUNDOFF


def _is_narrow(x: Ball, by_rows: bool = False) -> bool:
    """Whether a certificate can tell binary32 results apart: every rad ≤ u/4 of a typical element
    of its column, u = 2⁻²⁴, and, with `by_rows`, of the largest element of its row.

    Every radius is narrow if the largest is narrow beside the smallest element. Otherwise a column
    counts by its typical element. Typical of a column is the median of its elements other than 0,
    of `SAMPLE` of them at most, or of all where these are all 0, as the last columns of a causal
    matrix are: the largest would let one huge element excuse a wide radius elsewhere, and so would
    another column's; a single row may differ from 0 only by rounding, as the first row of dq does
    under a causal mask (`_has_wide_row` is for other results). Entries without a midpoint are left
    out: an input makes them unknown, and no method can change that.
    """
    if x.mid.size == 0 or _fits(np.abs(x.mid).min(), x.rad.max()):  # false where an element is NaN
        return True
    return not (by_rows and _has_wide_row(x)) and _is_narrow_by_columns(x)


def _is_narrow_by_columns(x: Ball) -> bool:
    """Whether every radius is narrow beside a typical element of its column."""
    rows = x.mid.shape[-2] if x.mid.ndim > 1 else 1
    mid, rad = (part.reshape(-1, rows, x.mid.shape[-1]) for part in (x.mid, x.rad))
    size, most = np.abs(mid[:, :: -(-rows // SAMPLE)]), rad.max(axis=1)
    if _fits(size.min(axis=1), most).all():  # nothing is NaN, and no typical element is smaller
        return True
    if not np.isfinite(most).all():
        most = np.where(np.isnan(mid), 0.0, rad).max(axis=1)
    narrow = _typically_fits(size, most)
    if not narrow.all():
        unseen = ~narrow & ~(size > 0).any(axis=1)
        narrow[unseen] = _typically_fits(np.abs(mid.swapaxes(-1, -2)[unseen])[..., None], most[unseen][:, None])[:, 0]
    return bool(narrow.all())


def _has_wide_row(x: Ball) -> bool:
    """Whether in some row a radius is more than u/4 of the largest midpoint: the row is unknown to
    a reader who looks at it alone.
    """
    if x.mid.size == 0:
        return False
    size, most = np.abs(x.mid).max(axis=-1), x.rad.max(axis=-1)
    if np.isnan(size).any():
        known = ~np.isnan(x.mid)
        size, most = (np.where(known, part, 0.0).max(axis=-1) for part in (np.abs(x.mid), x.rad))
    return not bool(_fits(size, most).all())


def _is_rounded_once(balls: Balls) -> bool:
    """Whether every radius is at most a unit in the last place of its midpoint: no method in float64 says more."""
    return all(bool((np.isnan(x.mid) | (x.rad <= np.spacing(np.abs(x.mid)))).all()) for x in balls)


def _fits(size: Array | float, most: Array | float) -> Any:
    """Whether radii up to `most` are narrow beside elements of this size, and so beside larger
    ones.
    """
    return most <= BINARY32.unit_roundoff / 4 * size + BINARY32.smallest_subnormal


def _typically_fits(size: Array, most: Array) -> NDArray[np.bool_]:
    """The same beside the lower median of each column's elements other than 0 and NaN, so beside
    more than half of them; beside 0 in a column without such elements.
    """
    counts = size > 0
    wide = counts & ~_fits(size, most[:, None])
    found: NDArray[np.bool_] = _fits(np.zeros(()), most) | (2 * wide.sum(axis=1) < counts.sum(axis=1))
    return found


def _around(value: Ball, budget: Ball) -> Ball:
    """A budget around a better midpoint: |out − value| ≤ |out − mid| + |mid − value|."""
    with np.errstate(all="ignore"):
        moved = np.abs(value.mid - budget.mid) + value.rad + budget.rad
        moved *= 1 + 2.0**-48
    moved = ball(value.mid, moved).rad
    return Ball(value.mid, np.where(np.isnan(value.mid), value.rad, moved))
