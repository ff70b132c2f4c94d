"""The bounds of vectors/onnx/accuracy.md, which derives them. A number in brackets is the page's.

The arrays are float64, or hold exact balls (arb), which prove a bound.
"""

from typing import Any, NamedTuple

import numpy as np

from oracles import BINARY16, BINARY32, BINARY64, BRAIN16, Format
from oracles.ball import gamma

__all__ = [
    "EXACT_ROOTS",
    "FORMATS",
    "Errors",
    "Machine",
    "Row",
    "entry_bound",
    "introduced",
    "machine_of",
    "propagated",
    "range_bound",
    "rotation_introduced",
    "rotation_propagated",
    "softmax",
    "softmax_bound",
    "softmax_introduced",
]

Array = Any
"""An array of float64, or of exact balls (arb)."""


class Row(NamedTuple):
    """A query, the n keys that are visible to it, their values, and their numbers of a float mask; or
    the errors of these arrays. Shapes: (d,), (n, d), (n, d_v), (n,).
    """

    q: Array
    k: Array
    v: Array
    mask: Array

    @property
    def sizes(self) -> "Row":
        """The absolute values of all arrays."""
        return Row(*map(np.abs, self))

    def logits(self, scale: Any) -> Array:
        """The scores plus the mask."""
        return scale * (self.k @ self.q) + self.mask


class Errors(NamedTuple):
    """Upper bounds of the errors that reach the output of a row.

    logits  τ, of each logit: (n,)
    values  W, of each value: (n, d_v)
    rest    of each column of the output, by underflow: (d_v,)
    """

    logits: Array
    values: Array
    rest: Array


def softmax(t: Array) -> Array:
    """Return the softmax of logits."""
    e = np.exp(t - t.max())
    return e / e.sum()


def range_bound(row: Row, errors: Errors) -> Array:
    """Return the bound (1) of the output's error, by the range of the values: (d_v,)."""
    spread = row.v.max(axis=0) - row.v.min(axis=0)
    return np.tanh(errors.logits.max() / 2) * spread + errors.values.max(axis=0) + errors.rest


def entry_bound(scale: Any, row: Row, errors: Errors) -> Array:
    """Return the bound (2) of the output's error, by the weight of each key: (d_v,)."""
    p = softmax(row.logits(scale))
    grown = p * np.exp(errors.logits)
    moved = (grown - p) @ np.abs(row.v - p @ row.v) + grown @ errors.values
    return moved / (p * np.exp(-errors.logits)).sum() + errors.rest


def propagated(scale: Any, row: Row, error: Row) -> Errors:
    """Return the errors (3) that the errors of the inputs cause."""
    size, off = row.sizes, error.sizes
    logits = scale * (size.k @ off.q + off.k @ size.q + off.k @ off.q) + off.mask
    return Errors(logits, off.v, 0 * off.v[0])


class Machine(NamedTuple):
    """What an implementation of the function body rounds.

    format       T1
    softmax      the format of softmax_precision, or T1
    sums         u_a, the unit roundoff of the sums of MatMul and Softmax
    exponential  ε, the largest relative error of an exponential that Softmax stores
    scale        κ, the relative error of the scale
    """

    format: Format
    softmax: Format
    sums: float
    exponential: float
    scale: float = 0.0

    @property
    def underflow(self) -> float:
        """η: how far a rounding moves a number near zero."""
        return max(self.format.smallest_subnormal, self.softmax.smallest_subnormal) / 2


FORMATS = {"float": BINARY32, "double": BINARY64, "float16": BINARY16, "bfloat16": BRAIN16}
"""The format of each type of ONNX that Attention takes."""
EXACT_ROOTS = (1, 16, 256)
"""Head sizes for which the root of 1/√d is a number of each type."""


def machine_of(t1: str, d: int, softmax_precision: str | None = None) -> Machine:
    """Return the machine of the page's tables: sums are at least as fine as float, and exponentials
    have errors of 8 roundoffs, or of 2 in 16 bits.
    """
    u, stage, of_float = FORMATS[t1].unit_roundoff, FORMATS[softmax_precision or t1], BINARY32.unit_roundoff
    root = 0.0 if d in EXACT_ROOTS else _together(gamma(4, of_float), gamma(2, u) if u > of_float else 0.0)
    exponential = (2 if stage.unit_roundoff > of_float else 8) * stage.unit_roundoff
    return Machine(FORMATS[t1], stage, min(max(u, stage.unit_roundoff), of_float), exponential, root)


def introduced(scale: float, row: Row, machine: Machine) -> Errors:
    """Return the errors (4) that the roundings of the function body cause."""
    u, u_s, eta, (n, d) = machine.format.unit_roundoff, machine.softmax.unit_roundoff, machine.underflow, row.k.shape
    of_score = _together(gamma(3, u), gamma(d, machine.sums))
    of_sum = _together(gamma(2, u_s), gamma(2, u), gamma(2 * n, machine.sums))
    if not (_together(machine.scale, of_score) <= 0.5 and of_sum <= 0.25 and machine.exponential + n * eta <= 0.5):
        raise ValueError(f"The bound does not hold for {n} keys of head size {d} in {machine.format.name}.")
    size, t = row.sizes, row.logits(scale)
    error = machine.scale * np.abs(scale * (row.k @ row.q))
    error = error + (1 + machine.scale) * of_score * scale * (size.k @ size.q)
    error = error + 4 * eta * (d + scale**0.5 * (size.q.sum() + size.k.sum(axis=1)))
    of_sum_with_mask, of_cast = (u if any(row.mask) else 0.0), (u_s if u_s > u else 0.0)
    for rounding in (of_sum_with_mask, of_cast):
        error = error + rounding * (np.abs(t) + error)
    tau = error + u_s * (t.max() - t + 2 * error.max()) + _exponent(machine)
    return Errors(tau, of_sum * size.v, 8 * n * eta * (size.v.max(axis=0) + 1))


def _exponent(machine: Machine) -> float:
    """Return how far the error of an exponential moves its argument."""
    return machine.exponential / (1 - machine.exponential)


def _together(*errors: float) -> float:
    """Return the relative error of a number that has all these relative errors, rounded up."""
    total = 0.0
    for error in errors:
        total = (total + error + total * error) * (1 + 2.0**-48)
    return total


# -- Softmax and RotaryEmbedding -------------------------------------------------------------------


def softmax_bound(p: Array, tau: Any) -> Array:
    """Return the bound (5) of the error of a softmax weight p, if each logit is off by at most τ."""
    grown = np.exp(2 * tau) - 1
    return p * (1 - p) * grown / (1 + np.minimum(p, 1 - p) * grown)


def softmax_introduced(t: Array, machine: Machine) -> Array:
    """Return the bound (6) of the introduced error of Softmax, for each weight."""
    u, n, p = machine.format.unit_roundoff, len(t), softmax(t)
    moved = softmax_bound(p, u * (t.max() - t.min()) + _exponent(machine))
    return moved + _together(gamma(2, u), gamma(n, machine.sums)) * (p + moved) + 6 * n * machine.underflow


def rotation_propagated(x: Array, table: Array, x_error: Array, table_error: Array) -> Array:
    """Return the bound (7) of the propagated error of x₀·table₀ ± x₁·table₁."""
    x, table, off, table_off = map(np.abs, (x, table, x_error, table_error))
    return (x * table_off + off * table + off * table_off).sum()


def rotation_introduced(x: Array, table: Array, machine: Machine) -> Array:
    """Return the bound (8) of the introduced error of x₀·table₀ ± x₁·table₁."""
    return gamma(2, machine.format.unit_roundoff) * np.abs(x * table).sum() + 3 * machine.underflow
