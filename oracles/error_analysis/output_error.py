"""The error of the output of attention, which is a quotient of two sums over keys.

e_j = exp(s_j − m), D = Σ e_j, p_j = e_j/D and o = Σ p_j v_j. A kernel computes for each column of v

    õ = Σ e_j exp(t_j) A_j v_j / Σ e_j exp(t_j) B_j,    |t_j| ≤ τ_j + h,  |log A_j| ≤ ω_j + a,  |log B_j| ≤ ω_j + b,

and the additions of both sums have errors too. The errors that both sums share are in t: τ_j
belongs to the score (`scores.growth`), and h to the row.  The errors that only one of the sums has
are in A and B: ω_j = slope·|s_j| belongs to the score, a and b to the row.  Because Σ p_j (v_j − o)
= 0,

    õ − o = [Σ p_j (exp t_j − 1)(v_j − o) + Σ p_j exp(t_j) ((A_j − 1)·v_j − (B_j − 1)·o)] / Σ p_j exp(t_j) B_j.

So an error that both sums share is multiplied only by the distance |v_j − o| ≤ |v_j − c| + |o − c|,
for any c (`AttentionProblem.centre`). Values with a common offset are as exact as values without
it.  The denominator is at least 1 − λ, where λ = Σ p_j (exp(τ_j + h + ω_j + b) − 1) + the error of
its sum.  (Compare Blanchard, Higham & Higham, Accurately computing the log-sum-exp and softmax
functions, IMA J. Numer. Anal. 41, 2021.)

**Rescalings.** exp t_j has a factor exp η, |η| ≤ ε, for each rescaling or merge through which key j
goes. In a tree of merges, of which an online softmax is the one whose nodes are tiles, the paths of
two keys have no merge in common below the one that joins them, and all merges after it are the same
for both. So their t differ by at most (N + 1)·ε in total, if N rescalings or merges have ε each. A
constant in t cancels in the quotient. So |t_j − z| ≤ (N + 1)·ε/2 for the z in the middle, and `Rows`
has h less (N − 1)·ε/2 for what both sums share. D alone has the whole h.

**Few large keys.** Under round-to-nearest, |fl(a + b) − (a + b)| ≤ min(|a|, |b|), because a and b
are themselves numbers of the format (Rump, Error estimation of floating-point summation and dot
product, BIT 52, 2012).  Call a key large if a kernel has exp(s̃_j − m) > u, and let K be the number
of keys that may be large. In the tree of additions, in any order, at most K − 1 nodes have large
keys on both sides.  Every other node adds up small keys alone, or adds such a sum to another one.
All these nodes together are off by Σ|x_j| over small keys, each term counted once, and by γ_n of
it.

A kernel's maximum moves from one large key to another at most K times. So large keys are rescaled
by exponentials other than exp(0) at most K times; every other rescaling multiplies them by the
kernel's exp(0), which is 1 up to `Exponents.unmoved`. Small keys may be rescaled as often as there
are rescalings.  (The products with these factors count in full: a kernel that keeps its output
normalised rounds it each time.)  So the bound uses K + 1 in place of n. Two terms make up for the
rest: five times the contribution of small keys, with all their exponents, and 8 times the sum of
their weights as a relative error of the whole sum.  The bound is used in the rows where it is
smaller.

The oracle knows a row's maximum only at its end. So it counts as large every key that may be large
in its tile, and as small every key that may be small after a fall by `FALL`. Where the maximum
rises by more, all earlier keys are added to the small ones.  A key may be both.

**Computed values.** Here p, o, s and lse are those that float64 computes, not the exact ones. That
is rigorous, because the bound compares the kernel with the computed values directly. Both have e_j
up to an exponent, so the kernel's e_j equals the computed one up to the sum of the two exponents,
which `terms` gives.  For the certified value, the exact value takes the kernel's place.
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
    """One kind of error of the weights, summed over keys: `count` sums the errors, `distance` the
    errors times |v − c|, and with a cotangent g, `projection` the errors times |g·(v − c)|.
    """

    total: Bound = 0.0
    distance: Bound = 0.0
    projection: Bound = 0.0

    def scale(self, upwards: Array) -> None:
        """Multiply all three fields by a factor in place. Products are rounded upwards."""
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
    """Sums over keys. They are in units of e while they are added up, and in units of p when they
    are complete. A sum is 0 if nothing was added. The module's docstring defines the letters.

    total, out  D and Σ e·v; at the end `out` is o
    weights     Σ e·(|v − c|, |g·(v − c)|); its `total` is 0, because the `total` above has it
    shared      Σ W·(1, |v − c|, |g·(v − c)|) with W = e(exp τ − 1)
    separate    Σ V·(1, |v − c|, |g·(v − c)|) with V = e·exp(τ)·(exp ω − 1)
    small       Σ U·(1, |v − c|) with U = e·exp(τ) of small keys
    spread      Σ e·rad v
    large       how many keys are large, if they are counted
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
        """Multiply all sums except the total: `out` by `factor`, and the bounds by `upwards`, the
        factor rounded upwards.
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
    """The sums of the forward pass of a tile of rows (queries), before its error is bounded. The
    module's docstring defines the letters.

    maximum   |m|
    lse       log-sum-exp of the logits
    sums      the sums over keys
    readable  an upper bound of Σ|v − c| over the keys that are visible to a row
    growth    the largest τ of each row, by which a kernel's m and lse may differ
    dead      which rows have no visible key, or None
    lost      rows that get an infinite bound, or None
    above     the factor by which e may exceed the weights of a kernel that subtracts a number above
              m; it matters for D alone
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
    and column. The module's docstring defines the letters.

    key     the exponent of A_j, on top of ω_j; all columns of the output share it
    row     the error of the denominator, for each unit of |o|
    column  the rest of the error of each entry
    """

    key: Bound
    row: Array
    column: Array


@dataclass(eq=False)
class Rows:
    """The forward pass of a tile of rows (queries) with its error. Columns have the shape (rows,
    1), matrices (rows, d_v). The module's docstring defines the letters.

    lse           log-sum-exp of the scores
    dead          which rows have no visible key, or None
    lost          rows whose D may overflow, or whose weights may all be lost: their results are
                  unknown, also if v has no columns
    out, error    the output and the bound of its error, before it is rounded to the output's format
    unshared      the part of the error that the sums over keys do not share, if there is a
                  cotangent
    own_unshared  the same for the oracle's own arithmetic, if a kernel may compute δ from the
                  weights
    distance      an upper bound of |o − c|
    shared        h, less the part of rescalings that cancels in the quotient
    lam           λ
    room          1 − λ
    readable      an upper bound of Σ|v| over the keys that are visible to a row
    sums          the sums over keys
    sizes         upper bounds of |m| and |lse|
    terms         the rounding terms of the bound
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
        of_difference = t.stored_differences * self.sizes[0]
        weight = t.anew.of_row(*self.sizes) + of_difference + t.rescaled + t.normalise + t.saved_weights
        return live(weight, self.dead)

    @cached_property
    def lse_error(self) -> Any:
        """How far a kernel's log-sum-exp may be from the oracle's, if it is a result: the error of
        its sum, of its logarithm, and of the sum with m.
        """
        m, lse = self.sizes
        lse_bound = self.common + live(self.terms.anew.lse * (m + lse), self.dead)
        return np.where(self.lost, np.inf, lse_bound)

    @cached_property
    def common(self) -> Any:
        """The exponent ρ of the error that all weights of a row share."""
        saved_error = self.terms.saved_lse * self.sizes[1] + self.terms.lse_underflow
        return live(saved_error - np.log1p(-self.lam), self.dead)


class _Costs(NamedTuple):
    """The costs of the sums of each row: exponents and relative errors. The module's docstring
    defines the letters.

    shared         h
    quotient       h, less the part of rescalings that cancels in the quotient
    separate       the exponent that each weight has in one of the sums alone
    terms, result  the error of a sum, as the two fields of a `Sum`
    small          the part that small keys add to a relative error, if few keys are large
    entries        the part that small keys add to each entry of the output
    """

    shared: Bound
    quotient: Bound
    separate: Bound
    terms: Bound
    result: Bound
    small: Bound = 0.0
    entries: Bound = 0.0


class _Parts(NamedTuple):
    """The errors that the two sums do not share, each times 1 − λ. The module's docstring defines
    the letters.

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
    """Return the costs of the sums, for any number of large keys."""
    shared = t.shared.of_row(m, lse) + t.stored_differences * m
    return _Costs(shared, shared, t.separate.of_row(m, lse), t.sum.terms, t.sum.result)


def _cancelled(t: Terms, own: Terms) -> float:
    """Return the part of h that cancels in the quotient: (N − 1)·ε/2 of the modelled rescalings."""
    rescale, rescaling = t.shared.rescale - own.shared.rescale, t.shared.rescaling - own.shared.rescaling
    return max(rescale - rescaling, 0.0) / 2


def _costs_of_few(t: Terms, usual: _Costs, a: Sums, centre: Bound, large: NDArray[np.int64]) -> _Costs:
    """Return the costs if K keys are large, in rows where they are below the usual costs. K + 1
    takes the place of n, and at most K + 1 rescalings have an exponential other than exp(0).
    """
    once = (large + 1) * t.addition
    many = np.where(once < 1, once / (1 - once), np.inf) * (1 + 4 * t.addition) / 2
    saved = [
        of.rescale - np.minimum(of.rescale, (large + 1) * of.rescaling + of.unmoved) for of in (t.shared, t.separate)
    ]
    exponents = usual.shared + usual.separate + t.rescaled + t.normalise + t.stored_parts + t.weights + t.product
    everything = np.exp(exponents) * (1 + t.sum.positive)
    small = 8 * everything * a.small.total
    use = t.sum.positive - 2 * t.addition - 2 * many + saved[0] + saved[1] > small
    far = 5 * everything * (a.small.distance + centre * a.small.total) + small * (a.weights.distance + centre)
    shared = np.where(use, usual.shared - saved[0], usual.shared)
    return _Costs(
        shared,
        np.minimum(shared, usual.quotient),
        np.where(use, usual.separate - saved[1], usual.separate),
        np.where(use, 2 * t.addition + many, usual.terms),
        np.where(use, many, usual.result),
        np.where(use, small, 0.0),
        np.where(use, far, 0.0),
    )


class _Sizes(NamedTuple):
    """Upper bounds of sizes of a tile of rows. The module's docstring defines the letters.

    maximum, lse   |m| and |lse| of a kernel
    readable       Σ|v| over the keys that are visible to a row
    one            Σ p·exp(τ)
    size           Σ p·exp(τ)|v|
    drift          Σ p·exp(τ)(exp ω − 1)|v|
    out, distance  |o| and |o − c|
    absolute       the underflow in the numerator, and the radii of the values
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
    """Return the upper bounds of sizes; each |v| is at most |v − c| + |c|."""
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
    """The quotient of two sums over keys, and the parts of the bound of its error. The module's
    docstring defines the letters.

    inflation  the factor that covers the oracle's own sums over keys, which are known to
               γ_{n_k}(2⁻⁵³)
    costs      the costs of the sums, in the modelled arithmetic and the oracle's together
    of_row     exp(h + b)
    lam, room  λ, and 1 − λ, or NaN where λ is 1 or more
    grown      the error that both sums share, times 1 − λ
    """

    p: AttentionProblem
    totals: Totals
    inflation: float
    sizes: _Sizes
    costs: _Costs
    of_row: Array
    lam: Array
    room: Array
    grown: Array

    @staticmethod
    def of(problem: AttentionProblem, found: Totals) -> "_Quotient":
        """Return the quotient of two sums over all keys, with its bounds."""
        t, a, inflation = problem.terms, found.sums, 1 + 8 * gamma(problem.n_k + 8, ROUNDOFF)
        sizes = _sizes(problem, found, inflation)
        costs = _costs(t, sizes.maximum, sizes.lse)
        costs = costs._replace(quotient=costs.shared - _cancelled(t, problem.own))
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
        of_both = costs.quotient
        grown = np.exp(of_both) * (a.shared.distance + sizes.distance * a.shared.total)
        grown = grown + expm1_upwards(of_both) * (a.weights.distance + sizes.distance)
        room = np.where(lam < 1.0, 1.0 - lam, np.nan)
        return _Quotient(problem, found, inflation, sizes, costs, of_row, lam, room, grown)

    def parts(self, of: Terms, row: _Costs, separate: Bound, drift: Bound) -> _Parts:
        """Return the errors that the sums do not share, under the given rounding terms."""
        shared_factor, sizes = np.exp(self.costs.shared), self.sizes
        key_exponent = row.separate + of.weights
        rest_exponent = of.normalise + of.product + of.rescaled + of.stored_parts
        b = row.separate + of.rescaled + of.summed_weights
        of_key, of_rest = shared_factor * np.exp(key_exponent), np.exp(rest_exponent)
        of_keys = of_key * drift + shared_factor * expm1_upwards(key_exponent) * sizes.size
        weighted_values = of_key * (sizes.size + drift)
        of_columns = expm1_upwards(rest_exponent) * weighted_values
        divisor = (
            shared_factor * (np.exp(b) * separate + expm1_upwards(b) * sizes.one) + 4 * self.p.n_k * of.weight_underflow
        )
        of_row = self.of_row if of is self.p.terms else np.exp(self.costs.shared + b)
        divisor = divisor + (row.terms + row.result) * of_row * (sizes.one + separate)
        sum_error = row.terms * of_rest * weighted_values + row.result * (sizes.out + self.grown + of_keys + of_columns)
        sum_error = sum_error + of.accumulated.terms * of_rest * weighted_values
        sum_error = sum_error + of.accumulated.result * (sizes.out + self.grown + of_keys + of_columns)
        column = of_columns + sum_error + of_key * of_rest * sizes.absolute
        if self.totals.sums.large is not None:
            column = column + row.entries + (sizes.out + sizes.distance) * row.small
        return _Parts(key_exponent, divisor, column, of_keys)

    def overflows(self) -> tuple[Mask, Mask]:
        """Return the rows that are lost because D may leave the range of sums, and the entries of
        the output that are lost.
        """
        sizes = self.sizes
        if self.p.ranges.by_parts:
            weight_bound = self.of_row * (1 + 2.0**-6)
            overflow = self.p.n_k * weight_bound > self.p.ranges.sums
            beyond = sizes.readable * weight_bound > self.p.ranges.values
        else:
            weight_bound = self.of_row * self.totals.sums.total * (1 + 2.0**-6)
            overflow = sizes.one * weight_bound > self.p.ranges.sums
            beyond = (sizes.size + sizes.drift) * weight_bound > self.p.ranges.values
        lost_rows = overflow if self.totals.lost is None else overflow | self.totals.lost
        return np.asarray(lost_rows), np.asarray(lost_rows | beyond)

    def error(self, parts: _Parts, overflow: Mask) -> Array:
        """Return the bound of the output's error; ∞ where its row or entry may overflow."""
        error = parts.of_keys + parts.column + self.sizes.out * parts.divisor + self.grown
        error = np.asarray(error * (self.inflation / self.room))
        return error + np.where(overflow, np.inf, 0.0) if overflow.any() else error

    def unshared(self, parts: _Parts) -> "Unshared":
        """Return the errors that the sums do not share, as parts of the output's error."""
        factor, fully_masked = self.inflation / self.room, self.totals.dead
        key, row, column = parts.key, parts.divisor * factor, parts.column * factor
        return Unshared(live(key, fully_masked), live(row, fully_masked), live(column, fully_masked))


def bounded(problem: AttentionProblem, found: Totals, delta: bool) -> Rows:
    """Return the forward pass with the error bound of this module. If `delta` is true, the parts
    that bound δ are returned too.
    """
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
        shared=live(quotient.costs.quotient, dead),
        lam=quotient.lam,
        room=live(quotient.room, dead, 1.0),
        readable=sizes.readable,
        sums=found.sums,
        sizes=(sizes.maximum, sizes.lse),
        terms=problem.terms,
    )


def live(x: Any, dead: Mask | None, otherwise: float | bool = 0.0) -> Any:
    """Return an array, or a number for all rows, with `otherwise` in fully masked rows."""
    return x if dead is None else np.where(dead, otherwise, x)
