"""Adversarial numbers, of sizes that the strategies of `properties` do not draw: each family is
aimed at one step of float64.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from oracles import Conventions
from oracles.error_analysis.visible_keys import Mask
from properties.strategies.climb import Array

__all__ = ["ATTENTION", "ROTARY", "SCORES", "Operands", "plain", "position"]

KEY_TILE, ROW_TILE = 512, 256
"""What the oracles handle at a time: edges of these are worth a visit."""
CANDIDATES = 50
"""Keys of which the worst is taken."""


class Operands(NamedTuple):
    """The inputs of attention of one head, and the scale of its scores."""

    q: Array
    k: Array
    v: Array
    mask: Mask | None = None
    scale: float | None = 1.0


def plain(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Values that enter linearly: normal, one-hot, cancelling, of one magnitude, subnormal, or with a large offset."""
    if not all(shape):
        return np.zeros(shape)
    if len(shape) != 2:
        return plain(rng, (int(np.prod(shape[:-1], dtype=int)), shape[-1])).reshape(shape)
    x: Array = rng.standard_normal(shape)
    match int(rng.integers(7)):
        case 0:
            x = np.zeros(shape)
            x[int(rng.integers(shape[0])), int(rng.integers(shape[1]))] = 1.0
        case 1:
            x *= 10.0 ** rng.choice([-300, -150, 150, 290, 299])
        case 2:
            x *= 2.0 ** -rng.uniform(1000, 1074)
        case 3:
            x = np.where(np.arange(shape[0])[:, None] % 2 == 0, 1.0, -1.0) * (1 + x * 2.0 ** -rng.uniform(20, 52))
        case 4:
            x += 10.0 ** rng.uniform(1, 12)
        case 5:
            x *= 10.0 ** rng.uniform(-300, 290, (shape[0], 1))
    return x


def position(rng: Generator) -> int:
    """A position up to 2⁵³ − 64: uniform in its logarithm, in the last octave, or near a power of two."""
    kind = rng.random()
    if kind < 0.3:
        return int(2.0 ** rng.uniform(0, 52.9))
    if kind < 0.6:
        return int(rng.integers(2**52, 2**53 - 64))
    return int(max(0, 2 ** int(rng.integers(1, 53)) + int(rng.integers(-4, 5))))


def _sizes(rng: Generator) -> tuple[int, int, int]:
    return int(rng.integers(1, 3)), int(rng.integers(2, 5)), int(rng.integers(1, 4))


def _balanced(rng: Generator, q: Array, target: float, size: float) -> Array:
    """A key whose score with q, whose last entry is 1, is a target, though its products are as
    large as `size` and cancel: of some such keys the one that float64 has farthest below it."""

    def exact(key: Array) -> Fraction:
        return sum((Fraction(a) * Fraction(b) for a, b in zip(q.tolist(), key.tolist(), strict=True)), Fraction(0))

    width, lowest_key, lowest = len(q) - 1, q, np.inf
    for _ in range(CANDIDATES):
        signs = rng.permutation(np.where(np.arange(width) % 2, -1.0, 1.0))
        key = np.append(signs * size * rng.uniform(0.8, 1, width) / q[:-1], 0.0)
        key[-1] = float(Fraction(target) - exact(key))
        error = float((q[None] @ np.stack([0 * key, key]).T)[0, 1]) - float(exact(key))
        if error < lowest:
            lowest_key, lowest = key, error
    return lowest_key


def cancelling(rng: Generator) -> Operands:
    """Scores of −710 to −680 below the largest, by products of 2e17 to 8e17 together, which float64
    has wrong by up to a hundred.
    """
    width, n_k = int(rng.integers(3, 7)), int(rng.choice([2, 2, 2, 3]))
    q = np.append(rng.uniform(0.5, 1, width) * 10.0 ** rng.uniform(0, 9), 1.0)[None]
    size = 10.0 ** rng.uniform(17.3, 17.9) / width
    k = np.stack([np.zeros(width + 1), *(_balanced(rng, q[0], rng.uniform(-710, -680), size) for _ in range(n_k - 1))])
    v = 10.0 ** rng.uniform(280, 299.3, (n_k, 2)) * rng.choice([-1.0, 1.0, 1.0], (n_k, 2))
    v[0] = rng.choice([0.0, 1.0, -1.0], 2)
    order = rng.permutation(n_k)
    return Operands(q, k[order], v[order])


def one_hot(rng: Generator) -> Operands:
    """Rows of the identity, times anything."""
    n_q, n_k, d = _sizes(rng)
    q, k, v = (np.eye(d)[rng.integers(d, size=n)] * 10.0 ** rng.uniform(-3, 3) for n in (n_q, n_k, n_k))
    return Operands(q, k, v, scale=None)


def equal_keys(rng: Generator) -> Operands:
    """Keys of any size that are equal except for a few last bits: attention is the mean."""
    n_q, n_k, d = _sizes(rng)
    k = np.tile(rng.standard_normal(d) * 10.0 ** rng.uniform(-5, 8), (n_k, 1)) * (
        1 + (rng.random((n_k, d)) < 0.3) * 2.0**-52
    )
    return Operands(rng.standard_normal((n_q, d)) * 10.0 ** rng.uniform(-5, 5), k, plain(rng, (n_k, d)), scale=None)


def magnitudes(rng: Generator) -> Operands:
    """q of 1e±300 and k of 1e∓300, or 1e±150, with scores of ordinary size, or a scale that makes them so."""
    n_q, n_k, d = _sizes(rng)
    decades = float(rng.choice([-300, -150, 150, 300]))
    q, k = rng.standard_normal((n_q, d)) * 10.0**decades, rng.standard_normal((n_k, d)) * 10.0**-decades
    scale = 10.0 ** rng.uniform(-2, 3)
    if rng.random() < 0.3:
        q, scale = rng.standard_normal((n_q, d)), 10.0 ** (decades + rng.uniform(0, 2))
    return Operands(q, k, plain(rng, (n_k, d)), scale=float(scale))


def subnormal(rng: Generator) -> Operands:
    """Everything near the smallest numbers, or scores so low that weights are subnormal."""
    n_q, n_k, d = _sizes(rng)
    if rng.random() < 0.5:
        q, k, v = (rng.standard_normal((n, d)) * 2.0 ** -rng.uniform(900, 1074) for n in (n_q, n_k, n_k))
        return Operands(q, k, v, scale=float(2.0 ** rng.uniform(0, 1000)))
    k = -rng.uniform(690, 760, (n_k, 1))
    k[0] = 0.0
    return Operands(np.ones((n_q, 1)), k, rng.choice([1.0, 1e299, -1e299, 1e290], (n_k, 1)))


def rising(rng: Generator) -> Operands:
    """Keys in several tiles, the largest score rising from one to the next by what underflows, one
    entry each apart from equal keys.
    """
    n_k = int(rng.choice([KEY_TILE + 1, 2 * KEY_TILE, 2 * KEY_TILE + 1]))
    step = rng.uniform(300, 760)
    k = (np.arange(n_k) // KEY_TILE * step)[:, None] + np.zeros((n_k, 1))
    noise = rng.random(n_k) < 4 / n_k
    k[noise, 0] += rng.uniform(-30, 30, int(noise.sum()))
    v = np.where(np.arange(n_k) < KEY_TILE, 10.0 ** rng.uniform(200, 299), 1.0)[:, None] * rng.choice(
        [-1.0, 1.0, 1.0], (n_k, 1)
    )
    return Operands(np.ones((1, 1)), k, v)


def edges(rng: Generator) -> Operands:
    """As many keys or rows as a tile takes, or one more or fewer."""
    n_q, n_k = (
        (1, KEY_TILE + int(rng.integers(-1, 2))) if rng.random() < 0.7 else (ROW_TILE + int(rng.integers(-1, 2)), 2)
    )
    return Operands(
        rng.standard_normal((n_q, 1)) * 10.0 ** rng.uniform(-1, 2), rng.standard_normal((n_k, 1)), plain(rng, (n_k, 1))
    )


def dead(rng: Generator) -> Operands:
    """Masks with rows that may read nothing, and keys that nobody reads."""
    n_q, n_k, d = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    mask = rng.random((n_q, n_k)) < rng.choice([0.2, 0.5, 0.8])
    q, k = (rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-2, 1) for n in (n_q, n_k))
    return Operands(q, k, plain(rng, (n_k, d)), mask, scale=None)


def offset(rng: Generator) -> Operands:
    """An offset shared by all keys and one by all values, up to 1e12 times what tells them apart."""
    n_q, n_k, d = _sizes(rng)
    k, v = (rng.standard_normal((n_k, d)) + rng.standard_normal(d) * 10.0 ** rng.uniform(2, 12) for _ in range(2))
    return Operands(rng.standard_normal((n_q, d)), k, v, scale=None)


def opposite(rng: Generator) -> Operands:
    """Values whose weighted sum cancels, the weights being nearly equal."""
    n_q, n_k, d = _sizes(rng)
    v = np.where(np.arange(n_k)[:, None] % 2 == 0, 1.0, -1.0) * (
        1 + rng.standard_normal((n_k, d)) * 2.0 ** -rng.uniform(10, 52)
    )
    size = 10.0 ** rng.uniform(-16, 0)
    return Operands(
        rng.standard_normal((n_q, d)) * size,
        rng.standard_normal((n_k, d)),
        v * 10.0 ** rng.uniform(-300, 300),
        scale=None,
    )


def large(rng: Generator) -> Operands:
    """Scores to 1e6, so that nearly one-hot weights are wrong by many units in the last place."""
    n_q, n_k, d = _sizes(rng)
    q, k = (rng.standard_normal((n, d)) * 10.0 ** rng.uniform(0, 3) for n in (n_q, n_k))
    return Operands(q, k, plain(rng, (n_k, d)), scale=None)


ATTENTION: dict[str, Callable[[Generator], Operands]] = {
    f.__name__.replace("_", " "): f
    for f in (cancelling, one_hot, equal_keys, magnitudes, subnormal, rising, edges, dead, offset, opposite, large)
}
"""The families of attention."""


def scores(kind: str, rng: Generator) -> tuple[Array, Mask | None]:
    """A matrix of scores and a mask."""
    n, n_k = int(rng.integers(1, 3)), int(rng.integers(1, 7))
    x: Array = rng.standard_normal((n, n_k))
    match kind:
        case "underflowing":
            x = -rng.uniform(650, 760, (n, n_k))
            x[:, 0] = 0.0
        case "large":
            x *= 10.0 ** rng.uniform(0, 8)
        case "offset":
            x += 10.0 ** rng.uniform(2, 15)
        case "equal":
            x = np.full((n, n_k), 10.0 ** rng.uniform(-3, 5)) * (1 + (rng.random((n, n_k)) < 0.3) * 2.0**-52)
        case "subnormal":
            x *= 2.0 ** -rng.uniform(1000, 1074)
        case _:
            x *= 10.0 ** rng.uniform(-2, 2)
    return x, rng.random((n, n_k)) < 0.6 if kind == "dead" else None


SCORES = {kind: partial(scores, kind) for kind in ("underflowing", "large", "offset", "equal", "subnormal", "dead")}
"""The families of softmax."""


def rotary(kind: str, rng: Generator) -> Conventions:
    """The base and the scale of the frequencies."""
    match kind:
        case "huge positions":
            return Conventions(rope_scale=float(rng.uniform(0.5, 8)))
        case "huge scales":
            return Conventions(rope_scale=float(10.0 ** rng.uniform(0, 250)))
        case "tiny scales":
            return Conventions(rope_scale=float(10.0 ** rng.uniform(-300, 0)))
        case "bases":
            base = float(rng.choice([1.0, 1 + 2.0**-52, rng.uniform(1, 3), 10.0 ** rng.uniform(0, 300)]))
            return Conventions(rope_base=base, rope_scale=float(2.0 ** rng.integers(-2, 3)))
        case _:
            return Conventions()


ROTARY = {kind: partial(rotary, kind) for kind in ("huge positions", "huge scales", "tiny scales", "bases", "plain")}
"""The families of rope, each at any position."""
