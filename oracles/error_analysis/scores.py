"""Scores of attention, tile by tile: each with the exponent that bounds its weight's relative
error, and the entries a row may read.

Masked entries are never read: their scores are −∞ and their exponents 0, whatever the key holds;
keys, values and queries enter products with their non-finite entries replaced by 0, so that 0·NaN
does not arise, and NaN reaches the allowed rows by their scores.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from oracles.ball import ROUNDOFF, Array, gamma
from oracles.error_analysis.logits import Logits, Tiled, logits, passed
from oracles.error_analysis.own_arithmetic import KEY_TILE
from oracles.error_analysis.ranges import Ranges
from oracles.error_analysis.roundings import Terms
from oracles.error_analysis.visible_keys import Mask, Visible

ROW_TILE = 256
"""Query rows the oracle handles at a time."""

KEY_STEP = 128
"""Tiles of keys begin and end at multiples of it: few keys are summed in one order, whether it is a
mask or a band that hides some.
"""

MEDIAN_OF = 64
"""Rows from which a median is taken, at most."""


@dataclass(frozen=True)
class Operand:
    """An input ball, made safe to multiply.

    `raw` is NaN where the input is not finite, `value` is 0 there and `unknown` is 1 there (None
    where all is finite); `rad` is None where it is 0 throughout.
    """

    raw: Array
    value: Array
    rad: Array | None = None
    unknown: Array | None = None

    def __getitem__(self, index: Any) -> "Operand":
        """The operand of some of the batches."""
        if index is ...:
            return self
        rad, unknown = (None if x is None else _unless_zero(x[index]) for x in (self.rad, self.unknown))
        return Operand(self.raw[index], self.value[index], rad, unknown)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch axes, rows and columns."""
        return self.value.shape

    @cached_property
    def reach(self) -> Array:
        """A bound of every number in the ball: |value| + rad."""
        return np.abs(self.value) if self.rad is None else np.abs(self.value) + self.rad

    @cached_property
    def length(self) -> Array:
        """Upper bounds of the Euclidean norms of rows; squares below 2⁻¹⁰²² may underflow, which √d·2⁻⁵¹¹ covers."""
        d = self.shape[-1]
        norms: Array = np.sqrt(np.einsum("...d,...d->...", self.reach, self.reach)) + d**0.5 * 2.0**-511
        return norms * (1 + gamma(d + 4, ROUNDOFF))


def operand(x: Array, rad: Array | None = None) -> Operand:
    """The operand of an input that is within a radius of x, or is x exactly."""
    known = np.isfinite(x)
    if rad is not None:
        known &= np.isfinite(rad)
    if not known.all():
        spread = None if rad is None else _unless_zero(np.where(known, rad, 0.0))
        return Operand(np.where(known, x, np.nan), np.where(known, x, 0.0), spread, (~known).astype(np.float64))
    return Operand(x, x, None if rad is None else _unless_zero(rad))


def offset(v: Operand) -> Array | float:
    """An offset (…, 1, d_v) that all values of a column share: their median, if none is less than
    half of it, else 0; or 0 for all.

    So no distance |v − c| is more than 3|v|, and values with a large offset are near it.
    """
    ordered = np.sort(v.value[..., :: -(-v.shape[-2] // MEDIAN_OF), :], axis=-2)
    n = ordered.shape[-2]
    middle = (ordered[..., (n - 1) // 2, None, :] + ordered[..., n // 2, None, :]) / 2
    shared = v.reach.min(axis=-2, keepdims=True) >= np.abs(middle) / 2
    return np.where(shared, middle, 0.0) if shared.any() else 0.0


def distances(v: Operand, centre: Array | float) -> Array:
    """A bound of |v − centre| for every number in the ball, but for one rounding."""
    if isinstance(centre, float):  # there is none: it is 0
        return v.reach
    far = np.abs(v.value - centre)
    return far if v.rad is None else far + v.rad


def part(x: Operand, rows: slice) -> Operand:
    """The operand's rows in a slice."""
    if (rows.start, rows.stop) == (0, x.shape[-2]):
        return x
    rad, unknown = (None if field is None else field[..., rows, :] for field in (x.rad, x.unknown))
    return Operand(x.raw[..., rows, :], x.value[..., rows, :], rad, unknown)


class AttentionProblem(NamedTuple):
    """One attention problem with all its batch axes: what is asked, and the terms to answer it
    with.

    `visible` says which keys a row may read, `features` what logits are made of besides scores.
    `terms` are those of the modelled arithmetic and the oracle's together, `own`
    the oracle's alone; `delta` says how a kernel forms δ, `ranges` where the modelled arithmetic
    overflows.  With `elementwise`, errors of scores and of dP are bounded entry by entry; without,
    by one number per row, which is faster and a few times wider.  `centre` (…, 1, d_v), or 0, is
    any point: errors are counted by distances of values from it.  `room` holds five arrays of the
    size of a tile, to be overwritten by the next: fresh memory would cost as much as the
    arithmetic.  `group` is the number of query heads whose rows these are, where a kernel may round
    the gradients of each. `level` (…, n_q, 1), if there is one, are rows that read all keys by
    logits of exactly 0, whatever is visible: a constant that is added to all of them, as a fill is,
    changes nothing.
    """

    q: Operand
    k: Operand
    v: Operand
    visible: Visible
    features: Tiled | None
    scale: float
    terms: Terms
    own: Terms
    delta: str | None
    ranges: Ranges
    elementwise: bool
    centre: Array | float
    room: Array
    lse_without_sink: bool = False
    group: int = 1
    level: Mask | None = None

    @property
    def without_sink(self) -> "AttentionProblem | None":
        """The same without its sinks, where these are no part of the log-sum-exp; else None."""
        if not self.lse_without_sink or self.features is None or self.features.sink is None:
            return None
        return self._replace(features=self.features._replace(sink=None))

    @property
    def n_q(self) -> int:
        """The number of query rows."""
        return int(self.q.shape[-2])

    @property
    def n_k(self) -> int:
        """The number of keys."""
        return int(self.k.shape[-2])

    def tile(self, number: int, q: Operand, k: Operand) -> Array:
        """Uninitialised memory for one of the five arrays of a tile."""
        tile: Array = self.room[number, ..., : q.shape[-2], : k.shape[-2]]
        return tile

    @property
    def bias_first(self) -> bool:
        """Whether a kernel, but not the oracle itself, may begin the sum of a score, or of its
        tangent, with the bias, or that of it.
        """
        return self.features is not None and self.features.bias_first and self.terms != self.own

    def rounded_beyond(self, x: Operand) -> bool:
        """Whether an operand may overflow as it is rounded before a product: a weight of 0 times ∞ is NaN."""
        product = self.terms.product
        return bool(product and x.reach.max(initial=0.0) * (1 + product) > self.ranges.work)

    def row_tiles(self) -> Iterator[slice]:
        """The query rows, `ROW_TILE` at a time."""
        return (slice(i, min(i + ROW_TILE, self.n_q)) for i in range(0, self.n_q, ROW_TILE))

    def key_tiles(self, rows: slice) -> Iterator[tuple[slice, Mask | None]]:
        """The keys from the first to the last that any of the rows may read, `KEY_TILE` at a time,
        and which of them each row may read.

        Both ends are multiples of `KEY_STEP`.  None stands for all; tiles that no row may read are
        left out.
        """
        level = None if self.level is None else self.level[..., rows, :]
        near = self.visible.keys(rows, self.n_k) if level is None else slice(0, self.n_k)
        first, last = near.start - near.start % KEY_STEP, min(near.stop + -near.stop % KEY_STEP, self.n_k)
        for j in range(first, last, KEY_TILE):
            keys = slice(j, min(j + KEY_TILE, last))
            allowed = self.visible.tile(rows, keys)
            if level is not None and allowed is not None:
                allowed = allowed | level
            if allowed is None or allowed.any():
                yield keys, None if allowed is None or allowed.all() else allowed


def scores(p: AttentionProblem, rows: slice, keys: slice, q: Operand, k: Operand, allowed: Mask | None) -> Logits:
    """The logits of a tile, scale·q·kᵀ and what `features` make of it; they overwrite those of the tile before."""
    s = np.matmul(q.raw, k.raw.swapaxes(-1, -2), out=p.tile(0, q, k))
    s *= p.scale
    if p.features is not None:
        found = logits(
            p.features.tile(rows, keys), s, allowed, None if p.elementwise else (p.tile(4, q, k), p.tile(3, q, k))
        )
    else:
        found = Logits(s)
        if allowed is not None:
            np.copyto(s, -np.inf, where=~allowed)
    if p.level is not None:
        np.copyto(found.u, 0.0, where=p.level[..., rows, :])
    return found


def growth(p: AttentionProblem, q: Operand, k: Operand, x: Logits, allowed: Mask | None, slope: float) -> Array:
    """The exponent τ of each weight's error that comes with its logit: (rows, keys), or its row
    maxima (rows, 1).

    τ = (dot.terms + product + scale_on_inputs)·R + (dot.result + stored_scores + slope)·|s| +
    underflow + what the inputs' radii add, with R = |scale|·|q||k|ᵀ, and |bias| where that may come
    first in the sum; then what `features` add, and the slope of the logit instead of the score's.
    A scaled q that underflows by η moves a score by at most η‖k‖₁, a scaled k by
    η‖q‖₁.  0 where a row may not read a key: masked scores that overflow should do no harm.
    `levelled` says what is left of it in level rows.
    """
    if not p.elementwise:
        tau = _row_growth(p, q, k, allowed, 0.0 if p.features is not None else slope)
        return tau if p.features is None else passed(x, p.features, p.terms, tau, slope, p.ranges, p.scale)
    t, c, of_logit = p.terms, abs(p.scale), slope
    slope = 0.0 if p.features is not None else slope
    tau = q.reach @ k.reach.swapaxes(-1, -2)
    overflow = _overflows(p, q, k, tau)
    tau *= c  # apart, as c times the exponents may underflow
    tau *= t.dot.terms + t.product + t.scale_on_inputs
    size = np.abs(x.u if x.score is None else x.score, out=p.tile(4, q, k))
    size *= t.dot.result + t.stored_scores + slope
    tau += size
    tau += t.score_underflow
    if t.input_underflow:
        tau += t.input_underflow * (q.reach.sum(axis=-1)[..., :, None] + k.reach.sum(axis=-1)[..., None, :])
    moved = c * (1 + t.dot.result + t.stored_scores + slope)  # the score itself is not known but to the radii
    if q.rad is not None:
        tau += moved * (q.rad @ k.reach.swapaxes(-1, -2))
    if k.rad is not None:
        tau += moved * (q.reach @ k.rad.swapaxes(-1, -2))
    if overflow is not None:
        tau[overflow] = np.inf
    if p.features is not None:
        if p.bias_first and x.biased is not None:
            tau += t.dot.positive * x.biased
        tau = passed(x, p.features, t, tau, of_logit, p.ranges, p.scale)
    if allowed is not None:
        np.copyto(tau, 0.0, where=~allowed)
    return tau


def levelled(p: AttentionProblem, rows: slice, tau: Array) -> Array:
    """The exponents of weights, given those of their logits: 0 in level rows, but where a kernel's
    score may overflow, as a fill that is added to ∞ levels nothing.  The slope of a cap is that of
    the score itself, whose error stays."""
    if p.level is None:
        return tau
    level = p.level[..., rows, :]
    return np.where(level & (tau < np.inf) if p.elementwise else level, 0.0, tau)


def row_products(a: Operand, b: Operand, allowed: Mask | None) -> Array:
    """Upper bounds (rows, 1) of (|a||b|ᵀ)_ij over the j that row i may read: ‖a_i‖·max_j ‖b_j‖."""
    farthest: Array = a.length[..., :, None] * _largest(b.length, allowed)
    return farthest


def sizes(p: AttentionProblem, weights: Array, sums: Array, reach: Array, allowed: Mask | None) -> tuple[Array, Array]:
    """Upper bounds of Σ_j w_ij x_j for x ≥ 0, given the sums of the weights of each row, and of the
    Σ_j x_j that it may read.

    Where one number per row is enough, and every row may read all keys, the largest x_j of each
    column stands for all of them: that saves a matrix product.
    """
    if p.elementwise or allowed is not None:
        return weights @ reach, readable(p, reach, allowed)
    largest = reach.max(axis=-2, keepdims=True)
    return sums * largest, reach.shape[-2] * largest


def expm1(tau: Array) -> Array:
    """An upper bound of exp(τ) − 1 for τ ≥ 0, overwriting τ: τ + τ² in rows up to τ = 1, since Σ_{k≥2} 1/k! < 1."""
    if tau.max(initial=0.0) <= 1.0:
        tau += tau * tau
        return tau
    large = ~(tau.max(axis=-1) <= 1.0)
    precise = np.expm1(tau[large]) * (1 + 2.0**-48)
    tau += tau * tau
    tau[large] = precise
    return tau


def readable(p: AttentionProblem, x: Array, allowed: Mask | None) -> Array:
    """Upper bounds of Σ_j x[j] for x ≥ 0 over the keys that each row may read, 0 in columns of
    zeros; underflow alone is counted by them.

    Where one number per row is enough, it is the largest entry that the row may read, as often as
    there are keys.
    """
    if p.elementwise or allowed is None:
        return over_keys(allowed, x)
    return np.asarray(
        np.where(x.any(axis=-2, keepdims=True), x.shape[-2] * _largest(x.max(axis=-1, initial=0.0), allowed), 0.0)
    )


def _largest(x: Array, allowed: Mask | None) -> Array:
    """The largest x_j ≥ 0 of the keys that each row may read: (rows, 1), or (1, 1) where all rows read all."""
    if allowed is None:
        return np.asarray(x.max(axis=-1, initial=0.0)[..., None, None])
    return np.asarray(
        np.broadcast_to(x[..., None, :], np.broadcast_shapes(x[..., None, :].shape, allowed.shape)).max(
            axis=-1, keepdims=True, initial=0.0, where=allowed
        )
    )


def over_keys(allowed: Mask | None, x: Array) -> Array:
    """Σ_j x[j] over the keys that each row may read: (rows, columns), or (1, columns) where all rows read all."""
    return x.sum(axis=-2, keepdims=True) if allowed is None else allowed.astype(np.float64) @ x


def _row_growth(p: AttentionProblem, q: Operand, k: Operand, allowed: Mask | None, slope: float) -> Array:
    """Row maxima of `growth` where inputs have no radii and nothing is modelled: |s| ≤ R ≤ |scale|‖q‖‖k‖."""
    t = p.terms
    return abs(p.scale) * row_products(q, k, allowed) * (t.dot.positive + slope) + t.score_underflow


def _unless_zero(x: Array) -> Array | None:
    return x if x.any() else None


def _overflows(p: AttentionProblem, q: Operand, k: Operand, products: Array) -> Mask | None:
    """Which scores could leave the modelled range, given |q||k|ᵀ, or are of what is unknown; None
    where none could.

    They could scaled, in units of ln 2 (1.44 times larger), as their factors, or as they are, in
    the accumulators alone: a narrow format in which scores are stored excuses no product that would
    fit if it were scaled first.
    """
    known = q.unknown is None and k.unknown is None
    most, fits = (
        p.ranges.work / 1.5 / max(unscaled, abs(p.scale)) for unscaled in (1.0, p.ranges.work / p.ranges.products)
    )
    largest = [float(x.reach.max(initial=0.0)) for x in (q, k)]
    if known and max(largest) <= most and 2 * q.shape[-1] * largest[0] * largest[1] <= fits:
        return None
    of_q, of_k = (
        (x.reach.max(axis=-1, initial=0.0) > most) | (False if x.unknown is None else x.unknown.any(axis=-1))
        for x in (q, k)
    )
    found: Mask = (products > fits) | of_q[..., :, None] | of_k[..., None, :]
    return found
