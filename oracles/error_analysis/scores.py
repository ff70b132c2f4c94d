"""Computes the scores of attention tile by tile. Each score comes with an exponent τ: the relative
error of the weight exp(score) is at most exp(τ) − 1.

Masked entries are never read: their scores are −∞ and their exponents 0. Products of keys, values
and queries use 0 in place of entries that are not finite, so 0·NaN does not arise. The scores are
NaN instead: a key with an entry that is not finite has the score NaN in every row to which it is
visible.
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
"""The number of query rows that the oracle handles at a time."""

KEY_STEP = 128
"""Tiles of keys begin and end at multiples of this number. A small number of keys is therefore
summed in the same order, whether a mask or a window masks the other keys.
"""

MEDIAN_OF = 64
"""The largest number of rows from which a median is taken."""


@dataclass(eq=False)
class Operand:
    """An input ball (value ± radius), made safe to multiply.

    Where the input is not finite, `raw` is NaN, `value` is 0 and `unknown` is 1. `unknown` is None
    if all entries are finite. `rad` is None if it is 0 everywhere. `reach` is an upper bound of |x|
    for every number x in the interval value ± rad. `shape` has batch axes, rows and columns.
    `parts` are slices of rows that were asked for before: tiles of keys return for each tile of
    queries.
    """

    raw: Array
    value: Array
    reach: Array
    rad: Array | None = None
    unknown: Array | None = None
    parts: "dict[tuple[int, int], Operand]" = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The batch axes, the rows and the columns."""
        return self.value.shape

    def __getitem__(self, index: Any) -> "Operand":
        """Return the operand of some of the batches."""
        if index is ...:
            return self
        rad, unknown = (None if x is None else _unless_zero(x[index]) for x in (self.rad, self.unknown))
        return Operand(self.raw[index], self.value[index], self.reach[index], rad, unknown)

    @cached_property
    def length(self) -> Array:
        """Upper bounds of the Euclidean norms of rows. Squares below 2⁻¹⁰²² may underflow; adding
        √d·2⁻⁵¹¹ covers that.
        """
        d = self.shape[-1]
        norms: Array = np.sqrt(np.einsum("...d,...d->...", self.reach, self.reach)) + d**0.5 * 2.0**-511
        return norms * (1 + gamma(d + 4, ROUNDOFF))

    @cached_property
    def highest(self) -> Array:
        """Return the largest reach of each column."""
        return np.asarray(self.reach.max(axis=-2, keepdims=True))


class Inputs(NamedTuple):
    """The queries, keys and values of attention."""

    q: Operand
    k: Operand
    v: Operand


def operand(x: Array, rad: Array | None = None) -> Operand:
    """Return the operand of an input that is within a radius of x, or is x exactly."""
    finite = np.isfinite(x)
    if rad is not None:
        finite &= np.isfinite(rad)
    if not finite.all():
        spread, value = None if rad is None else _unless_zero(np.where(finite, rad, 0.0)), np.where(finite, x, 0.0)
        unknown = (~finite).astype(np.float64)
        return Operand(np.where(finite, x, np.nan), value, _reach(value, spread), spread, unknown)
    spread = None if rad is None else _unless_zero(rad)
    return Operand(x, x, _reach(x, spread), spread)


def _reach(value: Array, rad: Array | None) -> Array:
    """Return an upper bound of |x| for every number x in the interval value ± rad."""
    reach = np.abs(value)
    if rad is not None:
        with np.errstate(over="ignore"):
            reach += rad
    return reach


def offset(v: Operand) -> Array | float:
    """Return a number for each column (…, 1, d_v) near which all its values lie: their median, if
    no value is less than half of it, else 0. Return 0 if this holds for no column.

    So no distance |v − c| from this number c is more than 3|v|, and values with a large offset have
    small distances.
    """
    ordered = np.sort(v.value[..., :: -(-v.shape[-2] // MEDIAN_OF), :], axis=-2)
    n = ordered.shape[-2]
    middle = (ordered[..., (n - 1) // 2, None, :] + ordered[..., n // 2, None, :]) / 2
    shared = v.reach.min(axis=-2, keepdims=True) >= np.abs(middle) / 2
    return np.where(shared, middle, 0.0) if shared.any() else 0.0


def moved(v: Operand, centre: Array | float) -> Operand:
    """Return the operand v − centre, up to one rounding."""
    if isinstance(centre, float):  # there is none: it is 0
        return v
    difference = v.value - centre
    return Operand(difference, difference, _reach(difference, v.rad), v.rad)


def part(x: Operand, rows: slice) -> Operand:
    """Return the operand's rows in a slice."""
    limits = (rows.start, rows.stop)
    if limits == (0, x.shape[-2]):
        return x
    if limits not in x.parts:
        rad, unknown = (None if y is None else y[..., rows, :] for y in (x.rad, x.unknown))
        raw, value, reach = (y[..., rows, :] for y in (x.raw, x.value, x.reach))
        x.parts[limits] = Operand(raw, value, reach, rad, unknown)
    return x.parts[limits]


class Block(NamedTuple):
    """A tile of query rows and keys: its operands, and which keys are visible to each row (None for
    all).
    """

    rows: slice
    keys: slice
    q: Operand
    k: Operand
    v: Operand
    allowed: Mask | None


class AttentionProblem(NamedTuple):
    """One attention problem with all its batch axes, and the rounding terms of its error.

    visible      which keys are visible to a row (query)
    features     the bias, softcap and sinks, which change a score into a logit
    terms, own   the terms of the modelled arithmetic plus the oracle's; the oracle's alone
    delta        how a kernel computes δ
    ranges       where the modelled arithmetic overflows
    elementwise  whether errors of scores and of dP are bounded entry by entry. Otherwise they are
                 bounded by one number for each row, which is faster and a few times wider
    centre       any point (…, 1, d_v), or 0; errors are multiplied by the distances of values from
                 it
    room         five arrays of the size of a tile, which the next tile overwrites. Fresh memory
                 would cost as much time as the arithmetic
    group        the number of query heads that these rows belong to, if a kernel may round the
                 gradients of each head
    level        rows (…, n_q, 1) to which all keys are visible, masked ones too, by logits of
                 exactly 0. Adding one constant to all logits of a row, as a fill does, changes no
                 weight
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
        """The problem without its sinks, if the log-sum-exp excludes them; else None."""
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
        """Whether a kernel may begin the sum of a score with the bias or ALiBi, or the sum of its
        tangent with the bias's tangent. The oracle itself does not.
        """
        return self.features is not None and self.features.first_summands > 0 and self.has_kernel

    def kept(self, block: Block) -> Array | None:
        """Return 1 for each weight of a tile that dropout keeps, and 0 for others; None without
        dropout.
        """
        return None if self.features is None else self.features.kept_tile(block.rows, block.keys)

    def rounded_beyond(self, x: Operand) -> bool:
        """Return whether an operand may overflow when a kernel rounds it before a product. Then a
        weight of 0 times ∞ is NaN.
        """
        product = self.terms.product
        return bool(product and x.reach.max(initial=0.0) * (1 + product) > self.ranges.work)

    def row_tiles(self) -> Iterator[slice]:
        """Return slices of query rows, `ROW_TILE` rows at a time."""
        return (slice(i, min(i + ROW_TILE, self.n_q)) for i in range(0, self.n_q, ROW_TILE))

    def blocks(self, rows: slice) -> Iterator[Block]:
        """Yield the tiles of some rows, with the keys of `key_tiles`."""
        q = part(self.q, rows)
        for keys, allowed in self.key_tiles(rows):
            yield Block(rows, keys, q, part(self.k, keys), part(self.v, keys), allowed)

    def key_tiles(self, rows: slice) -> Iterator[tuple[slice, Mask | None]]:
        """Yield tiles of keys, `KEY_TILE` at a time, from the first to the last key that is visible
        to any of the rows. Yield with each tile which of its keys are visible to each row; None
        stands for all.

        Both ends are multiples of `KEY_STEP`.  Tiles without a visible key are left out.
        """
        level_rows = None if self.level is None else self.level[..., rows, :]
        visible_range = self.visible.keys(rows, self.n_k) if level_rows is None else slice(0, self.n_k)
        first = visible_range.start - visible_range.start % KEY_STEP
        last = min(visible_range.stop + -visible_range.stop % KEY_STEP, self.n_k)
        for j in range(first, last, KEY_TILE):
            keys = slice(j, min(j + KEY_TILE, last))
            allowed = self.visible.tile(rows, keys)
            if level_rows is not None and allowed is not None:
                allowed = allowed | level_rows
            if allowed is None or allowed.any():
                yield keys, None if allowed is None or allowed.all() else allowed


def scores(problem: AttentionProblem, block: Block) -> Logits:
    """Return the logits of a tile: scale·q·kᵀ, changed by bias and softcap. They overwrite the
    logits of the tile before.
    """
    s = np.matmul(block.q.raw, block.k.raw.swapaxes(-1, -2), out=problem.tile(0, block))
    s *= problem.scale
    if problem.features is not None:
        workspace = None if problem.elementwise else (problem.tile(4, block), problem.tile(3, block))
        result = logits(problem.features.tile(block.rows, block.keys), s, block.allowed, workspace)
    else:
        result = Logits(s)
        if block.allowed is not None:
            np.copyto(s, -np.inf, where=~block.allowed)
    if problem.level is not None:
        np.copyto(result.u, 0.0, where=problem.level[..., block.rows, :])
    return result


def growth(problem: AttentionProblem, block: Block, x: Logits, slope: float) -> Array:
    """Return the exponent τ of each weight's error that comes from its logit: (rows, keys), or its
    row maxima (rows, 1).

    τ = (dot.terms + product + scale_on_inputs)·R + (dot.result + stored_scores + slope)·|s| +
    underflow + the part of the inputs' radii, with R = |scale|·|q||k|ᵀ. R includes |bias| where the
    bias may come first in the sum. With features, their errors are added, and the slope multiplies
    the logit and not the score. A scaled q that underflows by η moves a score by at most η‖k‖₁, a
    scaled k by η‖q‖₁.  τ is 0 at masked keys, because masked scores that overflow should do no
    harm. `levelled` changes τ in level rows.  Where a kernel stores s − m, the slope includes
    `stored_differences`, and the part of |m| belongs to the row.
    """
    slope = slope + problem.terms.stored_differences
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
    score_size = np.abs(x.u if x.score is None else x.score, out=problem.tile(4, block))
    score_size *= t.dot.result + t.stored_scores + slope
    tau += score_size
    tau += t.score_underflow
    if t.input_underflow:
        tau += t.input_underflow * (q.reach.sum(axis=-1)[..., :, None] + k.reach.sum(axis=-1)[..., None, :])
    radius_factor = c * (1 + t.dot.result + t.stored_scores + slope)  # the score itself is not known but to the radii
    if q.rad is not None:
        tau += radius_factor * (q.rad @ k.reach.swapaxes(-1, -2))
    if k.rad is not None:
        tau += radius_factor * (q.reach @ k.rad.swapaxes(-1, -2))
    if overflow is not None:
        tau[overflow] = np.inf
    if problem.bias_first and x.biased is not None:
        tau += t.dot.positive * x.biased
    return np.asarray(tau)


def levelled(problem: AttentionProblem, rows: slice, tau: Array) -> Array:
    """Return the exponents of weights, given the exponents of their logits. In level rows they are
    0, except where a kernel's score may overflow, because ∞ plus a fill is ∞. The slope of a
    softcap depends on the score itself, so its error stays.
    """
    if problem.level is None:
        return tau
    level_rows = problem.level[..., rows, :]
    return np.where(level_rows & (tau < np.inf) if problem.elementwise else level_rows, 0.0, tau)


def row_products(a: Operand, b: Operand, allowed: Mask | None) -> Array:
    """Return upper bounds (rows, 1) of (|a||b|ᵀ)_ij over the keys j that are visible to row i:
    ‖a_i‖·max_j ‖b_j‖.
    """
    farthest: Array = a.length[..., :, None] * _largest(b.length, allowed)
    return farthest


def sizes(
    problem: AttentionProblem, weights: Array, sums: Array, x: Operand, allowed: Mask | None
) -> tuple[Array, Array]:
    """Return upper bounds of Σ_j w_ij |x_j|, given the sums of the weights of each row. Return also
    upper bounds of Σ_j |x_j| over the visible keys of the row.

    If one number for each row is enough and all keys are visible to every row, the largest |x_j| of
    each column stands for all of them. That saves a matrix product.
    """
    if problem.elementwise or allowed is not None:
        return weights @ x.reach, readable(problem, x.reach, allowed)
    return sums * x.highest, x.shape[-2] * x.highest


def expm1(tau: Array) -> Array:
    """Return an upper bound of exp(τ) − 1 for τ ≥ 0, and overwrite τ. In rows up to τ = 1 it is τ +
    τ², because Σ_{k≥2} 1/k! < 1.
    """
    if tau.max(initial=0.0) <= 1.0:
        tau += tau * tau
        return tau
    large_rows = ~(tau.max(axis=-1) <= 1.0)
    precise = np.expm1(tau[large_rows]) * (1 + 2.0**-48)
    tau += tau * tau
    tau[large_rows] = precise
    return tau


def readable(problem: AttentionProblem, x: Array, allowed: Mask | None) -> Array:
    """Return upper bounds of Σ_j x[j] for x ≥ 0 over the keys that are visible to each row; 0 in
    columns of zeros. They bound underflow alone.

    If one number for each row is enough, it is the largest visible entry times the number of keys.
    """
    if problem.elementwise or allowed is None:
        return over_keys(allowed, x)
    return np.asarray(
        np.where(x.any(axis=-2, keepdims=True), x.shape[-2] * _largest(x.max(axis=-1, initial=0.0), allowed), 0.0)
    )


def _largest(x: Array, allowed: Mask | None) -> Array:
    """Return the largest x_j ≥ 0 over the visible keys of each row: (rows, 1), or (1, 1) if all
    keys are visible to all rows.
    """
    if allowed is None:
        return np.asarray(x.max(axis=-1, initial=0.0)[..., None, None])
    return np.asarray(
        np.broadcast_to(x[..., None, :], np.broadcast_shapes(x[..., None, :].shape, allowed.shape)).max(
            axis=-1, keepdims=True, initial=0.0, where=allowed
        )
    )


def over_keys(allowed: Mask | None, x: Array) -> Array:
    """Return Σ_j x[j] over the visible keys of each row: (rows, columns), or (1, columns) if all
    keys are visible to all rows.
    """
    return x.sum(axis=-2, keepdims=True) if allowed is None else allowed.astype(np.float64) @ x


def _row_growth(problem: AttentionProblem, block: Block, slope: float) -> Array:
    """Return row maxima of `growth` for the certified value of inputs without radii: |s| ≤ R ≤
    |scale|‖q‖‖k‖.
    """
    t = problem.terms
    products = row_products(block.q, block.k, block.allowed)
    return abs(problem.scale) * products * (t.dot.positive + slope) + t.score_underflow


def _unless_zero(x: Array) -> Array | None:
    return x if x.any() else None


def _overflows(problem: AttentionProblem, q: Operand, k: Operand, products: Array) -> Mask | None:
    """Return which scores may leave the modelled range or depend on unknown entries, given |q||k|ᵀ;
    None if every score stays in the range.

    A score may overflow after scaling, in units of ln 2 (1.44 times larger). It may overflow in one
    of its factors. Before scaling only the range of the accumulators counts. A narrow format for
    stored scores does not count there: a product that fits after scaling stays bounded.
    """
    all_known = q.unknown is None and k.unknown is None
    operand_limit, product_limit = (
        problem.ranges.work / 1.5 / max(unscaled, abs(problem.scale))
        for unscaled in (1.0, problem.ranges.work / problem.ranges.products)
    )
    largest = [float(x.reach.max(initial=0.0)) for x in (q, k)]
    if all_known and max(largest) <= operand_limit and 2 * q.shape[-1] * largest[0] * largest[1] <= product_limit:
        return None
    of_q, of_k = (
        (x.reach.max(axis=-1, initial=0.0) > operand_limit) | (False if x.unknown is None else x.unknown.any(axis=-1))
        for x in (q, k)
    )
    overflowing: Mask = (products > product_limit) | of_q[..., :, None] | of_k[..., None, :]
    return overflowing
