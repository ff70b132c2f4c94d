"""Exact probes: inputs for which a correct kernel can store one result only, or one of few.

This module chooses the inputs of one key head of attention. `oracles.possible_attention` and
`oracles.possible_gradients` derive the sets of results, and `properties.inspection.exact_calls` has
the calls of each operation.

**Attention.** Each row (query) counts two keys: the scores of all other keys are below −110, so that
their weights are 0. There are two kinds of rows:

    mean     both scores are 0. The values are 2·M and 1 ± 2δ units, where M has as many bits as the
             format and a unit is its last one. So the output M + 1/2 ± δ is next to a rounding
             boundary. An error of the sum of the weights, of a value or of the output crosses it,
             if it is larger than the part δ/M. So does a key that is lost, or counted twice
    weight   one score is 0, with the value 0. The other score is next to log w, where w is far below
             1 and in the middle between two numbers of the format. Its value is a power of two, so
             the output has the rounding boundary of the weight: a kernel that stores the weight
             returns the same as one that does not. A relative error of the scale is |log w| times
             as large in the weight

Query heads that share a key head are rows of the same keys. The pairs have a key in each tile of
`TILE` keys, in as many calls as that needs, so that a tile that is lost or counted twice shows. In
short rows each key is in a pair.

**Its gradients** have means too. Two rows of a pair have the weight 1/2 for both keys, and their
cotangents are 2·M and 1 ± 2δ, so each gradient of a value is next to a rounding boundary. One column
of the values is 3 and 1, and the cotangent there is a power of two, so that dS is one, ± 1/2 of it.
One channel of k, in which q is 0, and one channel of q, in which k is 0, have 2·M and 1 ± 2δ, so the
gradients of q and k are next to boundaries too.

The arithmetic allows a correct kernel some error. δ, and the distance of the score from log w, are
a little larger than this error.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oracles.formats import BINARY64, Arithmetic
from oracles.possible_attention import Problem, possible_outputs
from oracles.possible_gradients import possible_gradients
from oracles.possible_results import Possible, nearest
from properties.inspection.array import Array

__all__ = [
    "FAR",
    "TILE",
    "GradientProbe",
    "PairProbe",
    "Sizes",
    "gradient_probe",
    "order_of_keys",
    "pair_probe",
    "scale_between",
    "turns",
]

FAR = 160.0  # how far the scores of keys that do not count are below 0
_PARTS = 3  # the channels of a score next to log w
_LARGEST = 128.0  # the largest entry of q and k
_STEPS = (1.0, 1.5, 2.5, 5.0, 12.0, 30.0)  # distances from log w, in units of the closest one
TILE = 64


class Sizes(NamedTuple):
    """The sizes of attention of one key head, where the rows are the queries of all its heads; its
    scale, and which keys each row sees, or None for all.
    """

    rows: int
    n_k: int
    d: int
    d_v: int
    scale: float
    visible: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class PairProbe:
    """The inputs of one call, and the set of its outputs. For each row, `scores` is the score next
    to log w, or 0 for a mean, `values` are the values of its key, and `margins` is the part of an
    output by which a correct kernel may be off.
    """

    problem: Problem
    scores: Array
    values: Array
    margins: Array
    possible: Possible


def pair_probe(sizes: Sizes, a: Arithmetic, turn: int = 0) -> PairProbe | None:
    """Return a probe. Another turn has other keys. Return None for fewer than two keys, for a scale
    that is too small, and for a width of fewer than 5 channels.

    Channel c < number of pairs is the code of a pair: a key of this pair has a number there, and a
    query of this pair is 0 there and below 0 in all other codes. The next channel is the code of
    all other keys. The last channels add up to the scores next to log w.
    """
    generator, number = np.random.default_rng(turn), _pairs_of(sizes)
    if (coded := _coded(generator, number, sizes, turn)) is None:
        return None
    k, pairs, size = coded
    row = _pair_of_rows(pairs, sizes)
    q = _queries(row, sizes, size)
    v = nearest(generator.uniform(-8, 8, (sizes.n_k, sizes.d_v)), a.operands)
    exponents = _exponents(generator, number, a, turn)
    logs, v[pairs] = -exponents * np.log(2), _values(generator, exponents, a, np.full(number, 0.25), sizes.d_v)
    k[pairs[:, 1], -_PARTS:] = _parts(logs / sizes.scale, a)
    once = replace(a, output=BINARY64, weights=None)
    of_pairs = Problem(_queries(np.arange(number), sizes, size), k, v, sizes.scale)
    margins = _margins(possible_outputs(of_pairs, once))
    logs = np.where(exponents, _beside(generator, exponents, margins, a), 0.0)
    k[pairs[:, 1], -_PARTS:] = _parts(logs / sizes.scale, a)
    v[pairs] = _values(generator, exponents, a, margins, sizes.d_v)
    second = pairs[row, 1]
    scores = sizes.scale * (q * k[second]).sum(1)
    problem = Problem(q, k, v, sizes.scale, sizes.visible)
    return PairProbe(problem, scores, v[second], margins[row], possible_outputs(problem, a))


@dataclass(frozen=True)
class GradientProbe:
    """The inputs of one call of the VJP, and the sets of the gradients by name."""

    problem: Problem
    grad_out: Array
    possible: dict[str, Possible]


def gradient_probe(sizes: Sizes, a: Arithmetic, turn: int = 0) -> GradientProbe | None:
    """Return a probe of the gradients, for which two rows count each pair. Return None as `pair_probe`
    does, for one column of values, and if no two rows see a pair.
    """
    generator, number = np.random.default_rng(turn), min(_pairs_of(sizes), sizes.rows // 2)
    if sizes.d_v < 2 or (coded := _coded(generator, number, sizes, turn)) is None:
        return None
    k, pairs, size = coded
    row = _pair_of_rows(pairs, sizes)
    seen = sizes.visible is None or np.take_along_axis(sizes.visible, pairs[row], 1).all(1)
    of_pairs = [np.flatnonzero((row == pair) & seen)[:2] for pair in range(number)]
    if not (kept := [pair for pair in range(number) if len(of_pairs[pair]) == 2]):
        return None
    rows, pairs, means = np.array([of_pairs[pair] for pair in kept]), pairs[kept], np.zeros(len(kept))
    q, v, g = _queries(row, sizes, size), np.zeros((sizes.n_k, sizes.d_v)), np.zeros((sizes.rows, sizes.d_v))
    v[pairs, 0] = 3.0, 1.0
    k[:, -_PARTS:], q[:, -_PARTS:] = 0.0, 0.0
    once = replace(a, output=BINARY64, weights=None, saved_weights=None)
    margins = [np.full(len(kept), 0.25)] * 3
    for _ in range(2):
        k[pairs, -2], q[rows, -1] = (_values(generator, means, a, each, 1)[..., 0] for each in margins[:2])
        g[rows] = _values(generator, means, a, margins[2], sizes.d_v)
        g[rows, 0] = np.exp2(generator.integers(-2, 3, len(kept)))[:, None]
        problem = Problem(q, k, v, sizes.scale)
        dq, dk, dv = possible_gradients(problem, g, once)
        shown = dq.at((rows, [-2])), dk.at((pairs, [-1])), dv.at((pairs, slice(1, None)))
        margins = [_margins(Possible(*(end.reshape(len(kept), -1) for end in each))) for each in shown]
    problem = problem._replace(visible=sizes.visible)
    return GradientProbe(problem, g, possible_gradients(problem, g, a)._asdict())


def _pairs_of(sizes: Sizes) -> int:
    """The number of pairs of one call."""
    return max(min(sizes.d - _PARTS - 1, sizes.rows, sizes.n_k // 2), 0)


def _coded(
    generator: np.random.Generator, number: int, sizes: Sizes, turn: int
) -> tuple[Array, NDArray[np.intp], float] | None:
    """Return k, the pairs of keys, and the size of the codes, or None."""
    codes = sizes.d - _PARTS - 1
    size = float(np.exp2(np.ceil(np.log2(FAR / sizes.scale) / 2))) if sizes.scale > 0 else np.inf
    if number < 1 or codes < 1 or size > _LARGEST:
        return None
    pairs = _pairs(generator, number, sizes, turn)
    k = np.zeros((sizes.n_k, sizes.d))
    k[:, codes] = size
    k[pairs.ravel(), codes] = 0.0
    k[pairs, np.arange(number)[:, None]] = size
    return k, pairs, size


def _queries(row: NDArray[np.intp], sizes: Sizes, size: float) -> Array:
    """Return q, so that query i counts the keys of pair row[i]."""
    codes = sizes.d - _PARTS - 1
    q = np.zeros((len(row), sizes.d))
    q[:, : codes + 1], q[:, codes + 1 :] = -size, 1.0
    q[np.arange(len(row)), row] = 0.0
    return q


def _pair_of_rows(pairs: NDArray[np.intp], sizes: Sizes) -> NDArray[np.intp]:
    """Return the pair that each row counts: one after the other, or if rows do not see all keys, the
    pair with the fewest rows among those that the row sees.
    """
    if sizes.visible is None:
        return np.arange(sizes.rows) % len(pairs)
    row, used = np.zeros(sizes.rows, dtype=np.intp), np.zeros(len(pairs))
    for place, visible in enumerate(sizes.visible):
        seen = visible[pairs].all(1)
        row[place] = np.argmin(np.where(seen, used, np.inf))
        used[row[place]] += 1
    return row


def _pairs(generator: np.random.Generator, number: int, sizes: Sizes, turn: int) -> NDArray[np.intp]:
    """Return disjoint pairs of keys. In the first turn these are the last key, the first, and keys at
    the edges of tiles; in later turns, a key of each tile, and then all others. The order is random.
    """
    keys = np.take(order_of_keys(sizes.n_k), np.arange(2 * number) + 2 * number * turn, mode="wrap")
    return generator.permutation(keys).reshape(number, 2)


def order_of_keys(n_k: int) -> NDArray[np.intp]:
    """The order in which probes take keys."""
    generator = np.random.default_rng(n_k)
    edges = generator.permutation([key for power in range(3, 20) for key in (2**power - 1, 2**power) if key < n_k - 1])
    tiles = [min(start + int(generator.integers(TILE)), n_k - 1) for start in range(0, n_k, TILE)]
    order = dict.fromkeys(int(key) for key in (n_k - 1, 0, *edges, *generator.permutation(tiles)))
    return np.array([*dict.fromkeys([*order, *generator.permutation(n_k).tolist()])])


def turns(sizes: Sizes, tile: int = TILE) -> int:
    """Return the number of turns after which the pairs of a probe have a key in each tile."""
    _, first = np.unique(order_of_keys(sizes.n_k) // tile, return_index=True)
    return int(first.max(initial=0)) // (2 * max(_pairs_of(sizes), 1)) + 1


def _exponents(generator: np.random.Generator, number: int, a: Arithmetic, turn: int) -> Array:
    """Return −log₂ of the number below w for each pair; 0 for means, which are every other pair."""
    deepest = -np.log2((a.weights or a.output).smallest_normal) - 1
    drawn = np.floor(generator.uniform(min(deepest, 70.0), min(deepest, 100.0), number))
    return np.where((np.arange(number) + turn) % 2, drawn, 0.0)


def _beside(generator: np.random.Generator, exponents: Array, margins: Array, a: Arithmetic) -> Array:
    """Return logarithms of numbers on both sides of w."""
    sides, steps = generator.choice([-1.0, 1.0], len(exponents)), np.resize(_STEPS, len(exponents))
    off = (margins * 1.02 + 2.0**-20 + np.exp2(-exponents)) * steps
    return np.asarray(-exponents * np.log(2) + np.log1p(a.output.unit_roundoff) + sides * off)


def _values(generator: np.random.Generator, exponents: Array, a: Arithmetic, margins: Array, d_v: int) -> Array:
    """Return the values of both keys of each pair, (pair, 2, column), in random units and signs."""
    shape, u = (len(exponents), d_v), a.output.unit_roundoff
    whole = np.floor(generator.uniform(0.5 / u, 1 / u, shape))
    delta = np.minimum((np.floor(margins[:, None] * (whole + 1) / u) + 1) * u, 0.5 - u)
    second = 1 + 2 * delta * generator.choice([-1.0, 1.0], shape)
    unit = np.exp2(generator.integers(-2, 3, shape) + np.log2(u)) * generator.choice([-1.0, 1.0], shape)
    is_weight = (exponents > 0)[:, None]
    power = np.sign(unit) * np.exp2(exponents)[:, None]
    return np.stack([np.where(is_weight, 0.0, 2 * whole * unit), np.where(is_weight, power, second * unit)], 1)


def _parts(x: Array, a: Arithmetic) -> Array:
    """Return numbers of the format that add up to x, the largest first."""
    parts = np.zeros((len(x), _PARTS))
    for place in range(_PARTS):
        parts[:, place] = nearest(x - parts.sum(1), a.operands)
    return parts


def _margins(possible: Possible) -> Array:
    """Return by which part of an output a correct kernel may be off in each row."""
    with np.errstate(all="ignore"):
        half = (possible.upper - possible.lower) / (np.abs(possible.upper) + np.abs(possible.lower))
    return np.asarray(np.nan_to_num(half, nan=0.25).max(1, initial=0.0).clip(max=0.25))


def scale_between(probe: PairProbe, out: Array, a: Arithmetic) -> tuple[float, float] | None:
    """Return the smallest and the largest factor of the scale with which the weights of all rows
    are right, or None if no factor makes them right.

    An output o of a value v shows that the weight is within half a unit of o/v. Its logarithm is
    the scale times a number.
    """
    rows = probe.scores < 0
    with np.errstate(all="ignore"):
        weights = (out / probe.values)[rows]
        off = a.output.unit_roundoff + probe.margins[rows, None] + np.exp(probe.scores[rows, None])
        ends = np.log(weights * np.stack([1 + off, 1 - off])) / probe.scores[rows, None]
    if not rows.any() or not np.isfinite(ends).all():
        return None
    low, high = float(ends[0].max()), float(ends[1].min())
    return (low, high) if low <= high else None
