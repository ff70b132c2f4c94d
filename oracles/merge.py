"""Attention over parts of the keys, merged: each value in a proved interval, value ± radius.

**Error.** A weight a/(a + b) is computed as such, or as exp(lse_a − lse): its arguments are off by
at most 6u, and what the exponential is off by for each unit, of each of |lse_a|, |lse_b| and |lse|,
its exponentials and quotient by a few roundings more.  Without the logarithm's error it is
w·exp(±2τ), τ = slope·(|lse_a| + |lse_b| + |lse|) + 2·exp + γ₈, and log(a + b) is off by τ.  The
logarithm is one of a number from 1 to 2: in lse_a − lse its own error is `log` times log(a + b) + τ
more, ℓ.  The output is off by Σ w(exp(2τ + ℓ) − 1)|out_x|, lse by τ, the logarithm's error and the
sum's; and where the smaller of a and b is flushed, by as much, for the larger is 1: so is a weight
1/(1 + exp(lse_b − lse_a)) where that overflows.  The oracle's own τ adds to the τ of an arithmetic,
as in `oracles.error_analysis.roundings`.  (A kernel that takes out_a − w_b·(out_a − out_b) is off
by more where out_a is large and has no weight: it is not covered.)

**Overflow.** A kernel may take log-sum-exps in base e to base 2, where they are 1.44 times as
large: where m or lse may overflow so, the radius is ∞.  (The smaller lse of two may overflow: its
weight is 0 then, which is right.)
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
    """The output and the log-sum-exp of attention over two parts of the keys, given both for each
    part; the results are `Enclosure`s.

    m = max(lse_a, lse_b), a = exp(lse_a − m), b = exp(lse_b − m): lse = m + log(a + b), out =
    (a·out_a + b·out_b)/(a + b); exponentials and logarithms are in `conventions.lse_base`.

    Shapes: out_a and out_b (…, d_v), lse_a and lse_b (…), with at least one axis of rows; d_v may
    be 0.  Under an arithmetic outputs are of its inputs' format, log-sum-exps of the one in which
    they are saved. Edge cases: a part whose lse is −∞ has no key, and its output is not read; where
    both are, the row is fully masked: 0 (NaN, or unchecked, by `dead_rows`), with lse −∞. A sink
    belongs to one of the parts. Raises ValueError and TypeError for shapes, types and values that
    do not fit, for an lse of NaN or +∞, and if the log-sum-exp is without the sink (`lse_sink` =
    excluded), because then parts cannot be merged.
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
    """Raise ValueError unless both parts have one shape and log-sum-exps that are numbers or −∞."""
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
    """The arithmetic whose inputs are log-sum-exps in the format in which they are saved."""
    return replace(arithmetic, inputs=arithmetic.saved_lse or arithmetic.elementwise)


def _fast(outs: list[Array], sums: list[Array], arithmetic: Arithmetic | None, base: str) -> Balls:
    """Both results in float64, without fully masked rows."""
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
    """τ, for the sum of the sizes of all log-sum-exps."""
    u = arithmetic.elementwise.unit_roundoff
    return (6 * u + arithmetic.exp.per_unit) * size + (
        2 * arithmetic.exp.relative / (1 - arithmetic.exp.relative) + gamma(8, u)
    )


def _exactly(outs: list[Array], sums: list[Array], base: str) -> Balls:
    """Both results by ball arithmetic, without fully masked rows."""
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
    """Both results with fully masked rows by convention."""
    out, lse = balls
    value, unchecked = {"zero": (0.0, 0.0), "nan": (np.nan, 0.0), "uniform": (np.nan, np.inf)}[conventions.dead_rows]
    return (
        Ball(np.where(dead, value, out.mid), np.where(dead, unchecked, out.rad)),
        Ball(np.where(dead, -np.inf, lse.mid), np.where(dead, unchecked, lse.rad)),
    )
