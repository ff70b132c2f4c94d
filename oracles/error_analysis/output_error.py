"""The error of the output of attention, a quotient of two sums over keys.

With e_j = exp(s_j − m), D = Σ e_j and p_j = e_j/D, a kernel computes, for each column of v, the
quotient

    õ = Σ e_j exp(t_j) A_j v_j / Σ e_j exp(t_j) B_j,    |t_j| ≤ τ_j + h,  |log A_j| ≤ ω_j + a,  |log B_j| ≤ ω_j + b,

of sums that are themselves off by the additions.  What the two sums share is in t: τ_j belongs to
the score (`scores.growth`), h to the row.  What only one of the sums has is in A and B: ω_j =
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
an exponent, so the kernel's e_j is the computed one up to the sum of the two exponents, which
`terms` gives.  For the certified value, the exact value takes the kernel's place.
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


class Weighted(NamedTuple):
    """One kind of error of the weights, summed over keys: the errors, the errors times |v − c|,
    and, with a cotangent g, the errors times |g·(v − c)|.
    """

    total: Bound = 0.0
    distance: Bound = 0.0
    projection: Bound = 0.0

    def scale(self, upwards: Array) -> None:
        """Multiply all three fields by a factor, in place."""
        for x in self:
            if isinstance(x, np.ndarray):
                x *= upwards

    def add(self, other: "Weighted") -> None:
        """Add the sums over other keys, in place."""
        for x, more in zip(self, other, strict=True):
            if isinstance(x, np.ndarray):
                x += more


NOTHING = Weighted()
"""The sums to which no key has been added."""


@dataclass
class Sums:
    """Sums over keys: in units of e while they are added up, in units of p when they are complete;
    0 where nothing was added.

    total, out   D and Σ e·v; at the end `out` is o
    weights      Σ e·(|v − c|, |g·(v − c)|); its `total` is 0, as the `total` above has it
    shared       Σ W·(1, |v − c|, |g·(v − c)|) with W = e(exp τ − 1)
    separate     Σ V·(1, |v − c|, |g·(v − c)|) with V = e·exp(τ)·(exp ω − 1)
    small        Σ U·(1, |v − c|) with U = e·exp(τ) of small keys
    spread       Σ e·rad v
    large        how many keys are large, if they are counted
    """

    total: Array
    out: Array
    weights: Weighted = NOTHING
    shared: Weighted = NOTHING
    separate: Weighted = NOTHING
    small: Weighted = NOTHING
    spread: Bound = 0.0
    large: NDArray[np.int64] | None = None

    def scale(self, factor: Array, upwards: Array) -> None:
        """Multiply all sums except the total: `out` by a factor, and bounds by the factor rounded
        upwards.
        """
        self.out *= factor
        for kind in (self.weights, self.shared, self.separate, self.small):
            if kind is not NOTHING:
                kind.scale(upwards)
        if isinstance(self.spread, np.ndarray):
            self.spread *= upwards

    def add(self, other: "Sums") -> None:
        """Add the sums over other keys."""
        self.total += other.total
        self.out += other.out
        self.weights.add(other.weights)
        self.shared.add(other.shared)
        self.separate.add(other.separate)
        self.small.add(other.small)
        if isinstance(self.spread, np.ndarray):
            self.spread += other.spread
        if self.large is not None and other.large is not None:
            self.large += other.large


class Totals(NamedTuple):
    """The sums of the forward pass of a tile of rows, before its error is bounded.

    maximum    |m|
    lse        log-sum-exp of the logits
    sums       over keys
    readable   Σ|v − c| over the keys that a row may read, from above
    growth     the largest τ of each row, by which a kernel's m and lse may differ
    dead       which rows have no visible key, or None
    lost       rows that get an infinite bound, or None
    above      the factor by which e may exceed the weights of a kernel whose reference is above m, if D alone matters
    """

    maximum: Array
    lse: Array
    sums: Sums
    readable: Bound
    growth: Array
    dead: Mask | None = None
    lost: Mask | None = None
    above: Bound = 1.0


class Unshared(NamedTuple):
    """The part of the output's error that the two sums over keys do not share, sorted by key, row
    and column.

    key          exponent of A_j, which all columns of the output share, on top of ω_j
    row          error of the denominator, for each unit of |o|
    column       the rest of the error of each entry
    """

    key: Bound
    row: Array
    column: Array


@dataclass(eq=False)
class Rows:
    """The forward pass of a tile of rows with its error; columns are (rows, 1), matrices (rows,
    d_v).

    lse           log-sum-exp of the scores
    dead          which rows have no visible key, or None
    lost          rows whose D may overflow, or whose weights may all be lost: their results are
                  unknown, also if v has no columns
    out, error    the output and the bound of its error, before it is rounded to the output's format
    unshared      the part of the error that the sums over keys do not share, where there is a cotangent
    own_unshared  the same for the oracle's own arithmetic, if a kernel may take δ from the weights
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
        saved = self.terms.saved_lse * self.sizes[1] + self.terms.lse_underflow
        return live(saved - np.log1p(-self.lam), self.dead)


class _Costs(NamedTuple):
    """What the sums of each row cost.

    shared    h
    separate  the exponent that each weight has in one of the sums alone
    terms     the error of a sum, as the two fields of a `Sum`: this one and
    result    … this one
    small     what small keys add to a relative error, if few keys are large
    entries   … and to each entry of the output
    """

    shared: Bound
    separate: Bound
    terms: Bound
    result: Bound
    small: Bound = 0.0
    entries: Bound = 0.0


class _Parts(NamedTuple):
    """The errors that the two sums do not share, each times 1 − λ.

    key      the exponent of A_j, on top of ω_j
    divisor  the error of the denominator, for each unit of |o|
    column   the rest of the error of each entry
    of_keys  the error that comes from `key`
    """

    key: Bound
    divisor: Array
    column: Array
    of_keys: Array


def _costs(t: Terms, m: Array, lse: Array) -> _Costs:
    """The costs for any number of large keys."""
    return _Costs(t.shared.of_row(m, lse), t.separate.of_row(m, lse), t.sum.terms, t.sum.result)


def _costs_of_few(t: Terms, usual: _Costs, a: Sums, centre: Bound, large: NDArray[np.int64]) -> _Costs:
    """The costs where K keys are large, in rows where they are below the usual ones: K + 1 takes
    the place of n, and at most K + 1 rescalings have an exponential.
    """
    once = (large + 1) * t.addition
    many = np.where(once < 1, once / (1 - once), np.inf) * (1 + 4 * t.addition) / 2
    saved = [of.rescale - np.minimum(of.rescale, (large + 1) * of.rescaling) for of in (t.shared, t.separate)]
    exponents = usual.shared + usual.separate + t.rescaled + t.normalise + t.weights + t.product
    everything = np.exp(exponents) * (1 + t.sum.positive)
    small = 8 * everything * a.small.total
    use = t.sum.positive - 2 * t.addition - 2 * many + saved[0] + saved[1] > small
    far = 5 * everything * (a.small.distance + centre * a.small.total) + small * (a.weights.distance + centre)
    return _Costs(
        np.where(use, usual.shared - saved[0], usual.shared),
        np.where(use, usual.separate - saved[1], usual.separate),
        np.where(use, 2 * t.addition + many, usual.terms),
        np.where(use, many, usual.result),
        np.where(use, small, 0.0),
        np.where(use, far, 0.0),
    )


class _Sizes(NamedTuple):
    """Sizes of a tile of rows, from above.

    maximum, lse   |m| and |lse| of a kernel
    readable       Σ|v| over the keys that a row may read
    one            Σ p·exp(τ)
    size           Σ p·exp(τ)|v|
    drift          Σ p·exp(τ)(exp ω − 1)|v|
    out, distance  |o| and |o − c|
    absolute       what underflows in the numerator, and the radii of the values
    """

    maximum: Array
    lse: Array
    readable: Bound
    one: Bound
    size: Array
    drift: Bound
    out: Array
    distance: Array
    absolute: Bound


def _sizes(problem: AttentionProblem, found: Totals, inflation: float) -> _Sizes:
    """The sizes; each |v| is at most |v − c| + |c|."""
    a, t, centre, readable = found.sums, problem.terms, np.abs(problem.centre), found.readable
    size = a.weights.distance
    grown, drift = a.shared.distance, a.separate.distance + centre * a.separate.total if t.separate.slope else 0.0
    if has_centre := not isinstance(problem.centre, float):
        readable, size = readable + problem.n_k * centre, size + centre
    unseen = (inflation - 1) * size
    out = np.abs(a.out) + unseen
    distance = np.abs(a.out - problem.centre) + unseen if has_centre else out
    absolute = t.weight_underflow * readable
    if problem.v.rad is not None:
        distance, absolute = distance + a.spread, a.spread + absolute
    size = size + grown + centre * a.shared.total if has_centre else size + grown
    maximum, lse = found.maximum + found.growth, np.abs(found.lse) + found.growth
    one = 1 + a.shared.total
    return _Sizes(maximum, lse, readable, one, np.asarray(size), drift, out, distance, absolute + t.sum_underflow)


class _Quotient(NamedTuple):
    """The quotient of two sums over keys, and what the bound of its error is made of.

    inflation  the factor that covers the oracle's own sums over keys, which are known to γ_{n_k}(2⁻⁵³)
    costs      what the sums cost, in the modelled arithmetic and the oracle's together
    of_row     exp(h + b)
    lam, room  λ, and 1 − λ, or NaN where λ is 1 or more
    grown      the error that both sums share, times 1 − λ
    """

    p: AttentionProblem
    found: Totals
    inflation: float
    sizes: _Sizes
    costs: _Costs
    of_row: Array
    lam: Array
    room: Array
    grown: Array

    @staticmethod
    def of(problem: AttentionProblem, found: Totals) -> "_Quotient":
        """The quotient of complete sums."""
        t, a, inflation = problem.terms, found.sums, 1 + 8 * gamma(problem.n_k + 8, ROUNDOFF)
        sizes = _sizes(problem, found, inflation)
        costs = _costs(t, sizes.maximum, sizes.lse)
        if a.large is not None:
            costs = _costs_of_few(t, costs, a, np.abs(problem.centre), a.large)
        h = costs.shared
        both = costs.separate + t.rescaled + t.summed_weights + h
        of_row = np.asarray(np.exp(both))
        lam = of_row * (a.shared.total + a.separate.total) + expm1_upwards(both + costs.terms + costs.result)
        lam = lam + 4 * problem.n_k * t.weight_underflow * found.above
        if a.large is not None:
            lam = lam + costs.small
        lam = np.asarray(lam * inflation)
        grown = np.exp(h) * (a.shared.distance + sizes.distance * a.shared.total)
        grown = grown + expm1_upwards(h) * (a.weights.distance + sizes.distance)
        room = np.where(lam < 1.0, 1.0 - lam, np.nan)
        return _Quotient(problem, found, inflation, sizes, costs, of_row, lam, room, grown)

    def parts(self, of: Terms, row: _Costs, separate: Bound, drift: Bound) -> _Parts:
        """The errors that the sums do not share, under some terms."""
        lift, sizes = np.exp(self.costs.shared), self.sizes
        key, rest = row.separate + of.weights, of.normalise + of.product + of.rescaled
        b = row.separate + of.rescaled + of.summed_weights
        of_key, of_rest = lift * np.exp(key), np.exp(rest)
        of_keys = of_key * drift + lift * expm1_upwards(key) * sizes.size
        reach = of_key * (sizes.size + drift)
        of_columns = expm1_upwards(rest) * reach
        divisor = lift * (np.exp(b) * separate + expm1_upwards(b) * sizes.one) + 4 * self.p.n_k * of.weight_underflow
        of_row = self.of_row if of is self.p.terms else np.exp(self.costs.shared + b)
        divisor = divisor + (row.terms + row.result) * of_row * (sizes.one + separate)
        sums = row.terms * of_rest * reach + row.result * (sizes.out + self.grown + of_keys + of_columns)
        column = of_columns + sums + of_key * of_rest * sizes.absolute
        if self.found.sums.large is not None:
            column = column + row.entries + (sizes.out + sizes.distance) * row.small
        return _Parts(key, divisor, column, of_keys)

    def overflows(self) -> tuple[Mask, Mask]:
        """Which rows are lost because D may leave the range of sums, and which entries of the
        output are lost.
        """
        sizes = self.sizes
        if self.p.ranges.by_parts:
            unit = self.of_row * (1 + 2.0**-6)
            overflow, beyond = self.p.n_k * unit > self.p.ranges.sums, sizes.readable * unit > self.p.ranges.sums
        else:
            unit = self.of_row * self.found.sums.total * (1 + 2.0**-6)
            overflow = sizes.one * unit > self.p.ranges.sums
            beyond = (sizes.size + sizes.drift) * unit > self.p.ranges.sums
        lost = overflow if self.found.lost is None else overflow | self.found.lost
        return np.asarray(lost), np.asarray(lost | beyond)

    def error(self, parts: _Parts, overflow: Mask) -> Array:
        """The bound of the output's error, ∞ where its row or entry may overflow."""
        error = parts.of_keys + parts.column + self.sizes.out * parts.divisor + self.grown
        error = np.asarray(error * (self.inflation / self.room))
        return error + np.where(overflow, np.inf, 0.0) if overflow.any() else error

    def unshared(self, parts: _Parts) -> "Unshared":
        """The errors that the sums do not share, as a part of the output's error."""
        scale, dead = self.inflation / self.room, self.found.dead
        return Unshared(live(parts.key, dead), live(parts.divisor * scale, dead), live(parts.column * scale, dead))


def bounded(problem: AttentionProblem, found: Totals, delta: bool) -> Rows:
    """Return the rows with the module's bound; `delta` says whether δ is to be bounded as well."""
    quotient, dead, own = _Quotient.of(problem, found), found.dead, None
    sizes = quotient.sizes
    parts = quotient.parts(problem.terms, quotient.costs, found.sums.separate.total, sizes.drift)
    if delta and problem.delta != "output":
        own = quotient.unshared(quotient.parts(problem.own, _costs(problem.own, sizes.maximum, sizes.lse), 0.0, 0.0))
    lost, overflow = quotient.overflows()
    return Rows(
        lse=live(found.lse, dead),
        dead=dead,
        lost=live(lost, dead, False),
        out=live(found.sums.out, dead),
        error=live(quotient.error(parts, overflow), dead),
        unshared=quotient.unshared(parts) if delta else None,
        own_unshared=own,
        distance=live(sizes.distance, dead),
        shared=live(quotient.costs.shared, dead),
        lam=quotient.lam,
        room=live(quotient.room, dead, 1.0),
        readable=sizes.readable,
        sums=found.sums,
        sizes=(sizes.maximum, sizes.lse),
        terms=problem.terms,
    )


def live(x: Any, dead: Mask | None, otherwise: float | bool = 0.0) -> Any:
    """Return an array, or a number for all rows, with another number in fully masked rows."""
    return x if dead is None else np.where(dead, otherwise, x)
