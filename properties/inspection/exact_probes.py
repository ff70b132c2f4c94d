"""Exact probes: inputs of attention for which a correct kernel can store one result only, and what
wrong results say about the scale.

Each row (query) counts two keys: the scores of all other keys are below −110, so that their weights
are 0. `oracles.possible_results` derives the set of results. There are two kinds of rows:

    mean     both scores are 0. The values are 2·M and 1 ± 2δ units, where M has as many bits as the
             format and a unit is its last one. So the output M + 1/2 ± δ is next to a rounding
             boundary. An error of the sum of the weights, of a value or of the output crosses it,
             if it is larger than the part δ/M. So does a key that is lost, or counted twice
    weight   one score is 0, with the value 0. The other score is next to log w, where w is far below
             1 and in the middle between two numbers of the format. Its value is a power of two, so
             the output has the rounding boundary of the weight: a kernel that stores the weight
             returns the same as one that does not. A relative error of the scale is |log w| times
             as large in the weight

The gradient of v has means too: two rows of a pair have the weight 1/2 for both keys, and their
cotangents are 2·M and 1 ± 2δ.

The arithmetic allows a correct kernel some error. δ, and the distance of the score from log w, are
a little larger than this error.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oracles.formats import BINARY64, Arithmetic
from oracles.possible_results import Possible, nearest, possible_outputs, possible_value_gradients
from properties.inspection.array import Array

__all__ = ["GradientProbe", "PairProbe", "gradient_probe", "pair_probe", "scale_between"]

_FAR = 160.0  # how far the scores of keys that do not count are below 0
_PARTS = 3  # the channels of a score next to log w
_LARGEST = 128.0  # the largest entry of q and k
_STEPS = (1.0, 1.5, 2.5, 5.0, 12.0, 30.0)  # distances from log w, in units of the closest one


@dataclass(frozen=True)
class PairProbe:
    """The inputs of one call, and the set of its outputs. For each row, `scores` is the score next
    to log w, or 0 for a mean, `values` are the values of its key, and `margins` is the part of an
    output by which a correct kernel may be off.
    """

    q: Array
    k: Array
    v: Array
    scores: Array
    values: Array
    margins: Array
    possible: Possible


def pair_probe(
    sizes: tuple[int, int], widths: tuple[int, int], a: Arithmetic, scale: float, seed: int = 0
) -> PairProbe | None:
    """Return a probe for sizes (n_q, n_k) and widths (d, d_v). Return None for fewer than two keys,
    for a scale that is too small, and for a width of fewer than 5 channels.

    Channel c < number of pairs is the code of a pair: a key of this pair has a number there, and a
    query of this pair is 0 there and below 0 in all other codes. The next channel is the code of
    all other keys. The last channels add up to the scores next to log w.
    """
    (n_q, n_k), (d, d_v) = sizes, widths
    generator, number = np.random.default_rng(seed), min(d - _PARTS - 1, n_q, n_k // 2)
    row = np.arange(n_q) % max(number, 1)
    coded = _coded(generator, row, n_k, d, scale)
    if coded is None:
        return None
    q, k, pairs = coded
    v = nearest(generator.uniform(-8, 8, (n_k, d_v)), a.inputs)
    exponents = _exponents(generator, number, a)
    logs, v[pairs] = -exponents * np.log(2), _values(generator, exponents, a, np.full(number, 0.25), d_v)
    k[pairs[:, 1], -_PARTS:] = _parts(logs / scale, a)
    margins = _margins(possible_outputs(q[:number], k, v, replace(a, output=BINARY64, weights=None), scale))
    logs = np.where(exponents, _beside(generator, exponents, margins, a), 0.0)
    k[pairs[:, 1], -_PARTS:] = _parts(logs / scale, a)
    v[pairs] = _values(generator, exponents, a, margins, d_v)
    second = pairs[row, 1]
    scores = scale * (q * k[second]).sum(1)
    return PairProbe(q, k, v, scores, v[second], margins[row], possible_outputs(q, k, v, a, scale))


@dataclass(frozen=True)
class GradientProbe:
    """The inputs of one call of the VJP, and the set of the gradients of v."""

    q: Array
    k: Array
    v: Array
    grad_out: Array
    possible: Possible


def gradient_probe(
    sizes: tuple[int, int], widths: tuple[int, int], a: Arithmetic, scale: float, seed: int = 0
) -> GradientProbe | None:
    """Return a probe of the gradient of v. Rows 2c and 2c + 1 count pair c. Return None as
    `pair_probe` does, and for one query.
    """
    (n_q, n_k), (d, d_v) = sizes, widths
    generator, number = np.random.default_rng(seed), min(d - _PARTS - 1, n_q // 2, n_k // 2)
    row = np.minimum(np.arange(n_q) // 2, max(number - 1, 0))
    coded = _coded(generator, row, n_k, d, scale) if number > 0 else None
    if coded is None:
        return None
    q, k, pairs = coded
    v, g = nearest(generator.uniform(-8, 8, (n_k, d_v)), a.inputs), np.zeros((n_q, d_v))
    once = replace(a, output=BINARY64, weights=None, saved_weights=None, grad_block=None)
    margins = np.full(number, 0.25)
    for _ in range(2):
        g[: 2 * number] = _values(generator, np.zeros(number), a, margins, d_v).reshape(2 * number, d_v)
        margins = _margins(possible_value_gradients(q, k, g, once, scale))[pairs].max(1)
    return GradientProbe(q, k, v, g, possible_value_gradients(q, k, g, a, scale))


def _coded(
    generator: np.random.Generator, row: NDArray[np.intp], n_k: int, d: int, scale: float
) -> tuple[Array, Array, NDArray[np.intp]] | None:
    """Return q, k, and the pairs of keys, so that query i counts the keys of pair row[i], or
    None."""
    codes, number = d - _PARTS - 1, int(row.max(initial=0)) + 1
    size = np.exp2(np.ceil(np.log2(_FAR / scale) / 2)) if scale > 0 else np.inf
    if n_k < 2 or codes < 1 or size > _LARGEST:
        return None
    pairs = _pairs(generator, number, n_k)
    q, k = np.zeros((len(row), d)), np.zeros((n_k, d))
    q[:, : codes + 1], q[:, codes + 1 :] = -size, 1.0
    q[np.arange(len(row)), row] = 0.0
    k[:, codes] = size
    k[pairs.ravel(), codes] = 0.0
    k[pairs, np.arange(number)[:, None]] = size
    return q, k, pairs


def _pairs(generator: np.random.Generator, number: int, n_k: int) -> NDArray[np.intp]:
    """Return disjoint pairs of keys. The last key, the first, and keys at the edges of tiles come
    first; the order of keys and pairs is random.
    """
    edges = generator.permutation([key for power in range(3, 20) for key in (2**power - 1, 2**power) if key < n_k - 1])
    others = generator.permutation(n_k)
    keys = np.array([*dict.fromkeys(int(key) for key in (n_k - 1, 0, *edges, *others))][: 2 * number])
    return np.asarray(generator.permutation(keys).reshape(number, 2))


def _exponents(generator: np.random.Generator, number: int, a: Arithmetic) -> Array:
    """Return −log₂ of the number below w for each pair; 0 for means, which are every other pair."""
    deepest = -np.log2((a.weights or a.output).smallest_normal) - 1
    drawn = np.floor(generator.uniform(min(deepest, 70.0), min(deepest, 100.0), number))
    return np.where(np.arange(number) % 2, drawn, 0.0)


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
        parts[:, place] = nearest(x - parts.sum(1), a.inputs)
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
