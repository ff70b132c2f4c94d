"""Running error analysis as a scalar: a definition, evaluated over it, bounds its own evaluation in
floating point.

An element holds a ball and a size. The ball contains the exact value and every value that an
evaluation may have computed whose operations each err by no more than the arithmetic's model
allows:

    fl(x ∘ y) = (x ∘ y)(1 + δ) + ε,   |δ| ≤ u (or k·u for exp, log, sin, cos),
    |ε| ≤ η, and ε = 0 for + and − and for exact zeros.

By induction over the text: each operation encloses the exact operation on both operands' balls and
then widens by δ and ε. This is the γ_n analysis with every constant worked out for the case at
hand. The size is the same expression with the absolute value of each term: a radius that is small
against it says something, one that is not would accept anything.

Source: Higham, Accuracy and Stability of Numerical Algorithms, 2002, sections 2.2 (the model) and
3.3 (running error analysis)
"""

from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from spec.context import ARB, Context


@dataclass(frozen=True)
class Rounding:
    """The model of an arithmetic: unit roundoff u, k for the elementary functions, and η, the error
    of an operation that underflows.
    """

    unit_roundoff: float
    elementary: float
    underflow: float

    def rounded(self, ball: flint.arb, *, units: float = 1.0, underflows: bool = False) -> flint.arb:
        widened = ball * flint.arb(1, units * self.unit_roundoff)
        return widened + flint.arb(0, self.underflow) if underflows else widened


@dataclass(frozen=True)
class Running:
    ball: flint.arb
    size: flint.arb
    model: Rounding

    def __add__(self, other: "Running") -> "Running":
        return Running(self.model.rounded(self.ball + other.ball), self.size + other.size, self.model)

    def __sub__(self, other: "Running") -> "Running":
        return Running(self.model.rounded(self.ball - other.ball), self.size + other.size, self.model)

    def __mul__(self, other: "Running") -> "Running":
        exact_zero = self.ball == 0 or other.ball == 0
        return Running(
            self.model.rounded(self.ball * other.ball, underflows=not exact_zero), self.size * other.size, self.model
        )

    def __neg__(self) -> "Running":
        return Running(-self.ball, self.size, self.model)

    def divided_by(self, other: "Running") -> "Running":
        if other.ball == 0:
            return Running(flint.arb(0), flint.arb(0), self.model)
        quotient = self.model.rounded(self.ball / other.ball, underflows=self.ball != 0)
        return Running(quotient, self.size / other.ball.abs_lower(), self.model)

    def max(self, other: "Running") -> "Running":
        return Running(self.ball.max(other.ball), self.size.max(other.size), self.model)

    def sqrt(self) -> "Running":
        root = self.model.rounded(self.ball.sqrt())
        return Running(root, root.abs_upper(), self.model)

    def log(self) -> "Running":
        """A relative error of x is an absolute error of log x: it is measured against 1 where log x is small."""
        value = self.model.rounded(self.ball.log(), units=self.model.elementary, underflows=True)
        return Running(value, value.abs_upper() + 1, self.model)

    def elementary(self, function: Any, size: flint.arb | None = None) -> "Running":
        value = self.model.rounded(function(self.ball), units=self.model.elementary, underflows=True)
        return Running(value, value.abs_upper() if size is None else size, self.model)


def running(model: Rounding) -> Context:
    """The scalar of running error analysis under the model. Inputs and naturals are exact: the
    model's arithmetic can hold them.
    """

    def exact(value: Any) -> Running:
        ball = ARB.lift(value)
        return Running(ball, ball.abs_upper(), model)

    return Context(
        name="RUNNING",
        element=Running,
        dtype=np.dtype(object),
        lift=lambda value: value if isinstance(value, Running) else exact(value),
        of_nat=exact,
        div=Running.divided_by,
        max=Running.max,
        exp=lambda x: x.elementary(flint.arb.exp),
        sqrt=Running.sqrt,
        log=Running.log,
        sin=lambda x: x.elementary(
            flint.arb.sin, flint.arb(1)
        ),  # near a zero of sin, the error of x is an error against 1
        cos=lambda x: x.elementary(flint.arb.cos, flint.arb(1)),
        tanh=lambda x: x.elementary(flint.arb.tanh, x.size),  # a contraction: the error of x is no larger in tanh x
        power=lambda x, y: x.elementary(lambda ball: ball**y.ball),
        floor=lambda x: Running(x.ball.floor(), x.size, x.model),
        greater=lambda x, y: ARB.greater(x.ball, y.ball),
        is_finite=lambda x: ARB.is_finite(x.ball),
        is_neg_inf=lambda x: ARB.is_neg_inf(x.ball),
        pi=lambda: exact(1).elementary(lambda _: flint.arb.pi()),
    )


# NumPy's exp, log, sin and cos are taken to be within 4 ulp, which is 8 u: the measured maximum is
# 2.4 ulp, of exp in binary32.
BINARY64 = Rounding(unit_roundoff=2.0**-53, elementary=8.0, underflow=2.0**-1074)
BINARY32 = Rounding(unit_roundoff=2.0**-24, elementary=8.0, underflow=2.0**-149)


def arbitrary_precision(bits: int) -> Rounding:
    """mpmath's model: + − × / √ round to nearest, the elementary functions are taken to be within 4
    ulp, exponents have no limits.
    """
    return Rounding(unit_roundoff=2.0**-bits, elementary=8.0, underflow=0.0)
