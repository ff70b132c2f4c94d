"""Merges attention over two parts of the keys. Each returned value comes with a radius: the exact
value lies in value ± radius.

The parts are a and b, with log-sum-exps (lse) lse_a and lse_b; m is the larger one, a = exp(lse_a −
m) and b = exp(lse_b − m).

**Error.** A kernel may compute a weight as a/(a + b), or as exp(lse_a − lse). Its arguments are off
by at most 6u of each of |lse_a|, |lse_b| and |lse|. `slope` is 6u plus the error of the exponential
for each unit of its argument.

    τ = slope·(|lse_a| + |lse_b| + |lse|) + 2·exp + γ₈

`exp` and `log` are the relative errors of the exponential and the logarithm, and γ₈ covers the
roundings of the sum and the quotient. Without the error of the logarithm a weight w becomes
w·exp(±2τ), and log(a + b) is off by τ.  The logarithm is taken of a number from 1 to 2. Its own
error adds ℓ = log·(log(a + b) + τ) to lse_a − lse.

The output is off by Σ w(exp(2τ + ℓ) − 1)|out_x|. The lse is off by τ, by the error of the logarithm
and by the rounding of the sum. The larger of a and b is 1. So where the smaller one is flushed to
0, both are also off by the flushed amount. A weight 1/(1 + exp(lse_b − lse_a)) is off by as much
where its exponential overflows.

The τ of the oracle's own float64 adds to the τ of an arithmetic, as in
`oracles.error_analysis.roundings`. A kernel that computes out_a − w_b·(out_a − out_b) is not
covered: it has a larger error where out_a is large and has no weight.

**Overflow.** A kernel may convert log-sum-exps from base e to base 2, where they are 1.44 times as
large. The radius is ∞ where m or lse may overflow in this way. The smaller lse may overflow: its
weight is then 0, which is right.
"""

from dataclasses import replace
from math import prod
from typing import Any, Unpack

import numpy as np
from flint import arb

from oracles import arrays
from oracles.arb_matrix import PRECISION, Bools, enclosed
from oracles.ball import UNDERFLOW, Array, Ball, ball, gamma, rounded
from oracles.conventions import Conventions
from oracles.enclosure import Enclosure
from oracles.error_analysis.own_arithmetic import OWN
from oracles.formats import Arithmetic
from oracles.judging import Balls, Evaluation, settle
from oracles.options import AnswerOptions, answer, takes


@takes(AnswerOptions)
def merge_attention(
    out_a: Any,
    lse_a: Any,
    out_b: Any,
    lse_b: Any,
    **options: Unpack[AnswerOptions],
) -> tuple[Enclosure, Enclosure]:
    """Return the output and the log-sum-exp (lse) of attention over all keys, given both for each
    of two parts of the keys. The results are `Enclosure`s (value ± radius).

    m = max(lse_a, lse_b), a = exp(lse_a − m), b = exp(lse_b − m): lse = m + log(a + b), out =
    (a·out_a + b·out_b)/(a + b). Exponentials and logarithms are in the base `conventions.lse_base`.

    Shapes: out_a and out_b (…, d_v), lse_a and lse_b (…), with at least one axis of rows; d_v may
    be 0.  Under an arithmetic, out_a and out_b have its input format, and lse_a and lse_b the
    format in which log-sum-exps are saved.
    Edge cases: a part whose lse is −∞ has no key, and its output is not read. Where both are −∞ the
    row is fully masked: its output is 0 and its lse −∞. There `conventions.dead_rows` = nan makes
    the output NaN, and uniform leaves both unchecked. A sink must belong to one of the parts.
    Raises ValueError and TypeError for shapes, types and values that do not fit, and for an lse of
    NaN or +∞. Raises ValueError if the lse is without the sink (`lse_sink` = excluded), because
    then parts cannot be merged.
    """
    arithmetic, conventions, method = answer(options)
    if conventions.lse_sink == "excluded":
        raise ValueError(
            "Parts cannot be merged under Conventions(lse_sink='excluded'): their log-sum-exps are without the sink."
        )
    of_log_sums = None if arithmetic is None else _of_lse(arithmetic)
    outputs = [arrays.float_array(x, name, arithmetic=arithmetic) for x, name in ((out_a, "out_a"), (out_b, "out_b"))]
    log_sums = [arrays.float_array(x, name, arithmetic=of_log_sums) for x, name in ((lse_a, "lse_a"), (lse_b, "lse_b"))]
    _require_shapes(outputs, log_sums)
    log_sums = [x[..., None] for x in log_sums]

    def dead(balls: Balls) -> Balls:
        return _with_dead_rows(balls, np.maximum(*log_sums) == -np.inf, conventions)

    evaluation = Evaluation(
        arithmetic,
        method,
        lambda: dead(_fast(outputs, log_sums, arithmetic, conventions.lse_base)),
        lambda: dead(_exactly(outputs, log_sums, conventions.lse_base)),
        32 * outputs[0].size,
        by_rows=True,
    )
    out, lse = settle(evaluation)
    target = None if of_log_sums is None else of_log_sums.inputs
    return out, replace(lse, mid=lse.mid[..., 0], rad=lse.rad[..., 0], format=target)


def _require_shapes(outs: list[Array], sums: list[Array]) -> None:
    """Raise ValueError unless both parts have one shape and each lse is a number or −∞."""
    if outs[1].shape != outs[0].shape:
        raise ValueError(f"out_b has shape {outs[1].shape}, but should be {outs[0].shape} like out_a.")
    for x, name in zip(sums, ("lse_a", "lse_b"), strict=True):
        if x.shape != outs[0].shape[:-1]:
            raise ValueError(
                f"{name} has shape {x.shape}, but should be {outs[0].shape[:-1]}, that of out_a without its last axis."
            )
        if not (x < np.inf).all():
            raise ValueError(f"{name} has a NaN or +∞, but should be finite, or −∞ where a part has no key.")


def _of_lse(arithmetic: Arithmetic) -> Arithmetic:
    """Return the arithmetic with its inputs in the format in which log-sum-exps are saved."""
    return replace(arithmetic, inputs=arithmetic.saved_lse or arithmetic.elementwise)


def _fast(outs: list[Array], sums: list[Array], arithmetic: Arithmetic | None, base: str) -> Balls:
    """Return the merged output and lse in float64, before the convention for fully masked rows is
    applied.
    """
    log_of_base = 1.0 if base == "e" else float(np.log(2.0))
    with np.errstate(all="ignore"):
        m = np.maximum(*sums)
        m = np.where(m > -np.inf, m, 0.0)
        exponentials = [np.exp((x - m) * log_of_base) for x in sums]
        total = exponentials[0] + exponentials[1]
        lse = m + np.log(total) / log_of_base
        has_keys = [x > -np.inf for x in sums]
        log_size = (
            sum(np.where(present, np.abs(x), 0.0) for x, present in zip(sums, has_keys, strict=True)) + np.abs(lse)
        ) * log_of_base
        tau = sum(
            (_exponent(model, log_size) for model in (OWN, arithmetic) if model is not None), start=np.zeros(m.shape)
        )
        values = [np.where(present, x, 0.0) for x, present in zip(outs, has_keys, strict=True)]
        mid = sum((e / total * x for e, x in zip(exponentials, values, strict=True)), start=np.zeros(outs[0].shape))
        weighted_size = sum(
            (e / total * np.abs(x) for e, x in zip(exponentials, values, strict=True)), start=np.zeros(outs[0].shape)
        )
        underflow = UNDERFLOW
        if arithmetic is not None:
            least = (
                arithmetic.elementwise.smallest_normal
                if arithmetic.flush_to_zero
                else arithmetic.elementwise.smallest_subnormal
            )
            underflow += max(arithmetic.exp.flush, least, 1 / arithmetic.elementwise.largest)
        flushed = 4 * underflow * sum((np.abs(x) + 1 for x in values), start=np.zeros(outs[0].shape))
        log_error = 0.0 if arithmetic is None else arithmetic.log
        out = ball(
            mid, (weighted_size * np.expm1(2 * tau + log_error * (np.log(total) + tau)) + flushed) * (1 + 2.0**-40)
        )
        merged = ball(
            lse,
            ((tau + 2 * underflow) / log_of_base + (OWN.log + log_error) * (np.abs(m) + np.abs(lse))) * (1 + 2.0**-40),
        )
        if arithmetic is not None:
            out = rounded(out, arithmetic.output, flush=arithmetic.flush_to_zero)
            out = Ball(
                out.mid,
                np.where(
                    2 * weighted_size.max(axis=-1, keepdims=True, initial=0.0) <= arithmetic.elementwise.largest,
                    out.rad,
                    np.inf,
                ),
            )
            merged = rounded(merged, arithmetic.saved_lse or arithmetic.elementwise, flush=arithmetic.flush_to_zero)
            largest = arithmetic.elementwise.largest / (2 if base == "e" else 1)
            overflow = np.maximum(np.abs(m), np.abs(lse)) > largest
            out, merged = (Ball(x.mid, np.where(overflow, np.inf, x.rad)) for x in (out, merged))
    return out, merged


def _exponent(arithmetic: Arithmetic, size: Array) -> Array:
    """Return τ of the module's error bound. `size` is the sum of the sizes of all log-sum-exps."""
    u = arithmetic.elementwise.unit_roundoff
    return (6 * u + arithmetic.exp.per_unit) * size + (
        2 * arithmetic.exp.relative / (1 - arithmetic.exp.relative) + gamma(8, u)
    )


def _exactly(outs: list[Array], sums: list[Array], base: str) -> Balls:
    """Return the merged output and lse by ball arithmetic, before the convention for fully masked
    rows is applied.
    """
    outputs = [
        np.where(x > -np.inf, out, 0.0).reshape(prod(x.shape), out.shape[-1]) for out, x in zip(outs, sums, strict=True)
    ]
    log_sum_lists = [x.ravel().tolist() for x in sums]
    lost = ~(np.isfinite(outputs[0]) & np.isfinite(outputs[1]))
    finite_values = [np.where(np.isfinite(x), x, 0.0).tolist() for x in outputs]

    def evaluate() -> list[tuple[list[arb], Bools]]:
        log_of_base = arb(1) if base == "e" else arb(2).log()
        out: list[arb] = []
        lse: list[arb] = []
        for x, y, row_a, row_b in zip(*log_sum_lists, *finite_values, strict=True):
            m = max(x, y)
            a, b = ((((arb(z) - arb(m)) * log_of_base).exp() if z > -np.inf else arb(0)) for z in (x, y))
            total = a + b if m > -np.inf else arb(1)
            out += [(a * p + b * r) / total for p, r in zip(row_a, row_b, strict=True)]
            lse.append(total.log() / log_of_base + (m if m > -np.inf else 0))
        return [(out, lost.reshape(outs[0].shape)), (lse, np.zeros(sums[0].shape, dtype=bool))]

    return enclosed(evaluate, PRECISION)


def _with_dead_rows(balls: Balls, dead: Bools, conventions: Conventions) -> Balls:
    """Return the merged output and lse with the values that the convention gives to fully masked
    rows.
    """
    out, lse = balls
    value, unchecked = {"zero": (0.0, 0.0), "nan": (np.nan, 0.0), "uniform": (np.nan, np.inf)}[conventions.dead_rows]
    return (
        Ball(np.where(dead, value, out.mid), np.where(dead, unchecked, out.rad)),
        Ball(np.where(dead, -np.inf, lse.mid), np.where(dead, unchecked, lse.rad)),
    )
