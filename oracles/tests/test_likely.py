"""The statistical line of honest code that flushes one step to zero: a loss is no rounding of mean
0, and counts whole.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oracles import FLOAT32, Arithmetic, scaled_dot_product_attention, scaled_dot_product_attention_vjp
from oracles.error_analysis import statistical_line as likely
from oracles.formats import BINARY16, BINARY32, Elementary

Array = NDArray[np.float64]

TINY, TINY16 = BINARY32.smallest_normal, BINARY16.smallest_normal
KEYS, QUERIES = 80, 100
assert max(KEYS, QUERIES) > likely.SHORT
NAMES = ("out", "dq", "dk", "dv")


def attention(
    a: Arithmetic, step: str, least: float, scale: float, q: Array, k: Array, v: Array, g: Array
) -> dict[str, Array]:
    """Attention and its gradients in float64, where one step makes 0 of what is below `least`;
    delta is taken as the arithmetic says.
    """

    def through(name: str, x: Array) -> Array:
        return np.where((name == step) & (np.abs(x) < least), 0.0, x)

    def product(a: Array, b: Array) -> Array:
        products = through("product", through("operand", a)[:, :, None] * through("operand", b)[None])
        return through("part", np.add.reduceat(products, np.arange(0, a.shape[1], 32), axis=1)).sum(axis=1)

    s = scale * product(q, k.T)
    e = through("exponential", np.exp(s - s.max(axis=1, keepdims=True)))
    p = through("weight", e / e.sum(axis=1, keepdims=True))
    saved = through("saved weight", p)
    out, dp = product(p, v), through("dP", product(g, v.T))
    if a.delta == "output":
        delta = (through("operand", g) * through("saved output", out)).sum(axis=1, keepdims=True)
    else:
        delta = through("product", through("P·dP", saved * dp)).sum(axis=1, keepdims=True)
    ds = through("dS", scale * saved * (dp - delta))
    dq, dk = (scale * through("scaled", x / scale) for x in (product(ds, k), product(ds.T, q)))
    return dict(zip(NAMES, (out, dq, dk, product(p.T, g)), strict=True))


def queries(x: float) -> Array:
    return np.full((QUERIES, 1), x)


def keys(*x: float) -> Array:
    """The numbers in turn."""
    return np.resize(x, (KEYS, 1))


def first(x: float, others: float) -> Array:
    return np.where(np.arange(KEYS) == 0, x, others)[:, None]


ONE, NONE, ALTERNATE = queries(1.0), queries(0.0), keys(1.0, -1.0)
LOW, LOW16 = first(0.0, -87.5), first(0.0, -10.5)  # exp of them is below TINY, and below TINY16
LARGE = 2.0**118 + 2.0**108 * np.arange(QUERIES)[:, None]  # no two of them equal
COARSE = Elementary(2.0**-21, 0.0, TINY16)
WIDE = np.ones((1, 512))
SHORT_RANGE = replace(BINARY32, name="of a short range", smallest_subnormal=TINY16 * 2.0**-23, smallest_normal=TINY16)
CASES: list[tuple[str, str, dict[str, Any], float, float, tuple[Array, Array, Array, Array]]] = [
    ("weight", "dv", {}, TINY, 1.0, (ONE, LOW, keys(1.0), queries(8.0))),
    ("weight", "dv", {"weights": BINARY16}, TINY16, 1.0, (ONE, LOW16, keys(1.0), ONE)),
    ("weight", "out", {"weights": BINARY16}, TINY16, 1.0, (ONE, LOW16, first(0.0, 1.0), ONE)),
    ("saved weight", "dk", {"saved_weights": BINARY16, "delta": "output"}, TINY16, 1.0, (ONE, LOW16, first(0.0, 1.0), ONE)),
    ("saved weight", "dq", {"saved_weights": BINARY16, "delta": "weights"}, TINY16, 1.0, (ONE, LOW16 + 10.5, first(0.0, 2.0**20), ONE)),
    ("exponential", "out", {"exp": COARSE, "rescale_slack": 0.0}, TINY16, 1.0, (ONE, LOW16, first(1.0, 0.0), ONE)),
    ("exponential", "out", {"weights": SHORT_RANGE, "stored_sum": True}, TINY16, 1.0, (ONE, LOW16, first(1.0, 0.0), ONE)),
    ("product", "out", {}, TINY, 1.0, (NONE, keys(1.0), keys(KEYS * TINY / 2), ONE)),
    ("product", "dv", {}, TINY, 1.0, (NONE, keys(1.0), keys(1.0), queries(KEYS * TINY / 2))),
    ("product", "dq", {}, TINY, 1.0, (NONE, 2.0**10 * ALTERNATE, 2.0**-20 * ALTERNATE * WIDE, 2.0**19 * TINY * ONE * WIDE)),
    ("product", "dq", {"delta": "weights"}, TINY, 1.0, (ONE, first(4.5, 0.0), first(0.0, 1.0), queries(100 * TINY))),
    ("operand", "out", {}, TINY, 1.0, (queries(TINY / 2), 2.0**120 * ALTERNATE, ALTERNATE, ONE)),
    ("operand", "out", {}, TINY, 1.0, (queries(TINY / 2), keys(2.0**120, 0.0), keys(0.0, 1.0), ONE)),
    ("operand", "dq", {}, TINY, 1.0, (queries(TINY / 2), 2.0**119 * keys(2, -2, 1, -1), keys(1.0, 1.0, -1.0, -1.0), queries(2.0**-100))),
    ("operand", "dk", {}, TINY, 1.0, (LARGE, TINY / 2 * ALTERNATE, keys(1.0, 1.0, -1.0, -1.0), ONE)),
    ("operand", "dv", {}, TINY, 1.0, (LARGE, TINY / 2 * ALTERNATE, ALTERNATE, ONE)),
    ("operand", "dq", {}, TINY, 1.0, (NONE, ALTERNATE, 2.0**20 * ALTERNATE, queries(TINY / 2))),
    ("operand", "dq", {}, TINY, 1.0, (NONE, ALTERNATE, TINY / 2 * ALTERNATE, queries(2.0**40))),
    ("operand", "dk", {"delta": "output"}, TINY, 1.0, (queries(2.0**10), keys(0.0), 2.0**20 * ALTERNATE, queries(TINY / 2))),
    ("operand", "dq", {}, TINY, 1.0, (NONE, TINY / 2 * ALTERNATE, ALTERNATE, queries(2.0**40))),
    ("operand", "dk", {}, TINY, 1.0, (queries(TINY / 2), keys(0.0), ALTERNATE, queries(2.0**40))),
    ("operand", "dv", {}, TINY, 1.0, (ONE, LOW, keys(1.0), queries(TINY / 2))),
    ("operand", "dq", {"delta": "output"}, TINY, 1.0, (NONE, keys(0.0, 1.0), keys(2.0**20, 0.0), queries(TINY / 2))),
    ("operand", "dq", {"delta": "weights"}, TINY, 1.0, (NONE, keys(0.0, 1.0), keys(2.0**20, 0.0), queries(TINY / 2))),
    ("saved output", "dq", {"saved_output": BINARY16, "delta": "output"}, TINY16, 1.0, (NONE, keys(1.0), keys(TINY16 / 2), ONE)),
    ("dP", "dq", {"grad_weights": BINARY16}, TINY16, 1.0, (NONE, ALTERNATE, TINY16 / 2 * ALTERNATE, ONE)),
    ("P·dP", "dq", {"grad_weights": BINARY16, "delta": "weights"}, TINY16, 1.0, (NONE, keys(0.0, 1.0), keys(20 * TINY16, 0.0), ONE)),
    ("dS", "dk", {}, TINY, 1.0, (queries(64.0), keys(0.0), ALTERNATE, queries(4 * TINY))),
    ("dS", "dk", {"delta": "output"}, 1.1 * TINY, 1.0, (queries(64.0), keys(0.0), ALTERNATE, queries(81.25 * TINY))),
    ("dS", "dk", {}, TINY, 1 / 64, (queries(64.0), keys(0.0), ALTERNATE, queries(KEYS * 30 * TINY))),
    ("part", "dv", {"output": BINARY16, "grad_block": 32}, TINY16, 1.0, (NONE, keys(1.0), keys(1.0), queries(KEYS * TINY16 / 64))),
    ("scaled", "dq", {"scale_on_inputs": BINARY16}, TINY16, 4.0, (NONE, ALTERNATE, TINY16 / 2 * ALTERNATE, ONE)),
]  # fmt: skip


@pytest.mark.parametrize(("step", "result", "changes", "least", "scale", "inputs"), CASES)
def test_a_step_that_is_flushed_is_within_the_line(monkeypatch, step, result, changes, least, scale, inputs):
    q, k, v, g = inputs
    a = replace(FLOAT32, name="flushes", flush_to_zero=True, likely=8.4, **changes)
    got = attention(a, step, least, scale, *inputs)[result]

    def excess() -> float:
        out = scaled_dot_product_attention(q, k, v, scale=scale, arithmetic=a)
        gradients = scaled_dot_product_attention_vjp(q, k, v, None, g, scale=scale, arithmetic=a)
        enclosures = dict(zip(NAMES, (out, *gradients), strict=True))
        return float(enclosures[result].excess(got).max())

    assert excess() <= 1
    monkeypatch.setattr(likely, "step", lambda *_: 0.0)
    monkeypatch.setattr(likely, "_least_weight", lambda _: 0.0)
    monkeypatch.setattr(likely, "_thin", lambda _, x: np.zeros_like(x))
    assert excess() > 1
