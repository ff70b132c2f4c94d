"""The error of the output of attention, a quotient of two sums over keys.

With e_j = exp(s_j − m), D = Σ e_j and p_j = e_j/D, a kernel computes, for each column of v, the
quotient

    õ = Σ e_j exp(t_j) A_j v_j / Σ e_j exp(t_j) B_j,    |t_j| ≤ τ_j + h,  |log A_j| ≤ ω_j + a,  |log B_j| ≤ ω_j + b,

of sums that are themselves off by the additions.  What the two sums share is in t: τ_j belongs to
the score (`scores.growth`), h to the row.  What each has of its own is in A and B: ω_j =
slope·|s_j|, and a and b of the row.  As Σ p_j (v_j − o) = 0,

    õ − o = [Σ p_j (exp t_j − 1)(v_j − o) + Σ p_j exp(t_j) ((A_j − 1)·v_j − (B_j − 1)·o)] / Σ p_j
    exp(t_j) B_j.

So an error that both sums share counts by the distance |v_j − o| ≤ |v_j − c| + |o − c| only, for
any c (`AttentionProblem.centre`): values with a common offset are as exact as those without.  The
denominator is at least 1 − λ,
λ = Σ p_j (exp(τ_j + h + ω_j + b) − 1) + the error of its sum.  (Compare Blanchard, Higham & Higham,
Accurately computing the log-sum-exp and softmax functions, IMA J. Numer. Anal. 41, 2021.)

**Few keys.** Under round-to-nearest an addition is off by no more than either operand, |fl(a + b) −
(a + b)| ≤ min(|a|, |b|), as a and b are themselves numbers of the format (Rump, Error estimation of
floating-point summation and dot product, BIT 52, 2012).  Call a key large if a kernel has exp(s̃_j
− m) > u, and let K be the number of those that may be. In the tree of additions of any order at
most K − 1 nodes have large keys on both sides.  Any other node either adds up small keys alone, or
adds such a sum to another: all these together are off by Σ|x_j| over small keys, each term counted
once, and by γ_n of it.  Large keys are rescaled by other exponentials than exp(0) = 1 at most K
times, as a kernel's maximum moves from one large key to another; small ones may be by all there
are.  (The products with these factors count in full: a kernel that keeps its output normalised
rounds it each time.)  So with n replaced by K + 1, five times what small keys contribute, with all
their exponents, and 8 times their sum of everything make up for the rest.  This is used in rows
where it is less.

The oracle sees a row's maximum only at its end, so it counts as large what may be so in its tile,
and as small what may be so after a fall by `FALL`; where the maximum rises by more, all earlier
keys are added to the small ones.  A key may be both.

Here p, o, s and lse are those that float64 computes, not the exact ones, which nobody has.  That is
rigorous because the bound compares the kernel with the computed values at once: both have e_j up to
an exponent, so the kernel's e_j is the computed one up to the sum of the two, which is what `terms`
gives; in a certificate the exact value takes the kernel's place.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.ball import ROUNDOFF, Array, expm1_upwards, gamma
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.scores import AttentionProblem
from oracles.error_analysis.visible_keys import Mask

Bound = Array | float
"""Upper bounds of each row or entry, or one number for all."""


@dataclass
class Sums:
    """Sums over keys, in units of e while they are added up and of p when they are complete; 0
    where nothing was added.

    With W = e(exp τ − 1), V = e·exp(τ)·(exp ω − 1), U = e·exp(τ) of small keys, and distances |v − c|:
    total, out                 D and Σ e·v, so that `out` ends as o
    x, wander, small           ΣW, ΣV, ΣU
    size, grown, drift, tiny   Σe|v − c|, ΣW|v − c|, ΣV|v − c|, ΣU|v − c|
    spread                     Σe·rad v
    turned, moved, swayed      Σe|g·(v − c)|, ΣW|g·(v − c)|, ΣV|g·(v − c)|, if there is a cotangent g
    large                      how many keys are large, where they are counted
    """

    total: Array
    out: Array
    x: Bound = 0.0
    wander: Bound = 0.0
    small: Bound = 0.0
    size: Bound = 0.0
    grown: Bound = 0.0
    drift: Bound = 0.0
    tiny: Bound = 0.0
    spread: Bound = 0.0
    turned: Bound = 0.0
    moved: Bound = 0.0
    swayed: Bound = 0.0
    large: NDArray[np.int64] | None = None

    def scale(self, factor: Array, upwards: Array) -> None:
        """Multiply all sums but the total: `out` by a factor, and bounds by one that is no smaller."""
        for name, x in vars(self).items():
            if name not in ("total", "large") and isinstance(x, np.ndarray):
                x *= factor if name == "out" else upwards

    def add(self, other: "Sums") -> None:
        """Add the sums over other keys."""
        for name, x in vars(self).items():
            if isinstance(x, np.ndarray):
                x += getattr(other, name)


class Unshared(NamedTuple):
    """The part of the error of the output that the two sums over keys do not share, by what it is
    common to.

    key          exponent of A_j, which all columns of the output share, on top of ω_j
    row          error of the denominator, for each unit of |o|
    column       the rest of the error of each entry
    """

    key: Bound
    row: Array
    column: Array


@dataclass(frozen=True)
class Rows:
    """What the forward pass knows of a tile of rows; columns are (rows, 1), matrices (rows, d_v).

    lse           log-sum-exp of the scores
    dead          which rows may read no key, None where there are none
    lost          of which rows D may overflow, or all weights be lost: nothing is known of these, though v may have no columns
    out, error    the output and the bound of its error, before it is rounded to the output's format
    unshared      the part of the error that the sums over keys do not share, where there is a cotangent
    own_unshared  that of the oracle's own arithmetic, where a kernel's δ may be taken from the weights besides
    distance      |o − c|, from above
    shared        h
    lam           λ
    room          1 − λ
    readable      Σ|v| over the keys that a row may read, from above
    sums          what was added up over keys
    sizes         |m| and |lse|, from above
    terms         the terms that it is bounded by
    """

    lse: Array
    dead: Mask | None
    lost: Mask
    out: Array
    error: Array
    unshared: Unshared | None
    own_unshared: Unshared | None
    distance: Array
    shared: Bound
    lam: Array
    room: Array
    readable: Bound
    sums: Sums
    sizes: tuple[Array, Array]
    terms: Terms

    @cached_property
    def entry(self) -> Any:
        """The exponent κ of a normalised weight p̃_j, on top of τ_j."""
        t = self.terms
        return live(t.anew.of_row(*self.sizes) + t.rescaled + t.normalise + t.saved_weights, self.dead)

    @cached_property
    def lse_error(self) -> Any:
        """How far a kernel's lse may be from the oracle's, where it is a result: its sum, and its
        logarithm and sum with m.
        """
        m, lse = self.sizes
        found = self.common + live(self.terms.anew.lse * (m + lse), self.dead)
        return np.where(self.lost, np.inf, found)

    @cached_property
    def common(self) -> Any:
        """The exponent ρ of the error that all weights of a row share."""
        return live(self.terms.saved_lse * self.sizes[1] - np.log1p(-self.lam), self.dead)


class _Row(NamedTuple):
    """What the sums of each row cost: h, what each weight has of its own in one of them, the error
    of a sum as a `Sum`, and what small keys add where few are large: to a relative error, and to
    each entry."""

    shared: Bound
    separate: Bound
    terms: Bound
    result: Bound
    small: Bound = 0.0
    tiny: Bound = 0.0


def _row(t: Terms, m: Array, lse: Array) -> _Row:
    """The costs for any number of large keys."""
    return _Row(t.shared.of_row(m, lse), t.separate.of_row(m, lse), t.sum.terms, t.sum.result)


def _row_of_few(t: Terms, m: Array, lse: Array, a: Sums, centre: Bound, large: NDArray[np.int64]) -> _Row:
    """The costs where K keys are large: K + 1 in place of n, and at most so many exponentials of
    rescalings; in rows where that is less."""
    usual = _row(t, m, lse)
    once = (large + 1) * t.addition
    many = np.where(once < 1, once / (1 - once), np.inf) * (1 + 4 * t.addition) / 2
    saved = [of.rescale - np.minimum(of.rescale, (large + 1) * of.rescaling) for of in (t.shared, t.separate)]
    exponents = usual.shared + usual.separate + t.rescaled + t.normalise + t.weights + t.product
    everything = np.exp(exponents) * (1 + t.sum.positive)
    small = 8 * everything * a.small
    use = t.sum.positive - 2 * t.addition - 2 * many + saved[0] + saved[1] > small
    return _Row(
        np.where(use, usual.shared - saved[0], usual.shared),
        np.where(use, usual.separate - saved[1], usual.separate),
        np.where(use, 2 * t.addition + many, usual.terms),
        np.where(use, many, usual.result),
        np.where(use, small, 0.0),
        np.where(use, 5 * everything * (a.tiny + centre * a.small) + small * (a.size + centre), 0.0),
    )


def bounded(
    p: AttentionProblem,
    m: Array,
    lse: Array,
    dead: Mask | None,
    a: Sums,
    readable: Bound,
    tau: Array,
    delta: bool,
    lost: Mask | None = None,
    above: Bound = 1.0,
) -> Rows:
    """The module's bound; `m` is |m|, `tau` the largest τ of each row, by which a kernel's m and
    lse may differ; `delta` says whether δ is to be bounded as well; of rows that are `lost` nothing
    is promised; `above` is by what factor e may be larger than the weights of a kernel whose
    reference is above m, where D alone matters.

    Its own sums over keys are known to γ_{n_k}(2⁻⁵³), which `inflation` covers.
    """
    t, n_k, centre = p.terms, p.n_k, np.abs(p.centre)
    sizes = m + tau, np.abs(lse) + tau
    inflation = 1 + 8 * gamma(n_k + 8, ROUNDOFF)
    size, one = a.size, 1 + a.x
    if apart := not isinstance(p.centre, float):
        readable, size = readable + n_k * centre, size + centre
    unseen = (inflation - 1) * size
    out = np.abs(a.out) + unseen
    distance = np.abs(a.out - p.centre) + unseen if apart else out
    absolute = t.weight_underflow * readable
    if p.v.rad is not None:
        distance, absolute = distance + a.spread, a.spread + absolute
    absolute = absolute + t.sum_underflow
    row = _row(t, *sizes) if a.large is None else _row_of_few(t, *sizes, a, centre, a.large)
    h, b = row.shared, row.separate + t.rescaled + t.summed_weights
    both = b + h
    lift, of_row = np.exp(h), np.exp(both)
    lam = (
        of_row * (a.x + a.wander) + expm1_upwards(both + row.terms + row.result) + 4 * n_k * t.weight_underflow * above
    )
    if a.large is not None:
        lam = lam + row.small
    lam = lam * inflation
    room = np.where(lam < 1.0, 1.0 - lam, np.nan)
    grown = lift * (a.grown + distance * a.x) + expm1_upwards(h) * (a.size + distance)
    size = size + a.grown + centre * a.x if apart else size + a.grown

    def unshared(of: Terms, row: _Row, wander: Bound, drift: Bound) -> tuple[Bound, Array, Array, Array]:
        """The three parts of the error that are not shared, times 1 − λ, and what comes from the first."""
        key, rest, b = (
            row.separate + of.weights,
            of.normalise + of.product + of.rescaled,
            row.separate + of.rescaled + of.summed_weights,
        )
        of_key, of_rest = lift * np.exp(key), np.exp(rest)
        of_keys = of_key * drift + lift * expm1_upwards(key) * size
        reach = of_key * (size + drift)
        of_columns = expm1_upwards(rest) * reach
        divisor = lift * (np.exp(b) * wander + expm1_upwards(b) * one) + 4 * n_k * of.weight_underflow
        divisor = divisor + (row.terms + row.result) * (of_row if of is t else np.exp(h + b)) * (one + wander)
        sums = row.terms * of_rest * reach + row.result * (out + grown + of_keys + of_columns)
        column = of_columns + sums + of_key * of_rest * absolute
        if a.large is not None:
            column = column + row.tiny + (out + distance) * row.small
        return key, divisor, column, of_keys

    drift = a.drift + centre * a.wander if t.separate.slope else 0.0
    parts = unshared(t, row, a.wander, drift)
    _, divisor, column, of_keys = parts
    scale = inflation / room
    error = (of_keys + column + out * divisor + grown) * scale
    sums, weights, unit = (readable, n_k, of_row) if p.ranges.by_parts else (size + drift, one, of_row * a.total)
    unit = unit * (1 + 2.0**-6)
    overflow = weights * unit > p.ranges.sums
    lost = overflow if lost is None else overflow | lost
    overflow = lost | (sums * unit > p.ranges.sums)
    if overflow.any():
        error = error + np.where(overflow, np.inf, 0.0)

    def divided(key: Bound, divisor: Array, column: Array, _: Array) -> Unshared:
        return Unshared(live(key, dead), live(divisor * scale, dead), live(column * scale, dead))

    own = delta and p.delta != "output"
    return Rows(
        lse=live(lse, dead),
        dead=dead,
        lost=live(lost, dead, False),
        out=live(a.out, dead),
        error=live(error, dead),
        unshared=divided(*parts) if delta else None,
        own_unshared=divided(*unshared(p.own, _row(p.own, *sizes), 0.0, 0.0)) if own else None,
        distance=live(distance, dead),
        shared=live(h, dead),
        lam=lam,
        room=live(room, dead, 1.0),
        readable=readable,
        sums=a,
        sizes=sizes,
        terms=t,
    )


def live(x: Any, dead: Mask | None, otherwise: float | bool = 0.0) -> Any:
    """An array, or a number for all rows, with another number in dead rows."""
    return x if dead is None else np.where(dead, otherwise, x)
