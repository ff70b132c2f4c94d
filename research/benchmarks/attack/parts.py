"""Adversarial families of what surrounds attention: two parts of the keys that are merged, and ALiBi's sizes."""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from properties.strategies.climb import Array
from research.benchmarks.attack.calls import Arrays, Call, Options
from research.benchmarks.attack.features import conventions
from research.benchmarks.attack.inputs import plain

__all__ = ["MERGED", "alibi_bias", "alibi_slopes", "biases_by_distance", "merged", "merges", "slopes"]


def merged(family: str, rng: Generator) -> Call:
    """Two parts with log-sum-exps of a family."""
    rows, d_v = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    a, b = MERGED[family](rng, rows)
    outs = plain(rng, (rows, d_v)), plain(rng, (rows, d_v))
    if rng.random() < 0.3:
        outs = outs[0], -outs[0] * (1 + 2.0 ** -rng.integers(20, 53))
    arrays = {"out_a": outs[0], "lse_a": a, "out_b": outs[1], "lse_b": b}
    return Call(arrays, merges(rng, arrays), merges)


def merges(rng: Generator, _arrays: Arrays) -> Options:
    """Options of a merge."""
    return {"conventions": conventions(rng, "lse_base", "dead_rows")}


Pair = tuple[Array, Array]
MERGED: dict[str, Callable[[Generator, int], Pair]] = {
    "normal": lambda rng, n: (rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 2), rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 2)),
    "equal": lambda rng, n: ((x := rng.standard_normal(n) * 10.0 ** rng.uniform(-300, 300)), x * (1 + (rng.random(n) < 0.3) * 2.0**-52)),
    "huge": lambda rng, n: (rng.standard_normal(n) * 10.0 ** rng.uniform(3, 299), rng.standard_normal(n) * 10.0 ** rng.uniform(3, 299)),
    "apart": lambda rng, n: ((x := rng.standard_normal(n) * 10.0 ** rng.uniform(0, 6)), x - rng.uniform(650, 1100, n)),
    "cancelling": lambda rng, n: ((x := -np.log(2.0) + rng.standard_normal(n) * 2.0 ** -rng.uniform(10, 60)), x.copy()),
    "tiny": lambda rng, n: (
        rng.standard_normal(n) * 2.0 ** -rng.uniform(900, 1074),
        rng.standard_normal(n) * 2.0 ** -rng.uniform(900, 1074),
    ),
    "an empty part": lambda rng, n: (
        np.where(rng.random(n) < 0.6, -np.inf, rng.standard_normal(n) * 10.0 ** rng.uniform(0, 9)),
        np.where(rng.random(n) < 0.3, -np.inf, rng.standard_normal(n)),
    ),
}
"""The log-sum-exps of two parts of the keys. Two that are −log 2 add up to 0, of which no digit is left."""


def alibi_slopes(rng: Generator) -> Call:
    """Any number of heads to 80, powers of two and their neighbours often."""
    return Call({}, slopes(rng, {}), slopes)


def alibi_bias(rng: Generator) -> Call:
    """A few heads, queries and keys, at offsets to 2⁵²."""
    return Call({}, biases_by_distance(rng, {}), biases_by_distance)


def slopes(rng: Generator, _arrays: Arrays) -> Options:
    """A number of heads."""
    n = int(rng.choice([rng.integers(1, 80), max(1, 2 ** int(rng.integers(0, 7)) + int(rng.integers(-1, 2)))]))
    return {"num_heads": n, "conventions": conventions(rng, "alibi_slopes")}


def biases_by_distance(rng: Generator, _arrays: Arrays) -> Options:
    """Sizes and an offset."""
    n_q, n_k = int(rng.integers(0, 4)), int(rng.integers(0, 5))
    far = int(2.0 ** rng.uniform(3, 52)) * int(rng.choice([-1, 1]))
    offset = (None, int(rng.integers(-5, 6)), far)[int(rng.integers(3))]
    named = conventions(rng, "alibi_slopes", "alibi_reference", "causal")
    return {"num_heads": int(rng.integers(1, 13)), "n_q": n_q, "n_k": n_k, "offset": offset, "conventions": named}
