"""Logits of attention: what stands between a score and its exponential, and what computing it costs.

    t = c·tanh(s/c)     u = t + bias          `before_bias`: the cap acts on the score alone
    t = s + bias        u = c·tanh(t/c)       `after_bias`, and `after_mask`, where blocked entries come to −c and take part

**The cap is a contraction.** With an error E of s, |c·tanh(s̃/c) − c·tanh(s/c)| ≤ E.  The quotient s/c is off by δ, which moves t by
δ·|x·sech²x|·c, x = s/c, and |x·sech²x| ≤ |tanh x|; so each rounding of the quotient, of c, of tanh and of the product is one of |t| at
most.  `Terms.cap` is all of these, and tanh's own relative error; its absolute one, where tanh is written with exponentials, counts c
times, as `Terms.cap_absolute`.  They act on t̃, |t̃| ≤ |t| + E: so E becomes E + cap·(|t| + E) + c·cap_absolute.

**A bias** is an input, and exact.  The sum is off by its rounding, and by that of both summands where they are converted to base 2 each by
itself: E becomes E + biased·(|t| + |bias| + E).  For the same reason the exponential's argument costs its slope of |t| + |bias|.

**The slope of the cap** is h = 1 − tanh²(s/c), by which gradients of scores are multiplied.  With tanh off by a, h is off by
2|tanh|·a + a²: a is E/c, where E is that of t, and cap·|tanh| for the rounding of the square; that of the difference is within cap·h, as
cap has six.
"""

from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from oracles.ball import Array
from oracles.terms import Terms
from oracles.visible import Mask


class Features(NamedTuple):
    """What a problem has besides scores.

    cap, after_bias   c, or None; and whether the cap acts on the sum with the bias
    bias              (…, n_q, n_k), finite, or None
    blocked           with `after_mask` the entries (…, n_q, n_k) that come to −c, else None
    sink              (…, n_q, 1), −∞ where there is none, or None
    """

    cap: float | None = None
    after_bias: bool = False
    bias: Array | None = None
    blocked: Mask | None = None
    sink: Array | None = None

    def at(self, batch: tuple[int, ...] | EllipsisType) -> "Features":
        """Those of one element of the batch, or of all."""
        return self._replace(**{name: x[batch] for name in ("bias", "blocked", "sink") if (x := getattr(self, name)) is not None})

    def tile(self, rows: slice, keys: slice) -> "Features":
        """Those of some rows and keys; sinks are of rows."""
        return self._replace(**{name: x[..., rows, keys] for name in ("bias", "blocked") if (x := getattr(self, name)) is not None})


class Logits(NamedTuple):
    """A tile of logits, the arguments of exponentials, and what their error bound needs.

    u        −∞ where a row may not read a key
    score    |s|, or None where u is the score itself
    capped   |t| after the cap, biased |t| + |bias| before their sum is rounded; None where there is no such step
    after    whether the cap is the last step
    blocked  where u is −c whatever the score is
    """

    u: Array
    score: Array | None = None
    capped: Array | None = None
    biased: Array | None = None
    after: bool = False
    blocked: Mask | None = None

    def in_rows(self, allowed: Mask | None) -> "Logits":
        """The sizes alone, the largest of each row (rows, 1) in place of all."""
        where = True if allowed is None else allowed

        def largest(x: Array) -> Array:
            return np.asarray(np.abs(x).max(axis=-1, keepdims=True, initial=0.0, where=where))

        sizes: dict[str, Any] = {name: largest(x) for name in ("capped", "biased") if (x := getattr(self, name)) is not None}
        return self._replace(u=self.u if sizes else largest(self.u), blocked=None, **sizes)

    @property
    def size(self) -> Array:
        """What the exponential's argument costs its slope of."""
        last, first = (self.capped, self.biased) if self.after else (self.biased, self.capped)
        return np.abs(self.u) if last is None and first is None else last if last is not None else np.asarray(first)


def logits(f: Features, s: Array, allowed: Mask | None) -> Logits:
    """The logits of a tile of scores, which they overwrite."""
    score = np.abs(s)
    biased = capped = None
    for capping in (False, True) if f.after_bias else (True, False):
        if capping and f.cap is not None:
            s /= f.cap
            np.tanh(s, out=s)
            s *= f.cap
            if f.blocked is not None:
                np.copyto(s, -f.cap, where=f.blocked)
            capped = np.abs(s)
        elif not capping and f.bias is not None:
            biased = np.abs(s) + np.abs(f.bias)
            s += f.bias
    if allowed is not None:
        np.copyto(s, -np.inf, where=~allowed)
    return Logits(s, score, capped, biased, f.after_bias, f.blocked)


def passed(x: Logits, f: Features, t: Terms, tau: Array, slope: float, largest: float) -> Array:
    """The exponent of a logit's error, given its score's: each step in turn, and the slope; ∞ where a sum may leave the range."""
    for capping in (False, True) if x.after else (True, False):
        if capping and f.cap is not None and x.capped is not None:
            tau = tau + (t.cap * (x.capped + tau) + f.cap * t.cap_absolute)
            if x.blocked is not None:
                tau = np.where(x.blocked, 0.0, tau)
        elif not capping and x.biased is not None:
            tau = tau + t.biased * (x.biased + tau)
            if not 3 * x.biased.max(initial=0.0) <= largest:
                tau = np.where(3 * x.biased <= largest, tau, np.inf)
    return np.asarray(tau + slope * (x.size + tau))


def slope_of(x: Logits, cap: float, exponents: Array, t: Terms) -> tuple[Array, Array]:
    """h = 1 − tanh²(s/c), 0 where the logit does not depend on the score, and how far a kernel's is from it; E is at most the logit's."""
    y = np.asarray(x.capped) / cap
    h, apart = (1 - y) * (1 + y), exponents / cap + t.cap * y
    off = np.minimum(2 * y * apart + apart * apart, 1.0) + t.cap * h + t.cap_absolute
    return (h, off) if x.blocked is None else (np.where(x.blocked, 0.0, h), np.where(x.blocked, 0.0, off))
