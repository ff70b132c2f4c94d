"""The statistical line of honest code that flushes one step to zero: a loss is no rounding of mean 0, and counts whole."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from oracles import FLOAT32, likely, scaled_dot_product_attention, scaled_dot_product_attention_vjp

Array = NDArray[np.float64]
LINE = replace(FLOAT32, flush_to_zero=True, likely=8.4)
TINY = FLOAT32.elementwise.smallest_normal
KEYS, QUERIES = 80, 100
assert max(KEYS, QUERIES) > likely.SHORT


def flushed(x: Array) -> Array:
    """Numbers below the smallest normal one of float32 as 0."""
    return np.where(np.abs(x) < TINY, 0.0, x)


def attention(step: str, scale: float, q: Array, k: Array, v: Array, g: Array) -> tuple[Array, ...]:
    """out, dq, dk and dv in float64, with one step flushed: weights, operands, products, the saved output, dP, or scale·dS."""

    def through(name: str) -> Callable[[Array], Array]:
        return flushed if name == step else lambda x: x

    def product(a: Array, b: Array) -> Array:
        a, b = map(through("operand"), (a, b))
        return through("product")(a[:, :, None] * b[None]).sum(axis=1)

    s = scale * (q @ k.T)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    p = through("weight")(e / e.sum(axis=1, keepdims=True))
    out = product(p, v)
    delta = (g * through("saved output")(out)).sum(axis=1, keepdims=True)
    ds = through("grad score")(scale * p * (through("grad weight")(product(g, v.T)) - delta))
    return out, product(ds, k), product(ds.T, q), product(p.T, g)


def queries(x: float) -> Array:
    return np.full((QUERIES, 1), x)


def keys(*x: float) -> Array:
    """The numbers in turn."""
    return np.resize(x, (KEYS, 1))


FIRST = np.where(np.arange(KEYS) == 0, 0.0, -87.5)[:, None]  # exp(−87.5) < TINY


@pytest.mark.parametrize(
    ("step", "result", "scale", "inputs"),
    [
        ("weight", "dv", 1.0, (queries(1.0), FIRST, keys(1.0), queries(8.0))),
        ("product", "out", 1.0, (queries(0.0), keys(1.0), keys(KEYS * TINY / 2), queries(1.0))),
        ("product", "dv", 1.0, (queries(0.0), keys(1.0), keys(1.0), queries(KEYS * TINY / 2))),
        ("product", "dq", 1.0, (queries(0.0), keys(2.0**10, -(2.0**10)), keys(2.0**-20, -(2.0**-20)), queries(2.0**19 * TINY))),
        ("operand", "dq", 1.0, (queries(0.0), keys(1.0, -1.0), keys(2.0**20, -(2.0**20)), queries(TINY / 2))),
        ("operand", "dq", 1.0, (queries(0.0), keys(TINY / 2, -TINY / 2), keys(1.0, -1.0), queries(2.0**40))),
        ("operand", "dk", 1.0, (queries(TINY / 2), keys(0.0), keys(1.0, -1.0), queries(2.0**40))),
        ("operand", "dv", 1.0, (queries(1.0), FIRST, keys(1.0), queries(TINY / 2))),
        ("saved output", "dq", 1.0, (queries(0.0), keys(1.0), keys(TINY / 2), queries(2.0**100))),
        ("grad weight", "dq", 1.0, (queries(0.0), keys(2.0**20, -(2.0**20)), keys(1.0, -1.0), queries(TINY / 2))),
        ("grad score", "dk", 1.0, (queries(64.0), keys(0.0), keys(1.0, -1.0), queries(4 * TINY))),
        ("grad score", "dk", 1 / 64, (queries(64.0), keys(0.0), keys(1.0, -1.0), queries(KEYS * 30 * TINY))),
    ],
)
def test_a_step_that_is_flushed_is_within_the_line(monkeypatch, step, result, scale, inputs):
    q, k, v, g = inputs
    got = dict(zip(("out", "dq", "dk", "dv"), attention(step, scale, *inputs), strict=True))[result]

    def excess() -> float:
        out = scaled_dot_product_attention(q, k, v, scale=scale, arithmetic=LINE)
        gradients = scaled_dot_product_attention_vjp(q, k, v, None, g, scale=scale, arithmetic=LINE)
        return float(dict(zip(("out", "dq", "dk", "dv"), (out, *gradients), strict=True))[result].excess(got).max())

    assert excess() <= 1
    monkeypatch.setattr(likely, "step", lambda *_: 0.0)
    monkeypatch.setattr(likely, "_least_weight", lambda _: 0.0)
    monkeypatch.setattr(likely, "_thin", lambda _, x: np.zeros_like(x))
    assert excess() > 1
