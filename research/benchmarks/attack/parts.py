"""Adversarial families of what surrounds attention: two parts of the keys that are merged, and
ALiBi far from the keys.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from properties.strategies.climb import Array
from research.benchmarks.attack.calls import Call, conventions, drawn
from research.benchmarks.attack.inputs import plain

__all__ = ["MERGED", "alibi_bias", "alibi_slopes", "merged"]

Pair = tuple[Array, Array]
MERGED: dict[str, Callable[[Generator, int], Pair] | None] = {
    "everyday": None,
    "normal": lambda rng, n: (
        rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 2),
        rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 2),
    ),
    "equal": lambda rng, n: (
        (x := rng.standard_normal(n) * 10.0 ** rng.uniform(-300, 300)),
        x * (1 + (rng.random(n) < 0.3) * 2.0**-52),
    ),
    "huge": lambda rng, n: (
        rng.standard_normal(n) * 10.0 ** rng.uniform(3, 299),
        rng.standard_normal(n) * 10.0 ** rng.uniform(3, 299),
    ),
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
"""The log-sum-exps of two parts of the keys; None as they are drawn. Two that are −log 2 add up to
0, of which no digit is left.
"""


def merged(family: str, rng: Generator) -> Call:
    """Two parts with log-sum-exps of a family."""
    call = drawn("merge_attention", rng, meant=conventions("merge_attention", rng))
    if (pair := MERGED[family]) is None:
        return call
    a, b = pair(rng, len(call.arrays["lse_a"]))
    outputs = plain(rng, call.arrays["out_a"].shape), plain(rng, call.arrays["out_b"].shape)
    if rng.random() < 0.3:
        outputs = outputs[0], -outputs[0] * (1 + 2.0 ** -rng.integers(20, 53))
    call.arrays.update({"out_a": outputs[0], "lse_a": a, "out_b": outputs[1], "lse_b": b})
    return call


def alibi_slopes(rng: Generator) -> Call:
    """Any number of heads to 80, powers of two and their neighbours often."""
    near = [n for power in range(7) for n in (2**power - 1, 2**power, 2**power + 1) if n]
    return drawn("alibi_slopes", rng, {"num_heads": (*range(1, 80), *near * 3)}, meant=conventions("alibi_slopes", rng))


def alibi_bias(rng: Generator) -> Call:
    """A few heads, queries and keys, at offsets to 2⁵²."""
    call = drawn(
        "alibi_bias",
        rng,
        {"num_heads": range(1, 13), "n_q": range(4), "n_k": range(5)},
        meant=conventions("alibi_bias", rng),
    )
    if rng.random() < 0.3:
        call.options["offset"] = int(2.0 ** rng.uniform(3, 52)) * int(rng.choice([-1, 1]))
    return call
