"""Makes enclosures of balls (midpoint ± radius). It chooses how to evaluate, and says whether a
result is narrow enough to judge by and whether a budget is vacuous, that is, too wide to show a
mistake.
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
"""The largest number of elements of a column from which a typical one is taken."""

BLOCK = 1 << 15
"""The number of elements that are evaluated together."""

FEW_KEYS = 16
"""The least number of keys whose values mostly show that a budget is not vacuous."""

AFFORDABLE = 1 << 20
"""The number of multiplications in ball arithmetic that take about 100 ms."""


def require_method(method: object) -> None:
    """Raise ValueError or TypeError unless the method is "auto", "fast" or "arb". Raise
    RuntimeError if this thread flushes subnormal numbers to 0.

    Every operation calls this function, because the radii hold only with subnormal numbers. Half of
    the smallest normal number, doubled again, shows both kinds of flushing: of a result (the half)
    and of an operand (when the half is doubled).
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
    """Return, for each result, whether its budget is vacuous (too wide to show a mistake): it is as
    wide as the values (`is_wide`), or it accepts 0 for every element.

    Entries that should be NaN by convention are left out, because they do not show the width of the
    budget.
    """
    return tuple(is_wide(x) or (_holds_zeros(x) and bool((x.rad > 0).any())) for x in balls)


def _holds_zeros(x: Ball) -> bool:
    """Return whether a ball contains 0 in every entry that is not NaN. The first block of rows with
    an entry that excludes 0 decides.
    """
    return x.mid.size == 0 or all(bool(((np.abs(mid) <= rad) | np.isnan(mid)).all()) for _, mid, rad in _blocks(x))


def _blocks(x: Ball) -> Iterator[tuple[slice, Array, Array]]:
    """Yield blocks of rows, with their midpoints and radii, over all axes except the last. A block
    is small, so that results stay in the cache.
    """
    columns = x.mid.shape[-1] if x.mid.ndim else 1
    mid, rad = (values.reshape(-1, columns) for values in (x.mid, x.rad))
    for start in range(0, len(mid), step := max(1, BLOCK // columns)):
        rows = slice(start, start + step)
        yield rows, mid[rows], rad[rows]


def zeros_are_accepted(balls: Balls) -> tuple[bool, ...]:
    """Return the same answer for each result: whether the budgets of all results are vacuous (too
    wide to show a mistake). One table that accepts zeros is not enough, because at position 0 all
    sines should be 0.
    """
    return (all(zero_is_accepted(balls)),) * len(balls)


def attention_is_vacuous(v: Array, allowed: Callable[[int], Mask | None]) -> Callable[[Balls], tuple[bool, ...]]:
    """Return a function that says, for each result of attention, whether its budget is vacuous (too
    wide to show a mistake). It uses `mean_is_accepted` for the output, and `zero_is_accepted` for
    the log-sum-exp.
    """
    return lambda balls: (mean_is_accepted(balls[0], v, allowed), *zero_is_accepted(balls[1:]))


def is_wide(x: Ball) -> bool:
    """Return whether a budget is as wide as the values that it judges: in at least half of the
    rows, half of the radii are at least the row's mean |mid|.

    The mean is taken because the large entries of a row carry its information. A row counts only if
    one of its entries is at least 2⁻²⁴ (binary32's unit roundoff) times the largest entry of the
    matrix. The other rows differ from 0 only by rounding (the first row of dq under a causal mask)
    or underflow (dv of keys whose weights underflow). Entries with an infinite radius do not count,
    unless all radii are infinite.
    """
    if x.mid.size == 0:
        return False
    shape = (*x.mid.shape[:-1], 1)
    wide_rows = []
    for block, mid, rad in _blocks(x):
        with np.errstate(over="ignore", invalid="ignore"):
            likely = ~(
                rad.max(axis=-1) * mid.shape[-1] < np.abs(mid).sum(axis=-1)
            )  # else no radius reaches the mean, and nothing is NaN
        if likely.any():
            candidates = np.flatnonzero(likely)
            wide_rows.append(block.start + candidates[_wide_rows(mid[candidates], rad[candidates])])
    if not any(rows.size for rows in wide_rows):
        return False
    rows = np.zeros(prod(shape), dtype=bool)
    rows[np.concatenate(wide_rows)] = True
    largest = np.concatenate([np.where(np.isnan(mid), 0.0, np.abs(mid)).max(axis=-1) for _, mid, _ in _blocks(x)])
    largest, rows = largest.reshape(shape), rows.reshape(shape)[..., 0]
    largest_of_matrix = largest.max(axis=-2, keepdims=True) if largest.ndim > 1 else largest
    counts = ((largest > 0) & (largest >= BINARY32.unit_roundoff * largest_of_matrix))[..., 0]
    rows &= counts
    return bool(counts.any() and 2 * rows.sum() >= counts.sum())


def _wide_rows(mid: Array, rad: Array) -> NDArray[np.bool_]:
    """Return for each row whether half of its radii are at least the mean |mid|. Entries that are
    NaN or have an infinite radius do not count.
    """
    magnitude, known = np.abs(mid), ~np.isnan(mid) & (rad < np.inf)
    number = known.sum(axis=-1)
    with np.errstate(over="ignore", invalid="ignore"):
        reached = known & (rad * number[..., None] >= np.where(known, magnitude, 0.0).sum(axis=-1, keepdims=True))
    return np.asarray(2 * reached.sum(axis=-1) >= number)


class Evaluation(NamedTuple):
    """An operation on given arguments: the ways to enclose its results, and how to tell whether a
    budget is vacuous.

    arithmetic, method  the options of the call
    fast                the certified value, or the budget, in float64
    arb                 the certified value in ball arithmetic, which takes `work` multiplications
    vacuous             whether the budget of each result is vacuous, given all results
    sharp               a narrower certified value in float64 than `fast`, or None
    shaped              the returned results, given the computed ones
    by_rows             whether each row of the first result must be narrow, as for an output of
                        attention
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
        """Return whether a certified value is narrow enough: it can tell binary32 results apart, or
        it is the exact value up to one rounding.
        """
        narrow = all(_is_narrow(x, self.by_rows and x is balls[0]) for x in balls)
        return narrow or _is_rounded_once(balls)


def settle(of: Evaluation) -> tuple[Enclosure, ...]:
    """Return the enclosures of an operation's results, computed by the method of the call.

    "fast" takes `fast`, and "arb" takes `arb`. "auto" takes `fast`. If a certified value is then
    too wide to judge by, "auto" takes `sharp`, then `arb` if that is affordable. If it is still too
    wide, it is marked as not judged.

    A budget is never evaluated again. Its radius has a part for the oracle's float64 and a part for
    the given arithmetic. If the given arithmetic rounds at least as much as float64, the second
    part is the wider one. So a budget is too wide to judge by only if the second part is, and then
    it is vacuous with every method.  The budget of an arithmetic that is finer than float64 is
    marked as not judged.
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
    vacuous = (False,) * len(balls) if of.arithmetic is None else of.vacuous(balls)
    target = None if of.arithmetic is None else of.arithmetic.output
    shaped_results = zip(of.shaped(balls), vacuous, strict=True)
    return tuple(
        Enclosure(x.mid, x.rad, format=target, vacuous=is_vacuous, judged=judged) for x, is_vacuous in shaped_results
    )


def mean_is_accepted(out: Ball, v: Array, allowed: Callable[[int], Mask | None]) -> bool:
    """Return whether the budget of an attention output is vacuous (too wide to show a mistake).
    This is so if it is as wide as the outputs (`is_wide`). It is also so if two conditions hold
    everywhere: the budget accepts the mean of the visible values, and its radius is at least half
    of their spread.

    Both of these conditions are needed.  Uniform attention, as with q = 0, *is* the mean, and the
    tightest correct budget accepts it. A budget is vacuous if it is as wide as the range of all
    weighted means.  Only entries with two different visible values count: the result of a fully
    masked row or of a single key is known without a budget.

    `allowed(i)` says which keys are visible to query row i, for all batches: (…, 1, n_k), or None
    for all.  One row decides that the budget is not vacuous, if its radius is less than half of the
    spread or it excludes the mean. So the function rarely looks at more than one row. The spread of
    a few keys is at most the spread of all keys, so the function rarely looks at all keys. If all
    values of each column are equal, no row has two different ones.
    """
    if is_wide(out) or v.shape[-2] == 0:
        return is_wide(out)
    resolves, few = False, slice(None, None, max(1, v.shape[-2] // FEW_KEYS))
    for i in range(out.mid.shape[-2]):
        visible, mid, rad = allowed(i), out.mid[..., i, :], out.rad[..., i, :]
        for keys in (few, slice(None)):
            counted, spread = _visible_spread(v[..., keys, :], None if visible is None else visible[..., keys])
            if (rad < spread / 2).any():
                return False
        mean = np.where(counted, v, 0.0).sum(axis=-2) / np.maximum(counted.sum(axis=-2), 1)
        spreads = spread > 0
        if (spreads & (rad < np.inf) & (np.abs(mean - mid) > rad)).any():
            return False
        resolves |= bool(spreads.any())
        if i == 0 and not resolves and not (_visible_spread(v, None)[1] > 0).any():
            return False
    return resolves


def _visible_spread(v: Array, visible: Mask | None) -> tuple[Mask, Array]:
    """Return which values are visible and finite, and their largest minus their smallest number in
    each column. It is −∞ where no value is.
    """
    counted = np.isfinite(v) if visible is None else visible.mT & np.isfinite(v)
    return counted, np.where(counted, v, -np.inf).max(axis=-2) - np.where(counted, v, np.inf).min(axis=-2)


def _is_finer(a: Arithmetic | None) -> bool:
    """Return whether an arithmetic rounds less than the float64 of the oracle itself."""
    return a is not None and min(a.elementwise.unit_roundoff, a.accumulate, a.grad_accumulate) < ROUNDOFF


def _is_narrow(x: Ball, by_rows: bool = False) -> bool:
    """Return whether a certified value can tell binary32 results apart: every radius is at most u/4
    of a typical element of its column, with u = 2⁻²⁴. With `by_rows` it is also at most u/4 of the
    largest element of its row.

    Every radius is narrow if the largest radius is narrow beside the smallest element, which is
    tried first if there are few elements. Otherwise the typical element of each column counts: the
    median of its elements other than 0. It is taken from at most `SAMPLE` elements, or from all
    elements if the sampled ones are all 0, as in the last columns of a causal matrix. The largest
    element is not used, because one huge element would then excuse a wide radius elsewhere; an
    element of another column would do the same. A single row is not used, because it may differ
    from 0 only by rounding, as the first row of dq does under a causal mask. (`_has_wide_row` tests
    rows of other results.) Entries without a midpoint are left out: an input makes them unknown,
    and no method can change that.
    """
    if x.mid.size == 0 or (x.mid.size <= BLOCK and _fits(np.abs(x.mid).min(), x.rad.max())):  # false for NaN
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
        narrow[unseen] = _typically_fits(np.abs(mid.mT[unseen])[..., None], most[unseen][:, None])[:, 0]
    return bool(narrow.all())


def _has_wide_row(x: Ball) -> bool:
    """Return whether some row has a radius above u/4 of the row's largest midpoint. A reader who
    looks at such a row alone does not know its values.
    """
    if x.mid.size == 0:
        return False
    largest, largest_radius = np.abs(x.mid).max(axis=-1), x.rad.max(axis=-1)
    if np.isnan(largest).any():
        known = ~np.isnan(x.mid)
        largest, largest_radius = (np.where(known, values, 0.0).max(axis=-1) for values in (np.abs(x.mid), x.rad))
    return not bool(_fits(largest, largest_radius).all())


def _is_rounded_once(balls: Balls) -> bool:
    """Return whether every radius is at most a unit in the last place of its midpoint. No method in
    float64 can be narrower.
    """
    return all(bool((np.isnan(x.mid) | (x.rad <= np.spacing(np.abs(x.mid)))).all()) for x in balls)


def _fits(size: Array | float, most: Array | float) -> Any:
    """Return whether radii up to `most` are narrow compared with elements of size `size`, and so
    compared with larger ones.
    """
    return most <= BINARY32.unit_roundoff / 4 * size + BINARY32.smallest_subnormal


def _typically_fits(size: Array, most: Array) -> NDArray[np.bool_]:
    """Return for each column whether radii up to `most` are narrow compared with its typical
    element: the lower median of its elements other than 0 and NaN. They are then narrow compared
    with more than half of these elements. In a column without such elements the typical element is
    0.
    """
    counts = size > 0
    too_wide = counts & ~_fits(size, most[:, None])
    narrow: NDArray[np.bool_] = _fits(np.zeros(()), most) | (2 * too_wide.sum(axis=1) < counts.sum(axis=1))
    return narrow


def _around(value: Ball, budget: Ball) -> Ball:
    """Return a budget moved to a better midpoint: |out − value| ≤ |out − mid| + |mid − value|."""
    with np.errstate(all="ignore"):
        radius = np.abs(value.mid - budget.mid) + value.rad + budget.rad
        radius *= 1 + 2.0**-48
    radius = ball(value.mid, radius).rad
    return Ball(value.mid, np.where(np.isnan(value.mid), value.rad, radius))
