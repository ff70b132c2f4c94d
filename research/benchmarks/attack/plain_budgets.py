"""Trials of attention without features: inputs that an arithmetic's format holds, and a form that
its budget promises to cover.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

import oracles
from oracles import Arithmetic
from oracles.error_analysis.visible_keys import Mask
from oracles.tests.simulated.attention import Kernel
from oracles.tests.simulated.forms import Form, any_form, other_form
from oracles.tests.simulated.rounding import rounding
from properties.strategies.climb import Array, mutated

__all__ = ["FAMILIES", "Trial", "any_mask", "any_sizes", "changed", "draw", "gradients", "held", "output", "tangent"]


@dataclass(frozen=True)
class Trial:
    """An input, q, k, v, g and tangents of q, k and v, with a scale or None for 1/√d and a mask or
    None, and the form of the kernel with its seed."""

    arrays: tuple[Array, ...]
    scale: float | None
    mask: Mask | None
    form: Form
    seed: int = 0


Inputs = tuple[Array, Array, Array, Array]


def _normals(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    q, k, v, g = (rng.standard_normal((n, d)) for n in (n_q, n_k, n_k, n_q))
    return q, k, v, g


def normal(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """Nothing special."""
    return _normals(rng, n_q, n_k, d)


def one_hot(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """One-hot values: each entry of the output is a weight."""
    q, k, _, g = _normals(rng, n_q, n_k, d)
    return q * 10.0 ** rng.uniform(-2, 1), k, np.eye(n_k, d, int(rng.integers(-2, 3))), g


def dominating(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """One key outweighs the others, whose values are the larger."""
    q, k, v, g = _normals(rng, n_q, n_k, d)
    j = int(rng.integers(n_k))
    k[j] = q[0] * 10.0 ** rng.uniform(0, 1.5)
    v[j] *= 10.0 ** -rng.uniform(0, 6)
    return q, k, v, g


def equal_keys(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """Equal keys: attention is the mean."""
    q, k, v, g = _normals(rng, n_q, n_k, d)
    return q * 10.0 ** rng.uniform(-1, 2), np.repeat(k[:1], n_k, axis=0), v, g


def key_offset(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """A large offset shared by all keys."""
    q, k, v, g = _normals(rng, n_q, n_k, d)
    return q, k + rng.standard_normal(d) * 10.0 ** rng.uniform(0, 3), v, g


def value_offset(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """A large offset shared by all values, with which delta cancels dP."""
    q, k, v, g = _normals(rng, n_q, n_k, d)
    return q, k, v + rng.standard_normal(d) * 10.0 ** rng.uniform(0, 3), g


def both_offsets(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """Offsets of keys and of values: Σ dS cancels against the keys' offset."""
    q, k, v, g = value_offset(rng, n_q, n_k, d)
    return q, k + 10.0 ** rng.uniform(0, 3), v, g


def cancelling(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """dP = delta for all keys, except for the last bits: g is nearly orthogonal to the differences
    of the values.
    """
    q, k, v, g = _normals(rng, n_q, n_k, d)
    return q, k, np.repeat(v[:1], n_k, axis=0) * (1 + rng.standard_normal((n_k, d)) * 2.0 ** -rng.uniform(2, 20)), g


def large(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """Scores to ±1e4."""
    q, k, v, g = _normals(rng, n_q, n_k, d)
    return q * 10.0 ** rng.uniform(1, 4), k, v, g


def tiny(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """Values and cotangents near the smallest numbers of the formats, or weights that are."""
    q, k, v, g = _normals(rng, n_q, n_k, d)
    if rng.random() < 0.5:
        return q * 10.0 ** rng.uniform(0, 2), k, v, g
    return q, k, v * 2.0 ** -rng.uniform(5, 140), g * 2.0 ** -rng.uniform(0, 140)


def aligned(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """g along the values."""
    q, k, v, _ = _normals(rng, n_q, n_k, d)
    return q, k, v, v[rng.integers(n_k, size=n_q)] * 10.0 ** rng.uniform(0, 2)


def one_coordinate(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """Dominating keys with scores in one coordinate, of 1e1 to 1e4, and one-hot values."""
    q, k = np.zeros((n_q, d)), np.zeros((n_k, d))
    q[:, 0] = 10.0 ** rng.uniform(0.5, 2) * np.sqrt(d)
    k[:, 0] = 10.0 ** rng.uniform(0.5, 2) + rng.standard_normal(n_k) / q[0, 0]
    return q, k, np.eye(n_k, d), rng.standard_normal((n_q, d))


def constant_values(rng: Generator, n_q: int, n_k: int, d: int) -> Inputs:
    """Values that are all 1, or ±1: the output is a sum of equal terms over itself."""
    q, k, v, g = _normals(rng, n_q, n_k, d)
    return q * rng.choice([0.0, 0.1, 1.0]), k, np.sign(v) if rng.random() < 0.5 else np.ones_like(v), g


FAMILIES: dict[str, Callable[[Generator, int, int, int], Inputs]] = {
    f.__name__.replace("_", " "): f
    for f in (
        normal, one_hot, dominating, equal_keys, key_offset, value_offset, both_offsets, cancelling, large, tiny,
        aligned, one_coordinate, constant_values,
    )
}  # fmt: skip
"""The families of inputs."""


def draw(family: str, a: Arithmetic, rng: Generator) -> Trial:
    """A trial. Most trials are small; some are as long as the tiles of the oracles, or have enough
    queries that the kernel stores partial gradients.
    """
    n_q, n_k, d = any_sizes(a, rng)
    inputs = FAMILIES[family](rng, n_q, n_k, d)
    tangents = [rng.standard_normal(x.shape) * 10.0 ** rng.uniform(-2, 2) for x in inputs[:3]]
    scale = (
        None
        if rng.random() < 0.7
        else float(rounding(a.elementwise)(np.array(rng.choice([1.0, 0.3, 3.0, 100.0, -0.3]))))
    )
    arrays = tuple(held(x, a) for x in (*inputs, *tangents))
    return Trial(arrays, scale, any_mask(rng, n_q, n_k), any_form(a, rng), int(rng.integers(2**31)))


def any_sizes(a: Arithmetic, rng: Generator) -> tuple[int, int, int]:
    """Numbers of queries, keys and columns."""
    chance = rng.random()
    n_k = int(rng.choice([511, 513, 600])) if chance < 0.02 else int(rng.choice([1, 2, 3, 5, 8, 16, 17, 33, 64, 130]))
    d = int(rng.choice([1, 2, 3, 4, 8])) if n_k > 64 else int(rng.choice([1, 2, 3, 4, 8, 16, 64]))
    return 70 if a.grad_block and chance > 0.9 and n_k < 64 else int(rng.integers(1, 4)), n_k, d


def any_mask(rng: Generator, n_q: int, n_k: int) -> Mask | None:
    """No mask, a causal one that starts anywhere, whole tiles masked, or a random one; every row keeps a key."""
    kind = rng.random()
    if kind < 0.6:
        return None
    if kind < 0.75:
        return np.tri(n_q, n_k, int(rng.integers(n_k)), dtype=bool)
    mask = (
        rng.random((n_q, n_k)) < rng.random()
        if kind < 0.9
        else np.repeat(rng.random((n_q, -(-n_k // 16))) < 0.5, 16, axis=1)[:, :n_k]
    )
    mask[np.arange(n_q), rng.integers(n_k, size=n_q)] = True
    return mask


def held(x: Array, a: Arithmetic) -> Array:
    """The nearest numbers that the inputs' format holds."""
    return rounding(a.inputs)(np.clip(x, -a.inputs.largest / 2, a.inputs.largest / 2))


def changed(trial: Trial, a: Arithmetic, rng: Generator) -> Trial:
    """The trial with one thing changed: something of an array, the mask, a field of the form, or the seed."""
    kind = rng.random()
    if kind < 0.25:
        return replace(trial, form=other_form(trial.form, a, rng))
    if kind < 0.3:
        return replace(trial, seed=int(rng.integers(2**31)))
    if kind < 0.35:
        return replace(trial, mask=any_mask(rng, len(trial.arrays[0]), len(trial.arrays[1])))
    chosen = int(rng.integers(len(trial.arrays)))
    arrays = list(trial.arrays)
    arrays[chosen] = held(mutated(arrays[chosen], rng), a)
    return replace(trial, arrays=tuple(arrays))


def _kernel(a: Arithmetic, trial: Trial) -> Kernel:
    scale = 1 / np.sqrt(trial.arrays[0].shape[1]) if trial.scale is None else trial.scale
    return Kernel(trial.form, a, scale, trial.mask, trial.seed)


def output(a: Arithmetic, trial: Trial) -> dict[str, float]:
    """error ÷ budget of the output."""
    q, k, v, *_ = trial.arrays
    budget = oracles.scaled_dot_product_attention(q, k, v, trial.mask, scale=trial.scale, arithmetic=a)
    return {"out": float(budget.excess(_kernel(a, trial).output(q, k, v)).max(initial=0.0))}


def gradients(a: Arithmetic, trial: Trial) -> dict[str, float]:
    """error ÷ budget of each gradient."""
    q, k, v, g, *_ = trial.arrays
    budgets = oracles.scaled_dot_product_attention_vjp(q, k, v, trial.mask, g, scale=trial.scale, arithmetic=a)
    results = zip(("dq", "dk", "dv"), budgets, _kernel(a, trial).vjp(q, k, v, g)[1:], strict=True)
    return {name: float(budget.excess(x).max(initial=0.0)) for name, budget, x in results}


def tangent(a: Arithmetic, trial: Trial) -> dict[str, float]:
    """error ÷ budget of the output's tangent."""
    q, k, v, _, *tangents = trial.arrays
    budget = oracles.scaled_dot_product_attention_jvp(q, k, v, trial.mask, *tangents, scale=trial.scale, arithmetic=a)
    return {"dout": float(budget.excess(_kernel(a, trial).jvp(q, k, v, *tangents)).max(initial=0.0))}
