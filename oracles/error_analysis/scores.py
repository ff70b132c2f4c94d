"""Scores of attention, tile by tile: each with the exponent that bounds its weight's relative
error, and the entries a row may read.

Masked entries are never read: their scores are −∞ and their exponents 0.  Products of keys, values
and queries take 0 in place of entries that are not finite, so 0·NaN does not arise; NaN reaches the
rows that may read it by their scores.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
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


@dataclass(eq=False)
class Operand:
    """An input ball, made safe to multiply.

    Where the input is not finite, `raw` is NaN, `value` is 0 and `unknown` is 1 (None if all
    entries are finite). `rad` 0 throughout is given as None. `reach` is an upper bound of |x| for
    every number x in the interval value ± rad, and `shape` has batch axes, rows and columns.
    """

    raw: Array
    value: Array
    rad: Array | None = None
    unknown: Array | None = None
    reach: Array = field(init=False)
    shape: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.shape = self.value.shape
        self.reach = np.abs(self.value)
        if self.rad is not None:
            with np.errstate(over="ignore"):
                self.reach += self.rad

    def __getitem__(self, index: Any) -> "Operand":
        """The operand of some of the batches."""
        if index is ...:
            return self
        rad, unknown = (None if x is None else _unless_zero(x[index]) for x in (self.rad, self.unknown))
        return Operand(self.raw[index], self.value[index], rad, unknown)

    @cached_property
    def length(self) -> Array:
        """Upper bounds of the Euclidean norms of rows; squares below 2⁻¹⁰²² may underflow, which √d·2⁻⁵¹¹ covers."""
        d = self.shape[-1]
        norms: Array = np.sqrt(np.einsum("...d,...d->...", self.reach, self.reach)) + d**0.5 * 2.0**-511
        return norms * (1 + gamma(d + 4, ROUNDOFF))


class Inputs(NamedTuple):
    """The queries, keys and values of attention."""

    q: Operand
    k: Operand
    v: Operand


def operand(x: Array, rad: Array | None = None) -> Operand:
    """Return the operand of an input that is within a radius of x, or is x exactly."""
    known = np.isfinite(x)
    if rad is not None:
        known &= np.isfinite(rad)
    if not known.all():
        spread = None if rad is None else _unless_zero(np.where(known, rad, 0.0))
        return Operand(np.where(known, x, np.nan), np.where(known, x, 0.0), spread, (~known).astype(np.float64))
    return Operand(x, x, None if rad is None else _unless_zero(rad))


def offset(v: Operand) -> Array | float:
    """Return an offset (…, 1, d_v) that all values of a column share: their median, if none is less
    than half of it, else 0; or 0 for all.

    So no distance |v − c| is more than 3|v|, and values with a large offset are near it.
    """
    ordered = np.sort(v.value[..., :: -(-v.shape[-2] // MEDIAN_OF), :], axis=-2)
    n = ordered.shape[-2]
    middle = (ordered[..., (n - 1) // 2, None, :] + ordered[..., n // 2, None, :]) / 2
    shared = v.reach.min(axis=-2, keepdims=True) >= np.abs(middle) / 2
    return np.where(shared, middle, 0.0) if shared.any() else 0.0


def distances(v: Operand, centre: Array | float) -> Array:
    """Return a bound of |v − centre| for every number in the ball, up to one rounding."""
    if isinstance(centre, float):  # there is none: it is 0
        return v.reach
    far = np.abs(v.value - centre)
    return far if v.rad is None else far + v.rad


def part(x: Operand, rows: slice) -> Operand:
    """Return the operand's rows in a slice."""
    if (rows.start, rows.stop) == (0, x.shape[-2]):
        return x
    rad, unknown = (None if field is None else field[..., rows, :] for field in (x.rad, x.unknown))
    return Operand(x.raw[..., rows, :], x.value[..., rows, :], rad, unknown)


class Block(NamedTuple):
    """A tile of query rows and keys: its operands, and which keys each row may read (None for all)."""

    rows: slice
    keys: slice
    q: Operand
    k: Operand
    v: Operand
    allowed: Mask | None


class AttentionProblem(NamedTuple):
    """One attention problem with all its batch axes: what is asked, and the terms to answer it
    with.

    `visible` says which keys a row may read, and `features` how a score becomes a logit. `terms`
    are the terms of the modelled arithmetic plus the oracle's, and `own` the oracle's alone.
    `delta` says how a kernel forms δ, and `ranges` where the modelled arithmetic overflows.  With
    `elementwise`, errors of scores and of dP are bounded entry by entry; without, by one number per
    row, which is faster and a few times wider.  `centre` (…, 1, d_v), or 0, is any point: errors
    are counted by distances of values from it.  `room` holds five arrays of the size of a tile, to
    be overwritten by the next: fresh memory would cost as much as the arithmetic.  `group` is the
    number of query heads whose rows these are, where a kernel may round the gradients of each.
    `level` (…, n_q, 1) are rows that read all keys, masked ones too, by logits of exactly 0: adding
    one constant to all of them, as a fill does, changes no weight.
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
        """The problem without its sinks, if the log-sum-exp leaves them out; else None."""
        if not self.lse_without_sink or self.features is None or self.features.sink is None:
            return None
        return self._replace(features=self.features._replace(sink=None))

    @property
    def n_q(self) -> int:
        """The number of query rows."""
        return self.q.shape[-2]

    @property
    def n_k(self) -> int:
        """The number of keys."""
        return self.k.shape[-2]

    def tile(self, number: int, block: Block) -> Array:
        """Return uninitialised memory for one of the five arrays of a tile."""
        tile: Array = self.room[number, ..., : block.q.shape[-2], : block.k.shape[-2]]
        return tile

    @property
    def has_kernel(self) -> bool:
        """Whether the terms count the errors of a kernel, and not the oracle's alone."""
        return self.terms is not self.own

    @property
    def bias_first(self) -> bool:
        """Whether a kernel, but not the oracle itself, may begin the sum of a score with the bias,
        or the sum of its tangent with the bias's tangent.
        """
        return self.features is not None and self.features.bias_first and self.has_kernel

    def rounded_beyond(self, x: Operand) -> bool:
        """Return whether rounding an operand before a product may overflow: a weight of 0 times ∞
        is NaN.
        """
        product = self.terms.product
        return bool(product and x.reach.max(initial=0.0) * (1 + product) > self.ranges.work)

    def row_tiles(self) -> Iterator[slice]:
        """Return the query rows, `ROW_TILE` at a time."""
        return (slice(i, min(i + ROW_TILE, self.n_q)) for i in range(0, self.n_q, ROW_TILE))

    def blocks(self, rows: slice) -> Iterator[Block]:
        """Yield the tiles of some rows, with the keys of `key_tiles`."""
        q = part(self.q, rows)
        for keys, allowed in self.key_tiles(rows):
            yield Block(rows, keys, q, part(self.k, keys), part(self.v, keys), allowed)

    def key_tiles(self, rows: slice) -> Iterator[tuple[slice, Mask | None]]:
        """Yield the keys from the first to the last that any of the rows may read, `KEY_TILE` at a
        time, and which of them each row may read.

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


def scores(problem: AttentionProblem, block: Block) -> Logits:
    """Return the logits of a tile: scale·q·kᵀ, changed by the features. They overwrite the logits
    of the tile before.
    """
    s = np.matmul(block.q.raw, block.k.raw.swapaxes(-1, -2), out=problem.tile(0, block))
    s *= problem.scale
    if problem.features is not None:
        room = None if problem.elementwise else (problem.tile(4, block), problem.tile(3, block))
        found = logits(problem.features.tile(block.rows, block.keys), s, block.allowed, room)
    else:
        found = Logits(s)
        if block.allowed is not None:
            np.copyto(s, -np.inf, where=~block.allowed)
    if problem.level is not None:
        np.copyto(found.u, 0.0, where=problem.level[..., block.rows, :])
    return found


def growth(problem: AttentionProblem, block: Block, x: Logits, slope: float) -> Array:
    """Return the exponent τ of each weight's error that comes with its logit: (rows, keys), or its
    row maxima (rows, 1).

    τ = (dot.terms + product + scale_on_inputs)·R + (dot.result + stored_scores + slope)·|s| +
    underflow + what the inputs' radii add, with R = |scale|·|q||k|ᵀ, and |bias| where that may come
    first in the sum; then what `features` add, and the slope of the logit instead of the score's.
    A scaled q that underflows by η moves a score by at most η‖k‖₁, a scaled k by
    η‖q‖₁.  0 where a row may not read a key: masked scores that overflow should do no harm.
    `levelled` says what is left of it in level rows.
    """
    features, of_score = problem.features, slope if problem.features is None else 0.0
    tau = _entry_growth(problem, block, x, of_score) if problem.elementwise else _row_growth(problem, block, of_score)
    if features is not None:
        tau = passed(x, features, problem.terms, tau, problem.ranges, problem.scale)
        tau = tau + slope * (x.size + tau)
    if problem.elementwise and block.allowed is not None:
        np.copyto(tau, 0.0, where=~block.allowed)
    return tau


def _entry_growth(problem: AttentionProblem, block: Block, x: Logits, slope: float) -> Array:
    """`growth` of each entry before the steps of the features, where masked entries are not 0 yet."""
    (q, k), t, c = (block.q, block.k), problem.terms, abs(problem.scale)
    tau = q.reach @ k.reach.swapaxes(-1, -2)
    overflow = _overflows(problem, q, k, tau)
    tau *= c  # apart, as c times the exponents may underflow
    tau *= t.dot.terms + t.product + t.scale_on_inputs
    size = np.abs(x.u if x.score is None else x.score, out=problem.tile(4, block))
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
    if problem.bias_first and x.biased is not None:
        tau += t.dot.positive * x.biased
    return np.asarray(tau)


def levelled(problem: AttentionProblem, rows: slice, tau: Array) -> Array:
    """Return the exponents of weights, given the exponents of their logits: 0 in level rows, except
    where a kernel's score may overflow, as ∞ plus a fill is ∞. The slope of a softcap depends on
    the score itself, so its error stays.
    """
    if problem.level is None:
        return tau
    level = problem.level[..., rows, :]
    return np.where(level & (tau < np.inf) if problem.elementwise else level, 0.0, tau)


def row_products(a: Operand, b: Operand, allowed: Mask | None) -> Array:
    """Return upper bounds (rows, 1) of (|a||b|ᵀ)_ij over the j that row i may read: ‖a_i‖·max_j
    ‖b_j‖.
    """
    farthest: Array = a.length[..., :, None] * _largest(b.length, allowed)
    return farthest


def sizes(
    problem: AttentionProblem, weights: Array, sums: Array, reach: Array, allowed: Mask | None
) -> tuple[Array, Array]:
    """Return upper bounds of Σ_j w_ij x_j for x ≥ 0, given the sums of the weights of each row, and
    of the Σ_j x_j that it may read.

    Where one number per row is enough, and every row may read all keys, the largest x_j of each
    column stands for all of them: that saves a matrix product.
    """
    if problem.elementwise or allowed is not None:
        return weights @ reach, readable(problem, reach, allowed)
    largest = reach.max(axis=-2, keepdims=True)
    return sums * largest, reach.shape[-2] * largest


def expm1(tau: Array) -> Array:
    """Return an upper bound of exp(τ) − 1 for τ ≥ 0, overwriting τ: τ + τ² in rows up to τ = 1,
    since Σ_{k≥2} 1/k! < 1.
    """
    if tau.max(initial=0.0) <= 1.0:
        tau += tau * tau
        return tau
    large = ~(tau.max(axis=-1) <= 1.0)
    precise = np.expm1(tau[large]) * (1 + 2.0**-48)
    tau += tau * tau
    tau[large] = precise
    return tau


def readable(problem: AttentionProblem, x: Array, allowed: Mask | None) -> Array:
    """Return upper bounds of Σ_j x[j] for x ≥ 0 over the keys that each row may read, 0 in columns
    of zeros; underflow alone is counted by them.

    Where one number per row is enough, it is the largest entry that the row may read, as often as
    there are keys.
    """
    if problem.elementwise or allowed is None:
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


def _row_growth(problem: AttentionProblem, block: Block, slope: float) -> Array:
    """Row maxima of `growth` for the certified value of inputs without radii: |s| ≤ R ≤
    |scale|‖q‖‖k‖.
    """
    t = problem.terms
    products = row_products(block.q, block.k, block.allowed)
    return abs(problem.scale) * products * (t.dot.positive + slope) + t.score_underflow


def _unless_zero(x: Array) -> Array | None:
    return x if x.any() else None


def _overflows(problem: AttentionProblem, q: Operand, k: Operand, products: Array) -> Mask | None:
    """Which scores may leave the modelled range, given |q||k|ᵀ, or depend on unknown entries; None
    if no score does.

    A score may overflow after scaling, in units of ln 2 (1.44 times larger); in one of its factors;
    or before scaling, in the accumulators alone: a narrow format in which scores are stored excuses
    no product that fits if it is scaled first.
    """
    known = q.unknown is None and k.unknown is None
    most, fits = (
        problem.ranges.work / 1.5 / max(unscaled, abs(problem.scale))
        for unscaled in (1.0, problem.ranges.work / problem.ranges.products)
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
