"""The logits of attention: the steps between a score and its exponential, and their rounding
errors.

    t = c·tanh(s/c)     u = t + bias          `before_bias`: the cap acts on the score alone
    t = s + bias        u = c·tanh(t/c)       `after_bias`; also `after_mask`, where masked entries
                                              become −c and take part

**The cap is a contraction.** With an error E of s, |c·tanh(s̃/c) − c·tanh(s/c)| ≤ E.  The quotient
s/c is off by δ, which moves t by δ·|x·sech²x|·c, x = s/c, and |x·sech²x| ≤ |tanh x|; so each
rounding of the quotient, of c, of tanh and of the product is one of |t| at most.  `Terms.cap` is
all of these, and tanh's own relative error; its absolute one, where tanh is written with
exponentials, counts c times, as `Terms.cap_absolute`, and so does what the quotient and tanh are
off by where they underflow, as the slope of tanh is at most 1: `Terms.quotient_underflow`.  The
product may underflow as well (`Terms.logit_underflow`).  They act on t̃, |t̃| ≤ |t| + E: so E
becomes E + cap·(|t| + E) + c·(cap_absolute + quotient_underflow) + logit_underflow.  A masked entry
becomes −c exactly, as tanh(−∞) is −1, with the same roundings: there E is 0 before the cap.  A
kernel may multiply by 1/c: where the arithmetic does not hold c or 1/c as normal numbers
(`Ranges.cap`), 0·∞ may be NaN, and the bound is ∞.

**A bias** is an input, and exact.  The sum is off by its rounding, and by the roundings of both
summands if each is converted to base 2 separately: E becomes E + biased·(|t| + |bias| + E) +
logit_underflow, where that is stored, converted or flushed. For the same reason the exponential's
argument costs its slope of |t| + |bias|.

**The slope of the cap** is h = 1 − tanh²(s/c), by which gradients of scores are multiplied.  With
tanh off by a, h is off by 2|tanh|·a + a².  Here a is E/c, with the error E of t, plus cap·|tanh|
for the rounding of the square.  The rounding of the difference is within cap·h, as cap has six.
"""

from types import EllipsisType
from typing import NamedTuple

import numpy as np

from oracles.ball import Array
from oracles.error_analysis.grouped_heads import Shared
from oracles.error_analysis.ranges import Ranges
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.visible_keys import Mask, Visible


class Features(NamedTuple):
    """What changes a score into a logit, for a tile or for a whole problem.

    cap, after_bias   c, or None; and whether the cap acts on the sum with the bias
    bias              (…, n_q, n_k), finite, or None
    blocked           with `after_mask` the entries (…, n_q, n_k) that come to −c, else None
    sink              (…, n_q, 1), −∞ for a row without a sink, or None
    """

    cap: float | None = None
    after_bias: bool = False
    bias: Array | None = None
    blocked: Mask | None = None
    sink: Array | None = None


class Tiled(NamedTuple):
    """The features of a problem, tile by tile; `blocked` are the visible keys, and all other
    entries come to −c.
    """

    cap: float | None = None
    after_bias: bool = False
    bias: Shared | None = None
    blocked: Visible | None = None
    sink: Array | None = None

    @property
    def bias_first(self) -> bool:
        """Whether the bias is added to the score itself, so that a kernel may begin the score's sum
        with it.
        """
        return self.bias is not None and (self.cap is None or self.after_bias)

    def at(self, batch: tuple[int, ...] | EllipsisType) -> "Tiled":
        """Return the features of one element of the batch, or of all."""
        if batch is ...:
            return self
        bias, blocked = (
            None if self.bias is None else self.bias.at(batch),
            None if self.blocked is None else self.blocked.at(batch),
        )
        return self._replace(bias=bias, blocked=blocked, sink=None if self.sink is None else self.sink[batch])

    def tile(self, rows: slice, keys: slice) -> Features:
        """Return the features of some rows and keys."""
        hidden = None if self.blocked is None else self.blocked.tile(rows, keys)
        return Features(
            self.cap,
            self.after_bias,
            None if self.bias is None else self.bias.tile(rows, keys),
            None if hidden is None else ~hidden,
            None if self.sink is None else self.sink[..., rows, :],
        )


class Logits(NamedTuple):
    """A tile of logits, the arguments of exponentials, and the sizes that their error bound needs:
    of each entry, or the largest of each row (rows, 1) where that is bounded by row.

    u        −∞ where a row may not read a key
    score    |s|, or None where it is not needed
    capped   |t| after the cap, biased |t| + |bias| before their sum is rounded; None without that step
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

    @property
    def size(self) -> Array:
        """What the exponential's argument costs its slope of."""
        last, first = (self.capped, self.biased) if self.after else (self.biased, self.capped)
        found = last if last is not None else first if first is not None else self.score
        return np.abs(self.u) if found is None else found


def logits(f: Features, s: Array, allowed: Mask | None, room: tuple[Array, Array] | None = None) -> Logits:
    """Return the logits of a tile of scores, which they overwrite; with `room` for two tiles, sizes
    are the largest of each row.
    """
    score = biased = capped = turned = None

    def size(x: Array, other: Array | None = None) -> Array:
        found = np.abs(x) if room is None else np.abs(x, out=room[0])
        if other is not None:
            found += np.abs(other)
        return found if room is None else _largest(found, allowed)

    if room is None or (f.cap is None and f.bias is None):
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
        elif not capping and f.bias is not None:
            biased = size(s, f.bias)
            s += f.bias
    if allowed is not None:
        np.copyto(s, -np.inf, where=~allowed)
    return Logits(s, score, capped, biased, f.after_bias, f.blocked, turned)


def _largest(x: Array, allowed: Mask | None) -> Array:
    """The largest of each row among the entries that it may read."""
    return np.asarray(x.max(axis=-1, keepdims=True, initial=0.0, where=True if allowed is None else allowed))


def passed(x: Logits, f: Tiled, t: Terms, tau: Array, ranges: Ranges, scale: float) -> Array:
    """Return the exponent of a logit's error, given its score's: each step in turn. It is ∞ where a
    sum, the cap, or the scale divided by the cap (a kernel may fold them into one number) may leave
    the range.
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
            tau = tau + (t.biased * (x.biased + tau) + t.logit_underflow)
            if not 3 * x.biased.max(initial=0.0) <= ranges.work:
                tau = np.where(3 * x.biased <= ranges.work, tau, np.inf)
    return tau


def lost_by_slope(t: Terms, amplified: float) -> float:
    """What three products with a slope lose by underflow. The steps before the last are amplified:
    by 1/c in a gradient, whose last step divides by c, and by c in a tangent, whose last step
    multiplies by c.
    """
    return (t.logit_underflow + t.quotient_underflow) * (1 + amplified)


def slope_of(x: Logits, cap: float, exponents: Array, t: Terms) -> tuple[Array, Array]:
    """h = 1 − tanh²(s/c), 0 where the logit does not depend on the score, and how far a kernel's is
    from it; E is at most the logit's.

    If sizes are row maxima, one number bounds the error in each row, as h ≤ 1; h overwrites
    `turned`.  A gradient may be stored operator by operator: dU, c·dU, c·dU·h, and c·dU·h ÷ c.
    `cap` covers these roundings: t², h and two products are 1 + 2h roundings of stored numbers, and
    the last one is the rounding of dS, while 2t² of tanh's three and 3 are charged.
    `lost_by_slope` covers the underflow.
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
