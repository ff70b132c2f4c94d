"""Measures the exponentials of the implementations at hand against the arithmetics that they
declare: `python -m research.presets`, or `make presets`.

The micrometer and the curve of `properties.inspection` have nothing to say about a right
implementation. The micrometer also gives the interval of the exponential's error, for two keys. A
kernel may take another exponential for many keys, or store its weights in 16 bits before it
multiplies them by values. So the sum of a row is measured too, from 32 keys, of which key 0 has the
score 0 and the others ln w. Values are a in key 0 and b in the others, so

    out = A / R,  A = a + 31·w·b,  R = e(0) + 31·e(ln w)                                     (1)

where e are the kernel's exponentials. The weights 1 and w are numbers of every format, so a kernel
that stores weights stores exactly these. Columns whose quotients lie at different distances from
the ends of a rounding interval then give R to about 1e-5 also in 16 bits. The roundings of the sums
widen the interval. In a kernel that stores no weights, A has the error of R, and the micrometer is
finer.

An implementation fails where an error leaves what its arithmetic states for the exponential and the
sum and for stored weights. It also fails where most of the intervals of sums are narrower than a tenth of what is
stated, and no error of a tenth is shown.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from oracles.formats import Arithmetic, Format
from oracles.tests.simulated.rounding import rounding
from properties.contract.caller import Caller
from properties.contract.implementation import Implementation
from properties.contract.results import BrokenError
from properties.contract.support import OutsideError
from properties.inspection.curve import curve
from properties.inspection.curve_sentences import sentences_of_curve
from properties.inspection.micrometer import micrometer, sentences_of_micrometer
from properties.inspection.probe import Probe
from properties.inspection.shapes import Shape
from systems import GROUPS

__all__ = ["Row", "main", "measured", "rows_of"]

SIZES = {
    "scaled_dot_product_attention": {},
    "grouped_query_attention": {"num_heads": 1, "kv_heads": 1},
}
"""The operations that are measured, of each implementation the first that it has, and their further
sizes.
"""
KEYS, COLUMNS, CANDIDATES, INTEGERS = 32, 64, 1 << 16, 255
WEIGHTS = (1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25)
PIECES = 3  # numbers of 16 bits whose sum is the logarithm of a weight
GENEROUS = 10


class Row(NamedTuple):
    """What was measured of one implementation: intervals of errors of exponentials, what its
    arithmetic states, and what is wrong; "" if nothing is.
    """

    name: str
    intervals: list[tuple[float, float]]
    stated: float
    wrong: str


def _of_sum(a: Arithmetic) -> float:
    """The largest relative error of a sum of numbers of one sign, and of its quotient."""
    return (KEYS + 4) * max(a.accumulate, a.elementwise.unit_roundoff)


def _exponential(a: Arithmetic) -> float:
    """The largest error that an arithmetic states for an exponential of `WEIGHTS`."""
    return float(a.exp.relative + a.exp.per_unit * -np.log(min(WEIGHTS)))


def _columns(weights: Sequence[float], total: float, target: Format) -> Any:
    """The values a and b of (1), whose quotients lie near the ends of rounding intervals: at relative
    distances from 2⁻¹² to 2⁻²², on both sides.
    """
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, INTEGERS + 1, (2, CANDIDATES)).astype(float)
    a *= 2.0 ** -rng.integers(0, 9, CANDIDATES)  # steps that are finer than those of b
    out = (weights[0] * a + (KEYS - 1) * weights[1] * b) / total
    spacing = 2 * target.unit_roundoff * 2.0 ** np.floor(np.log2(out))
    distance = ((np.floor(out / spacing) + 0.5) * spacing - out) / out
    sizes = np.repeat(2.0 ** -np.linspace(12, 22, COLUMNS // 2), 2) * np.tile([1.0, -1.0], COLUMNS // 2)
    with np.errstate(all="ignore"):
        nearest = np.abs(np.log(np.maximum(distance / sizes[:, None], np.finfo(float).tiny))).argmin(1)
    return np.array([a[nearest], b[nearest]])


def _interval(probe: Probe, shape: Shape, weight: float) -> tuple[float, float]:
    """The interval of R's relative error; an empty interval if no R explains all columns."""
    arithmetic, scale = probe.caller.arithmetic, probe.scale(shape)
    target, power = arithmetic.output, 2.0 ** -round(np.log2(scale))
    total = 1 + (KEYS - 1) * weight
    a, b = _columns((1.0, weight), total, target)
    q, k, v = (shape.zeros(probe.operation, name) for name in "qkv")
    rest, store = np.log(weight) / (scale * power), rounding(arithmetic.inputs)
    for piece in range(PIECES):
        q[..., piece], k[..., 1:, piece] = power, store(np.array(rest))
        rest -= float(store(np.array(rest)))
    v[..., :, :] = np.where(np.arange(KEYS)[:, None] == 0, a, b)
    found = probe.results(shape, q=q, k=k, v=v)["out"].measured.reshape(-1, COLUMNS)
    if not (found > 0).all():
        return np.inf, -np.inf
    half = target.unit_roundoff * 2.0 ** np.floor(np.log2(found))
    sums, slack = (a + (KEYS - 1) * weight * b) / total, _of_sum(arithmetic)
    low, high = sums / (found + half) - 1 - slack, sums / (found - half) - 1 + slack
    return float(low.max()), float(high.min())


def measured(implementation: Implementation) -> Row:
    """Measure one implementation of attention. Raises OutsideError if it takes no 32 keys, and
    BrokenError if it raises.
    """
    operation = next(name for name in SIZES if name in implementation.operations)
    probe, a = Probe(Caller(implementation, operation), 500), implementation.resolved_arithmetic
    sizes = {"n_q": 1, "n_k": KEYS, "head_dim": COLUMNS, "value_dim": COLUMNS, **SIZES[operation]}
    shape = Shape(sizes, (1,) if SIZES[operation] else (1, 1))
    of_pair, of_exponential = micrometer(probe, shape), _exponential(a)
    of_weights = 0.0 if a.weights is None else 2 * a.weights.unit_roundoff
    pairs = [(low - of_weights, high + of_weights) for low, high in of_pair.exponentials.values()]
    sums = [_interval(probe, shape, weight) for weight in WEIGHTS]
    intervals = [(low, high) for low, high in (*pairs, *sums) if low <= high]
    shown = max((max(low, -high) for low, high in intervals), default=0.0)
    width = float(np.median([high - low for low, high in sums]))
    said = [*sentences_of_micrometer(of_pair), *sentences_of_curve(curve(probe, shape))]
    if shown > of_exponential + a.exp.at_zero + _of_sum(a):
        said.append("An exponential is less accurate than stated.")
    elif GENEROUS * max(shown, width) < of_exponential:
        said.append(f"No exponential is {of_exponential / GENEROUS:.1e} off, so what is stated is too generous.")
    return Row(implementation.name, intervals, of_exponential, " ".join(said))


def rows_of(implementations: Sequence[Implementation]) -> Iterator[Row]:
    """Yield what is measured of each implementation that has attention and takes the calls."""
    for implementation in implementations:
        if implementation.unavailable or not SIZES.keys() & implementation.operations.keys():
            continue
        try:
            yield measured(implementation)
        except (OutsideError, BrokenError):
            continue


def main() -> int:
    """Print a line for each implementation. Return 1 if one of them is not as its arithmetic states."""
    failed = False
    for row in rows_of([each for group in GROUPS.values() for each in group]):
        ends = [end for interval in row.intervals for end in interval]
        span = f"{min(ends):+.1e} to {max(ends):+.1e}" if ends else "not measured"
        print(f"{row.name:45} stated {row.stated:.1e}  measured {span:24} {row.wrong}".rstrip())
        failed = failed or bool(row.wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
