"""The forward pass of attention: one blocked online softmax in float64, and the parts of its error.

`oracles.error_analysis.output_error` defines the sums over keys and derives the output's error from
them. e_j = exp(s_j − m) is a weight before it is divided by D = Σ e_j, and m is the row's largest
logit.

**Underflow.** A weight that comes out as 0 is less than the smallest normal number η. The kernel's
weight, or the exact one, may be exp(τ_j) times as large. So every bound uses e_j + η in place of
e_j, and exp(m_old − m_new) + η in place of a rescaling.

**A sink** is a key of value 0 whose logit is an input.  A kernel may take the maximum over keys
alone, and add exp(sink − m) at the end. So the bound uses the larger |m| of the two, and is ∞ where
that exponential overflows.

**A log-sum-exp without the sink.** A kernel may still subtract M = max(m, sink) in both of its
sums, and add M to the logarithm of Σ exp(s_j − M) = exp(m − M)·D.  So the slopes multiply |M|. The
underflow is exp(M − m) times as large a part of that sum; this counts in λ alone, because no output
is computed from that sum.  (The weights without the sink are larger by 1/(1 − w_sink) ≥ exp(M −
m)/D, and the bound of their underflow is larger by the same factor.)  The oracle itself subtracts
m.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from oracles.ball import LARGEST, ROUNDOFF, UNDERFLOW, Array, expm1_upwards, gamma
from oracles.error_analysis.output_error import Bound, Rows, Sums, Totals, Weighted, bounded
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.scores import (
    AttentionProblem,
    Block,
    Operand,
    expm1,
    growth,
    levelled,
    moved,
    over_keys,
    scores,
    sizes,
)
from oracles.error_analysis.visible_keys import Mask

MANY = 64
"""With more keys than this, a bound that counts only large keys may be smaller."""

FALL = 256.0
"""A weight may fall by this factor after its tile, as the maximum rises. After a larger rise all
earlier keys count as small.
"""


@dataclass
class _Online:
    """An online softmax of a tile of rows (queries), after some tiles of keys.

    sums      in units of exp(s − maximum); None before the first tile
    maximum   the largest logit so far
    low       the maximum since which small keys have been counted
    growth    the largest exponent τ so far
    readable  Σ|v − c| over the keys that are visible to a row
    unknown   how many unknown values of each column are visible to a row
    reads     whether a key is visible to a row
    """

    sums: Sums | None = None
    maximum: Any = -LARGEST
    low: Any = -LARGEST
    growth: Any = 0.0
    readable: Bound = 0.0
    unknown: Bound = 0.0
    reads: Any = False

    def add(self, highest: Array, here: Sums) -> None:
        """Add the sums of a tile, which are in units of exp(s − highest). Rescale the earlier sums
        to that unit.
        """
        if self.sums is None:
            self.sums, self.low = here, highest
        else:
            sums = self.sums
            if sums.large is not None:
                risen = highest - self.low > np.log(FALL)
                self.low = np.where(risen, highest, self.low)
                sums.small.add(
                    Weighted(
                        np.where(risen, sums.total + sums.shared.total, 0.0),
                        np.where(risen, sums.weights.distance + sums.shared.distance, 0.0),
                    )
                )
            shrink = np.exp(self.maximum - highest)
            sums.total *= shrink
            sums.scale(shrink, shrink + UNDERFLOW)
            sums.add(here)
        self.maximum = highest


class _Weights(NamedTuple):
    """The weights e of a tile, and the parts of their errors. `oracles.error_analysis.output_error`
    defines the letters.

    growths      the exponents τ
    slopes       |s|, if a part of the error belongs to one sum alone
    distances    |v − c|
    projections  |g·(v − c)|, or None without a cotangent
    kept         1 for a weight that dropout keeps and 0 for others, or None
    """

    e: Array
    growths: Array
    slopes: Array | None
    distances: Array
    projections: Array | None
    kept: Array | None

    def of_values(self, errors: Array) -> Array:
        """Return the errors of weights that multiply values: 0 for weights that dropout leaves out."""
        return errors if self.kept is None else errors * self.kept


def rows_forward(
    problem: AttentionProblem, rows: slice, g: Operand | None = None, reference: Array | None = None
) -> Rows:
    """Return the forward pass of a tile of rows (queries), computed over tiles of keys.

    `g` is the cotangent of these rows, or None. `reference` are sinks that belong to no sum, but
    that a kernel may use as its maxima.
    """
    online = _Online()
    for block in problem.blocks(rows):
        _add_block(problem, online, block, g)
    return bounded(problem, _totals(problem, rows, online, reference), g is not None)


def _add_block(problem: AttentionProblem, online: _Online, block: Block, g: Operand | None) -> None:
    """Add a tile of keys to an online softmax."""
    v, allowed, differences = block.v, block.allowed, moved(block.v, problem.centre)
    logits = scores(problem, block)
    s = logits.u
    online.reads = online.reads | (True if allowed is None else allowed.any(axis=-1, keepdims=True))
    highest = np.maximum(online.maximum, s.max(axis=-1, keepdims=True))
    growths = levelled(problem, block.rows, growth(problem, block, logits, problem.terms.shared.slope))
    online.growth = np.maximum(online.growth, growths.max(axis=-1, keepdims=True) if problem.elementwise else growths)
    slopes = logits.size if problem.elementwise and problem.terms.separate.slope else None
    s -= highest
    e = np.exp(s, out=s)
    row_sums, kept = e.sum(axis=-1, keepdims=True), problem.kept(block)
    of_values = e if kept is None else e * kept
    distance_sum, readable = sizes(problem, of_values, row_sums, differences, allowed)
    tile_sums = Sums(row_sums, of_values @ v.value, Weighted(distance=distance_sum))
    online.readable = online.readable + readable
    if v.rad is not None:
        tile_sums.spread = of_values @ v.rad
    if v.unknown is not None:
        online.unknown = online.unknown + over_keys(allowed, v.unknown)
    if problem.elementwise:
        projections = None if g is None else _projections(problem, g, v, differences.reach, allowed)
        _add_errors(problem, tile_sums, _Weights(e, growths, slopes, differences.reach, projections, kept), allowed)
    online.add(highest, tile_sums)


def _totals(problem: AttentionProblem, rows: slice, online: _Online, reference: Array | None) -> Totals:
    """Return the sums of a tile of rows over all keys, with its sink."""
    sums, keys_alone = online.sums, online.maximum
    shape = (*problem.q.shape[:-2], rows.stop - rows.start)
    if sums is None:
        zeros = np.zeros((*shape, 1))
        sums = Sums(zeros.copy(), np.zeros((*shape, problem.v.shape[-1])), shared=Weighted(zeros.copy()))
        keys_alone, online.growth = zeros - LARGEST, zeros
    maximum = keys_alone
    dead = None if online.reads is True else np.broadcast_to(np.logical_not(online.reads), (*shape, 1))
    if problem.features is not None and problem.features.sink is not None:
        maximum, online.growth = _add_sink(
            problem.terms, sums, maximum, problem.features.sink[..., rows, :], online.growth
        )
        dead = None if dead is None else dead & (sums.total == 0)
    _normalise(problem, sums, online)
    size, lost = np.abs(maximum), None
    if maximum is not keys_alone:
        size = np.maximum(size, np.where(keys_alone == -LARGEST, 0.0, np.abs(keys_alone)))
        lost = (maximum - keys_alone > np.log(problem.ranges.sums) - 1) & (keys_alone > -LARGEST)
    if problem.rounded_beyond(problem.v):
        lost = np.ones(maximum.shape, dtype=bool)
    above: Bound = 1.0
    if reference is not None:
        highest = np.maximum(maximum, reference)
        size, above = np.maximum(size, np.abs(highest)), np.exp(highest - maximum)
        if sums.large is not None:
            sums.large += 1  # one more rescaling, from m to M
    dead = dead if dead is not None and dead.any() else None
    return Totals(size, maximum + np.log(sums.total), sums, online.readable, online.growth, dead, lost, above)


def _normalise(problem: AttentionProblem, sums: Sums, online: _Online) -> None:
    """Convert sums from units of e to units of p."""
    reciprocal = 1 / sums.total
    sums.scale(reciprocal, reciprocal)
    if not problem.elementwise:
        underflow = problem.terms.weight_underflow
        count = expm1(np.array(online.growth)) * (1 + problem.n_k * underflow)
        sums.shared = Weighted(count, count * (sums.weights.distance + underflow * online.readable))
    if problem.v.unknown is not None:
        sums.out = np.where(online.unknown > 0, np.nan, sums.out)


def keys_alone(problem: AttentionProblem, rows: slice) -> Rows | None:
    """Return the forward pass of a tile of rows without its sinks, if the log-sum-exp excludes
    them; else None.
    """
    if (alone := problem.without_sink) is None or problem.features is None or problem.features.sink is None:
        return None
    return rows_forward(alone, rows, reference=problem.features.sink[..., rows, :] if problem.has_kernel else None)


def without_sink(problem: AttentionProblem, rows: slice, forward: Rows) -> tuple[Array, Array, Mask | None] | None:
    """Compare the softmax weights without the sink to those with it. Return the factor 1/(1 −
    w_sink) between them, the relative error of a kernel's weights without the sink, and which rows
    have no key. Return None if the log-sum-exp includes the sink.
    """
    if (sinkless_rows := keys_alone(problem, rows)) is None:
        return None
    relative = expm1_upwards(sinkless_rows.entry + sinkless_rows.common + forward.entry + forward.common)
    return np.exp(forward.lse - sinkless_rows.lse), relative, sinkless_rows.dead


def _add_sink(t: Terms, sums: Sums, m: Array, sink: Array, tau: Array) -> tuple[Array, Array]:
    """Add a sink to the sums of each row, as a key of value 0 whose logit is an input. Return the
    maximum and the largest exponent τ with the sink.
    """
    highest = np.maximum(m, sink)
    shrink = np.exp(m - highest)
    sums.total *= shrink
    sums.scale(shrink, shrink + UNDERFLOW)
    e, size = np.exp(sink - highest), np.where(sink == -np.inf, 0.0, np.abs(sink))
    of_sink = (t.shared.slope + t.stored_differences) * size
    grown = np.exp(of_sink) * (e + t.weight_underflow)
    sums.total += e
    shared = sums.shared.total + expm1_upwards(of_sink) * (e + t.weight_underflow)
    separate = sums.separate.total + expm1_upwards(t.separate.slope * size) * grown
    sums.shared, sums.separate = sums.shared._replace(total=shared), sums.separate._replace(total=separate)
    if sums.large is not None:
        sums.large += 1
    return highest, np.maximum(tau, of_sink)


def _add_errors(problem: AttentionProblem, sums: Sums, w: _Weights, allowed: Mask | None) -> None:
    """Add the errors of a tile's weights to its sums, entry by entry. The exponents in `w` are
    overwritten.
    """
    t, e = problem.terms, w.e
    possible = e + t.weight_underflow if allowed is None else np.where(allowed, e + t.weight_underflow, 0.0)
    excess = expm1(w.growths)
    excess *= possible
    sums.shared = _weighted(excess, w)
    if w.projections is not None:
        sums.weights = sums.weights._replace(projection=(w.of_values(e) * w.projections).sum(axis=-1, keepdims=True))
    possible += excess
    if problem.n_k > MANY and t.addition < np.inf:
        sums.large = np.count_nonzero(possible > t.addition, axis=-1, keepdims=True)
        small_weights = np.where(e * e <= FALL * t.addition * possible, possible, 0.0)
        sums.small = Weighted(small_weights.sum(axis=-1, keepdims=True), w.of_values(small_weights) @ w.distances)
    if (slopes := w.slopes) is not None:
        if allowed is not None:
            np.copyto(slopes, 0.0, where=~allowed)
        slopes *= t.separate.slope
        possible *= expm1(slopes)
        sums.separate = _weighted(possible, w)


def _weighted(errors: Array, w: _Weights) -> Weighted:
    """Return the sums of errors of weights over the keys of a tile."""
    of_values = w.of_values(errors)
    projection = 0.0 if w.projections is None else (of_values * w.projections).sum(axis=-1, keepdims=True)
    return Weighted(errors.sum(axis=-1, keepdims=True), of_values @ w.distances, projection)


def _projections(problem: AttentionProblem, g: Operand, v: Operand, far: Array, allowed: Mask | None) -> Array:
    """Return upper bounds of |g·(v − c)|, and 0 at masked keys. The computed product is off by
    γ·|g||v − c|ᵀ.
    """
    projections = np.abs(g.value @ (v.value - problem.centre).mT)
    relative = gamma(far.shape[-1] + 4, ROUNDOFF)
    # A bound of the norm of each row of v − c, without squares, because these may overflow.
    longest = far.max(axis=-1, initial=0.0) * far.shape[-1] ** 0.5
    projections += (relative * g.length)[..., :, None] * longest[..., None, :]
    if g.rad is not None:
        projections += g.rad @ far.mT
    if v.rad is not None:
        projections += g.reach @ v.rad.mT
    if allowed is not None:
        np.copyto(projections, 0.0, where=~allowed)
    return projections


def uniform_rows(problem: AttentionProblem) -> Rows:
    """Return the forward pass of one row (1, d_v) that has no visible key and averages all values
    equally.
    """
    leading_axes, n_k = problem.v.shape[:-2], problem.n_k
    distance_sum = moved(problem.v, problem.centre).reach.sum(axis=-2, keepdims=True)
    zeros = np.zeros((*leading_axes, 1, 1))
    row_sums = Sums(
        total=zeros + n_k,
        out=problem.v.raw.sum(axis=-2, keepdims=True) / n_k,
        weights=Weighted(distance=distance_sum / n_k),
        spread=0.0 if problem.v.rad is None else problem.v.rad.sum(axis=-2, keepdims=True) / n_k,
    )
    return bounded(problem, Totals(zeros, np.log(row_sums.total), row_sums, distance_sum, zeros), False)
