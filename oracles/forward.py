"""The forward pass of attention with its error: one blocked online softmax, in float64.

With e_j = exp(s_j − m), D = Σ e_j and p_j = e_j/D, a kernel computes, for each column of v, the quotient

    õ = Σ e_j exp(t_j) A_j v_j / Σ e_j exp(t_j) B_j,    |t_j| ≤ τ_j + h,  |log A_j| ≤ ω_j + a,  |log B_j| ≤ ω_j + b,

of sums that are themselves off by the additions.  What the two sums share is in t: τ_j belongs to the score
(`scores.growth`), h to the row.  What each has of its own is in A and B: ω_j = slope·|s_j|, and a and b of the row.  As
Σ p_j (v_j − o) = 0,

    õ − o = [Σ p_j (exp t_j − 1)(v_j − o) + Σ p_j exp(t_j) ((A_j − 1)·v_j − (B_j − 1)·o)] / Σ p_j exp(t_j) B_j.

So an error that both sums share counts by the distance |v_j − o| ≤ |v_j − c| + |o − c| only, for any c (`Problem.centre`):
values with a common offset are as exact as those without.  The denominator is at least 1 − λ,
λ = Σ p_j (exp(τ_j + h + ω_j + b) − 1) + the error of its sum.  (Compare Blanchard, Higham & Higham, Accurately computing
the log-sum-exp and softmax functions, IMA J. Numer. Anal. 41, 2021.)

**Few keys.** Under round-to-nearest an addition is off by no more than either operand, |fl(a + b) − (a + b)| ≤
min(|a|, |b|), as a and b are themselves numbers of the format (Rump, Error estimation of floating-point summation and dot
product, BIT 52, 2012).  Call a key large if a kernel has exp(s̃_j − m) > u, and let K be the number of those that may be.
In the tree of additions of any order at most K − 1 nodes have large keys on both sides.  Any other node either adds up
small keys alone, or adds such a sum to another: all these together are off by Σ|x_j| over small keys, each term counted
once, and by γ_n of it.  Large keys are rescaled by factors other than 1 at most K times, as a kernel's maximum moves from
one large key to another; small ones may be by all the rescalings there are.  Where a part of the keys is merged that has
only small ones, of sum b, the rest is multiplied and divided by 1 + b, which rounds to 1 where b is less than u, and is
off by 8·min(u, b) else.  So with n replaced by K + 1, five times what small keys contribute, with all their exponents, and
8 times their sum of everything make up for the rest.  This is used in rows where it is less.

The oracle sees a row's maximum only at its end, so it counts as large what may be so in its tile, and as small what may be
so after a fall by `FALL`; where the maximum rises by more, all earlier keys are added to the small ones.  A key may be both.

**Underflow.** A weight that comes out as 0 is less than the smallest normal number η, but the kernel's, or the exact one,
may be exp(τ_j) times as large: so e_j + η takes the place of e_j in every bound, and exp(m_old − m_new) + η that of a
rescaling.

Here p, o, s and lse are those that float64 computes, not the exact ones, which nobody has.  That is rigorous because the
bound compares the kernel with the computed values at once: both have e_j up to an exponent, so the kernel's e_j is the
computed one up to the sum of the two, which is what `terms(arithmetic) + terms(OWN)` gives; in a certificate the exact
value takes the kernel's place.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from oracles.ball import LARGEST, ROUNDOFF, UNDERFLOW, Array, gamma
from oracles.scores import (
    Mask,
    Operand,
    Problem,
    distances,
    expm1,
    growth,
    over_keys,
    part,
    scores,
    sizes,
)
from oracles.terms import Terms

MANY = 64
"""Keys from which on it may matter that few of them are large."""

FALL = 256.0
"""A weight may fall by so much after its tile, as the maximum rises, before it is looked at again."""


@dataclass(frozen=True)
class Rows:
    """What the forward pass knows of a tile of rows; columns are (rows, 1), matrices (rows, d_v).

    lse         log-sum-exp of the scores
    dead        which rows may read no key
    out, error  the output and the bound of its error, before it is rounded to the output's format
    apart       the part of the error that the sums over keys do not share; `own_apart` that of the oracle's own arithmetic
    distance    |o − c|, from above
    shared      h
    room        1 − λ
    entry       exponent κ of a normalised weight p̃_j, on top of τ_j
    common      exponent ρ of the error that all weights of a row share
    readable    Σ|v| over the keys that a row may read, from above
    sums        what was added up over keys
    """

    lse: Array
    dead: Mask
    out: Array
    error: Array
    apart: Array
    own_apart: Array
    distance: Array
    shared: Array
    room: Array
    entry: Array
    common: Array
    readable: Array
    sums: "Sums"


@dataclass
class Sums:
    """Sums over keys, in units of e while they are added up and of p when they are complete.

    With W = e(exp τ − 1), V = e·exp(τ)·(exp ω − 1), U = e·exp(τ) of small keys, and distances |v − c|:
    total, out                 D and Σ e·v, so that `out` ends as o
    x, wander, small           ΣW, ΣV, ΣU
    size, grown, drift, tiny   Σe|v − c|, ΣW|v − c|, ΣV|v − c|, ΣU|v − c|
    spread                     Σe·rad v
    turned, moved              Σe|g·(v − c)|, ΣW|g·(v − c)|, if there is a cotangent g
    """

    total: Array
    x: Array
    wander: Array
    small: Array
    turned: Array
    moved: Array
    out: Array
    size: Array
    grown: Array
    drift: Array
    tiny: Array
    spread: Array

    def scale(self, factor: Array, upwards: Array) -> None:
        """Multiply the values by a factor, and the bounds by one that is no smaller."""
        for field in fields(Sums):
            x: Array = getattr(self, field.name)
            x *= factor if field.name in ("total", "out") else upwards


def rows_forward(p: Problem, rows: slice, g: Operand | None = None) -> Rows:
    """The forward pass of a tile of rows, keys in tiles; `g` is the cotangent of these rows, if there is one."""
    q, t = part(p.q, rows), p.terms
    head, d_v = q.value.shape[:-1], p.v.value.shape[-1]
    a = Sums(*(np.zeros((*head, 1)) for _ in range(6)), *(np.zeros((*head, d_v)) for _ in range(6)))
    m, low = (np.full((*head, 1), -LARGEST) for _ in range(2))
    large, tau = (np.zeros((*head, 1)) for _ in range(2))
    readable, unknown = (np.zeros((*head, d_v)) for _ in range(2))
    dead = np.ones((*head, 1), dtype=bool)
    few = p.elementwise and p.n_k > MANY and t.addition < np.inf
    for keys, allowed in p.key_tiles(rows):
        k, v = part(p.k, keys), part(p.v, keys)
        far = distances(v, p.centre)
        s = scores(p, q, k, allowed)
        dead &= False if allowed is None else ~allowed.any(axis=-1, keepdims=True)
        highest = np.maximum(m, s.max(axis=-1, keepdims=True))
        if few:
            risen = highest - low > np.log(FALL)
            low = np.where(risen, highest, low)
            a.small += np.where(risen, a.total + a.x, 0.0)
            a.tiny += np.where(risen, a.size + a.grown, 0.0)
        shrink = np.exp(m - highest)
        m = highest
        a.scale(shrink, shrink + UNDERFLOW)
        growths = growth(p, q, k, s, allowed, t.shared.slope)
        slopes = np.abs(s) if p.elementwise and t.apart.slope else None
        s -= m
        e = np.exp(s, out=s)
        row_sums = e.sum(axis=-1, keepdims=True)
        a.total += row_sums
        a.out += e @ v.value
        size_here, readable_here = sizes(p, e, row_sums, far, allowed)
        a.size += size_here
        readable += readable_here
        if v.rad is not None:
            a.spread += e @ v.rad
        if v.unknown is not None:
            unknown += over_keys(allowed, v.unknown)
        if not p.elementwise:
            tau = np.maximum(tau, growths)
            continue
        reach = e + t.weight_underflow if allowed is None else np.where(allowed, e + t.weight_underflow, 0.0)
        excess = expm1(growths)
        excess *= reach
        a.x += excess.sum(axis=-1, keepdims=True)
        a.grown += excess @ far
        if g is not None:
            turned = _turned(p, g, v, far, allowed)
            a.turned += (e * turned).sum(axis=-1, keepdims=True)
            a.moved += (excess * turned).sum(axis=-1, keepdims=True)
        reach += excess
        if few:
            large += np.count_nonzero(reach > t.addition, axis=-1, keepdims=True)
            rest = np.where(e * e <= FALL * t.addition * reach, reach, 0.0)
            a.small += rest.sum(axis=-1, keepdims=True)
            a.tiny += rest @ far
        if slopes is not None:
            if allowed is not None:
                np.copyto(slopes, 0.0, where=~allowed)
            slopes *= t.apart.slope
            reach *= expm1(slopes)
            a.wander += reach.sum(axis=-1, keepdims=True)
            a.drift += reach @ far
    total = a.total.copy()
    a.scale(1 / total, 1 / total)
    a.total = total
    if not p.elementwise:
        a.x = expm1(tau) * (1 + p.n_k * t.weight_underflow)
        a.grown = a.x * (a.size + t.weight_underflow * readable)
    a.out = np.where(unknown > 0, np.nan, a.out)
    return _bounded(p, m, m + np.log(total), dead, a, large if few else None, readable)


def _turned(p: Problem, g: Operand, v: Operand, far: Array, allowed: Mask | None) -> Array:
    """Upper bounds of |g·(v − c)|, 0 where a row may not read a key; the product is off by γ·|g||v − c|ᵀ."""
    turned = np.abs(g.value @ (v.value - p.centre).swapaxes(-1, -2))
    relative = gamma(far.shape[-1] + 4, ROUNDOFF)
    turned += (relative * g.length)[..., :, None] * np.sqrt(np.einsum("...d,...d->...", far, far))[..., None, :]
    if g.rad is not None:
        turned += g.rad @ far.swapaxes(-1, -2)
    if v.rad is not None:
        turned += g.reach @ v.rad.swapaxes(-1, -2)
    if allowed is not None:
        np.copyto(turned, 0.0, where=~allowed)
    return turned


def uniform_rows(p: Problem) -> Rows:
    """The one row (1, d_v) of a query that may read no key and reads all of them equally."""
    head, n_k, d_v = p.v.value.shape[:-2], p.n_k, p.v.value.shape[-1]
    far = distances(p.v, p.centre).sum(axis=-2, keepdims=True)
    a = Sums(*(np.zeros((*head, 1, 1)) for _ in range(6)), *(np.zeros((*head, 1, d_v)) for _ in range(6)))
    a.total += n_k
    a.out = p.v.raw.sum(axis=-2, keepdims=True) / n_k
    a.size = far / n_k
    a.spread = a.spread if p.v.rad is None else p.v.rad.sum(axis=-2, keepdims=True) / n_k
    return _bounded(p, np.zeros((*head, 1, 1)), np.log(a.total), np.zeros((*head, 1, 1), dtype=bool), a, None, far)


class _Few(NamedTuple):
    """The error of sums in which few keys are large, as a `Sum` for each row, and the rescalings that these go through."""

    terms: Array
    result: Array
    shared: Array
    apart: Array


def _few(t: Terms, large: Array) -> _Few:
    """K + 1 in place of n, and at most so many rescalings."""
    once = (large + 1) * t.addition
    many = np.where(once < 1, once / (1 - once), np.inf) * (1 + 4 * t.addition) / 2
    shared, apart = (np.minimum(of.rescale, (large + 1) * of.rescaling) for of in (t.shared, t.apart))
    return _Few(2 * t.addition + many, many, shared, apart)


def _bounded(p: Problem, m: Array, lse: Array, dead: Mask, a: Sums, large: Array | None, readable: Array) -> Rows:
    """The module's bound.  Its own sums over keys are known to γ_{n_k}(2⁻⁵³), which `inflation` covers."""
    t, n_k = p.terms, p.n_k
    inflation = 1 + 8 * gamma(n_k + 8, ROUNDOFF)
    centre, m, size_of_lse = np.abs(p.centre), np.abs(m), np.abs(lse)
    distance = np.abs(a.out - p.centre) + (inflation - 1) * (a.size + centre) + a.spread
    h, b = t.shared.of_row(m, size_of_lse), t.apart.of_row(m, size_of_lse) + t.summed_weights
    terms, result = (np.full(m.shape, x) for x in (t.sum.terms, t.sum.result))
    small, tiny = np.zeros(m.shape), np.zeros(a.out.shape)
    if large is not None:
        few, all_exponents = _few(t, large), np.exp(h + b + t.normalise + t.weights + t.product) * (1 + t.sum.positive)
        gain = t.sum.positive - few.terms - few.result + t.shared.rescale - few.shared + t.apart.rescale - few.apart
        of_small = 8 * all_exponents * a.small
        use = gain > of_small
        h = np.where(use, h - t.shared.rescale + few.shared, h)
        b = np.where(use, b - t.apart.rescale + few.apart, b)
        terms, result = np.where(use, few.terms, terms), np.where(use, few.result, result)
        small = np.where(use, of_small, 0.0)
        tiny = np.where(use, 5 * all_exponents * (a.tiny + centre * a.small) + of_small * (a.size + centre), 0.0)
    lam = np.exp(b + h) * (a.x + a.wander) + _expm1(b + h + terms + result) + 4 * n_k * t.weight_underflow + small
    lam = lam * inflation
    room = np.where(lam < 1.0, 1.0 - lam, np.nan)
    grown = np.exp(h) * (a.grown + distance * a.x) + _expm1(h) * (a.size + distance)
    absolute = a.spread + t.weight_underflow * (readable + n_k * centre) + t.sum_underflow

    def apart(of: Terms, b: Array, terms: Array, result: Array, wander: Array, drift: Array) -> Array:
        """What the sums do not share: of the numerator, and |o| times that of the denominator."""
        c = b - of.summed_weights + of.normalise + of.weights + of.product
        size, drift = a.size + centre + a.grown + centre * a.x, drift + centre * wander
        numerator = np.exp(h) * (np.exp(c) * drift + _expm1(c) * size)
        out = np.abs(a.out) + (inflation - 1) * (a.size + centre)
        denominator = np.exp(h) * (np.exp(b) * wander + _expm1(b) * (1 + a.x)) + 4 * n_k * of.weight_underflow
        denominator = denominator + (terms + result) * np.exp(h + b) * (1 + a.x + wander)
        sums = terms * np.exp(h + c) * (size + drift) + result * (out + grown + numerator)
        found: Array = (numerator + sums + out * denominator + np.exp(c + h) * absolute) * inflation / room
        return found

    rest = apart(t, b, terms, result, a.wander, a.drift) + (tiny + (np.abs(a.out) + distance) * small) * inflation / room
    own_rest = rest
    if p.terms is not p.own:
        own_b, nothing = p.own.apart.of_row(m, size_of_lse), np.zeros(m.shape)
        own_rest = apart(p.own, own_b, nothing + p.own.sum.terms, nothing + p.own.sum.result, nothing, 0.0 * tiny)
    error = grown * inflation / room + rest
    overflow = (a.size + centre) * a.total * (1 + 2.0**-6) > p.ranges.work
    unknown = np.where(overflow, np.inf, 0.0)
    entry = t.anew.of_row(m, size_of_lse) + t.normalise + t.saved_weights
    common = t.saved_lse * size_of_lse - np.log1p(-lam)

    def live(x: Array, otherwise: float = 0.0) -> Array:
        return np.where(dead, otherwise, x)

    return Rows(
        lse=live(lse),
        dead=dead,
        out=live(a.out),
        error=live(error + unknown),
        apart=live(rest + unknown),
        own_apart=live(own_rest),
        distance=live(distance),
        shared=live(h),
        room=live(room, 1.0),
        entry=live(entry),
        common=live(common),
        readable=readable + n_k * centre,
        sums=a,
    )


def _expm1(x: Array) -> Array:
    """exp(x) − 1, rounded upwards."""
    return np.asarray(np.expm1(x) * (1 + 2.0**-48))
