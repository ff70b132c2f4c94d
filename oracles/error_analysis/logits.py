"""The logits of attention: the steps between a score s and its exponential, and their rounding
errors.

    t = c·tanh(s/c)     u = t + bias          `before_bias`: the cap acts on the score alone
    t = s + bias        u = c·tanh(t/c)       `after_bias`; also `after_mask`, where masked entries
                                              become −c and take part

**The cap does not enlarge an error.** With an error E of s, |c·tanh(s̃/c) − c·tanh(s/c)| ≤ E.  If
the quotient x = s/c is off by a relative δ, t moves by δ·|x·sech²x|·c, and |x·sech²x| ≤ |tanh x|.
So a rounding of the quotient, of c, of tanh or of the product costs at most one rounding of |t|.
`Terms.cap` is the sum of these roundings and of tanh's own relative error.

Absolute errors near zero are separate. `Terms.cap_absolute` is the absolute error of a tanh that is
computed by exponentials; c multiplies it. `Terms.quotient_underflow` is the error of the quotient
and of tanh where they underflow; c multiplies it too, because the slope of tanh is at most 1.
`Terms.logit_underflow` is the underflow of the product.

All these are errors of the computed t̃, and |t̃| ≤ |t| + E. So E becomes E + cap·(|t| + E) +
c·(cap_absolute + quotient_underflow) + logit_underflow.  A masked entry becomes −c exactly, because
tanh(−∞) is −1, with the same roundings: there E is 0 before the cap.  A kernel may multiply by 1/c.
Where the arithmetic does not hold c or 1/c as a normal number (`Ranges.cap`), 0·∞ may be NaN, and
the bound is ∞.

**A bias** is an input, so it is exact.  The sum of t and the bias is off by its rounding. If a
kernel converts both summands to base 2 separately, it is also off by the roundings of both. So E
becomes E + biased·(|t| + |bias| + E) + bias·|bias| + logit_underflow, where `Terms.bias` is the
rounding of a bias that is read in fewer bits, and the last covers a sum that is stored,
converted or flushed. For the same reason the slope of the exponential's argument multiplies |t| +
|bias|.

**ALiBi** adds A = −slope·|p − j|, or slope·j, where a bias is added. Both sums round, so with a bias
and ALiBi the error of a sum counts twice, of |t| + |bias| + |A|.  A kernel may round the slope where it
reads it. It multiplies the slope by log₂e, or divides it by the scale, if it adds A before the product
with the scale. This rounds the constant, the scale, and the product or the quotient: four roundings with
the first. The distance as a number of the format and its product with the slope are two more:
`Terms.alibi` is γ₆, times |A|.  A slope that underflows by η moves A by η·|p − j|, times the scale if
the slope was divided by it; the product of the distance may underflow too. `Terms.alibi_underflow` is
2η·max(1, |scale|), times |p − j|. The bound is ∞ where the distance, or A over the scale, leaves the
range. A matrix of A that is read in fewer bits rounds like a bias.  The difference slope·j − slope·p of
two products is not covered: it cancels.

**Dropout** multiplies each weight by M/(1 − p), where M is 0 or 1, after the log-sum-exp. M is exact,
and it only leaves out terms of sums, so all bounds of errors stay true; those of each entry are
multiplied by M. `AttentionCall.thinned` derives the error of the quotient.

**The slope of the cap** is h = 1 − tanh²(s/c), which multiplies gradients of scores.  If tanh is
off by a, h is off by 2|tanh|·a + a².  Here a is E/c, with the error E of t, plus cap·|tanh| for the
rounding of the square.  The rounding of the difference is within cap·h, because cap counts six
roundings.
"""

from types import EllipsisType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.ball import Array
from oracles.error_analysis.grouped_heads import Shared
from oracles.error_analysis.ranges import Ranges
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.visible_keys import Mask, Visible


class Features(NamedTuple):
    """The steps that change a score into a logit, for a tile or for a whole problem.

    cap, after_bias  c, or None; and whether the cap acts on the sum with the bias
    bias             (…, n_q, n_k), finite, or None
    slope, distance  (…, n_q, 1) and (…, n_q, n_k): ALiBi adds their product. Both are None without it
    kept, dropout    (…, n_q, n_k), 1 for a weight that dropout keeps and 0 for others, or None; and p
    blocked          with `after_mask` the entries (…, n_q, n_k) that become −c, else None
    sink             (…, n_q, 1), −∞ for a row without a sink, or None
    """

    cap: float | None = None
    after_bias: bool = False
    bias: Array | None = None
    blocked: Mask | None = None
    sink: Array | None = None
    slope: Array | None = None
    distance: Array | None = None
    kept: Array | None = None
    dropout: float = 0.0

    @property
    def alibi(self) -> Array | None:
        """A, which ALiBi adds to each score; None without it."""
        return None if self.slope is None or self.distance is None else self.slope * self.distance

    @property
    def summands(self) -> list[Array]:
        """What is added to each score: the bias and A, as far as there are any."""
        return [x for x in (self.bias, self.alibi) if x is not None]


class Slopes(NamedTuple):
    """ALiBi's slope of each row (…, n_q, 1), and the positions of the rows among the keys, (n_q,) or
    (…, n_q): the slope multiplies −|p − j|, or j without positions.
    """

    slope: Array
    positions: NDArray[np.int64] | None

    def at(self, batch: tuple[int, ...] | EllipsisType) -> "Slopes":
        """Return the slopes of one element of the batch, or of all."""
        if batch is ...:
            return self
        shared = self.positions is None or self.positions.ndim == 1
        return Slopes(self.slope[batch], self.positions if shared or self.positions is None else self.positions[batch])

    def tile(self, rows: slice, keys: slice) -> tuple[Array, Array]:
        """Return the slopes and the distances of some rows and keys."""
        slope, j = self.slope[..., rows, :], np.arange(keys.start, keys.stop)
        if self.positions is None:
            return slope, np.broadcast_to(j, (slope.shape[-2], len(j))).astype(np.float64)
        return slope, -np.abs(self.positions[..., rows, None] - j).astype(np.float64)


class Tiled(NamedTuple):
    """The features of a problem (bias, softcap, sinks, ALiBi), which can be read tile by tile. Here
    `blocked` holds the visible keys, or None; all other entries become −c.
    """

    cap: float | None = None
    after_bias: bool = False
    bias: Shared | None = None
    blocked: Visible | None = None
    sink: Array | None = None
    slopes: Slopes | None = None
    kept: Shared | None = None
    dropout: float = 0.0

    @property
    def first_summands(self) -> int:
        """How many of the bias and ALiBi are added to the score itself, so that a kernel may begin the
        score's sum with them.
        """
        count = (self.bias is not None) + (self.slopes is not None)
        return count if self.cap is None or self.after_bias else 0

    def at(self, batch: tuple[int, ...] | EllipsisType) -> "Tiled":
        """Return the features of one element of the batch, or of all elements."""
        if batch is ...:
            return self
        bias, blocked = (
            None if self.bias is None else self.bias.at(batch),
            None if self.blocked is None else self.blocked.at(batch),
        )
        slopes = None if self.slopes is None else self.slopes.at(batch)
        sink = None if self.sink is None else self.sink[batch]
        kept = None if self.kept is None else self.kept.at(batch)
        return self._replace(bias=bias, blocked=blocked, sink=sink, slopes=slopes, kept=kept)

    def tile(self, rows: slice, keys: slice) -> Features:
        """Return the features of some rows and keys."""
        hidden = None if self.blocked is None else self.blocked.tile(rows, keys)
        slope, distance = (None, None) if self.slopes is None else self.slopes.tile(rows, keys)
        return Features(
            self.cap,
            self.after_bias,
            None if self.bias is None else self.bias.tile(rows, keys),
            None if hidden is None else ~hidden,
            None if self.sink is None else self.sink[..., rows, :],
            slope,
            distance,
            self.kept_tile(rows, keys),
            self.dropout,
        )

    def kept_tile(self, rows: slice, keys: slice) -> Array | None:
        """Return 1 for each weight of some rows and keys that dropout keeps, and 0 for others; None
        without dropout.
        """
        return None if self.kept is None else self.kept.tile(rows, keys).astype(np.float64)


class Logits(NamedTuple):
    """A tile of logits, which are the arguments of exponentials, and the sizes on which their error
    bound depends. A size belongs to each entry, or it is the largest of each row (rows, 1) if
    errors are bounded by row.

    u        the logits, −∞ at masked keys
    score    |s|, or None if it is not needed
    capped   |t| after the cap; None without a cap
    biased   |t| + |bias| + |A| before their sums are rounded; None without a bias and ALiBi
    added    |bias| + |A|; None without both
    sums     how many numbers are added to a score
    alibi    |A| and |p − j|; None without ALiBi
    after    whether the cap is the last step
    blocked  where u is −c and does not depend on the score
    turned   tanh of each entry, if sizes are row maxima
    """

    u: Array
    score: Array | None = None
    capped: Array | None = None
    biased: Array | None = None
    after: bool = False
    blocked: Mask | None = None
    turned: Array | None = None
    added: Array | None = None
    sums: int = 0
    alibi: tuple[Array, Array] | None = None

    @property
    def size(self) -> Array:
        """The size that the slope of the exponential's argument multiplies."""
        last, first = (self.capped, self.biased) if self.after else (self.biased, self.capped)
        found = last if last is not None else first if first is not None else self.score
        return np.abs(self.u) if found is None else found


def logits(f: Features, s: Array, allowed: Mask | None, room: tuple[Array, Array] | None = None) -> Logits:
    """Return the logits of a tile of scores, which are overwritten. With `room` for two tiles, the
    sizes are the largest of each row.
    """
    score = biased = capped = turned = None
    summands = f.summands

    def size(x: Array, *others: Array) -> Array:
        found = np.abs(x) if room is None else np.abs(x, out=room[0])
        for other in others:
            found += np.abs(other)
        return found if room is None else _largest(found, allowed)

    if room is None or (f.cap is None and not summands):
        score = size(s)
    for capping in (False, True) if f.after_bias else (True, False):
        if capping and f.cap is not None:
            s /= f.cap
            np.tanh(s, out=s)
            if room is not None:
                turned = room[1]
                np.copyto(turned, s)
            s *= f.cap
            if f.blocked is not None:
                np.copyto(s, -f.cap, where=f.blocked)
            capped = size(s)
        elif not capping and summands:
            biased = size(s, *summands)
            for summand in summands:
                s += summand
    if allowed is not None:
        np.copyto(s, -np.inf, where=~allowed)
    added = size(*summands) if summands else None
    alibi = None if f.distance is None else (size(summands[-1]), size(np.broadcast_to(f.distance, s.shape)))
    return Logits(s, score, capped, biased, f.after_bias, f.blocked, turned, added, len(summands), alibi)


def _largest(x: Array, allowed: Mask | None) -> Array:
    """Return the largest entry of each row among its visible keys."""
    return np.asarray(x.max(axis=-1, keepdims=True, initial=0.0, where=True if allowed is None else allowed))


def passed(x: Logits, f: Tiled, t: Terms, tau: Array, ranges: Ranges, scale: float) -> Array:
    """Return the exponent of a logit's error, given the error of its score: each step from score to
    logit adds its error.

    It is ∞ where a sum or the cap may leave the range. It is also ∞ where scale/cap may, because a
    kernel may fold these two into one number.
    """
    smallest, largest = ranges.cap
    for capping in (False, True) if x.after else (True, False):
        if capping and f.cap is not None and x.capped is not None:
            if x.blocked is not None and x.turned is None:
                tau = np.where(x.blocked, 0.0, tau)
            tau = tau + (t.cap * (x.capped + tau) + f.cap * (t.cap_absolute + t.quotient_underflow) + t.logit_underflow)
            if not (smallest <= f.cap <= largest and (scale == 0 or smallest <= abs(scale) / f.cap <= largest)):
                tau = np.full(tau.shape, np.inf)
        elif not capping and x.biased is not None:
            tau = tau if x.alibi is None else tau + _alibi_error(*x.alibi, t, ranges, scale)
            for _ in range(x.sums):
                tau = tau + (t.biased * (x.biased + tau) + t.logit_underflow)
            if t.bias and x.added is not None:
                tau = tau + np.where(x.added <= ranges.bias, t.bias * x.added, np.inf)
            if not 3 * x.biased.max(initial=0.0) <= ranges.work:
                tau = np.where(3 * x.biased <= ranges.work, tau, np.inf)
    return tau


def _alibi_error(size: Array, distance: Array, t: Terms, ranges: Ranges, scale: float) -> Array:
    """Return the error of A, given |A| and |p − j|. It is ∞ where a number may leave the range: the
    distance, or A over a scale by which a kernel may divide.
    """
    divided = size if scale == 0 else size * max(1.0, 1 / abs(scale))
    inside = (distance <= ranges.work) & (2 * divided <= ranges.work)
    return np.where(inside, t.alibi * size + t.alibi_underflow * distance, np.inf)


def lost_by_slope(t: Terms, amplified: float) -> float:
    """Return how much three products with a slope lose by underflow.

    The steps before the last one are amplified: by 1/c in a gradient, whose last step divides by c;
    by c in a tangent, whose last step multiplies by c.
    """
    return (t.logit_underflow + t.quotient_underflow) * (1 + amplified)


def slope_of(x: Logits, cap: float, exponents: Array, t: Terms) -> tuple[Array, Array]:
    """Return the slope h = 1 − tanh²(s/c) of the softcap, and how far a kernel's may be from it. h
    is 0 where the logit does not depend on the score. E is at most the error of the logit.

    If sizes are row maxima, one number bounds the error in each row, because h ≤ 1, and h
    overwrites `turned`.  A gradient may be stored operator by operator: dU, c·dU, c·dU·h, and
    c·dU·h ÷ c. `cap` covers these roundings. t², h and two products are 1 + 2h roundings of stored
    numbers, and the last one is the rounding of dS; the bound has 2t² from tanh's three roundings,
    and 3 more. `lost_by_slope` covers the underflow.
    """
    size = np.asarray(x.capped) / cap
    apart = exponents / cap + t.cap * size
    if x.turned is None:
        h = most = (1 - size) * (1 + size)
    else:
        above = 1 + x.turned
        h, most = np.subtract(1.0, x.turned, out=x.turned), np.ones((1, 1))
        h *= above
    off = np.minimum(2 * size * apart + apart * apart, 1.0) + t.cap * most + t.cap_absolute
    return (h, off) if x.blocked is None else (np.where(x.blocked, 0.0, h), np.where(x.blocked, 0.0, off))
