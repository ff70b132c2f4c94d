"""The statistical line of a correct kernel that flushes one step to zero: such an error does not have
mean 0, so the line counts it linearly.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oracles import (
    FLOAT32,
    Arithmetic,
    generalised_attention,
    scaled_dot_product_attention,
    scaled_dot_product_attention_vjp,
)
from oracles.error_analysis import statistical_line
from oracles.error_analysis.roundings import losses
from oracles.formats import BINARY16, BINARY32, Elementary, preset

Array = NDArray[np.float64]

TINY, TINY16 = BINARY32.smallest_normal, BINARY16.smallest_normal
KEYS, QUERIES = 80, 100
assert max(KEYS, QUERIES) > statistical_line.SHORT
NAMES = ("out", "dq", "dk", "dv")


@dataclass(frozen=True)
class Case:
    """A step that flushes numbers below `least`, the row that counts the loss, and q, k, v and the cotangent."""

    step: str
    row: str
    result: str
    inputs: tuple[Array, Array, Array, Array]
    changes: dict[str, Any] = field(default_factory=dict)
    least: float = TINY
    scale: float = 1.0
    bias: Array | None = None


def attention(a: Arithmetic, case: Case) -> dict[str, Array]:
    """Attention and its gradients in float64; one step flushes small numbers.

    The arithmetic states the form of delta.
    """
    q, k, v, g = case.inputs
    scale = case.scale

    def through(name: str, x: Array) -> Array:
        return np.where((name == case.step) & (np.abs(x) < case.least), 0.0, x)

    def product(a: Array, b: Array, step: str = "product") -> Array:
        products = through(step, through("operand", a)[:, :, None] * through("operand", b)[None])
        return through("part", np.add.reduceat(products, np.arange(0, a.shape[1], 32), axis=1)).sum(axis=1)

    s = through("score", scale * product(q, k.T, "product of a score")) + (
        0.0 if case.bias is None else through("bias", case.bias)
    )
    e = through("exponential", np.exp(through("difference", s - s.max(axis=1, keepdims=True))))
    p = through("weight", e / e.sum(axis=1, keepdims=True))
    lse = s.max(axis=1, keepdims=True) + np.log(e.sum(axis=1, keepdims=True))
    p = p * np.exp(lse - through("log-sum-exp", lse)) if case.step == "log-sum-exp" else p
    saved = through("saved weight", p)
    out, dp = through("part of the keys", product(p, v)), through("dP", product(g, v.T))
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
    """The given numbers, repeated for all keys."""
    return np.resize(x, (KEYS, 1))


def first(x: float, others: float) -> Array:
    return np.where(np.arange(KEYS) == 0, x, others)[:, None]


ONE, NONE, ALTERNATE = queries(1.0), queries(0.0), keys(1.0, -1.0)
LOW, LOW16 = first(0.0, -87.5), first(0.0, -10.5)  # exp of them is below TINY, and below TINY16
LARGE = 2.0**118 + 2.0**108 * np.arange(QUERIES)[:, None]  # no two of them equal
COARSE = Elementary(2.0**-21, 0.0, TINY16)
WIDE = np.ones((1, 512))
SHORT_RANGE = replace(BINARY32, name="of a short range", smallest_subnormal=TINY16 * 2.0**-23, smallest_normal=TINY16)
FROM_A_256TH = replace(BINARY16, name="from 1/256", smallest_subnormal=2.0**-18, smallest_normal=2.0**-8)
CASES = [
    Case("weight", "exp", "dv", (ONE, LOW, keys(1.0), queries(8.0))),
    Case("weight", "weights", "dv", (ONE, LOW16, keys(1.0), ONE), changes={"weights": BINARY16}, least=TINY16),
    Case("weight", "weights", "out", (ONE, LOW16, first(0.0, 1.0), ONE), changes={"weights": BINARY16}, least=TINY16),
    Case(
        "saved weight",
        "saved_weights",
        "dk",
        (ONE, LOW16, first(0.0, 1.0), ONE),
        changes={"saved_weights": BINARY16, "delta": "output"},
        least=TINY16,
    ),
    Case(
        "saved weight",
        "saved_weights",
        "dq",
        (ONE, LOW16 + 10.5, first(0.0, 2.0**20), ONE),
        changes={"saved_weights": BINARY16, "delta": "weights"},
        least=TINY16,
    ),
    Case(
        "score",
        "stored_scores",
        "out",
        (ONE, ALTERNATE * ((1 + np.arange(KEYS) / 128) / 1024)[:, None], ALTERNATE, ONE),
        changes={"scores": FROM_A_256TH},
        least=1 / 256,
    ),
    Case(
        "difference",
        "stored_differences",
        "out",
        (ONE, keys(0.0, -0.875 / 256), ALTERNATE, ONE),
        changes={"stored_differences": FROM_A_256TH},
        least=1 / 256,
    ),
    Case(
        "product of a score",
        "dot",
        "out",
        (ONE, ALTERNATE * ((1 + np.arange(KEYS) / 128) / 1024)[:, None], ALTERNATE, ONE),
        changes={"accumulate_scores": FROM_A_256TH},
        least=1 / 256,
    ),
    Case(
        "product",
        "accumulated",
        "out",
        (NONE, keys(1.0), keys(KEYS * TINY16 / 2), ONE),
        changes={"accumulate_values": BINARY16},
        least=TINY16,
    ),
    Case(
        "bias",
        "bias",
        "out",
        (NONE, keys(0.0), ALTERNATE, ONE),
        changes={"bias": FROM_A_256TH},
        least=1 / 256,
        bias=np.resize([0.0, -0.875 / 256], (QUERIES, KEYS)),
    ),
    Case(
        "part of the keys",
        "stored_parts",
        "out",
        (NONE, keys(0.0), keys(TINY16 / 2), ONE),
        changes={"stored_parts": BINARY16},
        least=TINY16,
    ),
    Case(
        "log-sum-exp",
        "saved_lse",
        "dv",
        (queries(1.0) + np.arange(QUERIES)[:, None] / 1024, first(TINY16 * 0.875, -60.0), keys(1.0), ONE),
        changes={"saved_lse": BINARY16, "rescale_slack": 0.0},
        least=TINY16,
    ),
    Case(
        "exponential",
        "exp",
        "out",
        (ONE, LOW16, first(1.0, 0.0), ONE),
        changes={"exp": COARSE, "rescale_slack": 0.0},
        least=TINY16,
    ),
    Case(
        "exponential",
        "weights",
        "out",
        (ONE, LOW16, first(1.0, 0.0), ONE),
        changes={"weights": SHORT_RANGE, "stored_sum": True},
        least=TINY16,
    ),
    Case("product", "sum", "out", (NONE, keys(1.0), keys(KEYS * TINY / 2), ONE)),
    Case("product", "sum", "dv", (NONE, keys(1.0), keys(1.0), queries(KEYS * TINY / 2))),
    Case(
        "product",
        "sum",
        "dq",
        (NONE, 2.0**10 * ALTERNATE, 2.0 ** (-20) * ALTERNATE * WIDE, 2.0**19 * TINY * ONE * WIDE),
    ),
    Case(
        "product",
        "sum",
        "dq",
        (ONE, first(4.5, 0.0), first(0.0, 1.0), queries(100 * TINY)),
        changes={"delta": "weights"},
    ),
    Case("operand", "product", "out", (queries(TINY / 2), 2.0**120 * ALTERNATE, ALTERNATE, ONE)),
    Case("operand", "product", "out", (queries(TINY / 2), keys(2.0**120, 0.0), keys(0.0, 1.0), ONE)),
    Case(
        "operand",
        "product",
        "dq",
        (queries(TINY / 2), 2.0**119 * keys(2, -2, 1, -1), keys(1.0, 1.0, -1.0, -1.0), queries(2.0 ** (-100))),
    ),
    Case("operand", "product", "dk", (LARGE, TINY / 2 * ALTERNATE, keys(1.0, 1.0, -1.0, -1.0), ONE)),
    Case("operand", "product", "dv", (LARGE, TINY / 2 * ALTERNATE, ALTERNATE, ONE)),
    Case("operand", "product", "dq", (NONE, ALTERNATE, 2.0**20 * ALTERNATE, queries(TINY / 2))),
    Case("operand", "product", "dq", (NONE, ALTERNATE, TINY / 2 * ALTERNATE, queries(2.0**40))),
    Case(
        "operand",
        "product",
        "dk",
        (queries(2.0**10), keys(0.0), 2.0**20 * ALTERNATE, queries(TINY / 2)),
        changes={"delta": "output"},
    ),
    Case("operand", "product", "dq", (NONE, TINY / 2 * ALTERNATE, ALTERNATE, queries(2.0**40))),
    Case("operand", "product", "dk", (queries(TINY / 2), keys(0.0), ALTERNATE, queries(2.0**40))),
    Case("operand", "sum", "dv", (ONE, LOW, keys(1.0), queries(TINY / 2))),
    Case(
        "operand",
        "product",
        "dq",
        (NONE, keys(0.0, 1.0), keys(2.0**20, 0.0), queries(TINY / 2)),
        changes={"delta": "output"},
    ),
    Case(
        "operand",
        "product",
        "dq",
        (NONE, keys(0.0, 1.0), keys(2.0**20, 0.0), queries(TINY / 2)),
        changes={"delta": "weights"},
    ),
    Case(
        "saved output",
        "saved_output",
        "dq",
        (NONE, keys(1.0), keys(TINY16 / 2), ONE),
        changes={"saved_output": BINARY16, "delta": "output"},
        least=TINY16,
    ),
    Case(
        "dP",
        "grad_weights",
        "dq",
        (NONE, ALTERNATE, TINY16 / 2 * ALTERNATE, ONE),
        changes={"grad_weights": BINARY16},
        least=TINY16,
    ),
    Case(
        "P·dP",
        "grad_weights",
        "dq",
        (NONE, keys(0.0, 1.0), keys(20 * TINY16, 0.0), ONE),
        changes={"grad_weights": BINARY16, "delta": "weights"},
        least=TINY16,
    ),
    Case("dS", "sum", "dk", (queries(64.0), keys(0.0), ALTERNATE, queries(4 * TINY))),
    Case(
        "dS",
        "sum",
        "dk",
        (queries(64.0), keys(0.0), ALTERNATE, queries(81.25 * TINY)),
        changes={"delta": "output"},
        least=1.1 * TINY,
    ),
    Case("dS", "sum", "dk", (queries(64.0), keys(0.0), ALTERNATE, queries(KEYS * 30 * TINY)), scale=1 / 64),
    Case(
        "dS",
        "grad_scores",
        "dk",
        (queries(64.0), keys(0.0), ALTERNATE, queries(4 * TINY16)),
        changes={"grad_scores": BINARY16},
        least=TINY16,
    ),
    Case(
        "part",
        "output",
        "dv",
        (NONE, keys(1.0), keys(1.0), queries(KEYS * TINY16 / 64)),
        changes={"output": BINARY16, "grad_block": 32},
        least=TINY16,
    ),
    Case(
        "scaled",
        "scale_on_inputs",
        "dq",
        (NONE, ALTERNATE, TINY16 / 2 * ALTERNATE, ONE),
        changes={"scale_on_inputs": BINARY16},
        least=TINY16,
        scale=4.0,
    ),
]


def test_every_loss_that_the_line_counts_has_a_case():
    assert {case.row for case in CASES} == losses(FLOAT32).keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.step}-{case.result}")
def test_a_step_that_is_flushed_is_within_the_line(case, monkeypatch):
    q, k, v, g = case.inputs
    a = replace(FLOAT32, name="flushes", flush_to_zero=True, likely=8.4, **case.changes)
    got = attention(a, case)[case.result]

    def excess() -> float:
        if case.bias is not None:
            given: Any = {"scale": case.scale, "bias": case.bias, "arithmetic": a}
            return float(generalised_attention.attention(q[None], k[None], v[None], **given)[0].excess(got[None]).max())
        out = scaled_dot_product_attention(q, k, v, scale=case.scale, arithmetic=a)
        gradients = scaled_dot_product_attention_vjp(q, k, v, None, g, scale=case.scale, arithmetic=a)
        enclosures = dict(zip(NAMES, (out, *gradients), strict=True))
        return float(enclosures[case.result].excess(got).max())

    assert excess() <= 1
    monkeypatch.setattr(statistical_line, "losses", lambda a: losses(a) | {case.row: 0.0})
    assert excess() > 1


@pytest.mark.parametrize("spread", [1e-5, 1e-4])
def test_a_loop_over_nearly_equal_terms_is_within_the_line(spread, monkeypatch):
    """16384 terms that a float32 sum rounds alike: their errors add up linearly, also if no two of the
    terms are equal.
    """
    rng, f32 = np.random.default_rng(0), np.float32
    q, k, v = spread * rng.standard_normal((2, 4)), rng.standard_normal((16384, 4)), rng.standard_normal(16)
    q, k, v = q.astype(f32), k.astype(f32), np.tile(v.astype(f32), (16384, 1))
    e = np.exp(q @ k.T / f32(2))
    sums = np.add.accumulate(e[:, :, None] * v, axis=1)[:, -1]
    found = sums / np.add.accumulate(e, axis=1)[:, -1:]
    a = replace(preset("float32-materialized"), name="a line", likely=8.4)

    def excess() -> float:
        return float(scaled_dot_product_attention(q, k, v, arithmetic=a).excess(found).max())

    assert excess() <= 1
    monkeypatch.setattr(statistical_line, "_multiplicity", lambda s, _: np.ones((len(s), 1)))
    assert excess() > 1


def test_a_column_of_zeros_has_no_equal_terms():
    """The logarithms of its terms are all −∞."""
    assert statistical_line._equal_terms(np.ones((2, 3)), np.zeros((3, 1)), 0.1) == 1


@pytest.mark.parametrize("options", [{}, {"softcap": 5.0}, {"sink": np.zeros(2)}, {"causal": True}])
def test_rows_without_keys_keep_their_budget(options):
    """Queries are many and wide enough for a line, but no key is there to have one."""
    q, none = np.ones((2, 100, 128)), np.zeros((2, 0, 128))
    out, lse = generalised_attention.attention(q, none, none, arithmetic=replace(FLOAT32, likely=6.0), **options)
    proved, proved_lse = generalised_attention.attention(q, none, none, arithmetic=FLOAT32, **options)
    assert (out.rad == proved.rad).all()
    assert (out.mid == 0).all()
    assert (lse.mid == proved_lse.mid).all()
