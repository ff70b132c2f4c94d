"""The error of a sum of products, in every order of additions that an arithmetic permits."""

from dataclasses import dataclass

from oracles.ball import gamma
from oracles.error_analysis.computation import partial_roundings
from oracles.formats import Arithmetic


@dataclass(frozen=True)
class Sum:
    """The error of a computed sum Σx: at most `terms`·Σ|x| + `result`·|Σx|."""

    terms: float
    result: float

    def __add__(self, other: "Sum") -> "Sum":
        return Sum(self.terms + other.terms, self.result + other.result)

    def of_rounded(self, operands: float) -> "Sum":
        """Return the error if each term has a relative error of `operands` before the addition:
        Σ|x̃| ≤ (1 + operands)·Σ|x|, and |Σx̃| ≤ |Σx| + operands·Σ|x|.
        """
        return Sum(self.terms * (1 + operands) + self.result * operands, self.result)

    def scaled(self, factor_error: float, operands: float = 0.0) -> "Sum":
        """Return the error if a factor multiplies the sum. The factor has a relative error of
        `factor_error`, and the terms of the sum one of `operands`.
        """
        return Sum(self.terms * (1 + factor_error) + factor_error * (1 + operands), self.result * (1 + factor_error))

    @property
    def positive(self) -> float:
        """The relative error of a sum whose terms have one sign. For any other sum it is a bound in
        units of Σ|x|.
        """
        return self.terms + self.result


def summed(a: Arithmetic, n: int, roundoff: float) -> Sum:
    """Return the error of a sum of n products, in any order that the arithmetic permits.

    Each product has an error of π = γ₁.  Each addition has an error of u times its result, which is
    the sum of a subset of the terms and of earlier errors. A subset sum is at most M = (Σ|x| +
    |Σx|)/2, the sum of the positive or of the negative terms. So the errors E of all n − 1
    additions, in any order, obey E ≤ (n − 1)·u·(M + E), which is E ≤ γ_{n−1}·M. (An adder of many
    operands cuts them off at the last bit of the largest.  It has the same error for each operand,
    because each operand is a subset sum.)

    If no term passes through more than D additions, E ≤ γ_D·Σ|x|.  Blocks of B terms combine both
    bounds: a term passes through B − 1 additions in its block, then through ⌈n/B⌉ − 1 additions of
    blocks.  The result is the smallest of the bounds that hold, where |Σx| is taken as half of
    Σ|x|.
    """
    product, any_order = gamma(1, roundoff), gamma(max(n - 1, 0), roundoff)
    bounds = [Sum(any_order / 2, any_order / 2)]
    if a.sum_depth is not None:
        bounds.append(Sum(gamma(a.sum_depth, roundoff), 0.0))
    if a.sum_block is not None:
        inside, across = gamma(a.sum_block - 1, roundoff), gamma(-(-n // a.sum_block) - 1, roundoff) if n else 0.0
        bounds.append(Sum(inside + across * (0.5 + inside), across / 2))
    tightest = min(bounds, key=lambda bound: bound.terms + bound.result / 2)
    return Sum(product + tightest.terms * (1 + product), tightest.result * (1 + product))


def summed_gradient(a: Arithmetic, n: int, *, of_keys: bool = False) -> Sum:
    """Return the error of a gradient: of its sum over n queries (with `of_keys`, over n keys), of
    partial sums rounded to the output's format, and of its scaling.

    A stored partial sum is a subset sum: the roundings of all N of them add γ_N·M (see `summed`).
    """
    partial_roundoff = gamma(partial_roundings(a, n, of_keys=of_keys), a.output.unit_roundoff)
    of_sum = summed(a, n + 1, a.grad_accumulate)
    of_partial_sums = Sum(partial_roundoff * (0.5 + of_sum.terms), partial_roundoff * (0.5 + of_sum.result))
    return (
        of_sum
        + of_partial_sums
        + Sum(0.0, gamma(4, a.elementwise.unit_roundoff) * (1 + of_sum.positive + of_partial_sums.positive))
    )
